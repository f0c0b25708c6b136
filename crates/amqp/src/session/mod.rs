//! One session: its windows, its links, what waits to be sent, and what waits to be settled.
//!
//! `links.rs` attaches and detaches, `incoming.rs` takes transfers, flows and dispositions,
//! `outgoing.rs` writes ours. It does *not* know other sessions or the peer's channel numbers, and
//! never closes the connection: a [`Violation`](crate::link::Violation) says what has to end.
//!
//! Invariants: delivery ids go out without gaps, each on the first frame of its delivery; a link
//! sends no flow before its pending answer; nothing is written after the end frame.

mod incoming;
mod links;
mod outgoing;
mod settlements;
mod unfinished;
mod unsettled;
mod window;

use std::collections::VecDeque;

use slab::Slab;

use crate::event::{LinkId, SessionId};
use crate::link::{Direction, Link, LinkState};
use crate::output::Output;
use crate::types::{Begin, DeliveryState, End, Error, Flow, Role};

pub(crate) use incoming::Outcomes;
pub(crate) use unfinished::UnfinishedDeliveries;
pub use unsettled::UnsettledCount;

use outgoing::Waiting;
use settlements::Settlements;
use unsettled::Unsettled;
use window::{INCOMING_WINDOW, OUTGOING_WINDOW, Window};

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// We began it, the peer has not answered.
    Beginning,
    /// Both began it.
    Up,
    /// We ended it; frames of the peer are dropped until its end comes.
    Ending {
        /// Whether the driver still has to hear of it.
        report: bool,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Session {
    /// Our channel number, and our index in the connection.
    pub(crate) index: u16,
    pub(crate) generation: u32,
    pub(crate) state: SessionState,
    /// The peer's begin came.
    pub(crate) answered: bool,
    /// Stands in the connection's list of sessions with something to write.
    pub(crate) listed: bool,
    /// The highest handle that the peer may use.
    handle_max: u32,
    /// The highest handle that we may use.
    peer_handle_max: u32,
    window: Window,
    links: Slab<Link>,
    /// The peer's handle to the index (our handle) of a link.
    handles: Vec<Option<u16>>,
    waiting: VecDeque<Waiting>,
    /// Of what waits.
    waiting_bytes: usize,
    unsettled: Unsettled,
    settlements: Settlements,
    /// The peer is to hear of our window.
    flow_due: bool,
    /// Links that have a flow to write.
    flows: Vec<u16>,
}

impl Session {
    fn new(index: u16, generation: u32, handle_max: u32, state: SessionState) -> Session {
        Session {
            index,
            generation,
            state,
            answered: false,
            listed: false,
            handle_max,
            peer_handle_max: u32::MAX,
            window: Window::new(),
            links: Slab::new(),
            handles: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            unsettled: Unsettled::default(),
            settlements: Settlements::default(),
            flow_due: false,
            flows: Vec::new(),
        }
    }

    /// Begins a session.
    pub(crate) fn begin(
        index: u16,
        generation: u32,
        handle_max: u32,
        output: &mut Output,
    ) -> Session {
        let session = Session::new(index, generation, handle_max, SessionState::Beginning);
        session.write_begin(None, output);
        session
    }

    /// Answers the peer's begin, which came on `channel`.
    pub(crate) fn accept(
        index: u16,
        generation: u32,
        handle_max: u32,
        channel: u16,
        begin: &Begin,
        output: &mut Output,
    ) -> Session {
        let mut session = Session::new(index, generation, handle_max, SessionState::Beginning);
        session.write_begin(Some(channel), output);
        session.begun(begin);
        session
    }

    fn write_begin(&self, remote_channel: Option<u16>, output: &mut Output) {
        let begin = Begin {
            remote_channel,
            next_outgoing_id: self.window.next_outgoing_id,
            incoming_window: INCOMING_WINDOW,
            outgoing_window: OUTGOING_WINDOW,
            handle_max: self.handle_max,
            ..Begin::default()
        };
        output.frame(self.index, &begin);
    }

    /// Takes the peer's half.
    pub(crate) fn begun(&mut self, begin: &Begin) {
        self.answered = true;
        self.window.begun(begin);
        self.peer_handle_max = begin.handle_max;
        if self.state == SessionState::Beginning {
            self.state = SessionState::Up;
        }
    }

    /// Bytes of deliveries that wait for the peer's window.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Deliveries that the peer has and did not settle.
    pub(crate) fn unsettled(&self) -> UnsettledCount {
        self.unsettled.count()
    }

    pub(crate) fn id(&self) -> SessionId {
        SessionId { index: self.index, generation: self.generation }
    }

    /// Whether commands of the driver still mean something.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state, SessionState::Ending { .. })
    }

    /// The id of the link at `index`, whatever its state.
    pub(crate) fn link_id(&self, index: u16) -> Option<LinkId> {
        let link = self.links.get(usize::from(index))?;
        Some(LinkId { session: self.index, index, generation: link.generation })
    }

    /// A link that is not on its way out.
    pub(crate) fn link(&self, id: LinkId) -> Option<&Link> {
        let link = self.links.get(usize::from(id.index))?;
        (self.is_live() && link.generation == id.generation && link.is_live()).then_some(link)
    }

    /// A link, also one on its way out.
    pub(crate) fn any_link(&self, id: LinkId) -> Option<&Link> {
        let link = self.links.get(usize::from(id.index))?;
        (link.generation == id.generation).then_some(link)
    }

    fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        let live = self.is_live();
        let link = self.links.get_mut(usize::from(id.index))?;
        (live && link.generation == id.generation && link.is_live()).then_some(link)
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (&Link, LinkId)> {
        let session = self.index;
        self.links.iter().filter_map(move |(index, link)| {
            let index = u16::try_from(index).ok()?;
            Some((link, LinkId { session, index, generation: link.generation }))
        })
    }

    /// Ends the session: nothing is written for it any more. `report`: the driver wants to hear of
    /// the peer's answer.
    pub(crate) fn end(&mut self, error: Option<Error>, report: bool, output: &mut Output) {
        if self.is_live() {
            self.settlements.write(self.index, output);
            output.frame(self.index, &End { error: error.map(Box::new) });
            self.state = SessionState::Ending { report };
        }
    }

    /// Forgets all links; their number.
    pub(crate) fn clear(&mut self, unfinished: &mut UnfinishedDeliveries) -> usize {
        let count = self.links.len();
        for receiving in self.links.iter_mut().filter_map(|(_, link)| link.receiving_mut()) {
            receiving.take_partial(unfinished);
        }
        self.links.clear();
        self.handles.clear();
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.flows.clear();
        self.unsettled = Unsettled::default();
        self.settlements = Settlements::default();
        self.flow_due = false;
        count
    }

    /// Whether `write_due` has something to write.
    pub(crate) fn is_due(&self) -> bool {
        self.flow_due || !self.flows.is_empty() || !self.settlements.is_empty()
    }

    /// Notes that a link has a flow to write, once its attach is through.
    fn owe_flow(&mut self, index: u16) {
        if let Some(link) = self.links.get_mut(usize::from(index))
            && !std::mem::replace(&mut link.flow_due, true)
            && link.state == LinkState::Attached
        {
            self.flows.push(index);
        }
    }

    /// Lists the flow that waited for the attach.
    fn attached(&mut self, index: u16) {
        if let Some(link) = self.links.get_mut(usize::from(index)) {
            link.state = LinkState::Attached;
            if link.flow_due {
                self.flows.push(index);
            }
        }
    }

    /// Writes settlements and flows.
    pub(crate) fn write_due(&mut self, output: &mut Output) {
        if !self.is_live() {
            return;
        }
        self.settlements.write(self.index, output);
        let mut flows = std::mem::take(&mut self.flows);
        for index in flows.drain(..) {
            self.write_link_flow(index, output);
        }
        self.flows = flows;
        if std::mem::take(&mut self.flow_due) {
            let flow = self.flow();
            output.frame(self.index, &flow);
        }
    }

    /// A flow with the session's part filled in.
    fn flow(&mut self) -> Flow {
        self.flow_due = false;
        Flow {
            next_incoming_id: self.window.next_incoming_id,
            incoming_window: self.window.widen(),
            next_outgoing_id: self.window.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        }
    }

    fn write_link_flow(&mut self, index: u16, output: &mut Output) {
        let mut flow = self.flow();
        let Some(link) = self.links.get_mut(usize::from(index)) else { return };
        if link.state != LinkState::Attached || !std::mem::take(&mut link.flow_due) {
            return;
        }
        flow.handle = Some(u32::from(index));
        match &mut link.direction {
            Direction::Sending(sending) => {
                flow.delivery_count = Some(sending.delivery_count);
                flow.link_credit = Some(sending.unused());
                flow.available = Some(sending.queued);
                flow.drain = sending.drain;
            }
            Direction::Receiving(receiving) => {
                receiving.allowance = receiving.allowance.max(receiving.credit);
                flow.delivery_count = Some(receiving.delivery_count);
                flow.link_credit = Some(receiving.credit);
                flow.drain = receiving.drain;
            }
        }
        output.frame(self.index, &flow);
    }

    /// Notes our word on a delivery of the peer.
    pub(crate) fn update_incoming(
        &mut self,
        delivery: u32,
        state: Option<DeliveryState>,
        settled: bool,
    ) {
        self.settlements.push(Role::Receiver, delivery, settled, state);
    }
}
