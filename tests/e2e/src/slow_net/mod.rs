//! A slow or broken network between two processes: a TCP proxy that delays, narrows, cuts, stalls.
//!
//! Each connection that comes in is joined to one to the target. What it reads is written so much
//! later (to some tens of microseconds: tokio's timer would be too coarse), and all connections of
//! one way share so many bits a second, in turns. While a way is cut or stalled, nothing of it is
//! read: bytes and ends wait in the sockets of the sender, as they would wait for TCP to send them
//! again, and pass at the speed of the line when it is healed. What was on the way when it was cut
//! is held. A reset takes the way of the bytes, with their delay; the order to reset ends all
//! connections at once.
//!
//! Memory is bounded, for each connection and way, by what is on such a line
//! ([`Line`]: bandwidth and delay), and by 16 MiB; beyond it nothing is read.
//!
//! Not here: loss and reordering, which TCP hides; delays of the handshake of TCP itself; the bytes
//! of headers, which a real line carries too; what is in the bytes. A cut is seen by programs that
//! watch for silence, not by the system's own timers: the proxy's system answers for the far end.

mod alarm;
pub mod command;
mod line;
mod shaper;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::Try;
use alarm::Alarm;
use command::{Command, Ways};
use shaper::Shaper;
pub use shaper::{BITS_PER_S_MIN, Line};

/// Bytes that the system may keep for the proxy in each socket, as it counts them: what a sender
/// has sent waits before the line, and is to wait at the sender rather.
const SOCKET_BYTES: usize = 256 * 1024;

/// A proxy that runs until it is dropped.
pub struct SlowNet {
    net: Arc<Wires>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

pub(crate) struct Wires {
    target: String,
    /// From the connecting side to the target, and back.
    ways: [Way; 2],
    /// Counts resets; connections that were there before a change end.
    resets: watch::Sender<u64>,
    /// New connections are reset at once.
    refuses: watch::Sender<bool>,
    alarm: Arc<Alarm>,
    connections: AtomicU64,
    connections_total: AtomicU64,
}

/// One way, of all connections.
#[derive(Default)]
pub(crate) struct Way {
    line: watch::Sender<Line>,
    shaper: Mutex<Shaper>,
    /// Whose turn it is to read: the first that asked.
    turns: tokio::sync::Mutex<()>,
    /// Given to the other side so far.
    bytes: AtomicU64,
    /// On the way now, with what the proxy needs for them.
    held_bytes: AtomicUsize,
}

impl SlowNet {
    /// Listens on `listen` (port 0 picks one) for connections to `target` (host and port).
    ///
    /// # Errors
    /// When the address is taken, or there is no thread.
    pub fn start(listen: SocketAddr, target: &str) -> Try<SlowNet> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        // What is accepted takes it over.
        set_socket_recv_buffer_size(&listener, SOCKET_BYTES)?;
        let address = listener.local_addr()?;
        let net = Arc::new(Wires {
            target: target.to_owned(),
            ways: Default::default(),
            resets: watch::Sender::default(),
            refuses: watch::Sender::default(),
            alarm: Alarm::start()?,
            connections: AtomicU64::new(0),
            connections_total: AtomicU64::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, mut stopped) = watch::channel(false);
        let serving = Arc::clone(&net);
        let thread = std::thread::Builder::new().name("slow-net".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(serving, listener) => {}
                    _ = stopped.wait_for(|stop| *stop) => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(SlowNet { net, stop, thread: Some(thread), address })
    }

    /// Where to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries out a command; returns the text of the answer.
    #[must_use]
    pub fn order(&self, command: Command) -> String {
        match command {
            Command::Delay(ways, delay) => self.change(ways, |line| line.delay = delay),
            Command::Bandwidth(ways, bits) => self.change(ways, |line| line.bits_per_s = bits),
            Command::Cut(ways) => self.change(ways, |line| line.cut = true),
            Command::Stall(ways) => self.change(ways, |line| line.stalled = true),
            Command::Heal(ways) => {
                self.net.refuses.send_replace(false);
                self.change(ways, |line| (line.cut, line.stalled) = (false, false));
            }
            Command::Reset => self.net.resets.send_modify(|resets| *resets += 1),
            Command::Refuse => {
                self.net.refuses.send_replace(true);
                self.net.resets.send_modify(|resets| *resets += 1);
            }
            Command::Show => return self.net.json(),
        }
        "ok".to_owned()
    }

    fn change(&self, ways: Ways, change: impl Fn(&mut Line)) {
        let now = self.net.alarm.now();
        let [there, back] = &self.net.ways;
        if ways != Ways::Back {
            there.change(now, &change);
        }
        if ways != Ways::There {
            back.change(now, &change);
        }
    }
}

impl Drop for SlowNet {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.net.alarm.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            thread.join().ok();
        }
    }
}

impl Wires {
    fn json(&self) -> String {
        let [there, back] = &self.ways;
        serde_json::json!({
            "connections": self.connections.load(Ordering::Relaxed),
            "connections_total": self.connections_total.load(Ordering::Relaxed),
            "resets": *self.resets.borrow(),
            "refuses": *self.refuses.borrow(),
            "bytes_there": there.bytes.load(Ordering::Relaxed),
            "bytes_back": back.bytes.load(Ordering::Relaxed),
            "there": there.json(),
            "back": back.json(),
        })
        .to_string()
    }
}

impl Way {
    fn change(&self, now: Duration, change: impl Fn(&mut Line)) {
        let before = self.line.borrow().bits_per_s;
        self.line.send_modify(&change);
        if self.line.borrow().bits_per_s != before {
            self.shaper().restart(now);
        }
    }

    fn shaper(&self) -> MutexGuard<'_, Shaper> {
        self.shaper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn json(&self) -> serde_json::Value {
        let Line { delay, bits_per_s, cut, stalled } = *self.line.borrow();
        serde_json::json!({
            "delay_us": u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
            "bits_per_s": bits_per_s,
            "cut": cut,
            "stalled": stalled,
            "held_bytes": self.held_bytes.load(Ordering::Relaxed),
        })
    }
}

async fn accept(net: Arc<Wires>, listener: TcpListener) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(serve(Arc::clone(&net), client));
    }
}

async fn serve(net: Arc<Wires>, client: TcpStream) {
    let mut resets = net.resets.subscribe();
    resets.mark_unchanged();
    if *net.refuses.borrow() {
        client.set_zero_linger().ok();
        return;
    }
    net.connections.fetch_add(1, Ordering::Relaxed);
    net.connections_total.fetch_add(1, Ordering::Relaxed);
    tokio::select! {
        biased;
        _ = resets.changed() => {
            client.set_zero_linger().ok();
        }
        target = connect(&net) => {
            if let Ok(target) = target {
                line::join(&net, client, target, &mut resets).await;
            }
        }
    }
    net.connections.fetch_sub(1, Ordering::Relaxed);
}

/// Connects to the target, once both ways are open.
async fn connect(net: &Wires) -> std::io::Result<TcpStream> {
    for way in &net.ways {
        // Only dropping the sender is an error, and it is in `net`.
        way.line.subscribe().wait_for(|line| !line.cut).await.ok();
    }
    let target = TcpStream::connect(&net.target).await?;
    target.set_nodelay(true)?;
    set_socket_recv_buffer_size(&target, SOCKET_BYTES)?;
    Ok(target)
}
