//! What an observer sees of an instance: its queues as a browser shows them, its depths, its part
//! in the group.
//!
//! Not here: what is right.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex as Plain;
use towline_engine::Door;
use towline_node::{LinkToken, Request, Response, Terminus};
use towline_os::task::{Handle, sleep, timeout};
use towline_os::thread::Builder;
use towline_os::time::since_boot;

use super::content;
use crate::view::Row;

/// The queue of messages that could not be read: the default configuration names it.
pub(crate) const DEAD_LETTERS: &str = "DEV.DEAD.LETTER.QUEUE";

/// What was seen of the queues: messages, and depths by the status.
pub(crate) type SeenQueues = Result<(Vec<Row>, Vec<(String, u64)>), String>;

/// Where a look puts what it saw.
pub(crate) type SeenSlot = Arc<Plain<Option<SeenQueues>>>;

/// A browser that is not answered for so long has found a fault.
const PATIENCE: Duration = Duration::from_secs(20);
const CREDIT: u64 = 1_000_000;
/// How often it is looked whether clients are gone, and what they asked for is carried out.
const SETTLING: Duration = Duration::from_millis(5);
/// How often it is looked whether the queues are defined.
const DEFINE_AGAIN: Duration = Duration::from_millis(200);

/// What is in all these queues, and in the one of dead letters, and their depths. Not before what
/// was decided is applied: a put counts in the depth from its decision, cannot be browsed before it
/// is durable, and no link waits for it to open
/// (docs/adr/2026-11-26-answers-wait-for-what-they-say.md).
pub(crate) fn see(door: &Arc<Door>, queues: &[String]) -> SeenQueues {
    if !becomes_true(|| door.look(|instance| instance.runs_pending()) == 0) {
        return Err("what was decided is not applied".to_owned());
    }
    let rows = browse(door, queues)?;
    Ok((rows, depths(door)))
}

fn browse(door: &Arc<Door>, queues: &[String]) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let dead_letters = DEAD_LETTERS.to_owned();
    for queue in queues.iter().chain([&dead_letters]) {
        let mut viewer = DoorSession::new(door);
        viewer.ask(vec![
            Request::Connected {
                container: "viewer".to_owned(),
                user: None,
                address: String::new(),
                sole: false,
            },
            Request::OpenConsumer {
                link: LinkToken(0),
                terminus: Terminus::Queue(queue.clone()),
                browse: true,
                selector: None,
                exclusive: None,
            },
        ]);
        let opened = viewer.until(|response| match response {
            Response::ConsumerOpened { result, .. } => Some(result),
            _ => None,
        })?;
        // A queue that is not there has no messages.
        if let Ok(opened) = opened {
            let consumer = opened.consumer;
            viewer.ask(vec![Request::Credit { consumer, limit: CREDIT, drain: true, flow: 1 }]);
            while let Some(delivery) = viewer.until(|response| match response {
                Response::Deliver(delivery) => Some(Some(delivery)),
                Response::Drained { .. } => Some(None),
                _ => None,
            })? {
                let content = content::of(door, &delivery)
                    .map_err(|error| format!("body {:?} cannot be read: {error}", delivery.body))?;
                let Some(content) = content else { continue };
                rows.push(Row {
                    queue: queue.clone(),
                    sequence: delivery.sequence.0,
                    priority: delivery.priority,
                    persistent: delivery.persistent,
                    backouts: delivery.backout_count,
                    // A copy: a part of what was read keeps all of it.
                    content: Bytes::copy_from_slice(&content),
                });
            }
        }
        viewer.leave();
    }
    Ok(rows)
}

/// Defines the queues of the clients, and again as long as one is missing: a full disk refuses
/// them.
pub(crate) fn define(door: &Arc<Door>, queues: &[String]) {
    ask_for(door, queues);
    let (door, queues) = (Arc::clone(door), queues.to_vec());
    let again = move || {
        loop {
            Handle::current().block_on(sleep(DEFINE_AGAIN));
            let there = depths(&door);
            if queues.iter().all(|queue| there.iter().any(|(name, _)| name == queue)) {
                return;
            }
            ask_for(&door, &queues);
        }
    };
    drop(Builder::new().name("define".to_owned()).spawn(again));
}

fn ask_for(door: &Arc<Door>, queues: &[String]) {
    let text: String = queues.iter().map(|queue| format!("DEFINE QLOCAL('{queue}')\n")).collect();
    let viewer = DoorSession::new(door);
    viewer.ask(vec![Request::Admin { token: 0, kind: "mqsc".into(), text, owner: true }]);
    viewer.leave();
}

/// Asks for an administration request; the JSON of its answer.
pub(crate) fn administer(door: &Arc<Door>, kind: &str, text: String) -> Result<String, String> {
    let mut viewer = DoorSession::new(door);
    viewer.ask(vec![Request::Admin { token: 0, kind: kind.into(), text, owner: true }]);
    let answer = viewer.until(|response| match response {
        Response::Admin(reply) => Some(reply.json),
        _ => None,
    });
    viewer.leave();
    answer
}

/// Waits until the instance has noticed that all clients are gone: what they held is in its queue
/// again then.
pub(crate) fn until_clients_are_gone(door: &Arc<Door>) {
    becomes_true(|| door.status().connections == 0);
}

/// Waits for it. False: it was not so for too long.
fn becomes_true(holds: impl Fn() -> bool) -> bool {
    let began = since_boot();
    while !holds() {
        if since_boot() - began >= PATIENCE {
            return false;
        }
        Handle::current().block_on(sleep(SETTLING));
    }
    true
}

/// Depths by the status.
fn depths(door: &Arc<Door>) -> Vec<(String, u64)> {
    door.status().queues.into_iter().map(|queue| (queue.name, queue.depth)).collect()
}

/// A connection of which each step is waited for.
pub(crate) struct DoorSession<'a> {
    door: &'a Arc<Door>,
    id: towline_core::ConnectionId,
    outbox: Arc<towline_engine::Outbox>,
    waiting: VecDeque<Response>,
    patience: Duration,
}

impl DoorSession<'_> {
    fn new(door: &Arc<Door>) -> DoorSession<'_> {
        DoorSession::patient(door, PATIENCE)
    }

    /// One that waits so long for each answer, at most.
    pub(crate) fn patient(door: &Arc<Door>, patience: Duration) -> DoorSession<'_> {
        let (id, outbox) = door.connect();
        DoorSession { door, id, outbox, waiting: VecDeque::new(), patience }
    }

    pub(crate) fn ask(&self, mut requests: Vec<Request>) {
        self.door.step(self.door.clock().now(), self.id, &mut requests);
    }

    pub(crate) fn until<T>(
        &mut self,
        mut wanted: impl FnMut(Response) -> Option<T>,
    ) -> Result<T, String> {
        loop {
            while let Some(response) = self.waiting.pop_front() {
                if let Some(found) = wanted(response) {
                    return Ok(found);
                }
            }
            let (outbox, waiting) = (&self.outbox, &mut self.waiting);
            let came = poll_fn(|context| {
                outbox.take(waiting, context.waker());
                if waiting.is_empty() { Poll::Pending } else { Poll::Ready(()) }
            });
            let came = Handle::current().block_on(timeout(self.patience, came));
            came.map_err(|_| "a browser was not answered".to_owned())?;
        }
    }

    pub(crate) fn leave(self) {
        self.door.disconnect(self.id, false);
    }
}
