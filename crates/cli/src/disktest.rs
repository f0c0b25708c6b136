//! `towline disktest`, and the further processes that it starts: this program once more. What they
//! do is in the crate `disktest`.

use std::path::Path;
use std::process::ExitCode;

use towline_disktest::{DiskArgs, DiskPart, Itself};

/// This program, also after its file was replaced by a newer one.
const ITSELF: &str = "/proc/self/exe";
/// The hidden command for [`part`].
const PART: &str = "disktest-part";

/// Tests a disk.
pub(crate) fn run(arguments: &DiskArgs) -> ExitCode {
    towline_disktest::test(arguments, Itself { program: Path::new(ITSELF), part: PART })
}

/// Body of a further process.
pub(crate) fn part(part: &DiskPart) -> ExitCode {
    towline_disktest::part(part)
}
