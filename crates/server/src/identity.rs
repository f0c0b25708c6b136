//! Who a client is and what it may do at the door: mechanisms of a listener, users and their
//! credentials, certificate names, who may administer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use towline_admin::catalogue::LOGIN_REFUSED;
use towline_amqp::ServerOptions;
use towline_amqp::codec::{Map, Value};
use towline_amqp::sasl::{Claim, Mechanism, ScramCredentials};
use towline_amqp::types::SaslCode;
use towline_node::{FrontOptions, Logins, SOLE_CONNECTION};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::attempts::{Attempts, network};
use crate::clock::Clock;
use crate::config::{LimitsConfig, ListenerConfig};
use crate::logging::log;
use crate::users::Users;

/// The version of this program, as it is told to peers, clients and people. One string that stands in the program
/// as such: the compiler is not to make numbers of it, and the test of mixed versions changes it there.
pub(crate) fn build() -> &'static str {
    std::hint::black_box(env!("CARGO_PKG_VERSION"))
}

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
    attempts: Arc<Attempts>,
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
        attempts: &Arc<Attempts>,
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
            attempts: Arc::clone(attempts),
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
            attempts: Arc::default(),
            salt_secret: users.salt_secret(),
            default_model: Arc::from(crate::defaults::DEFAULT_DYNAMIC_MODEL),
        }
    }

    pub(crate) fn login_timeout(&self) -> Duration {
        self.limits.login_timeout()
    }

    /// Who watches the login of one connection.
    pub(crate) fn gate(&self, peer: &Peer, clock: Clock) -> Arc<Gate> {
        let (address, has_certificate) = match peer {
            Peer::Local => (None, false),
            Peer::Tcp { address, tls_identity, .. } => (Some(*address), tls_identity.is_some()),
        };
        Arc::new(Gate {
            users: Arc::clone(&self.users),
            anonymous_allowed: self.anonymous_allowed,
            has_certificate,
            trusted: self.local || (self.loopback && self.users.is_empty()),
            attempts: Arc::clone(&self.attempts),
            wait_max: self.limits.login_timeout() / 2,
            address,
            clock,
            tried: Mutex::new(None),
        })
    }

    /// What the front of one connection starts with.
    pub(crate) fn front_options(&self, peer: &Peer, gate: &Arc<Gate>) -> FrontOptions {
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
            offered_capabilities: ["ANONYMOUS-RELAY", SOLE_CONNECTION].into_iter().collect(),
            properties: Map::default()
                .with("product", Value::String("Towline"))
                .with("version", Value::String(build())),
            ..ServerOptions::default()
        };
        let logins: Arc<dyn Logins> = gate.clone();
        let address = match peer {
            Peer::Local => "local".to_owned(),
            Peer::Tcp { address, encrypted, .. } => {
                format!("{address}{}", if *encrypted { " TLS" } else { "" })
            }
        };
        let default_model = Arc::clone(&self.default_model);
        FrontOptions { machine, logins, address, default_model, elsewhere: None }
    }

    /// Whether it takes only clients of the same machine, and may trust them for that.
    pub(crate) fn only_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether TLS is on.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.encrypted { "amqps" } else { "amqp" }
    }
}

/// Judges the login of one connection, and remembers wrong passwords.
pub(crate) struct Gate {
    users: Arc<Users>,
    anonymous_allowed: bool,
    has_certificate: bool,
    trusted: bool,
    attempts: Arc<Attempts>,
    /// No answer waits longer: the client's time to log in would be over.
    wait_max: Duration,
    /// `None` on the local socket, where nobody needs to guess.
    address: Option<IpAddr>,
    clock: Clock,
    tried: Mutex<Option<Tried>>,
}

/// A login that is not decided, or was refused.
struct Tried {
    user: String,
    mechanism: Mechanism,
    /// How long its answer waits; taken by whoever waits.
    wait: Duration,
    /// What must be compared before there is an answer; taken by whoever waits for it.
    comparison: Option<Comparison>,
}

