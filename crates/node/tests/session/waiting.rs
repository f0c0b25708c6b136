//! What waits for the log, and in which order it is answered: requests straight to the instance.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{ConnectionId, Durability, Fact, NewMessage, UnitId};
use towline_node::{Input, Journal, LinkToken, NotAppended, PutTo, Request, Response, Terminus};
use towline_types::{BodyLocation, Lsn, Payload, Time};

use crate::log::MemoryLog;
use crate::rig::Rig;

pub(crate) const CLIENT: ConnectionId = ConnectionId(77);

pub(crate) fn put(token: u64, unit: Option<UnitId>) -> Request {
    let message = NewMessage {
        persistent: Some(true),
        priority: None,
        expires_at: None,
        correlation_hash: 0,
        message_id_hash: 0,
        content: Payload::from(Bytes::from_static(b"content")),
        envelope_bytes: 0,
        ..NewMessage::default()
    };
    Request::Put { token, target: PutTo::Name("Q".into()), message, unit, reply_wanted: true }
}

pub(crate) fn open_producer(queue: &str) -> Request {
    Request::OpenProducer { link: LinkToken(1), terminus: Terminus::Queue(queue.into()) }
}

fn open_consumer(queue: &str) -> Request {
    let terminus = Terminus::Queue(queue.into());
    let (link, browse, selector, exclusive) = (LinkToken(2), false, None, None);
    Request::OpenConsumer { link, terminus, browse, selector, exclusive }
}

pub(crate) fn admin(kind: &str, text: &str) -> Request {
    Request::Admin { token: 9, kind: kind.into(), text: text.into(), owner: true }
}

/// The names of the responses to a client that asks for this.
pub(crate) fn ask(rig: &mut Rig, journal: &dyn Journal, requests: Vec<Request>) -> Vec<String> {
    let mut requests = requests;
    let input = Input::Requests { connection: CLIENT, requests: &mut requests };
    rig.instance.step(rig.now, input, journal, &mut rig.out);
    answers(rig)
}

pub(crate) fn durable(rig: &mut Rig, journal: &dyn Journal, upto: Lsn) -> Vec<String> {
    rig.instance.step(rig.now, Input::Durable(upto), journal, &mut rig.out);
    answers(rig)
}

pub(crate) fn answers(rig: &mut Rig) -> Vec<String> {
    let name = |response: &Response| match response {
        Response::Put { result, .. } => format!("put {}", result.is_ok()),
        Response::ProducerOpened { result, .. } => format!("producer {}", result.is_ok()),
        Response::ConsumerOpened { result, .. } => format!("consumer {}", result.is_ok()),
        Response::Admin(_) => "administrator".to_owned(),
        Response::Declared { .. } => "declared".to_owned(),
        Response::Discharged { result, .. } => format!("discharged {}", result.is_ok()),
        other => panic!("not asked for: {other:?}"),
    };
    rig.out.routed.drain(..).map(|routed| name(&routed.response)).collect()
}

/// A log that takes no run of more facts than that.
struct Narrow<'a> {
    log: &'a MemoryLog,
    facts_max: Cell<usize>,
}

impl Journal for Narrow<'_> {
    fn append(&self, facts: &mut [Fact], durability: Durability) -> Result<Lsn, NotAppended> {
        if facts.len() > self.facts_max.get() {
            return Err(NotAppended::Full);
        }
        self.log.append(facts, durability)
    }

    fn room_for_puts(&self) -> u64 {
        u64::MAX
    }

    fn resident(&self, location: BodyLocation) -> Option<Bytes> {
        self.log.resident(location)
    }

    fn surroundings(&self, now: Time) -> Status {
        self.log.surroundings(now)
    }
}

pub(crate) fn with_queue() -> (Rig, MemoryLog) {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("P");
    let log = std::mem::take(&mut rig.log);
    log.held.set(true);
    rig.out.routed.clear();
    (rig, log)
}

/// A disk may be slow, and the answer says nothing of messages.
#[test]
fn links_and_figures_wait_for_no_message_that_is_on_its_way_to_the_log() {
    let (mut rig, log) = with_queue();
    assert!(ask(&mut rig, &log, vec![put(1, None)]).is_empty());
    assert_eq!(ask(&mut rig, &log, vec![open_producer("Q")]), ["producer true"]);
    assert_eq!(ask(&mut rig, &log, vec![open_consumer("Q")]), ["consumer true"]);
    for (kind, text) in [("status", ""), ("mqsc", "DISPLAY QLOCAL(*)"), ("mqsc", "DISPLAY CONN(*)")]
    {
        assert_eq!(ask(&mut rig, &log, vec![admin(kind, text)]), ["administrator"]);
    }
    assert_eq!(durable(&mut rig, &log, Lsn(log.tail.get())), ["put true"]);
}

/// A crash would take back what it says otherwise.
#[test]
fn an_open_link_and_a_list_say_that_the_objects_are_durable() {
    let (mut rig, log) = with_queue();
    for (command, opened) in
        [("DEFINE QLOCAL(R)", "producer true"), ("DELETE QLOCAL(P)", "producer false")]
    {
        let queue = if opened == "producer true" { "R" } else { "P" };
        assert!(ask(&mut rig, &log, vec![admin("mqsc", command)]).is_empty());
        let meanwhile = vec![open_producer(queue), admin("mqsc", "DISPLAY QLOCAL(*)")];
        assert!(ask(&mut rig, &log, meanwhile).is_empty(), "{command} is on its way");
        assert_eq!(ask(&mut rig, &log, vec![admin("status", "")]), ["administrator"], "figures");
        let tail = Lsn(log.tail.get());
        assert!(durable(&mut rig, &log, Lsn(tail.0 - 1)).is_empty());
        let answers = durable(&mut rig, &log, tail);
        assert_eq!(answers, ["administrator", opened, "administrator"]);
        assert_eq!(rig.instance.runs_pending(), 0);
    }
}

