//! Clients of two regions: each *act* is one connection, to an instance that says that it is
//! active, in whichever region: puts, gets, or a unit of work with both. What they ask for is in
//! the ledger before it is asked, and what they are answered when it comes.
//!
//! Not here: when they act, and where. Invariant: an act runs in the process of its instance, and
//! ends with it: then no one knows what became of what it asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use towline_core::{ConsumerId, Delivery, NewMessage, Outcome, UnitId};
use towline_engine::Door;
use towline_node::{LinkToken, ProducerId, PutTo, Request, Response, Terminus};
use towline_os::task::{Handle, sleep};
use towline_replica::OpenReplica;
use towline_types::{HistoryId, Lsn, Payload, SeededRandom, Time};

use super::ledger::{DeedAnswer, DeedEntry, DeedLedger, RegionMessage};
use crate::client::queue_name;
use crate::served::content;
use crate::served::look::DoorSession;
use crate::trace::now_us;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one that gets waits for messages.
const GETS_FOR: Duration = Duration::from_millis(30);
/// Messages of one act, at most.
const MESSAGES_MAX: u64 = 4;
/// The longest time to live, and the longest delay, microseconds.
const LIVES_US: u64 = 8_000_000;

/// What clients share with the run.
pub(super) struct Counter {
    pub(super) ledger: Mutex<DeedLedger>,
    pub(super) failure: Mutex<Option<String>>,
    /// What was asked of a group that had heard that it was superseded, and was not done.
    pub(super) asked_late: AtomicU64,
}

impl Counter {
    pub(super) fn fail(&self, what: String) {
        crate::trace::write(now_us(), format_args!("BROKEN: {what}"));
        self.failure.lock().get_or_insert(what);
    }
}

/// One act of a client.
pub(super) struct ClientAct {
    pub(super) opened: Arc<OpenReplica>,
    pub(super) door: Arc<Door>,
    /// Name of the group that it connects to.
    pub(super) group: &'static str,
    pub(super) counter: Arc<Counter>,
    pub(super) dice: SeededRandom,
    pub(super) queues: usize,
    pub(super) body_bytes_max: u64,
    /// So many of a thousand messages have a time to live, or are to be delivered later.
    pub(super) timed_per_mille: u64,
}

/// A message, and the wall clock of its instance when it was there.
type TimedDelivery = (Box<Delivery>, Time);

/// What an act has open.
struct ActLinks {
    producer: ProducerId,
    consumer: ConsumerId,
    credit: u64,
}

impl ClientAct {
    /// Runs it to its end.
    pub(super) fn run(mut self) {
        let door = Arc::clone(&self.door);
        let mut session = DoorSession::patient(&door, PATIENCE);
        // An error: no answer came in time, or it was turned away.
        self.act(&mut session).ok();
        session.leave();
    }

    fn act(&mut self, session: &mut DoorSession<'_>) -> Result<(), String> {
        let has_heard = self.has_heard();
        let opened = self.open(session);
        if has_heard {
            self.counter.asked_late.fetch_add(1, Ordering::Relaxed);
            if opened.is_ok() {
                let group = self.group;
                let what = format!("group {group} had heard that another one went on, and serves");
                self.counter.fail(what);
            }
        }
        let mut links = opened?;
        match self.dice.below(10) {
            0..5 => {
                for _ in 0..self.dice.between(1, MESSAGES_MAX) {
                    let deed = self.asks();
                    let put = self.put(&links, deed, None);
                    session.ask(vec![put]);
                    self.put_is_answered(session, deed)?;
                }
                Ok(())
            }
            5..8 => {
                for delivery in self.receive(session, &mut links)? {
                    let deed = self.asks();
                    let settle = self.settle(&links, &delivery, deed, None)?;
                    session.ask(vec![settle]);
                    self.get_is_answered(session, deed)?;
                }
                Ok(())
            }
            _ => self.unit(session, &mut links),
        }
    }

