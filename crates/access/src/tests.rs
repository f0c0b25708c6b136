//! Which clients are let in, and under which name, over all ways to configure a listener; and what
//! a wrong password costs.

use std::collections::VecDeque;
use std::path::Path;

use bytes::BytesMut;
use towline_amqp::sasl::{Claim, ClientLogin};
use towline_amqp::types::SaslCode;
use towline_amqp::{ClientOptions, Connection};
use towline_node::{Front, Logins, Request};

use std::sync::Arc;
use std::time::Duration;

use towline_config::{LimitsConfig, ListenerConfig};
use towline_process::Clock;

use super::gate::printable;
use super::*;
use towline_config::UsersConfig;

fn gate(attempts: &Arc<Attempts>, clock: Clock) -> Arc<Gate> {
    let address = "127.0.0.1:0".parse().unwrap();
    let users = Arc::new(Users::of("alice", "right"));
    let listener = ListenerConfig::plain(address);
    let limits = LimitsConfig::default();
    let policy = LoginPolicy::new("QM1", &listener, &limits, &users, attempts).unwrap();
    let peer = Peer::Tcp { address: address.ip(), tls_identity: None, encrypted: false };
    policy.gate(&peer, clock)
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
fn no_user_acts_as_another_whatever_the_password() {
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
    assert_eq!(gate.take_wait(), Duration::ZERO, "another name");
    assert!(gate.scram("alice").is_some());
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

#[test]
fn a_login_that_was_right_is_known_at_its_address() {
    let (attempts, clock) = (Arc::new(Attempts::default()), Clock::start());
    let right = gate(&attempts, clock);
    assert_eq!(answer(&right, "right").0, SaslCode::Ok);
    right.welcomed();
    right.refused();
    for number in 0..100 {
        let gate = gate(&attempts, clock);
        assert!(gate.scram(&format!("guess-{number}")).is_none());
        gate.refused();
    }
    assert_eq!(answer(&gate(&attempts, clock), "right").1, Duration::ZERO);
}

/// What a client comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// AMQP without SASL.
    Bare,
    Anonymous,
    /// PLAIN with user and password.
    Plain(&'static str, &'static str),
    /// SCRAM with user and password.
    Scram(&'static str, &'static str),
    /// The certificate of this name, which TLS has checked.
    External(&'static str),
}

const ALL_COME: [Comes; 9] = [
    Comes::Bare,
    Comes::Anonymous,
    Comes::Plain("alice", "right"),
    Comes::Plain("alice", "wrong"),
    // Stands in administrators and not in the users file.
    Comes::Plain("ops", "anything"),
    Comes::Plain("nobody", "anything"),
    Comes::Scram("alice", "right"),
    Comes::Scram("ops", "anything"),
    Comes::External("ops"),
];

/// Which users there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// No file is named.
    NoFile,
    /// A file is named, and has only remarks.
    Empty,
    /// The file has alice.
    Alice,
    /// It had when the listener was opened, and was emptied and read again since.
    Emptied,
}

const NAMES: [&[&str]; 8] = [
    &["PLAIN"],
    &["SCRAM-SHA-256"],
    &["EXTERNAL"],
    &["ANONYMOUS"],
    &["SCRAM-SHA-256", "PLAIN"],
    &["PLAIN", "ANONYMOUS"],
    &["SCRAM-SHA-256", "PLAIN", "EXTERNAL", "ANONYMOUS"],
    &[],
];

/// One way to configure a listener.
#[derive(Clone, Copy, Debug)]
struct Case {
    named: Option<&'static [&'static str]>,
    known: Known,
    allow_anonymous: bool,
    loopback: bool,
    tls: bool,
    certificates: bool,
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for named in NAMES.map(Some).into_iter().chain([None]) {
        for known in [Known::NoFile, Known::Empty, Known::Alice, Known::Emptied] {
            for bits in 0..16 {
                let [allow_anonymous, loopback, tls, certificates] =
                    [1, 2, 4, 8].map(|bit| bits & bit != 0);
                if tls || !certificates {
                    all.push(Case { named, known, allow_anonymous, loopback, tls, certificates });
                }
            }
        }
    }
    all
}

