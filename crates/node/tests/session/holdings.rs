//! What a connection has open is its own: requests of others that name it.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{ConnectionId, ConsumerId, NewMessage, Refusal};
use towline_node::{
    ConsumerOpened, Input, LinkToken, ProducerId, ProducerOpened, PutTo, Request, Response,
    Terminus,
};
use towline_types::Payload;

use crate::rig::Rig;

const OWNER: ConnectionId = ConnectionId(77);
const OTHER: ConnectionId = ConnectionId(78);

fn ask(rig: &mut Rig, connection: ConnectionId, request: Request) -> Vec<Response> {
    let input = Input::Requests { connection, requests: &mut vec![request] };
    rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
    rig.out.routed.drain(..).map(|routed| routed.response).collect()
}

fn put(rig: &mut Rig, connection: ConnectionId, producer: ProducerId) -> Result<(), Refusal> {
    let content = Payload::from(Bytes::from_static(b"x"));
    let message = NewMessage { persistent: Some(false), content, ..NewMessage::default() };
    let target = PutTo::Producer(producer);
    let request = Request::Put { token: 1, target, message, unit: None, reply_wanted: true };
    match ask(rig, connection, request).pop() {
        Some(Response::Put { result, .. }) => result,
        other => panic!("not an answer to a put: {other:?}"),
    }
}

fn depth(rig: &Rig) -> u64 {
    rig.instance.status(rig.now, Status::default()).queues.iter().map(|queue| queue.depth).sum()
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.out.routed.clear();
    rig
}

fn producer(rig: &mut Rig) -> ProducerId {
    let terminus = Terminus::Queue("Q".into());
    let open = Request::OpenProducer { link: LinkToken(1), terminus };
    match ask(rig, OWNER, open).pop() {
        Some(Response::ProducerOpened { result: Ok(ProducerOpened { producer, .. }), .. }) => {
            producer
        }
        other => panic!("no producer: {other:?}"),
    }
}

fn consumer(rig: &mut Rig) -> ConsumerId {
    let open = Request::OpenConsumer {
        link: LinkToken(1),
        terminus: Terminus::Queue("Q".into()),
        browse: false,
        selector: None,
        exclusive: None,
    };
    match ask(rig, OWNER, open).pop() {
        Some(Response::ConsumerOpened { result: Ok(ConsumerOpened { consumer, .. }), .. }) => {
            consumer
        }
        other => panic!("no consumer: {other:?}"),
    }
}

#[test]
fn nobody_puts_to_or_closes_the_producer_of_another_connection() {
    let mut rig = rig();
    let producer = producer(&mut rig);
    assert!(matches!(put(&mut rig, OTHER, producer), Err(Refusal::Deleted(_))));
    assert_eq!(depth(&rig), 0);
    ask(&mut rig, OTHER, Request::CloseProducer { producer, keep_queue: false });
    assert_eq!(put(&mut rig, OWNER, producer), Ok(()));
    assert_eq!(depth(&rig), 1);
    ask(&mut rig, OWNER, Request::CloseProducer { producer, keep_queue: false });
    assert!(matches!(put(&mut rig, OWNER, producer), Err(Refusal::Deleted(_))));
}

#[test]
#[should_panic(expected = "is another connection's")]
fn nobody_grants_credit_to_the_consumer_of_another_connection() {
    let mut rig = rig();
    let consumer = consumer(&mut rig);
    ask(&mut rig, OTHER, Request::Credit { consumer, limit: 1, drain: false, flow: 1 });
}

#[test]
#[should_panic(expected = "is another connection's")]
fn nobody_closes_the_consumer_of_another_connection() {
    let mut rig = rig();
    let consumer = consumer(&mut rig);
    ask(&mut rig, OTHER, Request::CloseConsumer { consumer, lost: false, keep_queue: false });
}

#[test]
#[should_panic(expected = "is another connection's")]
fn nobody_settles_for_the_consumer_of_another_connection() {
    let mut rig = rig();
    let consumer = consumer(&mut rig);
    let settle = Request::Settle {
        consumer,
        sequence: towline_core::MessageSequence(1),
        outcome: towline_core::Outcome::Accepted,
        unit: None,
        annotations: None,
        settled: true,
        link: LinkToken(1),
        reply_wanted: false,
    };
    ask(&mut rig, OTHER, settle);
}
