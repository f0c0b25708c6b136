//! One connection between two regions while it stands: frames and pings both ways.
//!
//! Both directions run on the thread of frames. What waits to be written waits in a queue of ours,
//! because the system's buffers cannot be overtaken: they are kept small, and pings, their answers
//! and what its user wants to go first go between two frames. Nothing is written and awaited; how
//! much may be on the way is the sender's decision above.
//!
//! A receiver that is full stops the reading, and the window of TCP the other end. So there is no
//! limit to how long the system tries to send (TCP_USER_TIMEOUT ends a connection too if its other
//! end takes nothing): each end writes pings, and one that hears nothing for the heartbeat timeout
//! ends the connection. While it does not read on purpose it waits for nothing.
//!
//! Not here: how a connection comes about (`dial`, `listen`). Invariants: `closed` follows each
//! `opened`, once; the queue is open exactly in between; a ping that was not answered yet, and a
//! frame that goes first and has not gone, is forgotten for the next one, so that a flood of them
//! takes no memory.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsStream;
use towline_admin::catalogue::{REGION_LINK_DOWN, REGION_LINK_UP};
use towline_logging::log;
use towline_types::limits::{REGION_REASON_BYTES_MAX, REGION_WRITABLE_BYTES};

use super::hello::RegionHello;
use super::repeats::{QUIET, SETTLED};
use super::{Intake, LinkId, RegionConnection, RegionLink, RegionShared};
use crate::frame::{
    self, BODY_BYTES_MAX, END, Encoder, FrameBody, OWN_KINDS, PING, PING_BYTES_MAX, PONG, START,
};
use crate::handshakes::part_from;
use crate::patience::{Patience, broken};
use crate::queue::{Queue, Waiting};
use crate::reading::reserve_for_next_read;
use crate::text::{beginning, printable};
use crate::writing::write_pieces;

/// How long the last frame may take, and the other end to say why it ended a connection.
const PARTING: Duration = Duration::from_secs(1);

/// Bytes that come before the first frame was whole: the one that confirms, and part of a next.
const CONFIRMATION_BYTES_MAX: usize = 64 * 1024;

/// A connection that is about to stand.
pub(super) struct NewLink {
    pub(super) stream: TlsStream<TcpStream>,
    /// Bytes that were read behind the handshake.
    pub(super) input: BytesMut,
    /// The other end dialled.
    pub(super) incoming: bool,
    /// Of the other end.
    pub(super) address: Arc<str>,
    pub(super) hello: RegionHello,
}

/// Connections that stand.
#[derive(Default)]
pub(super) struct OpenQueues(Mutex<Vec<(Arc<OpenLink>, Arc<str>)>>);

impl OpenQueues {
    /// Bytes that wait for all of them.
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().iter().map(|(link, _)| link.queue.bytes()).sum()
    }

    /// The instance to which the newest of them stands; empty: there is none.
    pub(super) fn instance(&self) -> Arc<str> {
        self.0.lock().last().map_or_else(|| Arc::from(""), |(_, instance)| Arc::clone(instance))
    }
}

/// One of them.
pub(super) struct OpenLink {
    id: LinkId,
    shared: Weak<RegionShared>,
    queue: Queue,
    /// See [`RegionConnection::resume`].
    resumed: Notify,
    /// The ping to answer.
    ping: Mutex<Option<Bytes>>,
    /// See [`RegionConnection::send_newest`].
    newest: Mutex<Option<Waiting>>,
    /// Why this side ends it.
    closing: watch::Sender<Option<Arc<str>>>,
    /// Something is to be written before what waits in the queue.
    urgent: Notify,
}

impl RegionConnection for OpenLink {
    fn id(&self) -> LinkId {
        self.id
    }

    fn send(&self, kind: u8, body: FrameBody) -> bool {
        assert!(body.len() <= BODY_BYTES_MAX, "a frame of {} bytes", body.len());
        assert!(!OWN_KINDS.contains(&kind), "kind {kind} is the links' own");
        let taken = self.queue.put(kind, false, body);
        if !taken && let Some(shared) = self.shared.upgrade() {
            shared.counters.dropped();
        }
        taken
    }

