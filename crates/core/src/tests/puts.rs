//! Puts: what is refused, what is reserved, what is logged.

use bytes::Bytes;
use towline_types::{Payload, limits};

use super::rig::{CLIENT, Rig, message, persistent};
use crate::command::LocalChanges;
use crate::object::DeliverySequence;
use crate::{Body, Durability, Fact, Limits, NewMessage, Refusal};

#[test]
fn a_persistent_put_is_forced_and_visible_only_when_durable() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.consumer("Q", 10);
    rig.instant = false;
    rig.put_persistent("Q", "a");
    assert_eq!(rig.last_durability, Durability::Forced);
    assert!(rig.delivered().is_empty());
    assert_eq!(rig.status("Q").in_flight, 1);
    rig.sync();
    assert_eq!(rig.delivered(), ["a"]);
    rig.core.audit();
}

#[test]
fn a_non_persistent_put_needs_no_log() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.instant = false;
    rig.put("Q", "a");
    assert_eq!(rig.last_durability, Durability::Memory);
    assert!(!rig.last_behind);
    assert_eq!(rig.browse("Q"), ["a"]);
    assert_eq!(rig.core.memory_bytes(), 1);
}

#[test]
fn a_non_persistent_put_does_not_overtake_an_undurable_one() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("OTHER");
    rig.instant = false;
    rig.put_persistent("Q", "a");
    rig.put("Q", "b");
    assert!(rig.last_behind);
    rig.put("OTHER", "x");
    assert!(!rig.last_behind);
    assert!(rig.browse("Q").is_empty());
    rig.sync();
    assert_eq!(rig.browse("Q"), ["a", "b"]);
}

#[test]
fn put_beyond_maxdepth_is_refused_and_counts_what_is_in_flight() {
    let mut rig = Rig::new();
    rig.define_with("Q", LocalChanges { depth_max: Some(2), ..LocalChanges::default() }).unwrap();
    rig.instant = false;
    rig.put_persistent("Q", "a");
    rig.put_persistent("Q", "b");
    let full = Refusal::QueueFull { queue: "Q".to_owned(), depth_max: 2 };
    assert_eq!(rig.put_with("Q", persistent("c")), Err(full));
    rig.sync();
    let delivery = rig.consumer("Q", 1);
    let got = rig.dispatch();
    rig.settle(&got[0], crate::Outcome::Accepted);
    assert_eq!(rig.depth("Q"), 2, "a get counts when it is durable");
    rig.sync();
    rig.put_persistent("Q", "c");
    rig.close(delivery, false);
    rig.core.audit();
}

#[test]
fn a_message_longer_than_maxmsgl_is_refused() {
    let mut rig = Rig::new();
    let changes = LocalChanges { message_bytes_max: Some(3), ..LocalChanges::default() };
    rig.define_with("Q", changes).unwrap();
    rig.put("Q", "abc");
    let refused = rig.put_with("Q", message("abcd")).unwrap_err();
    assert!(matches!(refused, Refusal::MessageTooLong { bytes: 4, bytes_max: 3, .. }));
    assert!(refused.to_string().contains("MAXMSGL(3) of queue 'Q'"), "{refused}");
}

#[test]
fn maxmsgl_counts_the_body_and_what_is_around_it_only_beyond_64_kib() {
    let mut rig = Rig::new();
    rig.define("Q");
    let changes = LocalChanges { message_bytes_max: Some(3), ..LocalChanges::default() };
    rig.alter("Q", &changes);
    let around =
        |content: &str, envelope_bytes: u64| NewMessage { envelope_bytes, ..message(content) };
    assert!(rig.put_with("Q", around("xxxxabc", 4)).is_ok(), "a body of exactly MAXMSGL bytes");
    assert!(rig.put_with("Q", around("xxxxabcd", 4)).is_err(), "one more");
    let long = "x".repeat(usize::try_from(limits::ENVELOPE_BYTES_MAX).unwrap());
    assert!(rig.put_with("Q", around(&long, long.len() as u64)).is_ok());
    let longer = long + "xxxx";
    assert!(rig.put_with("Q", around(&longer, longer.len() as u64)).is_err());
}

#[test]
fn a_message_too_long_for_the_queue_manager_names_it() {
    let mut rig = Rig::with(Limits { message_bytes_max: 3, ..Limits::default() });
    rig.define("Q");
    let refused = rig.put_with("Q", message("abcd")).unwrap_err();
    assert!(matches!(refused, Refusal::MessageTooLong { queue: None, bytes: 4, bytes_max: 3 }));
    assert!(refused.to_string().contains("maxmsgl = 3 of the queue manager"), "{refused}");
}

#[test]
fn put_disabled_refuses_the_open_and_each_put_of_an_open_target() {
    let mut rig = Rig::new();
    rig.define("Q");
    let target = rig.open_put("Q").unwrap();
    rig.alter("Q", &LocalChanges { put_enabled: Some(false), ..LocalChanges::default() });
    let inhibited = Refusal::PutInhibited("Q".to_owned());
    assert_eq!(rig.send(&target, message("a"), None), Err(inhibited.clone()));
    assert_eq!(rig.open_put("Q").unwrap_err(), inhibited);
}

