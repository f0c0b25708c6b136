//! Takes clients of an instance of a group wherever the active instance is.
//!
//! On this side ([`Reception::serve`]) a client that came in is relayed to the active instance
//! ([`towline_link::Relay`]). On the other side ([`Reception::relayed`]) the stream is served as if
//! the client had come to the same listener there. When this instance becomes active itself,
//! clients that wait or come are served here; nothing is bound anew. A client that no instance
//! serves is informed ([`Here::turn_away`]), and can try another address.
//!
//! Not here: which instance is active; redirecting clients that ask for it (the active does, see
//! `group::elsewhere`).
//!
//! Invariant: a client has its slot (`Admission`) as long as it waits or is relayed.

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use towline_admin::catalogue::{RELAY_ENDED, RELAY_REFUSED};
use towline_amqp::frame::{FrameKind, encode};
use towline_amqp::types::{Close, Error, Performative, condition};
use towline_link::{
    LOCAL_LISTENER, LinkStream, Links, Peer, Relay, Route, StreamPurpose, Throttle, Where,
};
use towline_logging::log;

use super::Admission;
use super::listener::{
    AcceptedClient, Acceptor, ClientSocket, ListenerKind, Listening, admit, called,
};

/// What serves clients on this instance while it is active.
pub(crate) trait Here: Send + Sync + 'static {
    /// Serves a client to its end, elsewhere; returns when it has been handed over.
    fn serve(&self, client: AcceptedClient) -> impl Future<Output = ()> + Send;

    /// Closes a client after its login, with the reason why no instance serves it here; the same.
    fn turn_away(&self, client: AcceptedClient) -> impl Future<Output = ()> + Send;

    /// Whether this group serves no client, on no instance: another one does, in another region.
    fn serves_nobody(&self) -> bool;

    /// Whether the group has a leader, so that waiting makes sense although it does not serve yet.
    fn is_hopeful(&self) -> bool;
}

/// Takes clients wherever the active instance is.
pub(crate) struct Reception<H> {
    relay: Relay,
    here: Arc<H>,
    admission: Arc<Admission>,
    /// Of clients that were let go.
    told: Throttle,
}

impl<H: Here> Reception<H> {
    /// `active` says at any time where the active instance is; `here` serves when it is this one.
    pub(crate) fn new(
        links: Arc<Links>,
        active: watch::Receiver<Where>,
        here: Arc<H>,
        admission: Arc<Admission>,
    ) -> Arc<Reception<H>> {
        let relay = Relay::new(links, active);
        Arc::new(Reception { relay, here, admission, told: Throttle::default() })
    }

    /// Accepts on the listener number `listener` of the configuration (`None`: the local socket)
    /// until the returned future is dropped. Clients that were accepted before stay.
    pub(crate) async fn serve(self: Arc<Self>, listener: Option<u16>, listening: Listening) {
        let Some(mut acceptor) = Acceptor::new(listening) else { return };
        loop {
            let mut client = acceptor.next(&self.admission).await;
            if self.relay.active() == Where::Here {
                self.here.serve(client).await;
                continue;
            }
            if self.here.serves_nobody() {
                // It logs in here, and has the reason at once.
                self.here.turn_away(client).await;
                continue;
            }
            // It does not log in here: the active watches that, and counts it there.
            client.place.passed_on();
            let bring = Arc::clone(&self).bring(listener.unwrap_or(LOCAL_LISTENER), client);
            self.relay.links().streams().spawn(bring);
        }
    }

