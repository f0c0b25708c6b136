//! Links over loopback, with real TLS: what tests in `tests/` stand on.
//!
//! No test sleeps: it waits for what an inbox received, with a deadline that is far beyond what
//! a loaded machine needs.

mod frames;
mod hostile;
mod trust;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::frame::{Encoder, FrameBody, START};
use towline_types::FormatLevels;

use super::hello::{self, Hello, Matter};
use super::identity::TlsIdentity;
use super::settings::LinkSettings;
use super::testing::{Authority, Bench, FORGED, LONG, NAMES, Observation, Recorder, run};
use super::{Links, Peer, Standing, StartsReport, StreamPurpose};

impl Bench {
    /// A hello as the member `from` says it.
    fn hello(&self, from: Peer, matter: Matter) -> Hello {
        let place = (Standing::default(), FormatLevels::default());
        Hello::of(&self.settings(from), place, StartsReport::default(), matter)
    }

    /// TLS to a member, with these settings and no word said.
    async fn shake_hands(
        &self,
        to: Peer,
        config: &Arc<ClientConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(&*self.members[to].address).await?;
        let name = ServerName::try_from("towline.invalid").unwrap();
        TlsConnector::from(Arc::clone(config)).connect(name, socket).await
    }

    /// A connection for frames, by hand, from the member `from`.
    async fn dial(&self, from: Peer, to: Peer) -> TlsStream<TcpStream> {
        let mut stream = self.dial_undeclared(from, to).await;
        stream.write_all(&framed(START, &[9; 16])).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// The same, on which no start was declared.
    async fn dial_undeclared(&self, from: Peer, to: Peer) -> TlsStream<TcpStream> {
        let identity = TlsIdentity::read(&self.files(NAMES[from])).unwrap();
        let mut stream = self.shake_hands(to, &identity.client_frames).await.unwrap();
        hello::say(&mut stream, &self.hello(from, Matter::Frames)).await.unwrap();
        let answer = hello::hear(&mut stream, true).await.unwrap();
        assert_eq!(answer.matter, Matter::Frames);
        stream
    }
}

/// A frame as it is sent.
fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut pieces = VecDeque::new();
    Encoder::new(0).encode(kind, FrameBody::from(body.to_vec()), &mut pieces);
    pieces.into_iter().flatten().collect()
}
