//! The standing of two logs against a naive model, which has the bytes of both.
//!
//! The model: two regions, each with a log of batches. A batch is a number that no other batch has,
//! and the history in which it was decided. Regions ship, switch in order, fail over, go on after
//! they were left behind, come back and cut their tails, or begin anew, as the dice fall. After
//! each step both are compared: by their chains, and batch by batch.

use super::*;
use crate::limits::HISTORIES_MAX;
use crate::{History, HistoryId, RegionRole, SeededRandom, Time};

const NAMES: [&str; 2] = ["EAST", "WEST"];

#[derive(Clone, Debug, PartialEq)]
struct Batch {
    number: u64,
    bytes: u64,
    /// It holds the record of this history.
    begins: Option<History>,
}

#[derive(Clone, Debug, Default)]
struct Region {
    log: Vec<Batch>,
    /// What was said when it began to follow; `None`: it goes by its own log.
    follows: Option<Histories>,
    /// It was promoted, and has not written the record yet.
    marked: Option<History>,
}

impl Region {
    fn end(&self) -> Lsn {
        Lsn(self.log.iter().map(|batch| batch.bytes).sum())
    }

    /// Of the records in its log.
    fn applied(&self) -> Histories {
        let mut histories = Histories::default();
        for history in self.log.iter().filter_map(|batch| batch.begins.clone()) {
            histories.push(history).unwrap();
        }
        histories
    }

    /// What it says in a hello.
    fn said(&self) -> Histories {
        let mut said = match &self.follows {
            Some(follows) => follows.up_to(self.end()),
            None => self.applied(),
        };
        if let Some(marked) = &self.marked {
            said.push(marked.clone()).unwrap();
        }
        said
    }

    /// Also an old live one that decided to be none: its switch is in doubt while the other one
    /// lacks the record.
    fn goes_by_its_own_log(&self) -> bool {
        self.follows.is_none() && self.marked.is_none()
    }

    fn is_live(&self, name: &str) -> bool {
        self.goes_by_its_own_log() && self.applied().role_of(name) == RegionRole::Live
    }
}

struct Model {
    dice: SeededRandom,
    next: u64,
    regions: [Region; 2],
}