impl Case {
    /// Users and administrators as the files say.
    fn users(self, file: &Path) -> Arc<Users> {
        let line = towline_client::user_line("alice", "right", Some(4_096)).unwrap();
        let text = match self.known {
            Known::Alice | Known::Emptied => line,
            Known::NoFile | Known::Empty => "# nobody\n".into(),
        };
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let named = (self.known != Known::NoFile).then(|| file.to_owned());
        let administrators = vec!["ops".to_owned(), "alice".to_owned()];
        let config = UsersConfig { file: named, administrators, ..UsersConfig::default() };
        Arc::new(Users::read(&config).unwrap())
    }

    fn listener(self) -> ListenerConfig {
        let address = if self.loopback { "127.0.0.1:0" } else { "192.0.2.1:0" };
        let file = |there: bool| there.then(|| "unread.pem".into());
        ListenerConfig {
            certificate: file(self.tls),
            private_key: file(self.tls),
            client_authorities: file(self.certificates),
            mechanisms: self.named.map(|names| names.iter().map(|&name| name.into()).collect()),
            allow_anonymous: self.allow_anonymous,
            allow_plaintext: true,
            ..ListenerConfig::plain(address.parse().unwrap())
        }
    }

    /// Whether a client may log in without a name, by the documents.
    fn anonymous(self) -> bool {
        self.allow_anonymous || (self.loopback && self.known == Known::NoFile)
    }

    /// Whether a password could be right when the listener is opened.
    fn has_users(self) -> bool {
        matches!(self.known, Known::Alice | Known::Emptied)
    }

    fn offers(self, name: &str) -> bool {
        match self.named {
            Some(names) => names.contains(&name),
            None => match name {
                "EXTERNAL" => self.certificates,
                "ANONYMOUS" => self.anonymous(),
                "PLAIN" => self.has_users() && (self.tls || self.loopback),
                _ => self.has_users(),
            },
        }
    }

    /// Whether the listener may be opened: each mechanism that it names can let a client in, and no
    /// client but those that the configuration allows.
    fn opens(self) -> bool {
        let fits = |name: &&str| match *name {
            "EXTERNAL" => self.certificates,
            "ANONYMOUS" => self.anonymous(),
            _ => self.has_users(),
        };
        match self.named {
            Some(names) => !names.is_empty() && names.iter().all(fits),
            None => self.certificates || self.anonymous() || self.has_users(),
        }
    }

    /// As what a client is let in: `None` not at all, `Some(None)` without a name.
    fn expected(self, comes: Comes) -> Option<Option<&'static str>> {
        let knows = self.known == Known::Alice;
        match comes {
            Comes::Bare | Comes::Anonymous => self.offers("ANONYMOUS").then_some(None),
            Comes::Plain(user, password) => {
                (self.offers("PLAIN") && knows && (user, password) == ("alice", "right"))
                    .then_some(Some(user))
            }
            Comes::Scram(user, password) => {
                (self.offers("SCRAM-SHA-256") && knows && (user, password) == ("alice", "right"))
                    .then_some(Some(user))
            }
            Comes::External(name) => self.offers("EXTERNAL").then_some(Some(name)),
        }
    }
}

