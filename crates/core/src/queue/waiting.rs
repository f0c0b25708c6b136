//! The consumers that wait at a queue. Plain consumers stand in a ring; scanners and keyed
//! consumers are woken when there may be something for them. Knows neither credit nor messages: a
//! woken consumer may find nothing.
//!
//! Invariant: a consumer is at most once in each of `plain`, `ring` and `draining`.

use std::collections::VecDeque;

use super::entry::Hashes;
use super::{Attention, LANES, Rank, Spot, Visitor};
use crate::ConsumerId;
use crate::hash::FastMap;
use crate::request::FilterKey;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct WaitingConsumers {
    /// Plain consumers with credit; the first one is served next.
    pub(crate) plain: VecDeque<ConsumerId>,
    /// Scanners and keyed consumers that are to look again; the first one looks next.
    pub(crate) ring: VecDeque<ConsumerId>,
    /// Consumers that want to know when there is nothing more for them.
    pub(crate) draining: Vec<ConsumerId>,
    scanners: Vec<ConsumerId>,
    keyed: FastMap<FilterKey, Vec<ConsumerId>>,
    /// To be added to `ring` by the next dispatch.
    woken: Vec<WokenConsumer>,
    scanners_woken: bool,
    /// For each lane the lowest position that became available since scanners last looked.
    rewind: [u64; LANES],
    /// Messages with content on its way, and the consumers that wait for it.
    fetching: FastMap<u64, Vec<ConsumerId>>,
}

impl Default for WaitingConsumers {
    fn default() -> WaitingConsumers {
        WaitingConsumers {
            plain: VecDeque::new(),
            ring: VecDeque::new(),
            draining: Vec::new(),
            scanners: Vec::new(),
            keyed: FastMap::default(),
            woken: Vec::new(),
            scanners_woken: false,
            rewind: [u64::MAX; LANES],
            fetching: FastMap::default(),
        }
    }
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

/// What scanners need to know before they look again.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) woken: Vec<WokenConsumer>,
    pub(crate) rewind: Option<[u64; LANES]>,
}

impl WaitingConsumers {
    /// A consumer is opened.
    pub(crate) fn open(&mut self, visitor: Visitor) {
        match visitor.attention {
            Attention::Plain => {}
            Attention::Scanner => self.scanners.push(visitor.consumer),
            Attention::Keyed(key) => self.keyed.entry(key).or_default().push(visitor.consumer),
        }
    }

    /// A consumer is closed, or gets nothing from now on.
    pub(crate) fn close(&mut self, visitor: Visitor) {
        let stays = |other: &ConsumerId| *other != visitor.consumer;
        self.draining.retain(stays);
        match visitor.attention {
            Attention::Plain => self.plain.retain(stays),
            Attention::Scanner => {
                self.scanners.retain(stays);
                self.ring.retain(stays);
                self.woken.retain(|woken| stays(&woken.consumer));
            }
            Attention::Keyed(key) => {
                if let Some(consumers) = self.keyed.get_mut(&key) {
                    consumers.retain(stays);
                    if consumers.is_empty() {
                        self.keyed.remove(&key);
                    }
                }
                self.ring.retain(stays);
                self.woken.retain(|woken| stays(&woken.consumer));
            }
        }
    }

    /// A consumer got credit, or must look again for another reason of its own. A plain one must
    /// not be in the ring already.
    pub(crate) fn wake(&mut self, visitor: Visitor) {
        match visitor.attention {
            Attention::Plain => self.plain.push_back(visitor.consumer),
            Attention::Scanner | Attention::Keyed(_) => {
                self.woken.push(WokenConsumer {
                    consumer: visitor.consumer,
                    rank: None,
                    first: false,
                });
            }
        }
    }

    /// What a scanner or keyed consumer waited for is at hand.
    pub(crate) fn wake_first(&mut self, visitor: Visitor) {
        assert_ne!(visitor.attention, Attention::Plain, "a plain consumer stays in its ring");
        self.woken.push(WokenConsumer { consumer: visitor.consumer, rank: None, first: true });
    }

    /// A message arrived or came back.
    pub(crate) fn message_available(&mut self, spot: Spot, hashes: Hashes) {
        if !self.scanners.is_empty() {
            self.scanners_woken = true;
            let rewind = &mut self.rewind[usize::from(spot.lane)];
            *rewind = spot.sequence.min(*rewind);
        }
        if !self.keyed.is_empty() {
            let correlation = FilterKey::Correlation(hashes.correlation);
            for key in [correlation, FilterKey::MessageId(hashes.message_id)] {
                let rank = Some(Rank::new(spot.lane, spot.sequence));
                let waiters = self.keyed.get(&key).into_iter().flatten();
                let woken =
                    |waiter: &ConsumerId| WokenConsumer { consumer: *waiter, rank, first: false };
                self.woken.extend(waiters.map(woken));
            }
        }
    }

    /// The consumers that must look again, and how far back the scanners among them must go.
    pub(crate) fn take_woken(&mut self) -> Wake {
        let mut woken = std::mem::take(&mut self.woken);
        if !self.scanners_woken {
            return Wake { woken, rewind: None };
        }
        self.scanners_woken = false;
        let looks =
            |scanner: &ConsumerId| WokenConsumer { consumer: *scanner, rank: None, first: false };
        woken.extend(self.scanners.iter().map(looks));
        Wake { woken, rewind: Some(std::mem::replace(&mut self.rewind, [u64::MAX; LANES])) }
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
        let unique = |consumers: Vec<ConsumerId>| {
            let all = consumers.len();
            let mut consumers = consumers;
            consumers.sort_unstable();
            consumers.dedup();
            assert_eq!(consumers.len(), all, "a consumer waits once");
        };
        unique(self.plain.iter().copied().collect());
        unique(self.ring.iter().copied().collect());
        unique(self.draining.clone());
        unique(self.scanners.clone());
    }
}
