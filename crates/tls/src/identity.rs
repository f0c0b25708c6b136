//! What one side shows: its certificate chain, with the key that belongs to it.
//!
//! Not here: what it trusts (`authorities`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys};

use crate::authorities::Authorities;
use crate::certificate;
use crate::error::{FileError, FileFault, FileRole};
use crate::expiry::ExpiryTime;
use crate::pem::PemFile;

/// See the module.
pub struct Identity {
    certificate: PemFile,
    key: PemFile,
    own: CertificateDer<'static>,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Reads the certificate chain, own certificate first, and its key.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(certificate: &Path, private_key: &Path) -> Result<Identity, FileError> {
        let certificate = PemFile::read(certificate, FileRole::Certificate)?;
        let key = PemFile::read(private_key, FileRole::PrivateKey)?;
        let chain = certificate.certificates()?;
        let none = || certificate.error(FileFault::NoCertificate { has_key: false });
        let own = chain.first().cloned().ok_or_else(none)?;
        let certified = CertifiedKey::from_der(chain, key.private_key()?, &default_provider())
            .map_err(|error| unusable(&certificate, &key, &own, &error))?;
        Ok(Identity { certificate, key, own, certified: Arc::new(certified) })
    }

    /// The certificate of this side.
    #[must_use]
    pub fn own(&self) -> &CertificateDer<'static> {
        &self.own
    }

    /// When the certificate of this side expires.
    ///
    /// # Errors
    /// When it cannot be parsed.
    pub fn expires(&self) -> Result<ExpiryTime, FileError> {
        certificate::expires(&self.own).ok_or_else(|| self.certificate.error(FileFault::NotX509))
    }

    /// When the certificate of this side begins to be valid, seconds since 1970.
    #[must_use]
    pub fn begins_s(&self) -> u64 {
        certificate::begins(&self.own).unwrap_or(0)
    }

    /// Whether the files have other bytes now.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn has_changed(&self) -> Result<bool, FileError> {
        Ok(self.certificate.has_changed()? || self.key.has_changed()?)
    }

    /// Checks that a peer with these authorities trusts this side at the time `now`, as server and
    /// as client.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, authorities: &Authorities, now: UnixTime) -> Result<(), FileError> {
        authorities
            .check(&self.certified.cert, now)
            .map_err(|error| self.certificate.error(FileFault::Untrusted(error)))
    }

    /// What rustls takes certificate and key from.
    pub(crate) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.certified)))
    }
}

/// The mode of a private key that users other than its owner and group can read or change; `None`:
/// they cannot, or there is no such file.
#[must_use]
pub fn mode_open_to_all(private_key: &Path) -> Option<u32> {
    let mode = std::fs::metadata(private_key).ok()?.mode() & 0o777;
    (mode & 0o006 != 0).then_some(mode)
}

/// Which of the two files is to blame.
fn unusable(
    certificate: &PemFile,
    key: &PemFile,
    own: &CertificateDer<'_>,
    error: &Error,
) -> FileError {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            key.error(FileFault::WrongKey(certificate.path.clone()))
        }
        _ if certificate::is_version_1(own) => certificate.error(FileFault::Version1),
        Error::InvalidCertificate(_) => certificate.error(FileFault::Unusable(error.to_string())),
        _ => key.error(FileFault::Unusable(error.to_string())),
    }
}
