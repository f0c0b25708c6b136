//! `towline load`: the load harness, which is ended by Ctrl-C in order: what was measured is shown.

use std::process::ExitCode;

use towline_load::LoadArgs;

use crate::failure::Failure;
use crate::signals;

/// Runs the command.
pub(crate) fn run(arguments: LoadArgs) -> ExitCode {
    match signals::first_asks(|| {}) {
        Ok(interrupted) => towline_load::run(arguments, &interrupted),
        Err(error) => Failure::from(error).report(false),
    }
}