    fn send_newest(&self, kind: u8, body: FrameBody) -> bool {
        assert!(body.len() <= BODY_BYTES_MAX, "a frame of {} bytes", body.len());
        assert!(!OWN_KINDS.contains(&kind), "kind {kind} is the links' own");
        if !self.queue.is_open() {
            return false;
        }
        *self.newest.lock() = Some(Waiting { kind, body });
        self.urgent.notify_one();
        true
    }

    fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    fn resume(&self) {
        self.resumed.notify_one();
    }

    fn close(&self, why: &str) {
        let why = Arc::from(beginning(why, REGION_REASON_BYTES_MAX));
        // The first reason is the one that counts.
        let is_first = self.closing.send_if_modified(|closing| {
            let is_first = closing.is_none();
            closing.get_or_insert(why);
            is_first
        });
        if is_first {
            self.urgent.notify_one();
        }
    }
}

/// How a connection ended.
enum LinkEnd {
    /// This side said why, in its last frame.
    Said(String),
    /// The other end did.
    Heard(String),
    /// The network, or this side without a last frame.
    Broken(String),
}

/// A connection that ended, for the side that dials.
pub(super) struct LinkOver {
    pub(super) why: String,
    /// One of both ends did, with a reason, soon after it stood.
    pub(super) is_refused: bool,
}

/// Answers the side that listens: whether its answer is taken.
///
/// # Errors
/// When the connection broke.
pub(super) async fn confirm(
    stream: &mut (impl AsyncWrite + Unpin),
    refused: Option<&String>,
) -> io::Result<()> {
    let mut pieces = VecDeque::new();
    match refused {
        None => Encoder::new(0).encode(START, FrameBody::default(), &mut pieces),
        Some(why) => Encoder::new(0).encode(END, last_words(why), &mut pieces),
    };
    write_pieces(stream, &mut pieces).await
}

