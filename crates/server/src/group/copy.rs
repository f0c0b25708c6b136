//! An instance that lags so far behind that the log it needs is gone gets a copy: the active one
//! sends image, pages and extents straight from its files; the other one makes a log of them beside
//! its own and re-executes itself, which puts it in the place of that (`swap`).
//!
//! ```text
//! giver to taker: a copy (`towline_backup`); taker to giver, once all is checked and synced: '+'
//! ```
//!
//! Not here: who needs one (`towline_group`); what is held back until the taker is in sync
//! (`holds`). Invariants: the log that is replaced stays until the copy is whole and on the disk;
//! neither side waits for ever for the other.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use towline_admin::catalogue::{
    GROUP_COPY_COMES, GROUP_COPY_FAILED, GROUP_COPY_GIVEN, GROUP_COPY_TAKEN,
};
use towline_backup::{Progress, Source, Taken, give as give_log, take as take_log};
use towline_log::{Disk, LinuxDisk};
use towline_types::BatchPlace;

use super::driver::Driver;
use super::start::Opened;
use super::{repair, swap};
use crate::backup::{pages_of, patiently};
use crate::link::{LinkStream, Peer, StreamPurpose};
use towline_logging::log as say;

/// A stream that stands still for so long is given up. An image is taken before the first byte
/// comes.
const STILL_MAX: Duration = Duration::from_secs(20);
/// How long the taker may check what came.
const CHECK_MAX: Duration = Duration::from_secs(300);
/// How often the taker says how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// Read from the stream at once.
const READ_BYTES: usize = 256 * 1024;
/// What the taker answers.
const WHOLE: u8 = b'+';

/// Sends a copy of this instance's log to a peer.
pub(crate) fn give(opened: Arc<Opened>, peer: Peer, stream: LinkStream) {
    let handle = Handle::current();
    let started = std::thread::Builder::new().name("copy".into()).spawn(move || {
        let name = opened.driver.names().get(peer).cloned().unwrap_or_default();
        match give_all(&opened, peer, Patient { stream, handle }) {
            Ok(bytes) => say(&GROUP_COPY_GIVEN, &[&name, &bytes.to_string()]),
            Err(why) => say(&GROUP_COPY_FAILED, &[&name, &why]),
        }
    });
    if let Err(error) = started {
        say(&GROUP_COPY_FAILED, &["", &error.to_string()]);
    }
}

fn give_all(opened: &Opened, peer: Peer, mut stream: Patient) -> Result<u64, String> {
    let Opened { driver, images, replica, .. } = opened;
    let log = driver.log();
    // Before the image is taken: what it refers to must not go meanwhile.
    let giving = driver.holds().begin(peer, log);
    let mut pages_hold = Some(images.hold_pages());
    let words = |error: towline_backup::BackupError| error.to_string();
    let taken = patiently(|| {
        let taken = match driver.door() {
            Some(door) => images.take(door.as_ref()),
            // It leads, and what it has is not committed yet: perhaps only with this copy.
            None => images.take(replica.as_ref()),
        };
        taken.map_err(|error| error.to_string())
    })?;
    let source = patiently(|| Source::running(log, taken.at, taken.keep_from).map_err(words))?;
    giving.hold().only_from(source.first());
    let used = source.image().map_or_else(|| Ok(Vec::new()), pages_of)?;
    let rows = images.times().map(|times| times.rows()).unwrap_or_default();
    let first = source.first().0 / opened.extent_bytes;
    let mut progress = |now: Progress| {
        if now.extent > first {
            // All pages are sent.
            pages_hold = None;
        }
    };
    let pages = (images.pages(), used.as_slice());
    let given = give_log(&source, pages, &rows, giving.hold(), &mut stream, &mut progress);
    let bytes = given.map_err(words)?;
    match stream.answer() {
        Ok(WHOLE) => {
            giving.given();
            Ok(bytes)
        }
        Ok(_) => Err("its answer is not understood".into()),
        Err(error) => {
            // All of it was sent, and perhaps what this disk gave was not what was written: the
            // next copy is of what is repaired.
            repair::look_over(driver);
            Err(format!("it did not take it: {error}"))
        }
    }
}

