//! Images: what the node says its state was at a position, in one file.
//!
//! Not here: what is in one; when one is due.
//!
//! Invariants: a file named `image-...` is whole and synced (it got its name after that); the
//! newest two are kept; an image with a wrong checksum is never returned.

use std::io;

use crate::block::Aligned;
use crate::disk::Disk;
use crate::error::LogError;
use crate::folder::names::{NEW_IMAGE_NAME, image_name};
use crate::format::{BLOCK_BYTES, IMAGE_HEADER_BYTES, ImageHeader};
use crate::mark::Mark;
use crate::needs::ImagePlace;
use crate::shared::Shared;
use crate::writer::fail;

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
    let mut housekeeping = shared.housekeeping.lock();
    // What waited for this lock may have been cut off meanwhile.
    assert!(at <= shared.durable(), "an image covers what stays");
    let disk = shared.disk.as_ref();
    let name = image_name(at);
    let named = write_file(disk, header, bytes);
    if let Err(e) = named.and_then(|()| disk.rename(NEW_IMAGE_NAME, &name)) {
        // What was written so far must not take space that may be needed. When that fails too, a
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
    shared.needs.lock().enter_images(first, images);
    Ok(())
}

/// Removes all images but the newest, so that the log that only they need can be released: when
/// space is short, one image must do.
///
/// # Errors
/// [`LogError::Io`]: what was not removed is kept, with all that it needs.
pub(crate) fn drop_older(shared: &Shared) -> Result<(), LogError> {
    let mut housekeeping = shared.housekeeping.lock();
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
    shared.needs.lock().enter_images(first, images);
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

const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES));
