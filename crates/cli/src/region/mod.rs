//! Commands for two regions.
//!
//! Reading order: `change` (roles), `alone` (replies), `check`, `drill` and its `probe`,
//! `divergence` (what an old live group has), `exported` (the file of that), `put_again` and its
//! `put_notes`, `rejoin`, `fence`, `report`; `rehearse` (a check at the recovery point); `sizing`
//! (the formulas), `plan` (the table).

mod alone;
mod change;
mod check;
mod divergence;
mod drill;
mod exported;
mod fence;
mod plan;
mod probe;
mod probe_queue;
mod put_again;
mod put_notes;
mod rehearse;
mod rejoin;
mod report;
mod sizing;

use crate::arguments::Region;
use crate::failure::Failure;

pub(crate) use rehearse::part as rehearsal_part;

/// Runs `towline region`.
pub(crate) fn run(command: &Region) -> Result<(), Failure> {
    match command {
        Region::Switch(arguments) => change::switch(arguments),
        Region::Drill(arguments) => drill::run(arguments),
        Region::Failover(arguments) => change::failover(arguments),
        Region::Alone(arguments) => alone::run(arguments),
        Region::Check(arguments) => check::run(&arguments.reach),
        Region::Divergence(arguments) => divergence::run(arguments),
        Region::PutAgain(arguments) => put_again::run(arguments),
        Region::Rejoin(arguments) => rejoin::run(arguments),
        Region::Fence(arguments) => fence::fence(arguments),
        Region::Unfence(arguments) => fence::unfence(arguments),
        Region::Report(arguments) => report::run(arguments),
        Region::Rehearse(arguments) => rehearse::run(arguments),
        Region::Plan(arguments) => plan::run(arguments),
    }
}
