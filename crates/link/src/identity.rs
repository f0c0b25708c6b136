//! Certificate, key and authorities of this instance, as TLS settings for both ends of a link.
//!
//! TLS 1.3 only, both ends show a certificate. Connections for frames check dates and authorities
//! anew. Streams may resume what one before them showed (`tickets`), as long as the certificates
//! are in date and neither end has read new files: tickets are sealed with a key of this identity,
//! and kept with it. The owner of a certificate is checked by its name afterwards (`names`), for
//! both ends with the same code, so rustls checks the chain alone.
//!
//! Not here: when the files are looked at again (`rotation`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use super::names::{self, Names};
use super::tickets::{self, Tickets};
use towline_config::GroupConfig;

/// What a connection is for, sent before the certificates so that the right thread takes it (ALPN,
/// RFC 7301). What it really is for stands in the hello.
pub(super) const ALPN_FRAMES: &[u8] = b"towline-frames";
pub(super) const ALPN_STREAM: &[u8] = b"towline-stream";

/// Where the PEM files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub private_key: PathBuf,
    pub authorities: PathBuf,
}

impl IdentityFiles {
    pub fn of(config: &GroupConfig) -> IdentityFiles {
        IdentityFiles {
            certificate: config.certificate.clone(),
            private_key: config.private_key.clone(),
            authorities: config.authorities.clone(),
        }
    }
}

/// The identity from the files as they were read.
pub(super) struct TlsIdentity {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client_frames: Arc<ClientConfig>,
    pub(super) client_stream: Arc<ClientConfig>,
    /// Our own certificate.
    own: CertificateDer<'static>,
    /// Seconds since 1970 at which it expires.
    pub(super) expires_at: i64,
    /// What stood in the files, to see a change.
    text: [Vec<u8>; 3],
}

impl TlsIdentity {
    /// Reads the three files.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it.
    pub(super) fn read(files: &IdentityFiles) -> Result<TlsIdentity, String> {
        let text =
            [read(&files.certificate)?, read(&files.private_key)?, read(&files.authorities)?];
        let [certificate, key, authorities] = &text;
        let chain = certificates(&files.certificate, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("private key {}: {error}", files.private_key.display()))?;
        let authorities = certificates(&files.authorities, authorities)?;
        let of_authorities =
            |error: &dyn std::fmt::Display| format!("{}: {error}", files.authorities.display());
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|error| of_authorities(&error))?;
        }
        let roots = Arc::new(roots);
        let own = chain.first().cloned().ok_or("no certificate")?;
        let expires_at = expiry(&own).map(|time| time.timestamp()).ok_or_else(|| {
            format!("certificate {}: it cannot be read", files.certificate.display())
        })?;
        let of_pair =
            |error: Error| format!("certificate {}: {error}", files.certificate.display());
        let verifier = WebPkiClientVerifier::builder(Arc::clone(&roots)).build();
        let mut server = ServerConfig::builder_with_protocol_versions(&[&TLS13])
            .with_client_cert_verifier(verifier.map_err(|error| of_authorities(&error))?)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(of_pair)?;
        server.alpn_protocols = vec![ALPN_FRAMES.to_vec(), ALPN_STREAM.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        // All that it must know of a stream before stands in the ticket.
        server.ticketer = Ticketer::new().map_err(|error| format!("tickets of TLS: {error}"))?;
        server.send_tls13_tickets = tickets::GIVEN;
        let mut client = ClientConfig::builder_with_protocol_versions(&[&TLS13])
            .dangerous()
            .with_custom_certificate_verifier(ChainVerifier::new(roots))
            .with_client_auth_cert(chain, key)
            .map_err(of_pair)?;
        client.resumption = Resumption::disabled();
        // Instances are distinguished by their certificates, not by a name sent in clear.
        client.enable_sni = false;
        let with = |protocol: &[u8]| {
            let mut client = client.clone();
            client.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(client)
        };
        let client_frames = with(ALPN_FRAMES);
        client.resumption = Resumption::store(Arc::new(Tickets::default()));
        client.alpn_protocols = vec![ALPN_STREAM.to_vec()];
        let client_stream = Arc::new(client);
        let server = Arc::new(server);
        Ok(TlsIdentity { server, client_frames, client_stream, own, expires_at, text })
    }

    /// Whether the files have other bytes now.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn changed(&self, files: &IdentityFiles) -> Result<bool, String> {
        let [certificate, key, authorities] = &self.text;
        Ok(read(&files.certificate)? != *certificate
            || read(&files.private_key)? != *key
            || read(&files.authorities)? != *authorities)
    }

    /// Our own certificate.
    pub(super) fn own(&self) -> &CertificateDer<'static> {
        &self.own
    }

    /// When it expires, for people.
    pub(super) fn expires(&self) -> String {
        expiry(&self.own).map_or_else(|| "an unknown time".to_owned(), |time| time.to_string())
    }
}

