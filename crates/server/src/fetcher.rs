//! Reads bodies that selectors wait for, on a thread of its own: the node never waits for a disk.
//!
//! A fetch waits until it is its turn, however many there are: a wait is slow, but an answer
//! without having looked would pass a message over that fits. They are bounded without a bound
//! here: until it is answered, the rules ask for a message once; so there are never more than
//! messages in queues, and no more than a few dozen for each consumer that waits (the rules look 32
//! messages ahead).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use towline_admin::catalogue::BODY_UNREADABLE;
use towline_core::Body;
use towline_log::{Log, LogError};
use towline_node::{Fetch, FetchTicket};
use towline_types::Payload;

use crate::bodies;
use crate::door::Door;
use towline_logging::log;

/// The node's end of the thread.
pub(crate) struct Fetcher {
    sender: Sender<Fetch>,
}

impl Fetcher {
    pub(crate) fn new() -> (Fetcher, Receiver<Fetch>) {
        let (sender, receiver) = channel();
        (Fetcher { sender }, receiver)
    }

    /// Hands one over; it is answered by a content, later.
    pub(crate) fn send(&self, fetch: Fetch) {
        // The thread ends with the process: then nobody waits for the content either.
        if self.sender.send(fetch).is_err() {
            tracing::debug!("a fetch found no thread");
        }
    }
}

/// Starts the thread; it ends with the process.
pub(crate) fn start(receiver: Receiver<Fetch>, door: Arc<Door>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("fetch".into()).spawn(move || {
        let from = door.log();
        for fetch in receiver {
            let ticket = fetch.ticket;
            let (body, read) = look(&door, &from, &fetch);
            match (read, door.repairs()) {
                // Other fetches need not wait for the other instances.
                (Err(error), Some(repairs)) if error.is_damage() => {
                    let (door, log) = (Arc::clone(&door), from.clone());
                    let again = move || answer(&door, ticket, look(&door, &log, &fetch).1);
                    repairs.ask(bodies::parts(&body), Box::new(move |_| again()));
                }
                (read, _) => answer(&door, ticket, read),
            }
        }
    })
}

/// Reads what is asked for, and says where it is now.
fn look(door: &Door, log: &Log, fetch: &Fetch) -> (Body, Result<Payload, LogError>) {
    let read = read_front(log, &fetch.body);
    if read.is_err() {
        // It may have been logged again meanwhile: once more, where it is now.
        match door.look(|instance| instance.body_of_fetch(fetch.ticket)) {
            Some(body) if body != fetch.body => {
                let read = read_front(log, &body);
                return (body, read);
            }
            Some(_) | None => {}
        }
    }
    (fetch.body.clone(), read)
}

fn answer(door: &Door, ticket: FetchTicket, read: Result<Payload, LogError>) {
    let content = match read {
        Ok(content) => Some(content),
        Err(error) => {
            // The consumer with the selector gets the message, and then it is set aside, or shown
            // to a browser as a note: a selector alone changes nothing.
            if !error.is_damage() && !matches!(error, LogError::Gone { .. }) {
                log(&BODY_UNREADABLE, &[&error.to_string()]);
            }
            None
        }
    };
    door.content(ticket, content);
}

/// A selector looks at the sections in front: of a large body only the chunks that hold them are
/// read.
fn read_front(log: &Log, body: &Body) -> Result<Payload, LogError> {
    match body {
        Body::Chunks(chunks) => towline_node::front_of_chunks(chunks, |chunk| log.read(chunk)),
        other => bodies::read(log, other),
    }
}

#[cfg(test)]
mod tests {
    use towline_core::{MessageSequence, QueueId};

    use super::*;

    #[test]
    fn a_fetch_waits_however_many_wait_before_it() {
        const FETCHES: u64 = 70_000;
        let (fetcher, fetches) = Fetcher::new();
        let ticket =
            |sequence| FetchTicket { queue: QueueId(1), sequence: MessageSequence(sequence) };
        for sequence in 0..FETCHES {
            let body = Body::Memory(bytes::Bytes::new());
            fetcher.send(Fetch { ticket: ticket(sequence), body });
        }
        drop(fetcher);
        let waited: Vec<FetchTicket> = fetches.into_iter().map(|fetch| fetch.ticket).collect();
        assert!(waited.into_iter().eq((0..FETCHES).map(ticket)), "none is lost, in order");
    }
}
