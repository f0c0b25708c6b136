//! Format levels: what a log may say before all that read it know the fields, and what it says
//! from then on.

use bytes::Bytes;
use towline_types::{
    BodyLocation, FORMAT_LEVEL, FORMAT_LEVEL_UNASKED, LevelRaise, Lsn, Payload, Time, limits,
};

use super::rig::{Rig, message, persistent};
use crate::command::LocalChanges;
use crate::object::DeliverySequence;
use crate::record::{encode, raises_to};
use crate::{
    Body, Fact, Header, Limits, Message, MessageSequence, NewMessage, Outcome, Outputs, Pages,
    QueueId, QueueManager, Refusal, RelocationCursor, RelocationSearch,
};

/// Of the tag of a record.
const LAYOUT_MASK: u8 = 0x60;
const GROUP: u64 = 0x1122_3344_5566_7788;

fn raise(rig: &mut Rig) {
    rig.core.raise_level(FORMAT_LEVEL_UNASKED, &mut rig.decision).unwrap();
    rig.carry_out();
}

fn rig_at(level: u8) -> Rig {
    let mut rig = Rig::with(Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() });
    for name in ["Q", "DLQ"] {
        rig.define(name);
    }
    if level > 1 {
        raise(&mut rig);
    }
    assert_eq!(rig.core.format_level(), level);
    rig
}

fn grouped(rig: &Rig, content: &str) -> NewMessage {
    let deliver_at = Some(Time(rig.now.0 + 60_000_000));
    NewMessage { group: GROUP, group_sequence: 7, deliver_at, ..persistent(content) }
}

/// Logs the first message of `Q` again.
fn carry(rig: &mut Rig) {
    let (mut cursor, mut found) = (RelocationCursor::default(), Vec::new());
    while rig.core.find_old(Lsn(u64::MAX), &mut cursor, 64, &mut found) == RelocationSearch::More {}
    let (queue, sequence, body) = found.swap_remove(0);
    let content = Payload::from(Bytes::from(rig.cold.content(&body)));
    assert!(rig.core.relocate(queue, sequence, content, &mut rig.decision));
    rig.carry_out();
}

/// What is known of the first message of a queue.
fn header(rig: &mut Rig, queue: &str) -> Header {
    rig.browse(queue);
    let id = rig.status(queue).queue;
    let queue = rig.core.queue(id);
    let (lane, entry) = queue.iter().next().unwrap();
    entry.header(lane, queue.extra(crate::queue::Spot { lane, sequence: entry.sequence }))
}

fn layouts(rig: &Rig) -> Vec<u8> {
    rig.log.iter().map(|record| (record.bytes[0] & LAYOUT_MASK) >> 5).collect()
}

fn long() -> String {
    "x".repeat(limits::BODY_CHUNK_BYTES + 1)
}

#[test]
fn at_level_1_nothing_is_written_that_earlier_programs_do_not_read() {
    let mut rig = rig_at(1);
    let sent = grouped(&rig, "a");
    rig.put_with("Q", sent).unwrap();
    rig.put_persistent("Q", &long());
    rig.consumer("Q", 1);
    let held = rig.dispatch();
    carry(&mut rig);
    rig.settle(&held[0], Outcome::Rejected);
    carry(&mut rig);
    assert!(layouts(&rig).iter().all(|layout| *layout == 0), "layout 1");
    let image = rig.image();
    assert_eq!(image[..9], *b"TWLIMAGE\x02");
    assert!(rig.pages.values().all(|page| page[0] == 1), "pages of version 1");
    let known = header(&mut rig, "DLQ");
    assert_eq!((known.group, known.group_sequence, known.deliver_at), (0, 0, None));
}

#[test]
fn from_level_2_on_group_and_delivery_time_come_back_from_log_image_and_page() {
    let mut rig = rig_at(2);
    let sent = grouped(&rig, "a");
    rig.put_with("Q", sent).unwrap();
    let wanted = header(&mut rig, "Q");
    let due = Time(rig.now.0 + 60_000_000);
    assert_eq!((wanted.group, wanted.group_sequence, wanted.deliver_at), (GROUP, 7, Some(due)));
    let (image, at) = (rig.image(), rig.log.len());
    assert_eq!(image[..12], *b"TWLIMAGE\x03\x02\x05\x02");
    assert!(rig.pages.values().all(|page| page[0] == 2), "pages of version 2");
    carry(&mut rig);
    assert_eq!(header(&mut rig, "Q"), wanted, "what is carried forward says all of it");
    let end = rig.log.len();
    let mut again = [
        rig.restart(None, end),
        rig.restart(Some((&image, at)), end),
        rig.restart_whole(&image, at, end),
    ];
    for rig in &mut again {
        assert_eq!(rig.core.format_level(), 2);
        assert_eq!(header(rig, "Q"), wanted);
    }
}

