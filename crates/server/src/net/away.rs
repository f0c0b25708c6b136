//! A client that no instance serves here now: it logs in as everywhere, and is given the reason and
//! closed then; or the address where it is served, in a close with `amqp:connection:redirect`.
//!
//! A client must have an answer to what it asks for, or it waits until it loses patience; and
//! libraries that know other addresses try them at a close with `amqp:connection:forced`, not at a
//! failed login. So the login is a real one, with the listener's mechanisms and users, and the
//! close comes after it.
//!
//! Not here: which clients are turned away (`reception`, `link::relay`). Invariants: a client has
//! the time of a login, and no longer, and less if others wait for its slot; nothing that it sends
//! reaches an instance.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use towline_node::{Front, FrontOptions, TurnedAway};

use super::admission::ConnectionSlot;
use super::parting::part;
use towline_access::Gate;
use towline_process::Clock;

/// Bytes that a client may send before it has logged in: a few frames of SASL and an open frame.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// Characters of a reason: a close frame must fit into 512 bytes, the least that a client may take
/// (AMQP 2.7.1, MIN-MAX-FRAME-SIZE).
const WHY_CHARACTERS_MAX: usize = 300;

/// Why no client is served here.
pub(crate) struct Away {
    pub(crate) clock: Clock,
    /// Asked anew for each client, with the number of the listener to which it came (`None`: the
    /// local socket).
    pub(crate) why: Box<dyn Fn(Option<usize>) -> TurnedAway + Send + Sync>,
}

impl Away {
    /// Talks to one client of a listener (`None`: the local socket) until it has the reason, or its
    /// time is over.
    pub(super) async fn tell(
        &self,
        mut socket: impl AsyncRead + AsyncWrite + Unpin,
        (options, gate): (FrontOptions, Arc<Gate>),
        (listener, longest): (Option<usize>, Duration),
        mut place: ConnectionSlot,
    ) {
        let why = shortened((self.why)(listener));
        let front = Front::turning_away(options, &why, self.clock.now());
        let told = {
            let mut converse = pin!(self.converse(&mut socket, front, &gate));
            let conversing = std::future::poll_fn(|context| {
                if place.poll_gives_way(context) {
                    return Poll::Ready(Err(io::Error::other("others waited for its slot")));
                }
                if gate.was_tried() {
                    place.spoke();
                }
                converse.as_mut().poll(context)
            });
            tokio::time::timeout(longest, conversing).await
        };
        match told {
            Ok(Ok(true)) => place.logged_in(),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                return tracing::debug!(%error, "a client went before it was turned away");
            }
            Err(_) => return,
        }
        part(socket).await;
    }

    /// True: it has logged in, and has the reason.
    async fn converse(
        &self,
        socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
        mut front: Front,
        gate: &Gate,
    ) -> io::Result<bool> {
        let (mut input, mut pieces, mut requests) = (BytesMut::new(), VecDeque::new(), Vec::new());
        loop {
            let wait = gate.take_wait();
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if let Some(comparison) = gate.take_comparison() {
                let code = comparison.answer().await;
                front.answer_login(self.clock.now(), code, &mut input, &mut requests);
                continue;
            }
            front.take_output(&mut pieces, usize::MAX);
            write(socket, &mut pieces).await?;
            // The close is on its way: what the client says to it need not be heard.
            if front.is_finished() || front.is_logged_in() {
                match front.is_logged_in() {
                    true => gate.welcomed(),
                    false => gate.refused(),
                }
                return Ok(front.is_logged_in());
            }
            if input.len() >= INPUT_BYTES_MAX {
                return Err(io::Error::other("it sent too much before its login"));
            }
            if socket.read_buf(&mut input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            front.receive(self.clock.now(), &mut input, &mut requests);
            // Requests that came together with its open frame reach no instance.
            requests.clear();
        }
    }
}

fn shortened(why: TurnedAway) -> TurnedAway {
    let cut = |why: String| why.chars().take(WHY_CHARACTERS_MAX).collect();
    match why {
        TurnedAway::To { elsewhere, why } => TurnedAway::To { elsewhere, why: cut(why) },
        TurnedAway::Forced { why } => TurnedAway::Forced { why: cut(why) },
    }
}

async fn write(
    socket: &mut (impl AsyncWrite + Unpin),
    pieces: &mut VecDeque<Bytes>,
) -> io::Result<()> {
    for piece in pieces.drain(..) {
        socket.write_all(&piece).await?;
    }
    socket.flush().await
}
