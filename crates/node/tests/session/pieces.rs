//! A large message goes to the log in pieces: what is asked for between them.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{ConnectionId, NewMessage};
use towline_node::{Input, PutTo, Request, Response};
use towline_types::{Payload, limits};

use crate::rig::Rig;

const LARGE: ConnectionId = ConnectionId(77);
const OTHER: ConnectionId = ConnectionId(78);
/// In pieces.
const BYTES: usize = 8 * limits::BODY_CHUNK_BYTES;

fn put(token: u64, bytes: usize, persistent: bool) -> Request {
    let content = Payload::from(Bytes::from(vec![b'x'; bytes]));
    let message = NewMessage { persistent: Some(persistent), content, ..NewMessage::default() };
    Request::Put { token, target: PutTo::Name("Q".into()), message, unit: None, reply_wanted: true }
}

/// The tokens of the puts that are answered in this step.
fn step(rig: &mut Rig, input: Input<'_>) -> Vec<u64> {
    rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
    let answers = rig.out.routed.drain(..).map(|routed| match routed.response {
        Response::Put { token, result: Ok(()), .. } => token,
        other => panic!("not asked for: {other:?}"),
    });
    answers.collect()
}

fn ask(rig: &mut Rig, connection: ConnectionId, requests: Vec<Request>) -> Vec<u64> {
    let mut requests = requests;
    step(rig, Input::Requests { connection, requests: &mut requests })
}

fn durable(rig: &mut Rig) -> Vec<u64> {
    let upto = towline_types::Lsn(rig.log.durable.get());
    step(rig, Input::Durable(upto))
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.out.routed.clear();
    rig
}

fn records(rig: &Rig) -> usize {
    rig.log.records.borrow().len()
}

fn depth(rig: &Rig) -> u64 {
    let status = rig.instance.status(rig.now, Status::default());
    status.queues.iter().find(|queue| queue.name == "Q").unwrap().depth
}

#[test]
fn others_have_their_turn_between_the_pieces_and_nothing_of_its_client_overtakes_it() {
    let mut rig = rig();
    let before = records(&rig);
    let asked = vec![put(1, BYTES, true), put(2, 1, false), put(3, 1, true)];
    assert!(ask(&mut rig, LARGE, asked).is_empty());
    assert!(ask(&mut rig, LARGE, vec![put(4, 1, false)]).is_empty());
    assert_eq!(records(&rig), before, "a step of the client logs none of it");
    assert!(rig.out.is_unfinished);
    for pieces in 1..=8 {
        assert!(step(&mut rig, Input::Work { units: &mut 1 }).is_empty());
        assert_eq!(records(&rig), before + 2 * pieces - 1, "a piece a slice");
        let token = 10 + pieces as u64;
        assert!(ask(&mut rig, OTHER, vec![put(token, 1, true)]).is_empty());
        assert_eq!(durable(&mut rig), [token]);
    }
    let mut answers = Vec::new();
    while rig.instance.has_work() {
        answers.extend(step(&mut rig, Input::Work { units: &mut 1 }));
        answers.extend(durable(&mut rig));
    }
    assert_eq!(answers, [1, 2, 3, 4]);
}

#[test]
fn a_client_that_is_lost_in_the_middle_leaves_nothing_of_its_message() {
    let mut rig = rig();
    ask(&mut rig, LARGE, vec![put(1, BYTES, true), put(2, 1, true), put(3, BYTES, true)]);
    step(&mut rig, Input::Work { units: &mut 1 });
    assert!(ask(&mut rig, LARGE, vec![Request::Disconnect { lost: true }]).is_empty());
    durable(&mut rig);
    assert!(!rig.instance.has_work());
    assert_eq!(depth(&rig), 1, "the short one was complete");
}

/// The commit came behind a message of which only a part came to the log.
#[test]
fn a_client_that_is_lost_in_the_middle_of_a_unit_leaves_nothing_of_the_unit() {
    for pieces in [0, 1, 8] {
        let mut rig = rig();
        let declare = Request::Declare { token: 9 };
        let requests = &mut vec![declare];
        let input = Input::Requests { connection: LARGE, requests };
        rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
        let declared = rig.out.routed.drain(..).next().unwrap().response;
        let Response::Declared { result: Ok(unit), .. } = declared else { panic!("{declared:?}") };
        let within = |request| match request {
            Request::Put { token, target, message, reply_wanted, .. } => {
                Request::Put { token, target, message, unit: Some(unit), reply_wanted }
            }
            other => other,
        };
        let (short, long) = (within(put(1, 1, true)), within(put(2, BYTES, true)));
        let commit = Request::Discharge { token: 3, unit, fail: false };
        assert!(ask(&mut rig, LARGE, vec![long, commit]).is_empty());
        let mut short = vec![short];
        let input = Input::Requests { connection: LARGE, requests: &mut short };
        rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
        for _ in 0..pieces {
            step(&mut rig, Input::Work { units: &mut 1 });
        }
        let requests = &mut vec![Request::Disconnect { lost: true }];
        let input = Input::Requests { connection: LARGE, requests };
        rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
        rig.out.routed.clear();
        let upto = towline_types::Lsn(rig.log.durable.get());
        rig.instance.step(rig.now, Input::Durable(upto), &rig.log, &mut rig.out);
        assert_eq!(depth(&rig), 0, "{pieces} pieces");
        assert!(!rig.instance.has_work());
    }
}