impl Model {
    fn new(seed: u64) -> Model {
        let regions = [Region::default(), Region::default()];
        let mut model = Model { dice: SeededRandom::new(seed), next: 0, regions };
        // A log that is older than its first history.
        let before = model.dice.below(3);
        (0..before).for_each(|_| model.write(0, None));
        model.begin(0, 0, "first meeting");
        model
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn write(&mut self, at: usize, begins: Option<History>) {
        let (number, bytes) = (self.number(), 1 + self.dice.below(9));
        self.regions[at].log.push(Batch { number, bytes, begins });
    }

    /// A history that goes on where the log of `at` ends.
    fn next_history(&mut self, at: usize, live: usize, cause: &str) -> History {
        let mut id = [0; 16];
        self.dice.fill(&mut id);
        let region = &self.regions[at];
        let parent = region.applied().newest().map(|newest| newest.id);
        let fork = if parent.is_some() { region.end() } else { Lsn::ZERO };
        let (live, cause) = (NAMES[live].to_owned(), cause.to_owned());
        History { id: HistoryId(id), parent, fork, live, began: Time(self.next), cause }
    }

    fn begin(&mut self, at: usize, live: usize, cause: &str) {
        let history = self.next_history(at, live, cause);
        self.write(at, Some(history));
    }

    /// How `at` stands to the other one, if it were to ship.
    fn standing(&self, at: usize) -> Standing {
        let said = [0, 1].map(|region| self.regions[region].said());
        let log =
            |region: usize| RegionLog { histories: &said[region], end: self.regions[region].end() };
        Standing::of(log(at), log(1 - at))
    }

    /// Ships some batches, or all, when both may.
    fn ship(&mut self, from: usize, all: bool) {
        if !matches!(self.standing(from), Standing::Empty | Standing::Continues) {
            return;
        }
        let (sent, had) = (self.regions[from].log.clone(), self.regions[1 - from].log.len());
        let most = sent.len() - had;
        let count = if all { most } else { self.dice.index(most + 1) };
        let said = self.regions[from].said();
        let receiving = &mut self.regions[1 - from];
        receiving.log.extend_from_slice(&sent[had..had + count]);
        receiving.follows = (!receiving.log.is_empty()).then_some(said);
        // All that was said has come, and its newest history is its own: it was a switch in order.
        // Its own name in its log alone does not say so: an old live one that came back has it too.
        let applied = receiving.applied();
        let is_switched = receiving.follows.as_ref().is_some_and(|said| *said == applied);
        if is_switched && applied.role_of(NAMES[1 - from]) == RegionRole::Live {
            receiving.follows = None;
        }
    }

    fn fail_over(&mut self, at: usize) {
        if self.regions[at].follows.is_none() || self.regions[at].applied().is_empty() {
            return;
        }
        let history = self.next_history(at, at, "fail-over");
        self.regions[at].follows = None;
        self.regions[at].marked = Some(history);
    }

    /// A promoted region writes: its first batch has no record, and the second one begins.
    fn take_up(&mut self, at: usize) {
        if let Some(history) = self.regions[at].marked.take() {
            if self.dice.chance(700) {
                self.write(at, None);
            }
            self.write(at, Some(history));
        }
    }

    /// What is behind the fork is given up, and the other one is followed.
    fn come_back(&mut self, at: usize) {
        let fork = match self.standing(1 - at) {
            Standing::ReceivingHasTail { fork } | Standing::Diverged { fork } => fork,
            Standing::ShippingIsOld { .. }
            | Standing::Unrelated
            | Standing::Empty
            | Standing::Continues
            | Standing::ReceivingIsAhead => return,
        };
        let mut end = 0;
        self.regions[at].log.retain(|batch| {
            end += batch.bytes;
            end <= fork.0
        });
        let said = self.regions[1 - at].said();
        let region = &mut self.regions[at];
        (region.marked, region.follows) = (None, (!region.log.is_empty()).then_some(said));
    }

    fn step(&mut self) {
        let at = self.dice.index(2);
        match self.dice.below(12) {
            0..=2 if self.regions[at].is_live(NAMES[at]) => self.write(at, None),
            3..=5 if self.regions[at].goes_by_its_own_log() => self.ship(at, false),
            6 if self.regions[at].is_live(NAMES[at]) => {
                self.ship(at, true);
                if self.standing(at) == Standing::Continues
                    && self.regions[at].end() == self.regions[1 - at].end()
                {
                    self.begin(at, 1 - at, "switch");
                    // The link may be cut now: the switch is in doubt.
                    self.ship(at, false);
                }
            }
            7 => self.fail_over(at),
            8 | 9 => self.take_up(at),
            10 => self.come_back(at),
            11 if self.dice.chance(20) => self.regions[at] = Region::default(),
            _ => {}
        }
    }

    /// What the bytes say, for `at` as the one that ships.
    fn check(&self, at: usize) {
        let (shipping, receiving) = (&self.regions[at], &self.regions[1 - at]);
        let same = shipping.log.iter().zip(&receiving.log).take_while(|(one, other)| one == other);
        let same = Lsn(same.map(|(one, _)| one.bytes).sum());
        let (shipping_is_whole, receiving_is_whole) =
            (same == shipping.end(), same == receiving.end());
        let standing = self.standing(at);
        let why = format!("{standing:?}, the same up to {same}:\n{shipping:?}\n{receiving:?}");
        match standing {
            Standing::Empty => assert_eq!(receiving.end(), Lsn::ZERO, "{why}"),
            Standing::Continues => assert!(receiving_is_whole, "{why}"),
            Standing::ReceivingIsAhead => {
                assert!(shipping_is_whole && !receiving_is_whole, "{why}");
            }
            Standing::ReceivingHasTail { fork } => {
                assert!(!receiving_is_whole, "{why}");
                assert_fork(fork, same, shipping, &why);
            }
            Standing::ShippingIsOld { fork, has_tail } => {
                assert_eq!(has_tail, shipping.end() > fork, "{why}");
                if has_tail {
                    assert_fork(fork, same, receiving, &why);
                } else {
                    assert!(shipping_is_whole, "{why}");
                }
            }
            Standing::Diverged { fork } => {
                assert!(fork <= same, "{why}");
                assert_fork(fork, same, shipping, &why);
            }
            Standing::Unrelated => assert_eq!(same, Lsn::ZERO, "{why}"),
        }
    }
}

/// Both are the same up to the fork and not behind it. Beyond it they may share one batch: the one
/// without records with which a leader begins, when the history that it belongs to was followed no
/// further than that.
fn assert_fork(fork: Lsn, same: Lsn, log: &Region, why: &str) {
    if fork == same {
        return;
    }
    assert!(fork < same, "{why}");
    let mut end = Lsn::ZERO;
    let shared = log.log.iter().filter(|batch| {
        end = end.after(batch.bytes);
        end > fork && end <= same
    });
    let shared: Vec<&Batch> = shared.collect();
    assert!(shared.len() == 1 && shared[0].begins.is_none(), "{why}");
}

#[test]
fn chains_of_histories_say_of_two_logs_what_their_bytes_say() {
    let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let mut seen = [0_u64; 7];
    for seed in seed.map_or(1..=400, |seed| seed..=seed) {
        println!("TOWLINE_SEED={seed}");
        let mut model = Model::new(seed);
        for _ in 0..80 {
            model.step();
            for at in [0, 1] {
                model.check(at);
                seen[match model.standing(at) {
                    Standing::Empty => 0,
                    Standing::Continues => 1,
                    Standing::ReceivingHasTail { .. } => 2,
                    Standing::ReceivingIsAhead => 3,
                    Standing::ShippingIsOld { .. } => 4,
                    Standing::Diverged { .. } => 5,
                    Standing::Unrelated => 6,
                }] += 1;
            }
        }
    }
    println!("{seen:?}");
    assert!(seen.iter().all(|count| *count > 0), "each case came up: {seen:?}");
}

fn id(number: u64) -> HistoryId {
    HistoryId((u128::from(number) + 1).to_le_bytes())
}

/// A chain of which each history is live in turn, and begins 100 behind the one before it.
fn chain(names: &[u64]) -> Histories {
    let mut histories = Histories::default();
    for (place, name) in names.iter().enumerate() {
        let parent = place.checked_sub(1).map(|before| id(names[before]));
        let (fork, live) = (Lsn(place as u64 * 100), NAMES[place % 2].to_owned());
        let cause = String::new();
        histories
            .push(History { id: id(*name), parent, fork, live, began: Time(1), cause })
            .unwrap();
    }
    histories
}

fn standing(shipping: (&Histories, u64), receiving: (&Histories, u64)) -> Standing {
    let log = |(histories, end)| RegionLog { histories, end: Lsn(end) };
    Standing::of(log(shipping), log(receiving))
}

#[test]
fn a_recovery_log_continues_up_to_the_fork_and_has_a_tail_behind_it() {
    let (one, two) = (chain(&[0]), chain(&[0, 1]));
    assert_eq!(standing((&two, 500), (&one, 100)), Standing::Continues);
    let tail = Standing::ReceivingHasTail { fork: Lsn(100) };
    assert_eq!(standing((&two, 500), (&one, 101)), tail);
    assert!(tail.partitions_receiving() && !tail.partitions_shipping());
    assert_eq!(standing((&one, 500), (&one, 500)), Standing::Continues);
    assert_eq!(standing((&one, 500), (&one, 501)), Standing::ReceivingIsAhead);
    assert!(Standing::ReceivingIsAhead.partitions_shipping());
}

/// It is fenced by the history alone, also when nothing was decided in it, and it lacks nothing.
#[test]
fn a_group_that_was_left_behind_is_old_whatever_its_log_has() {
    let (one, two) = (chain(&[0]), chain(&[0, 1]));
    for (end, has_tail) in [(40, false), (100, false), (101, true)] {
        let old = Standing::ShippingIsOld { fork: Lsn(100), has_tail };
        assert_eq!(standing((&one, end), (&two, 100)), old);
        assert!(old.partitions_shipping() && !old.partitions_receiving());
    }
}

#[test]
fn groups_that_both_went_on_are_partitioned_both_and_so_are_strangers() {
    let (one, other) = (chain(&[0, 1]), chain(&[0, 2, 3]));
    let diverged = Standing::Diverged { fork: Lsn(100) };
    assert_eq!(standing((&one, 500), (&other, 500)), diverged);
    let strangers = standing((&one, 500), (&chain(&[7, 8]), 500));
    assert_eq!(strangers, Standing::Unrelated);
    for both in [diverged, strangers] {
        assert!(both.partitions_shipping() && both.partitions_receiving());
    }
    // It has a log, and says nothing of it.
    assert_eq!(standing((&one, 500), (&Histories::default(), 8)), Standing::Unrelated);
    assert_eq!(standing((&Histories::default(), 8), (&one, 500)), Standing::Unrelated);
    assert_eq!(standing((&one, 500), (&Histories::default(), 0)), Standing::Empty);
}

#[test]
fn what_is_folded_away_does_not_change_what_is_said_of_newer_histories() {
    let names: Vec<u64> = (0..40).collect();
    let mut other_names = names.clone();
    other_names.splice(30.., [1_030, 1_031]);
    let (long, short, other) = (chain(&names), chain(&names[..35]), chain(&other_names));
    let tail = Standing::ReceivingHasTail { fork: Lsn(3_500) };
    let diverged = Standing::Diverged { fork: Lsn(3_000) };
    for most in [HISTORIES_MAX, 11] {
        let (long, other) = (long.folded_to(most), other.folded_to(most));
        assert_eq!(standing((&long, 9_000), (&short, 3_500)), Standing::Continues);
        assert_eq!(standing((&long, 9_000), (&short, 3_501)), tail);
        assert_eq!(standing((&long, 9_000), (&other, 3_300)), diverged);
        assert_eq!(standing((&other, 3_300), (&long, 9_000)), diverged);
    }
    // They parted at 30, and one of them keeps only what came behind it.
    let late = long.folded_to(5);
    assert_eq!(standing((&late, 9_000), (&other, 3_300)), Standing::Unrelated);
    // The newest of the other one is folded away here.
    assert_eq!(standing((&late, 9_000), (&chain(&names[..20]), 1_000)), Standing::Unrelated);
}
