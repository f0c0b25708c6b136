//! Links come and go.

use std::collections::VecDeque;

use crate::codec::{Map, Symbols};
use crate::event::{AttachReply, AttachRequest, Event, LinkId, PeerAttach, SessionId};
use crate::link::{Direction, Link, LinkState, Receiving, Sending, Violation};
use crate::output::Output;
use crate::session::{Session, UnfinishedDeliveries};
use crate::types::{Attach, Detach, Error, LinkTarget, Role, condition};

/// Longest name of a link: 10,000 names take at most 10 MB.
const LINK_NAME_BYTES_MAX: usize = 1_024;

/// An attach frame of ours that names its link and nothing else; the answer that refuses a link.
fn bare_attach(index: u16, link: &Link) -> Attach {
    let role = link.role();
    Attach {
        name: link.name.clone(),
        handle: u32::from(index),
        role,
        snd_settle_mode: Default::default(),
        rcv_settle_mode: Default::default(),
        source: None,
        target: None,
        unsettled: Map::default(),
        incomplete_unsettled: false,
        initial_delivery_count: (role == Role::Sender).then_some(0),
        max_message_bytes: None,
        offered_capabilities: Symbols::default(),
        desired_capabilities: Symbols::default(),
        properties: Map::default(),
    }
}

fn is_coordinator(target: Option<&LinkTarget>) -> bool {
    matches!(target, Some(LinkTarget::Coordinator(_)))
}

impl Session {
    /// Attaches a link; none when the peer takes no more.
    pub(crate) fn attach(
        &mut self,
        session: SessionId,
        generation: u32,
        request: AttachRequest,
        output: &mut Output,
    ) -> Option<LinkId> {
        let direction = match request.role {
            Role::Sender => Direction::Sending(Sending {
                to_coordinator: is_coordinator(request.target.as_deref()),
                ..Sending::default()
            }),
            Role::Receiver => Direction::Receiving(Receiving {
                message_bytes_max: request.message_bytes_max,
                ..Receiving::default()
            }),
        };
        let entry = self.links.vacant_entry();
        let index = u16::try_from(entry.key()).ok()?;
        if u32::from(index) > self.handle_max.min(self.peer_handle_max) {
            return None;
        }
        let mut link = Link::new(generation, request.name, LinkState::Requesting, direction);
        link.receiver_settle_mode = request.receiver_settle_mode;
        let attach = Attach {
            snd_settle_mode: request.sender_settle_mode,
            rcv_settle_mode: request.receiver_settle_mode,
            source: request.source,
            target: request.target,
            max_message_bytes: (request.message_bytes_max > 0).then_some(request.message_bytes_max),
            desired_capabilities: request.desired_capabilities,
            properties: request.properties,
            ..bare_attach(index, &link)
        };
        output.frame(self.index, &attach);
        entry.insert(link);
        Some(LinkId { session: session.index, index, generation })
    }

