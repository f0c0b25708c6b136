//! The connection: how it is made, driven and closed.
//!
//! Invariant: all bytes and all events pass through [`Client::step`]; everything else waits for a
//! condition over the state that it keeps.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use towline_amqp::sasl::ClientLogin;
use towline_amqp::types::{Outcome, Role};
use towline_amqp::{
    AttachRequest, ClientOptions, Connection, Event, IncomingId, LinkId, PeerOpen, SessionId,
};
use towline_types::Time;

use crate::address::Address;
use crate::error::Error;
use crate::link::{Link, LinkEnd, Receiver, Sender};
use crate::options::{Options, Sasl};
use crate::stream::{NO_ACTIVE, Stream};

/// Bytes that one read may give.
const READ_BYTES: usize = 256 * 1024;
/// Bytes that are encoded before they are written.
const WRITE_BYTES: usize = 256 * 1024;
/// A socket's time-out must not be zero.
const SHORTEST: Duration = Duration::from_millis(1);
/// Time to say goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a queue manager.
pub struct Client {
    pub(crate) connection: Connection,
    stream: Stream,
    input: BytesMut,
    buffer: Box<[u8]>,
    output: VecDeque<Bytes>,
    started: (Instant, Time),
    session: Option<SessionId>,
    opened: Option<PeerOpen>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    /// Messages that were accepted, and are not known to be gone from their queues for good.
    pub(crate) unconfirmed: Vec<IncomingId>,
    /// The connection or session is over, and why.
    lost: Option<String>,
    refused: Option<towline_amqp::types::Error>,
    pub(crate) timeout: Duration,
    /// For names that must not repeat.
    pub(crate) counter: u64,
    pub(crate) nonce: String,
    /// Where units of work are declared, once one was.
    pub(crate) coordinator: Option<LinkId>,
    /// Where requests go and replies come from, once there was one.
    pub(crate) admin: Option<(Sender, Receiver)>,
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, logs in and begins a session.
    ///
    /// # Errors
    /// [`Error::CannotConnect`] with the reason.
    pub fn connect(address: &Address, options: &Options) -> Result<Client, Error> {
        let failed = |reason: String| Error::CannotConnect { address: address.to_string(), reason };
        let stream = Stream::connect(address, options).map_err(failed)?;
        let nonce = nonce().map_err(failed)?;
        let login = login(address, options, &nonce).map_err(failed)?;
        let hostname = match address {
            Address::Local(_) => None,
            Address::Remote(url) => Some(Arc::from(url.host.as_str())),
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = (Instant::now(), Time::ZERO + wall);
        let settings = ClientOptions {
            container_id: format!("{}-{nonce}", options.container).into(),
            hostname,
            login: Some(login),
            // It is this client that gives up first, and says so in its own words.
            login_timeout: options.timeout.saturating_mul(2),
            ..ClientOptions::default()
        };
        let mut client = Client {
            connection: Connection::client(settings, started.1),
            stream,
            input: BytesMut::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            output: VecDeque::new(),
            started,
            session: None,
            opened: None,
            links: BTreeMap::new(),
            lost: None,
            unconfirmed: Vec::new(),
            refused: None,
            timeout: options.timeout,
            counter: 0,
            nonce,
            coordinator: None,
            admin: None,
        };
        match client.wait("connect", |client| client.opened.is_some()) {
            Ok(()) => {}
            Err(Error::Refused { description, condition }) if description.is_empty() => {
                return Err(failed(condition));
            }
            Err(Error::Refused { description, .. }) => return Err(failed(description)),
            Err(Error::NoAnswer { after, .. }) => {
                let waited = after.as_secs_f64();
                return Err(failed(format!("no answer within {waited} s; {NO_ACTIVE}")));
            }
            Err(other) => return Err(failed(other.to_string())),
        }
        client.session = client.connection.begin();
        Ok(client)
    }

    /// The name by which the server introduced itself.
    #[must_use]
    pub fn server(&self) -> &str {
        self.opened.as_ref().map_or("", |opened| &opened.container_id)
    }

    /// Closes the connection in the ordinary way. What was received and not accepted goes back.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn close(mut self) -> Result<(), Error> {
        self.connection.close(None);
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.lost.is_none() && Instant::now() < deadline {
            self.step(Some(deadline))?;
        }
        Ok(())
    }

