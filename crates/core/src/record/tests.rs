//! Records: sizes, exact round trips, and hostile bytes.

use bytes::Bytes;
use proptest::prelude::*;
use towline_types::{BodyLocation, History, HistoryId, Payload, Time};

use super::*;
use crate::CommitId;
use crate::message::{Body, BodyName, DeadLetter, DeadLetterReason, Header, Message};
use crate::object::{
    AliasQueue, Definition, LocalAttributes, LocalQueue, ModelQueue, QueueKind,
    QueueManagerAttributes, Stamps,
};

mod layouts;

fn encoded(fact: &Fact) -> (Vec<u8>, Option<Range<usize>>) {
    let mut bytes = b"before".to_vec();
    let range = encode(fact, true, &mut bytes);
    (bytes.split_off(6), range)
}

/// The fact as it reads back from position 1000.
fn expected(fact: &Fact, range: Option<Range<usize>>) -> Fact {
    let mut fact = fact.clone();
    let place = range.map(|range| {
        let bytes = u32::try_from(range.len()).unwrap();
        Body::Log(BodyLocation { lsn: Lsn(1000 + range.start as u64), bytes })
    });
    match (&mut fact, place) {
        (Fact::Put { message, .. }, Some(place)) => message.body = place,
        (Fact::BodyChunk { chunk, .. }, Some(place)) => *chunk = place,
        (_, None) => {}
        (other, Some(_)) => panic!("{other:?} has no body"),
    }
    fact
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z.é]{1,20}"
}

fn stamps() -> impl Strategy<Value = Stamps> {
    any::<(u64, u64)>().prop_map(|(a, b)| Stamps { created_at: Time(a), altered_at: Time(b) })
}

fn attributes() -> impl Strategy<Value = LocalAttributes> {
    let switches = any::<(bool, bool, bool, bool, bool, bool)>();
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), 0..=9_u8);
    (name(), name(), switches, numbers).prop_map(|(description, backout_queue, on, numbers)| {
        LocalAttributes {
            description,
            depth_max: numbers.0,
            message_bytes_max: numbers.1,
            put_enabled: on.0,
            get_enabled: on.1,
            default_persistent: on.2,
            default_priority: numbers.3,
            sequence: if on.3 {
                crate::object::DeliverySequence::Fifo
            } else {
                crate::object::DeliverySequence::Priority
            },
            backout_threshold: numbers.2,
            backout_queue,
            shareable: on.4,
            default_shared: on.5,
        }
    })
}

fn kind() -> impl Strategy<Value = QueueKind> {
    prop_oneof![
        Just(QueueKind::Predefined),
        Just(QueueKind::PermanentDynamic),
        Just(QueueKind::TemporaryDynamic)
    ]
}

fn definition() -> impl Strategy<Value = Definition> {
    let local = (name(), any::<u32>(), kind(), attributes(), stamps()).prop_map(
        |(name, id, kind, attributes, stamps)| {
            Definition::Local(LocalQueue { name, id: QueueId(id), kind, attributes, stamps })
        },
    );
    let model =
        (name(), kind(), attributes(), stamps()).prop_map(|(name, kind, attributes, stamps)| {
            Definition::Model(ModelQueue { name, kind, attributes, stamps })
        });
    let alias = (name(), name(), name(), any::<(bool, bool, bool)>(), 0..=9_u8, stamps()).prop_map(
        |(name, target, description, on, default_priority, stamps)| {
            Definition::Alias(AliasQueue {
                name,
                target,
                description,
                put_enabled: on.0,
                get_enabled: on.1,
                default_persistent: on.2,
                default_priority,
                stamps,
            })
        },
    );
    let queue_manager = (name(), name(), any::<(u64, u32)>()).prop_map(
        |(description, dead_letter_queue, (message_bytes_max, unit_messages_max))| {
            Definition::QueueManager(QueueManagerAttributes {
                description,
                dead_letter_queue,
                message_bytes_max,
                unit_messages_max,
            })
        },
    );
    prop_oneof![local, model, alias, queue_manager]
}

fn dead_letter() -> impl Strategy<Value = DeadLetter> {
    let reason = prop_oneof![
        Just(DeadLetterReason::Rejected),
        Just(DeadLetterReason::BackoutThreshold),
        Just(DeadLetterReason::Expired),
        Just(DeadLetterReason::Undeliverable),
        Just(DeadLetterReason::Moved)
    ];
    (reason, name(), any::<(u32, u64)>()).prop_map(|(reason, origin, (id, at))| DeadLetter {
        reason,
        origin,
        origin_id: QueueId(id),
        moved_at: Time(at),
    })
}

