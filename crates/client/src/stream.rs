//! A socket with time-outs: Unix, TCP, or TLS over TCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use towline_amqp::Url;

use crate::address::Address;
use crate::options::Options;

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
    pub(crate) fn connect(address: &Address, options: &Options) -> Result<Stream, String> {
        let stream = match address {
            Address::Local(path) => {
                Stream::Unix(UnixStream::connect(path).map_err(|error| nobody_there(path, &error))?)
            }
            Address::Remote(Url { tls, host, port, .. }) => {
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

/// Why a local socket does not answer, and what to do.
fn nobody_there(socket: &Path, error: &io::Error) -> String {
    let folder = socket.parent().unwrap_or(Path::new("."));
    match error.kind() {
        // The second: what a killed queue manager left.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let tried = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
            format!(
                "no queue manager is running in data folder {}; start it with `towline run {}--data \
                 {}`, or name another: its data folder with --data or TOWLINE_DATA, or its address \
                 with --url or TOWLINE_URL",
                tried.display(),
                name_of(folder),
                folder.display()
            )
        }
        ErrorKind::PermissionDenied => format!(
            "{error}: only the user that runs the queue manager, root, and the members of \
             users.local_group may use this socket"
        ),
        _ => error.to_string(),
    }
}

/// The name that the data folder belongs to and a blank, where `towline run` needs it.
fn name_of(folder: &Path) -> String {
    /// Written by the server; a longer one is not a name.
    const NAME_BYTES_MAX: u64 = 256;
    let mut name = String::new();
    let read = std::fs::File::open(folder.join("name"))
        .and_then(|file| file.take(NAME_BYTES_MAX).read_to_string(&mut name));
    match (read, name.trim_end()) {
        (Err(_), _) | (Ok(_), "" | "QM1") => String::new(),
        (Ok(_), name) => format!("{name} "),
    }
}

/// Why a socket over the network failed, for people.
fn unreachable_for(error: &io::Error, timeout: Duration) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (error.kind(), inner) {
        (_, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))) => {
            "this port of the server does not use TLS: use amqp:// instead of amqps://".into()
        }
        (ErrorKind::WouldBlock | ErrorKind::TimedOut, _) => {
            format!("no answer within {} s; {NO_ACTIVE}", timeout.as_secs_f64())
        }
        (ErrorKind::ConnectionRefused, _) => {
            format!("{error}: no queue manager is listening at this address")
        }
        (_, _) => error.to_string(),
    }
}

/// An instance of a group lets clients wait while none is active.
pub(crate) const NO_ACTIVE: &str = "a group may have no active instance: see `towline status \
                                    --data DIR` with the data folder of an instance";

/// Why our own certificate cannot be shown.
fn own_certificate(file: &Path, is_old: bool, error: &rustls::Error) -> String {
    let file = file.display();
    if is_old {
        return format!(
            "the client certificate {file} has X.509 version 1, and 3 is needed: sign it with \
             extensions (openssl x509 -req -extfile)"
        );
    }
    format!("the client certificate {file}, or its key, cannot be used: {error}")
}

/// Whether a certificate says no version, which means 1 (RFC 5280, 4.1.2.1). `openssl x509 -req`
/// makes such ones when it is given no extensions.
fn is_of_version_1(der: &[u8]) -> bool {
    /// DER: a sequence; an element of its own number 0, in which the version stands.
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let inside = |bytes: &[u8]| -> Option<Vec<u8>> {
        let [SEQUENCE, length, rest @ ..] = bytes else { return None };
        // Beyond 127 the length itself has as many bytes as its low bits say.
        let skipped = if *length < 0x80 { 0 } else { usize::from(length & 0x7f) };
        rest.get(skipped..).map(<[u8]>::to_vec)
    };
    let first = inside(der).and_then(|whole| inside(&whole));
    first.is_some_and(|fields| fields.first().is_some_and(|first| *first != VERSION))
}

/// The first address of a host that answers.
fn tcp(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, String> {
    let addresses = (host, port).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut reason = String::from("the host name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(|error| error.to_string())?;
                return Ok(socket);
            }
            Err(error) => reason = unreachable_for(&error, timeout),
        }
    }
    Err(reason)
}

/// TLS over a socket, with the handshake done.
fn secured(mut socket: TcpStream, host: &str, options: &Options) -> Result<Stream, String> {
    let Some(authorities) = &options.certificate_authorities else {
        return Err("amqps:// needs the trusted certificates: --ca FILE".into());
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
            let ours = certificates(chain)?;
            let is_old = ours.first().is_some_and(|first| is_of_version_1(first));
            builder
                .with_client_auth_cert(ours, private)
                .map_err(|error| own_certificate(chain, is_old, &error))?
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut connection =
        ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(options.timeout)).map_err(|error| error.to_string())?;
    socket.set_write_timeout(Some(options.timeout)).map_err(|error| error.to_string())?;
    while connection.is_handshaking() {
        let went_on = connection.complete_io(&mut socket);
        went_on.map_err(|error| unreachable_for(&error, options.timeout))?;
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(connection, socket))))
}

/// The certificates in a PEM file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let named = |error: rustls::pki_types::pem::Error| format!("{}: {error}", file.display());
    CertificateDer::pem_file_iter(file).map_err(named)?.collect::<Result<_, _>>().map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &Address, options: &Options) -> String {
        Stream::connect(address, options).err().expect("no server listens")
    }

    #[test]
    fn a_folder_without_a_queue_manager_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("towline.sock");
        let address = Address::Local(socket.clone());
        for _ in ["never started", "killed"] {
            let why = refused(&address, &Options::default());
            let named = format!("running in data folder {};", folder.path().display());
            let typed = format!("`towline run --data {}`", folder.path().display());
            assert!(why.contains(&named) && why.contains(&typed), "{why}");
            assert!(why.contains("--url") && !why.contains("os error"), "{why}");
            drop(std::os::unix::net::UnixListener::bind(&socket));
        }
    }

    #[test]
    fn the_command_that_starts_a_queue_manager_has_the_name_that_its_data_folder_belongs_to() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Local(folder.path().join("towline.sock"));
        let data = folder.path().display();
        for (name, typed) in [("QM1\n", ""), ("", ""), ("ORDERS\n", "ORDERS ")] {
            std::fs::write(folder.path().join("name"), name).unwrap();
            let why = refused(&address, &Options::default());
            assert!(why.contains(&format!("`towline run {typed}--data {data}`")), "{why}");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_in_time_is_reported_with_the_time() {
        let error = io::Error::from(ErrorKind::WouldBlock);
        let why = unreachable_for(&error, Duration::from_secs(5));
        assert!(
            why.starts_with("no answer within 5 s; a group may have no active instance"),
            "{why}"
        );
    }

    #[test]
    fn a_certificate_without_a_version_is_of_version_1() {
        // Two sequences with long lengths; then the version, or the serial number at once.
        let start = [0x30, 0x82, 0x03, 0x00, 0x30, 0x82, 0x02, 0x00];
        assert!(!is_of_version_1(&[&start[..], &[0xa0, 3, 2, 1, 2]].concat()));
        assert!(is_of_version_1(&[&start[..], &[2, 1, 7]].concat()));
        assert!(is_of_version_1(&[0x30, 0x20, 0x30, 0x10, 2, 1, 7]));
        assert!(!is_of_version_1(&start) && !is_of_version_1(&[0x30]) && !is_of_version_1(&[]));
    }
}
