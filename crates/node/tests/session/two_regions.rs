//! Replies that wait for the other region: which do, and what stands meanwhile.

use towline_admin::status::Status;
use towline_core::NewMessage;
use towline_node::{Input, PutTo, Request, Response};
use towline_types::Lsn;

use crate::log::MemoryLog;
use crate::rig::Rig;
use crate::waiting::{CLIENT, admin, answers, ask, durable, open_producer, put, with_queue};

/// Replies wait, and the other region has all so far.
fn waiting() -> (Rig, MemoryLog) {
    let (mut rig, log) = with_queue();
    rig.instance.wait_for_region();
    let upto = Lsn(log.tail.get());
    assert_eq!(rig.instance.answered_alone_upto(), Some(upto), "by the process before");
    assert!(region_has(&mut rig, &log, upto).is_empty());
    (rig, log)
}

fn region_has(rig: &mut Rig, log: &MemoryLog, upto: Lsn) -> Vec<String> {
    rig.instance.step(rig.now, Input::RegionHas(upto), log, &mut rig.out);
    answers(rig)
}

fn depth(rig: &Rig) -> u64 {
    let status = rig.instance.status(rig.now, Status::default());
    status.queues.iter().map(|queue| queue.depth).sum()
}

#[test]
fn a_put_is_answered_when_the_other_region_has_it_and_stands_on_its_queue_before() {
    let (mut rig, log) = waiting();
    assert!(ask(&mut rig, &log, vec![put(1, None), put(2, None)]).is_empty());
    let tail = Lsn(log.tail.get());
    assert!(durable(&mut rig, &log, tail).is_empty());
    assert_eq!(depth(&rig), 2);
    assert_eq!(rig.instance.region_waits().waiting, 2);
    assert_eq!(rig.instance.runs_pending(), 2, "an orderly stop waits for the answers");
    assert_eq!(region_has(&mut rig, &log, Lsn(tail.0 - 1)), ["put true"]);
    assert_eq!(region_has(&mut rig, &log, tail), ["put true"]);
    assert_eq!((rig.instance.region_waits().answered, rig.instance.runs_pending()), (2, 0));
}

#[test]
fn what_the_other_region_has_is_not_answered_before_this_group_has_it() {
    let (mut rig, log) = waiting();
    assert!(ask(&mut rig, &log, vec![put(1, None)]).is_empty());
    let tail = Lsn(log.tail.get());
    assert!(region_has(&mut rig, &log, tail).is_empty());
    assert_eq!(durable(&mut rig, &log, tail), ["put true"]);
}

#[test]
fn a_commit_waits_and_what_is_not_persistent_a_link_and_a_list_do_not() {
    let (mut rig, log) = waiting();
    let mut requests = vec![Request::Declare { token: 1 }];
    let input = Input::Requests { connection: CLIENT, requests: &mut requests };
    rig.instance.step(rig.now, input, &log, &mut rig.out);
    let Some(Response::Declared { result: Ok(unit), .. }) =
        rig.out.routed.pop().map(|routed| routed.response)
    else {
        panic!("a unit of work is declared")
    };
    assert_eq!(ask(&mut rig, &log, vec![put(2, Some(unit))]), ["put true"], "it is staged");
    let discharge = Request::Discharge { token: 3, unit, fail: false };
    assert!(ask(&mut rig, &log, vec![discharge]).is_empty());
    assert!(durable(&mut rig, &log, Lsn(log.tail.get())).is_empty());
    assert_eq!(depth(&rig), 1);

    let message = NewMessage { persistent: Some(false), ..NewMessage::default() };
    let target = PutTo::Name("P".into());
    let volatile = Request::Put { token: 4, target, message, unit: None, reply_wanted: true };
    assert_eq!(ask(&mut rig, &log, vec![volatile]), ["put true"]);
    assert_eq!(ask(&mut rig, &log, vec![open_producer("Q")]), ["producer true"]);
    let list = admin("mqsc", "DISPLAY QLOCAL(*)");
    assert_eq!(ask(&mut rig, &log, vec![list]), ["administrator"]);
    assert_eq!(region_has(&mut rig, &log, Lsn(log.tail.get())), ["discharged true"]);
}

#[test]
fn a_change_of_objects_is_answered_when_the_other_region_has_it() {
    let (mut rig, log) = waiting();
    assert!(ask(&mut rig, &log, vec![admin("mqsc", "DEFINE QLOCAL(R)")]).is_empty());
    let tail = Lsn(log.tail.get());
    assert!(ask(&mut rig, &log, vec![open_producer("R")]).is_empty(), "it is on its way");
    assert_eq!(durable(&mut rig, &log, tail), ["producer true"]);
    assert_eq!(region_has(&mut rig, &log, tail), ["administrator"]);
    // One that is durable here by the time that it is answered waits as well.
    log.held.set(false);
    assert!(ask(&mut rig, &log, vec![admin("mqsc", "DEFINE QLOCAL(S)")]).is_empty());
    let tail = Lsn(log.tail.get());
    assert!(durable(&mut rig, &log, tail).is_empty());
    assert_eq!(region_has(&mut rig, &log, tail), ["administrator"]);
}

#[test]
fn replies_that_wait_no_more_go_and_those_after_them_wait_again_when_told() {
    let (mut rig, log) = waiting();
    assert!(ask(&mut rig, &log, vec![put(1, None)]).is_empty());
    let first = Lsn(log.tail.get());
    assert!(durable(&mut rig, &log, first).is_empty());
    assert_eq!(region_has(&mut rig, &log, Lsn(u64::MAX)), ["put true"]);
    assert_eq!(rig.instance.answered_alone_upto(), None);
    assert!(ask(&mut rig, &log, vec![put(2, None)]).is_empty());
    let second = Lsn(log.tail.get());
    assert_eq!(durable(&mut rig, &log, second), ["put true"], "alone");
    assert!(region_has(&mut rig, &log, first).is_empty());
    assert_eq!(rig.instance.answered_alone_upto(), Some(second));
    assert!(ask(&mut rig, &log, vec![put(3, None)]).is_empty());
    assert!(durable(&mut rig, &log, Lsn(log.tail.get())).is_empty(), "and not alone any more");
}

#[test]
fn a_client_that_is_gone_leaves_no_reply_behind() {
    let (mut rig, log) = waiting();
    assert!(ask(&mut rig, &log, vec![put(1, None)]).is_empty());
    assert!(durable(&mut rig, &log, Lsn(log.tail.get())).is_empty());
    assert!(ask(&mut rig, &log, vec![Request::Disconnect { lost: true }]).is_empty());
    assert_eq!(rig.instance.region_waits().waiting, 0);
    assert!(region_has(&mut rig, &log, Lsn(log.tail.get())).is_empty());
    assert_eq!(depth(&rig), 1);
}
