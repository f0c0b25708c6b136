//! Clients that come: whether they wait for their turn, and what becomes of them meanwhile.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use super::*;
use towline_access::Attempts;
use towline_access::Users;
use towline_config::{LimitsConfig, ListenerConfig};
use towline_link::testing::burst;
use towline_node::TurnedAway;
use towline_process::Clock;
use towline_types::limits;

/// A thread that turns clients away, and gives no more turns to those that come.
fn busy_thread() -> ServingThread {
    let why = Box::new(|_| TurnedAway::Forced { why: "busy".to_owned() });
    let host = Host::Away(Arc::new(Away { clock: Clock::start(), why }));
    let paces = Rc::<Paces>::default();
    for _ in 0..limits::ARRIVALS_PER_ROUND {
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(paces.arrivals.turn()).poll(&mut context).is_ready());
    }
    ServingThread { host, paces }
}

/// Whether a client that comes and goes at once is served by a busy thread.
fn is_served(socket: ClientSocket, address: Option<IpAddr>) -> bool {
    let policy = policy("127.0.0.1:0".parse().unwrap());
    let kind =
        ListenerKind { tls: None, policy: Arc::new(policy), elsewhere: None, addresses: None };
    let admission = Admission::new(LimitsConfig::default(), usize::MAX);
    let Ok(AdmissionAnswer::Now(place)) = admission.admit(address) else {
        panic!("there is a slot")
    };
    let client = AcceptedClient { socket, address, kind, place };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let served = serve_one(client, busy_thread());
    // The clock stands until there is nothing else to do.
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(1), served).await.is_ok() })
}

#[test]
fn clients_that_come_wait_for_their_turn_and_those_of_this_machine_do_not() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    drop(client);
    let (socket, from) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(!is_served(ClientSocket::Tcp(socket), Some(from.ip())));
    let (socket, client) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(client);
    socket.set_nonblocking(true).unwrap();
    assert!(is_served(ClientSocket::Local { socket, owner: true }, None));
}

#[test]
fn an_administrator_who_is_relayed_from_the_local_socket_of_another_machine_does_not_wait() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    drop(client);
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(is_served(ClientSocket::Tcp(socket), None));
}

#[test]
fn a_client_that_waits_for_its_turn_does_not_pass_for_silent() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = towline_config::Config::default();
    config.log.extent_bytes = 4 << 20;
    let opened = towline_engine::OpenInstance::open(
        "QM1",
        &towline_standby::Home::single(folder.path()),
        &config,
        towline_engine::StartOptions::default(),
        Clock::start(),
    );
    let door = Arc::clone(opened.unwrap().door());
    let limits = LimitsConfig { logins_pending_max: 1, ..LimitsConfig::default() };
    let admission = Admission::new(limits, usize::MAX);
    let from = Some(IpAddr::from([127, 0, 0, 1]));
    let Ok(AdmissionAnswer::Now(place)) = admission.admit(from) else { panic!("there is a slot") };
    let Ok(AdmissionAnswer::Later(waiting)) = admission.admit(from) else {
        panic!("there is none")
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let any = listener.local_addr().unwrap();
    let mut client = std::net::TcpStream::connect(any).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    const SASL: &[u8; 8] = b"AMQP\x03\x01\x00\x00";
    io::Write::write_all(&mut client, SASL).unwrap();
    client.set_nonblocking(true).unwrap();
    let kind =
        ListenerKind { tls: None, policy: Arc::new(policy(any)), elsewhere: None, addresses: None };
    let accepted = AcceptedClient { socket: ClientSocket::Tcp(socket), address: from, kind, place };
    let thread = ServingThread { host: Host::Door(Arc::clone(&door)), ..busy_thread() };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(LocalSet::new().run_until(async move {
        let paces = Rc::clone(&thread.paces);
        let mut served = tokio::task::spawn_local(serve_one(accepted, thread));
        tokio::task::spawn_local(waiting.place());
        let served = tokio::time::timeout(Duration::from_secs(1), &mut served).await;
        assert!(served.is_err(), "nothing gives turns");
        tokio::task::spawn_local(async move { paces.run().await });
        let mut client = TcpStream::from_std(client).unwrap();
        let mut answer = [0; 8];
        let read = tokio::io::AsyncReadExt::read_exact(&mut client, &mut answer).await;
        assert!(read.is_ok(), "it was closed, and had not been heard");
        assert_eq!(&answer, SASL);
    }));
    door.log().shutdown();
}

fn policy(any: SocketAddr) -> LoginPolicy {
    let users = Arc::new(Users::of("alice", "right"));
    let listener = ListenerConfig { allow_anonymous: true, ..ListenerConfig::plain(any) };
    let (limits, attempts) = (LimitsConfig::default(), Arc::<Attempts>::default());
    LoginPolicy::new("QM1", &listener, &limits, &users, &attempts).unwrap()
}

#[test]
fn a_burst_of_clients_waits_at_each_kind_of_listener_from_the_first_start_on() {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let plain = std::net::TcpListener::bind(any).unwrap();
    for socket in [plain, bind_floating(any).unwrap()] {
        let kind = ListenerKind {
            tls: None,
            policy: Arc::new(policy(any)),
            elsewhere: None,
            addresses: None,
        };
        let (_listening, address) = Listening::tcp(socket, kind).unwrap();
        let (connected, came) = burst::connected(address);
        assert_eq!(connected, came, "connected of those that came");
    }
}
