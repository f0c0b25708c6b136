//! What a certificate says: its version, names and dates.
//!
//! Not here: whether it is trusted (`chain`), and which names are wanted.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Version};

use crate::error::{FileError, FileRole};
use crate::expiry::ExpiryTime;
use crate::pem::PemFile;

/// The names of the owner of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectNames {
    /// Its common names.
    pub common: Vec<String>,
    /// Its DNS names (subjectAltName, RFC 5280 section 4.2.1.6).
    pub dns: Vec<String>,
}

/// The certificates in a file, in their order; at least one.
///
/// # Errors
/// Why the file cannot be used.
pub fn certificates_in(file: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    PemFile::read(file, FileRole::Certificate)?.certificates()
}

/// The names in a certificate.
///
/// # Errors
/// What cannot be read.
pub fn subject_names(certificate: &CertificateDer<'_>) -> Result<SubjectNames, String> {
    let parsed = parse(certificate).ok_or("the certificate cannot be read")?;
    let dns = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => {
            let names = extension.value.general_names.iter();
            names
                .filter_map(|name| match name {
                    GeneralName::DNSName(name) => Some((*name).to_owned()),
                    _ => None,
                })
                .collect()
        }
        Ok(None) => Vec::new(),
        Err(_) => return Err("the certificate's names cannot be read".into()),
    };
    let common = parsed.subject().iter_common_name();
    let common = common.filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
    Ok(SubjectNames { common, dns })
}

/// The common name of the first certificate of a chain: the user name of a client that logs in with
/// its certificate.
#[must_use]
pub fn common_name(chain: Option<&[CertificateDer<'_>]>) -> Option<Arc<str>> {
    let certificate = parse(chain?.first()?)?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    Some(Arc::from(name))
}

/// Checks that the certificates of a peer are in date. TLS checks a certificate only when it is
/// sent, so a resumed connection needs this check.
///
/// # Errors
/// What is wrong with them.
pub fn in_date(chain: Option<&[CertificateDer<'_>]>, now: UnixTime) -> Result<(), String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    for certificate in chain.unwrap_or_default() {
        let parsed = parse(certificate).ok_or("the certificate cannot be read")?;
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

/// When a certificate expires; `None`: it cannot be parsed.
pub(crate) fn expires(certificate: &CertificateDer<'_>) -> Option<ExpiryTime> {
    let at = parse(certificate)?.validity().not_after;
    Some(ExpiryTime { unix_seconds: at.timestamp(), text: at.to_string() })
}

/// When a certificate begins to be valid, seconds since 1970; `None`: it cannot be parsed.
pub(crate) fn begins(certificate: &CertificateDer<'_>) -> Option<u64> {
    let at = parse(certificate)?.validity().not_before.timestamp();
    Some(u64::try_from(at).unwrap_or(0))
}

/// Whether a certificate has X.509 version 1, which rustls does not accept.
pub(crate) fn is_version_1(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_some_and(|parsed| parsed.version() == X509Version::V1)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed)
}
