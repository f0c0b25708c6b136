//! A large unit of work is committed in parts: what is asked for between them, and what waits.

use std::time::Duration;

use bytes::Bytes;
use towline_admin::status::Status;
use towline_amqp::LinkId;
use towline_core::{CommitId, ConnectionId, Fact, MessageSequence, NewMessage, QueueId, UnitId};
use towline_node::{Input, PutTo, Request, Response};
use towline_types::{FORMAT_LEVEL_UNASKED, Lsn, Payload, limits};

use crate::rig::{Client, Rig};
use crate::text::message;

const LARGE: ConnectionId = ConnectionId(77);
const OTHER: ConnectionId = ConnectionId(78);
const MANY: u64 = limits::COMMITTED_AT_ONCE_MAX as u64 + 200;

fn put(token: u64, unit: Option<UnitId>) -> Request {
    let content = Payload::from(Bytes::from_static(b"x"));
    let message = NewMessage { persistent: Some(true), content, ..NewMessage::default() };
    let reply_wanted = unit.is_none();
    Request::Put { token, target: PutTo::Name("Q".into()), message, unit, reply_wanted }
}

/// The tokens of the puts and commits that are answered in this step.
fn step(rig: &mut Rig, input: Input<'_>) -> Vec<u64> {
    rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
    let answers = rig.out.routed.drain(..).map(|routed| match routed.response {
        Response::Put { token, result: Ok(()), .. }
        | Response::Discharged { token, result: Ok(()), .. } => token,
        other => panic!("not asked for: {other:?}"),
    });
    answers.collect()
}

fn ask(rig: &mut Rig, connection: ConnectionId, requests: Vec<Request>) -> Vec<u64> {
    let mut requests = requests;
    step(rig, Input::Requests { connection, requests: &mut requests })
}

fn work(rig: &mut Rig) -> Vec<u64> {
    step(rig, Input::Work { units: &mut 1 })
}

fn durable(rig: &mut Rig) -> Vec<u64> {
    let upto = Lsn(rig.log.durable.get());
    step(rig, Input::Durable(upto))
}

/// At format level 2.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.instance.raise_format_level(rig.now, FORMAT_LEVEL_UNASKED, &rig.log, &mut rig.out).unwrap();
    durable(&mut rig);
    rig.out.routed.clear();
    rig
}

fn depth(rig: &Rig) -> (u64, u64) {
    let status = rig.instance.status(rig.now, Status::default());
    let queue = status.queues.iter().find(|queue| queue.name == "Q").unwrap();
    (queue.depth, queue.uncommitted)
}

/// A unit with so many puts.
fn unit_of(rig: &mut Rig, connection: ConnectionId, puts: u64) -> UnitId {
    let requests = &mut vec![Request::Declare { token: 9 }];
    let input = Input::Requests { connection, requests };
    rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
    let declared = rig.out.routed.drain(..).next().unwrap().response;
    let Response::Declared { result: Ok(unit), .. } = declared else { panic!("{declared:?}") };
    let puts = (0..puts).map(|token| put(token, Some(unit))).collect();
    assert!(ask(rig, connection, puts).is_empty());
    unit
}

fn commit(token: u64, unit: UnitId) -> Request {
    Request::Discharge { token, unit, fail: false }
}

fn finish(rig: &mut Rig) -> Vec<u64> {
    let mut answers = Vec::new();
    while rig.instance.has_work() {
        answers.extend(work(rig));
        answers.extend(durable(rig));
    }
    answers
}

#[test]
fn others_have_their_turn_between_the_parts_and_nothing_of_its_client_overtakes_it() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, LARGE, MANY);
    assert!(ask(&mut rig, LARGE, vec![commit(1, unit), put(2, None)]).is_empty());
    assert!(rig.out.is_unfinished);
    for token in 10..15 {
        assert!(work(&mut rig).is_empty());
        assert!(ask(&mut rig, OTHER, vec![put(token, None)]).is_empty());
        assert_eq!(durable(&mut rig), [token]);
        assert_eq!(depth(&rig).1, MANY, "nothing of it has happened");
    }
    assert_eq!(finish(&mut rig), [1, 2]);
    assert_eq!(depth(&rig), (MANY + 6, 0));
    let rig = rig.restart();
    assert_eq!(depth(&rig), (MANY + 6, 0));
}

