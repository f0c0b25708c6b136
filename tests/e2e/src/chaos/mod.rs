//! Random rounds of faults on groups of real processes while model clients work; after each the
//! judgement of `history` over everything that is there.
//!
//! A round: clients begin, one to three faults happen, overlapping, everything is healed, the group
//! must become whole, clients must get on, and then the queues must hold what the clients were
//! promised. The next round goes on with the same group, so what was there before a round may not
//! come back in a later one. Several jobs go side by side, each with a group of its own; a round is
//! done by the next free job, and is drawn from the seed and its number, not from the job. The last
//! of several jobs has disks that forget what was not synced. Not here: clients (`workload`).

pub mod disk;
mod fault;
mod stage;
mod trace;
mod weather;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Try;
use crate::chance::Chance;
use crate::history::Tally;

use stage::Stage;
use trace::Trace;

/// The receiver of the report, line by line.
pub type Report<'a> = &'a (dyn Fn(&str) + Sync);

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct ChaosPlan {
    /// Rounds.
    pub rounds: u32,
    /// Number of the first one.
    pub first: u32,
    /// Of everything that is random.
    pub seed: u64,
    /// No round begins after so long.
    pub time: Duration,
    /// Groups side by side.
    pub jobs: usize,
    /// Which of them lose their power.
    pub power: Power,
}

/// Which groups have disks that forget what was not synced when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// None.
    Stays,
    /// The last one of several.
    OneOfSeveral,
    /// All.
    Goes,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Findings {
    /// Rounds done.
    pub rounds: u32,
    /// Faults done, by kind.
    pub faults: BTreeMap<&'static str, usize>,
    /// The answers that clients got and the messages found, of all rounds that were judged well.
    pub tally: Tally,
    /// Numbers of rounds that failed.
    pub failed: Vec<u32>,
    /// Why jobs ended early: they could not make a group.
    pub given_up: Vec<String>,
}

impl Findings {
    /// Whether nothing was found.
    #[must_use]
    pub fn are_good(&self) -> bool {
        self.failed.is_empty() && self.given_up.is_empty()
    }
}

/// Rounds that are left, for all jobs.
struct Rounds {
    wanted: ChaosPlan,
    begun: Instant,
    next: AtomicU32,
}

impl Rounds {
    fn next(&self) -> Option<u32> {
        let end = self.wanted.first.saturating_add(self.wanted.rounds);
        let round = self.next.fetch_add(1, Ordering::SeqCst);
        (round < end && self.begun.elapsed() < self.wanted.time).then_some(round)
    }
}

/// Does the rounds; after one that failed, its job goes on with a new group. `told` gets each.
///
/// # Errors
/// When a job panicked.
pub fn run(wanted: ChaosPlan, told: Report<'_>) -> Try<Findings> {
    let rounds = Rounds { wanted, begun: Instant::now(), next: AtomicU32::new(wanted.first) };
    let findings = Mutex::new(Findings::default());
    let ended = thread::scope(|scope| {
        let jobs: Vec<_> = (0..wanted.jobs)
            .map(|job| {
                let (rounds, findings) = (&rounds, &findings);
                scope.spawn(move || {
                    let power = match wanted.power {
                        Power::Stays => false,
                        Power::OneOfSeveral => job > 0 && job + 1 == wanted.jobs,
                        Power::Goes => true,
                    };
                    if let Err(why) = work(power, rounds, findings, told) {
                        told(&format!("job {job} gives up: {why}"));
                        lock(findings).given_up.push(why.to_string());
                    }
                })
            })
            .collect();
        jobs.into_iter().map(|job| job.join().is_ok()).collect::<Vec<_>>()
    });
    crate::require!(ended.iter().all(|well| *well), "a job panicked");
    Ok(findings.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// One job.
fn work(power: bool, rounds: &Rounds, findings: &Mutex<Findings>, told: Report<'_>) -> Try {
    let mut stage = None;
    while let Some(round) = rounds.next() {
        let mut on = match stage.take() {
            Some(stage) => stage,
            None => Stage::set(power, told)?,
        };
        let seed = rounds.wanted.seed;
        let mut chance = Chance::of(seed.wrapping_add(u64::from(round) << 32));
        let mut trace = Trace::begin();
        let judged = on.round(round, &mut chance, &mut trace, told);
        let took = trace.elapsed().as_secs_f64();
        let mut findings = lock(findings);
        findings.rounds += 1;
        for kind in trace.kinds() {
            *findings.faults.entry(kind).or_default() += 1;
        }
        match judged {
            Ok(tally) => {
                findings.tally.add(tally);
                drop(findings);
                let (happened, times) = (trace.happened(), trace.times());
                told(&format!("round {round}: {took:.1} s ({times}); {happened}; {tally:?}"));
                stage = Some(on);
            }
            Err(error) => {
                findings.failed.push(round);
                drop(findings);
                let (kept, reason) = on.explained(&error.to_string());
                let (lines, power) = (trace.lines(), if power { "goes" } else { "stays" });
                told(&format!(
                    "round {round} FAILED after {took:.1} s: {reason}\n{lines}\nleft in {kept:?}; \
                     again with --seed {seed} --first {round} --rounds 1 --power {power}"
                ));
            }
        }
    }
    Ok(())
}

fn lock(findings: &Mutex<Findings>) -> MutexGuard<'_, Findings> {
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}