    /// Checks the handle and the name of the peer's attach.
    pub(crate) fn check_attach(&self, attach: &Attach) -> Result<(), Violation> {
        if attach.handle > self.handle_max {
            let error = Error::new(condition::FRAMING_ERROR, "a handle above handle-max");
            return Err(Violation::Connection(error));
        }
        if self.by_handle(attach.handle).is_ok() {
            let error = Error::new(condition::HANDLE_IN_USE, "the handle is in use");
            return Err(Violation::Session(error));
        }
        if attach.name.len() > LINK_NAME_BYTES_MAX {
            let text = "the name of the link is too long";
            return Err(Violation::Session(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
        }
        Ok(())
    }

    /// The link of ours that an attach of the peer answers.
    pub(crate) fn requesting(&self, attach: &Attach) -> Option<u16> {
        let found = self.links.iter().find(|(_, link)| {
            link.peer_handle.is_none()
                && link.peer_role() == attach.role
                && link.name == attach.name
        });
        found.and_then(|(index, _)| u16::try_from(index).ok())
    }

    fn map_handle(&mut self, handle: u32, index: u16) {
        let handle = usize::try_from(handle).unwrap_or(usize::MAX);
        if self.handles.len() <= handle {
            // Bounded by handle_max, which `check_attach` compared.
            self.handles.resize(handle + 1, None);
        }
        if let Some(slot) = self.handles.get_mut(handle) {
            *slot = Some(index);
        }
    }

    /// Takes the answer to an attach of ours.
    pub(crate) fn on_attach_answer(
        &mut self,
        index: u16,
        attach: Box<Attach>,
        events: &mut VecDeque<Event>,
    ) {
        self.map_handle(attach.handle, index);
        let Some(id) = self.link_id(index) else { return };
        let Some(link) = self.links.get_mut(usize::from(index)) else { return };
        link.peer_handle = Some(attach.handle);
        if link.state != LinkState::Requesting {
            return;
        }
        link.receiver_settle_mode = attach.rcv_settle_mode;
        if let Some(receiving) = link.receiving_mut() {
            receiving.delivery_count = attach.initial_delivery_count.unwrap_or(0);
        }
        self.attached(index);
        events.push_back(Event::Attached(Box::new(attached_event(id, *attach))));
    }

    /// Takes the peer's wish for a link.
    pub(crate) fn on_attach_request(
        &mut self,
        generation: u32,
        attach: Box<Attach>,
        events: &mut VecDeque<Event>,
    ) -> Result<LinkId, Violation> {
        let direction = match attach.role {
            Role::Sender => Direction::Receiving(Receiving {
                delivery_count: attach.initial_delivery_count.unwrap_or(0),
                ..Receiving::default()
            }),
            Role::Receiver => Direction::Sending(Sending::default()),
        };
        let name = attach.name.clone();
        let mut link = Link::new(generation, name, LinkState::Requested, direction);
        link.peer_handle = Some(attach.handle);
        let entry = self.links.vacant_entry();
        let index = u16::try_from(entry.key()).unwrap_or(u16::MAX);
        if u32::from(index) > self.peer_handle_max || index == u16::MAX {
            let text = "no handle is left below handle-max";
            return Err(Violation::Session(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
        }
        entry.insert(link);
        self.map_handle(attach.handle, index);
        let id = LinkId { session: self.index, index, generation };
        events.push_back(Event::Attached(Box::new(attached_event(id, *attach))));
        Ok(id)
    }

    /// See [`Connection::accept_attach`](crate::Connection::accept_attach).
    pub(crate) fn accept_attach(&mut self, id: LinkId, reply: AttachReply, output: &mut Output) {
        let session = self.index;
        let Some(link) = self.link_mut(id) else { return };
        if link.state != LinkState::Requested {
            return;
        }
        link.receiver_settle_mode = reply.receiver_settle_mode;
        let mut max_message_bytes = None;
        if let Some(receiving) = link.receiving_mut() {
            receiving.message_bytes_max = reply.message_bytes_max;
            max_message_bytes = (reply.message_bytes_max > 0).then_some(reply.message_bytes_max);
        }
        let attach = Attach {
            snd_settle_mode: reply.sender_settle_mode,
            rcv_settle_mode: reply.receiver_settle_mode,
            source: reply.source,
            target: reply.target,
            max_message_bytes,
            offered_capabilities: reply.offered_capabilities,
            properties: reply.properties,
            ..bare_attach(id.index, link)
        };
        output.frame(session, &attach);
        self.attached(id.index);
    }

    /// See [`Connection::refuse_attach`](crate::Connection::refuse_attach).
    pub(crate) fn refuse_attach(
        &mut self,
        id: LinkId,
        error: Error,
        output: &mut Output,
        unfinished: &mut UnfinishedDeliveries,
    ) {
        if self.link(id).is_some_and(|link| link.state == LinkState::Requested) {
            self.write_detach(id.index, true, Some(error), false, output, unfinished);
        }
    }

    /// See [`Connection::detach`](crate::Connection::detach).
    pub(crate) fn detach(
        &mut self,
        id: LinkId,
        closed: bool,
        error: Option<Error>,
        output: &mut Output,
        unfinished: &mut UnfinishedDeliveries,
    ) {
        if self.link(id).is_some() {
            self.write_detach(id.index, closed, error, true, output, unfinished);
        }
    }

    /// What a unit of work loses with this link: the delivery of which more frames were to come.
    pub(crate) fn begun_in_unit(&self, id: LinkId) -> Option<Event> {
        match &self.link(id)?.direction {
            Direction::Receiving(Receiving { partial: Some(partial), .. }) => {
                Event::lost_in_unit(partial.state.as_ref())
            }
            Direction::Receiving(_) | Direction::Sending(_) => None,
        }
    }

    /// Detaches a link for something that the peer did; its id when the driver has to hear of it.
    pub(crate) fn expel(
        &mut self,
        index: u16,
        closed: bool,
        error: Error,
        output: &mut Output,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Option<LinkId> {
        let id = self.link_id(index).filter(|id| self.link(*id).is_some())?;
        self.write_detach(index, closed, Some(error), false, output, unfinished);
        Some(id)
    }

    /// Writes our detach (behind an attach without terminus when there was none) and stops all
    /// traffic of the link.
    fn write_detach(
        &mut self,
        index: u16,
        closed: bool,
        error: Option<Error>,
        report: bool,
        output: &mut Output,
        unfinished: &mut UnfinishedDeliveries,
    ) {
        self.settlements.write(self.index, output);
        self.silence(index, unfinished);
        let Some(link) = self.links.get_mut(usize::from(index)) else { return };
        if link.state == LinkState::Requested {
            output.frame(self.index, &bare_attach(index, link));
        }
        link.state = LinkState::Detaching { report };
        let error = error.map(Box::new);
        output.frame(self.index, &Detach { handle: u32::from(index), closed, error });
    }

    /// Forgets all deliveries of a link, both ways.
    fn silence(&mut self, index: u16, unfinished: &mut UnfinishedDeliveries) {
        self.waiting.retain(|waiting| waiting.link != index);
        self.waiting_bytes = self.waiting.iter().map(|waiting| waiting.bytes).sum();
        self.unsettled.forget_link(index);
        self.flows.retain(|flow| *flow != index);
        let link = self.links.get_mut(usize::from(index));
        if let Some(receiving) = link.and_then(Link::receiving_mut) {
            receiving.take_partial(unfinished);
        }
    }

    /// Takes the peer's detach and answers it unless it is an answer. The link is gone.
    pub(crate) fn on_detach(
        &mut self,
        detach: Detach,
        events: &mut VecDeque<Event>,
        output: &mut Output,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Result<Option<(LinkId, Link)>, Violation> {
        let index = self.by_handle(detach.handle)?;
        let Some(id) = self.link_id(index) else { return Ok(None) };
        let live = self.link(id).is_some();
        if live {
            self.write_detach(index, detach.closed, None, true, output, unfinished);
        }
        let Some(link) = self.links.try_remove(usize::from(index)) else { return Ok(None) };
        let slot = usize::try_from(detach.handle).ok();
        if let Some(slot) = slot.and_then(|handle| self.handles.get_mut(handle)) {
            *slot = None;
        }
        if link.state == (LinkState::Detaching { report: true }) {
            let (closed, error) = (detach.closed, detach.error.map(|error| *error));
            events.push_back(Event::Detached { link: id, closed, error, by_peer: true });
        }
        Ok(Some((id, link)))
    }
}

fn attached_event(link: LinkId, attach: Attach) -> PeerAttach {
    PeerAttach {
        link,
        name: attach.name,
        peer_role: attach.role,
        source: attach.source,
        target: attach.target,
        sender_settle_mode: attach.snd_settle_mode,
        receiver_settle_mode: attach.rcv_settle_mode,
        message_bytes_max: attach.max_message_bytes.filter(|bytes| *bytes > 0),
        has_unsettled: !attach.unsettled.is_empty() || attach.incomplete_unsettled,
        offered_capabilities: attach.offered_capabilities,
        desired_capabilities: attach.desired_capabilities,
        properties: attach.properties,
    }
}
