//! Pages: what is written is read back, and what is read was written.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::message::{DeadLetter, DeadLetterReason};
use crate::object::{LocalAttributes, LocalQueue, QueueKind};
use crate::queue::{PagedBlock, Queue, Totals};
use crate::{Limits, QueueId};

const EXTENT_BYTES: u64 = 1 << 16;

fn body() -> impl Strategy<Value = BodyLocation> {
    (0..1_u64 << 40, any::<u32>()).prop_map(|(lsn, bytes)| BodyLocation { lsn: Lsn(lsn), bytes })
}

fn dead_letter() -> impl Strategy<Value = Box<DeadLetter>> {
    ("[A-Z.]{1,48}", any::<u32>(), 0..1_u64 << 60).prop_map(|(origin, id, at)| {
        let (reason, origin_id) = (DeadLetterReason::Rejected, QueueId(id));
        Box::new(DeadLetter { reason, origin, origin_id, moved_at: Time(at) })
    })
}

fn extra() -> impl Strategy<Value = Option<Extra>> {
    let chunks = prop::collection::vec(body(), 1..5).prop_map(Vec::into_boxed_slice);
    let few = (prop::option::of(dead_letter()), prop::option::of(chunks));
    let due = prop::option::of((1_u64 << 60..1 << 61).prop_map(Time));
    let some =
        (few, due).prop_filter_map("it is something", |((dead_letter, chunks), deliver_at)| {
            Extra { dead_letter, chunks, deliver_at, group_sequence: 0 }.kept()
        });
    prop_oneof![4 => Just(None), 1 => some.prop_map(Some)]
}

fn state() -> impl Strategy<Value = EntryState> {
    prop_oneof![
        6 => Just(EntryState::Available),
        1 => Just(EntryState::Held),
        1 => Just(EntryState::Leaving),
        2 => Just(EntryState::Gone)
    ]
}

fn message() -> impl Strategy<Value = (Entry, Option<Extra>)> {
    let times = (0..1_u64 << 60, prop::option::of(0..1_u64 << 60));
    let ids = (prop::option::of(1..=u64::MAX), prop::option::of(1..=u64::MAX));
    let group = prop_oneof![3 => Just((0, 0)), 1 => (1..=u64::MAX, any::<u32>())];
    let few = (0..10_u8, prop::bool::weighted(0.9), prop_oneof![Just(0), 0..=u32::MAX], group);
    (times, ids, few, state(), body(), extra()).prop_map(|(times, ids, few, state, body, extra)| {
        let gone = state == EntryState::Gone;
        let chunked = extra.as_ref().is_some_and(|extra| extra.chunks.is_some());
        let (priority, persistent, backout_count, (group, group_sequence)) = few;
        // Outside of a group there is no number.
        let extra = match (group_sequence, extra) {
            (0, extra) => extra,
            (_, extra) => Some(Extra { group_sequence, ..extra.unwrap_or_default() }),
        };
        let here = EntryBody::Memory(Box::new(bytes::Bytes::from_static(b"here")));
        let entry = Entry {
            sequence: 0,
            expires_at: times.1.map_or(Time::NEVER, Time),
            put_at: Time(times.0),
            correlation_hash: ids.0.unwrap_or(0),
            message_id_hash: ids.1.unwrap_or(0),
            group,
            place: match (persistent, chunked) {
                (true, true) => EntryBody::NOWHERE,
                (true, false) => EntryBody::at(body),
                (false, _) => here,
            },
            backout_count,
            state,
            priority,
            persistent,
            marks: Marks::of(extra.is_some() && !gone && persistent),
        };
        let kept = extra.filter(|_| entry.marks.has_extra());
        (entry, kept)
    })
}

fn sheet() -> impl Strategy<Value = Sheet> {
    let messages = prop::collection::vec((1..1_u64 << 40, message()), 0..=BLOCK_ENTRIES);
    messages.prop_map(|messages| {
        let mut sheet = Sheet::default();
        let mut sequence = 0;
        for (step, (entry, extra)) in messages {
            sequence += step;
            if let Some(extra) = extra {
                sheet.extras.insert(sequence, extra);
            }
            sheet.entries.push(Entry { sequence, ..entry });
        }
        sheet
    })
}

