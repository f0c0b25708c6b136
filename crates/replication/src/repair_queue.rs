//! Damaged parts of the log that wait to be fetched from other instances, and how many were.
//!
//! Not here: fetching them (`repair`). Invariants: each job is answered once; a peer is sent one
//! batch at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use towline_os::sync::mpsc::{Receiver, SendError, Sender, channel};

use towline_os::sync::Mutex;
use towline_types::BodyLocation;

use towline_link::Peer;

/// What is done when the others were asked: it hears whether anything was repaired.
pub type OnRepaired = Box<dyn FnOnce(bool) + Send>;

pub(crate) enum Job {
    /// Parts of the log, some of which may be damaged.
    Bring(Vec<BodyLocation>, OnRepaired),
    /// An instance can be asked again.
    Back(Peer),
}

/// See the module.
pub struct RepairQueue {
    jobs: Sender<Job>,
    waiting: Mutex<Option<Receiver<Job>>>,
    /// Peers that are being given a batch.
    asking: Mutex<Vec<Peer>>,
    counts: Counts,
}

/// Since the start of this process.
#[derive(Debug, Default)]
struct Counts {
    repaired: AtomicU64,
    lacking: AtomicU64,
}

impl Default for RepairQueue {
    fn default() -> RepairQueue {
        let (jobs, waiting) = channel();
        let waiting = Mutex::new(Some(waiting));
        let asking = Mutex::default();
        RepairQueue { jobs, waiting, asking, counts: Counts::default() }
    }
}

impl RepairQueue {
    /// Has the damaged ones among these parts of the log fetched; `then` is called on the thread
    /// that does it, and must not wait for anything but this disk.
    pub fn ask(&self, parts: Vec<BodyLocation>, then: OnRepaired) {
        // The thread ends with the process.
        if let Err(SendError(Job::Bring(_, then))) = self.jobs.send(Job::Bring(parts, then)) {
            then(false);
        }
    }

    /// A connection to this instance stands: what it could not be asked for is asked for again.
    pub(crate) fn is_back(&self, peer: Peer) {
        // The thread ends with the process.
        self.jobs.send(Job::Back(peer)).ok();
    }

    /// The same, and waits. Yields whether anything was repaired.
    pub fn wait_for(&self, parts: Vec<BodyLocation>) -> bool {
        let (done, answer) = channel();
        let then = move |repaired| {
            // The caller waits for it below; it is gone only with the process.
            done.send(repaired).ok();
        };
        self.ask(parts, Box::new(then));
        // The thread ends with the process: then nothing is repaired any more.
        answer.recv().unwrap_or(false)
    }

    /// Batches that were repaired with what another instance had.
    pub fn repaired(&self) -> u64 {
        self.counts.repaired.load(Ordering::Relaxed)
    }

    /// The jobs, for the thread that does them: once.
    pub(crate) fn take_jobs(&self) -> Option<Receiver<Job>> {
        self.waiting.lock().take()
    }

    pub(crate) fn count_repaired(&self) {
        self.counts.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_lacking(&self) {
        self.counts.lacking.fetch_add(1, Ordering::Relaxed);
    }

    /// How often no other instance had a damaged batch.
    pub fn lacking(&self) -> u64 {
        self.counts.lacking.load(Ordering::Relaxed)
    }

    /// A peer is to be given a batch: one at a time, until what is yielded is dropped.
    pub(crate) fn begin_giving(&self, peer: Peer) -> Option<BatchGrant<'_>> {
        let mut asking = self.asking.lock();
        if asking.contains(&peer) {
            return None;
        }
        asking.push(peer);
        Some(BatchGrant { repairs: self, peer })
    }
}

/// While it lives, a peer is being given a batch.
pub(crate) struct BatchGrant<'a> {
    repairs: &'a RepairQueue,
    peer: Peer,
}

impl Drop for BatchGrant<'_> {
    fn drop(&mut self) {
        self.repairs.asking.lock().retain(|asking| *asking != self.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_given_one_batch_at_a_time() {
        let repairs = RepairQueue::default();
        let one = repairs.begin_giving(1);
        let other = repairs.begin_giving(2);
        assert!(one.is_some() && other.is_some() && repairs.begin_giving(1).is_none());
        drop(one);
        assert!(repairs.begin_giving(1).is_some() && repairs.begin_giving(2).is_none());
    }

    #[test]
    fn a_waiting_caller_is_answered_though_the_thread_is_gone() {
        let repairs = RepairQueue::default();
        drop(repairs.waiting.lock().take());
        assert!(!repairs.wait_for(Vec::new()));
    }
}