#[test]
fn what_has_no_group_and_no_delivery_time_is_written_as_at_level_1() {
    let logged = [1, 2].map(|level| {
        let mut rig = rig_at(level);
        let begun = rig.log.len();
        let past = Some(Time(rig.now.0));
        // A number counts in a group only, and what is due already is due at once.
        let sent = NewMessage { group_sequence: 9, deliver_at: past, ..persistent("a") };
        rig.put_with("Q", sent).unwrap();
        rig.consumer("Q", 1);
        let held = rig.dispatch();
        rig.settle(&held[0], Outcome::Accepted);
        rig.log.split_off(begun).into_iter().map(|record| record.bytes).collect::<Vec<_>>()
    });
    assert_eq!(logged[0], logged[1]);
}

#[test]
fn a_message_that_is_not_logged_has_a_group_and_a_delivery_time_too() {
    let mut rig = rig_at(2);
    let deliver_at = Some(Time(rig.now.0 + 1));
    let sent = NewMessage { group: GROUP, group_sequence: 1, deliver_at, ..message("a") };
    rig.put_with("Q", sent).unwrap();
    let known = header(&mut rig, "Q");
    assert_eq!((known.group, known.group_sequence, known.deliver_at), (GROUP, 1, deliver_at));
}

#[test]
fn a_message_that_moves_keeps_its_group_and_is_due_where_it_comes_to() {
    let mut rig = rig_at(2);
    let sent = grouped(&rig, "a");
    rig.put_with("Q", sent).unwrap();
    rig.consumer("Q", 1);
    let held = rig.dispatch();
    rig.settle(&held[0], Outcome::Rejected);
    let known = header(&mut rig, "DLQ");
    assert_eq!((known.group, known.group_sequence, known.deliver_at), (GROUP, 7, None));
}

#[test]
fn what_is_carried_forward_takes_no_id_of_a_body_from_level_2_on() {
    for (level, taken) in [(1, 1), (2, 0)] {
        let mut rig = rig_at(level);
        rig.put_persistent("Q", &long());
        let before = rig.core.next.body;
        carry(&mut rig);
        assert_eq!(rig.core.next.body - before, taken, "level {level}");
        assert_eq!(rig.core.bodies_in_progress().count(), 0);
        let end = rig.log.len();
        let mut again = rig.restart(None, end);
        assert_eq!((again.browse("Q"), again.shares()), (vec![long()], rig.shares()));
    }
}

#[test]
fn bodies_of_the_same_number_that_are_carried_and_that_are_new_do_not_meet() {
    let mut rig = rig_at(2);
    rig.put_persistent("Q", &long());
    // The next body has the number that the message has as its sequence.
    rig.core.next.body = rig.core.next.sequence - 1;
    rig.put_persistent("Q", "short");
    rig.put_persistent("Q", &long());
    carry(&mut rig);
    let end = rig.log.len();
    let mut again = rig.restart(None, end);
    assert_eq!(again.browse("Q"), [long(), "short".to_owned(), long()]);
}

#[test]
fn a_moved_message_stands_in_the_lane_that_its_queue_had_for_it_then() {
    let mut rig = rig_at(2);
    let urgent = NewMessage { priority: Some(9), ..persistent("urgent") };
    rig.put_with("Q", urgent).unwrap();
    rig.consumer("Q", 1);
    let held = rig.dispatch();
    rig.instant = false;
    rig.settle(&held[0], Outcome::Rejected);
    let fifo = LocalChanges { sequence: Some(DeliverySequence::Fifo), ..LocalChanges::default() };
    rig.alter("DLQ", &fifo);
    rig.sync();
    let live = header(&mut rig, "DLQ").order;
    let end = rig.log.len();
    let mut again = rig.restart(None, end);
    assert_eq!((live, header(&mut again, "DLQ").order), (9, 9));
}