/// A queue with one block, of this page, which is away.
fn queue_of(outline: &Outline) -> Queue {
    let definition = LocalQueue {
        id: QueueId(1),
        name: "Q".to_owned(),
        kind: QueueKind::Predefined,
        attributes: LocalAttributes::default(),
        stamps: crate::object::Stamps::default(),
    };
    let mut queue = Queue::new(definition, &std::sync::Arc::default());
    queue.totals = Totals::default();
    queue.push_away(4, std::sync::Arc::new(outline.clone()));
    queue
}

fn encoded(sheet: &Sheet) -> Option<(Vec<u8>, Outline)> {
    let mut bytes = Vec::new();
    let outline = encode(sheet, EXTENT_BYTES, &mut bytes)?;
    Some((bytes, outline))
}

/// The page of its only block was read. False: it is not what it should be.
fn comes(queue: &mut Queue, sheet: Sheet) -> bool {
    let away = PagedBlock { lane: 4, block: 0 };
    let good = queue.is_page_of(away, &sheet, EXTENT_BYTES);
    if good {
        queue.bring_in(away, sheet);
    }
    good
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_page_holds_all_persistent_messages_and_its_outline_counts_them(sheet in sheet()) {
        let kept: Vec<&Entry> = kept(&sheet).collect();
        let Some((bytes, outline)) = encoded(&sheet) else {
            prop_assert!(kept.is_empty());
            return Ok(());
        };
        let back = decode(&bytes).unwrap();
        prop_assert_eq!(back.entries.len(), kept.len());
        for (entry, wanted) in back.entries.iter().zip(&kept) {
            let wanted = Entry { state: EntryState::Available, ..(*wanted).clone() };
            prop_assert_eq!(format!("{entry:?}"), format!("{wanted:?}"));
            let extras = [&sheet, &back].map(|of| format!("{:?}", of.extras.get(entry.sequence)));
            prop_assert_eq!(&extras[0], &extras[1]);
        }
        prop_assert_eq!(super::outline(&back, EXTENT_BYTES), Some(outline.clone()));
        prop_assert_eq!(outline.live as usize, kept.len());
        let again = encoded(&back).unwrap();
        prop_assert_eq!(again.0, bytes, "there is one way to write a page");
        let mut queue = queue_of(&outline);
        prop_assert!(comes(&mut queue, back));
        queue.audit();
    }

    #[test]
    fn a_page_with_a_wrong_bit_is_refused_or_keeps_all_counts(
        sheet in sheet(),
        seed in any::<prop::sample::Index>()
    ) {
        let Some((bytes, outline)) = encoded(&sheet) else { return Ok(()) };
        // The checksum of a page finds all of these; this is what stands behind it.
        let first = seed.index(bytes.len());
        for at in (first..bytes.len()).chain(0..first).take(64) {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                let Ok(sheet) = decode(&wrong) else { continue };
                let mut queue = queue_of(&outline);
                comes(&mut queue, sheet);
                queue.audit();
            }
        }
    }
}

#[test]
fn a_page_cut_short_or_with_more_behind_it_is_refused() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..50 {
        let sheet = sheet().new_tree(&mut runner).unwrap().current();
        let Some((mut bytes, _)) = encoded(&sheet) else { continue };
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end} of {}", bytes.len());
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err());
    }
}

