//! A model client: it puts, gets, and does both in units of work, as its habits say, and reports to
//! the history what it asks for.
//!
//! Not here: the way between client and instance; what answers mean for the promises (`history`).
//!
//! Invariants: while a unit is open its client puts only inside it, so that one client's messages
//! have one order; what a client held is given up with its connection.

use bytes::Bytes;
use towline_core::{ConsumerId, MessageSequence, NewMessage, Outcome, UnitId};
use towline_node::{LinkToken, ProducerId, PutTo, Request, Terminus};
use towline_types::{Payload, Time};

use crate::history::{Fate, History, Put};
use crate::plan::Plan;
use towline_types::SeededRandom;

/// Puts and settlements that a client has open at most before it waits.
const WAITING_MAX: u32 = 8;
/// A client that is not answered for so long goes elsewhere, in microseconds.
const PATIENCE_US: u64 = 2_000_000;

/// What a client does how often; weights, and parts of a thousand.
#[derive(Clone, Debug)]
struct Habits {
    put: u64,
    begin: u64,
    get: u64,
    leave: u64,
    persistent_per_mille: u64,
    unanswered_get_per_mille: u64,
    give_back_per_mille: u64,
    rollback_per_mille: u64,
    credit: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: usize,
    habits: Habits,
    pub(crate) connection: Option<Connection>,
    pub(crate) acts: u64,
    /// When something that it asked for was last acknowledged.
    pub(crate) progress_at: u64,
    /// When a put was last refused because messages fill the memory, and how much that is.
    no_memory: Option<(u64, u64)>,
    pub(crate) stopping: bool,
}

/// A connection as its client knows it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) node: usize,
    pub(crate) process: u64,
    pub(crate) put_to: usize,
    pub(crate) get_from: usize,
    producer: Option<ProducerId>,
    consumer: Option<ConsumerId>,
    held: Vec<(usize, MessageSequence)>,
    settled: u64,
    unit: Option<OpenUnit>,
    /// The unit of work that it committed last.
    committed: Option<usize>,
    /// Puts in no unit of work that it asked for behind such a commit: put and unit.
    behind_commits: Vec<(usize, usize)>,
    waiting: u32,
    waiting_since: u64,
    /// When the newest request arrives there, and the newest answer here: nothing overtakes.
    pub(crate) requests_at: u64,
    pub(crate) answers_at: u64,
}

#[derive(Debug)]
struct OpenUnit {
    number: usize,
    id: Option<UnitId>,
}

/// An answer to a client.
#[derive(Debug)]
pub(crate) enum Answer {
    Producer(Option<ProducerId>),
    Consumer(Option<ConsumerId>),
    Delivered(usize, MessageSequence),
    Declared(usize, Option<UnitId>),
    /// A put, a settlement, the end of a unit: acknowledged or not.
    Done(bool),
    /// A put is refused: messages take all of so many bytes of memory.
    NoMemory(u64),
    Closed,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        node: usize,
        process: u64,
        dice: &mut SeededRandom,
        plan: &Plan,
    ) -> Self {
        Connection {
            id,
            node,
            process,
            put_to: dice.index(plan.queues),
            get_from: dice.index(plan.queues),
            producer: None,
            consumer: None,
            held: Vec::new(),
            settled: 0,
            unit: None,
            committed: None,
            behind_commits: Vec::new(),
            waiting: 0,
            waiting_since: 0,
            requests_at: 0,
            answers_at: 0,
        }
    }

    fn waits(&mut self, now: u64) {
        if self.waiting == 0 {
            self.waiting_since = now;
        }
        self.waiting += 1;
    }
}

/// The name of a queue of the clients.
pub(crate) fn queue_name(queue: usize) -> String {
    format!("QUEUE.{queue}")
}

impl Client {
    pub(crate) fn new(number: usize, dice: &mut SeededRandom) -> Client {
        let habits = Habits {
            put: dice.between(1, 6),
            begin: dice.below(4),
            get: dice.below(6),
            leave: dice.below(2),
            persistent_per_mille: if dice.chance(700) { 1_000 } else { dice.below(1_000) },
            unanswered_get_per_mille: if dice.chance(500) { 0 } else { dice.below(1_000) },
            give_back_per_mille: if dice.chance(500) { 0 } else { dice.below(400) },
            rollback_per_mille: dice.below(400),
            credit: dice.between(1, 12),
        };
        let connection = None;
        let (stopping, no_memory) = (false, None);
        Client { number, habits, connection, acts: 0, progress_at: 0, no_memory, stopping }
    }

    /// What it asks for first on a new connection.
    pub(crate) fn open(&mut self, now: u64, connection: Connection) -> Vec<Request> {
        let container = format!("client-{}", self.number);
        let put_to = connection.put_to;
        let get_from = connection.get_from;
        self.connection = Some(connection);
        if let Some(connection) = &mut self.connection {
            connection.waits(now);
            connection.waits(now);
        }
        vec![
            Request::Connected { container, user: None, address: "simulated".into(), sole: false },
            Request::OpenProducer {
                link: LinkToken(0),
                terminus: Terminus::Queue(queue_name(put_to)),
            },
            Request::OpenConsumer {
                link: LinkToken(0),
                terminus: Terminus::Queue(queue_name(get_from)),
                browse: false,
                selector: None,
                exclusive: None,
            },
        ]
    }

