//! A stream to a peer: one TLS connection of its own, for a relayed client or a copy.
//!
//! Not here: what goes over it. Dropping it ends the connection.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Bytes both ways, in order, encrypted.
#[derive(Debug)]
pub struct LinkStream(Bytes);

#[derive(Debug)]
enum Bytes {
    /// In a box: it is more than a kilobyte, and is handed around.
    Tls(Box<TlsStream<TcpStream>>),
    /// In the memory of a simulation.
    #[cfg(feature = "simulated")]
    Piped(tokio::io::DuplexStream),
}

impl LinkStream {
    pub(super) fn new(tls: impl Into<TlsStream<TcpStream>>) -> LinkStream {
        LinkStream(Bytes::Tls(Box::new(tls.into())))
    }

    /// A stream in the memory of a simulation.
    #[cfg(feature = "simulated")]
    #[must_use]
    pub fn piped(pipe: tokio::io::DuplexStream) -> LinkStream {
        LinkStream(Bytes::Piped(pipe))
    }

    #[cfg(test)]
    fn tls(&self) -> Option<&TlsStream<TcpStream>> {
        match &self.0 {
            Bytes::Tls(tls) => Some(tls),
            #[cfg(feature = "simulated")]
            Bytes::Piped(_) => None,
        }
    }

    /// Whether a ticket stood for the certificates.
    #[cfg(test)]
    pub(super) fn is_resumed(&self) -> bool {
        let kind = self.tls().and_then(|tls| tls.get_ref().1.handshake_kind());
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    fn bytes(&mut self) -> Pin<&mut dyn AsyncReadWrite> {
        match &mut self.0 {
            Bytes::Tls(tls) => Pin::new(tls),
            #[cfg(feature = "simulated")]
            Bytes::Piped(pipe) => Pin::new(pipe),
        }
    }

    /// Moves the stream to the runtime in which this is called: from now on that one watches its
    /// socket. TLS goes on where it was.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn settle(&mut self) -> io::Result<()> {
        #[cfg_attr(
            not(feature = "simulated"),
            expect(irrefutable_let_patterns, reason = "one kind")
        )]
        let Bytes::Tls(tls) = &mut self.0 else { return Ok(()) };
        let (socket, _) = tls.get_mut();
        // A second descriptor of the same socket: the first one goes away with the old watch.
        let socket_again = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?);
        *socket = TcpStream::from_std(socket_again)?;
        Ok(())
    }
}

trait AsyncReadWrite: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncReadWrite for S {}

impl AsyncRead for LinkStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.bytes().poll_read(context, buffer)
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.bytes().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bytes().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes().poll_shutdown(context)
    }
}
