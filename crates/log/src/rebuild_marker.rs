//! The file that says: do not use the page file of this log; rebuild the queues from all of the
//! log. It lies in the log folder, or, beside a log that is not shared, in the data folder.
//!
//! Not here: when the page file must not be used, and the rebuild itself.

use std::io;
use std::path::Path;

use towline_os::fs::File;

/// The name of the file.
pub const REBUILD_MARKER: &str = "rebuild-queues";

/// Makes the file, durably. It stays until the next image is taken: images that are older refer to
/// pages that are not there.
///
/// # Errors
/// It cannot be made durable.
pub fn mark_rebuild(marker: &Path) -> io::Result<()> {
    File::create(marker)?.sync_all()?;
    marker.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
