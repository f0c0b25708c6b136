//! One connection through the proxy: two ways, each read by one task and written by another, with
//! what is on the way in between.

use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, watch};

use super::shaper::{Admission, Line, PIECE_BYTES};
use super::{Way, Wires};

/// What a piece takes besides its bytes, about: many small ones are bounded too.
const PIECE_OVERHEAD_BYTES: usize = 128;

/// What is on the way, and when it is due.
struct Piece {
    due: Duration,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    /// No more will follow.
    End,
    /// The sender's connection was reset.
    Reset,
}

/// What one way of one connection has in the proxy.
struct Held<'way> {
    bytes: AtomicUsize,
    freed: Notify,
    /// All of the way.
    total: &'way AtomicUsize,
}

impl Held<'_> {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn free(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.freed.notify_one();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// The two sockets, as far as both ways must know of them.
#[derive(Default)]
struct Broken {
    /// A write to the client, and to the target, failed: an end that is read there is a reset.
    sockets: [AtomicBool; 2],
}

/// Joins the two until both ways ended, one was reset, or everything is.
pub(super) async fn join(
    net: &Wires,
    client: TcpStream,
    target: TcpStream,
    resets: &mut watch::Receiver<u64>,
) {
    client.set_nodelay(true).ok();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_target, mut to_target) = target.into_split();
    let broken = Broken::default();
    let ways = async {
        tokio::try_join!(
            carry(net, 0, &broken, &mut from_client, &mut to_target),
            carry(net, 1, &broken, &mut from_target, &mut to_client),
        )
    };
    let is_reset = tokio::select! {
        biased;
        _ = resets.changed() => true,
        ended = ways => ended.is_err(),
    };
    if is_reset {
        for socket in [from_client.as_ref(), from_target.as_ref()] {
            socket.set_zero_linger().ok();
        }
        // Dropped without a word for the end, both are reset.
        to_client.forget();
        to_target.forget();
    }
}

/// Carries one way to its end.
///
/// # Errors
/// When a reset arrived: both sockets are to be reset.
async fn carry(
    net: &Wires,
    number: usize,
    broken: &Broken,
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
) -> Result<()> {
    let way = &net.ways[number];
    let held = Held { bytes: AtomicUsize::new(0), freed: Notify::new(), total: &way.held_bytes };
    let (sender, receiver) = mpsc::unbounded_channel();
    let reading = async {
        read(net, way, &held, &broken.sockets[number], from, sender).await;
        // What was read has to be written.
        std::future::pending().await
    };
    let writing = write(net, way, &held, &broken.sockets[1 - number], to, receiver);
    tokio::select! {
        never = reading => never,
        written = writing => written,
    }
}

/// Reads what the line takes, and puts it on the way.
async fn read(
    net: &Wires,
    way: &Way,
    held: &Held<'_>,
    is_broken: &AtomicBool,
    from: &mut OwnedReadHalf,
    sender: mpsc::UnboundedSender<Piece>,
) {
    let mut line = way.line.subscribe();
    let mut buffer = vec![0; PIECE_BYTES];
    // Since when there was something to read, and only the line was waited for.
    let mut since = None;
    loop {
        // Before its turn: what the line takes then may be another amount.
        let is_readable = from.readable().await;
        if waits(held, &mut line).await {
            since = None;
        }
        // One connection after the other, in the order in which they asked.
        let turn = way.turns.lock().await;
        let there = *since.get_or_insert_with(|| net.alarm.now());
        let Some(bytes_max) = admitted(net, way, &mut line).await else {
            since = None;
            continue;
        };
        let content = match is_readable.and_then(|()| from.try_read(&mut buffer[..bytes_max])) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                since = None;
                continue;
            }
            Ok(0) if !is_broken.load(Ordering::Relaxed) => Content::End,
            Ok(0) | Err(_) => Content::Reset,
            Ok(bytes) => Content::Bytes(buffer[..bytes].to_vec()),
        };
        let (bytes, is_last) = match &content {
            Content::Bytes(bytes) => (bytes.len(), false),
            Content::End | Content::Reset => (0, true),
        };
        let current = *line.borrow();
        let due = way.shaper().take(net.alarm.now(), there, bytes, &current);
        drop(turn);
        if bytes < bytes_max {
            since = None;
        }
        held.add(bytes + PIECE_OVERHEAD_BYTES);
        let sent = sender.send(Piece { due, content });
        if is_last || sent.is_err() {
            return;
        }
    }
}

/// Waits until bytes pass and may be held; whether that was not so.
async fn waits(held: &Held<'_>, line: &mut watch::Receiver<Line>) -> bool {
    let mut has_waited = false;
    loop {
        let current = *line.borrow_and_update();
        if current.passes() && held.bytes.load(Ordering::Relaxed) < current.held_bytes_max() {
            return has_waited;
        }
        has_waited = true;
        // A line that changes may hold more.
        tokio::select! {
            () = held.freed.notified() => {}
            // Only dropping the sender is an error, and it is in the way.
            _ = line.changed() => {}
        }
    }
}

/// Waits until the line takes bytes; how many, `None` when the line changed meanwhile.
async fn admitted(net: &Wires, way: &Way, line: &mut watch::Receiver<Line>) -> Option<usize> {
    if line.has_changed().unwrap_or(true) {
        return None;
    }
    let current = *line.borrow();
    let admission = way.shaper().admit(net.alarm.now(), &current);
    match admission {
        Admission::Bytes(bytes) => Some(bytes),
        Admission::From(at) => tokio::select! {
            () = net.alarm.until(at) => Some(current.piece_bytes()),
            _ = line.changed() => None,
        },
    }
}

/// Writes what is due.
async fn write(
    net: &Wires,
    way: &Way,
    held: &Held<'_>,
    is_broken: &AtomicBool,
    to: &mut OwnedWriteHalf,
    mut receiver: mpsc::UnboundedReceiver<Piece>,
) -> Result<()> {
    let mut line = way.line.subscribe();
    while let Some(Piece { due, content }) = receiver.recv().await {
        net.alarm.until(due).await;
        line.wait_for(Line::passes).await.ok();
        let (written, bytes) = match &content {
            Content::Bytes(bytes) => (to.write_all(bytes).await, bytes.len()),
            Content::End => (to.shutdown().await, 0),
            Content::Reset => return Err(Error::from(ErrorKind::ConnectionReset)),
        };
        if written.is_err() {
            // The sender learns it as late as the line is: from what is read on the other way.
            is_broken.store(true, Ordering::Relaxed);
            return Ok(());
        }
        way.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        held.free(bytes + PIECE_OVERHEAD_BYTES);
    }
    Ok(())
}
