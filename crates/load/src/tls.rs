//! TLS under AMQP, as bytes: it owns no socket.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use towline_tls::Authorities;

/// What all connections share.
#[derive(Clone)]
pub(crate) struct TlsSettings {
    config: Arc<ClientConfig>,
}

impl TlsSettings {
    /// Trusts the authorities in a PEM file.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file.
    pub(crate) fn new(ca: &Path) -> Result<TlsSettings, String> {
        let authorities = Authorities::read(ca).map_err(|error| error.to_string())?;
        Ok(TlsSettings { config: Arc::new(towline_tls::client(&authorities, None)) })
    }
}

/// One connection's TLS.
pub(crate) struct Tls {
    session: ClientConnection,
}

impl Tls {
    /// A session with `host`; the certificate must name it.
    ///
    /// # Errors
    /// When it is no name of a host.
    pub(crate) fn new(settings: &TlsSettings, host: &str) -> io::Result<Tls> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session =
            ClientConnection::new(Arc::clone(&settings.config), name).map_err(io::Error::other)?;
        Ok(Tls { session })
    }

    /// Appends the plain bytes of what came to `plain`.
    ///
    /// # Errors
    /// What TLS says.
    pub(crate) fn decrypt(&mut self, mut raw: &[u8], plain: &mut BytesMut) -> io::Result<()> {
        while !raw.is_empty() {
            self.session.read_tls(&mut raw)?;
            let state = self.session.process_new_packets().map_err(io::Error::other)?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            if let Some(room) = plain.get_mut(start..) {
                self.session.reader().read_exact(room)?;
            }
        }
        Ok(())
    }

    /// Takes plain bytes.
    ///
    /// # Errors
    /// What TLS says.
    pub(crate) fn encrypt(&mut self, plain: &mut VecDeque<Bytes>) -> io::Result<()> {
        while let Some(piece) = plain.front_mut() {
            let taken = self.session.writer().write(piece)?;
            if taken < piece.len() {
                bytes::Buf::advance(piece, taken);
                return Ok(());
            }
            plain.pop_front();
        }
        Ok(())
    }

    /// Writes what is encrypted; false when the kernel takes no more.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn write(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(stream) {
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Not an error: the kernel has nothing now, or the call was cut short.
pub(crate) fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_authorities_without_a_certificate_is_refused_before_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "").unwrap();
        let why = TlsSettings::new(&file).err().expect("no server could be trusted");
        let start = format!("authorities {}: the file is empty", file.display());
        assert!(why.starts_with(&start), "{why}");
    }
}
