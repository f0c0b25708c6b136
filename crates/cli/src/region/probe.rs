//! The client of a drill: it puts a small persistent message again and again, wherever it is
//! accepted, and measures for how long none was confirmed. At the end it takes its own messages off
//! the queue and compares them with what was confirmed.
//!
//! It is a client as others are: it has addresses of both groups, and goes to the next one when it
//! is turned away. Not here: the drill, its queue. Invariant: a message of unknown outcome
//! is counted neither as confirmed nor as lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use towline_client::{Body, Client, Message, Property, ReceiverOptions, Sender};

use super::probe_queue::ProbeQueue;
use crate::failure::Failure;
use crate::patience::Patience;
use crate::reach::Connector;

/// Between two puts, and between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);
/// Puts of which the outcome is not known; one more ends the probe.
const UNKNOWN_MAX: usize = 10_000;
/// The application property that all messages of one drill have.
const MARK: &str = "TowlineDrill";
/// The property with the number of a message.
const NUMBER: &str = "TowlineDrillNumber";

/// What the probe has seen so far.
#[derive(Clone, Debug)]
pub(super) struct ProbeSeen {
    /// Number of the next message.
    next: u64,
    /// Numbers of which the outcome is not known.
    unknown: BTreeSet<u64>,
    /// The newest confirmed put.
    pub(super) last: Option<Instant>,
    /// The longest time between two confirmed puts since [`Probe::begins`], and when it began.
    pub(super) gap: Option<(Duration, Instant)>,
    /// Why the last attempt failed.
    pub(super) trouble: String,
    ends: bool,
}

impl ProbeSeen {
    /// Puts that were confirmed.
    pub(super) fn confirmed(&self) -> u64 {
        self.next.saturating_sub(self.unknown.len() as u64)
    }

    /// Puts of which it is not known.
    pub(super) fn unconfirmed(&self) -> u64 {
        self.unknown.len() as u64
    }

    fn confirms(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let gap = now.saturating_duration_since(last);
            if self.gap.is_none_or(|(longest, _)| gap > longest) {
                self.gap = Some((gap, last));
            }
        }
        self.last = Some(now);
    }
}

/// What was found of the messages that were put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeCount {
    /// Confirmed, and not there.
    pub(super) missing: u64,
    /// Of those: lost. `None`: others may have taken them.
    pub(super) lost: Option<u64>,
    /// There more than once.
    pub(super) doubled: u64,
}

/// What was taken off the queue so far: a count that broke off is gone on with elsewhere.
#[derive(Debug, Default)]
pub(super) struct ProbeFound {
    numbers: BTreeSet<u64>,
    doubled: u64,
    taken: u64,
}

impl ProbeFound {
    /// A message with this number came. `here`: those that came in this count.
    fn enter(&mut self, number: u64, here: &mut BTreeSet<u64>) {
        let is_doubled = !here.insert(number);
        self.doubled += u64::from(is_doubled);
        // It came before, and that it was taken was not confirmed: it is the same one.
        self.taken += u64::from(self.numbers.insert(number) || is_doubled);
    }
}

/// See the module.
pub(super) struct Probe {
    seen: Arc<Mutex<ProbeSeen>>,
    thread: Option<JoinHandle<()>>,
    mark: String,
    queue: ProbeQueue,
}

impl Probe {
    /// Begins to put on `queue`, at the first of the addresses that takes it. `mark` names this
    /// drill.
    pub(super) fn start(
        ways: Vec<Connector>,
        queue: ProbeQueue,
        mark: &str,
    ) -> std::io::Result<(Probe, Arc<Vec<Connector>>)> {
        let (seen, ways) = (Arc::new(Mutex::new(nothing_seen())), Arc::new(ways));
        let (of_thread, tried) = (Arc::clone(&seen), Arc::clone(&ways));
        let putting = Putting { queue: queue.name().to_owned(), mark: mark.to_owned() };
        let body = move || putting.run(&tried, &of_thread);
        let thread = Some(thread::Builder::new().name("drill-probe".into()).spawn(body)?);
        let mark = mark.to_owned();
        Ok((Probe { seen, thread, mark, queue }, ways))
    }

    /// The queue on which it puts.
    pub(super) fn queue(&self) -> &str {
        self.queue.name()
    }

    /// What it has seen.
    pub(super) fn seen(&self) -> ProbeSeen {
        locked(&self.seen).clone()
    }

    /// The longest gap is measured from the newest confirmed put on.
    pub(super) fn begins(&self) {
        locked(&self.seen).gap = None;
    }

    /// Waits until a put is confirmed that began after this call.
    pub(super) fn until_confirmed(&self, patience: Patience) -> bool {
        let before = self.seen().confirmed();
        loop {
            // The one that is on its way may have begun before.
            if self.seen().confirmed() > before + 1 {
                return true;
            }
            if !patience.pause() {
                return false;
            }
        }
    }