/// A stream as blocking reads and writes, none of which waits longer than [`STILL_MAX`].
struct Patient {
    stream: LinkStream,
    handle: Handle,
}

impl Patient {
    fn wait<T>(
        &mut self,
        most: Duration,
        act: impl AsyncFnOnce(&mut LinkStream) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let stream = &mut self.stream;
        self.handle.block_on(async {
            let done = tokio::time::timeout(most, act(stream)).await;
            done.unwrap_or_else(|_| {
                let still = format!("nothing moved for {} seconds", most.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, still))
            })
        })
    }

    fn answer(&mut self) -> std::io::Result<u8> {
        self.wait(CHECK_MAX, async |stream| stream.read_u8().await)
    }
}

impl Read for Patient {
    fn read(&mut self, place: &mut [u8]) -> std::io::Result<usize> {
        self.wait(STILL_MAX, async |stream| stream.read(place).await)
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.wait(STILL_MAX, async |stream| stream.write(bytes).await)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.wait(STILL_MAX, async |stream| stream.flush().await)
    }
}

/// Gets a copy from a peer, to be put in the place of this instance's log when the caller
/// re-executes itself.
///
/// # Errors
/// Why not, in words for the operator: the log is as it was.
pub(crate) fn take(driver: &Driver, data: &Path, peer: Peer) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let links = driver.links().ok_or("there are no links")?;
    let handle = links.streams().clone();
    let made = swap::begin(data).map_err(words)?;
    let taken = take_into(driver, &made, peer, handle);
    if taken.is_err() {
        // Its room is wanted, and the next one begins anew.
        std::fs::remove_dir_all(&made).ok();
    }
    let (mut stream, came) = taken?;
    let told = stream.wait(STILL_MAX, async |stream| {
        stream.write_u8(WHOLE).await?;
        stream.flush().await
    });
    if let Err(error) = told {
        // The copy is good, but what comes behind it may not be held back.
        tracing::warn!(%error, "that a copy arrived could not be told");
    }
    let last = BatchPlace { index: came.index, term: came.term, ..BatchPlace::default() };
    driver.replaced_by(last, |kept| swap::hand_in(data, &made, kept)).map_err(words)?;
    let name = driver.names().get(peer).cloned().unwrap_or_default();
    say(&GROUP_COPY_TAKEN, &[&name, &came.end.to_string()]);
    std::fs::remove_dir_all(&made).ok();
    Ok(())
}

/// Makes `made/log`; yields what came.
fn take_into(
    driver: &Driver,
    made: &Path,
    peer: Peer,
    handle: Handle,
) -> Result<(Patient, Taken), String> {
    let links = driver.links().ok_or("there are no links")?;
    let opening = links.open_stream(peer, StreamPurpose::Copy);
    let opened = handle.block_on(async { tokio::time::timeout(STILL_MAX, opening).await });
    let opened = opened.map_err(|_| "it does not answer".to_owned())?;
    let stream = opened.map_err(|error| error.to_string())?;
    let disk = LinuxDisk::open(&made.join("log")).map_err(|error| error.to_string())?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let name = driver.names().get(peer).cloned().unwrap_or_default();
    let mut told = Instant::now();
    let mut progress = |now: Progress| {
        if told.elapsed() >= TELL_INTERVAL {
            told = Instant::now();
            let percent = u128::from(now.done) * 100 / u128::from(now.all.max(1));
            let [done, all] = [now.done, now.all].map(|bytes| bytes.to_string());
            say(&GROUP_COPY_COMES, &[&name, &done, &all, &percent.to_string()]);
        }
    };
    let mut from = BufReader::with_capacity(READ_BYTES, Patient { stream, handle });
    let taken = take_log(&disk, driver.log().id(), &mut from, &mut progress);
    let taken = taken.map_err(|error| error.to_string())?;
    // The folder's own name must be there before it gets another one.
    File::open(made).and_then(|made| made.sync_all()).map_err(|error| error.to_string())?;
    Ok((from.into_inner(), taken))
}
