//! The login of one connection: its claim is compared with the credentials of the users; how long
//! the answer waits, and what a refusal leaves behind.
//!
//! Not here: which mechanisms a listener offers (`login_policy`); how long a wait is (`attempts`).
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
pub struct Gate {
    pub(crate) users: Arc<Users>,
    /// The mechanisms of the listener. The AMQP machine takes no other; this is the second lock.
    pub(crate) offered: Vec<Mechanism>,
    pub(crate) has_certificate: bool,
    /// On the local socket: each client there may administer.
    pub(crate) local: bool,
    /// There, as the user that runs this process, or root.
    pub(crate) owner: bool,
    pub(crate) attempts: Arc<Attempts>,
    /// No answer waits longer: the client's time to log in would be over.
    pub(crate) wait_max: Duration,
    /// `None` on the local socket, where passwords are not guessed.
    pub(crate) address: Option<IpAddr>,
    pub(crate) clock: Clock,
    pub(crate) attempt: Mutex<Option<LoginAttempt>>,
}

/// A login that is not decided, or was refused.
pub(crate) struct LoginAttempt {
    user: String,
    mechanism: Mechanism,
    /// How long its answer waits; taken by the task that waits.
    wait: Duration,
    /// What must be compared before there is an answer; taken by the task that waits for it.
    comparison: Option<Comparison>,
}

impl LoginAttempt {
    /// Whether there is a password, which can be guessed.
    fn is_guessable(&self) -> bool {
        matches!(self.mechanism, Mechanism::Plain | Mechanism::ScramSha256)
    }
}

/// A password that is still to be compared.
pub struct Comparison {
    users: Arc<Users>,
    address: IpAddr,
    user: Arc<str>,
    password: Arc<str>,
    /// Before, not after: a client that guesses must not keep the comparing threads busy either.
    pub(crate) wait: Duration,
}

impl Comparison {
    /// The answer to the login, in time; nothing else stops for it.
    pub async fn answer(self) -> SaslCode {
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
        *self.attempt.lock() = Some(LoginAttempt { user, mechanism, wait, comparison });
    }

    /// Leaves the answer to a comparison, which takes over the wait.
    fn compare_later(&self, user: &Arc<str>, password: &Arc<str>) {
        if let Some(attempt) = &mut *self.attempt.lock() {
            attempt.comparison = Some(Comparison {
                users: Arc::clone(&self.users),
                // Processes of this machine are one.
                address: client_network(self.address.unwrap_or(Ipv4Addr::LOCALHOST.into())),
                user: Arc::clone(user),
                password: Arc::clone(password),
                wait: std::mem::take(&mut attempt.wait),
            });
        }
    }

    /// The comparison that a login waits for, once.
    pub fn take_comparison(&self) -> Option<Comparison> {
        self.attempt.lock().as_mut().and_then(|attempt| attempt.comparison.take())
    }

    /// How long what was answered since the last call must wait; zero when it need not.
    pub fn take_wait(&self) -> Duration {
        self.attempt
            .lock()
            .as_mut()
            .map(|attempt| std::mem::take(&mut attempt.wait))
            .unwrap_or_default()
    }

    /// Whether the client has named a user: it is not merely silent.
    pub fn was_tried(&self) -> bool {
        self.attempt.lock().is_some()
    }

    /// The login was right.
    pub fn welcomed(&self) {
        let Some(attempt) = self.attempt.lock().take() else { return };
        if let (Some(address), true) = (self.address, attempt.is_guessable()) {
            self.attempts.right(address, &attempt.user, self.clock.now());
        }
    }

    /// The connection ended without a login. Counts when one was attempted.
    pub fn refused(&self) {
        let Some(attempt) = self.attempt.lock().take() else { return };
        if let (Some(address), true) = (self.address, attempt.is_guessable()) {
            self.attempts.wrong(address, &attempt.user, self.clock.now());
        }
        let address = self.address.map_or_else(|| "local".to_owned(), |from| from.to_string());
        log_seldom(
            &LOGIN_REFUSED,
            &[&address, &printable(&attempt.user), attempt.mechanism.as_str()],
        );
    }
}

/// A name from outside, as it may stand in a line of a log.
pub(crate) fn printable(name: &str) -> String {
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
