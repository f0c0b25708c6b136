//! A queue manager with a pretended log, for tests: runs are encoded, kept, and applied when the
//! test says that they are durable. All facts that are logged go through `record` and back.

mod commits;
mod page_file;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn, Payload, Time};

use crate::command::{DefineLocal, LocalChanges};
use crate::queue::page::bodies_of_page;
use crate::record::{decode, encode};
use crate::{
    Body, Candidate, ConnectionId, ConsumerId, ConsumerMode, ConsumerSpec, Decision, Delivery,
    Durability, Effect, Fact, Filter, FilterKey, Limits, Match, NewMessage, Outcome, Outputs,
    PageRequest, Pages, PutTarget, QueueManager, QueueStatus, Refusal, Selection, Settlement,
    UnitId,
};

/// A record as the log has it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: Lsn,
    pub(crate) bytes: Vec<u8>,
    pub(crate) last: bool,
}

/// Facts that wait until the log is durable. `end`: number of records that must be.
#[derive(Debug)]
struct Waiting {
    facts: Vec<Fact>,
    end: usize,
}

pub(crate) const CLIENT: ConnectionId = ConnectionId(1);
pub(crate) const OTHER: ConnectionId = ConnectionId(2);

pub(crate) struct Rig {
    pub(crate) core: QueueManager,
    pub(crate) now: Time,
    pub(crate) decision: Decision,
    pub(crate) outputs: Outputs,
    pub(crate) log: Vec<Record>,
    /// Applied so far.
    pub(crate) durable: usize,
    next_lsn: u64,
    waiting: VecDeque<Waiting>,
    /// Effects other than deliveries and storage.
    pub(crate) effects: Vec<Effect>,
    pub(crate) deliveries: Vec<Delivery>,
    /// Live locations in the log, according to the effects.
    pub(crate) stored: BTreeSet<BodyLocation>,
    pub(crate) cold: Cold,
    /// The page file: content by unit. Nothing in it is ever overwritten.
    pub(crate) pages: BTreeMap<u32, Vec<u8>>,
    /// Pages that the rules asked for.
    pub(crate) loads: Vec<PageRequest>,
    /// How many of them were read by `dispatch_in_no_memory`.
    pub(crate) loads_read: usize,
    /// Bodies that left with a page, by extent: how many, and their bytes.
    removed_from: BTreeMap<u64, (u64, u64)>,
    /// Runs become durable at once.
    pub(crate) instant: bool,
    /// What left a cleared or deleted queue waits for slices, and so does what is completed.
    pub(crate) keeps_garbage: bool,
    pub(crate) last_durability: Durability,
    pub(crate) last_behind: bool,
    pub(crate) last_facts: Vec<Fact>,
}

/// Evaluates test filters: the first byte of the content must be equal.
#[derive(Debug, Default)]
pub(crate) struct Cold {
    /// Content of these is not at hand.
    pub(crate) sequences: BTreeSet<u64>,
    pub(crate) asked: u64,
    /// What an answer costs beyond one look.
    pub(crate) further_looks: u32,
    log: Vec<u8>,
}

impl Cold {
    pub(crate) fn content(&self, body: &Body) -> Vec<u8> {
        let read = |location: &BodyLocation| {
            let from = usize::try_from(location.lsn.0).unwrap();
            self.log[from..from + location.bytes as usize].to_vec()
        };
        match body {
            Body::Memory(bytes) => bytes.to_vec(),
            Body::Log(location) => read(location),
            Body::Chunks(chunks) => chunks.iter().flat_map(read).collect(),
            Body::Incoming(_) | Body::Announced { .. } => panic!("not where content can be read"),
        }
    }
}

impl Selection for Cold {
    fn matches(&mut self, filter: &Filter, candidate: &Candidate<'_>) -> Match {
        self.asked += 1;
        if self.sequences.contains(&candidate.sequence.0) {
            return Match::NeedContent;
        }
        let wanted = filter.condition.downcast_ref::<u8>().unwrap();
        let content = self.content(candidate.body);
        if content.first() == Some(wanted) { Match::Yes } else { Match::No }
    }

    fn further_looks(&self) -> u32 {
        self.further_looks
    }
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Rig {
        Rig::over(QueueManager::new(limits))
    }

