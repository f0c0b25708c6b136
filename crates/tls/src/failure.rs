//! Why a handshake failed, in words that say which certificate is at fault where one is.

use std::io;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};
use x509_parser::prelude::ASN1Time;

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
        // What rustls says has the time of day in it: the same reason would be another text, and
        // news, each second.
        Error::InvalidCertificate(Bad::Expired) => "the certificate has expired".into(),
        Error::InvalidCertificate(Bad::ExpiredContext { not_after, .. }) => {
            format!("the certificate has expired since ({})", shown(*not_after))
        }
        Error::InvalidCertificate(Bad::NotValidYet) => "the certificate is not valid yet".into(),
        Error::InvalidCertificate(Bad::NotValidYetContext { not_before, .. }) => {
            format!("the certificate is not valid yet ({})", shown(*not_before))
        }
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the certificate is of an authority that we do not trust; the certificate of that \
             authority must be in the file of trusted ones (--ca of a command, `authorities` of \
             [group])"
                .into()
        }
        Error::NoCertificatesPresented => "it showed no certificate".into(),
        // TLS has one alert for both.
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it says that our certificate has expired, or is not valid yet".into()
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

/// A time of a certificate as `certificate` shows it.
fn shown(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match ASN1Time::from_timestamp(seconds) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{seconds} s since 1970"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    /// It was logged each second, as something new.
    #[test]
    fn a_certificate_out_of_its_dates_has_the_same_reason_at_each_time() {
        let at =
            |second: u64| UnixTime::since_unix_epoch(Duration::from_secs(1_795_817_000 + second));
        let early = |second| {
            let (time, not_before) = (at(second), at(5_000));
            words(&CertificateError::NotValidYetContext { time, not_before }.into())
        };
        assert_eq!(early(1), early(2));
        assert!(early(1).starts_with("the certificate is not valid yet (Nov 27 "), "{}", early(1));
        let late = |second| {
            let (time, not_after) = (at(second), at(0));
            words(&CertificateError::ExpiredContext { time, not_after }.into())
        };
        assert_eq!(late(1), late(2));
        assert!(late(1).starts_with("the certificate has expired since (Nov 27 "), "{}", late(1));
        let alert = words(&Error::AlertReceived(AlertDescription::CertificateExpired));
        assert!(alert.ends_with("our certificate has expired, or is not valid yet"), "{alert}");
    }
}
