//! The answers that clients got in one round of faults, and the judgement over what is there after
//! it.
//!
//! The rules: a message of a committed unit is there exactly once; of a unit that was not
//! committed, never; of a unit without an answer to its commit, with all of its unit or not at all.
//! A moved message is in exactly one of the two queues. Each producer's messages keep their order,
//! but for what a mover that lost its connection had been given: that may be held until the loss is
//! noticed, while the mover, come back, has others moved already. Not here: how the messages are
//! put and got.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::{Try, require};

/// The queues of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// Units put here; the mover takes from here.
    From,
    /// Units put here too; no client gets.
    Beside,
    /// The mover puts here.
    To,
}

impl Queue {
    /// All of them.
    pub const ALL: [Queue; 3] = [Queue::From, Queue::Beside, Queue::To];

    /// The name that the daemon knows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Queue::From => "CRASH.FROM",
            Queue::Beside => "CRASH.BESIDE",
            Queue::To => "CRASH.TO",
        }
    }
}

/// A message: round, producer, and number in the order that the producer put them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Round of faults.
    pub round: u32,
    /// Producer within the round.
    pub producer: u32,
    /// 0, 1, 2, ... for each producer.
    pub number: u32,
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}/{}", self.round, self.producer, self.number)
    }
}

impl Id {
    /// Reads what [`Id`] shows, followed by anything after a blank.
    #[must_use]
    pub fn read(text: &str) -> Option<Id> {
        let mut parts = text.split(' ').next()?.split('/').map(str::parse);
        let mut next = || parts.next()?.ok();
        Some(Id { round: next()?, producer: next()?, number: next()? })
    }
}

/// What a client knows of the end of a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No commit was sent, or it was refused, or a rollback was sent.
    NotCommitted,
    /// The commit was sent, and no answer came.
    Unknown,
    /// The commit was answered.
    Committed,
}

/// A unit of work.
#[derive(Clone, Debug)]
pub enum Unit {
    /// Messages put.
    Put(Fate, Vec<(Queue, Id)>),
    /// Messages got from [`Queue::From`] and put to [`Queue::To`].
    Move(Fate, Vec<Id>),
}

/// All units of a round, in the order in which each client began them.
#[derive(Clone, Debug, Default)]
pub struct History {
    units: Vec<Unit>,
    /// How often the mover lost its connection and came back.
    returns: usize,
}

/// Messages that the mover may have been given when it loses its connection.
pub const GIVEN_MAX: usize = 25;

/// What is in each queue after the round, in order.
pub type Contents = HashMap<Queue, Vec<Id>>;

/// How many units ended how; a round in which nothing committed proves little.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Committed units.
    pub committed: usize,
    /// Units of unknown fate that were found committed.
    pub found_committed: usize,
    /// Units of unknown fate that were found rolled back.
    pub found_rolled_back: usize,
    /// Messages found.
    pub messages: usize,
}

impl Tally {
    /// Adds another round.
    pub fn add(&mut self, other: Tally) {
        self.committed += other.committed;
        self.found_committed += other.found_committed;
        self.found_rolled_back += other.found_rolled_back;
        self.messages += other.messages;
    }
}

type Places = HashMap<Id, Vec<Queue>>;

impl History {
    /// Notes a unit as begun; gives back its number.
    pub fn begin(&mut self, unit: Unit) -> usize {
        self.units.push(unit);
        self.units.len() - 1
    }

    /// Notes that the mover lost its connection and comes back.
    pub fn mover_returns(&mut self) {
        self.returns += 1;
    }

    /// All units, in the order in which they were begun.
    pub fn units(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter()
    }

    /// The mover lost its connection as often as in another history of the same clients.
    pub fn takes_returns_of(&mut self, other: &History) {
        self.returns = other.returns;
    }

