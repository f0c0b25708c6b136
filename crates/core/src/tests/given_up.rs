//! Outcomes in units of work that come to nothing: what the client has forgotten goes back to its
//! queue, what it has not stays with it (AMQP 4.4.2), and no unit commits without what was in it.

use std::time::Duration;

use super::rig::{CLIENT, Rig, message, persistent};
use crate::{Delivery, Limits, Outcome, Refusal, UnitId};

fn rig_with(contents: &[&str], limits: Limits) -> Rig {
    let mut rig = Rig::with(limits);
    rig.define("Q");
    for content in contents {
        rig.put_persistent("Q", content);
    }
    rig
}

/// Contents and backout counts of what another consumer gets now.
fn left(rig: &mut Rig) -> Vec<(String, u32)> {
    let consumer = rig.consumer("Q", 100);
    let got = rig.dispatch();
    let left = got.iter().map(|got| (rig.text(got), got.backout_count)).collect();
    rig.close(consumer, false);
    rig.core.audit();
    left
}

fn counted(texts: &[(&str, u32)]) -> Vec<(String, u32)> {
    texts.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect()
}

/// A unit that the queue manager gave up for its age, and what was delivered before.
fn given_up(contents: &[&str]) -> (Rig, UnitId, Vec<Delivery>) {
    let mut rig = rig_with(contents, Limits::default());
    rig.consumer("Q", 3);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_in(&got[0], Outcome::Accepted, Some(unit)).unwrap();
    rig.now = rig.now + rig.core.limits().unit_age_max + Duration::from_secs(1);
    rig.tick();
    assert_eq!(rig.core.open_units(), 0);
    (rig, unit, got)
}

#[test]
fn what_is_settled_in_a_unit_that_was_given_up_goes_back_when_the_client_hears_of_it() {
    for fail in [false, true] {
        let (mut rig, unit, got) = given_up(&["a", "b", "c"]);
        let late = rig.settle_in(&got[1], Outcome::Accepted, Some(unit));
        assert!(matches!(late, Err(Refusal::UnitTooOld { .. })), "{late:?}");
        let late = rig.settle_in(&got[1], Outcome::Accepted, Some(unit));
        assert_eq!(late, Ok(()), "said twice, heard once");
        rig.core.audit();
        assert_eq!(rig.status("Q").uncommitted, 1);
        let discharged = rig.discharge(unit, fail);
        assert_eq!(discharged.is_ok(), fail, "{discharged:?}");
        assert_eq!(left(&mut rig), counted(&[("a", 1), ("b", 1)]), "c is not settled");
        assert_eq!(rig.status("Q").uncommitted, 0);
    }
}

#[test]
fn what_is_settled_in_a_unit_that_was_given_up_goes_back_when_the_connection_ends() {
    let (mut rig, unit, got) = given_up(&["a", "b"]);
    assert!(rig.settle_in(&got[1], Outcome::Accepted, Some(unit)).is_err());
    rig.disconnect(CLIENT, false);
    rig.core.audit();
    assert_eq!(left(&mut rig), counted(&[("a", 1), ("b", 1)]));
}

#[test]
fn what_is_settled_beyond_maxumsgs_goes_back_with_the_rest_of_its_unit() {
    let limits = Limits { unit_messages_max: 1, ..Limits::default() };
    let mut rig = rig_with(&["a", "b", "c"], limits);
    let consumer = rig.consumer("Q", 3);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_in(&got[0], Outcome::Accepted, Some(unit)).unwrap();
    for (at, settled) in [(1, true), (2, false)] {
        let refused = rig.settle_as(&got[at], Outcome::Accepted, Some(unit), settled);
        assert!(matches!(refused, Err(Refusal::UnitTooManyMessages { .. })), "{refused:?}");
    }
    rig.core.audit();
    rig.discharge(unit, true).unwrap();
    assert_eq!(left(&mut rig), counted(&[("a", 1), ("b", 1)]), "c is not settled");
    rig.close(consumer, false);
    assert_eq!(left(&mut rig), counted(&[("a", 1), ("b", 1), ("c", 0)]));
}

#[test]
fn a_delivery_that_is_not_settled_stays_with_its_consumer_after_a_rollback() {
    let mut rig = rig_with(&["a"], Limits::default());
    let consumer = rig.consumer("Q", 1);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_as(&got[0], Outcome::Accepted, Some(unit), false).unwrap();
    rig.discharge(unit, true).unwrap();
    assert_eq!(left(&mut rig), [], "no other consumer gets it");
    let next = rig.declare();
    rig.settle_as(&got[0], Outcome::Accepted, Some(next), false).unwrap();
    rig.discharge(next, false).unwrap();
    rig.close(consumer, false);
    assert_eq!((rig.depth("Q"), left(&mut rig)), (0, Vec::new()), "got in another unit");
}

