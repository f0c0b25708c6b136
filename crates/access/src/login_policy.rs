//! The rules of one listener: which SASL mechanisms it offers, and whether each of them can let a
//! client in.
//!
//! Not here: the login of one connection (`gate`), credentials (`users`).
//!
//! Invariants: a client has a name only if it proved it; over TCP only a name may administer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towline_amqp::ServerOptions;
use towline_amqp::codec::{Map, Value};
use towline_amqp::sasl::Mechanism;
use towline_node::{FrontOptions, Logins, SOLE_CONNECTION};

use crate::attempts::Attempts;
use crate::gate::Gate;
use crate::users::Users;
use towline_config::{LimitsConfig, ListenerConfig};
use towline_process::Clock;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process on the local socket, which took it for a right one; or relayed from that of
    /// another instance of the group, which did.
    Local {
        /// It is the user that runs this process, or root.
        owner: bool,
    },
    /// A TCP client.
    Tcp {
        /// From where.
        address: IpAddr,
        /// Common name of its certificate.
        tls_identity: Option<Arc<str>>,
        /// Whether TLS is on.
        encrypted: bool,
    },
}

/// The rules of one listener.
pub struct LoginPolicy {
    queue_manager: Arc<str>,
    users: Arc<Users>,
    mechanisms: Vec<Mechanism>,
    anonymous_allowed: bool,
    encrypted: bool,
    loopback: bool,
    local: bool,
    limits: LimitsConfig,
    attempts: Arc<Attempts>,
    salt_secret: Arc<[u8]>,
}

impl LoginPolicy {
    /// The rules of a TCP listener.
    ///
    /// # Errors
    /// When a mechanism is unknown, or the listener could admit no client, or more than the
    /// configuration says.
    pub fn new(
        queue_manager: &str,
        listener: &ListenerConfig,
        limits: &LimitsConfig,
        users: &Arc<Users>,
        attempts: &Arc<Attempts>,
    ) -> Result<LoginPolicy, String> {
        let loopback = listener.address.ip().is_loopback();
        let encrypted = listener.certificate.is_some();
        let mechanisms = mechanisms(listener, users)
            .map_err(|why| format!("listener {}: {why}", listener.address))?;
        Ok(LoginPolicy {
            queue_manager: Arc::from(queue_manager),
            users: Arc::clone(users),
            anonymous_allowed: mechanisms.contains(&Mechanism::Anonymous),
            mechanisms,
            encrypted,
            loopback,
            local: false,
            limits: limits.clone(),
            attempts: Arc::clone(attempts),
            salt_secret: users.salt_secret(),
        })
    }

    /// The rules of the local socket: the file mode decides which users open it, and the listener
    /// has checked the user of the client, so each client there may administer.
    pub fn local(queue_manager: &str, limits: &LimitsConfig, users: &Arc<Users>) -> LoginPolicy {
        LoginPolicy {
            queue_manager: Arc::from(queue_manager),
            users: Arc::clone(users),
            mechanisms: vec![Mechanism::Anonymous],
            anonymous_allowed: true,
            encrypted: false,
            loopback: true,
            local: true,
            limits: limits.clone(),
            attempts: Arc::default(),
            salt_secret: users.salt_secret(),
        }
    }

    /// How long a client may take to log in.
    #[must_use]
    pub fn login_timeout(&self) -> Duration {
        self.limits.login_timeout()
    }

    /// Who watches the login of one connection.
    pub fn gate(&self, peer: &Peer, clock: Clock) -> Arc<Gate> {
        let (address, has_certificate, owner) = match peer {
            Peer::Local { owner } => (None, false, *owner),
            Peer::Tcp { address, tls_identity, .. } => {
                (Some(*address), tls_identity.is_some(), false)
            }
        };
        Arc::new(Gate {
            users: Arc::clone(&self.users),
            offered: self.mechanisms.clone(),
            has_certificate,
            local: self.local,
            owner: self.local && owner,
            attempts: Arc::clone(&self.attempts),
            wait_max: self.limits.login_timeout() / 2,
            address,
            clock,
            attempt: Mutex::new(None),
        })
    }