fn body() -> impl Strategy<Value = Body> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        bytes.clone().prop_map(|bytes| Body::Memory(Bytes::from(bytes))),
        (bytes.clone(), bytes).prop_map(|(first, second)| {
            let mut payload = Payload::from(Bytes::from(first));
            payload.push(Bytes::from(second));
            Body::Incoming(payload)
        }),
        any::<(u64, u32, u64)>().prop_map(|(body, chunks, bytes)| {
            Body::Announced { body: BodyName::Own(BodyId(body)), chunks, bytes }
        }),
    ]
}

fn message_fields() -> impl Strategy<Value = (u64, u32, Option<u64>)> {
    let group = (any::<u64>(), any::<u32>());
    let some = (prop_oneof![Just((0, 0)), group], prop::option::of(1..u64::MAX));
    let some = some.prop_map(|((group, sequence), delay)| (group, sequence, delay));
    prop_oneof![Just((0, 0, None)), some]
}

fn put() -> impl Strategy<Value = Fact> {
    let header = (any::<(bool, u64, u64, u64)>(), any::<Option<u64>>(), 0..=9_u8, 0..=9_u8);
    let header = (header, message_fields());
    let message = (header, body(), any::<u32>(), prop::option::of(dead_letter()));
    (message, any::<(u32, u64, bool)>()).prop_map(
        |(((header, fields), body, backout_count, dead_letter), place)| {
            let (word, expires_at, priority, order) = header;
            let (group, group_sequence, delay) = fields;
            let header = Header {
                persistent: word.0,
                priority,
                order,
                expires_at: expires_at.map(Time),
                put_at: Time(word.1),
                correlation_hash: word.2,
                message_id_hash: if word.0 { word.3 } else { 0 },
                group,
                group_sequence: if group == 0 { 0 } else { group_sequence },
                deliver_at: delay.map(|delay| Time(word.1.wrapping_add(delay))),
            };
            let (queue, sequence, carried) = (QueueId(place.0), MessageSequence(place.1), place.2);
            let body = match (body, carried) {
                (Body::Announced { body: _, chunks, bytes }, true) => {
                    Body::Announced { body: BodyName::Carried(sequence), chunks, bytes }
                }
                (body, _) => body,
            };
            let dead_letter = dead_letter.map(Box::new);
            let message = Box::new(Message { header, body, backout_count, dead_letter });
            Fact::Put { queue, sequence, carried, message }
        },
    )
}

fn history_begun() -> impl Strategy<Value = Fact> {
    let names = (any::<[u8; 16]>(), prop::option::of(any::<[u8; 16]>()));
    let texts = ("[A-Z]{1,48}", "[a-z ]{0,256}");
    let numbers = (any::<(u64, u64)>(), prop::option::of(1..u64::MAX));
    (names, texts, numbers).prop_map(|((id, parent), (live, cause), ((fork, began), first))| {
        let fork = if parent.is_some() { Lsn(fork) } else { Lsn::ZERO };
        let (id, parent) = (HistoryId(id), parent.map(HistoryId));
        let history = Box::new(History { id, parent, fork, live, began: Time(began), cause });
        Fact::HistoryBegun { history, first: first.map(MessageSequence) }
    })
}

