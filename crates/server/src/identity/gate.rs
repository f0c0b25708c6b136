//! The login of one connection: what is claimed is held against what is known, how long the answer
//! waits, and what a refusal leaves behind.
//!
//! Not here: which mechanisms a listener offers (`identity`); how long a wait is (`attempts`).
//!
//! Invariants: only what was offered can succeed; a password is never right without a comparison.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towline_admin::catalogue::LOGIN_REFUSED;
use towline_amqp::sasl::{Claim, Mechanism, ScramCredentials};
use towline_amqp::types::SaslCode;
use towline_config::client_network;
use towline_node::Logins;

use crate::attempts::Attempts;
use crate::users::Users;
use towline_logging::log_seldom;
use towline_process::Clock;

/// Judges the login of one connection, and remembers wrong passwords.
pub(crate) struct Gate {
    pub(super) users: Arc<Users>,
    /// The mechanisms of the listener. The AMQP machine takes no other; this is the second lock.
    pub(super) offered: Vec<Mechanism>,
    pub(super) has_certificate: bool,
    /// On the local socket: everybody there may administer.
    pub(super) local: bool,
    /// There, as the user that runs this process, or root.
    pub(super) owner: bool,
    pub(super) attempts: Arc<Attempts>,
    /// No answer waits longer: the client's time to log in would be over.
    pub(super) wait_max: Duration,
    /// `None` on the local socket, where passwords are not guessed.
    pub(super) address: Option<IpAddr>,
    pub(super) clock: Clock,
    pub(super) tried: Mutex<Option<Tried>>,
}

/// A login that is not decided, or was refused.
pub(super) struct Tried {
    user: String,
    mechanism: Mechanism,
    /// How long its answer waits; taken by the task that waits.
    wait: Duration,
    /// What must be compared before there is an answer; taken by the task that waits for it.
    comparison: Option<Comparison>,
}

impl Tried {
    /// Whether there is a password, which can be guessed.
    fn is_guessable(&self) -> bool {
        matches!(self.mechanism, Mechanism::Plain | Mechanism::ScramSha256)
    }
}

/// A password that is still to be compared.
pub(crate) struct Comparison {
    users: Arc<Users>,
    address: IpAddr,
    user: Arc<str>,
    password: Arc<str>,
    /// Before, not after: who guesses must not keep the comparing threads busy either.
    pub(super) wait: Duration,
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
        let now = self.clock.now();
        let wait = self.address.map(|address| self.attempts.wait(address, user, now));
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
                address: client_network(self.address.unwrap_or(Ipv4Addr::LOCALHOST.into())),
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

    /// Whether the client has said who it is: it is not merely silent.
    pub(crate) fn was_tried(&self) -> bool {
        self.tried.lock().is_some()
    }

    /// The login was right.
    pub(crate) fn welcomed(&self) {
        let Some(tried) = self.tried.lock().take() else { return };
        if let (Some(address), true) = (self.address, tried.is_guessable()) {
            self.attempts.right(address, &tried.user, self.clock.now());
        }
    }

    /// The connection ended without a login. Counts when one was tried.
    pub(crate) fn refused(&self) {
        let Some(tried) = self.tried.lock().take() else { return };
        if let (Some(address), true) = (self.address, tried.is_guessable()) {
            self.attempts.wrong(address, &tried.user, self.clock.now());
        }
        let address = self.address.map_or_else(|| "local".to_owned(), |from| from.to_string());
        log_seldom(&LOGIN_REFUSED, &[&address, &printable(&tried.user), tried.mechanism.as_str()]);
    }
}

/// A name from outside, as it may stand in a line of a log.
pub(super) fn printable(name: &str) -> String {
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
        let offered = self.offered.contains(&Mechanism::ScramSha256);
        self.users.credentials(user).filter(|_| offered)
    }

    fn check(&self, claim: &Claim) -> Option<SaslCode> {
        let (user, mechanism) = mechanism_of(claim);
        self.tries(user, mechanism);
        let welcome = self.offered.contains(&mechanism)
            && match claim {
                Claim::Anonymous => true,
                // No user acts as another one, by whatever proof.
                Claim::External { authorization, identity } => {
                    self.has_certificate && (authorization.is_empty() || authorization == identity)
                }
                Claim::Plain { authorization, user, .. }
                    if !authorization.is_empty() && authorization != user =>
                {
                    false
                }
                Claim::Plain { user, password, .. } => {
                    self.compare_later(user, password);
                    return None;
                }
                Claim::ScramUser { .. } => false,
            };
        Some(if welcome { SaslCode::Ok } else { SaslCode::Auth })
    }

    fn may_administer(&self, user: Option<&str>) -> bool {
        self.local || user.is_some_and(|user| self.users.is_administrator(user))
    }

    fn is_owner(&self) -> bool {
        self.owner
    }
}
