//! Images: what the node says its state was at a position, in one file.
//!
//! Not here: what is in one; when one is due.
//!
//! Invariants: a file named `image-...` is whole and synced (it got its name after that); the
//! newest two are kept; an image whose checksum is wrong is never given out.

use std::io;

use bytes::Bytes;
use towline_types::Lsn;

use crate::block::Aligned;
use crate::disk::Disk;
use crate::error::LogError;
use crate::format::{
    BLOCK_BYTES, BadHeader, FORMAT_VERSION, IMAGE_HEADER_BYTES, ImageHeader, image_name, padded,
    size,
};
use crate::mark::Mark;
use crate::shared::{ImagePlace, Shared, hold};
use crate::writer::fail;

/// Name of an image that is being written.
pub(crate) const NEW_IMAGE_NAME: &str = "new-image";
/// Images kept.
const IMAGES_MAX: usize = 2;
const PIECE_BYTES: usize = 1024 * 1024;

pub(crate) fn write(shared: &Shared, mark: Mark, bytes: &[u8]) -> Result<(), LogError> {
    let at = mark.at();
    assert!(at <= shared.durable(), "an image covers what is durable");
    let header = ImageHeader {
        log_id: shared.log_id,
        at,
        bytes: bytes.len() as u64,
        checksum: crc32c::crc32c(bytes),
        seam: Some(mark.seam()),
    };
    let mut housekeeping = hold(&shared.housekeeping);
    // What waited for this lock may have been cut off meanwhile.
    assert!(at <= shared.durable(), "an image covers what stays");
    let disk = shared.disk.as_ref();
    let name = image_name(at);
    let named = write_file(disk, header, bytes);
    if let Err(e) = named.and_then(|()| disk.rename(NEW_IMAGE_NAME, &name)) {
        // What was written so far must not take room that may be wanting. When that fails too, a
        // start removes it.
        drop(disk.remove(NEW_IMAGE_NAME));
        return Err(LogError::io("write an image", &name, e));
    }
    sync_names(shared)?;
    let images = &mut housekeeping.images;
    images.retain(|image| image.at != at);
    images.push(ImagePlace { at, needs: header.needs() });
    images.sort_unstable();
    while images.len() > IMAGES_MAX {
        let Some(oldest) = images.first().map(|image| image_name(image.at)) else { break };
        match disk.remove(&oldest) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            // The new image is there: that the old one is too is no failure of it. What the old one
            // needs is kept, and with the next image it is tried again.
            Err(_) => break,
        }
        images.remove(0);
    }
    let first = shared.first_held();
    hold(&shared.needs).enter_images(first, images);
    Ok(())
}

/// Removes all images but the newest, so that the log that only they need can go: where room is
/// wanting, one image must do.
///
/// # Errors
/// [`LogError::Io`]: what was not removed is kept, with all that it needs.
pub(crate) fn drop_older(shared: &Shared) -> Result<(), LogError> {
    let mut housekeeping = hold(&shared.housekeeping);
    let images = &mut housekeeping.images;
    let mut removed = Ok(());
    while images.len() > 1 {
        let name = image_name(images[0].at);
        match shared.disk.remove(&name) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                removed = Err(LogError::io("remove an old image", &name, e));
                break;
            }
        }
        images.remove(0);
    }
    // An image that comes back after a power cut names log that may be gone by then: it must not.
    sync_names(shared)?;
    let first = shared.first_held();
    hold(&shared.needs).enter_images(first, images);
    removed
}

/// Makes names durable. What names there are when that fails is not known, and never will be by
/// trying again: the log ends.
///
/// # Errors
/// [`LogError::Io`].
pub(crate) fn sync_names(shared: &Shared) -> Result<(), LogError> {
    let synced = shared.disk.sync_names();
    synced.map_err(|e| {
        let error = LogError::io("sync the log folder", &shared.disk.name(), e);
        fail(shared, &error);
        error
    })
}

fn write_file(disk: &dyn Disk, header: ImageHeader, bytes: &[u8]) -> io::Result<()> {
    let file = disk.create(NEW_IMAGE_NAME)?;
    let mut block = Aligned::zeroed(IMAGE_HEADER_BYTES);
    block.bytes_mut().copy_from_slice(&header.encode());
    file.write_at(block.bytes(), 0)?;
    let mut piece = Aligned::with_capacity(PIECE_BYTES);
    let mut at = IMAGE_HEADER_BYTES as u64;
    for part in bytes.chunks(PIECE_BYTES) {
        piece.truncate(0);
        piece.append_to().extend_from_slice(part);
        piece.pad();
        file.write_at(piece.bytes(), at)?;
        at += part.len() as u64;
    }
    file.sync_data()
}

/// What came of reading an image.
#[derive(Debug)]
pub(crate) enum Loaded {
    Whole(ImageHeader, Bytes),
    Damaged,
}

/// Reads an image's header; `None` when it is damaged.
///
/// # Errors
/// [`LogError::Io`]; [`LogError::Version`].
pub(crate) fn load_header(disk: &dyn Disk, at: Lsn) -> Result<Option<ImageHeader>, LogError> {
    let name = image_name(at);
    let failed = |e| LogError::io("read an image", &name, e);
    let file = disk.open(&name).map_err(failed)?;
    let mut block = Aligned::zeroed(IMAGE_HEADER_BYTES);
    let count = file.read_at(block.bytes_mut(), 0).map_err(failed)?;
    decode_header(block.bytes().get(..count).unwrap_or(&[]), at, &name)
}

fn decode_header(bytes: &[u8], at: Lsn, name: &str) -> Result<Option<ImageHeader>, LogError> {
    match ImageHeader::decode(bytes) {
        Ok(header) if header.at == at => Ok(Some(header)),
        Ok(_) | Err(BadHeader::Damaged) => Ok(None),
        Err(BadHeader::Version(found)) => {
            let file = name.to_owned();
            Err(LogError::Version { file, found, supported: FORMAT_VERSION })
        }
    }
}

/// Reads an image and checks it.
///
/// # Errors
/// [`LogError::Io`]; [`LogError::Version`].
pub(crate) fn load(disk: &dyn Disk, at: Lsn) -> Result<Loaded, LogError> {
    let name = image_name(at);
    let failed = |e| LogError::io("read an image", &name, e);
    let file = disk.open(&name).map_err(failed)?;
    // Never more memory than there is file, whatever a header says.
    let length = file.len().map_err(failed)?;
    let mut content = Aligned::zeroed(size(padded(length)).max(IMAGE_HEADER_BYTES));
    let count = file.read_at(content.bytes_mut(), 0).map_err(failed)?;
    content.truncate(count);
    let Some(header) = decode_header(content.bytes(), at, &name)? else {
        return Ok(Loaded::Damaged);
    };
    let end = usize::try_from(header.bytes).ok().and_then(|b| b.checked_add(IMAGE_HEADER_BYTES));
    let Some(end) = end.filter(|end| *end <= count) else { return Ok(Loaded::Damaged) };
    let content = content.into_bytes(end).slice(IMAGE_HEADER_BYTES..);
    if crc32c::crc32c(&content) != header.checksum {
        return Ok(Loaded::Damaged);
    }
    Ok(Loaded::Whole(header, content))
}

const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES));
