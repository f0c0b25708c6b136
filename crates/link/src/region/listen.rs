//! What instances of the other region dial: after TLS, hello and answer come frames, or a stream
//! for a copy, which goes to the inbox.
//!
//! Not here: TLS, and how many handshakes may be under way (`handshakes`). Invariants: nothing
//! reaches the inbox before certificate and hello name the same instance of the other group; a
//! connection for frames is opened only when the side that dialled has taken the answer.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::pki_types::UnixTime;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::server::TlsStream;
use towline_tls::{in_date, reason};

use super::RegionShared;
use super::connection::{self, NewLink, serve};
use super::hello::{self, RegionGreeting, RegionHello, RegionMatter, RegionSections};
use crate::handshakes::{HandshakeSlot, LinkListener, bounded, part_within, refuse};
use crate::identity::TlsIdentity;
use crate::names::{self, own_certificate};
use crate::socket::{bound_unsent, tune};
use crate::stream::LinkStream;

/// Why an incoming connection ends when another one comes.
const NEWER: &str = "a newer connection took its turn";

impl LinkListener for RegionShared {
    fn identity(&self) -> Arc<TlsIdentity> {
        self.identity.in_force()
    }

    fn streams(&self) -> &Handle {
        &self.streams
    }

    fn tune(&self, socket: &TcpStream) -> io::Result<()> {
        tune(socket, None)
    }

    fn refused(&self, from: IpAddr, why: &str) {
        self.log_refused(&from.to_string(), why);
    }

    async fn greeted(self: Arc<Self>, stream: TlsStream<TcpStream>, slot: HandshakeSlot) {
        greet(self, stream, slot).await;
    }
}

/// Hears what the other end says of itself, answers, and takes the connection or refuses it.
async fn greet(shared: Arc<RegionShared>, mut stream: TlsStream<TcpStream>, slot: HandshakeSlot) {
    let heard = match bounded(&slot, hello::hear(&mut stream, false)).await {
        Ok(heard) => heard,
        Err(error) => return refuse(&*shared, &slot, &reason(&error)),
    };
    let matter = heard.matter.clone();
    let judged = judge(&shared, &stream, heard).and_then(|hello| {
        let answer = answer(&shared, RegionMatter::Frames, shared.inbox.hello())?;
        Ok((hello, answer))
    });
    let said = match &judged {
        Ok((_, answer)) => bounded(&slot, hello::say(&mut stream, answer)).await,
        Err(why) => match answer(&shared, RegionMatter::Refused(why.clone()), Vec::new()) {
            Ok(refusal) => bounded(&slot, hello::say(&mut stream, &refusal)).await,
            Err(why) => unreachable!("a refusal is short: {why}"),
        },
    };
    match (judged, said) {
        (Ok((hello, _)), Ok(())) => match matter {
            RegionMatter::Frames => frames(shared, stream, slot, hello).await,
            RegionMatter::Copy => shared.inbox.stream(&hello, LinkStream::new(stream)),
            // Only answers carry it.
            RegionMatter::Refused(_) => {}
        },
        (Ok(_), Err(error)) => refuse(&*shared, &slot, &reason(&error)),
        (Err(why), _) => {
            refuse(&*shared, &slot, &why);
            part_within(&slot, stream).await;
        }
    }
}

/// The bytes of an answer.
///
/// # Errors
/// When our own sections are too long.
fn answer(
    shared: &RegionShared,
    matter: RegionMatter,
    sections: RegionSections,
) -> Result<Vec<u8>, String> {
    RegionGreeting::of(&shared.settings, matter, sections).encode()
}

/// What the other end says of itself, if that is an instance of the other group.
fn judge(
    shared: &RegionShared,
    stream: &TlsStream<TcpStream>,
    heard: RegionGreeting,
) -> Result<RegionHello, String> {
    let version = heard.version()?;
    heard.agrees(&shared.settings)?;
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = own_certificate(shown).ok_or("no certificate was shown")?;
    names::belongs(certificate, &shared.settings.other_names(&heard.instance))?;
    in_date(shown, UnixTime::now())?;
    // It lives, whatever becomes of this connection.
    shared.kicks.alive.notify_one();
    let for_frames = heard.matter == RegionMatter::Frames;
    let hello = heard.into_hello(version);
    if for_frames {
        shared.inbox.greets(true, &hello)?;
    } else {
        shared.inbox.admits(&hello)?;
    }
    Ok(hello)
}

/// Serves a connection for frames once the other end has taken the answer, until a newer one comes.
async fn frames(
    shared: Arc<RegionShared>,
    mut stream: TlsStream<TcpStream>,
    slot: HandshakeSlot,
    hello: RegionHello,
) {
    let mut input = BytesMut::new();
    if let Err(error) = bounded(&slot, connection::confirmed(&mut stream, &mut input)).await {
        return refuse(&*shared, &slot, &reason(&error));
    }
    if let Err(error) = bound_unsent(stream.get_ref().0) {
        return refuse(&*shared, &slot, &error.to_string());
    }
    let address = Arc::from(slot.address().to_string());
    drop(slot);
    let turn = shared.incoming.take().await;
    let new = NewLink { stream: stream.into(), input, incoming: true, address, hello };
    serve(&shared, new, async {
        turn.newer().await;
        NEWER
    })
    .await;
}
