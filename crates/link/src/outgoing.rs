//! The connection to each peer on which frames are sent: dialled, kept, dialled again.
//!
//! Each peer has one task. It writes what waits in the peer's queue, and a ping each heartbeat
//! interval; it reads nothing but the answers to those. When they stay away for the heartbeat
//! timeout the network is dead; when the socket ends the process is.
//!
//! What was written can no longer be overtaken, and the system's buffers hold many megabytes when
//! the network or the peer is slow. So pings also go between the frames, and while too many bytes
//! were written since the last one that was answered, only urgent frames are written.
//!
//! Not here: what is sent. Invariant: `Inbox::closed` follows each `Inbox::opened`, and the queue
//! is open exactly in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};
use towline_admin::catalogue::{LINK_DIFFERS, LINK_DOWN, LINK_UNREACHABLE, LINK_UP};
use towline_group::Start;

use super::dial::DialledLink;
use super::frame::{self, Encoder, FrameBody, PING, PONG, START};
use super::hello::{Greeting, WITH_STARTS};
use super::known::put_start;
use super::patience::{Patience, broken};
use super::writing::write_pieces;
use super::{Lane, Peer, Shared, dial};
use towline_logging::log;

/// The longest pause before a peer is dialled again.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A dial that takes longer is begun again when the peer shows that it lives.
const DIAL_USUAL: Duration = Duration::from_millis(300);
/// Bytes of frames on the way at which ordinary ones wait: enough for 1 GB a second at a
/// millisecond there and back, and 0.1 s of a network with 10 MB a second.
const FLIGHT_BYTES: u64 = 1024 * 1024;
/// Bytes of frames after which a ping asks whether they arrived.
const PING_AFTER_BYTES: u64 = FLIGHT_BYTES / 4;
/// Body of a ping.
const PING_BYTES: usize = 16;
/// Starts a task for each peer.
pub(super) fn start(shared: &Arc<Shared>) {
    for peer in (0..shared.settings.members.len()).filter(|peer| *peer != shared.settings.this) {
        tokio::spawn(keep(Arc::clone(shared), peer));
    }
}

async fn keep(shared: Arc<Shared>, peer: Peer) {
    let lane = shared.lane(peer);
    let first = shared.settings.retry_interval;
    let mut pause = first;
    let mut logged = String::new();
    let mut differed: Arc<str> = Arc::from("");
    loop {
        let dialled = tokio::select! {
            biased;
            dialled = dial::frames(&shared, peer) => dialled,
            // It lives, and what we wait for may be a packet that was lost while it did not.
            () = kicked_late(lane) => continue,
        };
        match dialled {
            Ok(DialledLink { stream, greeting }) => {
                pause = first;
                logged.clear();
                lane.trouble.lock().clear();
                // Once for each difference: connections come and go.
                if !greeting.differs.is_empty() && greeting.differs != differed {
                    log(&LINK_DIFFERS, &[shared.settings.name(peer), &greeting.differs]);
                }
                differed = Arc::clone(&greeting.differs);
                serve(&shared, peer, stream, &greeting).await;
            }
            Err(error) => {
                let why = error.to_string();
                lane.trouble.lock().clone_from(&why);
                // Once for each reason: it is tried every second.
                if why != logged {
                    let settings = &shared.settings;
                    log(&LINK_UNREACHABLE, &[settings.name(peer), settings.address(peer), &why]);
                    logged = why;
                }
            }
        }
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            // It dialled us, so it lives.
            () = lane.kick.notified() => pause = first,
        }
    }
}

async fn kicked_late(lane: &Lane) {
    sleep(DIAL_USUAL).await;
    lane.kick.notified().await;
}

async fn serve(
    shared: &Shared,
    peer: Peer,
    stream: impl AsyncRead + AsyncWrite,
    greeting: &Greeting,
) {
    let lane = shared.lane(peer);
    let settings = &shared.settings;
    lane.queue.open();
    lane.counters.connected_out(true);
    log(&LINK_UP, &[settings.name(peer), settings.address(peer), &greeting.build]);
    shared.inbox.opened(peer, false, greeting);
    let (reader, writer) = tokio::io::split(stream);
    let flight = Flight::default();
    let declares = (greeting.version >= WITH_STARTS).then(|| shared.inbox.known(peer).start);
    let why = tokio::select! {
        biased;
        why = listen(shared, lane, &flight, reader) => why,
        why = write(shared, lane, &flight, declares, writer) => why,
    };
    lane.queue.close();
    lane.counters.connected_out(false);
    log(&LINK_DOWN, &[settings.name(peer), &why]);
    shared.inbox.closed(peer, false);
}

