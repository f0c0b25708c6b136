//! Names of the files in a log folder.
//!
//! Not here: what is in the files (`format`).
//!
//! Invariant: a file that counts is renamed to its name only when it is whole.

use towline_types::Lsn;

/// The page file.
pub const PAGES_NAME: &str = "pages";
/// The time index.
pub const TIME_INDEX_NAME: &str = "times";
/// The time index while it is rewritten.
pub const NEW_TIME_INDEX_NAME: &str = "new-times";
/// An image that is being written.
pub const NEW_IMAGE_NAME: &str = "new-image";
/// An extent that is being filled.
pub const NEW_NAME: &str = "new";
/// A file that says: this folder is being filled from a backup.
pub const RESTORING_NAME: &str = "restoring";

/// Name of an extent's file.
pub fn extent_name(sequence: u64) -> String {
    format!("extent-{sequence:016x}")
}

/// Name of an image's file.
pub fn image_name(at: Lsn) -> String {
    format!("image-{:016x}", at.0)
}

/// The number in a file name of ours: `prefix` and sixteen hex digits, nothing else.
pub fn number_in_name(prefix: &str, name: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let plain = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    if digits.len() != 16 || !digits.bytes().all(plain) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_no_others() {
        assert_eq!(extent_name(0x2f), "extent-000000000000002f");
        assert_eq!(number_in_name("extent-", &extent_name(u64::MAX)), Some(u64::MAX));
        for wrong in ["extent-", "extent-2f", "extent-000000000000002F", "extent-+00000000000002f"]
        {
            assert_eq!(number_in_name("extent-", wrong), None, "{wrong}");
        }
    }
}
