//! A client's connection, as the instance has it: requests that arrive step the instance behind its
//! door; what it answers goes back to the client. What an answer promises counts from the moment at
//! which it leaves the process.
//!
//! Not here: AMQP, sockets, the client.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use towline_core::{ConnectionId, Delivery, Refusal};
use towline_engine::{Door, Outbox};
use towline_log::LogError;
use towline_node::{Request, Response};
use towline_os::task::Handle;

use super::content;
use crate::client::Answer;
use crate::history::{History, Speaker};

/// Which client, and of which instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) client: usize,
    pub(crate) speaker: Speaker,
    /// Number of the connection in the history.
    pub(crate) number: u64,
    /// The queue that the client gets from.
    pub(crate) get_from: usize,
}

/// What notes that an instance answers. None of its locks is held while a coroutine waits.
pub(crate) trait Witness {
    fn history(&self) -> &Mutex<History>;
    /// Answers on their way: client, connection, answer.
    fn answers(&self) -> &Mutex<VecDeque<(usize, u64, Answer)>>;
    /// A rule is broken: the run ends.
    fn fail(&self, what: String);
    /// A body cannot be read. Whether that follows from what was done to the disk: then the message
    /// is set aside, as the daemon does; otherwise a rule is broken.
    fn unreadable(&self, ends: &Ends, delivery: &Delivery, error: &LogError) -> bool;
    /// Something was answered.
    fn on_acknowledged(&self, ends: &Ends, answer: &Answer);
}

enum Turn {
    Requests(Vec<Request>),
    Responses,
    Lost,
}

/// Serves the connection until the client leaves it.
pub(crate) fn serve(
    door: &Arc<Door>,
    ends: Ends,
    mut requests: UnboundedReceiver<Vec<Request>>,
    witness: &dyn Witness,
) {
    let (id, outbox) = door.connect();
    let handle = Handle::current();
    let mut responses = VecDeque::new();
    loop {
        match handle.block_on(next(&outbox, &mut requests, &mut responses)) {
            Turn::Requests(requests) => {
                if let Some(lost) = step(door, id, requests) {
                    return leave(door, id, lost, ends, (&outbox, responses), witness);
                }
            }
            Turn::Lost => return leave(door, id, true, ends, (&outbox, responses), witness),
            Turn::Responses => {
                while let Some(response) = responses.pop_front() {
                    if let Some(response) = answer(door, ends, response, witness) {
                        responses.push_front(response);
                        return leave(door, id, true, ends, (&outbox, responses), witness);
                    }
                }
            }
        }
    }
}

/// The connection ends. What was under way to its client goes back to the queue, and comes to
/// others behind what they have got meanwhile.
fn leave(
    door: &Door,
    id: ConnectionId,
    lost: bool,
    ends: Ends,
    (outbox, mut responses): (&Outbox, VecDeque<Response>),
    witness: &dyn Witness,
) {
    witness.history().lock().leaves(ends.number, ends.speaker);
    door.disconnect(id, lost);
    outbox.take(&mut responses, Waker::noop());
    for response in responses {
        if let Response::Deliver(delivery) = response
            && let Some(content) = content::for_sure(door, &delivery)
        {
            witness.history().lock().was_under_way(&content);
        }
    }
    witness.history().lock().left(ends.number);
}

async fn next(
    outbox: &Outbox,
    requests: &mut UnboundedReceiver<Vec<Request>>,
    responses: &mut VecDeque<Response>,
) -> Turn {
    poll_fn(|context| {
        outbox.take(responses, context.waker());
        if !responses.is_empty() {
            return Poll::Ready(Turn::Responses);
        }
        let came = requests.poll_recv(context);
        came.map(|came| came.map_or(Turn::Lost, Turn::Requests))
    })
    .await
}

/// Whether the client leaves, and how.
fn step(door: &Door, id: ConnectionId, mut requests: Vec<Request>) -> Option<bool> {
    let leaves = requests.iter().find_map(|request| match request {
        Request::Disconnect { lost } => Some(*lost),
        _ => None,
    });
    requests.retain(|request| !matches!(request, Request::Disconnect { .. }));
    if !requests.is_empty() {
        door.step(door.clock().now(), id, &mut requests);
    }
    leaves
}

/// Yields what was not answered when the connection cannot go on: its disk did not answer for a
/// body, or the message was set aside meanwhile.
fn answer(door: &Door, ends: Ends, response: Response, witness: &dyn Witness) -> Option<Response> {
    let content = match &response {
        Response::Deliver(delivery) => match content::of(door, delivery) {
            Ok(Some(content)) => Some(content),
            Ok(None) | Err(LogError::Io { .. }) => {
                let closed = (ends.client, ends.number, Answer::Closed);
                witness.answers().lock().push_back(closed);
                return Some(response);
            }
            Err(error) => {
                if witness.unreadable(&ends, delivery, &error) {
                    let (queue, sequence) = (delivery.queue, delivery.sequence);
                    door.unreadable(queue, sequence, Some(delivery.consumer), &error);
                    let closed = (ends.client, ends.number, Answer::Closed);
                    witness.answers().lock().push_back(closed);
                }
                return Some(response);
            }
        },
        _ => None,
    };
    // Nothing is awaited from here on: what is promised is on its way to the client.
    let promised = promise(&mut witness.history().lock(), ends, response, content);
    match promised {
        Ok(Some(answer)) => {
            witness.on_acknowledged(&ends, &answer);
            witness.answers().lock().push_back((ends.client, ends.number, answer));
        }
        Ok(None) => {}
        Err(broken) => witness.fail(format!("instance {}: {broken}", ends.speaker.node)),
    }
    None
}

fn promise(
    history: &mut History,
    ends: Ends,
    response: Response,
    content: Option<Bytes>,
) -> Result<Option<Answer>, String> {
    let number = |token: u64| usize::try_from(token).unwrap_or(usize::MAX);
    let speaker = ends.speaker;
    Ok(Some(match response {
        Response::ProducerOpened { result, .. } => {
            Answer::Producer(result.ok().map(|opened| opened.producer))
        }
        Response::ConsumerOpened { result, .. } => {
            Answer::Consumer(result.ok().map(|opened| opened.consumer))
        }
        Response::Put { token, result, .. } => {
            history.answers(ends.number, Some(number(token)), None);
            history.put_answered(speaker, number(token), result.is_ok())?;
            match result {
                Err(Refusal::MemoryFull { bytes_max }) => Answer::NoMemory(bytes_max),
                _ => Answer::Done(result.is_ok()),
            }
        }
        Response::Settled { link, result, .. } => {
            history.get_answered(speaker, number(link.0), result.is_ok())?;
            Answer::Done(result.is_ok())
        }
        Response::Declared { token, result } => Answer::Declared(number(token), result.ok()),
        Response::Discharged { token, result, .. } => {
            history.answers(ends.number, None, Some(number(token)));
            history.discharge_answered(speaker, number(token), result.is_ok())?;
            Answer::Done(result.is_ok())
        }
        Response::Deliver(delivery) => {
            let content = content.unwrap_or_default();
            let message = history.delivered(speaker, ends.number, ends.get_from, &content)?;
            Answer::Delivered(message, delivery.sequence)
        }
        Response::Connected { .. }
        | Response::Drained { .. }
        | Response::Withdrawn { .. }
        | Response::ConsumerClosed { .. }
        | Response::UnitRolledBack { .. }
        | Response::Admin(_)
        | Response::Ending(_)
        | Response::Stopped => return Ok(None),
    }))
}
