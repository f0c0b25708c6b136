use std::collections::BTreeSet;

use super::*;

const ACTIVE: Speaker = Speaker { node: 0, process: 1, term: 3 };

fn put_in(history: &mut History, unit: Option<usize>) -> usize {
    let (gets, fate) = (Vec::new(), Fate::Unknown);
    history.put(Put {
        client: 0,
        queue: 0,
        priority: 4,
        persistent: true,
        unit,
        fate,
        delivered: false,
        gets,
        bytes: 5,
    })
}

fn acknowledged(history: &mut History) -> usize {
    let number = put_in(history, None);
    history.put_answered(ACTIVE, number, true).unwrap();
    number
}

fn deliver(history: &mut History, number: usize) -> Result<usize, Violation> {
    history.delivered(ACTIVE, 1, 0, &History::content(number, 5))
}

fn present(numbers: &[usize]) -> BTreeSet<usize> {
    numbers.iter().copied().collect()
}

#[test]
fn an_acknowledged_put_that_is_not_there_is_lost() {
    let mut history = History::default();
    let number = acknowledged(&mut history);
    assert!(history.judge(&present(&[])).is_err());
    assert_eq!(history.judge(&present(&[number])), Ok(()));
}

#[test]
fn an_unanswered_put_may_be_there_or_not_but_a_refused_one_may_not() {
    let mut history = History::default();
    let number = put_in(&mut history, None);
    assert_eq!(history.judge(&present(&[])), Ok(()));
    assert_eq!(history.judge(&present(&[number])), Ok(()));
    history.put_answered(ACTIVE, number, false).unwrap();
    assert!(history.judge(&present(&[number])).is_err());
}

#[test]
fn a_message_that_was_got_is_neither_there_nor_delivered_again() {
    let mut history = History::default();
    let number = acknowledged(&mut history);
    deliver(&mut history, number).unwrap();
    let get = history.get(number, None);
    history.get_answered(ACTIVE, get, true).unwrap();
    assert!(history.judge(&present(&[number])).is_err());
    assert!(deliver(&mut history, number).is_err());
    let again = history.get(number, None);
    assert!(history.get_answered(ACTIVE, again, true).is_err(), "got twice");
}

#[test]
fn a_unit_that_no_client_learned_about_is_whole_or_not_at_all() {
    let mut history = History::default();
    let unit = history.declare();
    let (one, other) = (put_in(&mut history, Some(unit)), put_in(&mut history, Some(unit)));
    assert!(history.judge(&present(&[one, other])).is_err(), "it was never ended");
    history.discharge(unit, true);
    assert_eq!(history.judge(&present(&[one, other])), Ok(()));
    assert_eq!(history.judge(&present(&[])), Ok(()));
    assert!(history.judge(&present(&[one])).is_err(), "half done");
}

#[test]
fn a_unit_that_put_and_got_does_both_or_neither() {
    let mut history = History::default();
    let source = acknowledged(&mut history);
    deliver(&mut history, source).unwrap();
    let unit = history.declare();
    history.get(source, Some(unit));
    let moved = put_in(&mut history, Some(unit));
    history.discharge(unit, true);
    assert_eq!(history.judge(&present(&[source])), Ok(()));
    assert_eq!(history.judge(&present(&[moved])), Ok(()));
    assert!(history.judge(&present(&[source, moved])).is_err());
    assert!(history.judge(&present(&[])).is_err());
}

#[test]
fn what_was_rolled_back_is_never_seen() {
    let mut history = History::default();
    let unit = history.declare();
    let number = put_in(&mut history, Some(unit));
    assert!(deliver(&mut history, number).is_err(), "not yet committed");
    history.discharge(unit, false);
    assert!(deliver(&mut history, number).is_err());
    assert!(history.judge(&present(&[number])).is_err());
}

#[test]
fn a_producers_messages_come_in_its_order_unless_they_came_before() {
    let mut history = History::default();
    let (first, second) = (acknowledged(&mut history), acknowledged(&mut history));
    assert!(history.check_order(&[second, first]).is_err());
    assert!(history.check_order(&[first, first]).is_err());
    deliver(&mut history, second).unwrap();
    assert!(deliver(&mut history, first).is_err());
}

