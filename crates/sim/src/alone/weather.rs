//! What becomes of each operation of the file system: which fail, hang, or are the last ones of
//! their process.
//!
//! Not here: when (`troubles`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex as Plain;
use towline_os::simulated::Process;
use towline_os::simulated::fs::{FileSystem, Operation, Verdict};
use towline_types::SeededRandom;

use crate::served::disk_faults::{DiskFaults, EIO};
use crate::trace::now_us;

/// Processes of operators and observers: nothing happens to their operations.
pub(super) const OPERATORS: u64 = 1 << 40;

/// On which side of an operation a process crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashPoint {
    Before,
    After,
}

/// One crash: at the operation of this number of those that change something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) operation: u64,
    pub(super) point: CrashPoint,
    /// The power goes with it; which draw of what was not synced survives.
    pub(super) power_cut: Option<u64>,
}

/// What one process has of its file system.
#[derive(Clone, Copy, Debug)]
pub(super) enum Away {
    /// Nothing is answered before this time.
    Until(u64),
    /// All fails.
    Fails,
}

struct Sky {
    faults: DiskFaults,
    dice: SeededRandom,
    away: BTreeMap<Process, Away>,
    /// Of each process, what says that its operations did not all go well.
    disturbed: BTreeMap<Process, Arc<AtomicBool>>,
    crash: Option<Crash>,
    crashed: Option<Crash>,
    changes: u64,
}

/// See the module. A clone is the same.
#[derive(Clone)]
pub(super) struct Weather(Arc<Plain<Sky>>);

impl Weather {
    pub(super) fn begin(
        disk: &FileSystem,
        faults: DiskFaults,
        crash: Option<Crash>,
        seed: u64,
    ) -> Weather {
        let weather = Weather(Arc::new(Plain::new(Sky {
            faults,
            dice: SeededRandom::mixed(seed),
            away: BTreeMap::new(),
            disturbed: BTreeMap::new(),
            crash,
            crashed: None,
            changes: 0,
        })));
        let hook = weather.clone();
        disk.set_faults(move |operation| hook.0.lock().judge(operation));
        weather
    }

    /// No operation fails from now on.
    pub(super) fn clear(&self) {
        let mut sky = self.0.lock();
        sky.faults = DiskFaults::default();
        sky.away.clear();
    }

    pub(super) fn watch(&self, process: Process, disturbed: &Arc<AtomicBool>) {
        self.0.lock().disturbed.insert(process, Arc::clone(disturbed));
    }

    pub(super) fn away(&self, process: Process, away: Option<Away>) {
        let mut sky = self.0.lock();
        match away {
            Some(away) => drop(sky.away.insert(process, away)),
            None => drop(sky.away.remove(&process)),
        }
    }

    /// The crash that has come since the last call.
    pub(super) fn take_crash(&self) -> Option<Crash> {
        self.0.lock().crashed.take()
    }

    /// Operations that changed something.
    pub(super) fn changes(&self) -> u64 {
        self.0.lock().changes
    }
}

impl Sky {
    fn judge(&mut self, operation: &Operation<'_>) -> Verdict {
        if operation.process.0 >= OPERATORS {
            return Verdict::Goes;
        }
        let verdict = self.verdict(operation);
        if !matches!(verdict, Verdict::Goes | Verdict::KillsBefore | Verdict::KillsAfter)
            && let Some(disturbed) = self.disturbed.get(&operation.process)
        {
            disturbed.store(true, Ordering::Relaxed);
        }
        verdict
    }

    fn verdict(&mut self, operation: &Operation<'_>) -> Verdict {
        if operation.kind.changes() {
            self.changes += 1;
            if let Some(crash) = self.crash.filter(|crash| crash.operation == self.changes) {
                self.crashed = self.crash.take();
                return match crash.point {
                    CrashPoint::Before => Verdict::KillsBefore,
                    CrashPoint::After => Verdict::KillsAfter,
                };
            }
        }
        match self.away.get(&operation.process) {
            Some(Away::Until(until)) => {
                Verdict::Takes(Duration::from_micros(until.saturating_sub(now_us())))
            }
            Some(Away::Fails) => Verdict::Fails(EIO),
            None => self.faults.judge(operation, &mut self.dice),
        }
    }
}
