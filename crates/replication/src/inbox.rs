//! Takes what comes over the links: messages for the member, requests for the active instance,
//! streams.

use std::sync::Arc;

use bytes::Bytes;
use towline_admin::catalogue::{GROUP_INSTANCE_CAME, GROUP_INSTANCE_WENT};
use towline_group::{Message, Role, Start};

use crate::batch;
use crate::copy::{self, CopySource};
use crate::driver::Driver;
use crate::frames::{
    KIND_CONDITION, KIND_CONSENSUS, KIND_HISTORIES, KIND_KNOWN, KIND_LIVE, KIND_ROLE, KIND_ROWS,
    KIND_WISH, member_of,
};
use crate::hand_over::{self, AdminRequest};
use towline_link::{Greeting, Inbox, LinkStream, Peer, Standing, StartsReport, StreamPurpose};
use towline_logging::log as say;
use towline_types::FormatLevels;

/// The rest of the instance, which takes what is neither for the member nor for its log. Calls come
/// from a thread of the links, so they must be quick and must not wait.
pub trait InboxHost: Send + Sync + 'static {
    /// The build of a peer, as it says when it connects.
    fn build(&self, peer: Peer, build: &str);

    /// A connection to a peer stands: it need not wait for the next report to learn whether clients
    /// are served.
    fn is_connected(&self);

    /// What the active instance reports of all instances, as JSON.
    fn rows(&self, peer: Peer, body: &[u8]);

    /// What the instance to which the live group ships knows of that, as JSON.
    fn live(&self, peer: Peer, body: &[u8]);

    /// Whether relayed clients are taken.
    fn takes_clients(&self) -> bool;

    /// Takes a relayed client.
    fn client(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream);

    /// Whether questions of operators are answered.
    fn answers(&self) -> bool;

    /// Answers an operator's question.
    fn answer(&self, stream: LinkStream);

    /// What a copy is made of.
    fn copy_source(&self) -> Arc<dyn CopySource>;
}

/// See the module.
pub struct GroupInbox<H> {
    /// Gets what is for the member and its log.
    pub driver: Arc<Driver>,
    /// Gets the rest.
    pub host: H,
}

/// A message for the member. Only its own messages come from a peer: what another member promised
/// is believed from no other peer, whatever the numbers in the message say.
fn message_of(peer: Peer, body: &Bytes) -> Result<Message, String> {
    let message = Message::decode(body).map_err(|error| error.to_string())?;
    let said = message.from();
    let known = member_of(peer);
    if said != known {
        return Err(format!("it sent a message of member {}, and is member {}", said.0, known.0));
    }
    Ok(message)
}

impl<H: InboxHost> Inbox for GroupInbox<H> {
    fn standing(&self) -> Standing {
        self.driver.standing()
    }

    fn levels(&self) -> FormatLevels {
        self.driver.levels()
    }

    fn known(&self, peer: Peer) -> StartsReport {
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
        self.driver.reads(peer, incoming, Some(greeting.levels));
        self.host.build(peer, &greeting.build);
        if !incoming {
            let name = self.driver.name(peer);
            say(&GROUP_INSTANCE_CAME, &[name, &greeting.build]);
            self.driver.opened(peer, greeting.standing);
            self.driver.repairs().is_back(peer);
            self.host.is_connected();
        }
    }

    fn closed(&self, peer: Peer, incoming: bool) {
        self.driver.connected(peer, incoming, None);
        self.driver.reads(peer, incoming, None);
        if incoming {
            let name = self.driver.name(peer);
            say(&GROUP_INSTANCE_WENT, &[name]);
            self.driver.closed(peer);
        }
    }

    fn frame(&self, peer: Peer, kind: u8, body: Bytes) -> Result<(), String> {
        self.driver.may_be_heard(peer)?;
        match kind {
            KIND_CONSENSUS => self.driver.hear(message_of(peer, &body)?)?,
            KIND_WISH => match serde_json::from_slice::<AdminRequest>(&body) {
                Ok(request) => hand_over::carry_out(&self.driver, request),
                Err(error) => tracing::warn!(%error, peer, "a request from another instance"),
            },
            KIND_ROWS => self.host.rows(peer, &body),
            KIND_LIVE => self.host.live(peer, &body),
            KIND_KNOWN => self.driver.take_known(peer, &body)?,
            KIND_HISTORIES => self.driver.takes_histories(&body)?,
            KIND_ROLE => self.driver.takes_role_frame(peer, &body)?,
            KIND_CONDITION => self.driver.conditions().enter(peer, &body),
            // Of a later version: what must be understood has another protocol version.
            other => tracing::debug!(other, peer, "a frame of an unknown kind"),
        }
        Ok(())
    }

    fn admits(&self, _peer: Peer, purpose: &StreamPurpose) -> Result<(), String> {
        let active = self.driver.leads();
        match purpose {
            StreamPurpose::Relay { .. } if active && self.host.takes_clients() => Ok(()),
            // Also before its door is open: without the copy there may be no majority that would
            // open it.
            StreamPurpose::Status if self.host.answers() => Ok(()),
            StreamPurpose::Status => Err("this instance is not ready yet".into()),
            StreamPurpose::Copy if self.driver.group().role == Role::Leader => Ok(()),
            StreamPurpose::Copy if self.driver.relays() => Ok(()),
            // Also of a replica: it has the same batches.
            StreamPurpose::Batch => Ok(()),
            StreamPurpose::Relay { .. } | StreamPurpose::Copy => {
                Err("this instance is not active".into())
            }
        }
    }

    fn stream(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream) {
        match purpose {
            StreamPurpose::Relay { .. } => self.host.client(peer, purpose, stream),
            StreamPurpose::Status => self.host.answer(stream),
            StreamPurpose::Copy => {
                let from = self.host.copy_source();
                copy::give(Arc::clone(&self.driver), from, peer, stream);
            }
            StreamPurpose::Batch => batch::give(Arc::clone(&self.driver), peer, stream),
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
