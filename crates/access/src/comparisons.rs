//! Passwords are compared on threads of their own: one comparison is a millisecond or more of pure
//! computing, which is its purpose, and the I/O threads serve other connections meanwhile.
//!
//! It decides *when* a password is compared; how long a client waits before that is the matter of
//! `attempts`, which password is right is that of `users`. A thread lives as long as there is
//! something to compare.
//!
//! Invariants: addresses take turns, each with its own in order, so that many guesses from one
//! address delay another address by one comparison only; never more than `WAITING_MAX` wait; a
//! comparison whose connection has gone is left out.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Comparisons that may wait. There is one at most for each connection that has not logged in, and
/// `limits.logins_pending_max` is 512 unless it is set.
const WAITING_MAX: usize = 4_096;
/// Threads at most; half of the processors, if that is less: the other half does the work that is
/// waited for.
const THREADS_MAX: usize = 4;

/// The comparisons that wait, and the threads that carry them out; shared by all listeners.
#[derive(Debug)]
pub(crate) struct Comparisons {
    threads_max: usize,
    queue: Mutex<ComparisonQueue>,
}

#[derive(Debug, Default)]
struct ComparisonQueue {
    /// Never an empty queue.
    waiting: HashMap<IpAddr, VecDeque<QueuedComparison>>,
    /// The addresses of `waiting`; the first one is next.
    turns: VecDeque<IpAddr>,
    count: usize,
    threads: usize,
}

struct QueuedComparison {
    compare: Box<dyn FnOnce() -> bool + Send>,
    answer: oneshot::Sender<bool>,
}

impl std::fmt::Debug for QueuedComparison {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("QueuedComparison")
    }
}

impl Default for Comparisons {
    fn default() -> Comparisons {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Comparisons::with_threads((processors / 2).clamp(1, THREADS_MAX))
    }
}

impl Comparisons {
    pub(crate) fn with_threads(threads_max: usize) -> Comparisons {
        Comparisons { threads_max, queue: Mutex::default() }
    }

    /// Has `compare` carried out when it is the turn of this address. `None`: too many wait, or
    /// there is no thread to be had.
    pub(crate) async fn compare(
        self: &Arc<Self>,
        address: IpAddr,
        compare: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.add(address, QueuedComparison { compare: Box::new(compare), answer });
        answered.await.ok()
    }

    fn add(self: &Arc<Self>, address: IpAddr, comparison: QueuedComparison) {
        let mut queue = self.queue.lock();
        if queue.count >= WAITING_MAX {
            return;
        }
        queue.push(address, comparison);
        if queue.threads >= self.threads_max {
            return;
        }
        queue.threads += 1;
        let comparisons = Arc::clone(self);
        let builder = std::thread::Builder::new().name("password".into());
        if let Err(error) = builder.spawn(move || comparisons.work()) {
            tracing::debug!(%error, "no thread to compare passwords");
            queue.threads -= 1;
            if queue.threads == 0 {
                // No thread would ever take them; dropped, they are answered with `None`.
                *queue = ComparisonQueue::default();
            }
        }
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let Some(QueuedComparison { compare, answer }) = queue.pop() else {
                queue.threads -= 1;
                return;
            };
            drop(queue);
            if !answer.is_closed() {
                let answered = answer.send(compare());
                if answered.is_err() {
                    tracing::trace!("a connection went while its password was compared");
                }
            }
        }
    }
}

impl ComparisonQueue {
    fn push(&mut self, address: IpAddr, comparison: QueuedComparison) {
        let own = self.waiting.entry(address).or_default();
        if own.is_empty() {
            self.turns.push_back(address);
        }
        own.push_back(comparison);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<QueuedComparison> {
        let address = self.turns.pop_front()?;
        let own = self.waiting.get_mut(&address)?;
        let comparison = own.pop_front()?;
        self.count -= 1;
        if own.is_empty() {
            self.waiting.remove(&address);
        } else {
            self.turns.push_back(address);
        }
        Some(comparison)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// One thread, which is busy until the sender is dropped.
    fn busy() -> (Arc<Comparisons>, mpsc::Sender<()>) {
        let comparisons = Arc::new(Comparisons::with_threads(1));
        let (release, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let (answer, answered) = oneshot::channel();
        let compare = Box::new(move || {
            begun.send(()).unwrap();
            held.recv().is_err()
        });
        comparisons.add(address(0), QueuedComparison { compare, answer });
        begins.recv().unwrap();
        drop(answered);
        (comparisons, release)
    }

    #[test]
    fn an_address_with_one_comparison_waits_for_one_of_an_address_with_many() {
        let (comparisons, release) = busy();
        let (told, order) = mpsc::channel();
        let mut answers = Vec::new();
        for from in [1, 1, 1, 1, 2, 2, 3] {
            let told = told.clone();
            let (answer, answered) = oneshot::channel();
            let compare = Box::new(move || told.send(from).is_ok());
            comparisons.add(address(from), QueuedComparison { compare, answer });
            answers.push(answered);
        }
        drop((told, release));
        assert_eq!(order.into_iter().collect::<Vec<_>>(), [1, 2, 3, 1, 2, 1, 1]);
        assert!(answers.into_iter().all(|answer| answer.blocking_recv() == Ok(true)));
    }

    #[test]
    fn a_comparison_whose_connection_has_gone_is_left_out() {
        let (comparisons, release) = busy();
        let (told, order) = mpsc::channel();
        let mut kept = None;
        for name in ["gone", "here"] {
            let told = told.clone();
            let (answer, answered) = oneshot::channel();
            let compare = Box::new(move || told.send(name).is_ok());
            comparisons.add(address(1), QueuedComparison { compare, answer });
            // What was there before is dropped.
            kept = Some(answered);
        }
        drop((told, release));
        assert_eq!(order.into_iter().collect::<Vec<_>>(), ["here"]);
        assert_eq!(kept.unwrap().blocking_recv(), Ok(true));
    }

    #[test]
    fn one_beyond_the_bound_is_refused_at_once() {
        let (comparisons, release) = busy();
        let mut answers = Vec::new();
        for number in 0..=WAITING_MAX {
            let (answer, answered) = oneshot::channel();
            let from = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            comparisons.add(from, QueuedComparison { compare: Box::new(|| true), answer });
            answers.push(answered);
        }
        assert!(answers.pop().unwrap().blocking_recv().is_err(), "4,097 wait");
        drop(release);
        assert!(answers.into_iter().all(|answer| answer.blocking_recv() == Ok(true)));
    }
}
