//! Clients that come to an instance that is not active.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use towline_config::{LimitsConfig, ListenerConfig};
use towline_link::testing::{Bench, Observation, Recorder, run};

use super::*;
use crate::net::{self, LocalAccess};
use towline_access::Attempts;
use towline_access::LoginPolicy;
use towline_access::Users;

/// Hands clients to the test; those that are turned away too.
struct Counter {
    served: mpsc::UnboundedSender<AcceptedClient>,
    turned_away: mpsc::UnboundedSender<AcceptedClient>,
    hopeful: Arc<AtomicBool>,
    in_recovery: Arc<AtomicBool>,
}

impl Here for Counter {
    async fn serve(&self, client: AcceptedClient) {
        self.served.send(client).ok();
    }

    async fn turn_away(&self, client: AcceptedClient) {
        self.turned_away.send(client).ok();
    }

    fn serves_nobody(&self) -> bool {
        self.in_recovery.load(Ordering::SeqCst)
    }

    fn is_hopeful(&self) -> bool {
        self.hopeful.load(Ordering::SeqCst)
    }
}

/// An instance that is active for good.
struct Active(net::IoThreads);

impl Here for Active {
    async fn serve(&self, client: AcceptedClient) {
        self.0.serve(client).await;
    }

    async fn turn_away(&self, _client: AcceptedClient) {}

    fn serves_nobody(&self) -> bool {
        false
    }

    fn is_hopeful(&self) -> bool {
        true
    }
}

/// One instance's reception.
struct Desk {
    links: Arc<Links>,
    recorder: Arc<Recorder>,
    reception: Arc<Reception<Counter>>,
    active: watch::Sender<Where>,
    clients: mpsc::UnboundedReceiver<AcceptedClient>,
    turned_away: mpsc::UnboundedReceiver<AcceptedClient>,
    /// The group has a leader, whatever `active` says.
    hopeful: Arc<AtomicBool>,
    /// The group serves no client.
    in_recovery: Arc<AtomicBool>,
    admission: Arc<Admission>,
}

fn kind() -> ListenerKind {
    let users = Arc::new(Users::of("alice", "right"));
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = ListenerConfig { allow_anonymous: true, ..ListenerConfig::plain(address) };
    let limits = LimitsConfig::default();
    let policy = LoginPolicy::new("QM1", &listener, &limits, &users, &Arc::<Attempts>::default());
    ListenerKind { tls: None, policy: Arc::new(policy.unwrap()), elsewhere: None, addresses: None }
}

impl Desk {
    fn new(bench: &Bench, this: Peer, connections_max: usize) -> Desk {
        let (links, recorder) = bench.start(this);
        let links = Arc::new(links);
        let (active, watched) = watch::channel(Where::NoActive);
        let (served, clients) = mpsc::unbounded_channel();
        let (away, turned_away) = mpsc::unbounded_channel();
        let hopeful = Arc::new(AtomicBool::new(true));
        let limits = LimitsConfig { connections_max, logins_pending_max: 1, ..Default::default() };
        let admission = Admission::new(limits, usize::MAX);
        let in_recovery = Arc::new(AtomicBool::new(false));
        let here = Counter {
            served,
            turned_away: away,
            hopeful: hopeful.clone(),
            in_recovery: in_recovery.clone(),
        };
        let here = Arc::new(here);
        let reception = Reception::new(links.clone(), watched, here, admission.clone());
        Desk {
            links,
            recorder,
            reception,
            active,
            clients,
            turned_away,
            hopeful,
            in_recovery,
            admission,
        }
    }

    /// Listens; clients may come to the address.
    fn listen(&self) -> String {
        let (listening, address) =
            Listening::tcp(std::net::TcpListener::bind("127.0.0.1:0").unwrap(), kind()).unwrap();
        tokio::spawn(Arc::clone(&self.reception).serve(Some(0), listening));
        address.to_string()
    }

    /// Takes the next stream as the daemon does.
    async fn take_stream(&self, from: Peer) {
        let is_stream = |observed: &Observation| match observed {
            Observation::Stream(peer, StreamPurpose::Relay { listener, client })
                if *peer == from =>
            {
                Some((*listener, *client))
            }
            _ => None,
        };
        let client = until(|| {
            let mut observed = self.recorder.observed.lock();
            let found = observed.iter().position(|observed| is_stream(observed).is_some())?;
            is_stream(&observed.remove(found))
        })
        .await;
        let stream = self.recorder.streams.lock().remove(0);
        self.reception.relayed(&[kind()], &kind(), from, client, stream).await;
    }

