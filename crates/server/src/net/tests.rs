//! One connection's task over a pipe in memory: how logins wait, and how connections end.
//!
//! Where a rule is about time the clock of the runtime stands still and jumps to the next timer
//! when no task has anything to do, so that no test waits and none depends on the speed of the
//! machine.

mod behind;
mod checks;
mod ends;
mod full;
mod links;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::task::{JoinHandle, LocalSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use towline_amqp::sasl::ClientLogin;
use towline_amqp::{ClientOptions, Connection, Event};
use towline_node::Front;

use super::admission::{Admission, AdmissionAnswer};
use super::connection::{ConnectionTask, End, EnteringClient};
use super::pace::Paces;
use towline_access::Attempts;
use towline_access::Users;
use towline_access::{LoginPolicy, Peer};
use towline_config::{Config, LimitsConfig, ListenerConfig};
use towline_engine::Door;
use towline_process::Clock;
use towline_standby::Home;

/// A pipe that holds less than any frame.
const NARROW: usize = 16;
const WIDE: usize = 64 * 1024;

/// A queue manager that knows alice, and takes clients without a name as well.
struct Bench {
    door: Arc<Door>,
    users: Arc<Users>,
    policy: LoginPolicy,
    admission: Arc<Admission>,
    paces: Rc<Paces>,
    _folder: Option<TempDir>,
}

impl Bench {
    fn open() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.log.extent_bytes = 4 << 20;
        let opened = towline_engine::OpenInstance::open(
            "QM1",
            &Home::single(folder.path()),
            &config,
            towline_engine::StartOptions::default(),
            Clock::start(),
        );
        Bench::around(Arc::clone(opened.unwrap().door()), Some(folder))
    }

    fn around(door: Arc<Door>, folder: Option<TempDir>) -> Bench {
        let users = Arc::new(Users::of("alice", "right"));
        let limits = LimitsConfig::default();
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = ListenerConfig { allow_anonymous: true, ..ListenerConfig::plain(address) };
        let policy =
            LoginPolicy::new("QM1", &listener, &limits, &users, &Arc::<Attempts>::default());
        let admission = Admission::new(limits, usize::MAX);
        let paces = Rc::default();
        Bench { door, users, policy: policy.unwrap(), admission, paces, _folder: folder }
    }

    /// Serves the other end of a client's socket.
    fn serve<S>(&self, socket: S) -> JoinHandle<End>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        self.serve_from(socket, Some(IpAddr::from([127, 0, 0, 1])))
    }

    /// The same of a client from somewhere; `None`: from the local socket.
    fn serve_from<S>(&self, socket: S, address: Option<IpAddr>) -> JoinHandle<End>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let peer = match address {
            Some(address) => Peer::Tcp { address, tls_identity: None, encrypted: false },
            None => Peer::Local { owner: true },
        };
        let Ok(AdmissionAnswer::Now(place)) = self.admission.admit(address) else {
            panic!("there is no place")
        };
        let (id, outbox) = self.door.connect();
        let gate = self.policy.gate(&peer, self.door.clock());
        let front =
            Front::new(self.policy.front_options(&peer, &gate, "MODEL"), self.door.clock().now());
        let entrance = EnteringClient { place, gate, paces: Rc::clone(&self.paces) };
        let task = ConnectionTask::new(socket, front, id, entrance, self.door.clone(), outbox);
        tokio::task::spawn_local(task.run())
    }

    /// A client and the task that serves it.
    fn connect(
        &self,
        login: ClientLogin,
        pipe_bytes: usize,
    ) -> (Client<DuplexStream>, JoinHandle<End>) {
        let (ours, theirs) = duplex(pipe_bytes);
        (Client::new(theirs, login), self.serve(ours))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.door.log().shutdown();
    }
}

/// Runs `test` on one thread; `clock_stands` until no task has anything to do.
fn run<F: Future<Output = ()>>(clock_stands: bool, test: impl FnOnce(Bench) -> F) {
    run_on(Bench::open(), clock_stands, test);
}

fn run_on<F: Future<Output = ()>>(bench: Bench, clock_stands: bool, test: impl FnOnce(Bench) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(clock_stands)
        .build()
        .unwrap();
    let paces = Rc::clone(&bench.paces);
    runtime.block_on(LocalSet::new().run_until(async {
        tokio::task::spawn_local(async move { paces.run().await });
        test(bench).await;
    }));
}

/// An AMQP client on any socket.
struct Client<S> {
    socket: S,
    machine: Connection,
    clock: Clock,
    input: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(socket: S, login: ClientLogin) -> Client<S> {
        let clock = Clock::start();
        let options = ClientOptions { login: Some(login), ..ClientOptions::default() };
        let machine = Connection::client(options, clock.now());
        Client { socket, machine, clock, input: BytesMut::new() }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut output = VecDeque::new();
        self.machine.take_output(&mut output, usize::MAX);
        for piece in output {
            self.socket.write_all(&piece).await?;
        }
        self.socket.flush().await
    }

    /// Goes on until an event comes; `None` at the end of the stream, which must be an orderly one.
    async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.machine.next_event() {
                return Some(event);
            }
            self.flush().await.unwrap();
            if self.socket.read_buf(&mut self.input).await.unwrap() == 0 {
                return None;
            }
            self.machine.receive(self.clock.now(), &mut self.input);
        }
    }

    async fn opened(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, Some(Event::Opened(_))), "{event:?}");
    }

    /// Closes in order, and reads to the end.
    async fn close(&mut self) {
        self.machine.close(None);
        let event = self.event().await;
        assert!(matches!(event, Some(Event::Closed { error: None, .. })), "{event:?}");
        assert_eq!(self.event().await, None);
    }
}

