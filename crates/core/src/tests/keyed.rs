//! Searches for a key while only a part of the queue is indexed: they miss nothing, and no step
//! takes longer for them than its looks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towline_types::Time;
use towline_types::limits::{LOOKS_PER_STEP, LOOKS_PER_TURN};

use super::rig::{Rig, first_byte, message, persistent, spec};
use crate::{ConsumerId, ConsumerMode, ConsumerSpec, Delivery, FilterKey, NewMessage, Outcome};

/// Messages of a block in the tests of this crate.
const BLOCK: usize = 8;
/// Messages that are indexed in the time of one look, at most.
const KEYS_PER_LOOK: usize = 4;

fn hash(letter: u8) -> u64 {
    Random(u64::from(letter)).next()
}

fn of_letter(letter: u8, number: u64, is_persistent: bool) -> NewMessage {
    let text = format!("{}{number}", char::from(letter));
    let base = if is_persistent { persistent(&text) } else { message(&text) };
    NewMessage { correlation_hash: hash(letter), ..base }
}

fn asking(rig: &mut Rig, mode: ConsumerMode, letter: u8, credit: u32) -> ConsumerId {
    let filter = first_byte(letter, Some(FilterKey::Correlation(hash(letter))));
    let id = rig.open_get(&ConsumerSpec { mode, filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, credit, false);
    id
}

fn deep(messages: u64, is_persistent: bool) -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("R");
    let target = rig.open_put("Q").unwrap();
    for number in 0..messages {
        rig.send(&target, of_letter(b'x', number, is_persistent), None).unwrap();
    }
    rig.core.close_put(&target);
    rig.dispatch();
    rig
}

impl Rig {
    fn indexed(&self) -> usize {
        self.core.queue(self.status("Q").queue).indexed_keys()
    }

    /// One step of a client. True: work is left.
    fn step_of_a_client(&mut self) -> bool {
        let more = self.core.dispatch(self.now, &mut self.cold, &mut self.outputs);
        self.take_outputs();
        more
    }
}

#[test]
fn a_queue_is_indexed_in_slices_and_no_step_takes_more_than_its_looks() {
    let mut rig = deep(10_000, false);
    asking(&mut rig, ConsumerMode::Consume, b'y', 1);
    assert_eq!(rig.indexed(), 0, "not when it is opened");
    assert!(rig.step_of_a_client(), "the rest is for slices");
    let first = rig.indexed();
    assert!(first > 0 && first <= LOOKS_PER_STEP as usize * KEYS_PER_LOOK + BLOCK, "{first}");
    rig.consumer("R", 100);
    for _ in 0..100 {
        rig.put("R", "r");
        assert!(rig.step_of_a_client());
        assert_eq!(std::mem::take(&mut rig.deliveries).len(), 1, "at once");
    }
    assert_eq!(rig.indexed(), first, "a put on another queue does none of it");
    let mut slices = 0;
    let mut before = first;
    while rig.slice(LOOKS_PER_TURN) {
        let took = rig.indexed() - before;
        assert!(took <= LOOKS_PER_TURN as usize * KEYS_PER_LOOK + BLOCK, "{took}");
        before = rig.indexed();
        slices += 1;
    }
    assert!(slices >= 10, "{slices}");
    assert_eq!(rig.indexed(), 10_000);
    rig.core.audit();
    let queue = rig.status("Q").queue;
    rig.put_with("Q", of_letter(b'y', 0, false)).unwrap();
    assert_eq!(rig.delivered(), ["y0"]);
    assert_eq!(rig.core.queue(queue).unindexed_blocks(), 0, "a new block is in it");
}

#[test]
fn of_a_kind_of_key_that_is_new_the_index_lacks_every_block_that_is_here() {
    let ask = |rig: &mut Rig, key| {
        let filter = first_byte(b'y', Some(key));
        let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
        rig.core.set_credit(id, 1, false);
        rig.core.audit();
        rig.core.queue(rig.status("Q").queue).unindexed_blocks()
    };
    let mut rig = deep(20 * BLOCK as u64, true);
    assert_eq!(ask(&mut rig, FilterKey::Correlation(1)), 20);
    rig.dispatch();
    while rig.slice(LOOKS_PER_TURN) {}
    assert_eq!(ask(&mut rig, FilterKey::Correlation(2)), 0, "that kind is known");
    assert_eq!(ask(&mut rig, FilterKey::MessageId(1)), 20, "the other one is not");
    let mut rig = deep(20 * BLOCK as u64, true);
    rig.evict();
    assert_eq!(ask(&mut rig, FilterKey::Correlation(1)), 1, "the others are away");
}

