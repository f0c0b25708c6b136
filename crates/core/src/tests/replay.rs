//! Replay over images, carrying forward, and what is refused as damage.

use bytes::Bytes;
use proptest::prelude::*;
use towline_types::{BodyLocation, Lsn, Payload, Time};

use super::rig::{Rig, persistent, rebuilt};
use crate::command::LocalChanges;
use crate::object::{
    Definition, LocalAttributes, LocalQueue, ModelQueue, ObjectType, QueueKind,
    QueueManagerAttributes, Stamps,
};
use crate::{
    Body, BodyId, BodyName, DeadLetter, DeadLetterReason, Decision, Fact, Header, Limits, Message,
    MessageSequence, NewMessage, Outcome, Outputs, Pages, QueueId, QueueManager, RelocationCursor,
    RelocationSearch,
};

fn put_fact(sequence: u64) -> Fact {
    let body = Body::Log(BodyLocation { lsn: Lsn(sequence * 100), bytes: 10 });
    let header = Header { persistent: true, put_at: Time(5), ..Header::default() };
    let message = Box::new(Message { header, body, backout_count: 0, dead_letter: None });
    Fact::Put { queue: QueueId(1), sequence: MessageSequence(sequence), carried: false, message }
}

fn got(sequence: u64) -> Fact {
    Fact::Got { queue: QueueId(1), sequence: MessageSequence(sequence) }
}

/// An image of a queue manager with queue 1 and sequences below 10 used.
fn imaged() -> QueueManager {
    let mut rig = Rig::new();
    rig.define("Q");
    for _ in 1..10 {
        rig.put("Q", "x");
    }
    rebuilt(&rig.image(), Limits::default())
}

#[test]
fn an_image_and_the_log_make_what_the_log_alone_makes() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("GONE");
    rig.put_persistent("GONE", "x");
    for content in ["a", "b", "c", "d"] {
        rig.put_persistent("Q", content);
    }
    rig.consumer("Q", 2);
    let held = rig.dispatch();
    rig.settle(&held[0], Outcome::Accepted);
    rig.core.delete(rig.now, "GONE", ObjectType::Local, true, &mut rig.decision).unwrap();
    rig.carry_out();
    let (image, at) = (rig.image(), rig.log.len());
    rig.settle(&held[1], Outcome::Accepted);
    rig.put_persistent("Q", "e");
    rig.define_with("LATER", LocalChanges::default()).unwrap();
    let mut full = rig.restart(None, rig.log.len());
    let mut short = rig.restart(Some((&image, at)), rig.log.len());
    for again in [&mut full, &mut short] {
        assert_eq!(again.browse("Q"), ["c", "d", "e"]);
        assert_eq!(again.status("Q").totals, rig.status("Q").totals);
        assert_eq!(again.stored, rig.stored);
        assert_eq!(again.core.definitions().count(), 2);
        again.core.audit();
        again.put_persistent("Q", "f");
        assert_eq!(again.browse("Q"), ["c", "d", "e", "f"], "sequences go on");
    }
}

#[test]
fn facts_before_the_image_are_judged_by_the_table() {
    let mut core = imaged();
    let mut outputs = Outputs::default();
    let mut replay = |fact| core.replay(fact, true, &mut outputs);
    replay(got(3)).unwrap();
    replay(put_fact(4)).unwrap();
    replay(got(4)).unwrap();
    replay(put_fact(5)).unwrap();
    let unknown_queue = Fact::Got { queue: QueueId(77), sequence: MessageSequence(500) };
    replay(unknown_queue).unwrap();
    replay(Fact::Deleted { queue: QueueId(1) }).unwrap();
    replay(got(10)).unwrap_err();
    let status = core.queue_status("Q").unwrap();
    assert_eq!((status.depth, status.totals.puts), (1, 9), "not counted twice");
    core.audit();
}

#[test]
fn facts_after_the_image_that_fit_nothing_are_damage() {
    for fact in [
        got(10),
        Fact::Got { queue: QueueId(2), sequence: MessageSequence(1) },
        Fact::Deleted { queue: QueueId(2) },
        Fact::Cleared { queue: QueueId(2), upto: MessageSequence(1) },
        Fact::BodyChunk {
            body: BodyName::Own(BodyId(1)),
            index: 1,
            chunk: Body::Log(BodyLocation { lsn: Lsn(1), bytes: 1 }),
        },
    ] {
        let refused = imaged().replay(fact.clone(), false, &mut Outputs::default());
        assert!(refused.is_err(), "{fact:?}");
    }
    let mut core = imaged();
    core.replay(got(9), false, &mut Outputs::default()).unwrap();
    core.audit();
}

#[test]
fn a_non_persistent_message_in_the_log_is_damage() {
    let mut fact = put_fact(20);
    if let Fact::Put { message, .. } = &mut fact {
        message.header.persistent = false;
    }
    assert!(imaged().replay(fact, false, &mut Outputs::default()).is_err());
}

