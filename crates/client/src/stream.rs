//! A socket with time-outs: Unix, TCP, or TLS over TCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use towline_amqp::Url;
use towline_tls::{Authorities, Identity};

use crate::address::{Address, path_too_long};
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
                if let Some(why) = path_too_long(path) {
                    return Err(why);
                }
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
                 {}{}`, or name another: its data folder with --data or TOWLINE_DATA, or its address \
                 with --url or TOWLINE_URL",
                tried.display(),
                name_of(folder),
                folder.display(),
                // An instance of a group is started with the configuration of its group only.
                if folder.join("group-state").exists() { " --config FILE" } else { "" }
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
        (_, _) => towline_tls::reason(error),
    }
}

/// An instance of a group lets clients wait while none is active.
pub(crate) const NO_ACTIVE: &str = "a group may have no active instance: see `towline status \
                                    --data DIR` with the data folder of an instance";

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
    let authorities = Authorities::read(authorities).map_err(|error| error.to_string())?;
    let identity = match &options.certificate {
        None => None,
        Some((certificate, key)) => {
            Some(Identity::read(certificate, key).map_err(|error| error.to_string())?)
        }
    };
    let config = towline_tls::client(&authorities, identity.as_ref());
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
    fn a_path_that_no_socket_can_have_is_reported_with_its_length_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let longest = 107 - folder.path().as_os_str().len() - 1;
        let connect = |bytes: usize| {
            refused(&Address::Local(folder.path().join("s".repeat(bytes))), &Options::default())
        };
        assert!(connect(longest).contains("no queue manager is running"));
        let why = connect(longest + 1);
        for part in ["has 108 bytes, and 107 are allowed", "shorter path with --data"] {
            assert!(why.contains(part), "no '{part}' in: {why}");
        }
    }

    #[test]
    fn an_instance_of_a_group_is_started_with_its_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Local(folder.path().join("towline.sock"));
        std::fs::write(folder.path().join("group-state"), b"").unwrap();
        let why = refused(&address, &Options::default());
        let typed = format!("`towline run --data {} --config FILE`", folder.path().display());
        assert!(why.contains(&typed), "{why}");
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
    fn a_file_of_trusted_certificates_without_any_is_refused_before_the_handshake() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "").unwrap();
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("amqps://{}", server.local_addr().unwrap());
        let address = Address::Remote(Url::parse(&url).unwrap());
        let options = Options { certificate_authorities: Some(file.clone()), ..Options::default() };
        let why = refused(&address, &options);
        assert_eq!(
            why,
            format!(
                "authorities {}: the file is empty; name the file with the certificates of the \
                 trusted authorities",
                file.display()
            )
        );
    }
}
