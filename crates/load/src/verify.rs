//! Whether every message came, once, and in order.
//!
//! Each producer numbers its messages from 0. A thread notes which of them the broker took
//! ([`Ledger::accepted`]), which have an unknown fate because the connection was lost
//! ([`Ledger::in_doubt`]), and which came out again ([`Ledger::received`]). At the end the threads'
//! ledgers are merged and [`Ledger::verdict`] is given. Order is checked at each consumer: from one
//! producer its numbers only rise ([`Order`]).
//!
//! It keeps three bits for each message, and no message.

use std::collections::HashMap;

use serde::Serialize;

use crate::stamp::Stamp;

/// A set of sequence numbers, dense from 0.
#[derive(Clone, Debug, Default)]
struct Bits {
    words: Vec<u64>,
    count: u64,
}

/// Numbers a set holds at most: a damaged stamp must not make it ask for all memory. At 100,000
/// messages a second of one producer it is reached after three hours.
const SEQUENCE_MAX: u64 = 1 << 30;

impl Bits {
    /// Adds a number; false when it was there (or is out of bounds).
    fn insert(&mut self, number: u64) -> bool {
        if number >= SEQUENCE_MAX {
            return false;
        }
        let Ok(word) = usize::try_from(number / 64) else { return false };
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        let Some(slot) = self.words.get_mut(word) else { return false };
        let bit = 1 << (number % 64);
        let fresh = *slot & bit == 0;
        *slot |= bit;
        self.count += u64::from(fresh);
        fresh
    }

    /// Adds all of `other`; returns how many were in both.
    fn merge(&mut self, other: &Bits) -> u64 {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        let mut both = 0;
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            both += u64::from((*mine & theirs).count_ones());
            *mine |= theirs;
        }
        self.count = self.count + other.count - both;
        both
    }

    /// How many of these `other` lacks.
    fn missing_in(&self, other: &Bits) -> u64 {
        let common: u64 =
            self.words.iter().zip(&other.words).map(|(a, b)| u64::from((a & b).count_ones())).sum();
        self.count - common
    }
}

/// What is known of one producer's messages.
#[derive(Clone, Debug, Default)]
struct Record {
    accepted: Bits,
    in_doubt: Bits,
    received: Bits,
    /// Got in units of work without an answer to the commit: got, or to come again.
    perhaps_received: Bits,
    duplicated: u64,
}

/// Names a producer of any run.
type ProducerKey = (u32, u32);

/// What one thread knows of all producers.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    run: u32,
    /// Whether producers of other runs count as ours: a process that only gets.
    adopts: bool,
    /// Records of this run's producers, by number.
    own: Vec<Record>,
    adopted: HashMap<ProducerKey, Record>,
    foreign: u64,
    reordered: u64,
}

/// The outcome of the check. Lost, duplicated and reordered must be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Puts that the broker confirmed.
    pub(crate) accepted: u64,
    /// Different messages that came out.
    pub(crate) received: u64,
    /// Confirmed, and not come out.
    pub(crate) lost: u64,
    /// Confirmed, not come out, and most likely still on the queue: as many of other runs came out.
    pub(crate) left: u64,
    /// Come out more than once.
    pub(crate) duplicated: u64,
    /// Come out at one consumer after a later one of the same producer.
    pub(crate) reordered: u64,
    /// Puts that were not confirmed because a connection was lost.
    pub(crate) in_doubt: u64,
    /// Messages that this harness did not make, or that an earlier run left.
    pub(crate) foreign: u64,
}

impl Ledger {
    /// A ledger of run number `run`; `adopts` when it gets what other processes put.
    pub(crate) fn new(run: u32, adopts: bool) -> Ledger {
        Ledger { run, adopts, ..Ledger::default() }
    }

    /// The broker confirmed a put.
    pub(crate) fn accepted(&mut self, producer: u32, sequence: u64) {
        self.record(producer).accepted.insert(sequence);
    }