    pub(crate) fn over(core: QueueManager) -> Rig {
        Rig {
            core,
            now: Time(1_000_000),
            decision: Decision::default(),
            outputs: Outputs::default(),
            log: Vec::new(),
            durable: 0,
            next_lsn: 0,
            waiting: VecDeque::new(),
            effects: Vec::new(),
            deliveries: Vec::new(),
            stored: BTreeSet::new(),
            cold: Cold::default(),
            pages: BTreeMap::new(),
            loads: Vec::new(),
            loads_read: 0,
            removed_from: BTreeMap::new(),
            instant: true,
            keeps_garbage: false,
            last_durability: Durability::Memory,
            last_behind: false,
            last_facts: Vec::new(),
        }
    }

    /// Carries out what the last deciding call yielded.
    pub(crate) fn carry_out(&mut self) {
        let mut facts = std::mem::take(&mut self.decision.facts);
        self.last_durability = self.decision.durability;
        self.last_behind = self.decision.behind;
        self.last_facts = facts.clone();
        assert_eq!(self.decision.logged > 0, self.decision.durability != Durability::Memory);
        let unlogged = facts.split_off(self.decision.logged);
        if facts.is_empty() {
            if self.decision.behind {
                self.waiting.push_back(Waiting { facts: unlogged, end: self.log.len() });
            } else {
                self.apply(unlogged);
            }
        } else {
            let mut facts = self.write(facts);
            facts.extend(unlogged);
            self.waiting.push_back(Waiting { facts, end: self.log.len() });
        }
        if self.instant {
            self.sync();
        }
        self.take_outputs();
    }

    /// Logs a run; yields it as it reads back.
    fn write(&mut self, facts: Vec<Fact>) -> Vec<Fact> {
        let count = facts.len();
        let mut read = Vec::new();
        for (number, fact) in facts.into_iter().enumerate() {
            let last = number + 1 == count;
            let mut bytes = Vec::new();
            let range = encode(&fact, last, &mut bytes);
            let at = Lsn(self.next_lsn);
            let (back, back_last) = decode(&bytes, at).unwrap();
            assert_eq!(back_last, last);
            if let Some(range) = range {
                let lsn = Lsn(self.next_lsn + range.start as u64);
                let bytes = u32::try_from(range.len()).unwrap();
                let place = Body::Log(BodyLocation { lsn, bytes });
                match &back {
                    Fact::Put { message, .. } => assert_eq!(message.body, place),
                    Fact::BodyChunk { chunk, .. } => assert_eq!(*chunk, place),
                    other => panic!("{other:?} has no body"),
                }
            }
            self.next_lsn += bytes.len() as u64;
            self.cold.log.extend_from_slice(&bytes);
            self.log.push(Record { at, bytes, last });
            read.push(back);
        }
        read
    }

    /// All that is logged is durable now, and applied.
    pub(crate) fn sync(&mut self) {
        self.sync_to(self.log.len());
    }

    /// The first `records` records are durable; must end a run.
    pub(crate) fn sync_to(&mut self, records: usize) {
        while self.waiting.front().is_some_and(|waiting| waiting.end <= records) {
            let waiting = self.waiting.pop_front().unwrap();
            self.durable = self.durable.max(waiting.end);
            self.apply(waiting.facts);
        }
        self.take_outputs();
    }

    /// How many runs wait to be durable.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Where they end, in records.
    pub(crate) fn waiting_ends(&self) -> Vec<usize> {
        self.waiting.iter().map(|waiting| waiting.end).collect()
    }

    /// Makes the oldest waiting run durable.
    pub(crate) fn sync_one(&mut self) {
        if let Some(end) = self.waiting.front().map(|waiting| waiting.end) {
            self.sync_to(end);
        }
    }

