//! Random histories against a naive model: puts, units, commits in parts, deliveries, settlements,
//! lost connections, messages carried forward, a log that becomes durable bit by bit, crashes and
//! restarts from images.
//!
//! The model is a flat table of messages. It knows the rules and nothing of how they are kept.
//! After each step counts agree and the audit passes; each delivery is the first that may be
//! delivered; after a crash exactly what was durable is there, in order, with its backout count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::rig::{CLIENT, Rig, message, persistent, spec};
use crate::command::LocalChanges;
use crate::{ConsumerId, Delivery, Limits, NewMessage, Outcome, PutTarget, UnitId};

mod crashes;
mod deletions;
mod levels;
mod relocations;

const QUEUES: [&str; 3] = ["Q", "POISON", "DLQ"];
const DEAD: usize = 2;
/// BOTHRESH of POISON.
const THRESHOLD: u32 = 2;
/// From here on: numbers of queues that are to be deleted, one for each deletion.
const FIRST_GONE: usize = 100;

fn threshold(queue: usize) -> LocalChanges {
    let backout_threshold = (QUEUES[queue] == "POISON").then_some(THRESHOLD);
    LocalChanges { backout_threshold, ..LocalChanges::default() }
}

#[derive(Clone, Debug)]
enum Step {
    Put { queue: usize, persistent: bool, priority: u8, in_unit: bool },
    Open { queue: usize, credit: u32 },
    Credit { consumer: usize, credit: u32 },
    Close { consumer: usize, lost: bool },
    Dispatch,
    Settle { delivery: usize, outcome: Outcome, in_unit: bool, settled: bool },
    Declare,
    Discharge { unit: usize, fail: bool },
    SyncOne,
    Sync,
    Image,
    Evict,
    Disconnect { lost: bool },
    Crash { keep: usize },
    Delete { queue: usize },
    Clear { queue: usize },
    Press,
    Relocate { nth: usize },
    RaiseLevel,
    Mix { queue: usize, persistent: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        5 => Just(Outcome::Accepted),
        1 => Just(Outcome::Released),
        1 => Just(Outcome::Rejected),
        2 => Just(Outcome::Modified { failed: true, undeliverable_here: false }),
        1 => Just(Outcome::Modified { failed: false, undeliverable_here: true }),
    ];
    let any_of = 0..64_usize;
    prop_oneof![
        10 => (0..3_usize, any::<(bool, bool)>(), prop_oneof![Just(4_u8), 0..10_u8]).prop_map(
            |(queue, (persistent, in_unit), priority)| {
                Step::Put { queue, persistent, priority, in_unit }
            }
        ),
        2 => (0..3_usize, 0..8_u32).prop_map(|(queue, credit)| Step::Open { queue, credit }),
        3 => (any_of.clone(), 0..8_u32)
            .prop_map(|(consumer, credit)| Step::Credit { consumer, credit }),
        1 => (any_of.clone(), any::<bool>())
            .prop_map(|(consumer, lost)| Step::Close { consumer, lost }),
        5 => Just(Step::Dispatch),
        8 => (any_of.clone(), outcome, any::<bool>(), any::<bool>()).prop_map(
            |(delivery, outcome, in_unit, settled)| {
                Step::Settle { delivery, outcome, in_unit, settled }
            }
        ),
        2 => Just(Step::Declare),
        3 => (any_of, prop::bool::weighted(0.3))
            .prop_map(|(unit, fail)| Step::Discharge { unit, fail }),
        4 => Just(Step::SyncOne),
        2 => Just(Step::Sync),
        1 => Just(Step::Image),
        2 => Just(Step::Evict),
        1 => any::<bool>().prop_map(|lost| Step::Disconnect { lost }),
        1 => (0..100_usize).prop_map(|keep| Step::Crash { keep }),
        2 => (0..3_usize).prop_map(|queue| Step::Delete { queue }),
        1 => (0..3_usize).prop_map(|queue| Step::Clear { queue }),
        1 => Just(Step::Press),
        4 => (0..64_usize).prop_map(|nth| Step::Relocate { nth }),
        1 => Just(Step::RaiseLevel),
        2 => (0..3_usize, any::<u16>())
            .prop_map(|(queue, persistent)| Step::Mix { queue, persistent }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    OnItsWay,
    Visible,
    Held,
    Leaving,
}

#[derive(Clone, Debug)]
struct Row {
    queue: usize,
    persistent: bool,
    priority: u8,
    /// Grows with every decision to put or move.
    order: u64,
    at: At,
    count: u32,
    durable_count: u32,
}

/// What becomes true of a message when a run is durable.
#[derive(Clone, Debug)]
enum Later {
    Appears(u32),
    Vanishes(u32),
    Counts(u32, u32),
    Moves(u32, u64),
    Deleted { queue: usize, gone: usize },
    Cleared { queue: usize },
}

#[derive(Debug, Default)]
struct Unit {
    puts: Vec<(u32, Row)>,
    gets: Vec<Get>,
}

/// A settlement in a unit.
#[derive(Debug)]
struct Get {
    delivery: Delivery,
    id: u32,
    outcome: Outcome,
    settled: bool,
}

struct World {
    rig: Rig,
    targets: Vec<PutTarget>,
    consumers: Vec<ConsumerId>,
    credit: BTreeMap<ConsumerId, (usize, u32)>,
    unsettled: Vec<(Delivery, u32)>,
    /// Of these: got in a unit that was rolled back, so that a backout is due.
    failed: BTreeSet<u32>,
    /// What each consumer does not get again.
    refused: BTreeMap<ConsumerId, BTreeSet<u32>>,
    units: Vec<(UnitId, Unit)>,
    rows: BTreeMap<u32, Row>,
    /// With the number of records that must be durable.
    later: VecDeque<(usize, Vec<Later>)>,
    /// The image, the records durable then, and the counts that its pages may have ahead of the
    /// log.
    image: Option<(Vec<u8>, usize, BTreeMap<u32, u32>)>,
    next_content: u32,
    next_order: u64,
    deletions: usize,
    /// Clears on their way: nothing of such a queue is delivered.
    clearing: [usize; 3],
}

fn number_of(rig: &Rig, delivery: &Delivery) -> u32 {
    rig.text(delivery).parse().unwrap()
}

impl World {
    fn new() -> World {
        let limits = Limits {
            dead_letter_queue: "DLQ".to_owned(),
            // Each message has one byte to three.
            unit_staged_bytes_max: 2,
            committed_at_once_max: 2,
            ..Limits::default()
        };
        let mut rig = Rig::with(limits);
        for (queue, name) in QUEUES.iter().enumerate() {
            rig.define_with(name, threshold(queue)).unwrap();
        }
        rig.instant = false;
        let targets = QUEUES.iter().map(|name| rig.open_put(name).unwrap()).collect();
        World {
            rig,
            targets,
            consumers: Vec::new(),
            credit: BTreeMap::new(),
            unsettled: Vec::new(),
            failed: BTreeSet::new(),
            refused: BTreeMap::new(),
            units: Vec::new(),
            rows: BTreeMap::new(),
            later: VecDeque::new(),
            image: None,
            next_content: 0,
            next_order: 0,
            deletions: 0,
            clearing: [0; 3],
        }
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// As `record`, of a commit that may be in parts: nothing happens before its last run.
    fn record_commit(&mut self, waiting_before: usize, effects: Vec<Later>) {
        let ends = self.rig.waiting_ends().split_off(waiting_before);
        let Some((last, parts)) = ends.split_last() else { return self.happen(effects) };
        self.later.extend(parts.iter().map(|end| (*end, Vec::new())));
        self.later.push_back((*last, effects));
    }

    /// The effects of a call: now, or when the run that it made is durable.
    fn record(&mut self, waiting_before: usize, effects: Vec<Later>) {
        let new_runs = self.rig.waiting() - waiting_before;
        assert!(new_runs <= 1, "one call makes one run");
        if new_runs == 1 {
            self.later.push_back((self.rig.log.len(), effects));
        } else {
            self.happen(effects);
        }
    }

    fn happen(&mut self, effects: Vec<Later>) {
        for effect in effects {
            match effect {
                Later::Appears(id) => {
                    self.rows.get_mut(&id).unwrap().at = At::Visible;
                    let new = &self.rows[&id];
                    let overtaken = self.rows.values().any(|row| {
                        row.at == At::OnItsWay
                            && (row.queue, row.priority) == (new.queue, new.priority)
                            && row.order < new.order
                    });
                    assert!(!overtaken, "a message overtook an older one of its priority");
                }
                Later::Vanishes(id) => {
                    self.rows.remove(&id).unwrap();
                }
                Later::Cleared { queue } => {
                    if let Some(clears) = self.clearing.get_mut(queue) {
                        *clears -= 1;
                    }
                }
                Later::Counts(id, count) => {
                    self.rows.get_mut(&id).unwrap().durable_count = count;
                }
                Later::Moves(id, order) => {
                    let row = self.rows.get_mut(&id).unwrap();
                    (row.queue, row.order, row.at) = (DEAD, order, At::Visible);
                }
                Later::Deleted { queue: _, gone } => self.rows.retain(|_, row| row.queue != gone),
            }
        }
    }

    fn back_out(&mut self, id: u32, effects: &mut Vec<Later>) {
        self.failed.remove(&id);
        let row = self.rows.get_mut(&id).unwrap();
        row.count += 1;
        row.at = At::Visible;
        let (count, poison) = (row.count, row.queue == 1 && row.count >= THRESHOLD);
        if row.persistent {
            effects.push(Later::Counts(id, count));
        }
        if poison {
            self.dead_letter(id, effects);
        }
    }

    fn dead_letter(&mut self, id: u32, effects: &mut Vec<Later>) {
        let order = self.order();
        let row = self.rows.get_mut(&id).unwrap();
        row.at = At::Leaving;
        if row.persistent {
            effects.push(Later::Moves(id, order));
        } else {
            self.happen(vec![Later::Moves(id, order)]);
        }
    }

    fn conclude(&mut self, get: &Get, effects: &mut Vec<Later>) {
        let id = get.id;
        let was_failed = self.failed.remove(&id);
        let row = self.rows.get_mut(&id).unwrap();
        let (counts, not_here) = match get.outcome {
            Outcome::Accepted => {
                row.at = At::Leaving;
                effects.push(Later::Vanishes(id));
                return;
            }
            Outcome::Rejected if row.queue != DEAD => return self.dead_letter(id, effects),
            Outcome::Rejected => (true, true),
            Outcome::Released => (false, false),
            Outcome::Modified { failed, undeliverable_here } => (failed, undeliverable_here),
        };
        if not_here {
            self.refused.entry(get.delivery.consumer).or_default().insert(id);
        }
        if counts || was_failed {
            self.back_out(id, effects);
        } else {
            row.at = At::Visible;
        }
    }

    fn run(&mut self, step: Step) {
        let waiting = self.rig.waiting();
        match step {
            Step::Put { queue, persistent, priority, in_unit } => {
                self.put(queue, persistent, priority, in_unit);
            }
            Step::Open { queue, credit } => {
                let id = self.rig.open_get(&spec(QUEUES[queue])).unwrap();
                self.consumers.push(id);
                self.rig.core.set_credit(id, credit, false);
                self.credit.insert(id, (queue, credit));
            }
            Step::Credit { consumer, credit } => {
                if let Some(id) = pick(&self.consumers, consumer) {
                    self.rig.core.set_credit(id, credit, false);
                    self.credit.get_mut(&id).unwrap().1 = credit;
                }
            }
            Step::Close { consumer, lost } => {
                if let Some(id) = pick(&self.consumers, consumer) {
                    self.rig.close(id, lost);
                    let mut effects = Vec::new();
                    self.end_consumer(id, lost, &mut effects);
                    self.record(waiting, effects);
                }
            }
            Step::Dispatch => self.dispatch(),
            Step::Settle { delivery, outcome, in_unit, settled } => {
                self.settle(delivery, outcome, in_unit, settled);
            }
            Step::Declare => self.units.push((self.rig.declare(), Unit::default())),
            Step::Discharge { unit, fail } => self.discharge(unit, fail),
            Step::SyncOne => {
                self.rig.sync_one();
                self.durable();
            }
            Step::Sync => {
                self.rig.sync();
                self.durable();
            }
            Step::Image if self.rig.core.has_parts() => {}
            Step::Image => {
                let counts = self.rows.iter().map(|(id, row)| (*id, row.count)).collect();
                self.image = Some((self.rig.image(), self.rig.durable, counts));
            }
            Step::Evict => self.rig.evict(),
            Step::Disconnect { lost } => self.disconnect(lost),
            Step::Crash { keep } => self.crash(keep),
            Step::Delete { queue } => self.delete(queue),
            Step::Clear { queue } => self.clear(queue),
            Step::Press => self.press(),
            Step::Relocate { nth } => self.relocate(nth),
            Step::RaiseLevel => self.raise_level(),
            Step::Mix { queue, persistent } => self.mix(queue, persistent),
        }
        self.check();
    }

    fn put(&mut self, queue: usize, is_persistent: bool, priority: u8, in_unit: bool) {
        let waiting = self.rig.waiting();
        let id = self.next_content;
        self.next_content += 1;
        let text = id.to_string();
        let base = if is_persistent { persistent(&text) } else { message(&text) };
        let sent = NewMessage { priority: Some(priority), ..levels::in_group(id, base) };
        let unit = self.units.len().checked_sub(1).filter(|_| in_unit);
        let unit_id = unit.map(|unit| self.units[unit].0);
        let target = self.targets[queue].clone();
        self.rig.send(&target, sent, unit_id).unwrap();
        let row = Row {
            queue,
            persistent: is_persistent,
            priority,
            order: 0,
            at: At::OnItsWay,
            count: 0,
            durable_count: 0,
        };
        match unit {
            Some(unit) => {
                self.units[unit].1.puts.push((id, row));
                self.record(waiting, Vec::new());
            }
            None => {
                let order = self.order();
                self.rows.insert(id, Row { order, ..row });
                self.record(waiting, vec![Later::Appears(id)]);
            }
        }
    }

    fn settle(&mut self, delivery: usize, outcome: Outcome, in_unit: bool, settled: bool) {
        if self.unsettled.is_empty() {
            return;
        }
        let waiting = self.rig.waiting();
        let (delivery, id) = self.unsettled.remove(delivery % self.unsettled.len());
        let unit = self.units.len().checked_sub(1).filter(|_| in_unit);
        let unit_id = unit.map(|unit| self.units[unit].0);
        self.rig.settle_as(&delivery, outcome, unit_id, settled).unwrap();
        let get = Get { delivery, id, outcome, settled };
        if let Some(unit) = unit {
            self.units[unit].1.gets.push(get);
            return;
        }
        let mut effects = Vec::new();
        self.conclude(&get, &mut effects);
        self.record(waiting, effects);
    }

    fn discharge(&mut self, unit: usize, fail: bool) {
        if self.units.is_empty() {
            return;
        }
        let waiting = self.rig.waiting();
        let (unit_id, unit) = self.units.remove(unit % self.units.len());
        self.rig.discharge(unit_id, fail).unwrap();
        let mut effects = Vec::new();
        if fail {
            self.roll_back(unit, &mut effects);
        } else {
            for (id, row) in unit.puts {
                let order = self.order();
                self.rows.insert(id, Row { order, ..row });
                effects.push(Later::Appears(id));
            }
            for get in &unit.gets {
                self.failed.remove(&get.id);
                self.conclude(get, &mut effects);
            }
            return self.record_commit(waiting, effects);
        }
        self.record(waiting, effects);
    }

    fn roll_back(&mut self, unit: Unit, effects: &mut Vec<Later>) {
        for Get { delivery, id, settled, outcome: _ } in unit.gets {
            if settled || !self.consumers.contains(&delivery.consumer) {
                self.back_out(id, effects);
            } else {
                self.failed.insert(id);
                self.unsettled.push((delivery, id));
            }
        }
    }

    fn end_consumer(&mut self, consumer: ConsumerId, lost: bool, effects: &mut Vec<Later>) {
        self.consumers.retain(|other| *other != consumer);
        self.credit.remove(&consumer);
        let mut held: Vec<(u64, u32)> = Vec::new();
        self.unsettled.retain(|(delivery, id)| {
            if delivery.consumer == consumer {
                held.push((delivery.sequence.0, *id));
            }
            delivery.consumer != consumer
        });
        held.sort_unstable();
        for (_, id) in held {
            if lost || self.failed.contains(&id) {
                self.back_out(id, effects);
            } else {
                self.rows.get_mut(&id).unwrap().at = At::Visible;
            }
        }
    }

    fn disconnect(&mut self, lost: bool) {
        let waiting = self.rig.waiting();
        self.rig.disconnect(CLIENT, lost);
        let mut effects = Vec::new();
        for (_, unit) in std::mem::take(&mut self.units) {
            self.roll_back(unit, &mut effects);
        }
        for consumer in self.consumers.clone() {
            self.end_consumer(consumer, lost, &mut effects);
        }
        self.record(waiting, effects);
        self.targets = QUEUES.iter().map(|name| self.rig.open_put(name).unwrap()).collect();
    }

    /// The messages that may be delivered from a queue, first one first.
    fn visible(&self, queue: usize) -> Vec<u32> {
        if self.clearing.get(queue).is_some_and(|clears| *clears > 0) {
            return Vec::new();
        }
        let mut ids: Vec<u32> = self
            .rows
            .iter()
            .filter(|(_, row)| row.queue == queue && row.at == At::Visible)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_by_key(|id| (9 - self.rows[id].priority, self.rows[id].order));
        ids
    }

    fn dispatch(&mut self) {
        let runs = self.rig.log.len();
        for delivery in self.rig.dispatch() {
            let id = number_of(&self.rig, &delivery);
            let (queue, credit) = self.credit.get_mut(&delivery.consumer).unwrap();
            assert!(*credit > 0, "a delivery needs credit");
            *credit -= 1;
            let queue = *queue;
            let first = self.first_for(delivery.consumer, queue);
            assert_eq!(first, Some(id), "the first one that may be delivered is");
            let row = self.rows.get_mut(&id).unwrap();
            let seen = (delivery.persistent, delivery.priority, delivery.backout_count);
            assert_eq!(seen, (row.persistent, row.priority, row.count));
            row.at = At::Held;
            self.unsettled.push((delivery, id));
        }
        assert_eq!(runs, self.rig.log.len(), "a delivery is not logged");
        for (consumer, (queue, credit)) in &self.credit {
            let first = self.first_for(*consumer, *queue);
            assert!(*credit == 0 || first.is_none(), "no consumer waits in vain");
        }
    }

    /// The first message that this consumer may be given.
    fn first_for(&self, consumer: ConsumerId, queue: usize) -> Option<u32> {
        let refused = self.refused.get(&consumer);
        let refuses = |id: &u32| refused.is_some_and(|refused| refused.contains(id));
        self.visible(queue).into_iter().find(|id| !refuses(id))
    }

    fn durable(&mut self) {
        while self.later.front().is_some_and(|(end, _)| *end <= self.rig.durable) {
            if self.later.len() == self.rig.waiting() {
                break;
            }
            let (_, effects) = self.later.pop_front().unwrap();
            self.happen(effects);
        }
        assert_eq!(self.later.len(), self.rig.waiting());
    }

    fn check(&mut self) {
        self.rig.core.audit();
        if self.later.is_empty() {
            let known = self.rig.core.bodies_in_progress().count() as u64;
            assert_eq!(known, self.rig.core.bodies_of_units(), "no body is kept without its unit");
        }
        for (queue, name) in QUEUES.iter().enumerate() {
            let status = self.rig.status(name);
            let here = self.rows.values().filter(|row| row.queue == queue);
            let on_its_way = here.clone().filter(|row| row.at == At::OnItsWay).count() as u64;
            let staged = self.units.iter().flat_map(|(_, unit)| &unit.puts);
            let staged = staged.filter(|(_, row)| row.queue == queue).count() as u64;
            let moving = self.later.iter().flat_map(|(_, effects)| effects);
            let moving = moving.filter(|later| matches!(later, Later::Moves(..))).count() as u64;
            let arriving = if queue == DEAD { moving } else { 0 };
            assert_eq!(status.available, self.visible(queue).len() as u64, "{name}: available");
            assert_eq!(status.in_flight, on_its_way + arriving, "{name}: in flight");
            assert_eq!(status.depth, here.count() as u64 + staged + arriving, "{name}: depth");
        }
    }
}

fn pick(consumers: &[ConsumerId], at: usize) -> Option<ConsumerId> {
    if consumers.is_empty() { None } else { consumers.get(at % consumers.len()).copied() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_history_is_what_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        world.run(Step::Dispatch);
        world.run(Step::Disconnect { lost: true });
        world.run(Step::Sync);
        for (queue, name) in QUEUES.iter().enumerate() {
            let wanted: Vec<String> = world.visible(queue).iter().map(u32::to_string).collect();
            assert_eq!(world.rig.browse(name), wanted, "no message lost or invented");
        }
        world.run(Step::Crash { keep: 99 });
    }
}
