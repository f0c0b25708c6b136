//! What becomes of messages when their queue is deleted: those that were moved before live on, over
//! restarts from images too, and nothing is decided about those that go with it.

use std::time::Duration;

use bytes::Bytes;
use towline_types::Payload;

use super::rig::{Rig, persistent, rebuilt};
use crate::command::LocalChanges;
use crate::object::ObjectType;
use crate::{
    Body, DeadLetterReason, Fact, Limits, MessageSequence, NewMessage, Outcome, Outputs, QueueId,
    RelocationCursor, RelocationSearch,
};

fn rig() -> Rig {
    let limits = Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.define("DLQ");
    rig
}

fn delete(rig: &mut Rig, name: &str) {
    rig.core.delete(rig.now, name, ObjectType::Local, true, &mut rig.decision).unwrap();
    rig.carry_out();
}

/// Gets the first message of a queue and settles it so; then no connection has the queue open.
fn refuse(rig: &mut Rig, name: &str, outcome: Outcome) {
    let consumer = rig.consumer(name, 1);
    let got = rig.dispatch();
    rig.settle(&got[0], outcome);
    rig.close(consumer, false);
}

/// A restart from the log alone and one from an image of now agree with what is.
fn check_restarts(rig: &mut Rig, wanted: &[&str]) {
    let (image, at) = (rig.image(), rig.log.len());
    assert_eq!(rig.browse("DLQ"), wanted);
    for from in [None, Some((image.as_slice(), at))] {
        let mut again = rig.restart(from, at);
        assert_eq!(again.browse("DLQ"), wanted, "{}", from.is_some());
        assert_eq!(again.stored, rig.stored);
        assert_eq!(again.status("DLQ").totals, rig.status("DLQ").totals);
        again.core.audit();
    }
}

const FAILED: Outcome = Outcome::Modified { failed: true, undeliverable_here: false };

#[test]
fn a_dead_letter_outlives_the_queue_it_came_from() {
    for content in ["a".to_owned(), "x".repeat(600_000)] {
        let mut rig = rig();
        rig.define("Q");
        rig.put_with("Q", NewMessage { priority: Some(7), ..persistent(&content) }).unwrap();
        rig.put_persistent("Q", "goes with its queue");
        refuse(&mut rig, "Q", FAILED);
        refuse(&mut rig, "Q", Outcome::Rejected);
        delete(&mut rig, "Q");
        check_restarts(&mut rig, &[content.as_str()]);
        let (image, at) = (rig.image(), rig.log.len());
        let mut again = rig.restart(Some((&image, at)), at);
        again.consumer("DLQ", 1);
        let got = again.dispatch();
        assert_eq!((got[0].priority, got[0].backout_count), (7, 1));
        let reason = got[0].dead_letter.as_ref().map(|found| (found.origin.as_str(), found.reason));
        assert_eq!(reason, Some(("Q", DeadLetterReason::Rejected)));
        again.settle(&got[0], Outcome::Accepted);
        assert!(again.stored.is_empty());
    }
}

#[test]
fn a_dead_letter_outlives_all_queues_of_its_way() {
    for origin_lives in [false, true] {
        let mut rig = rig();
        let changes = LocalChanges {
            backout_threshold: Some(1),
            backout_queue: Some("BOQ".to_owned()),
            ..LocalChanges::default()
        };
        rig.define_with("Q", changes).unwrap();
        rig.define("BOQ");
        for content in ["a", "b", "c"] {
            rig.put_persistent("Q", content);
            refuse(&mut rig, "Q", FAILED);
        }
        assert_eq!(rig.depth("BOQ"), 3);
        refuse(&mut rig, "BOQ", Outcome::Rejected);
        refuse(&mut rig, "BOQ", Outcome::Accepted);
        if !origin_lives {
            delete(&mut rig, "Q");
        }
        delete(&mut rig, "BOQ");
        check_restarts(&mut rig, &["a"]);
        rig.define("BOQ");
        rig.put_persistent("BOQ", "of another queue with this name");
        check_restarts(&mut rig, &["a"]);
    }
}

