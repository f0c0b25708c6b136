//! Two regions over loopback, with real TLS: what tests in `tests/` stand on.
//!
//! No test sleeps: it waits for what an inbox received, with a deadline that is far beyond what
//! a loaded machine needs.

mod dialling;
mod frames;
mod hostile;
mod trust;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::hello::{self, RegionGreeting, RegionMatter};
use super::{RegionLinks, RegionSettings, RetryPhase};
use crate::frame::{self, END, Encoder, Frame, FrameBody, PING, PONG, START};
use crate::identity::{IdentityFiles, TlsIdentity};
use crate::testing::region::{EAST, RegionBench, RegionEvent, WEST};
use crate::testing::{Authority, FORGED, LONG, run};

impl RegionBench {
    /// A hello as an instance says it.
    fn greeting(&self, group: usize, instance: usize) -> RegionGreeting {
        RegionGreeting::of(&self.settings(group, instance), RegionMatter::Frames, Vec::new())
    }

    /// TLS to an instance, with the papers of another one, and no word said.
    async fn shake_hands(
        &self,
        files: &IdentityFiles,
        to: (usize, usize),
    ) -> io::Result<TlsStream<TcpStream>> {
        let identity = TlsIdentity::read(files).unwrap();
        let socket = TcpStream::connect(&*self.addresses[to.0][to.1]).await?;
        let name = ServerName::try_from("towline.invalid").unwrap();
        TlsConnector::from(Arc::clone(&identity.client_frames)).connect(name, socket).await
    }

    /// A connection for frames, by hand, from an instance, on which the answer is not taken yet.
    async fn unconfirmed(&self, from: (usize, usize), to: (usize, usize)) -> TlsStream<TcpStream> {
        let mut stream = self.shake_hands(&self.files(from.0, from.1), to).await.unwrap();
        hello::say(&mut stream, &self.greeting(from.0, from.1).encode().unwrap()).await.unwrap();
        let answer = hello::hear(&mut stream, true).await.unwrap();
        assert_eq!(answer.matter, RegionMatter::Frames);
        stream
    }

    /// The same, taken.
    async fn by_hand(&self, from: (usize, usize), to: (usize, usize)) -> TlsStream<TcpStream> {
        let mut stream = self.unconfirmed(from, to).await;
        stream.write_all(&framed(START, &[])).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }
}

/// A frame as it is sent.
fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut pieces: Vec<Bytes> = Vec::new();
    Encoder::new(0).encode(kind, FrameBody::from(body.to_vec()), &mut pieces);
    pieces.concat()
}

/// The next frame of a connection by hand; `None` at its end.
async fn next(stream: &mut TlsStream<TcpStream>, input: &mut BytesMut) -> Option<Frame> {
    loop {
        if let Some(frame) = frame::decode(input).unwrap() {
            return Some(frame);
        }
        if !matches!(stream.read_buf(input).await, Ok(1..)) {
            return None;
        }
    }
}

/// What the last frame of a connection by hand says, pings aside.
async fn last_words(stream: &mut TlsStream<TcpStream>) -> String {
    let mut input = BytesMut::new();
    while let Some(frame) = next(stream, &mut input).await {
        if frame.kind == END {
            return String::from_utf8(frame.body.to_vec()).unwrap();
        }
        assert!(frame.kind == PING || frame.kind == PONG, "a frame of kind {}", frame.kind);
    }
    String::new()
}

/// Looks until it gives something.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::yield_now();
    }
}

/// Waits until the dialling side has a reason why there is no connection.
fn trouble(links: &RegionLinks) -> String {
    until("a reason", || Some(links.state().trouble).filter(|trouble| !trouble.is_empty()))
}