/// Seed 900237: the instance took a put from a connection that its client had given up for another
/// one, because a read of its disk had held that connection up.
#[test]
fn a_put_that_was_answered_to_nobody_may_come_behind_what_its_client_put_later() {
    for ended in [false, true] {
        let mut history = History::by_connection();
        let (first, second) = (put_in(&mut history, None), acknowledged(&mut history));
        if ended {
            history.connection_ended(7);
        }
        history.answers(7, Some(first), None);
        history.put_answered(ACTIVE, first, true).unwrap();
        deliver(&mut history, second).unwrap();
        assert_eq!(deliver(&mut history, first).is_ok(), ended);
        assert_eq!(history.check_order(&[second, first]).is_ok(), ended);
    }
}

#[test]
fn a_unit_that_was_answered_to_nobody_may_come_behind_what_its_client_put_later() {
    for ended in [false, true] {
        let mut history = History::by_connection();
        let unit = history.declare();
        let (first, second) = (put_in(&mut history, Some(unit)), acknowledged(&mut history));
        history.discharge(unit, true);
        if ended {
            history.connection_ended(7);
        }
        history.answers(7, None, Some(unit));
        history.discharge_answered(ACTIVE, unit, true).unwrap();
        deliver(&mut history, second).unwrap();
        assert_eq!(deliver(&mut history, first).is_ok(), ended);
    }
}

/// Seed 90000747 of `model`: the instance goes on with a commit in parts, and then with the put
/// behind it, while its client puts over the next connection; nothing is answered.
#[test]
fn a_put_behind_a_commit_that_was_not_answered_may_come_late_and_no_other_one() {
    for is_answered in [false, true] {
        let mut history = History::default();
        let unit = history.declare();
        history.discharge(unit, true);
        if is_answered {
            history.discharge_answered(ACTIVE, unit, true).unwrap();
        }
        let first = put_in(&mut history, None);
        history.connection_ended(7);
        history.lost_behind_commit(first, unit);
        let second = put_in(&mut history, None);
        assert_eq!(history.check_order(&[second, first]).is_ok(), !is_answered);
    }
}

fn put_in_memory(history: &mut History) -> usize {
    let number = put_in(history, None);
    history.puts[number].persistent = false;
    number
}

fn deliver_in(history: &mut History, term: u64, number: usize) -> Result<usize, Violation> {
    let speaker = Speaker { term, process: term, ..ACTIVE };
    history.delivered(speaker, term, 0, &History::content(number, 5))
}

/// Seed 1882569408777486 of the build 599a557: message 519 was a non-persistent put of the instance
/// that was deposed after it, and its successor had delivered 553 by then.
#[test]
fn what_only_a_deposed_active_has_is_not_compared_with_what_its_successor_delivered() {
    let mut history = History::default();
    let (in_memory, persistent) = (put_in_memory(&mut history), acknowledged(&mut history));
    deliver_in(&mut history, 3, persistent).unwrap();
    assert_eq!(deliver_in(&mut history, 2, in_memory), Ok(in_memory));
    // Nor does what it delivers bind the successor.
    let (older, in_memory) = (acknowledged(&mut history), put_in_memory(&mut history));
    deliver_in(&mut history, 2, in_memory).unwrap();
    assert_eq!(deliver_in(&mut history, 3, older), Ok(older));
}

#[test]
fn the_order_of_persistent_messages_holds_across_terms() {
    let mut history = History::default();
    let (first, second) = (acknowledged(&mut history), acknowledged(&mut history));
    deliver_in(&mut history, 2, second).unwrap();
    assert!(deliver_in(&mut history, 3, first).is_err());
}

#[test]
fn two_instances_never_acknowledge_in_one_term() {
    let mut history = History::default();
    acknowledged(&mut history);
    let number = put_in(&mut history, None);
    let other = Speaker { node: 1, ..ACTIVE };
    assert!(history.put_answered(other, number, true).is_err());
}

#[test]
fn a_message_is_held_by_one_connection_at_a_time() {
    let mut history = History::default();
    let number = acknowledged(&mut history);
    deliver(&mut history, number).unwrap();
    let content = History::content(number, 5);
    assert!(history.delivered(ACTIVE, 2, 0, &content).is_err());
    history.connection_ended(2);
    history.give_back(number);
    assert!(history.delivered(ACTIVE, 3, 0, &content).is_ok());
}

#[test]
fn content_that_no_client_put_is_unexpected() {
    let mut history = History::default();
    let number = acknowledged(&mut history);
    assert!(history.identify(&History::content(number, 4)).is_err());
    assert!(history.identify(b"").is_err());
    assert_eq!(history.identify(&History::content(number, 5)), Ok(number));
}
