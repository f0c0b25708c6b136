//! What the processes of a cluster and the run share: the history, answers on their way, the first
//! rule that was broken, and what was seen to be committed.
//!
//! Invariant: none of its locks is held while a coroutine waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use towline_core::Delivery;
use towline_log::LogError;
use towline_os::simulated::fs::FileSystem;
use towline_replica::OpenReplica;
use towline_replication::applicable::CommittedBatches;
use towline_types::Batch;

use super::connection::{Ends, Witness};
use super::promises::{self, Promise};
use crate::client::Answer;
use crate::history::History;
use crate::trace::{self, now_us};

/// Batches that are looked at together.
const LOOK_BYTES: usize = 1 << 20;

/// See the module.
pub(crate) struct Shared {
    pub(crate) history: Mutex<History>,
    /// Client, connection, answer.
    pub(crate) answers: Mutex<VecDeque<(usize, u64, Answer)>>,
    pub(crate) failure: Mutex<Option<String>>,
    /// The disks, in the order of the instances.
    disks: [FileSystem; 3],
    /// What was on those that were lost on purpose, at that moment.
    lost: Mutex<Vec<(usize, FileSystem)>>,
    extent_bytes: u64,
    /// Of each instance, its replica.
    pub(crate) replicas: [Mutex<Option<Arc<OpenReplica>>>; 3],
    /// Index of the newest batch that was compared with the disks when it was committed.
    compared: Mutex<u64>,
    pub(crate) compared_batches: AtomicU64,
    /// When, and the newest batch that was committed then: something was acknowledged.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    /// What each process promised last, and was found on its disk.
    promised: Mutex<[Option<Promise>; 3]>,
    pub(crate) kept_promises: AtomicU64,
    /// Of each instance, whether a bit of its disk flipped at some time.
    pub(crate) is_rotten: [AtomicBool; 3],
}

impl Shared {
    pub(crate) fn new(disks: [FileSystem; 3], extent_bytes: u64) -> Shared {
        Shared {
            history: Mutex::new(History::by_connection()),
            answers: Mutex::default(),
            failure: Mutex::default(),
            disks,
            lost: Mutex::default(),
            extent_bytes,
            replicas: Default::default(),
            compared: Mutex::new(0),
            compared_batches: AtomicU64::new(0),
            acknowledged: Mutex::default(),
            promised: Mutex::default(),
            kept_promises: AtomicU64::new(0),
            is_rotten: Default::default(),
        }
    }
}

impl Witness for Shared {
    fn history(&self) -> &Mutex<History> {
        &self.history
    }

    fn answers(&self) -> &Mutex<VecDeque<(usize, u64, Answer)>> {
        &self.answers
    }

    fn fail(&self, what: String) {
        trace::write(now_us(), format_args!("BROKEN: {what}"));
        self.failure.lock().get_or_insert(what);
    }

    /// A body cannot be read: with a disk that answers and of which no bit flipped, that is a loss.
    fn unreadable(&self, ends: &Ends, delivery: &Delivery, error: &LogError) -> bool {
        let node = ends.speaker.node;
        let is_rotten = self.is_rotten.get(node).is_some_and(|it| it.load(Ordering::Relaxed));
        if is_rotten && error.is_damage() {
            return true;
        }
        self.fail(format!("instance {node} cannot read the body of {delivery:?}: {error}"));
        false
    }

    /// Something was acknowledged: all that is committed is on the disks of a majority, synced.
    fn on_acknowledged(&self, ends: &Ends, answer: &Answer) {
        let node = ends.speaker.node;
        if !matches!(answer, Answer::Done(true)) {
            return;
        }
        let replica = self.replicas.get(node).and_then(|replica| replica.lock().clone());
        let Some(replica) = replica else { return };
        loop {
            let from = *self.compared.lock();
            let found = replica.driver.committed_behind(from, LOOK_BYTES);
            let batches = match found {
                CommittedBatches::Batches(batches) if !batches.is_empty() => batches,
                // Of what is in no memory any more, the disk is all that there is.
                _ => return,
            };
            let mut compared = self.compared.lock();
            for batch in batches.iter().filter(|batch| batch.index > *compared) {
                if let Some(what) = self.lacks_majority(batch) {
                    return self.fail(what);
                }
                self.compared_batches.fetch_add(1, Ordering::Relaxed);
            }
            *compared = batches.last().map_or(*compared, |last| last.index.max(*compared));
            self.acknowledged.lock().push((now_us(), *compared));
        }
    }
}

