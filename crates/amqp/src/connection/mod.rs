//! One AMQP connection, server or client, as a value: bytes and time in; events, bytes and a
//! deadline out.
//!
//! A driver does four kinds of things with it, in any order, and none of them blocks or fails:
//! - **feed** it: [`receive`](Connection::receive) what the socket gave, [`tick`](Connection::tick)
//!   when [`deadline`](Connection::deadline) has come;
//! - **listen**: [`next_event`](Connection::next_event) until there is none;
//! - **command** it: `accept_open`, `accept_attach`, `set_credit`, `send`, `settle_incoming` ...
//!   A command about something that is gone is ignored: its end was, or will be, an event;
//! - **drain** it: [`take_output`](Connection::take_output) and write that to the socket, and drop
//!   the socket when [`is_finished`](Connection::is_finished) and all was written.
//!
//! It does *not* know sockets, queues or users, does not decide about permissions, and never keeps
//! a delivery for later: resumption of links is not offered.
//!
//! Invariants: nothing of a peer is acted on before the login is through; whatever a peer sends
//! costs memory in proportion to its bytes, and ends the link, the session or the connection, never
//! the process; after the closing event no command writes a byte.

mod clock;
mod commands;
mod dispatch;
mod login;
mod options;
mod phase;
mod receive;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use slab::Slab;
use towline_types::Time;

use crate::event::{Event, LinkId};
use crate::output::Output;
use crate::session::{Outcomes, Session, UnfinishedDeliveries};
use crate::types::{Error, Open, Role, condition};

pub use options::{ClientOptions, ServerOptions};

use clock::{Alarm, Clock};
use phase::Phase;

/// Links of one connection.
pub(crate) const LINKS_MAX: usize = 10_000;

/// One AMQP connection. See the [module](self).
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    /// Our open frame, until it is sent.
    open: Option<Box<Open>>,
    /// The user that logged in.
    user: Option<Arc<str>>,
    peer: Peer,
    local: Local,
    sessions: Slab<Session>,
    /// The peer's channel number to the index (our channel number) of a session.
    channels: Vec<Option<u16>>,
    /// Links that are up.
    names: BTreeMap<LinkName, LinkId>,
    links: usize,
    unfinished: UnfinishedDeliveries,
    /// What is left of a long disposition; nothing behind it is looked at before.
    outcomes: Option<Outcomes>,
    generation: u32,
    output: Output,
    events: VecDeque<Event>,
    /// Sessions that have dispositions or flows to write.
    due: Vec<u16>,
    clock: Clock,
}

/// What we offered.
#[derive(Debug)]
struct Local {
    server: bool,
    frame_bytes_max: u32,
    channel_max: u16,
    handle_max: u32,
}

/// What the peer said in its open frame.
#[derive(Debug)]
struct Peer {
    opened: bool,
    channel_max: u16,
}

impl Connection {
    /// The accepting side. Nothing is written before the peer's protocol header came.
    ///
    /// # Panics
    /// When `frame_bytes_max` is below 512 (AMQP 2.4.1).
    #[must_use]
    pub fn server(options: ServerOptions, now: Time) -> Connection {
        login::server(options, now)
    }

    /// The connecting side; its first bytes can be taken at once. `nonce` as in [`ServerOptions`]
    /// is part of the login.
    ///
    /// # Panics
    /// When `frame_bytes_max` is below 512 (AMQP 2.4.1).
    #[must_use]
    pub fn client(options: ClientOptions, now: Time) -> Connection {
        login::client(options, now)
    }

    /// Consumes whole frames from the front of `input` and leaves a partial one for the next call.
    /// Payloads are slices of `input`'s memory.
    ///
    /// While a [`Login`](Event::Login) waits for its answer nothing is consumed: call again after
    /// the answer, even without new bytes. The same while it [has more](Connection::has_more).
    pub fn receive(&mut self, now: Time, input: &mut BytesMut) {
        self.clock.advance(now);
        self.go_on();
        while self.outcomes.is_none() && self.receive_one(input) {
            // A client has no other connections to think of.
            while !self.local.server && self.outcomes.is_some() {
                self.go_on();
            }
        }
    }