    /// Units noted so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// Units with an answered commit so far.
    #[must_use]
    pub fn committed(&self) -> usize {
        let fates = self.units.iter().map(|unit| match unit {
            Unit::Put(fate, _) | Unit::Move(fate, _) => *fate,
        });
        fates.filter(|fate| *fate == Fate::Committed).count()
    }

    /// Notes what is known now of a unit's end.
    pub fn set_fate(&mut self, number: usize, fate: Fate) {
        match self.units.get_mut(number) {
            Some(Unit::Put(known, _) | Unit::Move(known, _)) => *known = fate,
            None => {}
        }
    }

    /// Judges what was found.
    ///
    /// # Errors
    /// The first broken promise, in words.
    pub fn judge(&self, found: &Contents) -> Try<Tally> {
        let places = places(found);
        let mut tally = Tally { messages: places.len(), ..Tally::default() };
        let mut expected = places.clone();
        let moves = self.last_moves();
        for (number, unit) in self.units.iter().enumerate() {
            match unit {
                Unit::Put(fate, messages) => {
                    judge_put(*fate, messages, &places, &mut tally)?;
                    messages.iter().for_each(|(_, id)| drop(expected.remove(id)));
                }
                Unit::Move(fate, ids) => {
                    let came_back = |id: &Id| moves.get(id).is_some_and(|last| *last > number);
                    let rest: Vec<Id> = ids.iter().copied().filter(|id| !came_back(id)).collect();
                    judge_move(*fate, ids, &rest, &places, &mut tally)?;
                }
            }
        }
        require!(expected.is_empty(), "messages that nobody put: {expected:?}");
        let unanswered = self.unanswered_puts();
        for (queue, ids) in found {
            let late_max = if *queue == Queue::To { GIVEN_MAX * self.returns } else { 0 };
            let answered: Vec<Id> =
                ids.iter().filter(|id| !unanswered.contains(id)).copied().collect();
            judge_order(*queue, &answered, late_max)?;
        }
        Ok(tally)
    }
}

impl History {
    /// Messages without an answer to their put. They keep no order with later ones: what a client
    /// sent on a connection that it lost may still be on its way through a relay when it goes on
    /// with another.
    fn unanswered_puts(&self) -> HashSet<Id> {
        let mut unanswered = HashSet::new();
        for unit in &self.units {
            if let Unit::Put(Fate::Unknown, messages) = unit {
                unanswered.extend(messages.iter().map(|(_, id)| *id));
            }
        }
        unanswered
    }

    /// The last unit in which each message was got. One that was got again was not moved before: a
    /// client that goes on after a lost connection meets what its unanswered commit did not move.
    fn last_moves(&self) -> HashMap<Id, usize> {
        let mut last = HashMap::new();
        for (number, unit) in self.units.iter().enumerate() {
            if let Unit::Move(_, ids) = unit {
                last.extend(ids.iter().map(|id| (*id, number)));
            }
        }
        last
    }
}

fn places(found: &Contents) -> Places {
    let mut places = Places::new();
    for (queue, ids) in found {
        ids.iter().for_each(|id| places.entry(*id).or_default().push(*queue));
    }
    places
}

fn judge_put(fate: Fate, put: &[(Queue, Id)], places: &Places, tally: &mut Tally) -> Try {
    let there = put.iter().filter(|(_, id)| places.contains_key(id)).count();
    match fate {
        Fate::Committed => {
            require!(there == put.len(), "LOST: {there} of a committed unit are there: {put:?}");
            tally.committed += 1;
        }
        Fate::NotCommitted => {
            require!(there == 0, "UNEXPECTED: {there} of a unit never committed: {put:?}");
        }
        Fate::Unknown => {
            require!(there == 0 || there == put.len(), "HALF A UNIT: {there} of {put:?}");
            let count =
                if there == 0 { &mut tally.found_rolled_back } else { &mut tally.found_committed };
            *count += 1;
        }
    }
    for (queue, id) in put {
        let Some(seen) = places.get(id) else { continue };
        let right = match queue {
            Queue::From => *seen == [Queue::From] || *seen == [Queue::To],
            Queue::Beside | Queue::To => *seen == [*queue],
        };
        require!(right, "DUPLICATED or astray: {id}, put to {queue:?}, is in {seen:?}");
    }
    Ok(())
}

