//! TLS of a listener: certificates from PEM files, client certificates when asked for.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::ListenerConfig;

/// What a TLS listener needs.
pub(crate) type TlsSettings = Arc<ServerConfig>;

/// Reads the files that the listener names; `None` for a listener without TLS.
///
/// # Errors
/// A text that names the file and what is wrong with it.
pub(crate) fn server_settings(listener: &ListenerConfig) -> Result<Option<TlsSettings>, String> {
    let (Some(certificate), Some(key)) = (&listener.certificate, &listener.private_key) else {
        return Ok(None);
    };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("private key {}: {error}", key.display()))?;
    let builder = ServerConfig::builder();
    let builder = match &listener.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("client authorities {}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                .allow_unauthenticated()
                .build()
                .map_err(|error| format!("client authorities {}: {error}", path.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("certificate {}: {error}", certificate.display()))?;
    Ok(Some(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: String| format!("certificate {}: {error}", path.display());
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(|error| failed(error.to_string()))?
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.to_string()))?;
    if chain.is_empty() {
        return Err(failed("no certificate in it".into()));
    }
    Ok(chain)
}
