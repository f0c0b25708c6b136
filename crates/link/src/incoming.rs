//! What peers dial: handshakes within bounds, then frames, which are read here, or a stream, which
//! goes to the inbox.
//!
//! Any host that reaches the port can begin a handshake, so unfinished ones are bounded in number
//! and time. Streams are shaken hands with on their own thread: a thousand clients that come over
//! at once must not keep a heartbeat waiting. For that a connection says what it is for in the
//! first message of TLS.
//!
//! Invariants: nothing reaches the inbox before certificate and hello name the same other member of
//! the same group; of one peer one connection for frames is read at a time, the newest.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::UnixTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use towline_admin::catalogue::ACCEPT_FAILED;

use super::dial::{HANDSHAKE_MAX, own_certificate, tune};
use super::frame::{self, Encoder, FrameBody, PING, PONG, START};
use super::hello::{self, Greeting, Hello, Matter, StreamPurpose, WITH_STARTS};
use super::identity::ALPN_STREAM;
use super::known::{self, StartsReport};
use super::patience::{Patience, broken};
use super::stream::LinkStream;
use super::{Peer, Shared, names};
use towline_config::client_network;
use towline_logging::log;
use towline_tls::{in_date, reason};

/// Handshakes under way at once. For one more, the oldest of the address that has most is given up:
/// at once, so that no number of silent connections keeps a member waiting.
const UNFINISHED_MAX: usize = 256;
/// How long a peer that was refused has to read why.
const PARTING: Duration = Duration::from_secs(1);
/// Bytes that are read from it meanwhile, and thrown away.
const PARTING_BYTES_MAX: usize = 64 * 1024;
/// The least that is reserved for reading frames, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Free bytes for each read, at least: a record of TLS.
const RECORD_BYTES: usize = 16 * 1024;
/// Bytes reserved for a frame on the word of its header; beyond it, never more than twice what
/// has come.
const BELIEVED_BYTES: usize = 256 * 1024;

/// Handshakes under way, the oldest first.
struct Unfinished {
    places: Arc<Semaphore>,
    begun: VecDeque<Begun>,
}

struct Begun {
    /// From where.
    network: IpAddr,
    /// See [`HandshakeSlot`].
    pushed_out: Arc<Notify>,
}

/// A handshake's slot; given back when dropped.
struct HandshakeSlot {
    _permit: OwnedSemaphorePermit,
    /// Other connections need the slot.
    pushed_out: Arc<Notify>,
    address: SocketAddr,
    deadline: Instant,
}

impl Unfinished {
    fn new() -> Unfinished {
        Unfinished { places: Arc::new(Semaphore::new(UNFINISHED_MAX)), begun: VecDeque::new() }
    }

    /// A slot for a connection from `address`; another one is pushed out when there is none.
    async fn place(&mut self, address: SocketAddr) -> Option<HandshakeSlot> {
        // The other holder of the notice is the handshake itself: it is over otherwise.
        self.begun.retain(|begun| Arc::strong_count(&begun.pushed_out) > 1);
        if self.places.available_permits() == 0
            && let Some(begun) = self.greediest().and_then(|at| self.begun.remove(at))
        {
            begun.pushed_out.notify_one();
        }
        let permit = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let pushed_out = Arc::<Notify>::default();
        let network = client_network(address.ip());
        self.begun.push_back(Begun { network, pushed_out: Arc::clone(&pushed_out) });
        let deadline = Instant::now() + HANDSHAKE_MAX;
        Some(HandshakeSlot { _permit: permit, pushed_out, address, deadline })
    }

    /// The oldest handshake of the address that has most.
    fn greediest(&self) -> Option<usize> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for begun in &self.begun {
            *counts.entry(begun.network).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        self.begun.iter().position(|begun| counts.get(&begun.network) == Some(&most))
    }
}

