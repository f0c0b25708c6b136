//! Reads bodies that selectors wait for, on a thread of its own: the node never waits for a disk.
//!
//! A fetch waits for its turn, however many there are: a wait is slow, but an answer without a read
//! would skip a message that matches. The number of fetches needs no limit here: the rules request
//! each message once until the answer comes. So there are never more fetches than messages in
//! queues, and no more than a few dozen for each waiting consumer (the rules look 32 messages
//! ahead).

use std::sync::Arc;
use towline_os::sync::mpsc::Receiver;
use towline_os::thread::JoinHandle;

use towline_admin::catalogue::BODY_UNREADABLE;
use towline_core::Body;
use towline_log::{Log, LogError};
use towline_node::{Fetch, FetchTicket};
use towline_types::Payload;

use crate::bodies;
use crate::door::Door;
use towline_logging::log;

/// Starts the thread; it ends with the process.
pub(crate) fn start(receiver: Receiver<Fetch>, door: Arc<Door>) -> std::io::Result<JoinHandle<()>> {
    towline_os::thread::Builder::new().name("fetch".into()).spawn(move || {
        let from = door.log();
        for fetch in receiver {
            let ticket = fetch.ticket;
            let (body, read) = look(&door, &from, &fetch);
            match (read, door.repairs()) {
                // Other fetches need not wait for the other instances.
                (Err(error), Some(repairs)) if error.is_damage() => {
                    let door = Arc::clone(&door);
                    let log = from.clone();
                    let reread = move |_| answer(&door, ticket, look(&door, &log, &fetch).1);
                    repairs.request(bodies::parts(&body), Box::new(reread));
                }
                (read, _) => answer(&door, ticket, read),
            }
        }
    })
}

/// Reads the body, and yields where it is now.
fn look(door: &Door, log: &Log, fetch: &Fetch) -> (Body, Result<Payload, LogError>) {
    let read = read_front(log, &fetch.body);
    if read.is_err() {
        // It may have been relocated to another position meanwhile.
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
            // The consumer with the selector gets the message, which is then set aside, or shown to
            // a browser as a note: a selector alone changes nothing.
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
