//! What a restored queue manager must hold: all that was committed before its backup was asked for,
//! nothing that was asked for later than it was done, and units whole.
//!
//! Invariant: what happened while the backup was made may be there or not, each unit for itself.

use std::collections::BTreeSet;

use crate::history::{Fate, History, Put, Unit};

/// `before`, `after`: what was known when the backup was asked for, and when it was done.
pub(super) fn judge(
    before: &History,
    after: &History,
    present: &BTreeSet<usize>,
) -> Result<(), String> {
    for (number, put) in after.puts.iter().enumerate().filter(|(_, put)| put.persistent) {
        let is_there = present.contains(&number);
        if is_there && may_not_be(after, put) {
            return Err(format!("message {number} is there, and was never committed: {put:?}"));
        }
        if is_there && was_got(before, number) {
            return Err(format!("message {number} is there although it was got before"));
        }
        if !is_there && was_put(before, number) && !is_perhaps_got(after, put) {
            return Err(format!("message {number} is missing: {put:?}"));
        }
    }
    for (number, unit) in after.units.iter().enumerate() {
        judge_unit(before, after, number, unit, present)?;
    }
    Ok(())
}

fn fate_of(history: &History, own: Fate, unit: Option<usize>) -> Fate {
    match unit.and_then(|unit| history.units.get(unit)) {
        None => own,
        Some(unit) if unit.fate == Fate::Unknown && !unit.commit_sent => Fate::No,
        Some(unit) => unit.fate,
    }
}

fn may_not_be(after: &History, put: &Put) -> bool {
    put.fate == Fate::No || fate_of(after, put.fate, put.unit) == Fate::No
}

fn was_put(before: &History, number: usize) -> bool {
    let put = before.puts.get(number);
    put.is_some_and(|put| put.delivered || fate_of(before, put.fate, put.unit) == Fate::Yes)
}

fn was_got(before: &History, number: usize) -> bool {
    let gets = before.puts.get(number).map(|put| put.gets.as_slice()).unwrap_or_default();
    gets.iter().any(|get| {
        let get = before.gets[*get];
        fate_of(before, get.fate, get.unit) == Fate::Yes
    })
}

fn is_perhaps_got(after: &History, put: &Put) -> bool {
    put.gets.iter().any(|get| {
        let get = after.gets[*get];
        fate_of(after, get.fate, get.unit) != Fate::No
    })
}

fn judge_unit(
    before: &History,
    after: &History,
    number: usize,
    unit: &Unit,
    present: &BTreeSet<usize>,
) -> Result<(), String> {
    let (mut done, mut undone) = (None, None);
    for put in unit.puts.iter().filter(|put| after.puts[**put].persistent) {
        if present.contains(put) {
            done = Some(format!("its put of {put} is there"));
        } else if !is_perhaps_got(after, &after.puts[*put]) {
            undone = Some(format!("its put of {put} is not there"));
        }
    }
    for get in &unit.gets {
        let message = after.gets[*get].message;
        let put = &after.puts[message];
        let others = put.gets.iter().filter(|other| *other != get).map(|get| after.gets[*get]);
        let mut others = others.map(|get| fate_of(after, get.fate, get.unit));
        if present.contains(&message) {
            undone = Some(format!("its get of {message} had no effect"));
        } else if put.persistent && was_put(before, message) && others.all(|fate| fate == Fate::No)
        {
            done = Some(format!("its get of {message} had an effect"));
        }
    }
    let fate_before = before.units.get(number).map_or(Fate::Unknown, |unit| unit.fate);
    let may_be = unit.fate != Fate::No && unit.commit_sent;
    match (done, undone) {
        (_, Some(undone)) if fate_before == Fate::Yes => {
            Err(format!("unit {number} was committed before, but {undone}"))
        }
        (Some(done), _) if !may_be => Err(format!("unit {number} was not committed, but {done}")),
        (Some(done), Some(undone)) => Err(format!("unit {number}: {done}, but {undone}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(history: &mut History, unit: Option<usize>, fate: Fate) -> usize {
        history.put(Put {
            client: 0,
            queue: 0,
            priority: 4,
            persistent: true,
            unit,
            fate,
            delivered: false,
            gets: Vec::new(),
            bytes: 0,
        })
    }

    #[test]
    fn what_was_acknowledged_before_must_be_there_and_what_came_meanwhile_may() {
        let mut history = History::by_connection();
        let first = put(&mut history, None, Fate::Yes);
        let before = history.clone();
        let second = put(&mut history, None, Fate::Yes);
        for present in [vec![first], vec![first, second]] {
            assert_eq!(judge(&before, &history, &present.into_iter().collect()), Ok(()));
        }
        assert!(judge(&before, &history, &BTreeSet::from([second])).is_err());
    }

    #[test]
    fn what_was_got_before_is_not_there_and_what_was_got_meanwhile_may_be() {
        let mut history = History::by_connection();
        let first = put(&mut history, None, Fate::Yes);
        let get = history.get(first, None);
        let between = history.clone();
        history.gets[get].fate = Fate::Yes;
        let there = BTreeSet::from([first]);
        assert_eq!(judge(&between, &history, &there), Ok(()));
        assert_eq!(judge(&between, &history, &BTreeSet::new()), Ok(()));
        assert!(judge(&history, &history, &there).is_err());
    }

    #[test]
    fn a_unit_is_there_whole_or_not_at_all() {
        let mut history = History::by_connection();
        let before = history.clone();
        let unit = history.declare();
        let puts = [0, 1].map(|_| put(&mut history, Some(unit), Fate::Yes));
        history.discharge(unit, true);
        assert_eq!(judge(&before, &history, &BTreeSet::from(puts)), Ok(()));
        assert_eq!(judge(&before, &history, &BTreeSet::new()), Ok(()));
        assert!(judge(&before, &history, &BTreeSet::from([puts[0]])).is_err());
        history.units[unit].fate = Fate::Yes;
        assert!(judge(&history, &history, &BTreeSet::new()).is_err());
    }
}