#[test]
fn nothing_overtakes_a_run_that_waits_for_space_in_the_log() {
    let (mut rig, log) = with_queue();
    let journal = Narrow { log: &log, facts_max: Cell::new(1) };
    let declare = Request::Declare { token: 1 };
    let mut requests = vec![declare];
    let input = Input::Requests { connection: CLIENT, requests: &mut requests };
    rig.instance.step(rig.now, input, &journal, &mut rig.out);
    let Some(Response::Declared { result: Ok(unit), .. }) =
        rig.out.routed.pop().map(|routed| routed.response)
    else {
        panic!("a unit of work is declared")
    };
    let staged = ask(&mut rig, &journal, vec![put(2, Some(unit)), put(3, Some(unit))]);
    assert_eq!(staged, ["put true", "put true"]);
    let discharge = Request::Discharge { token: 4, unit, fail: false };
    assert!(ask(&mut rig, &journal, vec![discharge]).is_empty(), "it waits for space");
    assert_eq!(ask(&mut rig, &journal, vec![open_producer("Q")]), ["producer true"]);
    assert!(ask(&mut rig, &journal, vec![admin("mqsc", "DELETE QLOCAL(P)")]).is_empty());
    let tail = Lsn(log.tail.get());
    assert!(durable(&mut rig, &journal, tail).is_empty(), "and what came behind it waits too");
    journal.facts_max.set(usize::MAX);
    rig.instance.step(rig.now, Input::Tick, &journal, &mut rig.out);
    let tail = Lsn(log.tail.get());
    assert_eq!(durable(&mut rig, &journal, tail), ["discharged true", "administrator"]);
}

#[test]
fn a_log_that_is_behind_refuses_nothing_and_has_only_what_is_logged_wait() {
    let (mut rig, log) = with_queue();
    // The first scan for expired messages is over.
    rig.instance.step(rig.now, Input::Tick, &log, &mut rig.out);
    log.behind.set(true);
    assert!(ask(&mut rig, &log, vec![put(1, None), put(2, None)]).is_empty());
    assert!(rig.instance.waits_for_log());
    assert_eq!(rig.instance.runs_pending(), 2);
    assert_ne!(rig.instance.next_tick(), Time::ZERO, "it is not polled");
    let unlogged = |token, name: &str| {
        let message = NewMessage { persistent: Some(false), ..NewMessage::default() };
        let target = PutTo::Name(name.into());
        Request::Put { token, target, message, unit: None, reply_wanted: true }
    };
    let answers = ask(&mut rig, &log, vec![unlogged(3, "Q"), unlogged(4, "P")]);
    assert_eq!(answers, ["put true", "put true"]);
    // What waits has its space in the log, and no other put gets it.
    log.bytes_max.set(Some(log.tail.get() + 3_000));
    assert_eq!(ask(&mut rig, &log, vec![put(5, None)]), ["put false"]);
    log.bytes_max.set(None);
    assert!(durable(&mut rig, &log, Lsn(log.tail.get())).is_empty());
    log.behind.set(false);
    rig.instance.step(rig.now, Input::LogCaughtUp, &log, &mut rig.out);
    assert!(!rig.instance.waits_for_log());
    let tail = Lsn(log.tail.get());
    assert_eq!(durable(&mut rig, &log, tail), ["put true", "put true"]);
}

/// A disk may stand still for as long as it likes, and messages expire meanwhile.
#[test]
fn nothing_that_no_client_asked_for_waits_behind_runs_that_wait() {
    let (mut rig, log) = with_queue();
    let expires_at = Some(rig.now + Duration::from_secs(1));
    let expiring = |token| match put(token, None) {
        Request::Put { token, target, message, unit, reply_wanted } => {
            let message = NewMessage { expires_at, ..message };
            Request::Put { token, target, message, unit, reply_wanted }
        }
        other => other,
    };
    ask(&mut rig, &log, (1..=1_000).map(expiring).collect());
    assert_eq!(durable(&mut rig, &log, Lsn(log.tail.get())).len(), 1_000);
    rig.instance.step(rig.now, Input::Tick, &log, &mut rig.out);
    log.behind.set(true);
    assert!(ask(&mut rig, &log, vec![put(1_001, None)]).is_empty());
    for _ in 0..10 {
        rig.now = rig.now + Duration::from_secs(100);
        rig.instance.step(rig.now, Input::Tick, &log, &mut rig.out);
        rig.instance.step(rig.now, Input::Work { units: &mut 10_000 }, &log, &mut rig.out);
    }
    assert_eq!(rig.instance.runs_pending(), 1, "the put alone");
    assert!(!rig.out.is_unfinished && !rig.instance.has_work());
    log.behind.set(false);
    rig.instance.step(rig.now, Input::LogCaughtUp, &log, &mut rig.out);
    rig.instance.step(rig.now, Input::Tick, &log, &mut rig.out);
    while rig.instance.has_work() {
        rig.instance.step(rig.now, Input::Work { units: &mut 10_000 }, &log, &mut rig.out);
    }
    assert_eq!(durable(&mut rig, &log, Lsn(log.tail.get())), ["put true"]);
    let status = rig.instance.status(rig.now, Status::default());
    let depths: Vec<u64> = status.queues.iter().map(|queue| queue.depth).collect();
    assert_eq!(depths.iter().sum::<u64>(), 1, "what expired went when it could");
}
