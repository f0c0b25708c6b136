//! Who a client is and what it may do at the door: mechanisms of a listener, users and their
//! credentials, certificate names, who may administer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use towline_amqp::ServerOptions;
use towline_amqp::sasl::{Claim, Mechanism, ScramCredentials};
use towline_amqp::types::SaslCode;
use towline_node::{FrontOptions, Logins};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{LimitsConfig, ListenerConfig};
use crate::users::Users;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A process of the same user, on the local socket.
    Local,
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
pub(crate) struct Doorman {
    queue_manager: Arc<str>,
    users: Arc<Users>,
    mechanisms: Vec<Mechanism>,
    anonymous_allowed: bool,
    encrypted: bool,
    loopback: bool,
    local: bool,
    limits: LimitsConfig,
    salt_secret: Arc<[u8]>,
    default_model: Arc<str>,
}

impl Doorman {
    /// The rules of a TCP listener.
    ///
    /// # Errors
    /// When a mechanism is unknown, or the listener would let anybody in without having been told so.
    pub(crate) fn new(
        queue_manager: &str,
        listener: &ListenerConfig,
        limits: &LimitsConfig,
        users: &Arc<Users>,
    ) -> Result<Doorman, String> {
        let loopback = listener.address.ip().is_loopback();
        let encrypted = listener.certificate.is_some();
        let anonymous_allowed = listener.allow_anonymous || (loopback && users.is_empty());
        let mechanisms = match &listener.mechanisms {
            Some(names) => names.iter().map(|name| mechanism(name)).collect::<Result<_, _>>()?,
            None => default_mechanisms(listener, users, anonymous_allowed, encrypted || loopback),
        };
        let named = |wanted| mechanisms.contains(&wanted);
        if named(Mechanism::Anonymous) && !anonymous_allowed {
            return Err(format!(
                "listener {}: ANONYMOUS off loopback, or beside users, needs allow_anonymous = true",
                listener.address
            ));
        }
        if named(Mechanism::Plain) && !encrypted && !loopback && !listener.allow_plaintext {
            return Err(format!("listener {}: PLAIN needs TLS off loopback", listener.address));
        }
        if mechanisms.is_empty() {
            return Err(format!(
                "listener {}: nobody could log in; add users, client_authorities or allow_anonymous",
                listener.address
            ));
        }
        Ok(Doorman {
            queue_manager: Arc::from(queue_manager),
            users: Arc::clone(users),
            mechanisms,
            anonymous_allowed,
            encrypted,
            loopback,
            local: false,
            limits: limits.clone(),
            salt_secret: users.salt_secret(),
            default_model: Arc::from(crate::defaults::DEFAULT_DYNAMIC_MODEL),
        })
    }

    /// The rules of the local socket: only this user can open it, so everybody there is trusted.
    pub(crate) fn local(queue_manager: &str, limits: &LimitsConfig, users: &Arc<Users>) -> Doorman {
        Doorman {
            queue_manager: Arc::from(queue_manager),
            users: Arc::clone(users),
            mechanisms: vec![Mechanism::Anonymous],
            anonymous_allowed: true,
            encrypted: false,
            loopback: true,
            local: true,
            limits: limits.clone(),
            salt_secret: users.salt_secret(),
            default_model: Arc::from(crate::defaults::DEFAULT_DYNAMIC_MODEL),
        }
    }

    pub(crate) fn login_timeout(&self) -> Duration {
        self.limits.login_timeout()
    }

    /// What the front of one connection starts with.
    pub(crate) fn front_options(&self, peer: &Peer) -> FrontOptions {
        let tls_identity = match peer {
            Peer::Tcp { tls_identity, .. } => tls_identity.clone(),
            Peer::Local => None,
        };
        let machine = ServerOptions {
            container_id: Arc::clone(&self.queue_manager),
            idle_timeout: self.limits.idle_timeout(),
            login_timeout: self.limits.login_timeout(),
            sasl_mechanisms: self.mechanisms.clone(),
            require_sasl: !self.anonymous_allowed,
            tls_identity: tls_identity.clone(),
            nonce: crate::random::nonce(),
            salt_secret: Arc::clone(&self.salt_secret),
            ..ServerOptions::default()
        };
        let logins = Arc::new(Gate {
            users: Arc::clone(&self.users),
            anonymous_allowed: self.anonymous_allowed,
            has_certificate: tls_identity.is_some(),
            trusted: self.local || (self.loopback && self.users.is_empty()),
        });
        let address = match peer {
            Peer::Local => "local".to_owned(),
            Peer::Tcp { address, encrypted, .. } => {
                format!("{address}{}", if *encrypted { " TLS" } else { "" })
            }
        };
        FrontOptions { machine, logins, address, default_model: Arc::clone(&self.default_model) }
    }

    /// Whether TLS is on.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.encrypted { "amqps" } else { "amqp" }
    }
}

struct Gate {
    users: Arc<Users>,
    anonymous_allowed: bool,
    has_certificate: bool,
    trusted: bool,
}

impl Logins for Gate {
    fn scram(&self, user: &str) -> Option<ScramCredentials> {
        self.users.credentials(user)
    }

    fn check(&self, claim: &Claim) -> SaslCode {
        let welcome = match claim {
            Claim::Anonymous => self.anonymous_allowed,
            Claim::External { .. } => self.has_certificate,
            Claim::Plain { authorization, user, password } => {
                (authorization.is_empty() || authorization == user)
                    && self.users.password_fits(user, password)
            }
            Claim::ScramUser { .. } => false,
        };
        if welcome { SaslCode::Ok } else { SaslCode::Auth }
    }

    fn may_administer(&self, user: Option<&str>) -> bool {
        self.trusted || user.is_some_and(|user| self.users.is_administrator(user))
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

fn default_mechanisms(
    listener: &ListenerConfig,
    users: &Users,
    anonymous_allowed: bool,
    plain_is_safe: bool,
) -> Vec<Mechanism> {
    let mut mechanisms = Vec::new();
    if listener.client_authorities.is_some() {
        mechanisms.push(Mechanism::External);
    }
    if !users.is_empty() {
        mechanisms.push(Mechanism::ScramSha256);
        if plain_is_safe {
            mechanisms.push(Mechanism::Plain);
        }
    }
    if anonymous_allowed {
        mechanisms.push(Mechanism::Anonymous);
        // Clients that insist on a name, as many examples do, come in as well where nobody is asked.
        if users.is_empty() {
            mechanisms.push(Mechanism::Plain);
        }
    }
    mechanisms
}

/// Common name of the first certificate of a chain.
pub(crate) fn certificate_name(chain: Option<&[CertificateDer<'_>]>) -> Option<Arc<str>> {
    let (_, certificate) = X509Certificate::from_der(chain?.first()?.as_ref()).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    Some(Arc::from(name))
}