    fn open(&mut self, session: &mut DoorSession<'_>) -> Result<ActLinks, String> {
        let (put_to, get_from) = (self.dice.index(self.queues), self.dice.index(self.queues));
        let container = format!("act-{}", self.dice.next_u64());
        let link = LinkToken(0);
        session.ask(vec![
            Request::Connected { container, user: None, address: "simulated".into(), sole: false },
            Request::OpenProducer { link, terminus: Terminus::Queue(queue_name(put_to)) },
            Request::OpenConsumer {
                link,
                terminus: Terminus::Queue(queue_name(get_from)),
                browse: false,
                selector: None,
                exclusive: None,
            },
        ]);
        let refused = |refusal| format!("{refusal:?}");
        let producer = session.until(|response| match response {
            Response::ProducerOpened { result, .. } => Some(result),
            _ => None,
        })?;
        let consumer = session.until(|response| match response {
            Response::ConsumerOpened { result, .. } => Some(result),
            _ => None,
        })?;
        let (producer, consumer) =
            (producer.map_err(refused)?.producer, consumer.map_err(refused)?.consumer);
        Ok(ActLinks { producer, consumer, credit: 0 })
    }

    /// Where the log is now: the history that this group is live for, and what is committed.
    fn place(&self) -> (Option<HistoryId>, Lsn) {
        let histories = self.door.look(|instance| instance.histories().clone());
        let own = histories.iter().rev().find(|history| history.live == self.group);
        (own.map(|history| history.id), self.opened.driver.committed_end())
    }

    /// Whether its instance knows that its group was superseded: from the moment on at which this
    /// is true it serves no client. A group beside which another one went on is not superseded.
    fn has_heard(&self) -> bool {
        self.opened.driver.superseded().is_some()
    }

    /// Whatever it asks for as this deed comes later.
    fn asks(&self) -> usize {
        let has_heard = self.has_heard();
        let (history, from) = self.place();
        self.counter.ledger.lock().asks(DeedEntry { has_heard, ..DeedEntry::asked(history, from) })
    }

    fn answered(&self, deed: usize, done: bool) {
        let term = self.opened.driver.group().term;
        let (_, upto) = self.place();
        let answer = DeedAnswer { upto, term, at_us: now_us() };
        let mut ledger = self.counter.ledger.lock();
        ledger.answered(deed, done, answer);
        let entry = ledger.deeds[deed];
        drop(ledger);
        if !entry.has_heard {
            return;
        }
        self.counter.asked_late.fetch_add(1, Ordering::Relaxed);
        if done {
            let group = self.group;
            self.counter.fail(format!(
                "group {group} had heard that another one went on, and acknowledged {entry:?}"
            ));
        }
    }

    fn put(&mut self, links: &ActLinks, deed: usize, unit: Option<UnitId>) -> Request {
        let bytes = usize::try_from(self.dice.below(self.body_bytes_max)).unwrap_or(0);
        let wall = self.door.clock().wall();
        let later = |dice: &mut SeededRandom, per_mille| {
            dice.chance(per_mille).then(|| Time(wall.0 + dice.below(LIVES_US)))
        };
        let expires_at = later(&mut self.dice, self.timed_per_mille);
        // It is kept, and nothing is delivered later yet.
        let deliver_at = later(&mut self.dice, self.timed_per_mille);
        let message = RegionMessage { bytes, expires_at, put: deed, gets: Vec::new() };
        let number = self.counter.ledger.lock().puts(message);
        let message = NewMessage {
            persistent: Some(true),
            priority: Some(4),
            expires_at,
            deliver_at,
            content: Payload::from(Bytes::from(DeedLedger::content(number, bytes))),
            ..NewMessage::default()
        };
        let target = PutTo::Producer(links.producer);
        Request::Put { token: deed as u64, target, message, unit, reply_wanted: true }
    }

    fn put_is_answered(&self, session: &mut DoorSession<'_>, deed: usize) -> Result<(), String> {
        let done = session.until(|response| match response {
            Response::Put { token, result, .. } if token == deed as u64 => Some(result.is_ok()),
            _ => None,
        })?;
        self.answered(deed, done);
        Ok(())
    }