/// Reads the answers to pings until the connection ends; why it did is returned.
async fn listen(
    shared: &Shared,
    lane: &Lane,
    flight: &Flight,
    mut reader: impl AsyncRead + Unpin,
) -> String {
    let mut patience = Patience::new(shared.settings.heartbeat_timeout);
    let mut input = BytesMut::with_capacity(256);
    loop {
        input.reserve(frame::HEADER_BYTES + PING_BYTES);
        if let Err(why) = patience.read(&mut reader, &mut input).await {
            return why;
        }
        loop {
            match frame::decode(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) if frame.kind == PONG => {
                    let Some(Pong { sent, written }) = read_pong(frame.body) else {
                        return "it answered a ping that we did not send".to_owned();
                    };
                    lane.counters.round_trip(shared.began.elapsed().saturating_sub(sent));
                    flight.arrived.fetch_max(written, Ordering::Relaxed);
                    flight.news.notify_one();
                }
                Ok(Some(_)) => return "it sent a frame on the wrong connection".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }
}

/// Bytes of frames on the way.
#[derive(Debug, Default)]
struct Flight {
    /// Of those written, so many have certainly been read by the peer.
    arrived: AtomicU64,
    news: Notify,
}

/// A ping: when it was sent, and the bytes of frames that were written before it.
fn ping_body(shared: &Shared, written: u64) -> FrameBody {
    let now = u64::try_from(shared.began.elapsed().as_micros()).unwrap_or(u64::MAX);
    FrameBody::from([now.to_be_bytes(), written.to_be_bytes()].concat())
}

/// What an answer to a ping repeats of it.
struct Pong {
    /// When the ping was sent, since the links began.
    sent: Duration,
    /// The bytes of frames that were written before it.
    written: u64,
}

fn read_pong(mut body: Bytes) -> Option<Pong> {
    let sent = Duration::from_micros(body.try_get_u64().ok()?);
    Some(Pong { sent, written: body.try_get_u64().ok()? })
}

/// Writes what waits until the connection breaks; why it did is returned.
async fn write(
    shared: &Shared,
    lane: &Lane,
    flight: &Flight,
    declares: Option<Start>,
    mut writer: impl AsyncWrite + Unpin,
) -> String {
    let mut encoder = Encoder::new(shared.settings.compression_threshold);
    let mut ping = interval(shared.settings.heartbeat_interval);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = Vec::new();
    let mut pieces = VecDeque::new();
    if let Some(start) = declares {
        // Before all else: the peer hears nothing before it has noted this.
        let mut body = Vec::new();
        put_start(&mut body, start);
        encoder.encode(START, FrameBody::from(body), &mut pieces);
    }
    // Bytes of bodies written, and how many of them the last ping reported.
    let mut written = 0_u64;
    let mut pinged = 0_u64;
    loop {
        let may_write =
            written.saturating_sub(flight.arrived.load(Ordering::Relaxed)) < FLIGHT_BYTES;
        let (due, taken) = tokio::select! {
            biased;
            _ = ping.tick() => (true, 0),
            taken = lane.queue.take(may_write, &mut waiting) => (false, taken),
            () = flight.news.notified(), if !may_write => continue,
        };
        let frames = waiting.len();
        let mut bytes = 0;
        let mut wire_bytes = 0;
        for waiting in waiting.drain(..) {
            bytes += waiting.body.len();
            wire_bytes += encoder.encode(waiting.kind, waiting.body, &mut pieces);
        }
        lane.counters.compressed(encoder.take_spent());
        written = written.saturating_add(bytes as u64);
        if due || written.saturating_sub(pinged) >= PING_AFTER_BYTES {
            encoder.encode(PING, ping_body(shared, written), &mut pieces);
            pinged = written;
        }
        if let Err(error) = write_pieces(&mut writer, &mut pieces).await {
            return broken(&error);
        }
        lane.queue.written(taken);
        if frames > 0 {
            lane.counters.sent(frames, bytes, wire_bytes);
        }
    }
}