impl Shared {
    /// A disk is about to be lost. What it holds may have been committed because of it, and be
    /// acknowledged only now.
    pub(crate) fn loses(&self, node: usize) {
        self.lost.lock().extend(self.disks.get(node).map(|disk| (node, disk.synced())));
    }

    /// The newest batch that was committed when something was acknowledged before this time.
    pub(crate) fn acknowledged_before(&self, time_us: u64) -> u64 {
        let acknowledged = self.acknowledged.lock();
        let count = acknowledged.partition_point(|(at_us, _)| *at_us < time_us);
        count.checked_sub(1).map_or(0, |newest| acknowledged[newest].1)
    }

    /// A process starts: nothing is known of its disk.
    pub(crate) fn starts(&self, node: usize) {
        self.promised.lock()[node] = None;
    }

    /// A message leaves an instance: what it promises is on its disk, synced.
    pub(crate) fn promises(&self, from: usize, head: &[u8]) {
        let Some(promise) = promises::of(from, head) else { return };
        let known = self.promised.lock()[from];
        // A term without a vote is part of the same term with one.
        let is_known = |known: Promise| {
            known == promise || (promise.vote.is_none() && known.term == promise.term)
        };
        if known.is_some_and(is_known) {
            return;
        }
        if !promises::is_kept(&self.disks[from], promise) {
            let Promise { term, vote } = promise;
            return self.fail(format!(
                "instance {from} promises something in term {term}, with its vote for {vote:?}, \
                 and a power cut would make it forget that"
            ));
        }
        self.kept_promises.fetch_add(1, Ordering::Relaxed);
        self.promised.lock()[from] = Some(promise);
    }

    fn lacks_majority(&self, batch: &Batch) -> Option<String> {
        let has = |disk: &FileSystem| has_synced(disk, batch, self.extent_bytes);
        let lost = self.lost.lock();
        let had = |node| lost.iter().any(|(of, disk)| *of == node && has(disk));
        let disks = self.disks.iter().enumerate();
        let count = disks.filter(|(node, disk)| has(disk) || had(*node)).count();
        (count < 2).then(|| {
            let Batch { index, term, lsn, .. } = batch;
            format!(
                "batch {index} of term {term} at {lsn} was acknowledged, and {count} disks have it \
                 synced"
            )
        })
    }
}

/// Whether a batch would survive a power cut now, in the log or in the image that made its extent
/// needless: batches are compared when the next acknowledgement comes, which may be much later.
fn has_synced(disk: &FileSystem, batch: &Batch, extent_bytes: u64) -> bool {
    let at = batch.lsn.0 + towline_types::BATCH_HEADER_BYTES;
    let name = format!("extent-{:016x}", batch.lsn.0 / extent_bytes);
    let oldest = disk.first_name("/qms/log", "extent-");
    let is_reclaimed = oldest.is_some_and(|oldest| oldest > name);
    is_reclaimed || disk.is_synced(format!("/qms/log/{name}"), at % extent_bytes, &batch.payload)
}

#[cfg(test)]
mod tests {
    use towline_os::simulated::{Process, World};

    use super::*;

    #[test]
    fn a_broken_rule_is_reported_with_the_time_since_the_run_began() {
        let disks = || [FileSystem::new(), FileSystem::new(), FileSystem::new()];
        let breaks = move || Shared::new(disks(), 1 << 20).fail("a rule".to_owned());
        trace::begin(true);
        let world = World::new(1);
        world.run_until(3_000_000);
        world.start(Process(1), "breaks", breaks);
        world.run_until(4_000_000);
        let lines = trace::last_events(1);
        trace::begin(false);
        assert_eq!(lines.len(), 1);
        let (time, what) = lines[0].trim().split_once(' ').unwrap();
        assert_eq!((time.split_once('.').unwrap().0, what), ("3", "BROKEN: a rule"));
    }
}