/// Waits for that; bytes behind it are left in `input`.
///
/// # Errors
/// When it does not take the answer, with its reason, or the connection broke.
pub(super) async fn confirmed(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> io::Result<()> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    loop {
        match frame::decode(input).map_err(|error| wrong(error.to_string()))? {
            Some(frame) if frame.kind == START => return Ok(()),
            Some(frame) if frame.kind == END => {
                return Err(wrong(format!("it refused: {}", said(&frame.body))));
            }
            Some(_) => return Err(wrong("it sent a frame before it took the answer".into())),
            None => {}
        }
        if input.len() > CONFIRMATION_BYTES_MAX {
            return Err(wrong("it sent a frame before it took the answer".into()));
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Serves a connection until it ends. `until` gives a reason of this side.
pub(super) async fn serve(
    shared: &Arc<RegionShared>,
    new: NewLink,
    until: impl Future<Output = &'static str>,
) -> LinkOver {
    let NewLink { stream, input, incoming, address, hello } = new;
    let link = Arc::new(OpenLink {
        id: shared.next_id(),
        shared: Arc::downgrade(shared),
        queue: Queue::default(),
        resumed: Notify::new(),
        ping: Mutex::default(),
        newest: Mutex::default(),
        closing: watch::Sender::new(None),
        urgent: Notify::new(),
    });
    let settings = &shared.settings;
    let names = [&*hello.instance, &*settings.other_group];
    link.queue.open();
    mark(shared, incoming, true);
    shared.queued.0.lock().push((Arc::clone(&link), Arc::clone(&hello.instance)));
    let says_up = || log(&REGION_LINK_UP, &[names[0], names[1], &address, &hello.build]);
    let began = Instant::now();
    // If this one goes the same way, nothing is new.
    let mut is_quiet = shared.repeats.is_refused(&hello.instance);
    if !is_quiet {
        says_up();
    }
    shared.inbox.opened(incoming, &hello, Arc::clone(&link) as RegionLink);
    let (reader, writer) = tokio::io::split(stream);
    let mut exchange = std::pin::pin!(exchange(shared, &link, input, (reader, writer), until));
    let (end, halves) = tokio::select! {
        biased;
        done = &mut exchange => done,
        () = sleep(QUIET), if is_quiet => {
            is_quiet = false;
            says_up();
            exchange.await
        }
    };
    link.queue.close();
    shared.queued.0.lock().retain(|(open, _)| open.id != link.id);
    mark(shared, incoming, false);
    let is_said = !matches!(end, LinkEnd::Broken(_)) || link.closing.borrow().is_some();
    let is_refused = is_said && began.elapsed() < SETTLED;
    let why = match end {
        LinkEnd::Said(why) => {
            // The next connection need not wait until this one is read to its end. What the other
            // end has sent is read, however much: with unread bytes in it a socket is reset, and
            // the last frame may not have left yet.
            tokio::spawn(part_from(halves.0.unsplit(halves.1), usize::MAX));
            why
        }
        LinkEnd::Heard(why) | LinkEnd::Broken(why) => why,
    };
    if is_news(shared, &hello.instance, is_refused.then_some(&why)) || !is_quiet {
        if is_quiet {
            says_up();
        }
        log(&REGION_LINK_DOWN, &[names[0], names[1], &why]);
    }
    shared.inbox.closed(link.id, &why);
    LinkOver { why, is_refused }
}

/// Whether the end of a connection is to be logged: it was not `refused`, or for another reason
/// than the one before.
fn is_news(shared: &RegionShared, instance: &Arc<str>, refused: Option<&String>) -> bool {
    match refused {
        Some(why) => shared.repeats.refused(instance, why),
        None => {
            shared.repeats.forget(instance);
            true
        }
    }
}

fn mark(shared: &RegionShared, incoming: bool, connected: bool) {
    if incoming {
        shared.counters.connected_in(connected);
        shared.counters.forget_round_trip();
    } else {
        shared.counters.connected_out(connected);
    }
}

/// Reads and writes until either ends.
async fn exchange<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    shared: &RegionShared,
    link: &OpenLink,
    input: BytesMut,
    (mut reader, mut writer): (R, W),
    until: impl Future<Output = &'static str>,
) -> (LinkEnd, (R, W)) {
    let closed = async {
        let why = until.await;
        link.close(why);
        std::future::pending::<LinkEnd>().await
    };
    let end = {
        let mut reading = std::pin::pin!(read(shared, link, input, &mut reader));
        // Neither direction may starve the other one, so their order is left to chance.
        tokio::select! {
            end = &mut reading => end,
            end = write(shared, link, &mut writer) => match end {
                // What the other end said before it went says more than that it went.
                LinkEnd::Broken(why) if link.closing.borrow().is_none() => {
                    timeout(PARTING, reading).await.unwrap_or(LinkEnd::Broken(why))
                }
                end => end,
            },
            end = given_up(link) => end,
            end = closed => end,
        }
    };
    (end, (reader, writer))
}

/// Waits until this side wants to end it, and then as long as the last frame may take.
async fn given_up(link: &OpenLink) -> LinkEnd {
    let why = reason_to_close(link).await;
    sleep(PARTING).await;
    LinkEnd::Broken(why)
}

async fn reason_to_close(link: &OpenLink) -> String {
    let mut closing = link.closing.subscribe();
    // The sender is the link's own, so it is there.
    match closing.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(why)) => why.to_string(),
        Ok(None) | Err(_) => String::new(),
    }
}

/// Reads until the connection ends; how it did is returned.
async fn read(
    shared: &RegionShared,
    link: &OpenLink,
    mut input: BytesMut,
    reader: &mut (impl AsyncRead + Unpin),
) -> LinkEnd {
    let mut patience = Patience::new(shared.settings.heartbeat_timeout);
    loop {
        loop {
            let frame = match frame::decode(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(error) => return refuse(link, &error.to_string()).await,
            };
            match take(shared, link, frame) {
                Ok(Intake::More) => {}
                Ok(Intake::Full) => {
                    link.resumed.notified().await;
                    patience.renew();
                }
                Err(FrameEnd::Said(why)) => return LinkEnd::Heard(why),
                Err(FrameEnd::Wrong(why)) => return refuse(link, &why).await,
            }
        }
        reserve_for_next_read(&mut input);
        if let Err(why) = patience.read(reader, &mut input).await {
            return LinkEnd::Broken(why);
        }
    }
}

/// The other end gets the reason in the last frame, which the writer writes.
async fn refuse(link: &OpenLink, why: &str) -> LinkEnd {
    link.close(why);
    std::future::pending().await
}