    async fn relayed_client(&mut self) -> (LinkStream, AcceptedClient) {
        let mut client = self.clients.recv().await.unwrap();
        let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
        let local = ClientSocket::Local { socket, owner: false };
        match std::mem::replace(&mut client.socket, local) {
            ClientSocket::Relayed(mut stream) => {
                stream.settle().unwrap();
                (stream, client)
            }
            _ => panic!("it was not relayed"),
        }
    }
}

/// Looks until there is something, and lets others run meanwhile.
async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = found() {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_client_waits_for_the_active_and_then_talks_to_it_both_ways() {
    let bench = Bench::new(2);
    run(async {
        let (replica, mut active) = (Desk::new(&bench, 0, 10), Desk::new(&bench, 1, 10));
        let address = replica.listen();
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_all(b"question").await.unwrap();
        until(|| (replica.admission.connections() == 1).then_some(())).await;
        assert!(active.recorder.streams.lock().is_empty(), "nobody is active");
        replica.active.send(Where::At(1)).unwrap();
        active.take_stream(0).await;
        let (mut stream, accepted) = active.relayed_client().await;
        assert_eq!(accepted.address, Some(IpAddr::from([127, 0, 0, 1])));
        let mut question = [0; 8];
        stream.read_exact(&mut question).await.unwrap();
        assert_eq!(&question, b"question");
        client.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut question).await.unwrap(), 0);
        stream.write_all(b"answer").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        until(|| (replica.admission.connections() == 0).then_some(())).await;
    });
}

#[test]
fn when_the_active_goes_its_relayed_clients_are_let_go() {
    let bench = Bench::new(2);
    run(async {
        let (replica, mut active) = (Desk::new(&bench, 0, 10), Desk::new(&bench, 1, 10));
        let address = replica.listen();
        replica.active.send(Where::At(1)).unwrap();
        let mut client = TcpStream::connect(&address).await.unwrap();
        active.take_stream(0).await;
        let (stream, _) = active.relayed_client().await;
        drop(stream);
        let mut end = Vec::new();
        client.read_to_end(&mut end).await.ok();
        assert!(end.is_empty());
        until(|| (replica.admission.connections() == 0).then_some(())).await;
    });
}

#[test]
fn clients_that_wait_are_served_here_when_this_becomes_the_active() {
    let bench = Bench::new(2);
    run(async {
        let mut desk = Desk::new(&bench, 0, 10);
        let address = desk.listen();
        let _waiting = TcpStream::connect(&address).await.unwrap();
        until(|| (desk.admission.connections() == 1).then_some(())).await;
        desk.active.send(Where::Here).unwrap();
        let _later = TcpStream::connect(&address).await.unwrap();
        for _ in 0..2 {
            let client = desk.clients.recv().await.unwrap();
            assert!(matches!(client.socket, ClientSocket::Tcp(_)));
        }
    });
}

#[test]
fn an_instance_that_is_active_no_longer_is_asked_until_the_new_one_is_known() {
    let bench = Bench::new(3);
    run(async {
        let replica = Desk::new(&bench, 0, 10);
        let (former, mut active) = (Desk::new(&bench, 1, 10), Desk::new(&bench, 2, 10));
        *former.recorder.refusal.lock() = Some("it is not active".into());
        let address = replica.listen();
        replica.active.send(Where::At(1)).unwrap();
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_all(b"x").await.unwrap();
        until(|| (replica.admission.connections() == 1).then_some(())).await;
        replica.active.send(Where::At(2)).unwrap();
        active.take_stream(0).await;
        let (mut stream, _) = active.relayed_client().await;
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        assert!(former.recorder.streams.lock().is_empty());
    });
}

#[test]
fn no_more_clients_wait_than_may_come_in_but_logins_are_not_counted_here() {
    let bench = Bench::new(2);
    run(async {
        // One login under way at once is the bound: it is for the active to count.
        let replica = Desk::new(&bench, 0, 3);
        let address = replica.listen();
        let mut waiting = Vec::new();
        for count in 1..=3 {
            waiting.push(TcpStream::connect(&address).await.unwrap());
            until(|| (replica.admission.connections() == count).then_some(())).await;
        }
        let mut one_more = TcpStream::connect(&address).await.unwrap();
        assert_eq!(one_more.read(&mut [0]).await.unwrap_or(0), 0, "it was let in");
        assert_eq!(replica.admission.connections(), 3);
    });
}