fn judge_move(fate: Fate, ids: &[Id], rest: &[Id], places: &Places, tally: &mut Tally) -> Try {
    let came_back = ids.len() - rest.len();
    require!(
        fate != Fate::Committed || came_back == 0,
        "LOST COMMIT: {came_back} of a committed move were got again: {ids:?}"
    );
    let moved = ids.iter().filter(|id| is_at(places, **id, Queue::To)).count();
    let stayed = ids.iter().filter(|id| is_at(places, **id, Queue::From)).count();
    require!(moved + stayed == ids.len(), "LOST: moved {moved}, stayed {stayed} of {ids:?}");
    match fate {
        Fate::Committed => {
            require!(stayed == 0, "LOST COMMIT: {stayed} of a committed move are back: {ids:?}");
            tally.committed += 1;
        }
        // A later unit may have moved them; that unit's own judgement covers it.
        Fate::NotCommitted => {}
        // What came back shows that it was rolled back; of the rest, then, nothing was moved by it,
        // and only later units, which are judged themselves, moved anything.
        Fate::Unknown if came_back > 0 => {
            let whole = rest.iter().all(|id| is_at(places, *id, Queue::From));
            require!(whole, "HALF A UNIT: {came_back} came back, {moved} moved: {ids:?}");
            tally.found_rolled_back += 1;
        }
        Fate::Unknown => {
            require!(moved == 0 || stayed == 0, "HALF A UNIT: moved {moved} of {ids:?}");
            let count =
                if moved == 0 { &mut tally.found_rolled_back } else { &mut tally.found_committed };
            *count += 1;
        }
    }
    Ok(())
}

fn is_at(places: &Places, id: Id, queue: Queue) -> bool {
    places.get(&id).is_some_and(|seen| *seen == [queue])
}

