//! The consumers that wait at a queue. Plain consumers have turns; scanners and keyed consumers are
//! woken when there may be something for them, and have turns of their own. Knows neither credit
//! nor messages: a woken consumer may find nothing.
//!
//! A consumer that closes stays in the rings until it is met there, or until half of them are such:
//! ten thousand that close at once are not searched for one by one.
//!
//! Invariant: a consumer is at most once in each of `plain`, `ring` and `draining`.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Hashes;
use super::returned::ReturnedPlaces;
use super::turns::Turns;
use super::{Attention, Rank, Spot, Visitor};
use crate::ConsumerId;
use crate::hash::FastMap;
use crate::request::FilterKey;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct WaitingConsumers {
    /// Plain consumers with credit; the first one is served next.
    pub(crate) plain: Turns,
    /// Scanners and keyed consumers that are to look again; the first one looks next.
    pub(crate) ring: Turns,
    /// Consumers that want to know when there is nothing more for them.
    pub(crate) draining: BTreeSet<ConsumerId>,
    /// What scanners must look at behind their cursors.
    pub(crate) returned: ReturnedPlaces,
    /// Scanners that have looked at everything, and wait for the next message.
    resting: BTreeSet<ConsumerId>,
    keyed: FastMap<FilterKey, BTreeSet<ConsumerId>>,
    /// To be added to `ring` by the next dispatch.
    woken: Vec<WokenConsumer>,
    /// Keys of which messages came, and the first position of each: its consumers are woken by the
    /// next dispatch. Not noted for each of them: thousands may wait for a key of which a unit of
    /// work has thousands of messages.
    keys_woken: BTreeMap<FilterKey, Rank>,
    scanners_woken: bool,
    /// Closed, and still in one of the rings, perhaps.
    closed: BTreeSet<ConsumerId>,
    /// Messages with content on its way, and the consumers that wait for it.
    fetching: FastMap<u64, Vec<ConsumerId>>,
}

/// A consumer that is to look again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WokenConsumer {
    pub(crate) consumer: ConsumerId,
    /// A keyed one must not miss this position.
    pub(crate) rank: Option<Rank>,
    /// Before the others: what it waited for is at hand now, and may not be for long.
    pub(crate) first: bool,
}

/// Fewer closed consumers than this are not worth a walk through the rings.
const CLOSED_MIN: usize = 64;

impl WaitingConsumers {
    /// A consumer is opened.
    pub(crate) fn open(&mut self, visitor: Visitor) {
        match visitor.attention {
            Attention::Plain => {}
            Attention::Scanner if visitor.browses => {}
            Attention::Scanner => self.returned.open(visitor.consumer),
            Attention::Keyed(key) => {
                self.keyed.entry(key).or_default().insert(visitor.consumer);
            }
        }
    }

    /// A consumer is closed, or gets nothing from now on.
    pub(crate) fn close(&mut self, visitor: Visitor) {
        let id = visitor.consumer;
        self.draining.remove(&id);
        match visitor.attention {
            Attention::Plain => {}
            Attention::Scanner => {
                self.returned.close(id);
                self.resting.remove(&id);
            }
            Attention::Keyed(key) => {
                if let Some(consumers) = self.keyed.get_mut(&key) {
                    consumers.remove(&id);
                    if consumers.is_empty() {
                        self.keyed.remove(&key);
                    }
                }
            }
        }
        self.closed.insert(id);
        let waiting = self.plain.len() + self.ring.len() + self.woken.len();
        if self.closed.len() >= CLOSED_MIN && self.closed.len() * 2 >= waiting {
            let closed = std::mem::take(&mut self.closed);
            let stays = |id| !closed.contains(&id);
            self.plain.retain(stays);
            self.ring.retain(stays);
            self.woken.retain(|woken| stays(woken.consumer));
        }
    }

    /// A plain consumer chooses from now on: it is opened anew, as a scanner.
    pub(crate) fn is_plain_no_more(&mut self, visitor: Visitor) {
        self.draining.remove(&visitor.consumer);
        self.plain.remove(visitor.connection, visitor.consumer);
    }

    /// A consumer got credit, or must look again for another reason of its own. A plain one must
    /// not be in the ring already.
    pub(crate) fn wake(&mut self, visitor: Visitor) {
        match visitor.attention {
            Attention::Plain => self.plain.push_back(visitor.connection, visitor.consumer),
            Attention::Scanner | Attention::Keyed(_) => {
                let consumer = visitor.consumer;
                self.woken.push(WokenConsumer { consumer, rank: None, first: false });
            }
        }
    }

    /// What a scanner or keyed consumer waited for is at hand.
    pub(crate) fn wake_first(&mut self, visitor: Visitor) {
        assert_ne!(visitor.attention, Attention::Plain, "a plain consumer stays in its ring");
        self.woken.push(WokenConsumer { consumer: visitor.consumer, rank: None, first: true });
    }

    /// A consumer found nothing more. A keyed one is woken by its key.
    pub(crate) fn rest(&mut self, visitor: Visitor) {
        if visitor.attention == Attention::Scanner {
            self.resting.insert(visitor.consumer);
        }
    }

    /// A message arrived or came back.
    pub(crate) fn message_available(&mut self, spot: Spot, hashes: Hashes) {
        self.returned.available(spot);
        self.scanners_woken |= !self.resting.is_empty();
        if !self.keyed.is_empty() {
            let correlation = FilterKey::Correlation(hashes.correlation);
            for key in [correlation, FilterKey::MessageId(hashes.message_id)] {
                if self.keyed.contains_key(&key) {
                    let rank = Rank::new(spot.lane, spot.sequence);
                    let first = self.keys_woken.entry(key).or_insert(rank);
                    *first = rank.min(*first);
                }
            }
        }
    }

    /// The consumers that must look again.
    pub(crate) fn take_woken(&mut self) -> Vec<WokenConsumer> {
        let mut woken = std::mem::take(&mut self.woken);
        for (key, rank) in std::mem::take(&mut self.keys_woken) {
            let waiters = self.keyed.get(&key).into_iter().flatten();
            let wakes = |waiter: &ConsumerId| WokenConsumer {
                consumer: *waiter,
                rank: Some(rank),
                first: false,
            };
            woken.extend(waiters.map(wakes));
        }
        if std::mem::take(&mut self.scanners_woken) {
            let resting = std::mem::take(&mut self.resting).into_iter();
            let looks = |consumer| WokenConsumer { consumer, rank: None, first: false };
            woken.extend(resting.map(looks));
        }
        woken
    }

    /// Entries in the rings, those of closed consumers too.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let woken = self.woken.len() + self.keys_woken.len();
        self.plain.len() + self.ring.len() + woken + self.closed.len()
    }

    /// Notes that content of a message is needed; true when it was not requested before.
    pub(crate) fn fetch(&mut self, sequence: u64, waiter: Option<ConsumerId>) -> bool {
        let asked = self.fetching.contains_key(&sequence);
        self.fetching.entry(sequence).or_default().extend(waiter);
        !asked
    }

    /// The content is at hand. Yields the consumers that waited for it; wake them.
    pub(crate) fn fetched(&mut self, sequence: u64) -> Vec<ConsumerId> {
        self.fetching.remove(&sequence).unwrap_or_default()
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        self.plain.audit();
        self.ring.audit();
    }
}
