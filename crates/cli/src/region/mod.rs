//! Commands for two regions.
//!
//! Reading order: `change` (roles), `check`, `sizing` (the formulas), `plan` (the table).

mod change;
mod check;
mod plan;
mod sizing;

use crate::arguments::Region;
use crate::failure::Failure;

/// Runs `towline region`.
pub(crate) fn run(command: &Region) -> Result<(), Failure> {
    match command {
        Region::Switch(arguments) => change::switch(arguments),
        Region::Failover(arguments) => change::failover(arguments),
        Region::Check(arguments) => check::run(&arguments.reach),
        Region::Plan(arguments) => plan::run(arguments),
    }
}
