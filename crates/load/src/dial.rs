//! Makes connections: addresses, TLS settings, login, and how many at a time.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use towline_amqp::codec::Map;
use towline_amqp::sasl::ClientLogin;
use towline_amqp::types::Error;
use towline_amqp::{ClientOptions, Connection};
use towline_types::Time;

use crate::plan::{Credentials, Plan};
use crate::random;
use crate::redirect;
use crate::seat::Client;
use crate::tls::TlsSettings;
use crate::wire::Wire;
use towline_amqp::Url;

/// An answer to connect, login and open must come within this time, or `--idle-timeout` if that is
/// less.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections begun in one round of a worker, so that a listen queue of 128 does not overflow.
const DIALS_PER_ROUND: u32 = 64;

/// See the module.
pub(crate) struct Dialer {
    plan: Arc<Plan>,
    tls: Option<TlsSettings>,
    round: Time,
    dialed: u32,
}

impl Dialer {
    /// Reads the authorities when an address asks for TLS.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn new(plan: Arc<Plan>) -> Result<Dialer, String> {
        let wants_tls = plan.urls.iter().any(|url| url.tls);
        let tls = match &plan.ca {
            Some(ca) if wants_tls => Some(TlsSettings::new(ca)?),
            None if wants_tls => return Err("amqps:// needs --ca".into()),
            Some(_) | None => None,
        };
        Ok(Dialer { plan, tls, round: Time::ZERO, dialed: 0 })
    }

    /// The address a client is at.
    pub(crate) fn url(&self, client: &Client) -> Url {
        let count = self.plan.urls.len();
        self.plan.urls[client.url % count].clone()
    }

    /// Whether a client may connect in this round.
    pub(crate) fn may_dial(&mut self, client: &Client, now: Time) -> bool {
        if self.round != now {
            self.round = now;
            self.dialed = 0;
        }
        now >= client.dial_at && self.dialed < DIALS_PER_ROUND
    }

    /// Whether this error sends the client to another address, to which it goes then.
    pub(crate) fn sends_on(&self, client: &mut Client, error: &Error, now: Time) -> bool {
        // Before it was open: a broker does not send away a client that it serves.
        let place = redirect::place(error, &self.url(client)).filter(|_| !client.is_open);
        if place.is_none() {
            return false;
        }
        (client.wire, client.sent_to, client.dial_at) = (None, place, now);
        true
    }

    /// Begins to connect a client.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn dial(
        &mut self,
        client: &mut Client,
        index: usize,
        epoll: &OwnedFd,
        now: Time,
    ) -> Result<(), String> {
        self.dialed += 1;
        let sent_to = client.sent_to.take();
        // A redirected client does not ask again: it might be sent in a circle.
        let asks = self.plan.redirect && sent_to.is_none();
        let url = sent_to.unwrap_or_else(|| self.url(client));
        let options = self.options(&url, client.seat.index, asks)?;
        if url.tls && self.tls.is_none() {
            return Err(format!("sent on to {url}: amqps:// needs --ca and an amqps:// address"));
        }
        let tls = self.tls.as_ref().filter(|_| url.tls);
        let machine = Connection::client(options, now);
        let mut wire = Wire::dial(&url, tls, machine).map_err(|error| error.to_string())?;
        let interest = EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT;
        epoll::add(epoll, wire.as_fd(), EventData::new_u64(index as u64), interest)
            .map_err(|error| error.to_string())?;
        // The first readiness to write says that the connection stands.
        wire.waits_to_write = true;
        client.wire = Some(wire);
        client.give_up_at = now + PATIENCE.min(self.plan.idle_timeout);
        Ok(())
    }

    fn options(&self, url: &Url, index: u32, asks: bool) -> Result<ClientOptions, String> {
        Ok(ClientOptions {
            container_id: format!("towline-load-{:08x}-{index}", self.plan.run).into(),
            hostname: Some(url.host.as_str().into()),
            login: login(&self.plan.credentials)?,
            idle_timeout: self.plan.idle_timeout,
            properties: if asks { redirect::asking() } else { Map::default() },
            ..ClientOptions::default()
        })
    }
}

fn login(credentials: &Credentials) -> Result<Option<ClientLogin>, String> {
    Ok(match credentials {
        Credentials::None => None,
        Credentials::Anonymous => Some(ClientLogin::Anonymous),
        Credentials::Plain { user, password } => {
            Some(ClientLogin::Plain { user: Arc::clone(user), password: Arc::clone(password) })
        }
        Credentials::Scram { user, password } => Some(ClientLogin::Scram {
            user: Arc::clone(user),
            password: Arc::clone(password),
            nonce: random::nonce()?,
        }),
    })
}
