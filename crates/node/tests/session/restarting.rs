//! Which records a restart takes, record by record.

use bytes::Bytes;
use towline_core::{
    Body, BodyName, ConnectionId, Fact, LaterFormat, Limits, NewMessage, Pages, StoredPage, record,
};
use towline_node::{Input, Instance, LogPart, Outbound, PutTo, Request, Restart, RestartError};
use towline_types::{Lsn, PageRef, Payload, Time};

use super::log::MemoryLog;

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
    restart.new_term(Lsn(200));
    assert!(give(restart, 200, &committed, true));
    assert_eq!(restart.facts, 1);
}

/// A queue manager with one message, as an image, its page, and the record of a get of it.
struct OnAPage {
    image: Vec<u8>,
    page: Vec<u8>,
    got: Fact,
}

impl OnAPage {
    fn new() -> OnAPage {
        let (log, mut out) = (MemoryLog::default(), Outbound::default());
        let mut instance = Instance::new("QM1", Limits::default(), EXTENT_BYTES);
        instance.define_default_queue(Time(1), "Q", "", &log, &mut out).unwrap();
        let content = Payload::from(Bytes::from_static(b"content"));
        let put = Request::Put {
            token: 0,
            target: PutTo::Name("Q".into()),
            message: NewMessage { persistent: Some(true), content, ..NewMessage::default() },
            unit: None,
            reply_wanted: true,
        };
        let enters = Request::Connected {
            container: "c".into(),
            user: None,
            address: String::new(),
            sole: false,
        };
        let requests = &mut vec![enters, put];
        let connection = ConnectionId(1);
        let step = Input::Requests { connection, requests };
        instance.step(Time(1), Input::Durable(Lsn(log.tail.get())), &log, &mut out);
        instance.step(Time(1), step, &log, &mut out);
        instance.step(Time(1), Input::Durable(Lsn(log.tail.get())), &log, &mut out);
        let (at, bytes) = log.records.borrow().last().cloned().unwrap();
        let Fact::Put { queue, sequence, .. } = record::decode(&bytes, at).unwrap().0 else {
            panic!("the newest record is not the put")
        };
        let plan = instance.plan_image().unwrap();
        let mut page = Vec::new();
        let draft = plan.jobs()[0].encode(&mut page).unwrap();
        let at = PageRef { unit: 7, bytes: u32::try_from(page.len()).unwrap(), checksum: 0 };
        let stored: Vec<Option<StoredPage>> = vec![Some(draft.stored_at(at))];
        OnAPage { image: plan.encode(&stored), page, got: Fact::Got { queue, sequence } }
    }

    /// What a restart says of the get.
    fn restarts(&self) -> Result<(), RestartError> {
        let image = Some(&self.image[..]);
        let begun = Restart::begin("QM1", Limits::default(), EXTENT_BYTES, image, Pages::Whole);
        let page = Bytes::from(self.page.clone());
        begun?.record(Lsn(IMAGE_AT), &encoded(&self.got, true), &|_| Some(page.clone()))
    }
}

/// To rebuild from the log would empty the page file, and with that what a later version wrote.
#[test]
fn a_page_of_a_later_version_is_refused_and_not_taken_for_damaged() {
    let mut stands = OnAPage::new();
    stands.restarts().unwrap();
    stands.page[0] = 0;
    assert!(matches!(stands.restarts(), Err(RestartError::Page { page, .. }) if page.unit == 7));
    stands.page[0] = 3;
    let refused = stands.restarts().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the page at unit 7 has format version 3, this program reads up to 2"
    );
    let RestartError::Newer { part: LogPart::Page(_), found } = refused else {
        panic!("{refused}")
    };
    assert_eq!(found, LaterFormat::Version(3));
}

/// No image could hold it: it would wait for its message, which no run after it has.
#[test]
fn a_run_with_a_piece_of_a_message_that_is_carried_forward_and_without_the_message_is_refused() {
    let mut restart = Restart::begin("QM1", Limits::default(), EXTENT_BYTES, None, Pages::Ignored);
    let restart = restart.as_mut().unwrap();
    let chunk = || Body::Incoming(Payload::from(Bytes::from_static(b"piece")));
    let of = |body| Fact::BodyChunk { body, index: 0, chunk: chunk() };
    let own = of(BodyName::Own(towline_core::BodyId(1)));
    assert!(give(restart, 100, &own, true), "its put may come in a later run");
    let carried = of(BodyName::Carried(towline_core::MessageSequence(1)));
    let refused = restart.record(Lsn(200), &encoded(&carried, true), &|_| None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the record at <0:0:0:200>: the log contradicts itself: a body is carried forward without its \
         message"
    );
}
