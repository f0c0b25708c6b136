//! The authorities that one side trusts: a peer's certificate must be signed by one of them.
//!
//! Invariant: there is at least one. Without any, no peer could be trusted, and each connection
//! would fail with an error that does not name the file.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, RootCertStore};

use crate::chain::ChainVerifier;
use crate::error::{FileError, FileFault, FileRole};
use crate::pem::PemFile;

/// See the module.
pub struct Authorities {
    file: PemFile,
    roots: Arc<RootCertStore>,
}

/// Whether a client may connect without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificate {
    Needed,
    Optional,
}

impl Authorities {
    /// Reads the certificates of the authorities.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn read(file: &Path) -> Result<Authorities, FileError> {
        let file = PemFile::read(file, FileRole::Authorities)?;
        let mut roots = RootCertStore::empty();
        for certificate in file.certificates()? {
            let added = roots.add(certificate);
            added.map_err(|error| file.error(FileFault::Unusable(error.to_string())))?;
        }
        Ok(Authorities { file, roots: Arc::new(roots) })
    }

    /// Whether the file has other bytes now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn has_changed(&self) -> Result<bool, FileError> {
        self.file.has_changed()
    }

    /// Checks that a chain, own certificate first, is trusted at the time `now`: of a server,
    /// whatever its name, and of a client.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let (own, between) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.chain_verifier().chain(own, between, now)?;
        let verifier = WebPkiClientVerifier::builder(Arc::clone(&self.roots)).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_client_cert(own, between, now).map(drop)
    }

    /// What checks the certificate of a server, but for its name.
    pub(crate) fn chain_verifier(&self) -> Arc<ChainVerifier> {
        ChainVerifier::new(Arc::clone(&self.roots))
    }

    /// What checks the certificates of clients.
    ///
    /// # Errors
    /// When TLS cannot use these authorities.
    pub(crate) fn client_verifier(
        &self,
        certificate: ClientCertificate,
    ) -> Result<Arc<dyn ClientCertVerifier>, FileError> {
        let builder = WebPkiClientVerifier::builder(Arc::clone(&self.roots));
        let builder = match certificate {
            ClientCertificate::Needed => builder,
            ClientCertificate::Optional => builder.allow_unauthenticated(),
        };
        builder.build().map_err(|error| self.file.error(FileFault::Unusable(error.to_string())))
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }
}
