//! The verdict at the end: what is in the queues against all that was promised.

use std::collections::BTreeSet;
use std::fmt;

use super::{Fate, History, Put, Unit, Violation};

/// What the queues say about a unit when no client learned its fate.
#[derive(Default)]
struct Evidence {
    committed: Option<UnitTrace>,
    undone: Option<UnitTrace>,
}

/// What is seen of a message of a unit.
enum UnitTrace {
    Put { message: usize, seen: bool },
    Get { message: usize, had_effect: bool },
}

impl fmt::Display for UnitTrace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitTrace::Put { message, seen: true } => write!(out, "its put of {message} is seen"),
            UnitTrace::Put { message, seen: false } => {
                write!(out, "its put of {message} is not seen")
            }
            UnitTrace::Get { message, had_effect: true } => {
                write!(out, "its get of {message} had an effect")
            }
            UnitTrace::Get { message, had_effect: false } => {
                write!(out, "its get of {message} had no effect")
            }
        }
    }
}

impl History {
    /// `present`: the messages that are in the queues when no client is connected any more.
    pub(crate) fn judge(&self, present: &BTreeSet<usize>) -> Result<(), Violation> {
        for (number, put) in self.puts.iter().enumerate() {
            self.judge_message(number, put, present.contains(&number))?;
        }
        for (number, unit) in self.units.iter().enumerate() {
            self.judge_unit(number, unit, present)?;
        }
        Ok(())
    }

    fn fate_of_put(&self, put: &Put) -> Fate {
        match put.unit.map(|unit| &self.units[unit]) {
            None => put.fate,
            Some(unit) if unit.fate == Fate::Unknown && !unit.commit_sent => Fate::No,
            Some(unit) => unit.fate,
        }
    }

    fn fate_of_get(&self, get: usize) -> Fate {
        let get = self.gets[get];
        match get.unit.map(|unit| &self.units[unit]) {
            None => get.fate,
            Some(unit) if unit.fate == Fate::Unknown && !unit.commit_sent => Fate::No,
            Some(unit) => unit.fate,
        }
    }

    fn judge_message(&self, number: usize, put: &Put, present: bool) -> Result<(), Violation> {
        let gets: Vec<Fate> = put.gets.iter().map(|get| self.fate_of_get(*get)).collect();
        let got = gets.iter().filter(|fate| **fate == Fate::Yes).count();
        let perhaps = gets.iter().filter(|fate| **fate == Fate::Unknown).count();
        if present {
            self.may_be_there(number)?;
        }
        if !put.persistent {
            return Ok(());
        }
        if got > 1 {
            return Err(format!("message {number} was got {got} times"));
        }
        if got == 1 && present {
            return Err(format!("message {number} is there although it was got"));
        }
        let was_put = self.fate_of_put(put) == Fate::Yes;
        // Only what was there can be delivered: then it was put, whatever the client knows.
        if (was_put || put.delivered) && got + perhaps == 0 && !present {
            return Err(format!("message {number} is lost: {put:?}"));
        }
        Ok(())
    }

    fn judge_unit(
        &self,
        number: usize,
        unit: &Unit,
        present: &BTreeSet<usize>,
    ) -> Result<(), Violation> {
        let mut evidence = Evidence::default();
        for put in unit.puts.iter().filter(|put| self.puts[**put].persistent) {
            let seen = self.puts[*put].delivered || present.contains(put);
            let place = if seen { &mut evidence.committed } else { &mut evidence.undone };
            *place = Some(UnitTrace::Put { message: *put, seen });
        }
        for get in &unit.gets {
            let message = self.gets[*get].message;
            let put = &self.puts[message];
            let others = put.gets.iter().filter(|other| *other != get);
            let others: Vec<Fate> = others.map(|other| self.fate_of_get(*other)).collect();
            if present.contains(&message) || others.contains(&Fate::Yes) {
                evidence.undone = Some(UnitTrace::Get { message, had_effect: false });
            } else if put.persistent && !others.contains(&Fate::Unknown) {
                evidence.committed = Some(UnitTrace::Get { message, had_effect: true });
            }
        }
        let broken = match (unit.fate, evidence.committed, evidence.undone) {
            (Fate::Yes, _, Some(undone)) => format!("it was committed, but {undone}"),
            (Fate::No, Some(committed), _) => format!("it was rolled back, but {committed}"),
            (Fate::Unknown, Some(committed), _) if !unit.commit_sent => {
                format!("it was never ended, but {committed}")
            }
            (Fate::Unknown, Some(committed), Some(undone)) => {
                format!("it is half done: {committed}, but {undone}")
            }
            _ => return Ok(()),
        };
        Err(format!("unit {number}: {broken}"))
    }
}