/// The body of the last frame.
fn last_words(why: &str) -> FrameBody {
    FrameBody::from(beginning(why, REGION_REASON_BYTES_MAX).as_bytes().to_vec())
}

/// What the body of a last frame says, as it may stand in a message.
fn said(body: &[u8]) -> String {
    let body = body.get(..REGION_REASON_BYTES_MAX).unwrap_or(body);
    printable(&String::from_utf8_lossy(body))
}

/// Why a frame is the last one that is read.
enum FrameEnd {
    /// The other end gave a reason.
    Said(String),
    /// It cannot be of the other end.
    Wrong(String),
}

/// Takes one frame.
fn take(shared: &RegionShared, link: &OpenLink, frame: frame::Frame) -> Result<Intake, FrameEnd> {
    let wrong = |why: &str| Err(FrameEnd::Wrong(why.to_owned()));
    match frame.kind {
        PING if frame.body.len() > PING_BYTES_MAX => wrong("it sent a ping that is too long"),
        PING => {
            *link.ping.lock() = Some(frame.body);
            link.urgent.notify_one();
            Ok(Intake::More)
        }
        PONG => {
            let mut body = frame.body;
            let sent = body.try_get_u64().ok().map(Duration::from_micros);
            let now = shared.began.elapsed();
            let Some(took) = sent.and_then(|sent| now.checked_sub(sent)) else {
                return wrong("it answered a ping that we did not send");
            };
            shared.counters.round_trip(took);
            Ok(Intake::More)
        }
        END => Err(FrameEnd::Said(format!("it ended the connection: {}", said(&frame.body)))),
        // Kinds of the links that a later version may add have no receiver here.
        kind if OWN_KINDS.contains(&kind) => Ok(Intake::More),
        kind => {
            shared.counters.received(frame.body.len(), frame.cost);
            let taken = shared.inbox.frame(link.id, kind, frame.body, frame.cost);
            taken.map_err(FrameEnd::Wrong)
        }
    }
}

/// Writes pings, their answers, and what waits, until the connection ends.
async fn write(
    shared: &RegionShared,
    link: &OpenLink,
    writer: &mut (impl AsyncWrite + Unpin),
) -> LinkEnd {
    let mut encoder = Encoder::new(shared.settings.compression_threshold);
    let mut ping = interval(shared.settings.heartbeat_interval);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = Vec::new();
    let mut pieces = VecDeque::new();
    loop {
        let (due, taken) = tokio::select! {
            biased;
            () = link.urgent.notified() => (false, 0),
            _ = ping.tick() => (true, 0),
            taken = link.queue.take(true, &mut waiting) => (false, taken),
        };
        let closing = link.closing.borrow().clone();
        if let Some(why) = closing {
            encoder.encode(END, last_words(&why), &mut pieces);
            return match write_pieces(writer, &mut pieces).await {
                Ok(()) => LinkEnd::Said(why.to_string()),
                Err(_) => LinkEnd::Broken(why.to_string()),
            };
        }
        let answer = link.ping.lock().take();
        if let Some(body) = answer {
            encoder.encode(PONG, FrameBody::from(body.to_vec()), &mut pieces);
        }
        if due {
            let now = u64::try_from(shared.began.elapsed().as_micros()).unwrap_or(u64::MAX);
            encoder.encode(PING, FrameBody::from(now.to_be_bytes().to_vec()), &mut pieces);
        }
        let newest = link.newest.lock().take();
        let frames = waiting.len() + usize::from(newest.is_some());
        let (mut bytes, mut wire_bytes) = (0, 0);
        for waiting in newest.into_iter().chain(waiting.drain(..)) {
            bytes += waiting.body.len();
            wire_bytes += encoder.encode(waiting.kind, waiting.body, &mut pieces);
        }
        shared.counters.compressed(encoder.take_spent());
        if let Err(error) = write_pieces(writer, &mut pieces).await {
            let closing = link.closing.borrow().clone();
            return LinkEnd::Broken(closing.map_or_else(|| broken(&error), |why| why.to_string()));
        }
        if frames > 0 {
            shared.counters.sent(frames, bytes, wire_bytes);
            let [before, now] = link.queue.written(taken);
            if before >= REGION_WRITABLE_BYTES && now < REGION_WRITABLE_BYTES {
                shared.inbox.writable(link.id);
            }
        }
    }
}
