//! An instance that lags so far behind that the log it needs is gone gets a copy: the active one makes
//! a backup of itself and sends its files; the other one restores it in place of its own log and begins
//! again.
//!
//! ```text
//! for each file: length of its name (2 bytes, little-endian), name, length (8), bytes; at the end: 0 (2)
//! ```
//!
//! Not here: who needs one (`towline_group`). Invariant: the log that is replaced stays until the copy
//! is whole and on the disk.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use towline_admin::catalogue::{GROUP_COPY_FAILED, GROUP_COPY_GIVEN, GROUP_COPY_TAKEN};
use towline_log::backup::Upto;

use super::driver::Driver;
use super::kept_file::KeptFile;
use crate::backup::{self, BackupRequest};
use crate::images::Images;
use crate::link::{LinkStream, Peer, StreamPurpose};
use crate::logging::log as say;

const PIECE_BYTES: usize = 1024 * 1024;
/// Files of a backup are few; names are ours.
const NAME_BYTES_MAX: usize = 255;

/// Sends a copy of this instance's log to a peer.
pub(crate) fn give(
    driver: Arc<Driver>,
    images: Arc<Images>,
    data: PathBuf,
    peer: Peer,
    stream: LinkStream,
) {
    let handle = Handle::current();
    let started = std::thread::Builder::new().name("copy".into()).spawn(move || {
        let name = driver.names().get(peer).cloned().unwrap_or_default();
        let folder = data.join(format!("copy-for-{name}"));
        let given = give_all(&driver, &images, &folder, &handle, stream);
        std::fs::remove_dir_all(&folder).ok();
        match given {
            Ok(bytes) => say(&GROUP_COPY_GIVEN, &[&name, &bytes.to_string()]),
            Err(why) => say(&GROUP_COPY_FAILED, &[&name, &why]),
        }
    });
    if let Err(error) = started {
        say(&GROUP_COPY_FAILED, &["", &error.to_string()]);
    }
}

fn give_all(
    driver: &Driver,
    images: &Images,
    folder: &Path,
    handle: &Handle,
    mut stream: LinkStream,
) -> Result<u64, String> {
    let door = driver.door().ok_or("this instance is not active")?;
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| error.to_string())?;
    }
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let to = folder.canonicalize().map_err(|error| error.to_string())?;
    let request = BackupRequest { to: to.clone(), full: true, keep_images: 1 };
    backup::running("", door, images, &request)?;
    let mut files = Vec::new();
    list(&to, &to, &mut files).map_err(|error| error.to_string())?;
    let mut sent = 0;
    for name in files {
        sent += send_file(&to, &name, handle, &mut stream).map_err(|error| error.to_string())?;
    }
    handle
        .block_on(async {
            stream.write_all(&0_u16.to_le_bytes()).await?;
            stream.flush().await?;
            stream.shutdown().await
        })
        .map_err(|error| error.to_string())?;
    Ok(sent)
}

fn list(root: &Path, folder: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(root, &path, files)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.push(name.to_owned());
        }
    }
    Ok(())
}

fn send_file(
    root: &Path,
    name: &str,
    handle: &Handle,
    stream: &mut LinkStream,
) -> std::io::Result<u64> {
    let mut file = File::open(root.join(name))?;
    let bytes = file.metadata()?.len();
    let mut head = u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes().to_vec();
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(&bytes.to_le_bytes());
    handle.block_on(stream.write_all(&head))?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(bytes);
        }
        handle.block_on(stream.write_all(piece.get(..read).unwrap_or(&[])))?;
    }
}

/// Gets a copy from a peer and puts it in the place of this instance's log. The caller begins again.
///
/// # Errors
/// Why not, in words for the operator: the log is as it was.
pub(crate) fn take(driver: &Driver, data: &Path, peer: Peer) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let links = driver.links().ok_or("there are no links")?;
    let handle = links.streams().clone();
    let files = data.join("copy-files");
    let made = data.join("copy");
    for folder in [&files, &made] {
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(words)?;
        }
        std::fs::create_dir_all(folder).map_err(words)?;
    }
    let opened = handle.block_on(links.open_stream(peer, StreamPurpose::Copy));
    let mut stream = opened.map_err(words)?;
    receive(&files, &handle, &mut stream).map_err(words)?;
    let restored = backup::restore(&files, &made, Upto::Copy, &mut |_, _| {});
    let restored = restored.map_err(|error| error.to_string())?;
    replace(data, &made).map_err(words)?;
    let name = driver.names().get(peer).cloned().unwrap_or_default();
    say(&GROUP_COPY_TAKEN, &[&name, &restored.end.to_string()]);
    std::fs::remove_dir_all(&files).ok();
    std::fs::remove_dir_all(&made).ok();
    Ok(())
}

fn receive(folder: &Path, handle: &Handle, stream: &mut LinkStream) -> std::io::Result<()> {
    let refuse = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = usize::from(handle.block_on(stream.read_u16_le())?);
        if length == 0 {
            return Ok(());
        }
        let mut name = vec![0; length];
        handle.block_on(stream.read_exact(&mut name))?;
        let name = String::from_utf8(name).map_err(|_| refuse("a name that is no text"))?;
        // The peer is one of us, but a file must not land elsewhere whatever it says.
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if length > NAME_BYTES_MAX || !name.split('/').all(plain) {
            return Err(refuse("a name that is none of ours"));
        }
        let path = folder.join(&name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut left = handle.block_on(stream.read_u64_le())?;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let place = piece.get_mut(..most).unwrap_or_default();
            let read = handle.block_on(stream.read(place))?;
            if read == 0 {
                return Err(refuse("it ended too early"));
            }
            file.write_all(piece.get(..read).unwrap_or(&[]))?;
            left -= read as u64;
        }
    }
}

/// Puts `made/log` in the place of `data/log`.
fn replace(data: &Path, made: &Path) -> std::io::Result<()> {
    let (log, old) = (data.join("log"), data.join("log.replaced"));
    if old.exists() {
        std::fs::remove_dir_all(&old)?;
    }
    // What was known to be committed was known of the old log; votes stay. Until it has caught up it
    // gives no others: it may stop between the two names, and what it acknowledged is then nowhere.
    let kept_file = KeptFile::of(data);
    let mut kept = kept_file.read().unwrap_or_default();
    (kept.committed, kept.committed_end) = (0, towline_types::Lsn::ZERO);
    kept.may_vote = false;
    kept_file.forget_note()?;
    kept_file.write(&kept)?;
    std::fs::rename(&log, &old)?;
    std::fs::rename(made.join("log"), &log)?;
    match std::fs::remove_file(data.join(crate::start::REBUILD_MARKER)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::open(data)?.sync_all()?;
    std::fs::remove_dir_all(&old)
}