    fn apply(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            self.core.apply(self.now, fact, &mut self.outputs);
        }
        if !self.keeps_garbage {
            self.core.give_up_all(&mut self.outputs);
            while self.core.complete_some(self.now, &mut self.outputs) > 0 {}
        }
    }

    pub(crate) fn take_outputs(&mut self) {
        for fact in std::mem::take(&mut self.outputs.facts) {
            let facts = self.write(vec![fact]);
            self.waiting.push_back(Waiting { facts, end: self.log.len() });
        }
        for effect in std::mem::take(&mut self.outputs.effects) {
            match effect {
                Effect::Deliver(delivery) => self.deliveries.push(delivery),
                Effect::Stored { location } => {
                    assert!(location.bytes == 0 || self.stored.insert(location), "stored once");
                }
                Effect::Removed { location } => self.unstore(location),
                Effect::RemovedMany { locations } => {
                    for location in locations {
                        self.unstore(location);
                    }
                }
                Effect::RemovedFrom { share } => {
                    let removed = self.removed_from.entry(share.extent).or_default();
                    *removed = (removed.0 + share.bodies, removed.1 + share.bytes);
                }
                Effect::LoadPage { request } => self.loads.push(request),
                other => self.effects.push(other),
            }
        }
        if self.instant && !self.waiting.is_empty() {
            self.sync();
        }
    }

    fn unstore(&mut self, location: BodyLocation) {
        assert!(location.bytes == 0 || self.stored.remove(&location), "what is removed was stored");
    }

    pub(crate) fn define(&mut self, name: &str) {
        self.define_with(name, LocalChanges::default()).unwrap();
    }

    pub(crate) fn define_with(&mut self, name: &str, changes: LocalChanges) -> Result<(), Refusal> {
        let command = DefineLocal { name: name.to_owned(), replace: false, like: None, changes };
        self.core.define_local(self.now, &command, &mut self.decision)?;
        self.carry_out();
        Ok(())
    }

    pub(crate) fn alter(&mut self, name: &str, changes: &LocalChanges) {
        self.core.alter_local(self.now, name, changes, &mut self.decision).unwrap();
        self.carry_out();
    }

    pub(crate) fn open_put(&mut self, name: &str) -> Result<PutTarget, Refusal> {
        let target = self.core.open_put(self.now, CLIENT, name, &mut self.decision)?;
        self.carry_out();
        Ok(target)
    }

    pub(crate) fn send(
        &mut self,
        target: &PutTarget,
        message: NewMessage,
        unit: Option<UnitId>,
    ) -> Result<(), Refusal> {
        let sent = self.core.put(self.now, target, message, unit, &mut self.decision);
        if sent.is_err() {
            assert!(self.decision.facts.is_empty(), "a refusal yields no facts");
        }
        self.carry_out();
        sent
    }

    /// Opens, puts and closes, outside of any unit.
    pub(crate) fn put_with(&mut self, name: &str, message: NewMessage) -> Result<(), Refusal> {
        let target = self.open_put(name)?;
        let sent = self.send(&target, message, None);
        self.core.close_put(&target);
        sent
    }

    /// A non-persistent message.
    pub(crate) fn put(&mut self, name: &str, content: &str) {
        self.put_with(name, message(content)).unwrap();
    }

    pub(crate) fn put_persistent(&mut self, name: &str, content: &str) {
        self.put_with(name, persistent(content)).unwrap();
    }

    pub(crate) fn open_get(&mut self, spec: &ConsumerSpec) -> Result<ConsumerId, Refusal> {
        let (id, _) = self.core.open_get(self.now, CLIENT, spec, &mut self.decision)?;
        self.carry_out();
        Ok(id)
    }

    pub(crate) fn consumer(&mut self, name: &str, credit: u32) -> ConsumerId {
        let id = self.open_get(&spec(name)).unwrap();
        self.core.set_credit(id, credit, false);
        id
    }

    /// Dispatches until there is nothing more to do; yields the deliveries in order.
    pub(crate) fn dispatch(&mut self) -> Vec<Delivery> {
        loop {
            self.serve();
            self.take_outputs();
            if !self.load() {
                return std::mem::take(&mut self.deliveries);
            }
        }
    }

    /// Reads the pages that were asked for. False: there were none.
    pub(crate) fn load(&mut self) -> bool {
        let loads = std::mem::take(&mut self.loads);
        for request in &loads {
            self.arrive(*request);
        }
        !loads.is_empty()
    }

    /// A page that was asked for is read.
    pub(crate) fn arrive(&mut self, request: PageRequest) {
        self.core.page_arrived(request, &self.pages[&request.page.unit]).unwrap();
        self.core.scan_on(self.now, &mut self.outputs);
        self.take_outputs();
    }

    /// As `dispatch`, but pages are read one by one, and after each one all that may leave leaves.
    pub(crate) fn dispatch_in_no_memory(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        loop {
            self.serve();
            self.take_outputs();
            deliveries.append(&mut self.deliveries);
            self.evict();
            if self.loads.is_empty() {
                return deliveries;
            }
            let request = self.loads.remove(0);
            self.arrive(request);
            self.loads_read += 1;
        }
    }

    /// Live bodies by extent: how many, and their bytes.
    pub(crate) fn shares(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut shares: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let extent_bytes = self.core.limits().extent_bytes;
        for location in &self.stored {
            let share = shares.entry(location.lsn.0 / extent_bytes).or_default();
            *share = (share.0 + 1, share.1 + u64::from(location.bytes));
        }
        for (extent, removed) in &self.removed_from {
            let share = shares.get_mut(extent).expect("what is removed was stored");
            *share = (share.0 - removed.0, share.1 - removed.1);
        }
        shares.retain(|_, share| share.0 > 0);
        shares
    }

    /// As `dispatch`: the contents only.
    pub(crate) fn delivered(&mut self) -> Vec<String> {
        let deliveries = self.dispatch();
        deliveries.iter().map(|delivery| self.text(delivery)).collect()
    }

    pub(crate) fn text(&self, delivery: &Delivery) -> String {
        String::from_utf8(self.cold.content(&delivery.body)).unwrap()
    }

    pub(crate) fn settle_in(
        &mut self,
        delivery: &Delivery,
        outcome: Outcome,
        unit: Option<UnitId>,
    ) -> Result<(), Refusal> {
        self.settle_as(delivery, outcome, unit, true)
    }

    /// `settled`: the consumer has forgotten the delivery.
    pub(crate) fn settle_as(
        &mut self,
        delivery: &Delivery,
        outcome: Outcome,
        unit: Option<UnitId>,
        settled: bool,
    ) -> Result<(), Refusal> {
        let (consumer, sequence, reply_wanted) = (delivery.consumer, delivery.sequence, false);
        let settlement = Settlement { consumer, sequence, outcome, unit, settled, reply_wanted };
        let settled = self.core.settle(self.now, settlement, &mut self.decision);
        self.carry_out();
        settled
    }

    pub(crate) fn settle(&mut self, delivery: &Delivery, outcome: Outcome) {
        self.settle_in(delivery, outcome, None).unwrap();
    }

    pub(crate) fn declare(&mut self) -> UnitId {
        self.core.declare(self.now, CLIENT).unwrap()
    }

    pub(crate) fn discharge(&mut self, unit: UnitId, fail: bool) -> Result<(), Refusal> {
        if !fail && self.core.commits_in_parts(CLIENT, unit) {
            return self.commit_in_parts(unit);
        }
        let done = self.core.discharge(self.now, CLIENT, unit, fail, &mut self.decision);
        self.carry_out();
        done
    }

    pub(crate) fn close(&mut self, consumer: ConsumerId, lost: bool) {
        self.core.close_get(self.now, consumer, lost, &mut self.decision);
        self.carry_out();
    }

    pub(crate) fn disconnect(&mut self, connection: ConnectionId, lost: bool) {
        self.core.disconnect(self.now, connection, lost, &mut self.decision);
        self.carry_out();
    }

    pub(crate) fn tick(&mut self) {
        self.core.tick(self.now, &mut self.outputs);
        if self.core.scan_can_go_on() {
            self.slice(2_000);
        }
        self.take_outputs();
    }

    /// The log is nearly full. True: a unit was rolled back for it.
    pub(crate) fn press(&mut self) -> bool {
        let ended = self.core.end_oldest_unit_in_log(self.now, 80, &mut self.outputs);
        self.take_outputs();
        ended
    }

    pub(crate) fn status(&self, name: &str) -> QueueStatus {
        self.core.queue_status(name).unwrap()
    }

    pub(crate) fn depth(&self, name: &str) -> u64 {
        self.status(name).depth
    }

    /// All contents that a new browser sees.
    pub(crate) fn browse(&mut self, name: &str) -> Vec<String> {
        let spec = ConsumerSpec { mode: ConsumerMode::Browse, ..spec(name) };
        let browser = self.open_get(&spec).unwrap();
        self.core.set_credit(browser, u32::MAX, false);
        let seen = self.delivered();
        self.close(browser, false);
        seen
    }

    /// A queue manager made from an image (taken when `image_records` records were durable) and the
    /// whole runs of the first `records` records.
    pub(crate) fn restart(&self, image: Option<(&[u8], usize)>, records: usize) -> Rig {
        let limits = self.core.limits().clone();
        let (core, before) = match image {
            Some((bytes, before)) => {
                let restored = QueueManager::restore(bytes, limits, Pages::Ignored).unwrap();
                assert!(!restored.whole, "its messages come from the log");
                (restored.rules, before)
            }
            None => (QueueManager::new(limits), 0),
        };
        self.replayed(Rig::over(core), records, before, 0)
    }

    /// As `restart`, but with the image's pages: only what came after the image is replayed.
    pub(crate) fn restart_whole(&self, image: &[u8], before: usize, records: usize) -> Rig {
        let limits = self.core.limits().clone();
        let restored = QueueManager::restore(image, limits, Pages::Whole).unwrap();
        assert!(restored.whole, "it has its messages");
        let mut rig = Rig::over(restored.rules);
        let shares: BTreeMap<u64, (u64, u64)> =
            rig.core.shares().fold(BTreeMap::new(), |mut sum, share| {
                let of: &mut (u64, u64) = sum.entry(share.extent).or_default();
                *of = (of.0 + share.bodies, of.1 + share.bytes);
                sum
            });
        for page in rig.core.pages() {
            rig.stored.extend(bodies_of_page(&self.pages[&page.unit]));
        }
        rig.stored.extend(rig.core.bodies_in_progress());
        rig.stored.retain(|location| location.bytes > 0);
        let counted: u64 = rig.stored.iter().map(|location| u64::from(location.bytes)).sum();
        assert_eq!(shares.values().map(|share| share.1).sum::<u64>(), counted, "shares add up");
        self.replayed(rig, records, before, before)
    }

    /// Replays the whole runs of the first `records` records, from record `from` on.
    fn replayed(&self, mut rig: Rig, records: usize, before: usize, from: usize) -> Rig {
        rig.now = self.now;
        rig.pages.clone_from(&self.pages);
        let whole =
            self.log[..records].iter().rposition(|record| record.last).map_or(0, |at| at + 1);
        for (number, record) in self.log[..whole].iter().enumerate().skip(from) {
            let (fact, _) = decode(&record.bytes, record.at).unwrap();
            while let Some(request) = rig.core.page_before(&fact) {
                rig.core.page_arrived(request, &rig.pages[&request.page.unit]).unwrap();
            }
            rig.core.replay(fact, number < before, &mut rig.outputs).unwrap();
            rig.replay_completed(number < before);
        }
        rig.core.replay_end(&mut rig.outputs);
        rig.log = self.log[..whole].to_vec();
        rig.durable = whole;
        rig.next_lsn = rig.log.last().map_or(0, |last| last.at.0 + last.bytes.len() as u64);
        rig.cold.log = self.cold.log[..usize::try_from(rig.next_lsn).unwrap()].to_vec();
        rig.take_outputs();
        rig
    }
}

/// A queue manager as of an image without using its pages.
pub(crate) fn rebuilt(image: &[u8], limits: Limits) -> QueueManager {
    QueueManager::restore(image, limits, Pages::Ignored).unwrap().rules
}

pub(crate) fn message(content: &str) -> NewMessage {
    let content = Payload::from(Bytes::copy_from_slice(content.as_bytes()));
    NewMessage { persistent: Some(false), priority: Some(4), content, ..NewMessage::default() }
}

pub(crate) fn persistent(content: &str) -> NewMessage {
    NewMessage { persistent: Some(true), ..message(content) }
}

pub(crate) fn spec(name: &str) -> ConsumerSpec {
    ConsumerSpec {
        queue: name.to_owned(),
        mode: ConsumerMode::Consume,
        filter: None,
        exclusive: None,
    }
}

/// Only messages with content that starts with this byte.
pub(crate) fn first_byte(byte: u8, key: Option<FilterKey>) -> Option<Arc<Filter>> {
    Some(Arc::new(Filter { key, condition: Arc::new(byte) }))
}