    /// Microseconds since the Unix epoch, never going back.
    fn now(&self) -> Time {
        self.started.1 + self.started.0.elapsed()
    }

    /// A name that this client has not used before.
    pub(crate) fn fresh(&mut self, what: &str) -> String {
        self.counter = self.counter.saturating_add(1);
        format!("{what}-{}-{}", self.nonce, self.counter)
    }

    /// Attaches a link and waits for the server's word.
    pub(crate) fn attach(&mut self, request: AttachRequest) -> Result<LinkId, Error> {
        let role = request.role;
        // Closed right behind its open frame: the server's reason is the one to report.
        self.alive()?;
        let session = self.session.ok_or_else(|| Error::Lost("there is no session".into()))?;
        let link = self.connection.attach(session, request);
        let link = link.ok_or_else(|| Error::Lost("the session takes no more links".into()))?;
        self.links.insert(link, Link::new(role));
        self.wait("attach", |client| {
            client.links.get(&link).is_none_or(|link| link.attached || link.ended.is_some())
        })?;
        self.check(link)?;
        Ok(link)
    }

    /// Detaches a link and waits for the server's word.
    pub(crate) fn detach(&mut self, link: LinkId) -> Result<(), Error> {
        self.connection.detach(link, true, None);
        let ended =
            |client: &Client| client.links.get(&link).is_none_or(|link| link.ended.is_some());
        let result = self.wait("detach", ended);
        self.links.remove(&link);
        result
    }

    /// Whether a link is up.
    pub(crate) fn check(&self, link: LinkId) -> Result<(), Error> {
        match self.links.get(&link) {
            Some(Link { ended: None, .. }) => Ok(()),
            Some(Link { ended: Some(LinkEnd(error)), .. }) => Err(Error::refused(error.as_ref())),
            None => Err(Error::Lost("the link is gone".into())),
        }
    }

    /// Drives the connection until something holds.
    ///
    /// # Errors
    /// [`Error::NoAnswer`] when it does not in time; [`Error::Lost`] when it no longer can.
    pub(crate) fn wait(
        &mut self,
        what: &'static str,
        holds: impl Fn(&Client) -> bool,
    ) -> Result<(), Error> {
        let after = self.timeout;
        let deadline = Instant::now() + after;
        while !holds(self) {
            self.alive()?;
            if Instant::now() >= deadline {
                return Err(Error::NoAnswer { what, after });
            }
            self.step(Some(deadline))?;
        }
        Ok(())
    }

