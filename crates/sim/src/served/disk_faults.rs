//! Calls of a disk that fail, hang or take long, and crashes in the middle of a change.
//!
//! Not here: disks that are lost; what survives a power cut (`towline_os`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use towline_os::simulated::Process;
use towline_os::simulated::fs::{FileSystem, Operation, OperationKind, Verdict};
use towline_types::SeededRandom;

pub(crate) const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;

/// Processes from here on are commands of operators, not instances.
pub(crate) const OPERATORS: u64 = 1 << 41;

/// How many disks take no direct I/O.
pub(crate) const BUFFERED_PER_MILLE: u64 = 250;

/// What is wrong with one disk in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskFaults {
    /// So many of a million operations fail, and are repeated by nobody.
    fails_ppm: u64,
    /// The same for those after which the process is gone.
    kills_ppm: u64,
    /// The same for those that take long.
    stalls_ppm: u64,
    /// The same for those that do not end.
    hangs_ppm: u64,
    /// So many of a million syncs fail besides.
    syncs_fail_ppm: u64,
}

/// The processes of a machine that its disk let down: one may end of that, its start be refused,
/// and what it says of itself be wrong. It excuses no later one; and an operation that ended its
/// process has not failed: a crash excuses no start.
#[derive(Debug, Default)]
pub(crate) struct LetDown {
    /// The newest of them, 0: none. They are numbered in order.
    newest: AtomicU64,
    /// The disk failed, for an operator's command too.
    any: AtomicBool,
}

impl LetDown {
    pub(crate) fn note(&self, process: Process) {
        self.any.store(true, Ordering::Relaxed);
        if process.0 < OPERATORS {
            self.newest.fetch_max(process.0, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, process: Process) -> bool {
        self.newest.load(Ordering::Relaxed) >= process.0
    }

    /// Whether the disk ever failed.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}

impl DiskFaults {
    pub(crate) fn draw(dice: &mut SeededRandom) -> DiskFaults {
        let mut rate = |per_mille: u64, most: u64| {
            if dice.chance(per_mille) { dice.between(1, most) } else { 0 }
        };
        DiskFaults {
            fails_ppm: rate(200, 1_000),
            kills_ppm: rate(400, 2_000),
            stalls_ppm: rate(200, 1_000),
            hangs_ppm: rate(100, 100),
            syncs_fail_ppm: rate(100, 20_000),
        }
    }

    /// Puts them in force. `let_down` notes each operation that failed. `watch` sees each
    /// operation before.
    pub(crate) fn begin(
        self,
        disk: &FileSystem,
        let_down: &Arc<LetDown>,
        dice: &mut SeededRandom,
        watch: impl Fn(&Operation<'_>) + Send + 'static,
    ) {
        let mut dice = SeededRandom::mixed(dice.next_u64());
        let let_down = Arc::clone(let_down);
        disk.set_faults(move |operation| {
            watch(operation);
            let verdict = self.judge(operation, &mut dice);
            if matches!(verdict, Verdict::Hangs | Verdict::Fails(_) | Verdict::FailsAfter(_)) {
                let_down.note(operation.process);
            }
            verdict
        });
    }

    pub(crate) fn judge(self, operation: &Operation<'_>, dice: &mut SeededRandom) -> Verdict {
        let drawn = dice.below(1_000_000);
        let DiskFaults { fails_ppm, kills_ppm, stalls_ppm, hangs_ppm, syncs_fail_ppm } = self;
        let changes = operation.kind.changes();
        if drawn < kills_ppm {
            return if dice.chance(500) { Verdict::KillsBefore } else { Verdict::KillsAfter };
        }
        if drawn < kills_ppm + stalls_ppm {
            return Verdict::Takes(Duration::from_micros(dice.below(1_000_000)));
        }
        if drawn < kills_ppm + stalls_ppm + hangs_ppm {
            return Verdict::Hangs;
        }
        let is_sync = operation.kind == OperationKind::Sync;
        if is_sync && syncs_fail_ppm > 0 && dice.below(1_000_000) < syncs_fail_ppm {
            return Verdict::FailsAfter(EIO);
        }
        if drawn >= kills_ppm + stalls_ppm + hangs_ppm + fails_ppm {
            return Verdict::Goes;
        }
        match operation.kind {
            OperationKind::Write | OperationKind::Create | OperationKind::Reserve => {
                Verdict::Fails(if dice.chance(500) { ENOSPC } else { EIO })
            }
            OperationKind::Sync => Verdict::FailsAfter(EIO),
            OperationKind::Rename | OperationKind::Remove => {
                Verdict::Fails(if dice.chance(500) { EACCES } else { EIO })
            }
            _ if changes => Verdict::Fails(EIO),
            _ => Verdict::Fails(EIO),
        }
    }
}