    /// It is unknown whether the broker took a put.
    pub(crate) fn in_doubt(&mut self, producer: u32, sequence: u64) {
        self.record(producer).in_doubt.insert(sequence);
    }

    /// A message came out. `order` is the consumer's.
    pub(crate) fn received(&mut self, stamp: Option<Stamp>, order: &mut Order) {
        let Some(stamp) = stamp else {
            self.foreign += 1;
            return;
        };
        let record = if stamp.run == self.run {
            self.record(stamp.producer)
        } else if self.adopts {
            self.adopted.entry((stamp.run, stamp.producer)).or_default()
        } else {
            self.foreign += 1;
            return;
        };
        if !record.received.insert(stamp.sequence) {
            record.duplicated += 1;
        } else if !order.rises(stamp) {
            self.reordered += 1;
        }
    }

    /// A message was got in a unit of work with an unknown end. It may come again, and need not.
    pub(crate) fn perhaps_received(&mut self, stamp: Stamp) {
        if stamp.run == self.run {
            self.record(stamp.producer).perhaps_received.insert(stamp.sequence);
        }
    }

    fn record(&mut self, producer: u32) -> &mut Record {
        let index = producer as usize;
        if index >= self.own.len() {
            self.own.resize(index + 1, Record::default());
        }
        &mut self.own[index]
    }

    /// Adds what another thread, or the drain at the end, knows.
    pub(crate) fn merge(&mut self, other: Ledger) {
        assert_eq!(self.run, other.run, "ledgers of one run");
        self.foreign += other.foreign;
        self.reordered += other.reordered;
        for (record, producer) in other.own.iter().zip(0..) {
            add(self.record(producer), record);
        }
        for (producer, record) in &other.adopted {
            add(self.adopted.entry(*producer).or_default(), record);
        }
    }

    /// Counts. `complete` says that all that was put should have come out by now, `drained` that
    /// nothing was left on the queues.
    pub(crate) fn verdict(&self, complete: bool, drained: bool) -> Verdict {
        let mut verdict =
            Verdict { foreign: self.foreign, reordered: self.reordered, ..Verdict::default() };
        for record in self.own.iter().chain(self.adopted.values()) {
            verdict.accepted += record.accepted.count;
            verdict.received += record.received.count;
            verdict.duplicated += record.duplicated;
            verdict.in_doubt += record.in_doubt.count;
            if complete {
                let mut come = record.received.clone();
                come.merge(&record.perhaps_received);
                verdict.lost += record.accepted.missing_in(&come);
            }
        }
        if !drained {
            // Each message of another run that a client got stands for one of ours that it did not.
            verdict.left = verdict.lost.min(verdict.foreign);
            verdict.lost -= verdict.left;
        }
        verdict
    }
}

fn add(to: &mut Record, from: &Record) {
    to.accepted.merge(&from.accepted);
    to.in_doubt.merge(&from.in_doubt);
    to.perhaps_received.merge(&from.perhaps_received);
    to.duplicated += from.duplicated + to.received.merge(&from.received);
}

/// The highest number that one consumer saw of each producer.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// One more than the last number, by producer of this consumer's first run.
    next: Vec<u64>,
    run: Option<u32>,
}

/// Producers with an order that a consumer follows: 2^16 numbers of 8 bytes.
const PRODUCERS_MAX: usize = 1 << 16;

impl Order {
    /// Notes a message; false when a later one of its producer came before it.
    fn rises(&mut self, stamp: Stamp) -> bool {
        let producer = stamp.producer as usize;
        if *self.run.get_or_insert(stamp.run) != stamp.run || producer >= PRODUCERS_MAX {
            return true;
        }
        if producer >= self.next.len() {
            self.next.resize(producer + 1, 0);
        }
        let next = &mut self.next[producer];
        let rises = stamp.sequence >= *next;
        *next = (*next).max(stamp.sequence + 1);
        rises
    }

    /// Starts anew: after a reconnect, or when messages are given back, older ones may come.
    pub(crate) fn forget(&mut self) {
        self.next.clear();
    }
}

