//! One connection's side of the instance: its AMQP machine, translated into requests, and responses
//! translated back. Here AMQP and queues meet, and nowhere else.
//!
//! It holds no message: a delivery's key *is* its sequence, a put waits as a token in [`InFlight`].

mod account;
mod admin;
mod attach;
mod checking;
mod deliver;
mod delivery_window;
mod dynamic;
mod error;
mod format;
mod link_schedule;
mod links;
mod message;
mod open_units;
mod outbound;
mod presettled;
mod producer_credit;
mod redirect;
mod refused;
mod topics;
mod transfer;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use slab::Slab;
use towline_amqp::codec::{OwnedValue, Value};
use towline_amqp::sasl::{Claim, ScramCredentials};
use towline_amqp::types::{DeliveryTag, Error, SaslCode, condition};
use towline_amqp::{Connection, Event, IncomingId, LinkId, Outgoing, PeerOpen, ServerOptions};
use towline_types::{Payload, Time};

pub use self::account::ConnectionAccount;
use self::checking::PendingMessage;
pub use self::checking::{CheckedMessage, MessageCheck};
use self::dynamic::Nodes;
use self::links::Links;
use self::message::SettlementAnswer;
pub(crate) use self::message::{
    DEAD_LETTER_QUEUE, DEAD_LETTER_REASON, DEAD_LETTER_TIME, dead_letter_time,
};
use self::open_units::OpenUnits;
use self::redirect::SERVERS;
pub use self::redirect::{Elsewhere, TurnedAway};
use crate::request::{Request, Response};

/// The users that may log in; asked at login.
pub trait Logins: Send + Sync {
    /// Stored credentials of a user for SCRAM; `None` when there is no user of that name.
    fn scram(&self, user: &str) -> Option<ScramCredentials>;
    /// Whether the login is right. `None`: to find out takes longer than a connection may stop the
    /// others; the driver gives the answer later, with [`Front::answer_login`].
    fn check(&self, claim: &Claim) -> Option<SaslCode>;
    /// Whether this user (`None`: anonymous) may administer.
    fn may_administer(&self, user: Option<&str>) -> bool;
    /// Whether the client has the rights of the process itself: it is the same user of this
    /// machine, or root, on the local socket. Only such a client may have files written anywhere.
    fn is_owner(&self) -> bool {
        false
    }
}

/// What a connection starts with.
pub struct FrontOptions {
    /// The AMQP machine's settings.
    pub machine: ServerOptions,
    /// The users that may log in.
    pub logins: Arc<dyn Logins>,
    /// The peer's address, for people.
    pub address: String,
    /// Model queue of dynamic nodes.
    pub default_model: Arc<str>,
    /// Where a client that asked for it is sent; none: it is served as any other one.
    pub elsewhere: Option<Arc<Elsewhere>>,
    /// All addresses at which clients find the queue manager ([`Elsewhere::list`]), the live
    /// group's first: sent with the open frame to each client that takes so long a frame.
    pub servers: Option<OwnedValue>,
    /// Bytes that the connection may make this process hold; see [`ConnectionAccount`].
    pub bytes_max: u64,
}

/// One connection.
pub struct Front {
    machine: Connection,
    logins: Arc<dyn Logins>,
    address: String,
    default_model: Arc<str>,
    elsewhere: Option<Arc<Elsewhere>>,
    servers: Option<OwnedValue>,
    /// Why this connection is not served; its client is informed after the login.
    unserved: Option<Error>,
    user: Option<Arc<str>>,
    logged_in: bool,
    /// The instance is asked whether the container id is free: nothing behind the open frame is
    /// looked at before it has answered.
    entering: bool,
    ending: Option<Ending>,
    links: Links,
    nodes: Nodes,
    in_flight: Slab<InFlight>,
    /// What came behind it waits.
    checking: Option<PendingMessage>,
    incoming_bytes: usize,
    /// See [`ConnectionAccount`].
    bytes_max: u64,
    full_at: u64,
    /// A consumer was not granted what it wants, because of what the connection holds.
    is_full: bool,
    units: OpenUnits,
    admin_replies: VecDeque<Outgoing>,
    /// Of their contents.
    admin_replies_bytes: usize,
    admin_correlations: HashMap<u64, String>,
    /// See [`Front::set_log_behind`].
    log_behind: bool,
    /// Links that get no credit until the log has caught up.
    withheld: HashSet<LinkId>,
    /// See [`Front::looks`].
    looks: u64,
    /// Header sections are cut from here, many to one allocation.
    prefixes: BytesMut,
    /// See [`Front::set_ahead`].
    ahead_us: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Orderly,
    Lost,
}