/// Accepts until the runtime ends.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log(&ACCEPT_FAILED, &[&error.to_string()]),
    };
    let mut unfinished = Unfinished::new();
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                let Some(place) = unfinished.place(address).await else { return };
                tokio::spawn(first_message(Arc::clone(&shared), socket, place));
            }
            Err(error) => {
                // Most often no descriptor is left: accepting again at once would only spin.
                log(&ACCEPT_FAILED, &[&error.to_string()]);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Runs a part of a handshake within its bounds.
async fn bounded<T>(
    place: &HandshakeSlot,
    part: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |what: &str| io::Error::new(io::ErrorKind::TimedOut, what.to_owned());
    tokio::select! {
        biased;
        done = timeout_at(place.deadline, part) => {
            done.unwrap_or_else(|_| Err(late("the handshake took too long")))
        }
        () = place.pushed_out.notified() => Err(late("too many handshakes of its address at once")),
    }
}

/// Reads the first message of TLS, which says which thread goes on.
async fn first_message(shared: Arc<Shared>, socket: TcpStream, place: HandshakeSlot) {
    let longest = shared.settings.heartbeat_timeout;
    let begun = async {
        tune(&socket, longest)?;
        LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket).await
    };
    let start = match bounded(&place, begun).await {
        Ok(start) => start,
        Err(error) => return refuse(&shared, &place, &reason(&error)),
    };
    let for_stream = start.client_hello().alpn().is_some_and(|mut names| {
        // A client that names both is none of ours; the hello decides what it gets.
        names.any(|name| name == ALPN_STREAM)
    });
    if !for_stream {
        return shake_hands(shared, start, place).await;
    }
    let accepted = start.accepted;
    let socket = start.io;
    let moved = socket.into_std();
    let streams = shared.streams.clone();
    streams.spawn(async move {
        match moved.and_then(TcpStream::from_std) {
            Ok(socket) => {
                let start = StartHandshake::from_parts(accepted, socket);
                shake_hands(shared, start, place).await;
            }
            Err(error) => refuse(&shared, &place, &error.to_string()),
        }
    });
}

/// Logs it, but not each second: a refused peer dials again.
fn refuse(shared: &Shared, place: &HandshakeSlot, why: &str) {
    let from = place.address.ip().to_string();
    shared.log_refused(&from, why);
}

async fn shake_hands(shared: Arc<Shared>, start: StartHandshake<TcpStream>, place: HandshakeSlot) {
    let config = Arc::clone(&shared.identity().server);
    let shaken = async { Ok(start.into_stream(config).into_fallible().await) };
    let mut stream = match bounded(&place, shaken).await {
        Ok(Ok(stream)) => stream,
        Ok(Err((error, socket))) => {
            refuse(&shared, &place, &reason(&error));
            return part_within(&place, socket).await;
        }
        Err(error) => return refuse(&shared, &place, &error.to_string()),
    };
    let hello = match bounded(&place, hello::hear(&mut stream, false)).await {
        Ok(hello) => hello,
        Err(error) => return refuse(&shared, &place, &reason(&error)),
    };
    let judged = judge(&shared, &stream, &hello);
    let matter = match &judged {
        Ok(_) => Matter::Frames,
        Err(why) => Matter::Refused(why.clone()),
    };
    let known = match &judged {
        Ok((peer, _)) => shared.inbox.known(*peer),
        Err(_) => StartsReport::default(),
    };
    let standing = (shared.inbox.standing(), shared.inbox.levels());
    let answer = Hello::of(&shared.settings, standing, known, matter);
    let said = bounded(&place, hello::say(&mut stream, &answer)).await;
    match (judged, said) {
        (Ok((peer, greeting)), Ok(())) => {
            drop(place);
            welcome(shared, peer, stream, hello.matter, greeting).await;
        }
        (Ok(_), Err(error)) => refuse(&shared, &place, &reason(&error)),
        (Err(why), _) => {
            refuse(&shared, &place, &why);
            part_within(&place, stream).await;
        }
    }
}

/// Which member it is, and what it says of itself.
fn judge(
    shared: &Shared,
    stream: &TlsStream<TcpStream>,
    hello: &Hello,
) -> Result<(Peer, Greeting), String> {
    let settings = &shared.settings;
    let version = hello.version()?;
    let here = [&*settings.queue_manager, &*settings.group];
    if [&hello.queue_manager, &hello.group] != here {
        let [queue_manager, group] = here;
        return Err(format!(
            "this is group '{group}' of queue manager '{queue_manager}', not '{}' of '{}'",
            hello.group.escape_default(),
            hello.queue_manager.escape_default()
        ));
    }
    let said = hello.instance.escape_default();
    let peer = settings.other(&hello.instance);
    let peer = peer.ok_or_else(|| format!("'{said}' is no other instance of this group"))?;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = own_certificate(shown).ok_or("no certificate was shown")?;
    names::belongs(certificate, &settings.names(peer))?;
    in_date(shown, UnixTime::now())?;
    // A peer that only asks for the condition of this instance may have a configuration that is to
    // be put right; and what is damaged in a log is repaired before its extents are known, by the
    // log's id and a proof.
    let differs = match &hello.matter {
        Matter::Stream(StreamPurpose::Status | StreamPurpose::Batch) => String::new(),
        _ => hello.agrees(settings, shared.inbox.levels())?,
    };
    let greeting = hello.greeting(version, &differs);
    match &hello.matter {
        Matter::Stream(purpose) => shared.inbox.admits(peer, purpose)?,
        Matter::Frames => shared.inbox.greets(peer, &greeting)?,
        Matter::Refused(_) => {}
    }
    Ok((peer, greeting))
}

