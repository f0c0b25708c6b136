//! A slow or broken network between two processes: a TCP proxy that delays, narrows, cuts.
//!
//! Each connection that comes in is joined to one to the target. What it reads is written so much
//! later (to some tens of microseconds: tokio's timer would be too coarse), at most so many bytes a
//! second, or not at all while that way is cut: then bytes and ends wait, as they would wait for
//! TCP to send them again, and go on when it is healed. A reset ends all connections at once.
//!
//! Not here: loss and reordering, which TCP hides; delays of the handshake of TCP itself; what is
//! in the bytes. A cut is seen by programs that watch for silence, not by the system's own timers,
//! because the proxy takes what is sent.

mod alarm;
pub mod command;
mod line;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::Try;
use alarm::Alarm;
use command::{Command, Ways};

/// How one way is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Added to each byte's way.
    pub delay: Duration,
    /// Bytes a second, of each connection; 0: no bound.
    pub bytes_per_s: u64,
    /// Nothing passes.
    pub cut: bool,
}

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
    ways: [watch::Sender<Line>; 2],
    /// Counts resets; connections that were there before a change end.
    resets: watch::Sender<u64>,
    /// New connections are reset at once.
    refuses: watch::Sender<bool>,
    alarm: Arc<Alarm>,
    connections: AtomicU64,
    bytes: [AtomicU64; 2],
}

impl SlowNet {
    /// Listens on `listen` (port 0 picks one) for connections to `target` (host and port).
    ///
    /// # Errors
    /// When the address is taken, or there is no thread.
    pub fn start(listen: SocketAddr, target: &str) -> Try<SlowNet> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let net = Arc::new(Wires {
            target: target.to_owned(),
            ways: [watch::Sender::default(), watch::Sender::default()],
            resets: watch::Sender::default(),
            refuses: watch::Sender::default(),
            alarm: Alarm::start()?,
            connections: AtomicU64::new(0),
            bytes: Default::default(),
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
            Command::Bandwidth(ways, bytes) => self.change(ways, |line| line.bytes_per_s = bytes),
            Command::Cut(ways) => self.change(ways, |line| line.cut = true),
            Command::Heal(ways) => {
                self.net.refuses.send_replace(false);
                self.change(ways, |line| line.cut = false);
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
        let [there, back] = &self.net.ways;
        if ways != Ways::Back {
            there.send_modify(&change);
        }
        if ways != Ways::There {
            back.send_modify(&change);
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
        let [there, back] = &self.bytes;
        serde_json::json!({
            "connections": self.connections.load(Ordering::Relaxed),
            "bytes_there": there.load(Ordering::Relaxed),
            "bytes_back": back.load(Ordering::Relaxed),
        })
        .to_string()
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
        way.subscribe().wait_for(|line| !line.cut).await.ok();
    }
    let target = TcpStream::connect(&net.target).await?;
    target.set_nodelay(true)?;
    Ok(target)
}