/// A password that is still to be compared.
pub(crate) struct Comparison {
    users: Arc<Users>,
    address: IpAddr,
    user: Arc<str>,
    password: Arc<str>,
    /// Before, not after: who guesses must not keep the comparing threads busy either.
    wait: Duration,
}

impl Comparison {
    /// The answer to the login, in time; nothing else stops for it.
    pub(crate) async fn answer(self) -> SaslCode {
        if !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
        match self.users.compare(self.address, self.user, self.password).await {
            Some(true) => SaslCode::Ok,
            Some(false) => SaslCode::Auth,
            None => SaslCode::SysTemp,
        }
    }
}

impl Gate {
    fn tries(&self, user: &str, mechanism: Mechanism) {
        let wait = self.address.map(|address| self.attempts.wait(address, self.clock.now()));
        let wait = wait.unwrap_or_default().min(self.wait_max);
        let (user, comparison) = (user.to_owned(), None);
        *self.tried.lock() = Some(Tried { user, mechanism, wait, comparison });
    }

    /// Leaves the answer to a comparison, which takes over the wait.
    fn compare_later(&self, user: &Arc<str>, password: &Arc<str>) {
        if let Some(tried) = &mut *self.tried.lock() {
            tried.comparison = Some(Comparison {
                users: Arc::clone(&self.users),
                // Processes of this machine are one.
                address: network(self.address.unwrap_or(Ipv4Addr::LOCALHOST.into())),
                user: Arc::clone(user),
                password: Arc::clone(password),
                wait: std::mem::take(&mut tried.wait),
            });
        }
    }

    /// The comparison that a login waits for, once.
    pub(crate) fn take_comparison(&self) -> Option<Comparison> {
        self.tried.lock().as_mut().and_then(|tried| tried.comparison.take())
    }

    /// How long what was answered since the last call must wait; zero when it need not.
    pub(crate) fn take_wait(&self) -> Duration {
        self.tried.lock().as_mut().map(|tried| std::mem::take(&mut tried.wait)).unwrap_or_default()
    }

    /// The connection ended without a login. Counts when one was tried.
    pub(crate) fn refused(&self) {
        let Some(tried) = self.tried.lock().take() else { return };
        let guessed = matches!(tried.mechanism, Mechanism::Plain | Mechanism::ScramSha256);
        if let (Some(address), true) = (self.address, guessed) {
            self.attempts.wrong(address, self.clock.now());
        }
        let address = self.address.map_or_else(|| "local".to_owned(), |from| from.to_string());
        log(&LOGIN_REFUSED, &[&address, &printable(&tried.user), tried.mechanism.as_str()]);
    }
}

/// A name from outside, as it may stand in a line of a log.
fn printable(name: &str) -> String {
    const CHARACTERS_MAX: usize = 64;
    name.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect()
}

fn mechanism_of(claim: &Claim) -> (&str, Mechanism) {
    match claim {
        Claim::Anonymous => ("", Mechanism::Anonymous),
        Claim::External { identity, .. } => (identity, Mechanism::External),
        Claim::Plain { user, .. } => (user, Mechanism::Plain),
        Claim::ScramUser { user } => (user, Mechanism::ScramSha256),
    }
}

impl Logins for Gate {
    fn scram(&self, user: &str) -> Option<ScramCredentials> {
        self.tries(user, Mechanism::ScramSha256);
        self.users.credentials(user)
    }

