//! What the links bring: messages for the member, wishes for the active instance, streams.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use towline_admin::catalogue::{GROUP_INSTANCE_CAME, GROUP_INSTANCE_WENT};
use towline_group::{Message, Role, Start};

use super::driver::Driver;
use super::start::Opened;
use super::status::View;
use super::switch::Wish;
use super::{KIND_CONDITION, KIND_CONSENSUS, KIND_KNOWN, KIND_ROWS, KIND_WISH, member_of};
use towline_link::{Greeting, Inbox, Known, LinkStream, Peer, Standing, StreamPurpose};
use towline_logging::log as say;

/// Takes relayed clients.
pub(crate) type TakeClient = dyn Fn(Peer, StreamPurpose, LinkStream) + Send + Sync;

/// See the module.
pub(crate) struct GroupInbox {
    pub(crate) driver: Arc<Driver>,
    pub(crate) opened: Arc<Opened>,
    /// Where relayed clients go, once it is known.
    pub(crate) clients: Arc<OnceLock<Box<TakeClient>>>,
    /// Builds of the peers, for the status.
    pub(crate) builds: Arc<parking_lot::Mutex<Vec<String>>>,
    /// What the status shows, once it is there.
    pub(crate) view: Arc<OnceLock<Arc<View>>>,
}

/// A message for the member. Only its own messages come from a peer: what another member promised
/// is believed from no other peer, whatever the numbers in the message say.
fn message_of(peer: Peer, body: &Bytes) -> Result<Message, String> {
    let message = Message::decode(body).map_err(|error| error.to_string())?;
    let (said, known) = (message.from(), member_of(peer));
    if said != known {
        return Err(format!("it sent a message of member {}, and is member {}", said.0, known.0));
    }
    Ok(message)
}

impl Inbox for GroupInbox {
    fn standing(&self) -> Standing {
        self.driver.standing()
    }

    fn known(&self, peer: Peer) -> Known {
        self.driver.known(peer)
    }

    fn greets(&self, peer: Peer, greeting: &Greeting) -> Result<(), String> {
        self.driver.greets(peer, greeting)
    }

    fn declared(&self, peer: Peer, start: Start) -> Result<(), String> {
        self.driver.declared(peer, start);
        Ok(())
    }

    fn opened(&self, peer: Peer, incoming: bool, greeting: &Greeting) {
        self.driver.connected(peer, incoming, Some(greeting.known.start));
        if let Some(place) = self.builds.lock().get_mut(peer) {
            *place = greeting.build.to_string();
        }
        if !incoming {
            let name = self.driver.names().get(peer).map_or("", String::as_str);
            say(&GROUP_INSTANCE_CAME, &[name, &greeting.build]);
            self.driver.opened(peer, greeting.standing);
            self.driver.repairs().is_back(peer);
            // It need not wait for the next time to know that clients are served.
            if let Some(view) = self.view.get() {
                view.tell();
            }
        }
    }

    fn closed(&self, peer: Peer, incoming: bool) {
        self.driver.connected(peer, incoming, None);
        if incoming {
            let name = self.driver.names().get(peer).map_or("", String::as_str);
            say(&GROUP_INSTANCE_WENT, &[name]);
            self.driver.closed(peer);
        }
    }

    fn frame(&self, peer: Peer, kind: u8, body: Bytes) -> Result<(), String> {
        match kind {
            KIND_CONSENSUS => self.driver.hear(message_of(peer, &body)?),
            KIND_WISH => match serde_json::from_slice::<Wish>(&body) {
                Ok(wish) => super::switch::grant(&self.driver, wish),
                Err(error) => tracing::warn!(%error, peer, "a wish from another instance"),
            },
            KIND_ROWS => {
                if let Some(view) = self.view.get() {
                    view.told(peer, &body);
                }
            }
            KIND_KNOWN => self.driver.told_known(peer, &body)?,
            KIND_CONDITION => self.driver.conditions().told(peer, &body),
            // Of a later version: what must be understood has another protocol version.
            other => tracing::debug!(other, peer, "a frame of an unknown kind"),
        }
        Ok(())
    }

    fn admits(&self, _peer: Peer, purpose: &StreamPurpose) -> Result<(), String> {
        let active = self.driver.leads();
        match purpose {
            StreamPurpose::Relay { .. } if active && self.clients.get().is_some() => Ok(()),
            // Also before its door is open: without the copy there may be no majority that would
            // open it.
            StreamPurpose::Status if self.view.get().is_some() => Ok(()),
            StreamPurpose::Status => Err("this instance is not ready yet".into()),
            StreamPurpose::Copy if self.driver.group().role == Role::Leader => Ok(()),
            // Also of a replica: it has the same batches.
            StreamPurpose::Batch => Ok(()),
            StreamPurpose::Relay { .. } | StreamPurpose::Copy => {
                Err("this instance is not active".into())
            }
        }
    }

    fn stream(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream) {
        match purpose {
            StreamPurpose::Relay { .. } => {
                if let Some(take) = self.clients.get() {
                    take(peer, purpose, stream);
                }
            }
            StreamPurpose::Status => {
                if let Some(view) = self.view.get() {
                    let view = Arc::clone(view);
                    tokio::spawn(async move { super::report::tell(&view, stream).await });
                }
            }
            StreamPurpose::Copy => {
                super::copy::give(Arc::clone(&self.opened), peer, stream);
            }
            StreamPurpose::Batch => super::batch::give(Arc::clone(&self.driver), peer, stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a message as `towline_group` draws it: a heartbeat from one member to another.
    fn heartbeat(from: u64, to: u64) -> Bytes {
        const HEARTBEAT: u8 = 8;
        let mut bytes = vec![HEARTBEAT, 0, 0, 0, 0, 0, 0, 0];
        for number in [from, to, 7, 0, 0, 0, 0, 0, 0, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.into()
    }

    #[test]
    fn a_message_is_believed_only_from_the_member_whose_certificate_the_peer_showed() {
        assert_eq!(message_of(2, &heartbeat(3, 1)).unwrap().from(), member_of(2));
        let why = message_of(2, &heartbeat(2, 1)).unwrap_err();
        assert_eq!(why, "it sent a message of member 2, and is member 3");
        assert!(message_of(2, &Bytes::from_static(b"nonsense")).is_err());
    }
}
