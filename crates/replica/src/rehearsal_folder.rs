//! Where a rehearsal has its data: a folder in the data folder of the instance.
//!
//! Not here: what is in it (the command makes it).

use std::path::Path;

use towline_os::fs;

/// Its name.
pub const REHEARSAL_FOLDER: &str = "rehearsal";

/// Removes what a rehearsal left that did not end in order.
///
/// # Errors
/// What the disk said.
pub fn clear_up(data: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(data.join(REHEARSAL_FOLDER)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