#[test]
fn a_put_whose_chunks_are_gone_is_skipped_before_the_image_and_damage_after_it() {
    let announced = |sequence| {
        let mut fact = put_fact(sequence);
        if let Fact::Put { message, .. } = &mut fact {
            message.body = Body::Announced { body: BodyName::Own(BodyId(3)), chunks: 2, bytes: 2 };
        }
        fact
    };
    let chunk = |index| Fact::BodyChunk {
        body: BodyName::Own(BodyId(3)),
        index,
        chunk: Body::Log(BodyLocation { lsn: Lsn(u64::from(index)), bytes: 1 }),
    };
    let mut core = imaged();
    let mut outputs = Outputs::default();
    core.replay(chunk(1), true, &mut outputs).unwrap();
    core.replay(announced(5), true, &mut outputs).unwrap();
    assert_eq!((core.queue_status("Q").unwrap().depth, outputs.effects.len()), (0, 0));
    core.replay(chunk(0), false, &mut outputs).unwrap();
    assert!(core.replay(announced(11), false, &mut outputs).is_err());
}

#[test]
fn chunks_that_no_put_refers_to_are_given_back_at_the_end() {
    let mut core = imaged();
    let mut outputs = Outputs::default();
    let location = BodyLocation { lsn: Lsn(7), bytes: 1 };
    let chunk =
        Fact::BodyChunk { body: BodyName::Own(BodyId(3)), index: 0, chunk: Body::Log(location) };
    core.replay(chunk, false, &mut outputs).unwrap();
    core.replay_end(&mut outputs);
    let texts: Vec<String> = outputs.effects.iter().map(|effect| format!("{effect:?}")).collect();
    assert!(texts[0].starts_with("Stored") && texts[1].starts_with("Removed"), "{texts:?}");
}

fn body_name() -> impl Strategy<Value = BodyName> {
    (0..3_u64, any::<bool>()).prop_map(|(number, carried)| match carried {
        true => BodyName::Carried(MessageSequence(number)),
        false => BodyName::Own(BodyId(number)),
    })
}

fn hostile_fact() -> impl Strategy<Value = Fact> {
    let queue = || (0..4_u32).prop_map(QueueId);
    let sequence = || prop_oneof![9 => 0..12_u64, 1 => Just(u64::MAX)].prop_map(MessageSequence);
    let location = || {
        (0..9_u64, 1..3_u32)
            .prop_map(|(lsn, bytes)| Body::Log(BodyLocation { lsn: Lsn(lsn), bytes }))
    };
    let body = prop_oneof![
        location(),
        (body_name(), 0..3_u32, 0..5_u64).prop_map(|(body, chunks, bytes)| Body::Announced {
            body,
            chunks,
            bytes
        }),
    ];
    let named = prop_oneof![Just("Q"), Just("R"), Just("S")];
    let definition = (queue(), named.clone(), 0..3_u8).prop_map(|(id, name, kind)| {
        let name = name.to_owned();
        match kind {
            0 => Definition::Local(LocalQueue {
                name,
                id,
                kind: QueueKind::Predefined,
                attributes: LocalAttributes::default(),
                stamps: Stamps::default(),
            }),
            1 => Definition::Model(ModelQueue {
                name,
                kind: QueueKind::TemporaryDynamic,
                attributes: LocalAttributes::default(),
                stamps: Stamps::default(),
            }),
            _ => Definition::QueueManager(QueueManagerAttributes::default()),
        }
    });
    let dead_letter = || {
        Box::new(DeadLetter {
            reason: DeadLetterReason::Expired,
            origin: "Q".to_owned(),
            origin_id: QueueId(1),
            moved_at: Time(1),
        })
    };
    prop_oneof![
        6 => (queue(), sequence(), body, any::<bool>()).prop_map(|(queue, sequence, body, carried)| {
            let header = Header { persistent: true, ..Header::default() };
            let message = Message { header, body, backout_count: 0, dead_letter: None };
            Fact::Put { queue, sequence, carried, message: Box::new(message) }
        }),
        2 => (queue(), sequence()).prop_map(|(queue, sequence)| Fact::Got { queue, sequence }),
        1 => (queue(), sequence())
            .prop_map(|(queue, sequence)| Fact::BackedOut { queue, sequence, count: 3 }),
        2 => (queue(), sequence(), queue(), sequence(), prop::option::of(0..10_u8)).prop_map(
            move |(from, sequence, to, new_sequence, order)| Fact::Moved {
                from, sequence, to, new_sequence, order, dead_letter: dead_letter(),
            }
        ),
        2 => (body_name(), 0..3_u32, location())
            .prop_map(|(body, index, chunk)| Fact::BodyChunk { body, index, chunk }),
        1 => Just(Fact::Level { level: 2 }),
        3 => definition.prop_map(|definition| Fact::Defined { definition: Box::new(definition) }),
        1 => (0..3_u64, 0..3_u64)
            .prop_map(|(first, bodies)| Fact::Abandoned { first: BodyId(first), bodies }),
        1 => queue().prop_map(|queue| Fact::Deleted { queue }),
        1 => named.prop_map(|name| Fact::Undefined { name: name.to_owned() }),
        1 => (queue(), sequence()).prop_map(|(queue, upto)| Fact::Cleared { queue, upto }),
    ]
}