    fn check(&self, claim: &Claim) -> Option<SaslCode> {
        let (user, mechanism) = mechanism_of(claim);
        self.tries(user, mechanism);
        let welcome = match claim {
            Claim::Anonymous => self.anonymous_allowed,
            Claim::External { .. } => self.has_certificate,
            Claim::Plain { authorization, user, .. }
                if !authorization.is_empty() && authorization != user =>
            {
                false
            }
            // Nothing to compare with: such a listener takes anonymous clients as well.
            Claim::Plain { .. } if self.users.is_empty() => true,
            Claim::Plain { user, password, .. } => {
                self.compare_later(user, password);
                return None;
            }
            Claim::ScramUser { .. } => false,
        };
        Some(if welcome { SaslCode::Ok } else { SaslCode::Auth })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(attempts: &Arc<Attempts>, clock: Clock) -> Arc<Gate> {
        let address = "127.0.0.1:0".parse().unwrap();
        let users = Arc::new(Users::of("alice", "right"));
        let listener = ListenerConfig::plain(address);
        let limits = LimitsConfig::default();
        let doorman = Doorman::new("QM1", &listener, &limits, &users, attempts).unwrap();
        let peer = Peer::Tcp { address: address.ip(), tls_identity: None, encrypted: false };
        doorman.gate(&peer, clock)
    }

    /// The answer, and how long it waits before anything is compared.
    fn answer(gate: &Gate, password: &str) -> (SaslCode, Duration) {
        assert_eq!(gate.check(&plain(password)), None, "a comparison takes time");
        let mut comparison = gate.take_comparison().unwrap();
        let wait = std::mem::take(&mut comparison.wait);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        (runtime.block_on(comparison.answer()), wait)
    }

    fn plain(password: &str) -> Claim {
        let (authorization, user) = (Arc::from(""), Arc::from("alice"));
        Claim::Plain { authorization, user, password: Arc::from(password) }
    }

    #[test]
    fn after_three_wrong_passwords_every_answer_waits_the_right_one_too() {
        let (attempts, clock) = (Arc::new(Attempts::default()), Clock::start());
        for _ in 0..3 {
            let gate = gate(&attempts, clock);
            assert_eq!(answer(&gate, "wrong"), (SaslCode::Auth, Duration::ZERO));
            gate.refused();
        }
        let gate = gate(&attempts, clock);
        let (code, wait) = answer(&gate, "right");
        assert_eq!(code, SaslCode::Ok);
        assert!(wait > Duration::ZERO);
        assert_eq!(gate.take_wait(), Duration::ZERO, "once is enough");
        assert!(gate.take_comparison().is_none(), "compared once");
    }

    #[test]
    fn nobody_acts_as_somebody_else_whatever_the_password() {
        let gate = gate(&Arc::new(Attempts::default()), Clock::start());
        let (authorization, user) = (Arc::from("bob"), Arc::from("alice"));
        let claim = Claim::Plain { authorization, user, password: Arc::from("right") };
        assert_eq!(gate.check(&claim), Some(SaslCode::Auth));
    }

    #[test]
    fn a_scram_login_that_ends_without_success_counts_once() {
        let (attempts, clock) = (Arc::new(Attempts::default()), Clock::start());
        for _ in 0..3 {
            let gate = gate(&attempts, clock);
            assert!(gate.scram("alice").is_some());
            gate.refused();
            gate.refused();
        }
        let gate = gate(&attempts, clock);
        assert!(gate.scram("nobody").is_none());
        assert_eq!(gate.take_wait(), Duration::from_millis(250));
    }

    #[test]
    fn a_client_that_tries_nothing_is_no_wrong_password() {
        let (attempts, clock) = (Arc::new(Attempts::default()), Clock::start());
        (0..10).for_each(|_| gate(&attempts, clock).refused());
        let gate = gate(&attempts, clock);
        assert_eq!(answer(&gate, "right"), (SaslCode::Ok, Duration::ZERO));
    }

    #[test]
    fn a_name_from_outside_cannot_forge_a_line_of_the_log() {
        assert_eq!(printable("a\nERROR b\u{1b}[31m"), "a\\nERROR b\\u{1b}[31m");
        assert_eq!(printable(&"x".repeat(1_000)).len(), 64);
    }
}
