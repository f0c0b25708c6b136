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
        let answer = answer(&shared, RegionMatter::Frames, shared.inbox.hello());
        answer.map(|answer| (hello, answer)).map_err(NotTaken::unsaid)
    });
    let said = match &judged {
        Ok((_, answer)) => bounded(&slot, hello::say(&mut stream, answer)).await,
        Err(NotTaken { why, is_of_inbox }) => {
            let sections = if *is_of_inbox { shared.inbox.hello() } else { Vec::new() };
            let refusal = |with| answer(&shared, RegionMatter::Refused(why.clone()), with);
            match refusal(sections).or_else(|_| refusal(Vec::new())) {
                Ok(refusal) => bounded(&slot, hello::say(&mut stream, &refusal)).await,
                Err(why) => unreachable!("a refusal is short: {why}"),
            }
        }
    };
    match (judged, said) {
        (Ok((hello, _)), Ok(())) => match matter {
            RegionMatter::Frames => frames(shared, stream, slot, hello).await,
            RegionMatter::Copy => shared.inbox.stream(&hello, LinkStream::new(stream)),
            // Only answers carry it.
            RegionMatter::Refused(_) => {}
        },
        (Ok(_), Err(error)) => refuse(&*shared, &slot, &reason(&error)),
        (Err(NotTaken { why, .. }), _) => {
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

/// Why a connection is not taken.
struct NotTaken {
    why: String,
    /// The other end is an instance of the other group, and the inbox does not take it: it hears
    /// what this side has, so that it knows why.
    is_of_inbox: bool,
}

impl NotTaken {
    fn unsaid(why: String) -> NotTaken {
        NotTaken { why, is_of_inbox: false }
    }
}

/// What the other end says of itself, if that is an instance of the other group.
fn judge(
    shared: &RegionShared,
    stream: &TlsStream<TcpStream>,
    heard: RegionGreeting,
) -> Result<RegionHello, NotTaken> {
    let for_frames = heard.matter == RegionMatter::Frames;
    let hello = known(shared, stream, heard).map_err(NotTaken::unsaid)?;
    let taken = match for_frames {
        true => shared.inbox.greets(true, &hello),
        false => shared.inbox.admits(&hello),
    };
    taken.map(|()| hello).map_err(|why| NotTaken { why, is_of_inbox: for_frames })
}

fn known(
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
    Ok(heard.into_hello(version))
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
