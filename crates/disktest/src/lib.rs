//! `towline disktest`: how fast a disk takes what a recovery log writes, how many commits per
//! second that allows, whether it keeps its word about sync, and whether its locks can be trusted.
//!
//! It writes as the log does but uses none of its code: it must also report on disks on which the
//! log would fail. It does *not* test reading, nor capacity.
//!
//! Reading order: `args` (options), `plan` (the same, checked), `run` (phases), `file` and
//! `guard` (what is written, and that it goes again), `measure` (a slice), `predict`,
//! `location`, `probe` and `honesty` (does the disk lie), `cut` (proof of that), `locks` and
//! `second` (two processes), `report`, `table`, `chart`.

#![forbid(unsafe_code)]

mod args;
mod chart;
mod cut;
mod file;
mod guard;
mod honesty;
mod location;
mod locks;
mod measure;
mod plan;
mod predict;
mod probe;
mod report;
mod run;
mod second;
mod show;
mod table;

use std::process::ExitCode;

pub use args::{DiskArgs, DiskMode, DiskPart, bytes};
pub use guard::Itself;

/// Runs the disk tester as the command line asks. `itself` is how it starts its other processes.
///
/// 0: it ran, and the disk is fit. 1: it could not run. 2: the options do not fit together. 3: the
/// disk is not fit: it lies about sync, or its locks fail.
#[must_use]
pub fn test(args: &DiskArgs, itself: Itself<'_>) -> ExitCode {
    match run::run(args, itself) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(failure) => {
            eprintln!("towline disktest: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// Body of another process of the disk tester.
#[must_use]
pub fn part(part: &DiskPart) -> ExitCode {
    let done = match part {
        DiskPart::Guard { path } => guard::run(path),
        DiskPart::Locks { folder } => second::run(folder),
    };
    // Its output has no reader.
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