fn fact() -> impl Strategy<Value = Fact> {
    let place = || any::<(u32, u64)>().prop_map(|(q, s)| (QueueId(q), MessageSequence(s)));
    prop_oneof![
        4 => put(),
        1 => place().prop_map(|(queue, sequence)| Fact::Got { queue, sequence }),
        1 => place().prop_map(|(queue, sequence)| Fact::Expired { queue, sequence }),
        1 => (place(), any::<u32>())
            .prop_map(|((queue, sequence), count)| Fact::BackedOut { queue, sequence, count }),
        1 => (place(), place(), dead_letter(), prop::option::of(0..=9_u8)).prop_map(
            |(old, new, dead_letter, order)| Fact::Moved {
                from: old.0,
                sequence: old.1,
                to: new.0,
                new_sequence: new.1,
                order,
                dead_letter: Box::new(dead_letter),
            }
        ),
        1 => Just(Fact::Level { level: 2 }),
        1 => (any::<(u64, u32, bool)>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(
            |((body, index, carried), bytes)| Fact::BodyChunk {
                body: match carried {
                    true => BodyName::Carried(MessageSequence(body)),
                    false => BodyName::Own(BodyId(body)),
                },
                index,
                chunk: Body::Incoming(Payload::from(Bytes::from(bytes))),
            }
        ),
        2 => definition().prop_map(|definition| Fact::Defined { definition: Box::new(definition) }),
        1 => any::<u32>().prop_map(|queue| Fact::Deleted { queue: QueueId(queue) }),
        1 => name().prop_map(|name| Fact::Undefined { name }),
        1 => place().prop_map(|(queue, upto)| Fact::Cleared { queue, upto }),
        1 => (1..u64::MAX, any::<u32>()).prop_map(|(commit, operations)| {
            Fact::Part { commit: CommitId(commit), operations }
        }),
        1 => (1..u64::MAX, any::<u32>(), any::<u64>()).prop_map(|(commit, operations, first)| {
            let (commit, first) = (CommitId(commit), MessageSequence(first));
            Fact::Completed { commit, operations, first }
        }),
        1 => any::<u32>().prop_map(|operations| Fact::Committed { operations }),
        1 => history_begun(),
        1 => any::<(u64, u64)>()
            .prop_map(|(first, bodies)| Fact::Abandoned { first: BodyId(first), bodies }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_reads_back_and_the_body_is_where_it_is_said_to_be(fact in fact()) {
        let (bytes, range) = encoded(&fact);
        let content = match &fact {
            Fact::Put { message, .. } => Some(&message.body),
            Fact::BodyChunk { chunk, .. } => Some(chunk),
            _ => None,
        };
        let written = range.clone().map(|range| bytes[range].to_vec());
        match content {
            Some(Body::Incoming(payload)) => {
                prop_assert_eq!(written, Some(payload.to_contiguous().to_vec()));
            }
            Some(Body::Memory(body)) => prop_assert_eq!(written, Some(body.to_vec())),
            _ => prop_assert_eq!(written, None),
        }
        prop_assert_eq!(decode(&bytes, Lsn(1000)), Ok((expected(&fact, range), true)));
    }

    #[test]
    fn a_record_cut_short_or_spelled_otherwise_is_not_taken_for_another(
        fact in fact(),
        cut in any::<prop::sample::Index>(),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let (bytes, range) = encoded(&fact);
        // A body takes all that is left, so only cuts before it can be noticed here; the log's own
        // length and checksum see the others.
        let fixed = range.map_or(bytes.len(), |range| range.start);
        let cut = cut.index(bytes.len());
        if cut < fixed {
            prop_assert!(decode(&bytes[..cut], Lsn(0)).is_err());
        }
        let mut flipped = bytes.clone();
        let at = flip.0.index(bytes.len());
        flipped[at] ^= flip.1;
        if let Ok((fact, last)) = decode(&flipped, Lsn(0)) {
            check_canonical(&flipped, &fact, last);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok((fact, last)) = decode(&bytes, Lsn(u64::MAX - 40)) {
            check_canonical(&bytes, &fact, last);
        }
    }
}

/// What was decoded encodes to the same bytes: there is one spelling only.
fn check_canonical(bytes: &[u8], fact: &Fact, last: bool) {
    let tail = |location: &BodyLocation| {
        let body = bytes[bytes.len() - location.bytes as usize..].to_vec();
        Body::Memory(Bytes::from(body))
    };
    let mut fact = fact.clone();
    match &mut fact {
        Fact::Put { message, .. } => {
            if let Body::Log(location) = &message.body {
                message.body = tail(location);
            }
        }
        Fact::BodyChunk { chunk, .. } => {
            if let Body::Log(location) = chunk {
                *chunk = tail(location);
            }
        }
        _ => {}
    }
    let mut again = Vec::new();
    encode(&fact, last, &mut again);
    assert_eq!(again, bytes);
}

#[test]
fn hostile_records_never_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes: &Vec<u8>| {
        if let Ok((fact, last)) = decode(bytes, Lsn(0)) {
            check_canonical(bytes, &fact, last);
        }
    });
}

#[test]
fn a_get_is_small_and_a_put_has_little_overhead() {
    let (queue, sequence) = (QueueId(1 << 20), MessageSequence(1 << 50));
    let (got, _) = encoded(&Fact::Got { queue, sequence });
    assert!(got.len() <= 12, "{}", got.len());
    let header = Header {
        persistent: true,
        priority: 4,
        order: 4,
        expires_at: Some(Time(1_800_000_000_000_000 + 60_000_000)),
        put_at: Time(1_800_000_000_000_000),
        correlation_hash: u64::MAX,
        message_id_hash: u64::MAX,
        ..Header::default()
    };
    let body = Body::Memory(Bytes::from(vec![0; 1024]));
    let message = Box::new(Message { header, body, backout_count: 0, dead_letter: None });
    let (queue, sequence) = (QueueId(1 << 13), MessageSequence(1 << 34));
    let put = Fact::Put { queue, sequence, carried: false, message };
    let (bytes, _) = encoded(&put);
    assert!(bytes.len() - 1024 <= 40, "{}", bytes.len() - 1024);
}
