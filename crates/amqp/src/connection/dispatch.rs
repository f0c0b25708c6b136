//! Frames of an open connection: to which session they go, and what ends when they are wrong.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use towline_types::limits;

use crate::codec::{Composite, Value};
use crate::connection::clock::PEER_IDLE_MIN;
use crate::connection::phase::Phase;
use crate::connection::{Connection, LINKS_MAX, LinkName, name_key};
use crate::event::{Event, LinkId, PeerOpen};
use crate::link::Violation;
use crate::session::{Session, SessionState};
use crate::types::{
    Attach, Begin, Close, Detach, Disposition, End, Error, Open, Performative, Role, Transfer,
    condition,
};

/// See [`Connection::deny_open`].
const ESTABLISHMENT_FAILED: &str = "amqp:connection-establishment-failed";
/// Space that is left in an open frame for its header (8 bytes) and for that property (39), with
/// the longer counts of the map and the list around it.
const OPEN_EXTRA_BYTES: usize = 64;

impl Connection {
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Finished)
    }

    pub(super) fn on_transfer(&mut self, channel: u16, transfer: Transfer, payload: Bytes) {
        if self.is_closing() {
            return;
        }
        let Some(index) = self.mapped(channel) else { return };
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        if session.is_live() {
            let result =
                session.on_transfer(transfer, payload, &mut self.events, &mut self.unfinished);
            self.touch(index);
            self.punish(index, result);
        } else {
            self.events.extend(Event::lost_in_unit(transfer.state.as_ref()));
        }
    }

    fn on_disposition(&mut self, channel: u16, disposition: Disposition) {
        let Some(index) = self.mapped(channel) else { return };
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        if session.is_live() {
            let result = session.on_disposition(disposition, &mut self.events);
            let result = result.map(|rest| self.outcomes = rest);
            self.touch(index);
            self.punish(index, result);
        } else if disposition.role == Role::Receiver {
            self.events.extend(Event::lost_in_unit(disposition.state.as_ref()));
        }
    }

    pub(super) fn on_performative(&mut self, channel: u16, performative: Performative) {
        if self.is_closing() {
            if let Performative::Close(close) = performative {
                self.on_close(close);
            }
            return;
        }
        match performative {
            Performative::Open(open) => self.on_open(channel, *open),
            Performative::Begin(begin) => self.on_begin(channel, &begin),
            Performative::End(end) => self.on_end(channel, end),
            Performative::Close(close) => self.on_close(close),
            Performative::Attach(attach) => self.on_attach(channel, attach),
            Performative::Detach(detach) => self.on_detach(channel, detach),
            Performative::Transfer(transfer) => self.on_transfer(channel, transfer, Bytes::new()),
            Performative::Flow(flow) => self.in_session(channel, |session, connection| {
                session.on_flow(&flow, connection.events, connection.output)
            }),
            Performative::Disposition(disposition) => self.on_disposition(channel, disposition),
        }
    }

    /// Takes the next part of a long disposition.
    pub(super) fn go_on(&mut self) {
        let Some(outcomes) = self.outcomes.take() else { return };
        if self.is_closing() {
            return;
        }
        let session = self.sessions.get_mut(usize::from(outcomes.session.index));
        match session.filter(|it| it.is_live() && it.id() == outcomes.session) {
            Some(session) => self.outcomes = session.go_on(outcomes, &mut self.events),
            None => self.events.extend(outcomes.lost_in_unit()),
        }
    }

    /// The session of a channel of the peer; the connection is closed when there is none.
    fn mapped(&mut self, channel: u16) -> Option<u16> {
        let index = self.channels.get(usize::from(channel)).copied().flatten();
        if index.is_none() {
            let (condition, text) = if self.peer.opened {
                (condition::NOT_ALLOWED, "a frame on a channel without a session")
            } else {
                (condition::NOT_ALLOWED, "a frame before the open frame")
            };
            self.fail(Error::new(condition, text));
        }
        index
    }

    fn in_session(
        &mut self,
        channel: u16,
        act: impl FnOnce(&mut Session, Surroundings<'_>) -> Result<(), Violation>,
    ) {
        let Some(index) = self.mapped(channel) else { return };
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        if session.is_live() {
            let events = &mut self.events;
            let output = &mut self.output;
            let result = act(session, Surroundings { events, output });
            self.touch(index);
            self.punish(index, result);
        }
    }

    /// Ends what a violation says has to end.
    fn punish(&mut self, index: u16, result: Result<(), Violation>) {
        match result {
            Ok(()) => {}
            Err(Violation::Connection(error)) => self.fail(error),
            Err(Violation::Session(error)) => {
                let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
                let id = session.id();
                session.end(Some(error.clone()), false, &mut self.output);
                self.forget_links(index);
                let error = Some(error);
                self.events.push_back(Event::SessionEnded { session: id, error, by_peer: false });
            }
            Err(Violation::Link(link, error)) => self.expel(index, link, error, true),
        }
    }

    fn expel(&mut self, index: u16, link: u16, error: Error, closed: bool) {
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        if let Some(link) =
            session.expel(link, closed, error.clone(), &mut self.output, &mut self.unfinished)
        {
            self.forget_name(link);
            let error = Some(error);
            self.events.push_back(Event::Detached { link, closed, error, by_peer: false });
        }
    }

    fn on_open(&mut self, channel: u16, open: Open) {
        if self.peer.opened {
            return self.fail(Error::new(condition::NOT_ALLOWED, "a second open frame"));
        }
        if channel != 0 {
            let text = "an open frame on a channel other than 0";
            return self.fail(Error::new(condition::FRAMING_ERROR, text));
        }
        if open.max_frame_bytes < limits::SASL_FRAME_BYTES_MAX {
            let text = "a max-frame-size below 512";
            return self.fail(Error::new(condition::INVALID_FIELD, text));
        }
        let idle = open.idle_timeout_ms.map(|idle| Duration::from_millis(u64::from(idle)));
        if let Some(idle) = idle.filter(|idle| !idle.is_zero()) {
            if idle < PEER_IDLE_MIN {
                let text = "an idle time-out that we cannot keep up with";
                return self.fail(Error::new(condition::NOT_ALLOWED, text));
            }
            self.clock.set_peer_idle(idle);
        }
        self.peer.opened = true;
        self.peer.channel_max = open.channel_max;
        self.output.set_frame_bytes_max(open.max_frame_bytes);
        self.clock.login_done();
        self.events.push_back(Event::Opened(Box::new(PeerOpen {
            container_id: open.container_id,
            hostname: open.hostname,
            user: self.user.clone(),
            frame_bytes_max: open.max_frame_bytes,
            properties: open.properties,
            offered_capabilities: open.offered_capabilities,
            desired_capabilities: open.desired_capabilities,
        })));
    }

    fn on_begin(&mut self, channel: u16, begin: &Begin) {
        let text = if !self.peer.opened {
            "a frame before the open frame"
        } else if channel > self.local.channel_max {
            let error = Error::new(condition::FRAMING_ERROR, "a channel above channel-max");
            return self.fail(error);
        } else if self.channels.get(usize::from(channel)).is_some_and(Option::is_some) {
            "a begin on a channel that is in use"
        } else {
            return self.map_begin(channel, begin);
        };
        self.fail(Error::new(condition::NOT_ALLOWED, text));
    }

    fn map_begin(&mut self, channel: u16, begin: &Begin) {
        let index = match begin.remote_channel {
            Some(ours) => {
                let session = self.sessions.get_mut(usize::from(ours));
                let Some(session) = session.filter(|session| !session.answered) else {
                    let text = "a begin that answers none of ours";
                    return self.fail(Error::new(condition::NOT_ALLOWED, text));
                };
                session.begun(begin);
                ours
            }
            None => {
                let generation = self.next_generation();
                let entry = self.sessions.vacant_entry();
                let ours = u16::try_from(entry.key()).unwrap_or(u16::MAX);
                // Sessions hold their channels until the peer has answered their end.
                if ours > self.peer.channel_max {
                    let text = "no channel is left below channel-max";
                    return self.fail(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
                }
                let handle_max = self.local.handle_max;
                let output = &mut self.output;
                let session = Session::accept(ours, generation, handle_max, channel, begin, output);
                entry.insert(session);
                ours
            }
        };
        let slots = usize::from(channel) + 1;
        if self.channels.len() < slots {
            self.channels.resize(slots, None);
        }
        if let Some(slot) = self.channels.get_mut(usize::from(channel)) {
            *slot = Some(index);
        }
        if let Some(session) = self.sessions.get(usize::from(index)).filter(|found| found.is_live())
        {
            self.events.push_back(Event::SessionBegun(session.id()));
        }
    }

    fn on_end(&mut self, channel: u16, end: End) {
        let Some(index) = self.mapped(channel) else { return };
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        session.end(None, true, &mut self.output);
        self.forget_links(index);
        let session = self.sessions.remove(usize::from(index));
        if let Some(slot) = self.channels.get_mut(usize::from(channel)) {
            *slot = None;
        }
        if session.state == (SessionState::Ending { report: true }) {
            let (session, error) = (session.id(), end.error.map(|error| *error));
            self.events.push_back(Event::SessionEnded { session, error, by_peer: true });
        }
    }

    fn on_close(&mut self, close: Close) {
        if !matches!(self.phase, Phase::Closing) {
            self.write_close(None);
        }
        self.report_closed(close.error.map(|error| *error), true);
        self.finish();
    }

    fn on_attach(&mut self, channel: u16, attach: Box<Attach>) {
        let Some(index) = self.mapped(channel) else { return };
        let generation = self.next_generation();
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        if !session.is_live() {
            return;
        }
        let checked = session.check_attach(&attach);
        if checked.is_err() {
            return self.punish(index, checked);
        }
        if let Some(link) = session.requesting(&attach) {
            session.on_attach_answer(link, attach, &mut self.events);
            return self.touch(index);
        }
        let key = name_key(attach.role, &attach.name);
        if let Some(holder) = self.names.get(&key).copied() {
            let error = Error::new(condition::STOLEN, "the link was attached again");
            self.expel(holder.session, holder.index, error, false);
        }
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        match session.on_attach_request(generation, attach, &mut self.events) {
            Ok(link) => {
                self.links += 1;
                self.names.insert(key, link);
                self.check_request(link);
            }
            Err(violation) => self.punish(index, Err(violation)),
        }
    }

    /// Refuses links that the driver needs not hear of.
    fn check_request(&mut self, link: LinkId) {
        let error = if self.links > LINKS_MAX {
            Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "too many links")
        } else if self.local.server {
            return;
        } else {
            Error::new(condition::NOT_ALLOWED, "a client takes no links")
        };
        self.events.pop_back();
        self.refuse_attach(link, error);
    }

    fn on_detach(&mut self, channel: u16, detach: Detach) {
        let Some(index) = self.mapped(channel) else { return };
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        if !session.is_live() {
            return;
        }
        match session.on_detach(detach, &mut self.events, &mut self.output, &mut self.unfinished) {
            Ok(None) => {}
            Ok(Some((id, link))) => {
                self.links = self.links.saturating_sub(1);
                self.forget(id, &name_key(link.peer_role(), &link.name));
            }
            Err(violation) => self.punish(index, Err(violation)),
        }
    }

    fn forget(&mut self, link: LinkId, key: &LinkName) {
        if self.names.get(key) == Some(&link) {
            self.names.remove(key);
        }
    }

    /// Lets the name of a link that is on its way out be attached again.
    pub(super) fn forget_name(&mut self, id: LinkId) {
        let session = self.sessions.get(usize::from(id.session));
        let link = session.and_then(|session| session.any_link(id));
        if let Some(key) = link.map(|link| name_key(link.peer_role(), &link.name)) {
            self.forget(id, &key);
        }
    }

    /// Forgets the links of a session that ended.
    pub(super) fn forget_links(&mut self, index: u16) {
        let Some(session) = self.sessions.get_mut(usize::from(index)) else { return };
        for (link, id) in session.links() {
            let key = name_key(link.peer_role(), &link.name);
            if self.names.get(&key) == Some(&id) {
                self.names.remove(&key);
            }
        }
        self.links = self.links.saturating_sub(session.clear(&mut self.unfinished));
    }

    /// See [`Connection::offer_property`].
    pub(super) fn add_to_open(&mut self, key: &str, value: Value<'_>) -> bool {
        let Some(open) = self.open.as_mut().filter(|_| self.local.server) else { return false };
        let longer = open.properties.clone().with(key, value);
        let before = std::mem::replace(&mut open.properties, longer);
        let mut body = BytesMut::new();
        open.encode(&mut body);
        let fits = body.len() + OPEN_EXTRA_BYTES <= self.output.frame_bytes_max();
        if !fits {
            open.properties = before;
        }
        fits
    }

    /// Writes our open frame, once.
    pub(super) fn write_open(&mut self) {
        if matches!(self.phase, Phase::Frames)
            && let Some(open) = self.open.take()
        {
            self.output.open(&*open);
        }
    }

    /// Writes our close frame, behind our open if that was still to come.
    pub(super) fn write_close(&mut self, error: Option<Error>) {
        if !matches!(self.phase, Phase::Frames) {
            return;
        }
        if self.output.is_open() {
            self.write_due();
        } else {
            self.output.clear_frames();
            self.deny_open(error.is_some());
            self.write_open();
        }
        self.output.frame(0, &Close { error: error.map(Box::new) });
    }

    /// A peer that sees our open frame believes that it is let in, unless the frame says that a
    /// close with the reason follows: the property that brokers and clients have come to use for
    /// that.
    fn deny_open(&mut self, denied: bool) {
        if let Some(open) = self.open.as_mut().filter(|_| denied && self.local.server) {
            let properties = std::mem::take(&mut open.properties);
            open.properties = properties.with(ESTABLISHMENT_FAILED, Value::Bool(true));
        }
    }

    /// See [`Connection::close`].
    pub(super) fn begin_close(&mut self, error: Option<Error>) {
        if self.is_closing() {
            return;
        }
        self.events.clear();
        if matches!(self.phase, Phase::Frames) {
            self.write_close(error);
            self.forget_sessions();
            self.phase = Phase::Closing;
            self.clock.closing();
        } else {
            self.report_closed(error, false);
            self.finish();
        }
    }
}

/// What a session may touch of its connection.
struct Surroundings<'a> {
    events: &'a mut std::collections::VecDeque<Event>,
    output: &'a mut crate::output::Output,
}