#[test]
fn credit_that_is_sent_again_and_again_behind_a_large_message_takes_no_memory() {
    let mut rig = rig();
    ask(&mut rig, LARGE, vec![put(1, BYTES, true)]);
    let consumer = towline_core::ConsumerId(1);
    let credit = |limit| Request::Credit { consumer, limit, drain: false, flow: 0 };
    ask(&mut rig, LARGE, (0..1_000).map(credit).collect());
    assert_eq!(rig.instance.requests_waiting(LARGE), 1);
}

#[test]
fn so_much_waits_behind_a_large_message_and_its_client_goes_on_when_all_is_done() {
    let mut rig = rig();
    ask(&mut rig, LARGE, vec![put(0, BYTES, true)]);
    let most = limits::REQUESTS_WAITING_MAX as u64;
    ask(&mut rig, LARGE, (1..most).map(|token| put(token, 1, false)).collect());
    assert!(!rig.instance.has_enough_of(LARGE));
    ask(&mut rig, LARGE, vec![put(most, 1, false)]);
    assert!(rig.instance.has_enough_of(LARGE) && !rig.instance.has_enough_of(OTHER));
    let mut answers = Vec::new();
    while rig.instance.has_work() {
        assert!(rig.out.caught_up.is_empty());
        answers.extend(step(&mut rig, Input::Work { units: &mut 1 }));
        answers.extend(durable(&mut rig));
    }
    assert_eq!(rig.out.caught_up, [LARGE]);
    assert!(!rig.instance.has_enough_of(LARGE));
    assert!(answers.into_iter().eq(0..=most), "in order, and none is lost");
}

#[test]
fn what_a_client_sent_before_it_closed_is_all_there() {
    let mut rig = rig();
    ask(&mut rig, LARGE, vec![put(1, BYTES, true), put(2, 1, true), put(3, BYTES, true)]);
    step(&mut rig, Input::Work { units: &mut 1 });
    ask(&mut rig, LARGE, vec![Request::Disconnect { lost: false }]);
    assert_eq!(durable(&mut rig), [1, 2, 3]);
    assert!(!rig.instance.has_work());
    assert_eq!(depth(&rig), 3);
}

#[test]
fn no_piece_goes_to_a_log_that_is_behind() {
    let mut rig = rig();
    ask(&mut rig, LARGE, vec![put(1, BYTES, true)]);
    rig.log.behind.set(true);
    let before = records(&rig);
    step(&mut rig, Input::Work { units: &mut 1_000 });
    assert!(!rig.out.is_unfinished && !rig.instance.has_work(), "one piece waits");
    assert_eq!(records(&rig), before);
    rig.log.behind.set(false);
    step(&mut rig, Input::LogCaughtUp);
    assert!(rig.out.is_unfinished);
    assert_eq!(records(&rig), before + 1);
    let mut answers = Vec::new();
    while rig.instance.has_work() {
        step(&mut rig, Input::Work { units: &mut 10_000 });
        answers.extend(durable(&mut rig));
    }
    assert_eq!(answers, [1]);
}

/// Pieces that the log may have and its disk not.
const MOST: usize = 2 * 1024 * 1024 / limits::BODY_CHUNK_BYTES;

/// What another client puts stands behind them in the log: it waits as long as they are written.
#[test]
fn a_piece_waits_until_those_before_it_are_written_however_much_time_there_is() {
    let mut rig = rig();
    let before = records(&rig);
    ask(&mut rig, LARGE, vec![put(1, BYTES, true)]);
    step(&mut rig, Input::Work { units: &mut 100_000 });
    assert_eq!(records(&rig) - before, MOST);
    assert!(!rig.out.is_unfinished && !rig.instance.has_work() && !rig.instance.has_work_for_log());
    assert!(rig.instance.runs_pending() > 0, "and it is not forgotten");
    ask(&mut rig, OTHER, vec![put(2, BYTES / 2, true), put(3, 1, true)]);
    assert_eq!(records(&rig) - before, MOST);
    assert!(durable(&mut rig).is_empty());
    assert!(rig.out.is_unfinished && rig.instance.has_work_for_log());
    let mut answers = Vec::new();
    while rig.instance.has_work() {
        let from = records(&rig);
        step(&mut rig, Input::Work { units: &mut 100_000 });
        assert!(records(&rig) - from <= MOST + 3, "of both clients together");
        answers.extend(durable(&mut rig));
    }
    answers.sort_unstable();
    assert_eq!(answers, [1, 2, 3]);
}