#[test]
fn a_rollback_is_counted_when_what_was_not_settled_comes_back() {
    let ends: [(Option<Outcome>, u32); 4] = [
        (Some(Outcome::Released), 1),
        (Some(Outcome::Modified { failed: true, undeliverable_here: false }), 1),
        (Some(Outcome::Modified { failed: false, undeliverable_here: true }), 1),
        (None, 1),
    ];
    for (outcome, count) in ends {
        let mut rig = rig_with(&["a"], Limits::default());
        let consumer = rig.consumer("Q", 1);
        let got = rig.dispatch();
        let unit = rig.declare();
        rig.settle_as(&got[0], Outcome::Accepted, Some(unit), false).unwrap();
        rig.discharge(unit, true).unwrap();
        match outcome {
            Some(outcome) => rig.settle(&got[0], outcome),
            None => rig.close(consumer, false),
        }
        assert_eq!(left(&mut rig), counted(&[("a", count)]), "{outcome:?}");
    }
}

#[test]
fn a_delivery_that_is_settled_before_the_rollback_goes_back() {
    let mut rig = rig_with(&["a"], Limits::default());
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_as(&got[0], Outcome::Accepted, Some(unit), false).unwrap();
    rig.settle_as(&got[0], Outcome::Accepted, Some(unit), true).unwrap();
    rig.discharge(unit, true).unwrap();
    assert_eq!(left(&mut rig), counted(&[("a", 1)]));
}

#[test]
fn a_delivery_whose_consumer_is_gone_goes_back_when_its_unit_is_rolled_back() {
    let mut rig = rig_with(&["a"], Limits::default());
    let consumer = rig.consumer("Q", 1);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_as(&got[0], Outcome::Accepted, Some(unit), false).unwrap();
    rig.close(consumer, false);
    assert_eq!(left(&mut rig), [], "it is in the unit");
    rig.discharge(unit, true).unwrap();
    assert_eq!(left(&mut rig), counted(&[("a", 1)]));
}

#[test]
fn an_outcome_that_finds_no_delivery_is_refused_in_a_unit_and_ignored_outside() {
    let mut rig = rig_with(&["a", "b"], Limits::default());
    let consumer = rig.consumer("Q", 2);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle(&got[0], Outcome::Released);
    rig.settle(&got[0], Outcome::Accepted);
    let settled = rig.settle_in(&got[0], Outcome::Accepted, Some(unit));
    assert_eq!(settled, Err(Refusal::UnitDoomed), "settled already");
    rig.close(consumer, false);
    let closed = rig.settle_in(&got[1], Outcome::Accepted, Some(unit));
    assert_eq!(closed, Err(Refusal::UnitDoomed), "its consumer is gone");
    let unknown = rig.settle_in(&got[1], Outcome::Accepted, Some(UnitId(77)));
    assert_eq!(unknown, Err(Refusal::UnknownUnit));
    rig.core.audit();
}

#[test]
fn an_unknown_unit_leaves_a_delivery_where_it_is() {
    let mut rig = rig_with(&["a"], Limits::default());
    let consumer = rig.consumer("Q", 1);
    let got = rig.dispatch();
    let unknown = rig.settle_in(&got[0], Outcome::Accepted, Some(UnitId(77)));
    assert_eq!(unknown, Err(Refusal::UnknownUnit));
    rig.close(consumer, false);
    assert_eq!(left(&mut rig), counted(&[("a", 0)]));
}

#[test]
fn what_is_not_persistent_comes_back_like_all_else() {
    let mut rig = rig_with(&[], Limits::default());
    let target = rig.open_put("Q").unwrap();
    for sent in [message("a"), persistent("b")] {
        rig.send(&target, sent, None).unwrap();
    }
    let consumer = rig.consumer("Q", 2);
    let got = rig.dispatch();
    let unit = rig.declare();
    for delivery in &got {
        rig.settle_as(delivery, Outcome::Accepted, Some(unit), false).unwrap();
    }
    rig.discharge(unit, true).unwrap();
    rig.close(consumer, false);
    assert_eq!(left(&mut rig), counted(&[("a", 1), ("b", 1)]));
}