#[test]
fn a_search_indexes_no_more_than_lies_before_what_it_finds() {
    let mut rig = deep(10_000, false);
    let spec = NewMessage { priority: Some(9), ..of_letter(b'y', 0, false) };
    rig.put_with("Q", spec).unwrap();
    asking(&mut rig, ConsumerMode::Consume, b'y', 1);
    assert_eq!(rig.delivered(), ["y0"]);
    assert!(rig.indexed() <= BLOCK, "{}", rig.indexed());
}

#[test]
fn what_comes_or_returns_on_either_side_of_a_search_is_found_in_order() {
    let mut rig = deep(0, false);
    rig.put_with("Q", of_letter(b'y', 0, false)).unwrap();
    (0..2_000).for_each(|number| rig.put_with("Q", of_letter(b'x', number, false)).unwrap());
    rig.put_with("Q", of_letter(b'y', 1, false)).unwrap();
    let holder = rig.consumer("Q", 1);
    assert_eq!(rig.delivered(), ["y0"]);
    asking(&mut rig, ConsumerMode::Consume, b'y', 4);
    assert!(rig.step_of_a_client(), "half of it is indexed");
    // One behind the search, one before it, in indexed blocks and in others; one in a new lane.
    rig.close(holder, false);
    let urgent = NewMessage { priority: Some(8), ..of_letter(b'y', 2, false) };
    rig.put_with("Q", urgent).unwrap();
    rig.put_with("Q", of_letter(b'y', 3, false)).unwrap();
    assert_eq!(rig.delivered(), ["y2", "y0", "y1", "y3"]);
    rig.core.audit();
}

#[test]
fn a_browser_with_a_key_sees_what_comes_before_the_place_that_it_has_searched() {
    let mut rig = deep(1_000, false);
    asking(&mut rig, ConsumerMode::Browse, b'y', 10);
    assert_eq!(rig.dispatch().len(), 0);
    let urgent = NewMessage { priority: Some(9), ..of_letter(b'y', 1, false) };
    rig.put_with("Q", urgent).unwrap();
    assert_eq!(rig.delivered(), ["y1"]);
    // It sees each message once, though it comes back.
    let holder = rig.consumer("Q", 1);
    let got = rig.dispatch();
    rig.close(holder, false);
    assert_eq!((got.len(), rig.dispatch().len()), (1, 0));
}

#[test]
fn a_page_that_was_read_for_a_key_and_has_it_not_stays_away() {
    let mut rig = deep(400, true);
    rig.evict();
    let here = rig.core.page_cache.census.here();
    asking(&mut rig, ConsumerMode::Consume, b'y', 1);
    assert_eq!(rig.dispatch().len(), 0);
    assert_eq!(rig.core.page_cache.census.here(), here, "its filter is all that stays");
    asking(&mut rig, ConsumerMode::Consume, b'z', 1);
    rig.serve();
    rig.take_outputs();
    assert!(rig.loads.is_empty(), "filters tell that it is nowhere");
    asking(&mut rig, ConsumerMode::Consume, b'x', 1);
    assert_eq!(rig.delivered(), ["x0"]);
    rig.core.audit();
}

#[test]
fn a_page_that_another_consumer_needs_too_comes_in_either_order() {
    let mut rig = deep(80, true);
    rig.evict();
    asking(&mut rig, ConsumerMode::Consume, b'y', 1);
    rig.serve();
    rig.take_outputs();
    let (asked, here) = (rig.loads.len(), rig.core.page_cache.census.here());
    assert!(asked > 1);
    rig.consumer("Q", 40);
    rig.serve();
    rig.load();
    assert_eq!(rig.core.page_cache.census.here(), here + asked, "none is read twice");
    assert_eq!(rig.delivered().len(), 40);
    rig.core.audit();
}

#[test]
fn a_search_over_many_pages_that_it_need_not_read_is_done_in_slices() {
    let mut rig = deep(10_000, true);
    rig.evict();
    asking(&mut rig, ConsumerMode::Consume, b'y', 1);
    rig.dispatch();
    asking(&mut rig, ConsumerMode::Consume, b'z', 1);
    assert!(rig.step_of_a_client(), "more than a thousand filters are for slices");
    let mut slices = 0;
    while rig.slice(8) {
        slices += 1;
    }
    assert!((1..=20).contains(&slices), "{slices}");
    assert!(rig.loads.is_empty());
}