    /// Takes what comes within a moment.
    fn receive(
        &mut self,
        session: &mut DoorSession<'_>,
        links: &mut ActLinks,
    ) -> Result<Vec<TimedDelivery>, String> {
        links.credit += self.dice.between(1, MESSAGES_MAX);
        let (consumer, limit) = (links.consumer, links.credit);
        session.ask(vec![Request::Credit { consumer, limit, drain: false, flow: 0 }]);
        Handle::current().block_on(sleep(GETS_FOR));
        session.ask(vec![Request::Credit { consumer, limit, drain: true, flow: 1 }]);
        let mut deliveries = Vec::new();
        let mut is_drained = false;
        while !is_drained {
            let delivery = session.until(|response| match response {
                Response::Deliver(delivery) => Some(Some(delivery)),
                Response::Drained { .. } => Some(None),
                _ => None,
            })?;
            is_drained = delivery.is_none();
            let wall = self.door.clock().wall();
            deliveries.extend(delivery.map(|delivery| (delivery, wall)));
        }
        Ok(deliveries)
    }

    fn settle(
        &self,
        links: &ActLinks,
        (delivery, wall): &TimedDelivery,
        deed: usize,
        unit: Option<UnitId>,
    ) -> Result<Request, String> {
        let found = content::of(&self.door, delivery);
        let found = found.map_err(|error| error.to_string())?.ok_or("it is gone")?;
        let mut ledger = self.counter.ledger.lock();
        let number = match ledger.delivered(&found, *wall) {
            Ok(number) => number,
            Err(broken) => {
                drop(ledger);
                self.counter.fail(format!("group {}: {broken}", self.group));
                return Err("a rule is broken".into());
            }
        };
        ledger.messages[number].gets.push(deed);
        Ok(Request::Settle {
            consumer: links.consumer,
            sequence: delivery.sequence,
            outcome: Outcome::Accepted,
            unit,
            annotations: None,
            settled: true,
            link: LinkToken(deed as u64),
            reply_wanted: true,
        })
    }

    fn get_is_answered(&self, session: &mut DoorSession<'_>, deed: usize) -> Result<(), String> {
        let done = session.until(|response| match response {
            Response::Settled { link, result, .. } if link.0 == deed as u64 => Some(result.is_ok()),
            _ => None,
        })?;
        self.answered(deed, done);
        Ok(())
    }

    /// Puts and gets that happen together, or not at all.
    fn unit(&mut self, session: &mut DoorSession<'_>, links: &mut ActLinks) -> Result<(), String> {
        let received = match self.dice.chance(500) {
            true => self.receive(session, links)?,
            false => Vec::new(),
        };
        let deed = self.asks();
        session.ask(vec![Request::Declare { token: deed as u64 }]);
        let declared = session.until(|response| match response {
            Response::Declared { result, .. } => Some(result),
            _ => None,
        })?;
        let Ok(unit) = declared else {
            self.answered(deed, false);
            return Ok(());
        };
        let mut is_whole = true;
        for _ in 0..self.dice.between(1, MESSAGES_MAX) {
            let put = self.put(links, deed, Some(unit));
            session.ask(vec![put]);
            is_whole &= session.until(|response| match response {
                Response::Put { result, .. } => Some(result.is_ok()),
                _ => None,
            })?;
        }
        for delivery in received {
            let settle = self.settle(links, &delivery, deed, Some(unit))?;
            session.ask(vec![settle]);
            is_whole &= session.until(|response| match response {
                Response::Settled { result, .. } => Some(result.is_ok()),
                _ => None,
            })?;
        }
        let fail = self.dice.chance(200) || !is_whole;
        session.ask(vec![Request::Discharge { token: deed as u64, unit, fail }]);
        let done = session.until(|response| match response {
            Response::Discharged { result, .. } => Some(result.is_ok()),
            _ => None,
        })?;
        self.answered(deed, done && !fail);
        Ok(())
    }
}
