//! TLS of a listener: certificates from PEM files, client certificates when asked for. The files
//! can be read again while the listener serves: new ones count for the connections that come.
//!
//! Not here: what is wrong with a file (`towline_tls`); when files are read again (`reload`).
//!
//! Invariant: files that cannot be used leave those in force that were read before.

use std::sync::{Arc, Once};

use parking_lot::RwLock;
use rustls::ServerConfig;
use towline_config::ListenerConfig;
use towline_os::thread::Builder;
use towline_tls::{Authorities, ExpiryTime, FileError, Identity};

/// What a TLS listener needs.
pub(crate) type TlsSettings = Arc<ListenerTls>;

/// TLS of one listener.
pub(crate) struct ListenerTls {
    listener: ListenerConfig,
    certificates: RwLock<Arc<ListenerCertificates>>,
}

/// The files as they were read.
struct ListenerCertificates {
    identity: Identity,
    /// Of clients, when they may log in with certificates.
    authorities: Option<Authorities>,
    server: Arc<ServerConfig>,
    expires: ExpiryTime,
}

/// Reads the files that the listener names; `None` for a listener without TLS.
///
/// # Errors
/// A text that names the file and what is wrong with it.
pub(crate) fn server_settings(listener: &ListenerConfig) -> Result<Option<TlsSettings>, String> {
    let read = ListenerCertificates::read(listener).map_err(|error| error.to_string())?;
    if read.is_some() {
        gathers_entropy();
    }
    Ok(read.map(|read| {
        let certificates = RwLock::new(Arc::new(read));
        Arc::new(ListenerTls { listener: listener.clone(), certificates })
    }))
}

/// The first handshake would stop the thread of all its clients for that long.
fn gathers_entropy() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a thread the first handshake does it.
        let _started = Builder::new().name("entropy".into()).spawn(towline_tls::gather_entropy);
    });
}

impl ListenerTls {
    /// What a connection that begins now is served with.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.certificates.read().server)
    }

    /// Where the listener is, for people.
    pub(crate) fn address(&self) -> String {
        self.listener.address.to_string()
    }

    /// When the certificate expires.
    pub(crate) fn expires(&self) -> ExpiryTime {
        self.certificates.read().expires.clone()
    }

    /// Reads the files again if they have other bytes now; whether they had.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it; what was read before stays in force.
    pub(crate) fn reload(&self) -> Result<bool, String> {
        let before = Arc::clone(&self.certificates.read());
        let new = before.reread(&self.listener).map_err(|error| error.to_string())?;
        let has_changed = new.is_some();
        if let Some(new) = new {
            *self.certificates.write() = Arc::new(new);
        }
        Ok(has_changed)
    }
}

impl ListenerCertificates {
    fn read(listener: &ListenerConfig) -> Result<Option<ListenerCertificates>, FileError> {
        let (Some(certificate), Some(key)) = (&listener.certificate, &listener.private_key) else {
            return Ok(None);
        };
        let identity = Identity::read(certificate, key)?;
        let authorities = listener.client_authorities.as_deref().map(Authorities::read);
        let authorities = authorities.transpose()?;
        let server = Arc::new(towline_tls::server(&identity, authorities.as_ref())?);
        let expires = identity.expires()?;
        Ok(Some(ListenerCertificates { identity, authorities, server, expires }))
    }

    /// What the files have now, if they have other bytes than these.
    fn reread(&self, listener: &ListenerConfig) -> Result<Option<ListenerCertificates>, FileError> {
        let has_changed = self.identity.has_changed()?
            || match &self.authorities {
                None => false,
                Some(authorities) => authorities.has_changed()?,
            };
        if has_changed { ListenerCertificates::read(listener) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_authorities_without_a_certificate_are_refused_and_leave_those_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let paper = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            Some(folder.path().join(name))
        };
        let listener = ListenerConfig {
            certificate: file("a.pem", &paper.cert.pem()),
            private_key: file("a.key", &paper.signing_key.serialize_pem()),
            client_authorities: file("ca.pem", &paper.cert.pem()),
            ..ListenerConfig::plain("127.0.0.1:0".parse().unwrap())
        };
        let tls = server_settings(&listener).unwrap().unwrap();
        let before = tls.current();
        assert_eq!(tls.reload(), Ok(false));
        file("ca.pem", "");
        for why in [tls.reload().unwrap_err(), server_settings(&listener).err().unwrap()] {
            assert!(why.contains("ca.pem: the file is empty"), "{why}");
        }
        assert!(Arc::ptr_eq(&before, &tls.current()));
        file("ca.pem", &format!("\n{}", paper.cert.pem()));
        assert_eq!(tls.reload(), Ok(true));
    }
}