proptest! {
    #[test]
    fn a_log_that_contradicts_itself_is_refused_and_never_panics(
        facts in prop::collection::vec((hostile_fact(), any::<bool>()), 1..60),
        from_image in any::<bool>(),
    ) {
        let mut core = if from_image { imaged() } else { QueueManager::new(Limits::default()) };
        let mut outputs = Outputs::default();
        for (fact, before) in facts {
            // A refused fact changes nothing, so that the history can go on here.
            let _refused = core.replay(fact, before && from_image, &mut outputs);
            core.audit();
        }
        core.replay_end(&mut outputs);
        let image = Rig::over(core).image();
        rebuilt(&image, Limits::default()).audit();
    }
}

#[test]
fn damaged_images_are_refused_and_never_panic() {
    let mut rig = Rig::new();
    rig.define("Q");
    super::objects::define_alias(&mut rig, "A", "Q", None);
    let image = rig.image();
    rebuilt(&image, Limits::default());
    for end in 0..image.len() {
        assert!(QueueManager::restore(&image[..end], Limits::default(), Pages::Ignored).is_err());
    }
    for at in 0..image.len() {
        for bit in 0..8 {
            let mut bad = image.clone();
            bad[at] ^= 1 << bit;
            if let Ok(core) = QueueManager::restore(&bad, Limits::default(), Pages::Whole) {
                core.rules.audit();
            }
        }
    }
}

#[test]
fn a_message_carried_forward_keeps_its_place_count_and_reason() {
    let limits = Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.define("Q");
    rig.define("DLQ");
    rig.put_persistent("Q", "dead");
    let long = "x".repeat(600_000);
    for content in ["a", "b", &long, "c"] {
        rig.put_persistent("Q", content);
    }
    rig.consumer("Q", 2);
    let held = rig.dispatch();
    rig.settle(&held[0], Outcome::Rejected);
    rig.settle(&held[1], Outcome::Modified { failed: true, undeliverable_here: false });
    let border = rig.log.last().unwrap().at.after(1);
    let (mut cursor, mut found) = (RelocationCursor::default(), Vec::new());
    while rig.core.find_old(border, &mut cursor, 1, &mut found) == RelocationSearch::More {}
    assert_eq!(found.len(), 5);
    for (queue, sequence, body) in found {
        let content = Payload::from(Bytes::from(rig.cold.content(&body)));
        assert!(rig.core.relocate(queue, sequence, content, &mut rig.decision));
        rig.carry_out();
    }
    assert!(rig.stored.iter().all(|location| location.lsn >= border), "the old extent is free");
    let check = |rig: &mut Rig| {
        assert_eq!(rig.browse("Q"), ["a", "b", &long, "c"]);
        rig.consumer("Q", 9);
        assert_eq!(rig.dispatch()[0].backout_count, 1);
        rig.consumer("DLQ", 9);
        let dead = rig.dispatch();
        assert_eq!(dead[0].dead_letter.as_ref().unwrap().origin, "Q");
        rig.core.audit();
    };
    let (image, at) = (rig.image(), rig.log.len());
    check(&mut rig.restart(None, at));
    // The extent of the first records is reused: only definitions would be missed, and the image
    // has them.
    let mut tail = rig.restart(Some((&image, at)), at);
    check(&mut tail);
    let mut reused = Rig::over(rebuilt(&image, rig.core.limits().clone()));
    for record in rig.log.iter().filter(|record| record.at >= border) {
        let (fact, _) = crate::record::decode(&record.bytes, record.at).unwrap();
        reused.core.replay(fact, true, &mut reused.outputs).unwrap();
    }
    reused.core.replay_end(&mut reused.outputs);
    reused.core.audit();
    assert_eq!((reused.depth("Q"), reused.depth("DLQ")), (4, 1));
}

#[test]
fn a_message_whose_end_is_on_its_way_is_not_carried() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_with("Q", NewMessage { ..persistent("a") }).unwrap();
    rig.consumer("Q", 1);
    let held = rig.dispatch();
    rig.instant = false;
    rig.settle(&held[0], Outcome::Accepted);
    let content = Payload::from(Bytes::from("a"));
    let (queue, sequence) = (held[0].queue, held[0].sequence);
    let mut decision = Decision::default();
    assert!(!rig.core.relocate(queue, sequence, content.clone(), &mut decision));
    rig.sync();
    assert!(!rig.core.relocate(queue, sequence, content, &mut decision));
}