    /// The connection is gone, with all that it held.
    pub(crate) fn lose(&mut self, history: &mut History) {
        let Some(lost) = self.connection.take() else { return };
        if let Some(unit) = lost.unit {
            history.discharge(unit.number, false);
        }
        history.connection_ended(lost.id);
        for (put, unit) in lost.behind_commits {
            history.lost_behind_commit(put, unit);
        }
    }

    /// Whether something that it asked for was acknowledged since then, or refused for a reason:
    /// messages that no client gets may fill the memory. The history says whether they do: an
    /// account that lost count is no reason.
    pub(crate) fn is_served(&self, since: u64, history: &History) -> bool {
        let is_full = |bytes_max| history.bytes_in_memory() * 2 >= bytes_max;
        let refused = self.no_memory.filter(|(at, _)| *at > since);
        self.progress_at > since || refused.is_some_and(|(_, bytes_max)| is_full(bytes_max))
    }

    /// Whether it has waited too long for an answer.
    pub(crate) fn is_out_of_patience(&self, now: u64) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            connection.waiting > 0 && now.saturating_sub(connection.waiting_since) > PATIENCE_US
        })
    }

    /// It does something, or nothing. Empty: nothing. A `Disconnect` is the last of a connection.
    pub(crate) fn act(
        &mut self,
        now: u64,
        plan: &Plan,
        dice: &mut SeededRandom,
        history: &mut History,
    ) -> Vec<Request> {
        let habits = self.habits.clone();
        let stopping = self.stopping;
        let Some(connection) = &mut self.connection else { return Vec::new() };
        if stopping && connection.waiting == 0 {
            return vec![Request::Disconnect { lost: dice.chance(200) }];
        }
        let (Some(producer), Some(consumer)) = (connection.producer, connection.consumer) else {
            return Vec::new();
        };
        if connection.waiting >= WAITING_MAX || stopping {
            return Vec::new();
        }
        self.acts += 1;
        let mut act = Act { number: self.number, now, plan, dice, history, habits, connection };
        if let Some(unit) = act.connection.unit.take() {
            return act.in_unit(unit, producer, consumer);
        }
        let weights = [act.habits.put, act.habits.begin, act.habits.get, act.habits.leave];
        let mut drawn = act.dice.below(weights.iter().sum::<u64>() * 4);
        // Leaving is seldom.
        let kind = weights.iter().zip([4, 4, 4, 1]).position(|(weight, times)| {
            let here = drawn < weight * times;
            drawn = drawn.saturating_sub(weight * times);
            here
        });
        match kind {
            Some(1) => act.begin(),
            Some(2) => act.get(consumer),
            Some(3) => vec![Request::Disconnect { lost: act.dice.chance(500) }],
            _ => {
                let persistent = act.is_persistent();
                vec![act.put(producer, None, persistent)]
            }
        }
    }

    /// It hears something; what it asks for at once.
    pub(crate) fn hear(
        &mut self,
        now: u64,
        answer: Answer,
        dice: &mut SeededRandom,
        history: &mut History,
    ) -> Vec<Request> {
        let credit = self.habits.credit;
        let Some(connection) = &mut self.connection else { return Vec::new() };
        if !matches!(answer, Answer::Delivered(..)) {
            connection.waiting = connection.waiting.saturating_sub(1);
            connection.waiting_since = now;
        }
        match answer {
            Answer::Producer(Some(producer)) => connection.producer = Some(producer),
            Answer::Consumer(Some(consumer)) => {
                connection.consumer = Some(consumer);
                return vec![Request::Credit { consumer, limit: credit, drain: false, flow: 0 }];
            }
            Answer::Producer(None) | Answer::Consumer(None) => {
                return vec![Request::Disconnect { lost: dice.chance(500) }];
            }
            Answer::Delivered(message, sequence) => connection.held.push((message, sequence)),
            Answer::Declared(number, id) => match &mut connection.unit {
                Some(unit) if unit.number == number && id.is_some() => unit.id = id,
                Some(_) | None => {
                    connection.unit = None;
                    history.discharge(number, false);
                }
            },
            Answer::Done(acknowledged) => {
                if acknowledged {
                    self.progress_at = now;
                }
            }
            Answer::NoMemory(bytes_max) => self.no_memory = Some((now, bytes_max)),
            Answer::Closed => self.lose(history),
        }
        Vec::new()
    }
}

/// What a client needs while it does something.
struct Act<'a> {
    number: usize,
    now: u64,
    plan: &'a Plan,
    dice: &'a mut SeededRandom,
    history: &'a mut History,
    habits: Habits,
    connection: &'a mut Connection,
}