/// Checks what the instance `name` of a group would show and trust: that the files can be read, fit
/// together, name that instance, and are valid now. The time until which its certificate is valid
/// is returned.
///
/// # Errors
/// A text that names the file and what is wrong with it.
pub fn check(queue_manager: &str, config: &GroupConfig, name: &str) -> Result<String, String> {
    let files = IdentityFiles::of(config);
    let identity = belonging(queue_manager, config, name)?;
    let of_certificate =
        |why: String| format!("certificate {}: {why}", files.certificate.display());
    let chain = certificates(&files.certificate, &identity.text[0])?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.authorities, &identity.text[2])? {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    let (own, between) = chain.split_first().ok_or("no certificate")?;
    let now = UnixTime::now();
    let roots = Arc::new(roots);
    let checked = ChainVerifier::new(Arc::clone(&roots)).chain(own, between, now);
    checked.map_err(|error| of_certificate(words(&error)))?;
    let verifier = WebPkiClientVerifier::builder(roots).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let as_client = verifier.verify_client_cert(own, between, now);
    as_client.map_err(|error| of_certificate(words(&error)))?;
    Ok(identity.expires())
}

/// When the certificate of the instance `name` of a group expires: in seconds since 1970, and for
/// people.
///
/// # Errors
/// Why a start refuses the files.
pub fn expires(
    queue_manager: &str,
    config: &GroupConfig,
    name: &str,
) -> Result<(i64, String), String> {
    let identity = belonging(queue_manager, config, name)?;
    Ok((identity.expires_at, identity.expires()))
}

/// The files, if they fit together and name that instance.
fn belonging(queue_manager: &str, config: &GroupConfig, name: &str) -> Result<TlsIdentity, String> {
    let files = IdentityFiles::of(config);
    let identity = TlsIdentity::read(&files)?;
    let names = Names::of(queue_manager, &config.name, name);
    names::belongs(identity.own(), &names)
        .map_err(|why| format!("certificate {}: {why}", files.certificate.display()))?;
    Ok(identity)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = read.map_err(|error| format!("certificate {}: {error}", path.display()))?;
    if chain.is_empty() {
        return Err(format!("certificate {}: no certificate in it", path.display()));
    }
    Ok(chain)
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<ASN1Time> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after)
}

/// Checks that what the other end shows, or showed when it was given a ticket, is in date: TLS
/// looks at it only when it is shown.
///
/// # Errors
/// What is wrong with it.
pub(super) fn in_date(shown: Option<&[CertificateDer<'_>]>, now: UnixTime) -> Result<(), String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    for certificate in shown.unwrap_or_default() {
        let parsed = X509Certificate::from_der(certificate);
        let (_, parsed) = parsed.map_err(|_| "the certificate cannot be read")?;
        let dates = parsed.validity();
        if now > dates.not_after.timestamp() {
            return Err(format!("the certificate has expired since ({})", dates.not_after));
        }
        if now < dates.not_before.timestamp() {
            return Err(format!("the certificate is not valid yet ({})", dates.not_before));
        }
    }
    Ok(())
}

/// Checks the issuer and the dates of a certificate, and leaves its name to `names`.
#[derive(Debug)]
pub(super) struct ChainVerifier {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ChainVerifier {
    pub(super) fn new(roots: Arc<RootCertStore>) -> Arc<ChainVerifier> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        Arc::new(ChainVerifier { roots, algorithms: provider.signature_verification_algorithms })
    }

    fn chain(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(own)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)
    }
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.chain(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Why a connection failed, in words that name the certificate at fault where it is one.
pub(super) fn reason(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    inner.map_or_else(|| error.to_string(), words)
}

fn words(error: &Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    match error {
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            format!("the certificate has expired ({error})")
        }
        Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            format!("the certificate is not valid yet ({error})")
        }
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the certificate is of an authority that we do not trust".into()
        }
        Error::NoCertificatesPresented => "it showed no certificate".into(),
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it says that our certificate has expired".into()
        }
        // The second one is for an authority of the same name with another key.
        Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "it does not trust the authority of our certificate".into()
        }
        other => format!("TLS: {other}"),
    }
}
