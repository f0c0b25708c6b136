//! Why a handshake failed, in words that say which certificate is at fault where one is.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Why a connection failed.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    inner.map_or_else(|| error.to_string(), words)
}

pub(crate) fn words(error: &Error) -> String {
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
            "the certificate is of an authority that we do not trust; the certificate of that \
             authority must be in the file of trusted ones (--ca of a command, `authorities` of \
             [group])"
                .into()
        }
        Error::NoCertificatesPresented => "it showed no certificate".into(),
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it says that our certificate has expired".into()
        }
        // The second one is for an authority of the same name with another key.
        Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "it does not trust the authority of our certificate, which must be in its file of \
             trusted ones (`authorities` of [group], `client_authorities` of a listener)"
                .into()
        }
        other => format!("TLS: {other}"),
    }
}
