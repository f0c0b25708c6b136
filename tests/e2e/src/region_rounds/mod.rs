//! Random rounds on two regions of real processes while model clients work: changes of roles,
//! planned and not, killed in the middle; the link cut, stalled and healed; instances started
//! again. After each the judgement over everything that is there.
//!
//! What is judged: a planned change loses nothing; a fail-over loses at most what it said before it
//! asked, and of that nothing that is not behind the fork; each lost message is one that the old
//! live group lists as added there, and each one that is back is one that it lists as removed; one
//! group serves at the end; recovery's log is the beginning of live's.
//!
//! Not here: clients (`workload`), the judgement of their units (`history`). Reading order:
//! [`change`] (what can happen), `stage` (a round), [`tail`] (what a fail-over may lose).

pub mod change;
mod stage;
pub mod tail;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Try;
use crate::chance::Chance;
use crate::history::Tally;

use stage::RegionStage;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct RegionRounds {
    /// Rounds.
    pub rounds: u32,
    /// Number of the first one.
    pub first: u32,
    /// Of everything that is random.
    pub seed: u64,
    /// No round begins after so long.
    pub time: Duration,
    /// Instances of each group: 1 or 3.
    pub size: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct RegionFindings {
    /// Rounds done.
    pub rounds: u32,
    /// Changes done, by kind.
    pub changes: BTreeMap<&'static str, usize>,
    /// Of all rounds that were judged well.
    pub tally: Tally,
    /// Messages that fail-overs lost, and that came back.
    pub lost: [usize; 2],
    /// Numbers of rounds that failed.
    pub failed: Vec<u32>,
}

/// Rounds after which both groups are stopped, and their logs compared.
const COMPARED_EVERY: u32 = 10;

/// Does the rounds; after one that failed it goes on with new groups. Each is reported.
///
/// # Errors
/// When no groups can be made.
pub fn run(wanted: RegionRounds, told: &dyn Fn(&str)) -> Try<RegionFindings> {
    let begun = Instant::now();
    let mut findings = RegionFindings::default();
    let mut stage = None;
    for round in wanted.first..wanted.first.saturating_add(wanted.rounds) {
        if begun.elapsed() >= wanted.time {
            break;
        }
        let mut on = match stage.take() {
            Some(stage) => stage,
            None => RegionStage::set(wanted.size)?,
        };
        // The size is part of what a round does.
        let seed = wanted.seed.wrapping_add(u64::from(round) << 32);
        let mut chance = Chance::of(seed);
        let (began, is_last) = (Instant::now(), round + 1 == wanted.first + wanted.rounds);
        let judged = on.round(round, &mut chance, told).and_then(|done| {
            if is_last || (round + 1).is_multiple_of(COMPARED_EVERY) {
                on.compare(!is_last)?;
            }
            Ok(done)
        });
        findings.rounds += 1;
        let took = began.elapsed().as_secs_f64();
        *findings.changes.entry(on.kind()).or_default() += 1;
        match judged {
            Ok(done) => {
                findings.tally.add(done.tally);
                findings.lost[0] += done.lost;
                findings.lost[1] += done.came_back;
                told(&format!("round {round}: {took:.1} s; {done}"));
                stage = Some(on);
            }
            Err(error) => {
                findings.failed.push(round);
                let (kept, reason) = on.explained(&error.to_string());
                told(&format!(
                    "round {round} FAILED after {took:.1} s: {reason}\nleft in {kept:?}; again with \
                     --seed {} --first {round} --rounds 1 --size {}",
                    wanted.seed, wanted.size
                ));
            }
        }
    }
    Ok(findings)
}
