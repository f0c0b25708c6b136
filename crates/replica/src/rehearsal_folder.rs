//! Where rehearsals have their data: a folder in the data folder of the instance, and in it one of
//! its own for each. One command may still remove what it made when the next rehearsal has begun.
//!
//! Not here: what is in it (the command makes it).

use std::io::ErrorKind;
use std::path::Path;

use towline_os::fs;

/// Its name.
pub const REHEARSAL_FOLDER: &str = "rehearsal";

/// How often it is tried again when what is removed is removed, or made, beside it.
const TRIES: usize = 10;

/// Removes what rehearsals left that did not end in order. None may be under way.
///
/// # Errors
/// What the disk said.
pub fn clear_up(data: &Path) -> std::io::Result<()> {
    let mut tries = TRIES;
    loop {
        let Err(error) = fs::remove_dir_all(data.join(REHEARSAL_FOLDER)) else { return Ok(()) };
        tries -= 1;
        match error.kind() {
            ErrorKind::NotFound if !fs::exists(data.join(REHEARSAL_FOLDER)) => return Ok(()),
            ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty if tries > 0 => {}
            _ => return Err(error),
        }
    }
}