#[test]
fn absent_persistence_and_priority_come_from_the_first_object_on_the_path() {
    let mut rig = Rig::new();
    let changes = LocalChanges {
        default_persistent: Some(true),
        default_priority: Some(2),
        ..LocalChanges::default()
    };
    rig.define_with("Q", changes).unwrap();
    super::objects::define_alias(&mut rig, "A", "Q", Some(7));
    let plain = NewMessage { content: Payload::from(Bytes::from("x")), ..NewMessage::default() };
    rig.put_with("Q", plain.clone()).unwrap();
    rig.put_with("A", plain).unwrap();
    rig.consumer("Q", 10);
    let got = rig.dispatch();
    assert_eq!((got[0].priority, got[0].persistent), (7, false), "the alias's defaults");
    assert_eq!((got[1].priority, got[1].persistent), (2, true), "the queue's defaults");
}

#[test]
fn higher_priorities_come_first_and_equal_ones_in_order() {
    let mut rig = Rig::new();
    rig.define("Q");
    for (content, priority) in [("a", 1), ("b", 9), ("c", 1), ("d", 12), ("e", 0)] {
        rig.put_with("Q", NewMessage { priority: Some(priority), ..message(content) }).unwrap();
    }
    assert_eq!(rig.browse("Q"), ["b", "d", "a", "c", "e"]);
}

#[test]
fn fifo_queues_ignore_priority_and_altering_affects_later_arrivals_only() {
    let mut rig = Rig::new();
    let fifo = DeliverySequence::Fifo;
    let changes = LocalChanges { sequence: Some(fifo), ..LocalChanges::default() };
    rig.define_with("Q", changes).unwrap();
    let put = |rig: &mut Rig, content: &str, priority: u8| {
        rig.put_with("Q", NewMessage { priority: Some(priority), ..persistent(content) }).unwrap();
    };
    put(&mut rig, "a", 1);
    put(&mut rig, "b", 9);
    let by_priority = Some(DeliverySequence::Priority);
    rig.alter("Q", &LocalChanges { sequence: by_priority, ..LocalChanges::default() });
    put(&mut rig, "c", 9);
    put(&mut rig, "d", 0);
    assert_eq!(rig.browse("Q"), ["c", "a", "b", "d"]);
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), ["c", "a", "b", "d"], "also after a restart");
    again.consumer("Q", 9);
    let priorities: Vec<u8> = again.dispatch().iter().map(|delivery| delivery.priority).collect();
    assert_eq!(priorities, [9, 1, 9, 0], "the original value is kept");
}

#[test]
fn non_persistent_bodies_are_bounded_and_given_back() {
    let mut rig = Rig::with(Limits { memory_bytes_max: 5, ..Limits::default() });
    rig.define("Q");
    rig.put("Q", "abc");
    let full = Refusal::MemoryFull { bytes_max: 5 };
    assert_eq!(rig.put_with("Q", message("def")), Err(full));
    rig.put_persistent("Q", "a persistent one is not bounded by memory");
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    rig.settle(&got[0], crate::Outcome::Accepted);
    assert_eq!(rig.core.memory_bytes(), 0);
    rig.put("Q", "def");
    rig.core.audit();
}

#[test]
fn a_large_body_goes_ahead_in_chunks() {
    let mut rig = Rig::new();
    rig.define("Q");
    let length = limits::BODY_CHUNK_BYTES * 2 + 7;
    let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut content = Payload::from(Bytes::copy_from_slice(&bytes[..100_000]));
    content.push(Bytes::copy_from_slice(&bytes[100_000..]));
    rig.put_with("Q", NewMessage { content, ..persistent("") }).unwrap();
    assert_eq!(rig.last_facts.len(), 4, "three chunks and the put, in one run");
    assert!(matches!(&rig.last_facts[3], Fact::Put { message, .. }
        if matches!(message.body, Body::Announced { chunks: 3, .. })));
    assert_eq!(rig.stored.len(), 3);
    let mut again = rig.restart(None, rig.log.len());
    for rig in [&mut rig, &mut again] {
        rig.consumer("Q", 1);
        let got = rig.dispatch();
        assert_eq!(rig.cold.content(&got[0].body), bytes);
        rig.settle(&got[0], crate::Outcome::Accepted);
        assert!(rig.stored.is_empty(), "all chunks are given back");
        rig.core.audit();
    }
}

#[test]
fn refused_puts_leave_nothing_behind() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.core.refuse_puts(Some(Refusal::LogFull));
    assert_eq!(rig.put_with("Q", persistent("a")), Err(Refusal::LogFull));
    assert_eq!(rig.put_with("Q", message("a")), Err(Refusal::LogFull));
    assert_eq!(rig.depth("Q"), 0);
    rig.core.refuse_puts(None);
    rig.put("Q", "a");
    rig.core.audit();
}

#[test]
fn open_puts_are_counted_and_closed_once() {
    let mut rig = Rig::new();
    rig.define("Q");
    let first = rig.open_put("Q").unwrap();
    let second = rig.open_put("Q").unwrap();
    assert_eq!(rig.status("Q").open_output, 2);
    rig.core.close_put(&first);
    rig.core.close_put(&second);
    rig.core.close_put(&second);
    assert_eq!(rig.status("Q").open_output, 0);
    rig.open_put("Q").unwrap();
    rig.disconnect(CLIENT, true);
    assert_eq!(rig.status("Q").open_output, 0);
    rig.core.audit();
}