#[test]
fn a_page_that_counts_otherwise_than_its_outline_is_refused() {
    let location = BodyLocation { lsn: Lsn(70_000), bytes: 100 };
    let entry = Entry {
        sequence: 7,
        expires_at: Time(99),
        put_at: Time(5),
        correlation_hash: 0,
        message_id_hash: 0,
        group: 0,
        place: EntryBody::at(location),
        backout_count: 0,
        state: EntryState::Available,
        priority: 4,
        persistent: true,
        marks: Marks::of(false),
    };
    let page = |entry: Entry| Sheet { entries: vec![entry], ..Sheet::default() };
    let outline = outline(&page(entry.clone()), EXTENT_BYTES).unwrap();
    let comes = |entry: Entry| comes(&mut queue_of(&outline), page(entry));
    assert!(comes(entry.clone()));
    let longer = BodyLocation { bytes: 101, ..location };
    let elsewhere = BodyLocation { lsn: Lsn(60_000), ..location };
    for place in [longer, elsewhere] {
        assert!(!comes(Entry { place: EntryBody::at(place), ..entry.clone() }), "{place:?}");
    }
    assert!(!comes(Entry { expires_at: Time::NEVER, ..entry.clone() }));
    assert!(!comes(Entry { sequence: 8, ..entry }));
}

#[test]
fn no_bytes_make_the_reader_of_pages_panic() {
    let limits = Limits::default();
    bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        let page = |version: u8| [&[version], bytes].concat();
        for bytes in [bytes, &page(VERSION_WITHOUT_FIELDS), &page(VERSION)] {
            let Ok(sheet) = decode(bytes) else { continue };
            let Some(outline) = outline(&sheet, limits.extent_bytes) else { continue };
            let mut again = Vec::new();
            encode(&sheet, limits.extent_bytes, &mut again);
            assert!(decode(&again).is_ok(), "what was read can be written");
            assert!(outline.live as usize == sheet.entries.len());
        }
    });
}

/// A message of 100 bytes at position 70,000.
fn plain(sequence: u64) -> Entry {
    Entry {
        sequence,
        expires_at: Time::NEVER,
        put_at: Time(5),
        correlation_hash: 0,
        message_id_hash: 0,
        group: 0,
        place: EntryBody::at(BodyLocation { lsn: Lsn(70_000), bytes: 100 }),
        backout_count: 0,
        state: EntryState::Available,
        priority: 4,
        persistent: true,
        marks: Marks::of(false),
    }
}

#[test]
fn the_bytes_of_pages_do_not_change() {
    let mut sheet = Sheet { entries: vec![plain(7), plain(8)], ..Sheet::default() };
    let (bytes, _) = encoded(&sheet).unwrap();
    let first = [0, 7, 4, 10, 0xe0, 0xc5, 0x08, 100];
    assert_eq!(bytes, [&[1, 2], &first[..], &[0, 1, 4, 0, 0, 100]].concat());
    sheet.entries[1].group = 0x1122_3344_5566_7788;
    sheet.entries[1].marks = Marks::of(true);
    let extra = Extra { group_sequence: 7, deliver_at: Some(Time(65)), ..Extra::default() };
    sheet.extras.insert(8, extra);
    let (bytes, _) = encoded(&sheet).unwrap();
    let fields = [13, 0x0a, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x0d, 7, 0x11, 60];
    let second = [&[0x80, 1, 4, 0], &fields[..], &[0, 100]].concat();
    assert_eq!(bytes, [&[2, 2], &first[..], &second].concat());
}

#[test]
fn a_page_has_the_version_that_its_messages_need() {
    let sheet = Sheet { entries: vec![plain(7)], ..Sheet::default() };
    let (mut bytes, _) = encoded(&sheet).unwrap();
    bytes[0] = VERSION;
    assert!(decode(&bytes).is_err(), "without fields in it");
    // What is carried forward is known from a record alone.
    let carried = [&[2, 1, 0x80, 7, 4, 10, 1, 4], &bytes[6..]].concat();
    let error = decode(&carried).unwrap_err();
    assert_eq!(error.what, "a page does not say what was carried forward");
    // Flag 6 is kept, and fields are of version 2.
    for (version, flags) in [(2, 0x40), (1, 0x80), (2, 0xc0)] {
        (bytes[0], bytes[2]) = (version, flags);
        assert_eq!(decode(&bytes).unwrap_err().what, "an unknown flag");
    }
}