    /// Whether the connection is up.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        match (&self.refused, &self.lost) {
            (Some(error), _) => Err(Error::refused(Some(error))),
            (None, Some(reason)) => Err(Error::Lost(reason.clone())),
            (None, None) => Ok(()),
        }
    }

    /// Writes what is to be written, without waiting for anything to come.
    pub(crate) fn push(&mut self) -> Result<(), Error> {
        while self.connection.has_output() {
            self.connection.take_output(&mut self.output, WRITE_BYTES);
            while let Some(bytes) = self.output.pop_front() {
                if let Err(error) = self.stream.write_all(&bytes) {
                    return Err(self.failed(error));
                }
            }
        }
        match self.stream.flush() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&mut self, error: std::io::Error) -> Error {
        self.connection.disconnected();
        self.lost = Some(towline_tls::reason(&error));
        Error::Io(error)
    }

    /// Writes, reads once, and takes in what happened. Returns at the deadline at the latest.
    pub(crate) fn step(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        self.push()?;
        let now = self.now();
        let until = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let tick = self.connection.deadline().map(|at| at.since(now));
        let timeout = [until, tick].into_iter().flatten().min().unwrap_or(self.timeout);
        if let Err(error) = self.stream.set_read_timeout(timeout.max(SHORTEST)) {
            return Err(self.failed(error));
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => {
                self.connection.disconnected();
                self.lost.get_or_insert_with(|| "the server closed the socket".into());
            }
            Ok(count) => {
                self.input.extend_from_slice(self.buffer.get(..count).unwrap_or_default());
                let now = self.now();
                self.connection.receive(now, &mut self.input);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(self.failed(error)),
            },
        }
        let now = self.now();
        self.connection.tick(now);
        while let Some(event) = self.connection.next_event() {
            self.on_event(event);
        }
        // The socket may be gone already: what is left to say is said as far as possible.
        if self.lost.is_none() { self.push() } else { Ok(()) }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Opened(opened) => self.opened = Some(*opened),
            // Only servers see these.
            Event::Login(_) | Event::SessionBegun(_) | Event::LostInUnit { .. } => {}
            Event::SenderSettled { session, deliveries, .. } => {
                let is = |id: &IncomingId| id.link.is_of(session) && deliveries.has(*id);
                self.unconfirmed.retain(|id| !is(id));
            }
            // Our links take messages of any length.
            Event::TooLong(_) => {}
            Event::SessionEnded { error, .. } => {
                self.lost = Some("the session ended".into());
                self.refused = error;
            }
            Event::Attached(attached) => {
                if let Some(link) = self.links.get_mut(&attached.link) {
                    link.on_attached(&attached);
                }
            }
            Event::Flow(flow) => {
                if let Some(link) = self.links.get_mut(&flow.link) {
                    link.on_flow(flow);
                }
            }
            Event::Transfer(transfer) => {
                if let Some(link) = self.links.get_mut(&transfer.link) {
                    link.on_transfer(transfer);
                }
            }
            Event::Outcome { link, key, state, settled } => {
                if !settled {
                    self.connection.settle_outgoing(link, key, None);
                }
                if let Some(link) = self.links.get_mut(&link) {
                    link.on_outcome(key, state.as_ref());
                }
            }
            Event::Detached { link, error, .. } => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.ended = Some(LinkEnd(error));
                }
            }
            Event::Closed { error, .. } => {
                self.lost.get_or_insert_with(|| "the server closed the connection".into());
                if self.refused.is_none() {
                    self.refused = error;
                }
            }
        }
    }

    /// A link request with what all have in common.
    pub(crate) fn request(&mut self, what: &str, role: Role) -> AttachRequest {
        AttachRequest {
            name: self.fresh(what).into(),
            role,
            source: None,
            target: None,
            sender_settle_mode: Default::default(),
            receiver_settle_mode: Default::default(),
            message_bytes_max: 0,
            desired_capabilities: Default::default(),
            properties: Default::default(),
        }
    }
}

/// The outcome of a delivery that is dealt with.
pub(crate) const ACCEPTED: Outcome = Outcome::Accepted;

/// Random text for SCRAM and for names: 24 hexadecimal digits.
fn nonce() -> Result<String, String> {
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn login(address: &Address, options: &Options, nonce: &str) -> Result<ClientLogin, String> {
    let user = match address {
        Address::Local(_) => None,
        Address::Remote(url) => url.user.clone(),
    };
    let sasl = options.sasl.unwrap_or(match user {
        Some(_) => Sasl::Scram,
        None => Sasl::Anonymous,
    });
    let credentials = || -> Result<(Arc<str>, Arc<str>), String> {
        let user = user.as_deref().ok_or("a user is needed: amqp://user@host")?;
        let password = options.password.as_deref().ok_or("a password is needed")?;
        Ok((user.into(), password.into()))
    };
    Ok(match sasl {
        Sasl::Anonymous => ClientLogin::Anonymous,
        Sasl::External => ClientLogin::External,
        Sasl::Plain => {
            let (user, password) = credentials()?;
            ClientLogin::Plain { user, password }
        }
        Sasl::Scram => {
            let (user, password) = credentials()?;
            ClientLogin::Scram { user, password, nonce: nonce.into() }
        }
    })
}