#[test]
fn a_commit_goes_on_when_its_client_is_lost_and_what_was_asked_behind_it_is_lost_too() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, LARGE, MANY);
    ask(&mut rig, LARGE, vec![commit(1, unit)]);
    work(&mut rig);
    ask(&mut rig, LARGE, vec![put(3, None)]);
    assert!(ask(&mut rig, LARGE, vec![Request::Disconnect { lost: true }]).is_empty());
    assert_eq!(depth(&rig).1, MANY, "not in that step");
    assert_eq!(finish(&mut rig), [1]);
    assert_eq!(depth(&rig), (MANY, 0));
}

#[test]
fn a_client_that_ends_in_order_ends_behind_its_commit_and_what_it_asked_for() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, LARGE, MANY);
    ask(&mut rig, LARGE, vec![commit(1, unit), put(3, None)]);
    work(&mut rig);
    assert!(ask(&mut rig, LARGE, vec![Request::Disconnect { lost: false }]).is_empty());
    assert_eq!(depth(&rig).1, MANY, "not in that step");
    assert_eq!(rig.instance.requests_waiting(LARGE), 2);
    assert_eq!(finish(&mut rig), [1, 3]);
    assert_eq!(depth(&rig), (MANY + 1, 0));
    assert_eq!(rig.instance.requests_waiting(LARGE), 0);
}

/// Whether a connection that wants to be the only one of its container id is let in.
fn enters(rig: &mut Rig, connection: ConnectionId) -> bool {
    let (container, address) = ("one".to_owned(), String::new());
    let request = Request::Connected { container, user: None, address, sole: true };
    let input = Input::Requests { connection, requests: &mut vec![request] };
    rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
    match rig.out.routed.pop().map(|routed| routed.response) {
        Some(Response::Connected { entered }) => entered,
        other => panic!("not asked for: {other:?}"),
    }
}

#[test]
fn a_client_that_ends_in_order_may_come_back_under_its_container_id_before_its_commit_is_decided() {
    let mut rig = rig();
    assert!(enters(&mut rig, LARGE) && !enters(&mut rig, OTHER));
    let unit = unit_of(&mut rig, LARGE, MANY);
    ask(&mut rig, LARGE, vec![commit(1, unit)]);
    work(&mut rig);
    assert!(!enters(&mut rig, OTHER), "its connection is open");
    ask(&mut rig, LARGE, vec![Request::Disconnect { lost: false }]);
    assert!(enters(&mut rig, OTHER));
    assert_eq!(finish(&mut rig), [1]);
    assert!(!enters(&mut rig, ConnectionId(79)), "the id is given up once");
}

#[test]
fn a_commit_that_is_cut_off_never_happened() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, LARGE, MANY);
    ask(&mut rig, LARGE, vec![commit(1, unit)]);
    for _ in 0..5 {
        work(&mut rig);
        durable(&mut rig);
    }
    assert!(rig.instance.runs_pending() > 0, "an orderly stop waits for it");
    let rig = rig.restart();
    assert_eq!(depth(&rig), (0, 0));
}

/// Works in slices until nothing is left: how many it took, and behind how many there was an
/// answer.
fn slices(rig: &mut Rig) -> (usize, usize) {
    let (mut slices, mut answered) = (0, 0);
    while rig.instance.has_work() {
        slices += 1;
        let mut answers = step(rig, Input::Work { units: &mut { 256 } });
        answers.extend(durable(rig));
        if !answers.is_empty() {
            answered = slices;
        }
    }
    (slices, answered)
}

const DEEP: u64 = 10_000;

/// A queue of which two consumers want nothing, and their client.
fn searchers(rig: &mut Rig) -> (Client, [LinkId; 2]) {
    rig.mqsc(&format!("DEFINE QLOCAL('D') MAXDEPTH({DEEP})"));
    let mut client = rig.connect();
    let selectors = ["color = 'blue'", "color = 'red'"];
    let links = selectors.map(|selector| rig.selecting_receiver(&mut client, "D", selector));
    let puts = (0..DEEP).map(|token| {
        let content = message("x").property("color", "green").encode();
        let message = NewMessage { persistent: Some(false), content, ..NewMessage::default() };
        let target = PutTo::Name("D".into());
        Request::Put { token, target, message, unit: None, reply_wanted: false }
    });
    ask(rig, OTHER, puts.collect());
    slices(rig);
    (client, links)
}

