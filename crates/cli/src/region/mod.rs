//! Commands for two regions.
//!
//! Reading order: `sizing` (the formulas), `plan` (the table); `check`.

mod check;
mod plan;
mod sizing;

use crate::arguments::Region;
use crate::failure::Failure;

/// Runs `towline region`.
pub(crate) fn run(command: &Region) -> Result<(), Failure> {
    match command {
        Region::Check(arguments) => check::run(&arguments.reach),
        Region::Plan(arguments) => plan::run(arguments),
    }
}