#[cfg(test)]
mod tests {
    use towline_types::Time;

    use super::*;

    fn stamp(producer: u32, sequence: u64) -> Option<Stamp> {
        Some(Stamp { run: 1, producer, sequence, put_at: Time(0) })
    }

    fn ledger(accepted: &[u64], received: &[u64]) -> Ledger {
        let mut ledger = Ledger::new(1, false);
        let mut order = Order::default();
        accepted.iter().for_each(|n| ledger.accepted(0, *n));
        received.iter().for_each(|n| ledger.received(stamp(0, *n), &mut order));
        ledger
    }

    #[test]
    fn all_once_and_in_order_is_clean() {
        let verdict = ledger(&[0, 1, 2, 130], &[0, 1, 2, 130]).verdict(true, true);
        assert_eq!(verdict, Verdict { accepted: 4, received: 4, ..Verdict::default() });
    }

    #[test]
    fn a_confirmed_message_that_never_came_is_lost() {
        assert_eq!(ledger(&[0, 1, 200], &[0, 200]).verdict(true, true).lost, 1);
        assert_eq!(ledger(&[0, 1, 200], &[0, 200]).verdict(false, true).lost, 0);
    }

    #[test]
    fn a_message_that_came_twice_is_duplicated_and_not_reordered() {
        let verdict = ledger(&[0, 1], &[0, 1, 0]).verdict(true, true);
        assert_eq!((verdict.duplicated, verdict.reordered, verdict.lost), (1, 0, 0));
    }

    #[test]
    fn what_was_got_in_a_unit_of_unknown_end_is_neither_lost_nor_duplicated() {
        let mut ledger = ledger(&[0, 1], &[1]);
        ledger.perhaps_received(stamp(0, 0).unwrap());
        ledger.perhaps_received(stamp(0, 1).unwrap());
        let verdict = ledger.verdict(true, true);
        assert_eq!((verdict.lost, verdict.duplicated), (0, 0));
    }

    #[test]
    fn a_message_behind_a_later_one_is_reordered() {
        assert_eq!(ledger(&[0, 1, 2], &[0, 2, 1]).verdict(true, true).reordered, 1);
    }

    #[test]
    fn the_same_message_on_two_threads_is_duplicated() {
        let mut all = ledger(&[0, 1], &[0]);
        all.merge(ledger(&[], &[0, 1]));
        let verdict = all.verdict(true, true);
        assert_eq!((verdict.received, verdict.duplicated, verdict.lost), (2, 1, 0));
    }

    #[test]
    fn messages_of_earlier_runs_are_foreign_unless_adopted() {
        let old = Some(Stamp { run: 9, producer: 0, sequence: 0, put_at: Time(0) });
        for (adopts, foreign, received) in [(false, 1, 0), (true, 0, 1)] {
            let mut ledger = Ledger::new(1, adopts);
            ledger.received(old, &mut Order::default());
            let verdict = ledger.verdict(true, true);
            assert_eq!((verdict.foreign, verdict.received), (foreign, received));
        }
    }

    #[test]
    fn what_other_runs_left_does_not_make_messages_of_this_one_lost() {
        let old = |sequence| Some(Stamp { run: 9, producer: 0, sequence, put_at: Time(0) });
        let mut ledger = ledger(&[0, 1, 2, 3], &[0]);
        ledger.received(old(0), &mut Order::default());
        ledger.received(old(1), &mut Order::default());
        let verdict = ledger.verdict(true, false);
        assert_eq!((verdict.lost, verdict.left, verdict.foreign), (1, 2, 2));
        let verdict = ledger.verdict(true, true);
        assert_eq!((verdict.lost, verdict.left), (3, 0), "a drained queue has none left");
    }

    #[test]
    fn a_damaged_number_costs_no_memory() {
        let mut bits = Bits::default();
        assert!(!bits.insert(u64::MAX));
        assert!(bits.words.is_empty());
    }
}