impl Act<'_> {
    fn is_persistent(&mut self) -> bool {
        self.dice.chance(self.habits.persistent_per_mille)
    }

    fn put(
        &mut self,
        producer: ProducerId,
        unit: Option<(usize, UnitId)>,
        persistent: bool,
    ) -> Request {
        let priority = if self.dice.chance(700) { 4 } else { self.dice.below(10) };
        let priority = u8::try_from(priority).unwrap_or(4);
        let bytes = usize::try_from(self.dice.below(self.plan.body_bytes_max)).unwrap_or(0);
        let number = self.history.put(Put {
            client: self.number,
            queue: self.connection.put_to,
            priority,
            persistent,
            unit: unit.map(|(number, _)| number),
            fate: Fate::Unknown,
            delivered: false,
            gets: Vec::new(),
            bytes,
        });
        if let (None, Some(committed)) = (&unit, self.connection.committed) {
            self.connection.behind_commits.push((number, committed));
        }
        self.connection.waits(self.now);
        let message = NewMessage {
            persistent: Some(persistent),
            priority: Some(priority),
            content: Payload::from(Bytes::from(History::content(number, bytes))),
            ..with_fields(number as u64, self.now)
        };
        Request::Put {
            token: number as u64,
            target: PutTo::Producer(producer),
            message,
            unit: unit.map(|(_, id)| id),
            reply_wanted: true,
        }
    }

    fn begin(&mut self) -> Vec<Request> {
        let number = self.history.declare();
        self.connection.unit = Some(OpenUnit { number, id: None });
        self.connection.waits(self.now);
        vec![Request::Declare { token: number as u64 }]
    }

    /// Settles some of what is held.
    fn get(&mut self, consumer: ConsumerId) -> Vec<Request> {
        let count = self.dice.between(1, 3);
        let mut requests = Vec::new();
        for _ in 0..count {
            requests.extend(self.settle(consumer, None));
        }
        requests.extend(self.more_credit(consumer));
        requests
    }

    fn settle(&mut self, consumer: ConsumerId, unit: Option<(usize, UnitId)>) -> Option<Request> {
        if self.connection.held.is_empty() {
            return None;
        }
        let (message, sequence) = self.connection.held.remove(0);
        self.connection.settled += 1;
        if unit.is_none() && self.dice.chance(self.habits.give_back_per_mille) {
            self.history.give_back(message);
            let failed = self.dice.chance(500);
            let outcome = Outcome::Modified { failed, undeliverable_here: false };
            return Some(Request::Settle {
                consumer,
                sequence,
                outcome,
                unit: None,
                annotations: None,
                settled: true,
                link: LinkToken(u64::MAX),
                reply_wanted: false,
            });
        }
        let get = self.history.get(message, unit.map(|(number, _)| number));
        let answered = unit.is_some() || !self.dice.chance(self.habits.unanswered_get_per_mille);
        if answered {
            self.connection.waits(self.now);
        }
        let outcome = Outcome::Accepted;
        let unit = unit.map(|(_, id)| id);
        Some(Request::Settle {
            consumer,
            sequence,
            outcome,
            unit,
            annotations: None,
            settled: true,
            link: LinkToken(get as u64),
            reply_wanted: answered,
        })
    }

    fn more_credit(&mut self, consumer: ConsumerId) -> Option<Request> {
        let limit = self.connection.settled + self.habits.credit;
        Some(Request::Credit { consumer, limit, drain: false, flow: 0 })
    }

    fn in_unit(
        &mut self,
        unit: OpenUnit,
        producer: ProducerId,
        consumer: ConsumerId,
    ) -> Vec<Request> {
        let Some(id) = unit.id else {
            self.connection.unit = Some(unit);
            return Vec::new();
        };
        let mut requests = Vec::new();
        for _ in 0..self.dice.between(0, 3) {
            let persistent = self.is_persistent();
            requests.push(self.put(producer, Some((unit.number, id)), persistent));
        }
        for _ in 0..self.dice.between(0, 3) {
            requests.extend(self.settle(consumer, Some((unit.number, id))));
        }
        if self.dice.chance(400) {
            self.connection.unit = Some(unit);
        } else {
            let fail = self.dice.chance(self.habits.rollback_per_mille);
            self.history.discharge(unit.number, !fail);
            if !fail {
                self.connection.committed = Some(unit.number);
            }
            self.connection.waits(self.now);
            requests.push(Request::Discharge { token: unit.number as u64, unit: id, fail });
        }
        requests.extend(self.more_credit(consumer));
        requests
    }
}

/// What a log says of a message from format level 2 on: of some messages, without a draw.
fn with_fields(number: u64, now: u64) -> NewMessage {
    let group = if number.is_multiple_of(3) { 1 + number % 5 } else { 0 };
    let group_sequence = u32::try_from(number % 4).unwrap_or(0);
    let deliver_at = number.is_multiple_of(7).then(|| Time(now.saturating_add(number * 1_000)));
    NewMessage { group, group_sequence, deliver_at, ..NewMessage::default() }
}