/// A socket that takes a few bytes at a time, and then none for a moment: what was written to TLS
/// is not on its way yet.
struct Stuttering {
    socket: DuplexStream,
    pauses: bool,
}

impl AsyncWrite for Stuttering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pauses = !self.pauses;
        if self.pauses {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let some = bytes.len().min(NARROW);
        Pin::new(&mut self.socket).poll_write(context, &bytes[..some])
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl AsyncRead for Stuttering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

fn plain(password: &str) -> ClientLogin {
    ClientLogin::Plain { user: Arc::from("alice"), password: Arc::from(password) }
}

/// Whether a future has not ended although every other task had its turn.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    for _ in 0..100 {
        tokio::task::yield_now().await;
        let mut context = Context::from_waker(Waker::noop());
        if Pin::new(&mut *future).poll(&mut context).is_ready() {
            return false;
        }
    }
    true
}

#[test]
fn who_waits_for_the_comparison_of_a_password_keeps_nobody_else_waiting() {
    run(false, async |bench| {
        // The one thread for passwords is busy until we say so.
        let (release, held) = mpsc::channel::<()>();
        let busy = bench.users.occupy([192, 0, 2, 1].into(), move || held.recv().is_err());
        let mut busy = Box::pin(busy);
        assert!(is_pending(&mut busy).await);
        let (mut waiting, _) = bench.connect(plain("right"), WIDE);
        let mut opened = Box::pin(waiting.opened());
        assert!(is_pending(&mut opened).await);
        let (mut other, served) = bench.connect(ClientLogin::Anonymous, WIDE);
        other.opened().await;
        other.close().await;
        drop(other);
        assert_eq!(served.await.unwrap(), End::Orderly);
        assert!(is_pending(&mut opened).await, "logged in, and nothing was compared");
        drop(release);
        opened.await;
        assert_eq!(busy.await, Some(true));
    });
}

#[test]
fn nothing_is_read_from_a_connection_whose_password_is_being_compared() {
    run(false, async |bench| {
        let (release, held) = mpsc::channel::<()>();
        let busy = bench.users.occupy([192, 0, 2, 1].into(), move || held.recv().is_err());
        let mut busy = Box::pin(busy);
        assert!(is_pending(&mut busy).await);
        let (mut client, served) = bench.connect(plain("wrong"), WIDE);
        let mut opened = Box::pin(client.event());
        assert!(is_pending(&mut opened).await);
        drop(opened);
        let junk = vec![0; 4 * WIDE];
        let mut written = Box::pin(client.socket.write_all(&junk));
        assert!(is_pending(&mut written).await, "256 KiB went into a pipe of 64");
        drop(written);
        drop((client, release));
        assert_eq!(served.await.unwrap(), End::Lost);
    });
}

#[test]
fn a_tls_client_gets_the_last_bytes_and_the_word_for_the_end() {
    run(false, async |bench| {
        let (acceptor, connector) = tls();
        let (ours, theirs) = duplex(WIDE);
        let ours = Stuttering { socket: ours, pauses: false };
        let name = ServerName::try_from("localhost").unwrap();
        let (ours, theirs) = tokio::join!(acceptor.accept(ours), connector.connect(name, theirs));
        let served = bench.serve(ours.unwrap());
        let mut client = Client::new(theirs.unwrap(), ClientLogin::Anonymous);
        client.opened().await;
        // Reads to the end: one without close_notify would be an error.
        client.close().await;
        drop(client);
        assert_eq!(served.await.unwrap(), End::Orderly);
    });
}

#[test]
fn a_tls_client_whose_login_is_refused_hears_so_and_the_word_for_the_end() {
    run(false, async |bench| {
        let (acceptor, connector) = tls();
        let (ours, theirs) = duplex(WIDE);
        let ours = Stuttering { socket: ours, pauses: false };
        let name = ServerName::try_from("localhost").unwrap();
        let (ours, theirs) = tokio::join!(acceptor.accept(ours), connector.connect(name, theirs));
        let served = bench.serve(ours.unwrap());
        let mut client = Client::new(theirs.unwrap(), plain("wrong"));
        let event = client.event().await;
        assert!(matches!(event, Some(Event::Closed { error: Some(_), .. })), "{event:?}");
        assert_eq!(client.event().await, None);
        drop(client);
        assert_eq!(served.await.unwrap(), End::Lost);
    });
}

#[test]
fn a_peer_that_never_reads_is_let_go_when_the_connection_is_over() {
    run(true, async |bench| {
        let (mut client, served) = bench.connect(plain(""), NARROW);
        // It asks for a login that is refused at once, and does not read the answer, which is
        // longer than the pipe.
        client.flush().await.unwrap();
        let answer = client.socket.read_u64().await.unwrap();
        assert_eq!(answer.to_be_bytes(), *b"AMQP\x03\x01\x00\x00");
        client.socket.write_all(b"\x00\x00\x00\x08\x02\x01\x00\x00").await.unwrap();
        assert_eq!(served.await.unwrap(), End::Lost);
        assert_eq!(bench.admission.connections(), 0);
        drop(client);
    });
}

#[test]
fn a_peer_that_never_closes_its_side_is_let_go_after_the_end() {
    run(true, async |bench| {
        let (mut client, served) = bench.connect(ClientLogin::Anonymous, WIDE);
        client.opened().await;
        client.close().await;
        // Its socket stays open, and it even goes on sending.
        client.socket.write_all(&[0; 1_000]).await.unwrap();
        assert_eq!(served.await.unwrap(), End::Orderly);
        assert_eq!(bench.admission.connections(), 0);
        drop(client);
    });
}

/// Both ends of TLS with a certificate of their own.
fn tls() -> (TlsAcceptor, TlsConnector) {
    let paper = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = paper.cert.der().clone();
    let key = PrivateKeyDer::try_from(paper.signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
}