    /// What the front of one connection starts with.
    pub fn front_options(
        &self,
        peer: &Peer,
        gate: &Arc<Gate>,
        default_model: &str,
    ) -> FrontOptions {
        let tls_identity = match peer {
            Peer::Tcp { tls_identity, .. } => tls_identity.clone(),
            Peer::Local { .. } => None,
        };
        let machine = ServerOptions {
            container_id: Arc::clone(&self.queue_manager),
            idle_timeout: self.limits.idle_timeout(),
            login_timeout: self.limits.login_timeout(),
            sasl_mechanisms: self.mechanisms.clone(),
            require_sasl: !self.anonymous_allowed,
            tls_identity: tls_identity.clone(),
            nonce: towline_process::random::nonce(),
            salt_secret: Arc::clone(&self.salt_secret),
            offered_capabilities: ["ANONYMOUS-RELAY", SOLE_CONNECTION].into_iter().collect(),
            properties: Map::default()
                .with("product", Value::String("Towline"))
                .with("version", Value::String(towline_types::program_version())),
            ..ServerOptions::default()
        };
        let logins: Arc<dyn Logins> = gate.clone();
        let address = match peer {
            Peer::Local { .. } => "local".to_owned(),
            Peer::Tcp { address, encrypted, .. } => {
                format!("{address}{}", if *encrypted { " TLS" } else { "" })
            }
        };
        let default_model = Arc::from(default_model);
        let bytes_max = self.limits.connection_memory_bytes_max;
        let (elsewhere, servers) = (None, None);
        FrontOptions { machine, logins, address, default_model, elsewhere, servers, bytes_max }
    }

    /// Whether it takes only clients of the same machine, and may trust them for that.
    pub fn only_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether TLS is on.
    pub fn scheme(&self) -> &'static str {
        if self.encrypted { "amqps" } else { "amqp" }
    }
}

fn mechanism(name: &str) -> Result<Mechanism, String> {
    match name {
        "ANONYMOUS" => Ok(Mechanism::Anonymous),
        "PLAIN" => Ok(Mechanism::Plain),
        "EXTERNAL" => Ok(Mechanism::External),
        "SCRAM-SHA-256" => Ok(Mechanism::ScramSha256),
        other => Err(format!(
            "mechanism '{other}' is unknown; there are SCRAM-SHA-256, EXTERNAL, PLAIN, ANONYMOUS"
        )),
    }
}

/// The mechanisms that a listener offers: those it names, or all that can let a client in there.
///
/// # Errors
/// What is wrong and what to do: a mechanism that could admit no client, or that would let in more
/// than the configuration says.
fn mechanisms(listener: &ListenerConfig, users: &Users) -> Result<Vec<Mechanism>, String> {
    let loopback = listener.address.ip().is_loopback();
    let certificates = listener.client_authorities.is_some();
    // A users file without a user in it is an accident, and does not open the door.
    let anonymous = listener.allow_anonymous || (loopback && !users.is_named());
    let plain_is_safe = loopback || listener.certificate.is_some();
    let Some(names) = &listener.mechanisms else {
        let some = [
            (certificates, Mechanism::External),
            (!users.is_empty(), Mechanism::ScramSha256),
            (!users.is_empty() && plain_is_safe, Mechanism::Plain),
            (anonymous, Mechanism::Anonymous),
        ];
        let offered: Vec<_> = some.iter().filter(|(fits, _)| *fits).map(|(_, one)| *one).collect();
        if offered.is_empty() {
            return Err(format!("no client could log in: {}", no_users(users)));
        }
        return Ok(offered);
    };
    let offered: Vec<Mechanism> =
        names.iter().map(|name| mechanism(name)).collect::<Result<_, _>>()?;
    for one in &offered {
        match one {
            Mechanism::Anonymous if !anonymous => {
                return Err(
                    "ANONYMOUS off loopback, or beside users, needs allow_anonymous = true".into(),
                );
            }
            Mechanism::External if !certificates => {
                return Err(
                    "EXTERNAL needs client_authorities, which sign the client certificates".into(),
                );
            }
            Mechanism::Plain | Mechanism::ScramSha256 if users.is_empty() => {
                let name = one.as_str();
                return Err(format!("no client could log in with {name}: {}", no_users(users)));
            }
            Mechanism::Plain if !plain_is_safe && !listener.allow_plaintext => {
                return Err("PLAIN needs TLS off loopback".into());
            }
            Mechanism::Anonymous
            | Mechanism::External
            | Mechanism::Plain
            | Mechanism::ScramSha256 => {}
        }
    }
    if offered.is_empty() {
        return Err("mechanisms is empty: leave it out, or name one".into());
    }
    Ok(offered)
}

/// What to do where there is no user to compare a password with.
fn no_users(users: &Users) -> &'static str {
    if users.is_named() {
        "no user stands in the users file; make one with `towline user NAME --file FILE`, or set \
         client_authorities or allow_anonymous"
    } else {
        "there are no users; make some with `towline user NAME --file FILE` and name the file in \
         [users] file, or set client_authorities or allow_anonymous"
    }
}
