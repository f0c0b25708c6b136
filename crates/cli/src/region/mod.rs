//! Commands for two regions.
//!
//! Reading order: `change` (roles), `alone` (replies), `check`, `divergence` (what an old live group
//! has), `exported` (the file of that), `put_again`, `rejoin`; `sizing` (the formulas), `plan` (the
//! table).

mod alone;
mod change;
mod check;
mod divergence;
mod exported;
mod plan;
mod put_again;
mod rejoin;
mod sizing;

use crate::arguments::Region;
use crate::failure::Failure;

/// Runs `towline region`.
pub(crate) fn run(command: &Region) -> Result<(), Failure> {
    match command {
        Region::Switch(arguments) => change::switch(arguments),
        Region::Failover(arguments) => change::failover(arguments),
        Region::Alone(arguments) => alone::run(arguments),
        Region::Check(arguments) => check::run(&arguments.reach),
        Region::Divergence(arguments) => divergence::run(arguments),
        Region::PutAgain(arguments) => put_again::run(arguments),
        Region::Rejoin(arguments) => rejoin::run(arguments),
        Region::Plan(arguments) => plan::run(arguments),
    }
}