/// A delivery of the peer's that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    delivery: IncomingId,
    bytes: usize,
    /// What the peer calls it, where a refusal must say so (an anonymous link).
    tag: Option<DeliveryTag>,
}

/// What a peer asks for that wants to be the only connection of its container id.
pub const SOLE_CONNECTION: &str = "sole-connection-for-container";

/// Token of requests without a waiting client.
const NO_REQUESTER: u64 = u64::MAX;

impl Front {
    /// A connection on a socket that was accepted at `now`.
    #[must_use]
    pub fn new(options: FrontOptions, now: Time) -> Front {
        Front {
            machine: Connection::server(options.machine, now),
            logins: options.logins,
            address: options.address,
            default_model: options.default_model,
            elsewhere: options.elsewhere,
            servers: options.servers,
            unserved: None,
            user: None,
            logged_in: false,
            entering: false,
            ending: None,
            links: Links::default(),
            nodes: Nodes::default(),
            in_flight: Slab::new(),
            checking: None,
            incoming_bytes: 0,
            bytes_max: options.bytes_max,
            full_at: options.bytes_max,
            is_full: false,
            units: OpenUnits::default(),
            admin_replies: VecDeque::new(),
            admin_replies_bytes: 0,
            admin_correlations: HashMap::new(),
            log_behind: false,
            withheld: HashSet::new(),
            looks: 0,
            prefixes: BytesMut::new(),
            ahead_us: 0,
        }
    }

    /// By how many microseconds the time of day is ahead of the time that is given here: it counts
    /// for what expires.
    pub fn set_ahead(&mut self, ahead_us: i64) {
        self.ahead_us = ahead_us;
    }

    /// One that cannot be served: it logs in as everywhere, and is given the reason and closed
    /// then, with a condition at which libraries connect anew, or follow. Nothing is ever asked of
    /// the instance.
    #[must_use]
    pub fn turning_away(options: FrontOptions, why: &TurnedAway, now: Time) -> Front {
        Front { unserved: Some(why.error()), ..Front::new(options, now) }
    }

    /// Takes whole frames from the front of `input`; what they ask for is added to `requests`.
    /// Nothing is taken while a message [is being checked](Front::is_checking).
    pub fn receive(&mut self, now: Time, input: &mut BytesMut, requests: &mut Vec<Request>) {
        if self.checking.is_some() {
            return;
        }
        loop {
            let before = input.len();
            self.machine.receive(now, input);
            self.take_events(now, requests);
            // While a login waits for its answer the machine takes nothing.
            let is_all = input.is_empty() || input.len() == before || self.machine.has_more();
            if is_all || self.checking.is_some() {
                self.check_arriving();
                if self.is_full {
                    self.go_on_if_free(requests);
                }
                return self.windows_moved();
            }
        }
    }

    /// The answer to a login that [`Logins::check`] left open; then as [`Front::receive`], with
    /// what the peer sent behind it. After a time-out it comes too late, and does nothing.
    pub fn answer_login(
        &mut self,
        now: Time,
        code: SaslCode,
        input: &mut BytesMut,
        requests: &mut Vec<Request>,
    ) {
        self.machine.sasl_outcome(code);
        self.take_events(now, requests);
        self.receive(now, input, requests);
    }

    /// Time passed.
    pub fn tick(&mut self, now: Time, requests: &mut Vec<Request>) {
        self.machine.tick(now);
        self.take_events(now, requests);
    }

