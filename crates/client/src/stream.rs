//! A socket with time-outs: Unix, TCP, or TLS over TCP.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::Options;
use crate::place::Place;

/// A connected socket.
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects.
    ///
    /// # Errors
    /// Why not, for people.
    pub(crate) fn connect(place: &Place, options: &Options) -> Result<Stream, String> {
        let stream = match place {
            Place::Local(path) => {
                Stream::Unix(UnixStream::connect(path).map_err(|error| error.to_string())?)
            }
            Place::Remote { tls, host, port, .. } => {
                let socket = tcp(host, *port, options.timeout)?;
                if *tls { secured(socket, host, options)? } else { Stream::Tcp(socket) }
            }
        };
        stream.set_timeouts(options.timeout).map_err(|error| error.to_string())?;
        Ok(stream)
    }

    fn set_timeouts(&self, write: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => socket.set_write_timeout(Some(write)),
            Stream::Tcp(socket) => socket.set_write_timeout(Some(write)),
            Stream::Tls(stream) => stream.sock.set_write_timeout(Some(write)),
        }
    }

    /// How long [`Stream::read`] waits; not zero.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => socket.set_read_timeout(Some(timeout)),
            Stream::Tcp(socket) => socket.set_read_timeout(Some(timeout)),
            Stream::Tls(stream) => stream.sock.set_read_timeout(Some(timeout)),
        }
    }

    /// Reads what there is.
    ///
    /// # Errors
    /// The system's; `WouldBlock` or `TimedOut` when nothing came in time.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.read(buffer),
            Stream::Tcp(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => socket.write_all(bytes),
            Stream::Tcp(socket) => socket.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes),
        }
    }

    /// Pushes out what a layer below may hold back.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(socket) => socket.flush(),
            Stream::Tcp(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// The first address of a host that answers.
fn tcp(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, String> {
    let addresses = (host, port).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut reason = String::from("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(|error| error.to_string())?;
                return Ok(socket);
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// TLS over a socket, with the handshake done.
fn secured(mut socket: TcpStream, host: &str, options: &Options) -> Result<Stream, String> {
    let Some(authorities) = &options.certificate_authorities else {
        return Err("amqps:// needs the certificates to trust: --ca FILE".into());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", authorities.display()))?;
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match &options.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("{}: {error}", key.display()))?;
            builder
                .with_client_auth_cert(certificates(chain)?, private)
                .map_err(|error| error.to_string())?
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut connection =
        ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(options.timeout)).map_err(|error| error.to_string())?;
    socket.set_write_timeout(Some(options.timeout)).map_err(|error| error.to_string())?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).map_err(|error| error.to_string())?;
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(connection, socket))))
}

/// The certificates in a PEM file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let named = |error: rustls::pki_types::pem::Error| format!("{}: {error}", file.display());
    CertificateDer::pem_file_iter(file).map_err(named)?.collect::<Result<_, _>>().map_err(named)
}
