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
pub struct LinkStream {
    /// In a box: it is more than a kilobyte, and is handed around.
    tls: Box<TlsStream<TcpStream>>,
}

impl LinkStream {
    pub(super) fn new(tls: impl Into<TlsStream<TcpStream>>) -> LinkStream {
        LinkStream { tls: Box::new(tls.into()) }
    }

    /// Whether a ticket stood for the certificates.
    #[cfg(test)]
    pub(super) fn is_resumed(&self) -> bool {
        let (_, connection) = self.tls.get_ref();
        connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Moves the stream to the runtime in which this is called: from now on that one watches its
    /// socket. TLS goes on where it was.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn settle(&mut self) -> io::Result<()> {
        let (socket, _) = self.tls.get_mut();
        // A second descriptor of the same socket: the first one goes away with the old watch.
        let socket_again = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?);
        *socket = TcpStream::from_std(socket_again)?;
        Ok(())
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(context, buffer)
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(context)
    }
}