    /// When `tick` must be called.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.machine.deadline().unwrap_or(Time::NEVER)
    }

    /// Whether what was received is not carried out wholly: [`Front::receive`] goes on with it,
    /// also without new bytes, when others had their turn.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.machine.has_more()
    }

    /// Whether the connection is over once the output is flushed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.machine.is_finished() && self.checking.is_none()
    }

    /// Whether both sides closed it without an error.
    #[must_use]
    pub fn ended_orderly(&self) -> bool {
        self.ending == Some(Ending::Orderly)
    }

    /// Whether the peer's open frame was accepted.
    #[must_use]
    pub fn is_logged_in(&self) -> bool {
        self.logged_in
    }

    /// Bytes of messages that came in and have no answer yet.
    #[must_use]
    pub fn incoming_bytes(&self) -> usize {
        self.incoming_bytes
    }

    /// Bytes of messages without their last frame so far, and of one that is being checked.
    #[must_use]
    pub fn unfinished_bytes(&self) -> u64 {
        self.machine.unfinished_bytes() + self.checking_bytes()
    }

    /// Whether there is something to send.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.machine.has_output()
    }

    /// Bytes that wait to be taken.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.machine.output_bytes()
    }

    /// Bytes of messages that were begun, and are in memory until their windows let them out.
    #[must_use]
    pub fn begun_bytes(&self) -> usize {
        self.machine.begun_bytes()
    }

    /// The driver does not read for the time being: the peer's silence is not its own.
    pub fn listening_stopped(&mut self, now: Time) {
        self.machine.heard(now);
    }

    /// Encoded bytes to send, in order, about `bytes_max` of them.
    pub fn take_output(&mut self, output: &mut VecDeque<Bytes>, bytes_max: usize) {
        self.machine.take_output(output, bytes_max);
    }

    /// Carries out one response that was admitted. `body` is the content of a
    /// [`Response::Deliver`].
    pub fn respond(
        &mut self,
        now: Time,
        response: Response,
        body: Option<Payload>,
        requests: &mut Vec<Request>,
    ) {
        match response {
            Response::Put { token, unit, result } => {
                self.put_answered(token, unit, result, requests);
            }
            Response::Connected { entered } => self.connected(now, entered, requests),
            Response::Deliver(delivery) => {
                // Without it the client would get an empty message, and settle the real one.
                let Some(body) = body else { unreachable!("a delivery comes with its content") };
                self.deliver(now, delivery, body, requests);
            }
            Response::Settled { link, sequence, unit, outcome, result } => {
                let answer = SettlementAnswer { link, sequence, unit, outcome, result };
                self.settled(now, answer, requests);
            }
            Response::Drained { consumer, flow } => self.drained(consumer, flow, requests),
            Response::Withdrawn { consumer, flow } => self.withdrawn(consumer, flow, requests),
            Response::ProducerOpened { link, result } => {
                self.producer_opened(link, result, requests);
            }
            Response::ConsumerOpened { link, result } => {
                self.consumer_opened(link, result, requests);
            }
            Response::ConsumerClosed { consumer, reason } => {
                self.consumer_closed(consumer, &reason, requests);
            }
            Response::Declared { token, result } => self.declared(token, result, requests),
            Response::Discharged { token, unit, fail, result } => {
                self.discharged(token, unit, fail, result, requests);
            }
            // The peer hears of it at its next use of the unit: AMQP has no frame for it.
            Response::UnitRolledBack { .. } => {}
            Response::Admin(reply) => self.admin_answered(reply),
            Response::Ending(farewell) => self.close(&farewell.to_string()),
            Response::Stopped => {
                self.close("an administrator stopped the connection (STOP CONN)");
            }
        }
    }

    /// The peer keeps memory from others and does not go on: the connection is over.
    pub fn stood_still(&mut self) {
        let text = "the connection stopped in the middle of a large message, and others wait for the \
                    memory that it takes";
        self.machine.abort(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
        self.ending.get_or_insert(Ending::Lost);
    }

    /// Closes the connection. Orderly: what the client was given and did not settle is not its
    /// fault, so it counts no backout.
    fn close(&mut self, why: &str) {
        self.machine.close(Some(Error::new(condition::CONNECTION_FORCED, why)));
        self.ending.get_or_insert(Ending::Orderly);
    }

    fn take_events(&mut self, now: Time, requests: &mut Vec<Request>) {
        while !self.entering && self.checking.is_none() {
            let Some(event) = self.machine.next_event() else { return };
            self.take_event(now, event, requests);
        }
    }

    fn take_event(&mut self, now: Time, event: Event, requests: &mut Vec<Request>) {
        match event {
            Event::Transfer(transfer) => self.transfer(now, transfer, requests),
            Event::TooLong(too_long) => self.too_long(&too_long, requests),
            Event::Outcome { link, key, state, settled } => {
                self.outcome(link, key, state.as_ref(), settled, requests);
            }
            Event::Flow(flow) => self.flow(flow, requests),
            Event::Login(login) => self.login(&login),
            Event::Opened(opened) => self.opened(&opened, requests),
            Event::Attached(attached) => self.attached(*attached, requests),
            Event::Detached { link, by_peer, closed, .. } => {
                if !by_peer && self.links.is_producer(link) {
                    // A message that was too long, for example: it may have been part of any unit.
                    self.units.spoil_all();
                }
                self.link_gone(link, closed || !by_peer, requests);
            }
            Event::SessionEnded { session, by_peer, .. } => {
                if !by_peer {
                    // What ended it, and what was behind that, may have been part of any unit.
                    self.units.spoil_all();
                }
                let links: Vec<LinkId> = self.links.of_session(session).collect();
                for link in links {
                    self.link_gone(link, false, requests);
                }
                let queues = self.nodes.session_ended(session).into_iter();
                requests.extend(queues.map(|queue| Request::DropKept { queue }));
            }
            Event::Closed { error, by_peer } => {
                let orderly = error.is_none() && by_peer;
                self.ending.get_or_insert(if orderly { Ending::Orderly } else { Ending::Lost });
            }
            Event::LostInUnit { txn_id } => self.lost_in_unit(&txn_id),
            Event::SessionBegun(_) | Event::SenderSettled { .. } => {}
        }
    }

    fn login(&mut self, claim: &Claim) {
        match claim {
            Claim::ScramUser { user } => {
                let credentials = self.logins.scram(user);
                self.machine.sasl_credentials(credentials);
            }
            Claim::Anonymous | Claim::External { .. } | Claim::Plain { .. } => {
                if let Some(code) = self.logins.check(claim) {
                    self.machine.sasl_outcome(code);
                }
            }
        }
    }

    fn opened(&mut self, opened: &PeerOpen, requests: &mut Vec<Request>) {
        self.user.clone_from(&opened.user);
        self.logged_in = true;
        if let Some(servers) = self.servers.take() {
            // One that does not take so long a frame goes by the addresses that it has.
            self.machine.offer_property(SERVERS, servers.view());
        }
        if let Some(error) = self.unserved.take() {
            self.machine.close(Some(error));
            self.ending.get_or_insert(Ending::Orderly);
            return;
        }
        if let Some(elsewhere) = self.elsewhere.take()
            && redirect::is_wanted(opened)
        {
            self.machine.close(Some(elsewhere.error("the active instance is there")));
            self.ending.get_or_insert(Ending::Orderly);
            return;
        }
        self.entering = true;
        requests.push(Request::Connected {
            sole: opened.desired_capabilities.contains(SOLE_CONNECTION),
            container: opened.container_id.to_string(),
            user: opened.user.as_deref().map(str::to_owned),
            address: self.address.clone(),
        });
    }

    /// The instance knows whether another connection has the container id (AMQP JMS binding, 4.3.1;
    /// Enforcing Connection Uniqueness, 2.1).
    fn connected(&mut self, now: Time, entered: bool, requests: &mut Vec<Request>) {
        assert!(self.entering, "whether a connection is let in is answered once");
        self.entering = false;
        if entered {
            self.machine.accept_open();
            return self.take_events(now, requests);
        }
        let text = "another connection has this container id (JMS: client id), and one of the two \
                    asks to be the only one";
        let mut error = Error::new(condition::INVALID_FIELD, text);
        error.fields = error.fields.with("invalid-field", Value::Symbol("container-id"));
        self.machine.close(Some(error));
        self.ending.get_or_insert(Ending::Orderly);
    }
}
