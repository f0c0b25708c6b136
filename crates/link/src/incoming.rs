//! What peers dial: handshakes within bounds, then frames, which are read here, or a stream, which
//! goes to the inbox.
//!
//! Not here: TLS, and how many handshakes may be under way (`handshakes`).
//!
//! Invariants: nothing reaches the inbox before certificate and hello name the same other member of
//! the same group; of one peer one connection for frames is read at a time, the newest.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::UnixTime;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::frame::{self, Encoder, FrameBody, PING, PONG, START};
use super::handshakes::{HandshakeSlot, LinkListener, bounded, part_within, refuse};
use super::hello::{self, Greeting, Hello, Matter, StreamPurpose, WITH_STARTS};
use super::identity::TlsIdentity;
use super::known::{self, StartsReport};
use super::names::own_certificate;
use super::patience::{Patience, broken};
use super::reading::reserve_for_next_read;
use super::socket::tune;
use super::stream::LinkStream;
use super::{Peer, Shared, names};
use towline_tls::{in_date, reason};

impl LinkListener for Shared {
    fn identity(&self) -> Arc<TlsIdentity> {
        Shared::identity(self)
    }

    fn streams(&self) -> &Handle {
        &self.streams
    }

    fn tune(&self, socket: &TcpStream) -> io::Result<()> {
        tune(socket, Some(self.settings.heartbeat_timeout))
    }

    /// Logs it, but not each second: a refused peer dials again.
    fn refused(&self, from: IpAddr, why: &str) {
        self.log_refused(&from.to_string(), why);
    }

    async fn greeted(self: Arc<Self>, stream: TlsStream<TcpStream>, slot: HandshakeSlot) {
        greet(self, stream, slot).await;
    }
}

/// Hears what the peer says of itself, answers, and takes the connection or refuses it.
async fn greet(shared: Arc<Shared>, mut stream: TlsStream<TcpStream>, slot: HandshakeSlot) {
    let hello = match bounded(&slot, hello::hear(&mut stream, false)).await {
        Ok(hello) => hello,
        Err(error) => return refuse(&*shared, &slot, &reason(&error)),
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
    let said = bounded(&slot, hello::say(&mut stream, &answer)).await;
    match (judged, said) {
        (Ok((peer, greeting)), Ok(())) => {
            drop(slot);
            welcome(shared, peer, stream, hello.matter, greeting).await;
        }
        (Ok(_), Err(error)) => refuse(&*shared, &slot, &reason(&error)),
        (Err(why), _) => {
            refuse(&*shared, &slot, &why);
            part_within(&slot, stream).await;
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

/// Reads frames until the connection ends, or a newer one of the same peer comes.
async fn serve(shared: &Shared, peer: Peer, stream: TlsStream<TcpStream>, greeting: &Greeting) {
    let lane = shared.lane(peer);
    let turn = lane.incoming.take().await;
    lane.counters.connected_in(true);
    shared.inbox.opened(peer, true, greeting);
    lane.kick.notify_one();
    let why = tokio::select! {
        biased;
        () = turn.newer() => "it made a new one".to_owned(),
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
            lane.counters.received(frame.body.len(), frame.cost);
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
