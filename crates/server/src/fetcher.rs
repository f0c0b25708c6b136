//! Reads bodies that selectors wait for, on a thread of its own: the node never waits for a disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use towline_core::Body;
use towline_node::Fetch;

use crate::bodies;
use crate::door::Door;

/// Fetches that may wait. The rules ask for one at a time for each waiting consumer.
const FETCHES_MAX: usize = 65_536;

/// The node's end of the thread.
pub(crate) struct Fetcher {
    sender: SyncSender<Fetch>,
}

impl Fetcher {
    pub(crate) fn new() -> (Fetcher, Receiver<Fetch>) {
        let (sender, receiver) = sync_channel(FETCHES_MAX);
        (Fetcher { sender }, receiver)
    }

    /// Hands one over; one that finds no room is given back, to be answered as unreadable for now.
    pub(crate) fn send(&self, fetch: Fetch) -> Result<(), Fetch> {
        self.sender.try_send(fetch).map_err(|error| match error {
            TrySendError::Full(fetch) | TrySendError::Disconnected(fetch) => fetch,
        })
    }
}

/// Starts the thread; it ends with the process.
pub(crate) fn start(receiver: Receiver<Fetch>, door: Arc<Door>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("fetch".into()).spawn(move || {
        let log = door.log();
        for fetch in receiver {
            let mut read = bodies::read(&log, &first_part(fetch.body.clone()));
            if read.is_err() {
                // It may have been logged again meanwhile: once more, where it is now.
                match door.look(|instance| instance.body_of_fetch(fetch.ticket)) {
                    Some(body) if body != fetch.body => {
                        read = bodies::read(&log, &first_part(body));
                    }
                    Some(_) | None => {}
                }
            }
            let content = match read {
                Ok(content) => Some(content),
                Err(error) => {
                    door.unreadable_body(&error);
                    None
                }
            };
            door.content(fetch.ticket, content);
        }
    })
}

/// A selector looks at the sections in front: the first chunk of a large body holds them.
fn first_part(body: Body) -> Body {
    match body {
        Body::Chunks(chunks) => match chunks.first() {
            Some(first) => Body::Log(*first),
            None => Body::Chunks(chunks),
        },
        other => other,
    }
}