#[test]
fn the_index_of_a_queue_that_is_cleared_goes_in_slices_and_is_begun_anew() {
    let mut rig = deep(4_000, false);
    let consumer = asking(&mut rig, ConsumerMode::Consume, b'y', 10);
    rig.dispatch();
    rig.close(consumer, false);
    rig.keeps_garbage = true;
    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
    rig.carry_out();
    assert_eq!((rig.depth("Q"), rig.indexed()), (0, 0), "at once");
    let mut slices = 0;
    while rig.slice(500) {
        slices += 1;
    }
    assert!(slices >= 15, "messages and then keys: {slices}");
    rig.put_with("Q", of_letter(b'y', 1, false)).unwrap();
    asking(&mut rig, ConsumerMode::Consume, b'y', 10);
    assert_eq!(rig.delivered(), ["y1"]);
    rig.core.audit();
}

/// Others look meanwhile, and blocks leave as soon as they may.
#[test]
fn a_page_that_is_gone_again_at_the_next_turn_was_indexed_and_looked_at_in_this_one() {
    let mut rig = deep(40, true);
    rig.put_with("Q", of_letter(b'y', 0, true)).unwrap();
    let target = rig.open_put("Q").unwrap();
    (0..40).for_each(|number| rig.send(&target, of_letter(b'x', number, true), None).unwrap());
    rig.evict();
    asking(&mut rig, ConsumerMode::Consume, b'y', 1);
    rig.serve();
    rig.take_outputs();
    let urgent = |number| NewMessage { priority: Some(9), ..of_letter(b'x', number, false) };
    (0..1_000).for_each(|number| rig.send(&target, urgent(number), None).unwrap());
    for _ in 0..3 {
        let spec = ConsumerSpec { filter: first_byte(b'z', None), ..spec("Q") };
        let id = rig.open_get(&spec).unwrap();
        rig.core.set_credit(id, 1, false);
    }
    for _ in 0..100 {
        rig.load();
        assert!(rig.slice(1), "the others still look");
        rig.take_outputs();
        rig.evict();
    }
    let got = std::mem::take(&mut rig.deliveries);
    assert_eq!(got.iter().map(|got| rig.text(got)).collect::<Vec<_>>(), ["y0"]);
    rig.core.audit();
}

