//! Which records a restart takes, record by record.

use towline_core::{Fact, Limits, Pages, record};
use towline_node::{Instance, Restart};
use towline_types::Lsn;

const EXTENT_BYTES: u64 = 1 << 20;
const IMAGE_AT: u64 = 10_000;

fn encoded(fact: &Fact, last: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(fact, last, &mut bytes);
    bytes
}

fn give(restart: &mut Restart, at: u64, fact: &Fact, last: bool) -> bool {
    restart.record(Lsn(at), &encoded(fact, last), &|_| None).is_ok()
}

/// An empty instance's image that speaks up to `IMAGE_AT`.
fn image() -> Vec<u8> {
    let mut instance = Instance::new("QM1", Limits::default(), EXTENT_BYTES);
    let mut bytes = instance.plan_image().unwrap().encode(&[]);
    bytes[..8].copy_from_slice(&IMAGE_AT.to_le_bytes());
    bytes
}

fn begun(trust: Pages) -> Restart {
    Restart::begin("QM1", Limits::default(), EXTENT_BYTES, Some(&image()), trust).unwrap()
}

#[test]
fn the_first_record_behind_an_image_is_applied_and_the_last_one_in_it_is_not() {
    let mut restart = begun(Pages::Whole);
    assert!(restart.is_whole());
    let committed = Fact::Committed { operations: 1 };
    for (at, facts) in [(IMAGE_AT - 60, 0), (IMAGE_AT, 1), (IMAGE_AT + 60, 2)] {
        assert!(give(&mut restart, at, &committed, true));
        assert_eq!(restart.facts, facts, "at {at}");
    }
}

#[test]
fn what_an_image_knows_already_is_not_judged_again_when_its_messages_come_from_the_log() {
    let mut restart = begun(Pages::Ignored);
    assert!(!restart.is_whole());
    let undefined = Fact::Undefined { name: "GONE".into() };
    assert!(give(&mut restart, IMAGE_AT - 1, &undefined, true), "the image knows the outcome");
    assert!(!give(&mut restart, IMAGE_AT, &undefined, true), "this one contradicts it");
}

#[test]
fn a_run_that_a_leader_did_not_finish_is_gone_with_its_term() {
    let mut restart = Restart::begin("QM1", Limits::default(), EXTENT_BYTES, None, Pages::Ignored);
    let restart = restart.as_mut().unwrap();
    let committed = Fact::Committed { operations: 1 };
    assert!(give(restart, 100, &committed, false));
    restart.new_term();
    assert!(give(restart, 200, &committed, true));
    assert_eq!(restart.facts, 1);
}
