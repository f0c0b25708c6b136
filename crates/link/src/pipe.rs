//! Joins two streams: what comes from one goes to the other, both ways, until both ways have ended.
//!
//! The end of one way is passed on and the other way goes on for a while (half-close). An error
//! ends both. An idle pair owns no buffer: bytes are read into the thread's own, and only what the
//! other side did not take is kept, so a side that does not read stops the one that sends.
//!
//! Not here: the owners of the streams, what the bytes mean.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::sleep;

use super::boundary::Boundary;
use crate::scratch;

/// How long the second way may go on after the first has ended.
const HALF_CLOSED_MAX: Duration = Duration::from_secs(30);
/// Reads of one poll before others get their turn.
const ROUNDS_MAX: usize = 4;

/// One direction.
#[derive(Debug, Default)]
struct Way {
    /// Read, and not taken by the other side yet.
    pending: Bytes,
    unflushed: bool,
    read_all: bool,
    done: bool,
    bytes: u64,
    /// When something was written last.
    written_at: Option<Instant>,
    /// Where frames end in what was written, if it can be looked into.
    boundary: Option<Boundary>,
}

/// Two streams that are joined; what happened between them can be asked for when it is broken off.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// To the right, and to the left.
    ways: [Way; 2],
}

impl Pipe {
    /// With a look at the frames that go to the left: it is no TLS.
    pub(super) fn watching_frames() -> Pipe {
        let to_left = Way { boundary: Some(Boundary::default()), ..Way::default() };
        Pipe { ways: [Way::default(), to_left] }
    }

    /// Whether nothing was read from either side: another right side can replace it.
    pub(super) fn is_silent(&self) -> bool {
        self.ways.iter().all(|way| way.bytes == 0 && way.pending.is_empty() && !way.read_all)
    }

    /// Whether the left side can be given a frame of AMQP that does not come from the right one.
    pub(super) fn takes_a_frame(&self) -> bool {
        let [_, to_left] = &self.ways;
        to_left.pending.is_empty() && to_left.boundary.as_ref().is_some_and(Boundary::takes_a_frame)
    }

    /// When the left side was given something last.
    pub(super) fn given_at(&self) -> Option<Instant> {
        let [_, to_left] = &self.ways;
        to_left.written_at
    }

    /// Joins `left` and `right` until both ways have ended. The bytes that went to the right and to
    /// the left are returned. Dropped, it can be asked what has happened so far.
    ///
    /// # Errors
    /// When either side breaks, or the second way goes on for too long after the first has ended.
    pub(super) async fn join<L, R>(&mut self, left: &mut L, right: &mut R) -> io::Result<[u64; 2]>
    where
        L: AsyncRead + AsyncWrite + Unpin,
        R: AsyncRead + AsyncWrite + Unpin,
    {
        join(&mut self.ways, left, right).await
    }
}

async fn join<L, R>(ways: &mut [Way; 2], left: &mut L, right: &mut R) -> io::Result<[u64; 2]>
where
    L: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let mut limit = None;
    poll_fn(|context| {
        let [to_right, to_left] = &mut *ways;
        let there = to_right.poll(context, left, right)?;
        let back = to_left.poll(context, right, left)?;
        if there.is_ready() && back.is_ready() {
            return Poll::Ready(Ok([to_right.bytes, to_left.bytes]));
        }
        if there.is_ready() || back.is_ready() {
            let limit = limit.get_or_insert_with(|| Box::pin(sleep(HALF_CLOSED_MAX)));
            ready!(limit.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    })
    .await
}

impl Way {
    fn poll<F, T>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut F,
        to: &mut T,
    ) -> Poll<io::Result<()>>
    where
        F: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS_MAX {
            if !self.pending.is_empty() {
                let mut pending = std::mem::take(&mut self.pending);
                let written = self.poll_write(context, to, &mut pending);
                self.pending = pending;
                ready!(written)?;
            }
            if self.read_all {
                ready!(Pin::new(to).poll_shutdown(context))?;
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            match self.poll_read(context, from, to)? {
                Poll::Ready(()) => {}
                Poll::Pending => {
                    if self.unflushed {
                        ready!(Pin::new(to).poll_flush(context))?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, and writes of it what `to` takes at once.
    fn poll_read<F, T>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut F,
        to: &mut T,
    ) -> Poll<io::Result<()>>
    where
        F: AsyncRead + Unpin,
        T: AsyncWrite + Unpin,
    {
        let (read, input) = scratch::with(|buffer| {
            let read = pin!(from.read_buf(buffer)).poll(context);
            (read, buffer.split())
        });
        if ready!(read)? == 0 {
            self.read_all = true;
            return Poll::Ready(Ok(()));
        }
        let mut input = input.freeze();
        if let Poll::Ready(Err(error)) = self.poll_write(context, to, &mut input) {
            return Poll::Ready(Err(error));
        }
        // A copy of what is left: a slice would keep the thread's whole buffer.
        self.pending = Bytes::copy_from_slice(&input);
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &mut Bytes,
    ) -> Poll<io::Result<()>> {
        while !bytes.is_empty() {
            let written = ready!(Pin::new(&mut *to).poll_write(context, bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if let Some(boundary) = &mut self.boundary {
                boundary.passed(bytes.get(..written).unwrap_or_default());
            }
            self.written_at = Some(Instant::now());
            bytes.advance(written);
            self.bytes += written as u64;
            self.unflushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    fn run<F: Future<Output = ()>>(test: F) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap().block_on(test);
    }

    #[test]
    fn bytes_go_both_ways_and_the_end_of_one_way_is_passed_on() {
        run(async {
            let (mut client, mut left) = duplex(1_000);
            let (mut right, mut server) = duplex(1_000);
            let joined =
                tokio::spawn(async move { Pipe::default().join(&mut left, &mut right).await });
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut question = String::new();
            server.read_to_string(&mut question).await.unwrap();
            assert_eq!(question, "question");
            server.write_all(b"answer").await.unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "answer");
            assert_eq!(joined.await.unwrap().unwrap(), [8, 6]);
        });
    }

    #[test]
    fn much_goes_through_a_narrow_pipe_whole() {
        run(async {
            let (mut client, mut left) = duplex(1 << 20);
            let (mut right, mut server) = duplex(100);
            let joined =
                tokio::spawn(async move { Pipe::default().join(&mut left, &mut right).await });
            let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
            let expected = sent.clone();
            let writing = tokio::spawn(async move {
                client.write_all(&sent).await.unwrap();
                client
            });
            let mut read = vec![0; expected.len()];
            server.read_exact(&mut read).await.unwrap();
            assert!(read == expected, "the bytes changed on the way");
            drop((writing.await.unwrap(), server));
            joined.await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_side_that_does_not_read_stops_the_side_that_sends() {
        run(async {
            let (mut client, mut left) = duplex(100);
            let (mut right, server) = duplex(100);
            tokio::spawn(async move { Pipe::default().join(&mut left, &mut right).await });
            let sending = tokio::time::timeout(Duration::from_secs(5), async {
                for _ in 0..1_000_000 {
                    client.write_all(&[0; 1_000]).await.unwrap();
                }
            });
            assert!(sending.await.is_err(), "a gigabyte went nowhere");
            drop(server);
        });
    }

    #[test]
    fn a_half_closed_pair_ends_after_a_while() {
        run(async {
            let (mut client, mut left) = duplex(100);
            let (mut right, server) = duplex(100);
            client.shutdown().await.unwrap();
            let error = Pipe::default().join(&mut left, &mut right).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(server);
        });
    }
}