#[test]
fn a_commit_does_not_wait_for_the_end_of_a_search() {
    let mut rig = rig();
    let (mut client, [first, second]) = searchers(&mut rig);
    assert!(rig.one_step(&mut client, first));
    let (of_search, _) = slices(&mut rig);
    let unit = unit_of(&mut rig, LARGE, MANY);
    assert!(rig.one_step(&mut client, second));
    ask(&mut rig, LARGE, vec![commit(1, unit)]);
    let (of_both, answered) = slices(&mut rig);
    assert!(answered < of_search, "behind {answered} slices; the search alone takes {of_search}");
    assert!(of_both < of_search + answered, "{of_both}: the search does not wait either");
}

#[test]
fn what_clients_leave_of_their_half_of_a_slice_is_used() {
    const UNITS: u32 = 14_000;
    let mut rig = rig();
    let (mut client, [first, _]) = searchers(&mut rig);
    let unit = unit_of(&mut rig, LARGE, MANY);
    assert!(rig.one_step(&mut client, first));
    ask(&mut rig, LARGE, vec![commit(1, unit)]);
    let mut left = UNITS;
    step(&mut rig, Input::Work { units: &mut left });
    assert!(left > 0 && u64::from(UNITS - left) > DEEP, "{left} are left");
}

#[test]
fn an_image_waits_for_a_commit_and_the_next_commit_for_the_image() {
    let mut rig = rig();
    let first = unit_of(&mut rig, LARGE, MANY);
    let second = unit_of(&mut rig, OTHER, MANY);
    ask(&mut rig, LARGE, vec![commit(1, first)]);
    work(&mut rig);
    durable(&mut rig);
    assert!(rig.instance.plan_image().is_none(), "within a commit");
    ask(&mut rig, OTHER, vec![commit(2, second), put(3, None)]);
    assert_eq!(finish(&mut rig), [1]);
    assert_eq!(depth(&rig), (2 * MANY, MANY), "the image is first");
    assert!(rig.instance.plan_image().is_some());
    step(&mut rig, Input::Tick);
    assert_eq!(finish(&mut rig), [2, 3]);
    assert_eq!(depth(&rig), (2 * MANY + 1, 0));
}

#[test]
fn an_image_that_is_not_tried_again_holds_no_commit_for_long() {
    let mut rig = rig();
    let first = unit_of(&mut rig, LARGE, MANY);
    let second = unit_of(&mut rig, OTHER, MANY);
    ask(&mut rig, LARGE, vec![commit(1, first)]);
    work(&mut rig);
    durable(&mut rig);
    assert!(rig.instance.plan_image().is_none());
    ask(&mut rig, OTHER, vec![commit(2, second)]);
    // Its client may go meanwhile.
    ask(&mut rig, OTHER, vec![Request::Disconnect { lost: false }]);
    assert_eq!(finish(&mut rig), [1]);
    step(&mut rig, Input::Tick);
    assert!(!rig.instance.has_work() && rig.instance.next_tick() <= rig.now);
    rig.now = rig.now + Duration::from_secs(3);
    step(&mut rig, Input::Tick);
    assert_eq!(finish(&mut rig), [2]);
    assert_eq!(depth(&rig), (2 * MANY, 0));
}

/// Half way in a full log it would hold off the image that frees space, and wait for that space.
#[test]
fn a_commit_goes_to_its_end_when_others_begin_to_use_the_space_that_is_kept_for_it() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, LARGE, MANY);
    rig.log.bytes_max.set(Some(rig.log.tail.get() + (4 << 20)));
    assert!(ask(&mut rig, LARGE, vec![commit(1, unit)]).is_empty());
    work(&mut rig);
    let tail = rig.log.tail.get();
    ask(&mut rig, OTHER, vec![]);
    assert_eq!(rig.log.tail.get(), tail, "there is space: it waits for its turn");
    // What ends messages is logged in any case.
    rig.log.bytes_max.set(Some(tail + 1_000));
    ask(&mut rig, OTHER, vec![]);
    rig.log.full.set(true);
    assert_eq!(durable(&mut rig), [1]);
    assert_eq!(depth(&rig), (MANY, 0));
    finish(&mut rig);
    assert!(rig.instance.plan_image().is_some());
    rig.log.full.set(false);
    assert_eq!(depth(&rig.restart()), (MANY, 0));
}

