//! One connection's socket: bytes between the kernel and the AMQP machine, never waiting.
//!
//! Reads go through one scratch buffer of the worker; only the piece of an unfinished frame is kept
//! with the connection. Writes are gathered: the machine's pieces go out as they are.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::{Buf, Bytes, BytesMut};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use towline_amqp::Connection;
use towline_types::Time;

use crate::tls::{Tls, TlsSettings, is_later};
use towline_amqp::Url;

/// What one read takes at most.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;
/// What one turn encodes at most before it is written.
const OUTPUT_BYTES: usize = 256 << 10;
/// Pieces of one gathering write.
const PIECES: usize = 256;

/// A worker's buffers for reading.
pub(crate) struct Scratch {
    raw: Box<[u8]>,
    /// What the machine reads from; payloads are slices of it, let go before the next read.
    stage: BytesMut,
}

impl Scratch {
    /// Buffers of [`SCRATCH_BYTES`].
    pub(crate) fn new() -> Scratch {
        Scratch { raw: vec![0; SCRATCH_BYTES].into(), stage: BytesMut::new() }
    }
}

/// See the module.
pub(crate) struct Wire {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
    /// The AMQP machine of this connection.
    pub(crate) machine: Connection,
    /// The beginning of a frame.
    partial: BytesMut,
    out: VecDeque<Bytes>,
    /// Whether the worker waits for the socket to be writable.
    pub(crate) waits_to_write: bool,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Bytes, and perhaps more behind them.
    More,
    /// All there was.
    All,
    /// The peer has closed its side.
    End,
}

impl Wire {
    /// Starts connecting.
    ///
    /// # Errors
    /// What the resolver or the kernel says.
    pub(crate) fn dial(
        url: &Url,
        tls: Option<&TlsSettings>,
        machine: Connection,
    ) -> io::Result<Wire> {
        let address = (url.host.as_str(), url.port)
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{url}: no address")))?;
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let tls = tls.map(|settings| Tls::new(settings, &url.host).map(Box::new)).transpose()?;
        Ok(Wire {
            stream: TcpStream::from(socket),
            tls,
            machine,
            partial: BytesMut::new(),
            out: VecDeque::new(),
            waits_to_write: false,
        })
    }

    /// For epoll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What went wrong with the socket, the refusal of a connect above all.
    pub(crate) fn socket_error(&self) -> Option<io::Error> {
        self.stream.take_error().ok().flatten()
    }

    /// Reads once, and lets the machine make events of it.
    ///
    /// # Errors
    /// What the kernel or TLS says.
    pub(crate) fn read(&mut self, scratch: &mut Scratch, now: Time) -> io::Result<ReadOutcome> {
        let count = match self.stream.read(&mut scratch.raw) {
            Ok(0) => return Ok(ReadOutcome::End),
            Ok(count) => count,
            Err(error) if is_later(&error) => return Ok(ReadOutcome::All),
            Err(error) => return Err(error),
        };
        let stage = &mut scratch.stage;
        assert!(stage.is_empty(), "the stage is left empty");
        stage.reserve(SCRATCH_BYTES);
        stage.extend_from_slice(&self.partial);
        self.partial.clear();
        let raw = scratch.raw.get(..count).unwrap_or_default();
        match &mut self.tls {
            None => stage.extend_from_slice(raw),
            Some(tls) => tls.decrypt(raw, stage)?,
        }
        self.machine.receive(now, stage);
        self.partial.extend_from_slice(stage);
        stage.clear();
        Ok(if count == scratch.raw.len() { ReadOutcome::More } else { ReadOutcome::All })
    }

    /// Writes what the machine has. True when nothing is left.
    ///
    /// # Errors
    /// What the kernel or TLS says.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        loop {
            if self.out.is_empty() {
                if !self.machine.has_output() {
                    return self.flush_tls();
                }
                self.machine.take_output(&mut self.out, OUTPUT_BYTES);
            }
            if let Some(tls) = &mut self.tls {
                tls.encrypt(&mut self.out)?;
                if !tls.write(&mut self.stream)? {
                    return Ok(false);
                }
            } else if !self.write_pieces()? {
                return Ok(false);
            }
        }
    }

    fn flush_tls(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            Some(tls) => tls.write(&mut self.stream),
            None => Ok(true),
        }
    }

    /// One gathering write; false when the kernel takes no more.
    fn write_pieces(&mut self) -> io::Result<bool> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.out) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        let slices = slices.get(..count).unwrap_or_default();
        let mut written = match self.stream.write_vectored(slices) {
            Ok(written) => written,
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        while let Some(piece) = self.out.front_mut() {
            if written < piece.len() {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            self.out.pop_front();
        }
        Ok(true)
    }
}