/// A client's login from the first byte to its open frame, over the real machines of both sides.
fn let_in(policy: &LoginPolicy, case: Case, comes: Comes) -> Option<(Option<String>, bool)> {
    let clock = Clock::start();
    let address = if case.loopback { [127, 0, 0, 1] } else { [192, 0, 2, 7] }.into();
    let identity = match comes {
        Comes::External(name) if case.certificates => Some(Arc::from(name)),
        _ => None,
    };
    let peer = Peer::Tcp { address, tls_identity: identity, encrypted: case.tls };
    let gate = policy.gate(&peer, clock);
    let mut front = Front::new(policy.front_options(&peer, &gate, "MODEL"), clock.now());
    let nonce = Arc::from("123456789012345678901234");
    let login = match comes {
        Comes::Bare => None,
        Comes::Anonymous => Some(ClientLogin::Anonymous),
        Comes::Plain(user, password) => {
            Some(ClientLogin::Plain { user: user.into(), password: password.into() })
        }
        Comes::Scram(user, password) => {
            Some(ClientLogin::Scram { user: user.into(), password: password.into(), nonce })
        }
        Comes::External(_) => Some(ClientLogin::External),
    };
    let options = ClientOptions { login, ..ClientOptions::default() };
    let mut client = Connection::client(options, clock.now());
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let mut requests = Vec::new();
    for _ in 0..10 {
        let mut pieces = VecDeque::new();
        client.take_output(&mut pieces, usize::MAX);
        pieces.drain(..).for_each(|piece| to_server.extend_from_slice(&piece));
        front.receive(clock.now(), &mut to_server, &mut requests);
        if let Some(comparison) = gate.take_comparison() {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            let code = runtime.block_on(comparison.answer());
            front.answer_login(clock.now(), code, &mut to_server, &mut requests);
        }
        front.take_output(&mut pieces, usize::MAX);
        pieces.drain(..).for_each(|piece| to_client.extend_from_slice(&piece));
        client.receive(clock.now(), &mut to_client);
        while client.next_event().is_some() {}
    }
    let connected = requests.iter().find_map(|request| match request {
        Request::Connected { user, .. } => Some(user.clone()),
        _ => None,
    })?;
    let administers = gate.may_administer(connected.as_deref());
    assert!(!gate.is_owner(), "over TCP");
    Some((connected, administers))
}

#[test]
fn clients_are_let_in_as_documented_over_all_ways_to_configure_a_listener() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let (mut opened, mut welcome) = (0, 0);
    for case in cases() {
        let users = case.users(&file);
        let limits = LimitsConfig::default();
        let made = LoginPolicy::new("QM1", &case.listener(), &limits, &users, &Arc::default());
        assert_eq!(made.is_ok(), case.opens(), "{case:?}: {:?}", made.err());
        let Ok(policy) = made else { continue };
        opened += 1;
        if case.known == Known::Emptied {
            std::fs::write(&file, "").unwrap();
            let config = UsersConfig { file: Some(file.clone()), ..UsersConfig::default() };
            let administrators = vec!["ops".to_owned(), "alice".to_owned()];
            users.reload(&UsersConfig { administrators, ..config }).unwrap();
        }
        for comes in ALL_COME {
            let found = let_in(&policy, case, comes);
            let expected = case.expected(comes);
            let name = found.as_ref().map(|(name, _)| name.as_deref());
            assert_eq!(name, expected, "{case:?} {comes:?}");
            // A name that was proved is the only thing that makes an administrator over TCP.
            let administers = found.is_some_and(|(_, administers)| administers);
            assert_eq!(administers, expected.flatten().is_some(), "{case:?} {comes:?}");
            welcome += usize::from(expected.is_some());
        }
    }
    assert!(opened > 50 && welcome > 100, "{opened} listeners, {welcome} clients let in");
}

#[test]
fn a_listener_that_could_let_no_client_in_is_refused_with_what_to_do() {
    let plain = ListenerConfig {
        mechanisms: Some(vec!["PLAIN".into()]),
        allow_plaintext: true,
        ..ListenerConfig::plain("192.0.2.1:0".parse().unwrap())
    };
    let empty = ListenerConfig { mechanisms: None, ..plain.clone() };
    let certificates =
        ListenerConfig { mechanisms: Some(vec!["EXTERNAL".into()]), ..plain.clone() };
    let users = Arc::new(Users::default());
    for (listener, says) in [
        (plain, "towline user NAME --file FILE"),
        (empty, "towline user NAME --file FILE"),
        (certificates, "client_authorities"),
    ] {
        let limits = LimitsConfig::default();
        let refused = LoginPolicy::new("QM1", &listener, &limits, &users, &Arc::default());
        let why = refused.err().unwrap();
        assert!(why.contains(says) && why.contains("192.0.2.1"), "{why}");
    }
}

#[test]
fn on_the_local_socket_each_client_administers_and_only_its_user_owns() {
    let users = Arc::new(Users::of("alice", "right"));
    let policy = LoginPolicy::local("QM1", &LimitsConfig::default(), &users);
    for owner in [true, false] {
        let gate = policy.gate(&Peer::Local { owner }, Clock::start());
        assert!(gate.may_administer(None));
        assert_eq!(gate.is_owner(), owner);
        assert_eq!(gate.check(&plain("right")), Some(SaslCode::Auth), "not offered there");
    }
}