#[test]
fn a_relayed_client_counts_at_the_active_and_must_fit_a_listener() {
    let bench = Bench::new(2);
    run(async {
        let (replica, mut active) = (Desk::new(&bench, 0, 10), Desk::new(&bench, 1, 1));
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        let far = Some(IpAddr::from([192, 0, 2, 1]));
        // No such listener, no local one, from afar to a listener on loopback.
        for (listener, client) in [(1, loopback), (0, None), (u16::MAX, loopback), (0, far)] {
            let purpose = StreamPurpose::Relay { listener, client };
            let mut stream = replica.links.open_stream(1, purpose).await.unwrap();
            active.take_stream(0).await;
            assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "{listener} {client:?}");
        }
        let fits = StreamPurpose::Relay { listener: 0, client: loopback };
        let _first = replica.links.open_stream(1, fits.clone()).await.unwrap();
        active.take_stream(0).await;
        let (_stream, accepted) = active.relayed_client().await;
        let mut second = replica.links.open_stream(1, fits).await.unwrap();
        active.take_stream(0).await;
        assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0, "one connection is the bound");
        drop(accepted);
        assert_eq!(active.admission.connections(), 0);
        let local = StreamPurpose::Relay { listener: u16::MAX, client: None };
        let _local = replica.links.open_stream(1, local).await.unwrap();
        active.take_stream(0).await;
        assert_eq!(active.relayed_client().await.1.address, None);
    });
}

#[test]
fn a_group_that_serves_nobody_turns_clients_away_at_once_and_counts_their_logins() {
    let bench = Bench::new(2);
    run(async {
        let mut recovery = Desk::new(&bench, 0, 10);
        recovery.in_recovery.store(true, Ordering::SeqCst);
        let address = recovery.listen();
        let _first = TcpStream::connect(&address).await.unwrap();
        let turned_away = recovery.turned_away.recv().await.unwrap();
        let _second = TcpStream::connect(&address).await.unwrap();
        // It waits, and is not given on: one login under way is the bound.
        until(|| (recovery.admission.waiting() == 1).then_some(())).await;
        assert!(recovery.turned_away.try_recv().is_err());
        drop(turned_away);
        let next = recovery.turned_away.recv().await.unwrap();
        assert!(matches!(next.socket, ClientSocket::Tcp(_)));
        recovery.in_recovery.store(false, Ordering::SeqCst);
        recovery.active.send(Where::Here).unwrap();
        drop(next);
        let _later = TcpStream::connect(&address).await.unwrap();
        recovery.clients.recv().await.unwrap();
    });
}

#[test]
fn the_local_socket_is_relayed_too() {
    let bench = Bench::new(2);
    run(async {
        let (replica, mut active) = (Desk::new(&bench, 0, 10), Desk::new(&bench, 1, 10));
        let path = bench.folder.path().join("t.sock");
        let listening =
            Listening::local(&path, kind(), LocalAccess::of_process(None).unwrap()).unwrap();
        tokio::spawn(Arc::clone(&replica.reception).serve(None, listening));
        replica.active.send(Where::At(1)).unwrap();
        let mut client = UnixStream::connect(&path).await.unwrap();
        client.write_all(b"x").await.unwrap();
        active.take_stream(0).await;
        let (mut stream, accepted) = active.relayed_client().await;
        assert_eq!(accepted.address, None);
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
    });
}

/// What a client of AMQP with SASL says first, and the server answers.
const SASL: &[u8; 8] = b"AMQP\x03\x01\x00\x00";

#[test]
fn the_active_serves_a_relayed_client_as_one_of_its_own_plain_or_tls() {
    let (bench, [(a, _), (b, of_b)]) = Bench::pair();
    let mut config = towline_config::Config::default();
    config.log.extent_bytes = 4 << 20;
    let clock = towline_process::Clock::start();
    let data = bench.folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let opened = towline_engine::OpenInstance::open(
        "QM1",
        &towline_standby::Home::single(&data),
        &config,
        towline_engine::StartOptions::default(),
        clock,
    )
    .unwrap();
    let io = Arc::new(Active(net::IoThreads::start(1, opened.door()).unwrap()));
    let admission = Admission::new(LimitsConfig::default(), usize::MAX);
    let (_active, watched) = watch::channel(Where::Here);
    let reception = Reception::new(Arc::new(b), watched, io, admission.clone());
    let paper = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = ["server.pem", "server.key"].map(|name| bench.folder.path().join(name));
    fs::write(&files[0], paper.cert.pem()).unwrap();
    fs::write(&files[1], paper.signing_key.serialize_pem()).unwrap();
    let [certificate, private_key] = files.map(Some);
    let plain = ListenerConfig::plain("127.0.0.1:0".parse().unwrap());
    let listener = ListenerConfig { certificate, private_key, ..plain };
    let tls = net::server_settings(&listener).unwrap();
    let kinds = [kind(), ListenerKind { tls, ..kind() }];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(paper.cert.der().clone()).unwrap();
    let trusting = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let trusting = TlsConnector::from(Arc::new(trusting));
    let client = Some(IpAddr::from([127, 0, 0, 1]));
    run(async {
        for listener in 0..2 {
            let purpose = StreamPurpose::Relay { listener, client };
            let mut stream = a.open_stream(1, purpose).await.unwrap();
            let arrived = until(|| of_b.streams.lock().pop()).await;
            reception.relayed(&kinds, &kind(), 0, (listener, client), arrived).await;
            let mut answer = [0; 8];
            if listener == 0 {
                stream.write_all(SASL).await.unwrap();
                stream.read_exact(&mut answer).await.unwrap();
            } else {
                let name = ServerName::try_from("localhost").unwrap();
                let mut inside = trusting.connect(name, stream).await.unwrap();
                inside.write_all(SASL).await.unwrap();
                inside.read_exact(&mut answer).await.unwrap();
            }
            assert_eq!(&answer, SASL);
        }
        // Both are gone now, and their slots with them.
        until(|| (admission.connections() == 0).then_some(())).await;
    });
    opened.door().log().shutdown();
}

