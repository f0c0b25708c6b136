//! What the client keeps of one link, and how events change it.

use std::collections::{BTreeSet, VecDeque};

use towline_amqp::types::{DeliveryState, Outcome, Role};
use towline_amqp::{IncomingDelivery, LinkId, PeerAttach};

use crate::error::Error;

/// A link on which messages leave us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub(crate) link: LinkId,
}

/// A link on which messages come to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub(crate) link: LinkId,
    pub(crate) window: u32,
    /// Messages that may still be asked for.
    pub(crate) left: Option<u64>,
}

/// One link.
#[derive(Debug)]
pub(crate) struct Link {
    /// What *we* are on it.
    pub(crate) role: Role,
    /// The peer's answer came.
    pub(crate) attached: bool,
    /// The address that the server gave a dynamic source.
    pub(crate) address: Option<String>,
    /// It is over, and why.
    pub(crate) ended: Option<LinkEnd>,

    /// Sender: deliveries that may ever be sent.
    pub(crate) allowed: u64,
    /// Sender: deliveries that were sent; the next key.
    pub(crate) sent: u64,
    /// Sender: keys without an outcome.
    pub(crate) unsettled: BTreeSet<u64>,
    /// Sender: deliveries that were accepted.
    pub(crate) accepted: u64,
    /// Sender: the first refusal that was not yet reported.
    pub(crate) refusal: Option<Error>,
    /// Sender: the state of the last outcome that was not just accepted.
    pub(crate) answer: Option<DeliveryState>,

    /// Receiver: deliveries that came and were not yet taken.
    pub(crate) inbox: VecDeque<IncomingDelivery>,
    /// Receiver: deliveries that the peer may still send.
    pub(crate) granted: u32,
    /// Receiver: the peer was asked to drain and has not answered.
    pub(crate) draining: bool,
    /// Receiver: deliveries of which drains gave the credit back, until they are asked for again.
    pub(crate) returned: u64,
}

/// How a link ended.
#[derive(Clone, Debug)]
pub(crate) struct LinkEnd(pub(crate) Option<towline_amqp::types::Error>);

impl Link {
    pub(crate) fn new(role: Role) -> Link {
        Link {
            role,
            attached: false,
            address: None,
            ended: None,
            allowed: 0,
            sent: 0,
            unsettled: BTreeSet::new(),
            accepted: 0,
            refusal: None,
            answer: None,
            inbox: VecDeque::new(),
            granted: 0,
            draining: false,
            returned: 0,
        }
    }

    /// The peer's attach. One without a terminus announces a refusal, which a detach explains.
    pub(crate) fn on_attached(&mut self, attached: &PeerAttach) {
        let refused = match self.role {
            Role::Sender => attached.target.is_none(),
            Role::Receiver => attached.source.is_none(),
        };
        self.attached = !refused;
        let address = attached.source.as_ref().and_then(|source| source.address.as_deref());
        self.address = address.map(ToOwned::to_owned);
    }

    /// Credit moved, or the peer has drained.
    pub(crate) fn on_flow(&mut self, flow: towline_amqp::LinkFlow) {
        match self.role {
            Role::Sender => self.allowed = flow.sends.saturating_add(u64::from(flow.credit)),
            Role::Receiver if flow.drain => {
                self.returned = self.returned.saturating_add(u64::from(self.granted));
                self.granted = 0;
                self.draining = false;
            }
            Role::Receiver => {}
        }
    }

    pub(crate) fn on_transfer(&mut self, transfer: IncomingDelivery) {
        self.granted = self.granted.saturating_sub(1);
        if self.granted == 0 {
            // All credit was used: there is nothing left to give back.
            self.draining = false;
        }
        self.inbox.push_back(transfer);
    }

    /// The peer's word on one of our deliveries.
    pub(crate) fn on_outcome(&mut self, key: u64, state: Option<&DeliveryState>) {
        if !self.unsettled.remove(&key) {
            return;
        }
        let refusal = match state.and_then(DeliveryState::outcome) {
            Some(Outcome::Accepted) => {
                self.accepted = self.accepted.saturating_add(1);
                None
            }
            Some(Outcome::Rejected { error }) => Some(Error::refused(error.as_deref())),
            Some(Outcome::Released) => Some(given_back("released")),
            Some(Outcome::Modified { .. }) => Some(given_back("modified")),
            None => None,
        };
        if self.refusal.is_none() {
            self.refusal = refusal;
        }
        self.answer = state.cloned();
    }
}

fn given_back(how: &str) -> Error {
    Error::Refused {
        condition: how.into(),
        description: "the server did not accept the message".into(),
    }
}
