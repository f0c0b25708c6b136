//! TLS of a listener: certificates from PEM files, client certificates when asked for. The files
//! can be read again while the listener serves: new ones count for the connections that come.
//!
//! Invariant: files that cannot be used leave those in force that were read before.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};

use towline_config::ListenerConfig;

/// What a TLS listener needs.
pub(crate) type TlsSettings = Arc<ListenerTls>;

/// TLS of one listener.
pub(crate) struct ListenerTls {
    listener: ListenerConfig,
    loaded: RwLock<Arc<Loaded>>,
}

/// The files as they were read.
struct Loaded {
    server: Arc<ServerConfig>,
    /// What stood in them, to see a change.
    text: Vec<Vec<u8>>,
    /// Seconds since 1970 at which the certificate expires, and the same for people.
    expires: (i64, String),
}

/// Reads the files that the listener names; `None` for a listener without TLS.
///
/// # Errors
/// A text that names the file and what is wrong with it.
pub(crate) fn server_settings(listener: &ListenerConfig) -> Result<Option<TlsSettings>, String> {
    if listener.certificate.is_none() || listener.private_key.is_none() {
        return Ok(None);
    }
    let loaded = RwLock::new(Arc::new(Loaded::read(listener)?));
    Ok(Some(Arc::new(ListenerTls { listener: listener.clone(), loaded })))
}

impl ListenerTls {
    /// What a connection that begins now is served with.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.loaded.read().server)
    }

    /// Where the listener is, for people.
    pub(crate) fn address(&self) -> String {
        self.listener.address.to_string()
    }

    /// When the certificate expires: seconds since 1970, and the same for people.
    pub(crate) fn expires(&self) -> (i64, String) {
        self.loaded.read().expires.clone()
    }

    /// Reads the files again if they have other bytes now; whether they had.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it; what was read before stays in force.
    pub(crate) fn reload(&self) -> Result<bool, String> {
        if texts(&self.listener)? == self.loaded.read().text {
            return Ok(false);
        }
        let loaded = Loaded::read(&self.listener)?;
        *self.loaded.write() = Arc::new(loaded);
        Ok(true)
    }
}

impl Loaded {
    fn read(listener: &ListenerConfig) -> Result<Loaded, String> {
        let text = texts(listener)?;
        let [certificate, key, authorities @ ..] = text.as_slice() else {
            return Err("a certificate and a key are needed".into());
        };
        let named = |path: &Option<std::path::PathBuf>| {
            path.as_deref().map_or_else(String::new, |path| path.display().to_string())
        };
        let (of_certificate, of_key) = (named(&listener.certificate), named(&listener.private_key));
        let chain = certificates(&of_certificate, certificate)?;
        let expires = chain
            .first()
            .and_then(expiry)
            .ok_or_else(|| format!("certificate {of_certificate}: its dates cannot be read"))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("private key {of_key}: {error}"))?;
        let builder = ServerConfig::builder();
        let builder = match authorities.first() {
            None => builder.with_no_client_auth(),
            Some(text) => {
                let of_authorities = named(&listener.client_authorities);
                let failed = |error: &dyn std::fmt::Display| {
                    format!("client authorities {of_authorities}: {error}")
                };
                let mut roots = RootCertStore::empty();
                for certificate in certificates(&of_authorities, text)? {
                    roots.add(certificate).map_err(|error| failed(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| failed(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let server = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("certificate {of_certificate}: {error}"))?;
        Ok(Loaded { server: Arc::new(server), text, expires })
    }
}

/// Certificate chain, key, and client authorities if there are any.
fn texts(listener: &ListenerConfig) -> Result<Vec<Vec<u8>>, String> {
    [&listener.certificate, &listener.private_key, &listener.client_authorities]
        .into_iter()
        .flatten()
        .map(|path| read(path))
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn certificates(name: &str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("certificate {name}: {error}");
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))?;
    if chain.is_empty() {
        return Err(failed(&"no certificate in it"));
    }
    Ok(chain)
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<(i64, String)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let at = parsed.validity().not_after;
    Some((at.timestamp(), at.to_string()))
}
