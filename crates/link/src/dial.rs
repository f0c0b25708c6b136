//! From an address to a connection to the member that it should reach: TCP, TLS,
//! hello.
//!
//! Not here: when it is tried again (`outgoing`), what a stream is for (`relay`).

use std::io;
use std::sync::Arc;

use rustls::pki_types::{ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use towline_tls::in_date;

use super::hello::{self, Greeting, Hello, Matter, StreamPurpose};
use super::names::own_certificate;
use super::socket::{HANDSHAKE_MAX, bound_unsent, tune};
use super::stream::LinkStream;
use super::text::{in_words, printable};
use super::{Peer, Shared, names};

/// A connection on which TLS and hello are done.
pub(super) struct DialledLink {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) greeting: Greeting,
}

/// A connection for frames to `peer`.
pub(super) async fn frames(shared: &Shared, peer: Peer) -> io::Result<DialledLink> {
    let connected = connect(shared, peer, Matter::Frames).await?;
    bound_unsent(connected.stream.get_ref().0)?;
    Ok(connected)
}

/// A stream to `peer`.
pub(super) async fn stream(
    shared: &Shared,
    peer: Peer,
    purpose: &StreamPurpose,
) -> io::Result<LinkStream> {
    let connected = connect(shared, peer, Matter::Stream(purpose.clone())).await?;
    Ok(LinkStream::new(connected.stream))
}

async fn connect(shared: &Shared, peer: Peer, matter: Matter) -> io::Result<DialledLink> {
    let settings = &shared.settings;
    if peer == settings.this || peer >= settings.members.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no such peer"));
    }
    let late = |what: &str| io::Error::new(io::ErrorKind::TimedOut, what.to_owned());
    let longest = settings.heartbeat_timeout.min(HANDSHAKE_MAX);
    let socket = timeout(longest, TcpStream::connect(settings.address(peer)));
    let socket = socket.await.map_err(|_| late("no answer"))??;
    tune(&socket, Some(settings.heartbeat_timeout))?;
    let greeted = timeout(HANDSHAKE_MAX, greet(shared, peer, socket, matter));
    greeted.await.map_err(|_| late("no answer to the handshake"))?
}

async fn greet(
    shared: &Shared,
    peer: Peer,
    socket: TcpStream,
    matter: Matter,
) -> io::Result<DialledLink> {
    let identity = shared.identity();
    let config = match matter {
        Matter::Frames => &identity.client_frames,
        Matter::Stream(_) | Matter::Refused(_) => &identity.client_stream,
    };
    // Not sent: the certificate is checked for the member's name below. Tickets are kept by it.
    let name = format!("member-{peer}.towline.invalid");
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::clone(config));
    let mut stream = connector.connect(name, socket).await.map_err(in_words)?;
    let settings = &shared.settings;
    let only_asks = matches!(matter, Matter::Stream(StreamPurpose::Status | StreamPurpose::Batch));
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = own_certificate(shown);
    let certificate = certificate.ok_or_else(|| refused("it showed no certificate".into()))?;
    names::belongs(certificate, &settings.names(peer)).map_err(refused)?;
    in_date(shown, UnixTime::now()).map_err(refused)?;
    let for_frames = matter == Matter::Frames;
    let place = (shared.inbox.standing(), shared.inbox.levels());
    let hello = Hello::of(settings, place, shared.inbox.known(peer), matter);
    // When it fails the reason can still be read, and is a better one.
    hello::say(&mut stream, &hello).await.ok();
    let answer = hello::hear(&mut stream, true).await.map_err(in_words)?;
    if let Matter::Refused(why) = &answer.matter {
        return Err(refused(format!("it refused: {}", printable(why))));
    }
    let version = answer.version().map_err(refused)?;
    let place = [&answer.queue_manager, &answer.group, &answer.instance];
    let expected = [&*settings.queue_manager, &*settings.group, settings.name(peer)];
    if place.iter().zip(expected).any(|(said, expected)| *said != expected) {
        let [queue_manager, group, instance] = place.map(|text| text.escape_default());
        return Err(refused(format!(
            "it is instance '{instance}' of group '{group}' of '{queue_manager}'"
        )));
    }
    let differs = match only_asks {
        true => String::new(),
        false => answer.agrees(settings, shared.inbox.levels()).map_err(refused)?,
    };
    let greeting = answer.greeting(version, &differs);
    if for_frames {
        shared.inbox.greets(peer, &greeting).map_err(refused)?;
    }
    Ok(DialledLink { stream, greeting })
}