#[test]
fn a_message_that_was_carried_forward_before_it_moved_outlives_its_queue() {
    let mut rig = rig();
    rig.define("Q");
    for content in ["a", "b"] {
        rig.put_persistent("Q", content);
    }
    let (mut cursor, mut found) = (RelocationCursor::default(), Vec::new());
    let border = rig.log.last().unwrap().at.after(1);
    while rig.core.find_old(border, &mut cursor, 9, &mut found) == RelocationSearch::More {}
    let mut places = Vec::new();
    for (queue, sequence, body) in found {
        let content = Payload::from(Bytes::from(rig.cold.content(&body)));
        assert_eq!(rig.core.body_of(queue, sequence), Some(body.clone()));
        assert!(rig.core.relocate(queue, sequence, content, &mut rig.decision));
        rig.carry_out();
        let now = rig.core.body_of(queue, sequence).unwrap();
        assert!(matches!(&now, Body::Log(place) if place.lsn >= border) && now != body);
        places.push((queue, sequence));
    }
    refuse(&mut rig, "Q", Outcome::Rejected);
    refuse(&mut rig, "Q", Outcome::Accepted);
    for (queue, sequence) in places {
        assert_eq!(rig.core.body_of(queue, sequence), None, "it is gone from here");
    }
    assert_eq!(rig.core.body_of(QueueId(77), MessageSequence(1)), None);
    delete(&mut rig, "Q");
    check_restarts(&mut rig, &["a"]);
}

#[test]
fn an_expired_message_that_is_kept_outlives_its_queue_without_an_expiry() {
    let mut rig = rig();
    let limits = Limits { expired_to_dead_letter: true, ..rig.core.limits().clone() };
    rig = Rig::with(limits);
    rig.define("DLQ");
    rig.define("Q");
    let expires_at = Some(rig.now + Duration::from_secs(1));
    rig.put_with("Q", NewMessage { expires_at, ..persistent("a") }).unwrap();
    rig.now = rig.now + Duration::from_secs(2);
    let consumer = rig.consumer("Q", 1);
    assert!(rig.dispatch().is_empty());
    rig.close(consumer, false);
    delete(&mut rig, "Q");
    check_restarts(&mut rig, &["a"]);
}

#[test]
fn the_scan_leaves_a_queue_alone_whose_deletion_is_decided() {
    for expired_to_dead_letter in [false, true] {
        let mut rig = rig();
        rig = Rig::with(Limits { expired_to_dead_letter, ..rig.core.limits().clone() });
        rig.define("DLQ");
        rig.define("Q");
        let expires_at = Some(rig.now + Duration::from_secs(1));
        rig.put_with("Q", NewMessage { expires_at, ..persistent("a") }).unwrap();
        rig.tick();
        rig.now = rig.now + Duration::from_secs(400);
        rig.instant = false;
        delete(&mut rig, "Q");
        rig.tick();
        rig.dispatch();
        assert_eq!(rig.waiting(), 1, "nothing behind the deletion");
        rig.sync();
        rig.tick();
        rig.core.audit();
        assert!(rig.stored.is_empty());
        rig.instant = true;
        check_restarts(&mut rig, &[]);
    }
}

#[test]
fn ends_of_messages_behind_the_deletion_of_their_queue_are_skipped_in_replay() {
    let mut rig = rig();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    let queue = rig.status("Q").queue;
    let image = rig.image();
    let sequence = MessageSequence(1);
    let dead_letter = Box::new(crate::DeadLetter {
        reason: DeadLetterReason::Expired,
        origin: "Q".to_owned(),
        origin_id: queue,
        moved_at: rig.now,
    });
    let (to, new_sequence) = (rig.status("DLQ").queue, MessageSequence(9));
    for before_image in [false, true] {
        let mut outputs = Outputs::default();
        let mut core = rebuilt(&image, Limits::default());
        if before_image {
            let unknown = Fact::Got { queue: QueueId(50), sequence: MessageSequence(50) };
            assert!(core.replay(unknown, false, &mut outputs).is_err());
        }
        let queue = if before_image { QueueId(50) } else { queue };
        core.replay(Fact::Deleted { queue }, before_image, &mut outputs).unwrap();
        for fact in [
            Fact::Got { queue, sequence: MessageSequence(50) },
            Fact::Expired { queue, sequence },
            Fact::BackedOut { queue, sequence, count: 1 },
            Fact::Moved {
                from: queue,
                sequence,
                to,
                new_sequence,
                order: None,
                dead_letter: dead_letter.clone(),
            },
        ] {
            core.replay(fact, false, &mut outputs).unwrap();
        }
        core.replay_end(&mut outputs);
        core.audit();
        assert_eq!((core.queue_status("DLQ").unwrap().depth, outputs.effects.len()), (0, 0));
        assert!(
            core.replay(Fact::Got { queue: QueueId(51), sequence }, false, &mut outputs).is_err()
        );
    }
}