async fn welcome(
    shared: Arc<Shared>,
    peer: Peer,
    stream: TlsStream<TcpStream>,
    matter: Matter,
    greeting: Greeting,
) {
    match matter {
        // Only answers carry it.
        Matter::Refused(_) => {}
        Matter::Frames => serve(&shared, peer, stream, &greeting).await,
        Matter::Stream(purpose) => shared.inbox.stream(peer, purpose, LinkStream::new(stream)),
    }
}

/// As [`part`], as long as no other connection needs the slot.
async fn part_within(place: &HandshakeSlot, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let parting = async {
        part(stream).await;
        Ok(())
    };
    if let Err(error) = bounded(place, parting).await {
        tracing::trace!(%error, "a peer that was refused did not wait for the end");
    }
}

/// Ends a connection so that the peer can read why: a socket that is closed with unread bytes in it
/// is reset, which may take back what the peer has not read.
pub async fn part(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let parting = async {
        stream.shutdown().await?;
        let mut left = PARTING_BYTES_MAX;
        let mut thrown_away = vec![0; 1_024];
        while left > 0 {
            match stream.read(&mut thrown_away).await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        io::Result::Ok(())
    };
    match timeout(PARTING, parting).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::trace!(%error, "a peer did not wait for the end"),
    }
}

/// Reads frames until the connection ends, or a newer one of the same peer comes.
async fn serve(shared: &Shared, peer: Peer, stream: TlsStream<TcpStream>, greeting: &Greeting) {
    let lane = shared.lane(peer);
    let newer = Arc::new(Notify::new());
    if let Some(before) = lane.incoming.newest.lock().replace(Arc::clone(&newer)) {
        before.notify_one();
    }
    let turn = lane.incoming.turn.lock().await;
    lane.counters.connected_in(true);
    shared.inbox.opened(peer, true, greeting);
    lane.kick.notify_one();
    let why = tokio::select! {
        biased;
        () = newer.notified() => "it made a new one".to_owned(),
        why = read(shared, peer, stream, greeting.version) => why,
    };
    tracing::debug!(peer = shared.settings.name(peer), why, "a connection for frames ended");
    lane.counters.connected_in(false);
    shared.inbox.closed(peer, true);
    drop(turn);
}

async fn read(
    shared: &Shared,
    peer: Peer,
    mut stream: TlsStream<TcpStream>,
    version: u16,
) -> String {
    let lane = shared.lane(peer);
    // What it promises counts only once its start is noted.
    let mut is_declared = version < WITH_STARTS;
    let longest = shared.settings.heartbeat_timeout;
    let mut patience = Patience::new(longest);
    let mut input = BytesMut::new();
    loop {
        reserve_for_next_read(&mut input);
        if let Err(why) = patience.read(&mut stream, &mut input).await {
            return why;
        }
        loop {
            let frame = match frame::decode(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    let why = error.to_string();
                    shared.log_refused(shared.settings.name(peer), &why);
                    return why;
                }
            };
            if frame.kind == PING && frame.body.len() > frame::PING_BYTES_MAX {
                return "it sent a ping that is too long".to_owned();
            }
            if frame.kind == PING {
                if let Err(error) = answer(&mut stream, frame, longest).await {
                    return broken(&error);
                }
                continue;
            }
            if frame.kind == START {
                if let Err(why) = declared(shared, peer, &frame.body).await {
                    return why;
                }
                is_declared = true;
                continue;
            }
            lane.counters.received(frame.body.len(), frame.wire_bytes);
            // Kinds of the links that a later version may add have no receiver here.
            if is_declared
                && !frame::OWN_KINDS.contains(&frame.kind)
                && let Err(why) = shared.inbox.frame(peer, frame.kind, frame.body)
            {
                shared.log_refused(shared.settings.name(peer), &why);
                return why;
            }
        }
    }
}