/// An administrator, or another program, has filled the disk: nothing is lost, and when there is
/// space again all goes on.
#[test]
fn a_commit_that_a_full_disk_stops_half_way_goes_on_when_there_is_space() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, LARGE, MANY);
    assert!(ask(&mut rig, LARGE, vec![commit(1, unit)]).is_empty());
    work(&mut rig);
    durable(&mut rig);
    rig.log.full.set(true);
    work(&mut rig);
    assert!(!rig.instance.has_work());
    assert!(rig.instance.plan_image().is_none(), "within a commit");
    assert!(rig.instance.next_tick() <= rig.now, "it is tried again");
    rig.log.full.set(false);
    assert!(step(&mut rig, Input::Tick).is_empty());
    assert_eq!(finish(&mut rig), [1]);
    assert!(rig.instance.plan_image().is_some());
    assert_eq!(depth(&rig), (MANY, 0));
}

#[test]
fn an_image_that_is_tried_again_and_again_holds_no_commit_for_long() {
    let mut rig = rig();
    let first = unit_of(&mut rig, LARGE, MANY);
    let second = unit_of(&mut rig, OTHER, MANY);
    ask(&mut rig, LARGE, vec![commit(1, first)]);
    work(&mut rig);
    durable(&mut rig);
    assert!(rig.instance.plan_image().is_none());
    ask(&mut rig, OTHER, vec![commit(2, second)]);
    for _ in 0..99 {
        rig.now = rig.now + Duration::from_millis(20);
        assert!(rig.instance.plan_image().is_none(), "within the first commit");
        step(&mut rig, Input::Tick);
    }
    assert!(rig.instance.next_tick() <= rig.now, "the second one waits");
    rig.now = rig.now + Duration::from_millis(20);
    step(&mut rig, Input::Tick);
    assert!(rig.instance.next_tick() > rig.now, "it does not wait any more");
    assert!(rig.instance.plan_image().is_none(), "and not for the next try either");
    assert_eq!(finish(&mut rig), [1, 2]);
    assert_eq!(depth(&rig), (2 * MANY, 0));
    assert!(rig.instance.plan_image().is_some());
}

/// The log begins within a part, since the extent before was reclaimed.
#[test]
fn a_rebuild_that_begins_within_a_part_keeps_what_is_left_of_it_aside() {
    let extent_bytes = 1 << 20;
    let mut rig = rig();
    let image = {
        let plan = rig.instance.plan_image().unwrap();
        let mut bytes = plan.encode(&[]);
        bytes[..8].copy_from_slice(&10_000_u64.to_le_bytes());
        bytes
    };
    let begin = || {
        towline_node::Restart::begin(
            "QMT",
            towline_core::Limits::default(),
            extent_bytes,
            Some(&image),
            towline_core::Pages::Ignored,
        )
        .unwrap()
    };
    let give = |restart: &mut towline_node::Restart, at: u64, fact: &Fact, last| {
        let mut bytes = Vec::new();
        towline_core::record::encode(fact, last, &mut bytes);
        restart.record(Lsn(at), &bytes, &|_| None).unwrap();
    };
    let (id, first) = (CommitId(5), MessageSequence(1));
    let queue = QueueId(queue_id(&rig));
    let put = Fact::Put {
        queue,
        sequence: MessageSequence(7),
        carried: false,
        message: Box::new(towline_core::Message {
            header: towline_core::Header { persistent: true, ..towline_core::Header::default() },
            body: towline_core::Body::Memory(Bytes::from_static(b"x")),
            backout_count: 0,
            dead_letter: None,
        }),
    };
    let end = Fact::Part { commit: id, operations: 0 };
    for (completes, depth_wanted) in [(false, 0), (true, 1)] {
        let mut restart = begin();
        give(&mut restart, 100, &put, false);
        give(&mut restart, 200, &end, true);
        if completes {
            let completed = Fact::Completed { commit: id, operations: 9, first };
            give(&mut restart, 300, &completed, true);
        }
        let instance = restart.finish(Lsn(20_000));
        let status = instance.status(rig.now, Status::default());
        assert_eq!(status.queues.iter().map(|queue| queue.depth).sum::<u64>(), depth_wanted);
    }
}

fn queue_id(rig: &Rig) -> u32 {
    let records = rig.log.records.borrow();
    let mut ids = records.iter().filter_map(|(at, bytes)| {
        match towline_core::record::decode(bytes, *at).unwrap().0 {
            Fact::Defined { definition } => match *definition {
                towline_core::object::Definition::Local(local) if local.name == "Q" => {
                    Some(local.id.0)
                }
                _ => None,
            },
            _ => None,
        }
    });
    ids.next_back().unwrap()
}