/// A protocol header and an open frame, as far as a relay looks at them.
const OPENED: &[u8] = b"AMQP\x00\x01\x00\x00\x00\x00\x00\x0a\x02\x00\x00\x00xx";

#[test]
fn a_client_of_an_instance_that_is_active_no_more_is_told_and_let_go_although_that_one_hangs() {
    let bench = Bench::new(3);
    run(async {
        let (replica, mut hung) = (Desk::new(&bench, 0, 10), Desk::new(&bench, 1, 10));
        let address = replica.listen();
        for new in [Where::At(2), Where::Here, Where::NoActive] {
            replica.active.send(Where::At(1)).unwrap();
            let mut client = TcpStream::connect(&address).await.unwrap();
            hung.take_stream(0).await;
            let (mut stream, _accepted) = hung.relayed_client().await;
            stream.write_all(OPENED).await.unwrap();
            stream.flush().await.unwrap();
            client.read_exact(&mut [0; OPENED.len()]).await.unwrap();
            // The stream stays: an instance that hangs ends nothing.
            replica.active.send(new).unwrap();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            let text = String::from_utf8_lossy(&rest);
            assert!(text.contains("amqp:connection:forced"), "{new:?}: {text}");
            drop((client, stream));
            until(|| (replica.admission.connections() == 0).then_some(())).await;
        }
    });
}

#[test]
fn a_client_that_has_not_spoken_is_joined_to_the_new_active_one() {
    let bench = Bench::new(3);
    run(async {
        let replica = Desk::new(&bench, 0, 10);
        let (mut hung, mut active) = (Desk::new(&bench, 1, 10), Desk::new(&bench, 2, 10));
        let address = replica.listen();
        replica.active.send(Where::At(1)).unwrap();
        let mut client = TcpStream::connect(&address).await.unwrap();
        hung.take_stream(0).await;
        let (_stream, _accepted) = hung.relayed_client().await;
        replica.active.send(Where::At(2)).unwrap();
        active.take_stream(0).await;
        let (mut stream, _) = active.relayed_client().await;
        client.write_all(b"late").await.unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"late");
    });
}

#[test]
fn a_relay_outlives_a_moment_without_an_active() {
    let bench = Bench::new(2);
    run(async {
        let (replica, mut active) = (Desk::new(&bench, 0, 10), Desk::new(&bench, 1, 10));
        let address = replica.listen();
        replica.active.send(Where::At(1)).unwrap();
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_all(b"x").await.unwrap();
        active.take_stream(0).await;
        let (mut stream, _accepted) = active.relayed_client().await;
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        replica.active.send(Where::NoActive).unwrap();
        tokio::task::yield_now().await;
        replica.active.send(Where::At(1)).unwrap();
        stream.write_all(b"y").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'y');
        assert_eq!(replica.admission.connections(), 1);
    });
}

#[test]
fn a_client_of_a_group_without_a_leader_is_turned_away_and_keeps_its_place_until_then() {
    let bench = Bench::new(2);
    run(async {
        let mut replica = Desk::new(&bench, 0, 10);
        let address = replica.listen();
        replica.hopeful.store(false, Ordering::SeqCst);
        let began = Instant::now();
        let _client = TcpStream::connect(&address).await.unwrap();
        let turned_away = replica.turned_away.recv().await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(700), "no time for an election");
        assert_eq!(replica.admission.connections(), 1);
        drop(turned_away);
        assert_eq!(replica.admission.connections(), 0);
        assert!(replica.clients.try_recv().is_err());
    });
}

#[test]
fn the_close_frame_is_whole_and_says_why() {
    let bytes = close("because");
    let size = u32::from_be_bytes(bytes[..4].try_into().unwrap());
    assert_eq!(usize::try_from(size).unwrap(), bytes.len());
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("amqp:connection:forced") && text.contains("because"), "{text}");
}