/// Has the start of the peer's process noted, on a thread that may wait for the disk.
async fn declared(shared: &Shared, peer: Peer, body: &[u8]) -> Result<(), String> {
    let mut rest = body;
    let start = known::start(&mut rest).filter(|_| rest.is_empty());
    let start = start.ok_or_else(|| "it declared no start".to_owned())?;
    let inbox = Arc::clone(&shared.inbox);
    let noting = tokio::task::spawn_blocking(move || inbox.declared(peer, start));
    noting.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// For the rest of a frame at once: to grow step by step would copy what has come each time.
fn reserve_for_next_read(input: &mut BytesMut) {
    let believed = input.len().max(BELIEVED_BYTES);
    let wanted = frame::missing(input).min(believed).max(RECORD_BYTES);
    if input.capacity() - input.len() < wanted {
        input.reserve((wanted + RECORD_BYTES).max(READ_BYTES));
    }
}

async fn answer(
    stream: &mut TlsStream<TcpStream>,
    ping: frame::Frame,
    longest: Duration,
) -> io::Result<()> {
    let mut pieces = Vec::new();
    Encoder::new(0).encode(PONG, FrameBody::from(ping.body.to_vec()), &mut pieces);
    let writing = async {
        stream.write_all(&pieces.concat()).await?;
        stream.flush().await
    };
    timeout(longest, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a frame with `sent` bytes in its header.
    fn begun(sent: u32, came: usize) -> BytesMut {
        let mut input = BytesMut::with_capacity(came);
        input.extend_from_slice(&sent.to_le_bytes());
        input.resize(came, 0);
        input
    }

    fn room(input: &BytesMut) -> usize {
        input.capacity() - input.len()
    }

    #[test]
    fn when_all_slots_are_taken_the_address_that_has_most_gives_up_its_oldest_at_once() {
        let from = |last: u8| SocketAddr::from(([192, 0, 2, last], 40_000));
        let (flood, member) = (from(1), from(2));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut unfinished = Unfinished::new();
            let of_member = unfinished.place(member).await.unwrap();
            let mut of_flood = VecDeque::new();
            while of_flood.len() + 1 < UNFINISHED_MAX {
                of_flood.push_back(unfinished.place(flood).await.unwrap());
            }
            for next in [flood, member, flood] {
                let oldest: HandshakeSlot = of_flood.pop_front().unwrap();
                let gives_up = async move {
                    oldest.pushed_out.notified().await;
                    drop(oldest);
                };
                let both = async { tokio::join!(unfinished.place(next), gives_up).0 };
                let place = timeout(Duration::from_secs(10), both).await.expect("not the oldest");
                of_flood.push_back(place.unwrap());
            }
            let told = timeout(Duration::ZERO, of_member.pushed_out.notified()).await;
            assert!(told.is_err(), "a member gave way to a flood from elsewhere");
        });
    }

    #[test]
    fn a_frame_gets_capacity_for_all_of_it_at_once() {
        let mut input = begun(90_000, 16_000);
        reserve_for_next_read(&mut input);
        let missing = frame::missing(&input);
        assert!(missing > 74_000 && room(&input) >= missing);
        let (place, had) = (input.as_ptr(), input.capacity());
        input.resize(16_000 + missing, 0);
        assert_eq!((input.as_ptr(), input.capacity()), (place, had), "it does not move meanwhile");
    }

    #[test]
    fn a_header_is_believed_up_to_a_bound_and_then_up_to_twice_what_has_come() {
        let mut input = begun(u32::MAX, 100);
        reserve_for_next_read(&mut input);
        assert!(room(&input) <= 2 * (BELIEVED_BYTES + RECORD_BYTES));
        let mut input = begun(u32::MAX, 4 * BELIEVED_BYTES);
        reserve_for_next_read(&mut input);
        assert!(room(&input) >= 4 * BELIEVED_BYTES && room(&input) <= 8 * BELIEVED_BYTES);
    }

    #[test]
    fn where_no_frame_has_begun_there_is_capacity_for_a_record() {
        let mut input = BytesMut::new();
        reserve_for_next_read(&mut input);
        assert!(room(&input) >= READ_BYTES);
        let mut input = BytesMut::with_capacity(RECORD_BYTES + 1);
        let had = input.capacity();
        reserve_for_next_read(&mut input);
        assert_eq!(input.capacity(), had);
    }
}