/// A put that says that it is carried forward, of a message that nothing knows.
fn carried_stranger() -> Fact {
    let header = Header { persistent: true, put_at: Time(5), ..Header::default() };
    let body = Body::Log(BodyLocation { lsn: Lsn(7), bytes: 1 });
    let message = Box::new(Message { header, body, backout_count: 0, dead_letter: None });
    Fact::Put { queue: QueueId(1), sequence: MessageSequence(500), carried: true, message }
}

#[test]
fn an_unknown_message_that_is_carried_forward_has_ended_if_the_image_has_its_messages() {
    let mut rig = rig_at(2);
    rig.put_persistent("Q", "a");
    let image = rig.image();
    for (pages, depth) in [(Pages::Whole, 1), (Pages::Ignored, 1)] {
        let restored = QueueManager::restore(&image, Limits::default(), pages).unwrap();
        let mut core = restored.rules;
        let mut outputs = Outputs::default();
        core.replay(carried_stranger(), false, &mut outputs).unwrap();
        let skipped = pages == Pages::Whole;
        let found = core.queue_status("Q").unwrap().depth;
        assert_eq!(found, if skipped { depth } else { 1 }, "{pages:?}");
        assert_eq!(outputs.effects.is_empty(), skipped, "{pages:?}");
        assert_eq!(core.queue_status("Q").unwrap().totals.puts, 1, "it was counted before");
    }
}

#[test]
fn the_level_is_raised_once_and_never_lowered() {
    let mut rig = rig_at(1);
    rig.core.refuse_puts(Some(Refusal::LogFull));
    assert_eq!(
        rig.core.raise_level(FORMAT_LEVEL_UNASKED, &mut rig.decision),
        Err(Refusal::LogFull)
    );
    rig.core.refuse_puts(None);
    rig.instant = false;
    raise(&mut rig);
    assert_eq!(rig.core.format_level(), 1, "in force when it is applied");
    assert_eq!(
        rig.core.raise_level(FORMAT_LEVEL_UNASKED, &mut rig.decision),
        Ok(LevelRaise::OnItsWay)
    );
    assert!(rig.decision.facts.is_empty(), "it is on its way");
    rig.sync();
    assert_eq!((rig.core.format_level(), rig.last_facts.len()), (2, 1));
    assert_eq!(
        rig.core.raise_level(FORMAT_LEVEL_UNASKED, &mut rig.decision),
        Ok(LevelRaise::InForce)
    );
    assert!(rig.decision.facts.is_empty(), "nothing to say");
    let mut outputs = Outputs::default();
    rig.core.apply(rig.now, Fact::Level { level: 1 }, &mut outputs);
    assert_eq!(rig.core.format_level(), 2);
}

#[test]
fn the_bytes_of_a_record_say_to_which_level_it_raises_its_log() {
    let bytes = |fact: &Fact| {
        let mut bytes = Vec::new();
        encode(fact, true, &mut bytes);
        bytes
    };
    let mut level = bytes(&Fact::Level { level: 2 });
    assert_eq!(raises_to(&level), 2);
    assert_eq!(raises_to(&bytes(&Fact::Committed { operations: 1 })), 1);
    assert_eq!(raises_to(&[]), 1);
    // One of a later version.
    *level.last_mut().unwrap() = FORMAT_LEVEL + 1;
    assert_eq!(raises_to(&level), FORMAT_LEVEL);
}

/// `index_bytes_max` would bound less than half of it otherwise.
#[test]
fn what_messages_say_beside_their_group_counts_as_memory_of_the_index_while_it_is_here() {
    const MESSAGES: u64 = 64;
    let mut rig = rig_at(2);
    let index_bytes = |rig: &Rig| rig.core.paging_status().index_bytes;
    for _ in 0..MESSAGES {
        let said = grouped(&rig, "a");
        rig.put_with("Q", said).unwrap();
        rig.put_with("DLQ", persistent("a")).unwrap();
    }
    let blocks = rig.core.page_cache.census.here() as u64;
    let extras = rig.core.page_cache.census.extra_bytes();
    assert!((80..200).contains(&(extras / MESSAGES)), "{extras} bytes");
    let all = index_bytes(&rig);
    assert!(all > extras && (all - extras).is_multiple_of(blocks), "{all} bytes");
    rig.evict();
    assert!(rig.core.page_cache.census.extra_bytes() < extras / 4, "they left with their blocks");
    rig.browse("Q");
    assert_eq!(rig.core.page_cache.census.extra_bytes(), extras, "and came back with them");
    rig.core.audit();
}
