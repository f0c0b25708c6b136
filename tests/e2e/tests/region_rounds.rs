//! A short run of random changes of roles on two regions of real processes; the program
//! `region_rounds` is the long one.

use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::region_rounds::{RegionRounds, run};
use towline_e2e::require;

/// Rounds, if there is time for so many.
const ROUNDS: u32 = 5;
/// No round begins after it.
const TIME: Duration = Duration::from_secs(60);

#[test]
fn random_changes_of_roles_lose_nothing_that_was_not_announced_and_double_nothing() -> Try {
    let seed = Chance::announced("random changes of roles").bits() >> 1;
    let wanted = RegionRounds { rounds: ROUNDS, first: 0, seed, time: TIME, size: 1 };
    println!("the same by hand: region_rounds --seed {seed} --rounds {ROUNDS}");
    let findings = run(wanted, &|line| println!("{line}"))?;
    require!(findings.failed.is_empty(), "rounds {:?}", findings.failed);
    require!(findings.rounds > 0 && findings.tally.committed > 0, "{findings:?}");
    Ok(())
}