    /// Whether a disposition is not taken wholly yet: its next part, and what came behind it, waits
    /// for [`receive`](Connection::receive), which comes back so that others have their turn.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.outcomes.is_some()
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is something to write.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.output.is_ready() || (self.output.is_open() && !self.due.is_empty())
    }

    /// Bytes that wait to be written; a driver stops sending deliveries while this is large.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output.bytes()
    }

    /// Bytes of incomplete incoming deliveries, of all links together; never
    /// more than two of the largest messages: a peer that goes beyond that is closed.
    #[must_use]
    pub fn unfinished_bytes(&self) -> u64 {
        self.unfinished.bytes()
    }

    /// Moves encoded bytes to the end of `out`, in order: at least one piece when there is any,
    /// then pieces while they fit into `bytes_max`. Settlements are joined into ranges and credit
    /// into one flow per link here, so call it once per turn and not after each command.
    pub fn take_output(&mut self, out: &mut VecDeque<Bytes>, bytes_max: usize) {
        self.write_due();
        if self.output.take(out, bytes_max) {
            self.clock.wrote();
        }
    }

    /// When [`tick`](Connection::tick) wants to be called, at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.clock.deadline()
    }

    /// Lets time pass: login and closing time-outs, the peer's silence, our own empty frames.
    pub fn tick(&mut self, now: Time) {
        self.clock.advance(now);
        self.check_clock();
    }

    fn check_clock(&mut self) {
        match self.clock.due() {
            None => {}
            Some(Alarm::SendEmptyFrame) => {
                // What waits to be written does as well.
                self.write_due();
                if !self.output.is_ready() {
                    self.output.empty_frame();
                }
                self.clock.wrote();
            }
            Some(Alarm::CloseUnanswered) => {
                self.report_closed(None, false);
                self.finish();
            }
            Some(Alarm::PeerSilent) => {
                let text = "nothing came within the idle time-out";
                self.fail(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
            }
            Some(Alarm::LoginTooSlow) => {
                let error =
                    Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "the login took too long");
                if matches!(self.phase, Phase::Frames) {
                    self.fail(error);
                } else {
                    self.report_closed(Some(error), false);
                    self.finish();
                }
            }
        }
    }

    /// Counts as having heard from the peer: for a driver that leaves the socket unread of its own
    /// will (back-pressure), so that the idle time-out does not punish the peer for it. The limits
    /// of the login and of the wait for the peer's close stay.
    pub fn heard(&mut self, now: Time) {
        self.clock.advance(now);
        self.clock.heard();
    }

    /// Whether a [`Login`](Event::Login) waits for its answer: a driver reads nothing more from the
    /// socket until then.
    #[must_use]
    pub fn awaits_login_answer(&self) -> bool {
        matches!(self.phase, Phase::ServerSasl { asked: true, .. })
    }

    /// Whether the connection is over: write what [`take_output`](Connection::take_output) still
    /// gives, then drop the socket.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// Call when the socket ended or failed: nothing can be written any more.
    pub fn disconnected(&mut self) {
        if !self.is_finished() {
            self.report_closed(None, true);
            self.finish();
        }
        self.output.clear();
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Remembers that a session has something to write.
    fn touch(&mut self, index: u16) {
        if let Some(session) = self.sessions.get_mut(usize::from(index))
            && session.is_due()
            && !std::mem::replace(&mut session.listed, true)
        {
            self.due.push(index);
        }
    }

    fn write_due(&mut self) {
        while let Some(index) = self.due.pop() {
            if let Some(session) = self.sessions.get_mut(usize::from(index)) {
                session.listed = false;
                session.write_due(&mut self.output);
            }
        }
    }

    /// Closes because of something that the peer did and only the driver saw. Its answer is not
    /// awaited.
    pub fn abort(&mut self, error: Error) {
        if matches!(self.phase, Phase::Frames) {
            self.fail(error);
        }
    }

    /// Closes because of something that the peer did. Fatal: the peer's answer is not awaited.
    fn fail(&mut self, error: Error) {
        self.write_close(Some(error.clone()));
        self.report_closed(Some(error), false);
        self.finish();
    }

    fn report_closed(&mut self, error: Option<Error>, by_peer: bool) {
        self.events.push_back(Event::Closed { error, by_peer });
    }

    /// What is encoded stays to be written.
    fn finish(&mut self) {
        self.phase = Phase::Finished;
        self.forget_sessions();
        self.clock.stop();
    }

    fn forget_sessions(&mut self) {
        self.sessions.clear();
        self.unfinished = UnfinishedDeliveries::default();
        self.outcomes = None;
        self.channels.clear();
        self.names.clear();
        self.due.clear();
        self.links = 0;
    }
}

/// The name of a link, which is unique per direction (AMQP 2.6.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LinkName {
    peer_sends: bool,
    name: Arc<str>,
}

fn name_key(peer_role: Role, name: &Arc<str>) -> LinkName {
    LinkName { peer_sends: matches!(peer_role, Role::Sender), name: Arc::clone(name) }
}