    /// Ends it: what it has seen.
    pub(super) fn end(&mut self) -> ProbeSeen {
        locked(&self.seen).ends = true;
        if let Some(thread) = self.thread.take() {
            // It has panicked only if we are wrong, and said so.
            thread.join().ok();
        }
        self.seen()
    }

    /// Takes all messages of this drill off the queue and compares them with what was confirmed.
    ///
    /// # Errors
    /// They cannot be got; `found` has those that were.
    pub(super) fn counted(
        &self,
        client: &mut Client,
        seen: &ProbeSeen,
        found: &mut ProbeFound,
    ) -> Result<ProbeCount, Failure> {
        let selector = format!("{MARK} = '{}'", self.mark);
        let options =
            ReceiverOptions { selector: Some(selector), window: 500, ..ReceiverOptions::default() };
        let mut receiver = self.queue.open(client, &options)?;
        let mut here = BTreeSet::new();
        while let Some(delivery) = client.receive(&mut receiver, Some(PAUSE))? {
            let message = delivery.message()?;
            if let Some(Property::Long(number)) = message.property(NUMBER) {
                found.enter(u64::try_from(*number).unwrap_or(u64::MAX), &mut here);
            }
            client.accept(&delivery, None)?;
        }
        client.confirm(&receiver)?;
        self.queue.close(client, &receiver)?;
        let confirmed = (0..seen.next).filter(|number| !seen.unknown.contains(number));
        let missing = confirmed.filter(|number| !found.numbers.contains(number)).count() as u64;
        let lost = self.queue.lost(client, missing, found.taken);
        Ok(ProbeCount { missing, lost, doubled: found.doubled })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.end();
    }
}

fn nothing_seen() -> ProbeSeen {
    ProbeSeen {
        next: 0,
        unknown: BTreeSet::new(),
        last: None,
        gap: None,
        trouble: String::new(),
        ends: false,
    }
}

fn locked(seen: &Mutex<ProbeSeen>) -> MutexGuard<'_, ProbeSeen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Putting {
    queue: String,
    mark: String,
}

impl Putting {
    fn run(&self, ways: &[Connector], seen: &Mutex<ProbeSeen>) {
        for way in ways.iter().cycle() {
            if locked(seen).ends {
                return;
            }
            // Until this one takes no more.
            if let Err(failure) = self.put_there(way, seen) {
                failure.reason().clone_into(&mut locked(seen).trouble);
            }
            thread::park_timeout(PAUSE);
        }
    }

    /// Puts at one address, until it fails or the probe ends.
    fn put_there(&self, way: &Connector, seen: &Mutex<ProbeSeen>) -> Result<(), Failure> {
        let mut client = way.connect()?;
        let sender = client.sender(&self.queue)?;
        loop {
            let number = {
                let mut seen = locked(seen);
                if seen.ends || seen.unknown.len() >= UNKNOWN_MAX {
                    return Ok(());
                }
                let number = seen.next;
                seen.next += 1;
                // Until it is confirmed, it is not known.
                seen.unknown.insert(number);
                number
            };
            self.put(&mut client, sender, number)?;
            let mut seen = locked(seen);
            seen.unknown.remove(&number);
            seen.confirms(Instant::now());
            drop(seen);
            thread::park_timeout(PAUSE);
        }
    }

    fn put(&self, client: &mut Client, sender: Sender, number: u64) -> Result<(), Failure> {
        let message = Message {
            body: Body::Text(format!("drill {}, message {number}", self.mark)),
            persistent: Some(true),
            properties: vec![
                (MARK.to_owned(), Property::Text(self.mark.clone())),
                (NUMBER.to_owned(), Property::Long(i64::try_from(number).unwrap_or(i64::MAX))),
            ],
            ..Message::default()
        };
        client.send(sender, &message, None)?;
        Ok(client.settle_to(sender, 0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_lies_between_two_confirmed_puts() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut seen = nothing_seen();
        seen.confirms(at(0));
        assert!(seen.gap.is_none(), "there was none before it");
        for ms in [10, 510, 520, 700] {
            seen.confirms(at(ms));
        }
        assert_eq!(seen.gap, Some((Duration::from_millis(500), at(10))));
        assert_eq!(seen.last, Some(at(700)));
    }

    #[test]
    fn what_is_not_known_is_not_confirmed() {
        let mut seen = nothing_seen();
        seen.next = 7;
        seen.unknown.extend([2, 6]);
        assert_eq!((seen.confirmed(), seen.unconfirmed()), (5, 2));
    }

    #[test]
    fn a_count_that_broke_off_is_gone_on_with_and_nothing_is_found_twice_by_that() {
        let mut found = ProbeFound::default();
        let mut first = BTreeSet::new();
        for number in [1, 2, 2] {
            found.enter(number, &mut first);
        }
        let mut second = BTreeSet::new();
        for number in [2, 3] {
            found.enter(number, &mut second);
        }
        assert_eq!(found.numbers.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((found.doubled, found.taken), (1, 4), "the second time of 2 was one of two");
    }
}
