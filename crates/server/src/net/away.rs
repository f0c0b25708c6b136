//! A client that no instance serves here now: it logs in as everywhere, and is given the reason and
//! closed then.
//!
//! A client must have an answer to what it asks for, or it waits until it loses patience; and
//! libraries that know other addresses try them at a close with `amqp:connection:forced`, not at a
//! failed login. So the login is a real one, with the listener's mechanisms and users, and the
//! close comes after it.
//!
//! Not here: which clients are turned away (`link::relay`). Invariants: a client has the time of a
//! login, and no longer; nothing that it sends reaches an instance.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use towline_node::{Front, FrontOptions};

use super::parting::part;
use towline_access::Gate;
use towline_process::Clock;

/// Bytes that a client may send before it has logged in: a few frames of SASL and an open frame.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// Characters of a reason: a close frame must fit into 512 bytes, the least that a client may take
/// (AMQP 2.7.1, MIN-MAX-FRAME-SIZE).
const WHY_CHARACTERS_MAX: usize = 300;

/// Why no client is served here, asked anew for each client.
pub(crate) struct Away {
    pub(crate) clock: Clock,
    pub(crate) why: Box<dyn Fn() -> String + Send + Sync>,
}

impl Away {
    /// Talks to one client until it has the reason, or its time is over.
    pub(super) async fn tell(
        &self,
        mut socket: impl AsyncRead + AsyncWrite + Unpin,
        (options, gate): (FrontOptions, Arc<Gate>),
        longest: Duration,
    ) {
        let why: String = (self.why)().chars().take(WHY_CHARACTERS_MAX).collect();
        let front = Front::turning_away(options, &why, self.clock.now());
        let told = tokio::time::timeout(longest, self.converse(&mut socket, front, &gate)).await;
        match told {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a client went before it was turned away"),
            Err(_) => return,
        }
        part(socket).await;
    }

    async fn converse(
        &self,
        socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
        mut front: Front,
        gate: &Gate,
    ) -> io::Result<()> {
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
                if !front.is_logged_in() {
                    gate.refused();
                }
                return Ok(());
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

async fn write(
    socket: &mut (impl AsyncWrite + Unpin),
    pieces: &mut VecDeque<Bytes>,
) -> io::Result<()> {
    for piece in pieces.drain(..) {
        socket.write_all(&piece).await?;
    }
    socket.flush().await
}