/// `late_max`: how many may stand behind a later one of their producer.
fn judge_order(queue: Queue, ids: &[Id], late_max: usize) -> Try {
    let mut newest: HashMap<u32, Id> = HashMap::new();
    let mut late = Vec::new();
    for id in ids {
        let before = newest.entry(id.producer).or_insert(*id);
        if before.number > id.number {
            late.push((*id, *before));
        } else {
            *before = *id;
        }
    }
    let right = late.len() <= late_max;
    require!(
        right,
        "OUT OF ORDER in {queue:?}, {late_max} may be late, but after others came: {late:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    //! The judge finds each kind of broken promise.

    use super::*;

    fn id(number: u32) -> Id {
        Id { round: 1, producer: 2, number }
    }

    fn verdict(unit: Unit, from: &[u32], to: &[u32]) -> Result<Tally, String> {
        let mut history = History::default();
        let put = [0, 1, 2].map(|number| (Queue::From, id(number))).to_vec();
        if matches!(unit, Unit::Move(..)) {
            history.begin(Unit::Put(Fate::Committed, put));
        }
        history.begin(unit);
        judged(&history, from, to)
    }

    fn judged(history: &History, from: &[u32], to: &[u32]) -> Result<Tally, String> {
        let ids = |numbers: &[u32]| numbers.iter().map(|number| id(*number)).collect();
        let found = Contents::from([(Queue::From, ids(from)), (Queue::To, ids(to))]);
        history.judge(&found).map_err(|error| error.to_string())
    }

    fn put(fate: Fate) -> Unit {
        Unit::Put(fate, vec![(Queue::From, id(0)), (Queue::From, id(1))])
    }

    fn moved(fate: Fate) -> Unit {
        Unit::Move(fate, vec![id(0), id(1)])
    }

    #[test]
    fn an_id_is_read_as_it_is_shown() {
        assert_eq!(Id::read(&format!("{} xxx", id(77))), Some(id(77)));
        assert_eq!(Id::read("1/2"), None);
    }

    #[test]
    fn a_committed_unit_must_be_whole() {
        assert!(verdict(put(Fate::Committed), &[0, 1], &[]).is_ok());
        assert!(verdict(put(Fate::Committed), &[0], &[]).unwrap_err().contains("LOST"));
    }

    #[test]
    fn an_uncommitted_unit_must_be_absent() {
        assert!(verdict(put(Fate::NotCommitted), &[], &[]).is_ok());
        assert!(verdict(put(Fate::NotCommitted), &[0, 1], &[]).unwrap_err().contains("UNEXPECTED"));
    }

    #[test]
    fn a_unit_of_unknown_fate_is_all_or_nothing() {
        assert_eq!(verdict(put(Fate::Unknown), &[], &[]).unwrap().found_rolled_back, 1);
        assert_eq!(verdict(put(Fate::Unknown), &[0, 1], &[]).unwrap().found_committed, 1);
        assert!(verdict(put(Fate::Unknown), &[1], &[]).unwrap_err().contains("HALF"));
    }

    #[test]
    fn a_message_is_there_once() {
        assert!(verdict(put(Fate::Committed), &[0, 1, 1], &[]).unwrap_err().contains("DUPLICATED"));
        assert!(verdict(put(Fate::Committed), &[0, 1], &[1]).unwrap_err().contains("DUPLICATED"));
        assert!(verdict(put(Fate::Committed), &[0, 1, 9], &[]).unwrap_err().contains("nobody"));
    }

    #[test]
    fn a_move_is_whole_and_not_undone() {
        assert!(verdict(moved(Fate::Committed), &[2], &[0, 1]).is_ok());
        assert!(verdict(moved(Fate::Committed), &[0, 1, 2], &[]).unwrap_err().contains("COMMIT"));
        assert!(verdict(moved(Fate::Unknown), &[0, 2], &[1]).unwrap_err().contains("HALF"));
        assert!(verdict(moved(Fate::NotCommitted), &[0, 1, 2], &[]).is_ok());
    }

    #[test]
    fn a_message_that_was_got_again_shows_how_its_unit_ended() {
        let again = |fate, gone: &[u32], stayed: &[u32]| {
            let mut history = History::default();
            history.begin(put(Fate::Committed));
            history.begin(moved(fate));
            history.begin(Unit::Move(Fate::Committed, vec![id(0)]));
            judged(&history, stayed, gone)
        };
        assert!(again(Fate::Unknown, &[0], &[1]).is_ok());
        assert!(again(Fate::Unknown, &[0, 1], &[]).unwrap_err().contains("HALF"));
        assert!(again(Fate::Committed, &[0, 1], &[]).unwrap_err().contains("LOST COMMIT"));
    }

    #[test]
    fn a_producers_messages_keep_their_order() {
        assert!(verdict(put(Fate::Committed), &[1, 0], &[]).unwrap_err().contains("ORDER"));
        let moved = moved(Fate::Committed);
        assert!(verdict(moved.clone(), &[2], &[1, 0]).unwrap_err().contains("ORDER"));
        // What was never answered may come when others did.
        let mut history = History::default();
        history.begin(Unit::Put(Fate::Unknown, vec![(Queue::From, id(0))]));
        history.begin(Unit::Put(Fate::Committed, vec![(Queue::From, id(1)), (Queue::From, id(2))]));
        assert!(judged(&history, &[1, 2, 0], &[]).is_ok());
        assert!(judged(&history, &[2, 1, 0], &[]).unwrap_err().contains("ORDER"));
        // What a lost connection held.
        let mut history = History::default();
        history.begin(put(Fate::Committed));
        history.mover_returns();
        history.begin(moved);
        assert!(judged(&history, &[], &[1, 0]).is_ok());
        assert!(judged(&history, &[1, 0], &[]).is_err());
    }
}
