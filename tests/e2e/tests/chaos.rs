//! A short run of random faults on groups of real processes; `make chaos` is the long one.

use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::chaos::{ChaosPlan, Power, run};
use towline_e2e::require;

/// Rounds, if there is time for so many.
const ROUNDS: u32 = 8;
/// No round begins after it.
const TIME: Duration = Duration::from_secs(20);
/// Groups side by side: one with disks that can be full, and one with power cuts.
const GROUPS: usize = 2;

#[test]
fn random_faults_on_groups_of_real_processes_lose_double_and_halve_nothing() -> Try {
    let seed = Chance::announced("random faults").bits() >> 1;
    let power = Power::OneOfSeveral;
    let wanted = ChaosPlan { rounds: ROUNDS, first: 0, seed, time: TIME, jobs: GROUPS, power };
    println!("the same by hand: make chaos SEED={seed} JOBS={GROUPS} ROUNDS={ROUNDS}");
    let findings = run(wanted, &|line| println!("{line}"))?;
    require!(findings.are_good(), "rounds {:?}, {:?}", findings.failed, findings.given_up);
    require!(findings.rounds >= u32::try_from(GROUPS)?, "{} rounds prove nothing", findings.rounds);
    require!(findings.tally.committed > 0, "nothing was committed: {:?}", findings.tally);
    Ok(())
}