    /// Serves a client that another instance relayed to this one. `kinds` are the listeners of the
    /// configuration in their order, `local` the local socket. Called from `Inbox::stream`.
    pub(crate) async fn relayed(
        &self,
        kinds: &[ListenerKind],
        local: &ListenerKind,
        from: Peer,
        (listener, address): (u16, Option<IpAddr>),
        stream: LinkStream,
    ) {
        let refuse = |why: &str| {
            log(&RELAY_REFUSED, &[&called(address), self.relay.links().name(from), why]);
        };
        let kind = match address {
            None => (listener == LOCAL_LISTENER).then_some(local),
            Some(_) => kinds.get(usize::from(listener)),
        };
        let Some(kind) = kind else {
            return refuse("there is no such listener here");
        };
        if address.is_some_and(|address| !address.is_loopback()) && kind.policy.only_loopback() {
            // It may trust every client, because only this machine can connect.
            return refuse("the listener here is on loopback, and the client is not");
        }
        let Some(place) = admit(&self.admission, address).await else { return };
        let socket = ClientSocket::Relayed(stream);
        self.here.serve(AcceptedClient { socket, address, kind: kind.clone(), place }).await;
    }

    /// Relays one client to the active instance, for as long as that is active.
    async fn bring(self: Arc<Self>, listener: u16, mut client: AcceptedClient) {
        let address = client.address;
        let purpose = StreamPurpose::Relay { listener, client: address };
        loop {
            let (peer, stream) = match self.relay.find(&purpose, || self.here.is_hopeful()).await {
                Ok(Route::Here) => return self.here.serve(client).await,
                Ok(Route::There(peer, stream)) => (peer, stream),
                Err(why) => {
                    self.tell(&called(address), &why);
                    return self.here.turn_away(client).await;
                }
            };
            let plain = client.kind.tls.is_none();
            let AcceptedClient { socket, address, kind, place } = client;
            let left = match socket {
                ClientSocket::Tcp(socket) => self.with_tcp(socket, (peer, stream), plain).await,
                ClientSocket::Local { socket, owner } => {
                    self.with_local((socket, owner), (peer, stream)).await
                }
                // A client is relayed once: an instance that is not active does not take the
                // stream.
                ClientSocket::Relayed(_) => return,
            };
            match left {
                Ok(Some(socket)) => client = AcceptedClient { socket, address, kind, place },
                // Clients and instances come and go: for developers only.
                left => {
                    let client = called(address);
                    return tracing::debug!(error = ?left.err(), client, "a relayed client is gone");
                }
            }
        }
    }

    async fn with_tcp(
        &self,
        socket: std::net::TcpStream,
        to: (Peer, LinkStream),
        plain: bool,
    ) -> io::Result<Option<ClientSocket>> {
        let mut socket = TcpStream::from_std(socket)?;
        socket.set_nodelay(true).ok();
        if self.stay(&mut socket, to, plain).await? {
            return Ok(Some(ClientSocket::Tcp(socket.into_std()?)));
        }
        towline_link::part(socket).await;
        Ok(None)
    }

    async fn with_local(
        &self,
        (socket, owner): (std::os::unix::net::UnixStream, bool),
        to: (Peer, LinkStream),
    ) -> io::Result<Option<ClientSocket>> {
        let mut socket = UnixStream::from_std(socket)?;
        if self.stay(&mut socket, to, true).await? {
            return Ok(Some(ClientSocket::Local { socket: socket.into_std()?, owner }));
        }
        towline_link::part(socket).await;
        Ok(None)
    }

    /// `plain`: the client's bytes are AMQP, not TLS.
    async fn stay(
        &self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        (peer, stream): (Peer, LinkStream),
        plain: bool,
    ) -> io::Result<bool> {
        let close =
            plain.then(|| close("the instance that served this connection is active no more"));
        self.relay.stay(client, peer, stream, close.as_deref()).await
    }

    /// A client was let go: logged once a minute for each reason, because all of them connect
    /// again.
    fn tell(&self, client: &str, why: &str) {
        if self.told.passes(why, std::time::Instant::now()).is_some() {
            log(&RELAY_ENDED, &[client, why]);
        }
    }
}

/// A close frame that says why a client is let go; libraries connect anew at this condition.
fn close(why: &str) -> BytesMut {
    let error = Some(Box::new(Error::new(condition::CONNECTION_FORCED, why)));
    let mut frame = BytesMut::new();
    encode(&mut frame, FrameKind::Amqp, 0, 0, |body| {
        Performative::Close(Close { error }).encode(body)
    });
    frame
}
