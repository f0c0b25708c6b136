//! Puts of large messages: their bodies go to the log in pieces.

use towline_types::limits;

use super::rig::{CLIENT, Rig, message, persistent};
use crate::{Durability, Fact, LargePutId, PutTarget, Refusal, UnitId};

const CHUNKS: usize = 3;

fn large() -> String {
    "x".repeat(CHUNKS * limits::BODY_CHUNK_BYTES - 10)
}

fn queue() -> (Rig, PutTarget) {
    let mut rig = Rig::new();
    rig.define("Q");
    let target = rig.open_put("Q").unwrap();
    (rig, target)
}

fn begin(rig: &mut Rig, target: &PutTarget, unit: Option<UnitId>) -> Result<LargePutId, Refusal> {
    let message = persistent(&large());
    assert!(rig.core.is_large_put(rig.now, target, &message));
    rig.core.begin_large(rig.now, target, message, unit)
}

/// The next piece goes to the log. False when there is none left.
fn piece(rig: &mut Rig, id: LargePutId) -> bool {
    let found = rig.core.next_piece(id, &mut rig.decision);
    if found {
        rig.carry_out();
        assert_eq!((rig.last_durability, rig.last_facts.len()), (Durability::Lazy, 1));
    }
    rig.core.audit();
    found
}

fn finish(rig: &mut Rig, id: LargePutId) -> Result<(), Refusal> {
    let result = rig.core.finish_large(id, &mut rig.decision);
    rig.carry_out();
    rig.core.audit();
    result
}

#[test]
fn only_long_messages_that_are_logged_go_in_pieces() {
    let (rig, q) = queue();
    let content = "x".repeat(limits::PUT_AT_ONCE_BYTES_MAX);
    assert!(!rig.core.is_large_put(rig.now, &q, &persistent(&content)));
    assert!(rig.core.is_large_put(rig.now, &q, &persistent(&format!("{content}x"))));
    assert!(!rig.core.is_large_put(rig.now, &q, &message(&format!("{content}x"))));
}

#[test]
fn a_message_in_pieces_is_there_when_all_of_it_is_and_others_are_put_between() {
    let (mut rig, q) = queue();
    let id = begin(&mut rig, &q, None).unwrap();
    assert_eq!(rig.depth("Q"), 1, "its place is reserved");
    let mut pieces = 0;
    while piece(&mut rig, id) {
        pieces += 1;
        assert_eq!(rig.browse("Q").len(), pieces - 1);
        rig.put_persistent("Q", "between");
    }
    assert_eq!(pieces, CHUNKS);
    finish(&mut rig, id).unwrap();
    assert_eq!(rig.last_durability, Durability::Forced);
    let found = rig.browse("Q");
    assert_eq!((found.len(), found[CHUNKS] == large()), (CHUNKS + 1, true));
    let mut again = rig.restart(None, rig.log.len());
    assert!(again.browse("Q") == found);
    assert_eq!(again.stored, rig.stored);
    // Without its put none of it is left, with or without an image.
    let mut torn = rig.restart(None, rig.log.len() - 1);
    assert_eq!(torn.browse("Q"), ["between"; CHUNKS]);
    assert_eq!(torn.stored.len(), CHUNKS);
}

#[test]
fn an_image_between_two_pieces_has_the_first_ones() {
    let (mut rig, q) = queue();
    let id = begin(&mut rig, &q, None).unwrap();
    assert!(piece(&mut rig, id));
    let (image, before) = (rig.image(), rig.log.len());
    while piece(&mut rig, id) {}
    finish(&mut rig, id).unwrap();
    let mut again = rig.restart(Some((&image, before)), rig.log.len());
    assert!(again.browse("Q") == [large()]);
    let mut torn = rig.restart(Some((&image, before)), before);
    assert!(torn.browse("Q").is_empty() && torn.stored.is_empty());
}

#[test]
fn one_that_is_given_up_leaves_nothing() {
    for given in 0..=CHUNKS {
        let (mut rig, q) = queue();
        let id = begin(&mut rig, &q, None).unwrap();
        for _ in 0..given {
            assert!(piece(&mut rig, id));
        }
        rig.core.abandon_large(id, &mut rig.decision);
        rig.carry_out();
        let says_so = matches!(rig.last_facts[..], [Fact::Abandoned { bodies: 1, .. }]);
        assert!(says_so == (given > 0) || given == 0, "{:?}", rig.last_facts);
        rig.core.audit();
        assert_eq!((rig.depth("Q"), rig.stored.len()), (0, 0), "{given} pieces");
    }
}

#[test]
fn in_a_unit_of_work_it_comes_with_the_commit() {
    let (mut rig, q) = queue();
    let unit = rig.declare();
    rig.send(&q, persistent("before"), Some(unit)).unwrap();
    let id = begin(&mut rig, &q, Some(unit)).unwrap();
    while piece(&mut rig, id) {}
    finish(&mut rig, id).unwrap();
    rig.send(&q, persistent("behind"), Some(unit)).unwrap();
    assert_eq!((rig.browse("Q").len(), rig.depth("Q")), (0, 3));
    rig.core.audit();
    rig.discharge(unit, false).unwrap();
    assert!(rig.browse("Q") == ["before".to_owned(), large(), "behind".to_owned()]);
    rig.core.audit();
}

#[test]
fn in_a_unit_of_work_that_was_rolled_back_meanwhile_it_is_refused() {
    let (mut rig, q) = queue();
    let unit = rig.declare();
    let id = begin(&mut rig, &q, Some(unit)).unwrap();
    while piece(&mut rig, id) {}
    rig.now = rig.now + limits::UNIT_AGE_DEFAULT;
    rig.tick();
    assert!(matches!(finish(&mut rig, id), Err(Refusal::UnitTooOld { .. })));
    assert_eq!((rig.depth("Q"), rig.stored.len()), (0, 0));
    rig.disconnect(CLIENT, true);
    rig.core.audit();
}

#[test]
fn what_is_on_its_way_has_its_space_in_the_log() {
    let (mut rig, q) = queue();
    let bytes = large().len() as u64;
    rig.core.set_log_room(2 * bytes);
    assert_eq!(begin(&mut rig, &q, None), Err(Refusal::LogFull), "records take some too");
    rig.core.set_log_room(2 * bytes + 10_000);
    let id = begin(&mut rig, &q, None).unwrap();
    assert_eq!(rig.send(&q, persistent(&"x".repeat(10_000)), None), Err(Refusal::LogFull));
    rig.core.abandon_large(id, &mut rig.decision);
    rig.carry_out();
    rig.send(&q, persistent(&"x".repeat(10_000)), None).unwrap();
}