#[test]
fn however_many_messages_of_a_key_come_each_that_waits_for_it_is_woken_once_and_misses_none() {
    const CONSUMERS: u64 = 100;
    let mut rig = deep(0, false);
    for _ in 0..CONSUMERS {
        asking(&mut rig, ConsumerMode::Consume, b'y', 2);
    }
    let put = |rig: &mut Rig, numbers: std::ops::Range<u64>, priority| {
        for number in numbers {
            let sent = NewMessage { priority, ..of_letter(b'y', number, false) };
            rig.put_with("Q", sent).unwrap();
        }
    };
    put(&mut rig, 0..CONSUMERS, Some(0));
    assert_eq!(rig.dispatch().len() as u64, CONSUMERS);
    put(&mut rig, 1_000..2_000, Some(4));
    let noted = rig.core.queue(rig.status("Q").queue).waiting.len();
    assert!(noted as u64 <= CONSUMERS, "{noted}");
    let wanted = (1_000..1_000 + CONSUMERS).map(|number| format!("y{number}"));
    assert_eq!(rig.delivered(), wanted.collect::<Vec<_>>());
    rig.core.audit();
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let once = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let twice = (once ^ once >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        twice ^ twice >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn letter(&mut self) -> u8 {
        *b"abcd".get(usize::try_from(self.below(4)).unwrap()).unwrap()
    }
}

/// In order of delivery: 9 - priority, and the number of the put.
type Row = (u8, u64);

/// A queue, what the model knows of it, and consumers by key.
struct World {
    rig: Rig,
    random: Random,
    next: u64,
    rows: BTreeMap<u64, (Row, u8, Time)>,
    available: BTreeSet<Row>,
    held: Vec<Delivery>,
    /// Letter, and credit that is left.
    consumers: BTreeMap<ConsumerId, (u8, u32)>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rig: deep(0, false),
            random: Random(seed),
            next: 0,
            rows: BTreeMap::new(),
            available: BTreeSet::new(),
            held: Vec::new(),
            consumers: BTreeMap::new(),
        }
    }

    fn number_of(&self, delivery: &Delivery) -> u64 {
        self.rig.text(delivery)[1..].parse().unwrap()
    }

    fn put(&mut self) {
        let letter = self.random.letter();
        let priority = u8::try_from(self.random.below(10)).unwrap();
        let expires = (self.random.below(8) == 0).then(|| self.rig.now + Duration::from_millis(50));
        let is_persistent = self.random.below(10) > 0;
        self.next += 1;
        let sent = NewMessage {
            priority: Some(priority),
            expires_at: expires,
            ..of_letter(letter, self.next, is_persistent)
        };
        self.rig.put_with("Q", sent).unwrap();
        let row = (9 - priority, self.next);
        self.rows.insert(self.next, (row, letter, expires.unwrap_or(Time::NEVER)));
        self.available.insert(row);
    }

    /// Notes what was delivered: it is of the right key, and was there.
    fn note(&mut self) {
        self.rig.take_outputs();
        for delivery in std::mem::take(&mut self.rig.deliveries) {
            let number = self.number_of(&delivery);
            let (row, letter, _) = self.rows[&number];
            let (asked, credit) = self.consumers.get_mut(&delivery.consumer).unwrap();
            assert_eq!(*asked, letter, "of another key");
            *credit -= 1;
            assert!(self.available.remove(&row), "{number} was not there");
            self.held.push(delivery);
        }
    }

    fn comes_back(&mut self, delivery: &Delivery) {
        let (row, _, expires) = self.rows[&self.number_of(delivery)];
        if expires > self.rig.now {
            self.available.insert(row);
        }
    }

    fn settle_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.below(self.held.len() as u64)).unwrap();
        let delivery = self.held.swap_remove(at);
        let back = self.random.below(3) > 0;
        self.rig.settle(&delivery, if back { Outcome::Released } else { Outcome::Accepted });
        if back {
            self.comes_back(&delivery);
        }
    }

    fn open(&mut self, credit: u32) -> ConsumerId {
        let letter = self.random.letter();
        let id = asking(&mut self.rig, ConsumerMode::Consume, letter, credit);
        self.consumers.insert(id, (letter, credit));
        id
    }

    fn close_one(&mut self) {
        let Some(id) = self.consumers.keys().next().copied() else { return };
        self.note();
        self.consumers.remove(&id);
        self.rig.close(id, false);
        let (back, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.consumer == id);
        self.held = held;
        back.iter().for_each(|delivery| self.comes_back(delivery));
    }

    fn later(&mut self) {
        self.rig.now = self.rig.now + Duration::from_millis(60);
        let (rows, now) = (&self.rows, self.rig.now);
        self.available.retain(|row| rows[&row.1].2 > now);
    }

    fn turn(&mut self) {
        match self.random.below(20) {
            0..6 => (0..self.random.below(12)).for_each(|_| self.put()),
            6 | 7 => {
                let credit = u32::try_from(self.random.below(4)).unwrap();
                self.open(credit);
            }
            8..13 => {
                let units = 1 + u32::try_from(self.random.below(12)).unwrap();
                self.rig.slice(units);
            }
            13..16 => self.settle_one(),
            16 => self.close_one(),
            17 => self.rig.evict(),
            18 if !self.rig.loads.is_empty() => {
                let request = self.rig.loads.remove(0);
                self.rig.arrive(request);
            }
            18 => {
                self.rig.step_of_a_client();
            }
            _ => self.later(),
        }
        self.note();
        self.rig.core.audit();
    }

    /// Everything that can be done is: no consumer waits beside a message of its key, and one that
    /// asks now gets the first.
    fn check(&mut self) {
        while {
            self.rig.serve();
            self.note();
            self.rig.load()
        } {}
        for (letter, credit) in self.consumers.values() {
            let waits_beside = self.available.iter().find(|row| self.rows[&row.1].1 == *letter);
            assert!(*credit == 0 || waits_beside.is_none(), "missed {waits_beside:?}");
        }
        let id = self.open(1);
        let letter = self.consumers[&id].0;
        let first = self.available.iter().find(|row| self.rows[&row.1].1 == letter).copied();
        while {
            while self.rig.slice(2) {}
            self.rig.take_outputs();
            self.rig.load()
        } {}
        let got: Vec<Row> = self
            .rig
            .deliveries
            .iter()
            .map(|delivery| self.rows[&self.number_of(delivery)].0)
            .collect();
        assert_eq!(got, first.into_iter().collect::<Vec<_>>(), "the first of its key");
        self.note();
    }
}

#[test]
fn no_history_hides_a_message_from_those_that_ask_for_its_key() {
    let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(1..=12, |seed: u64| seed..=seed);
    for seed in seeds {
        println!("seed {seed} (TOWLINE_SEED)");
        let mut world = World::new(seed);
        for _ in 0..8 {
            (0..40).for_each(|_| world.turn());
            world.check();
        }
        assert!(world.next > 300, "{}", world.next);
    }
}
