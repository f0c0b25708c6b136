//! Looks at the certificate files every few seconds, and when an operator asks for it: new ones
//! count for the connections that come, without a restart. Warns when this instance's certificate
//! is about to expire.
//!
//! Connections that stand are not ended: a certificate counts when a connection begins.
//!
//! Invariant: files that cannot be used leave the ones in use as they are, and are reported once,
//! when they are the same at the next look.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::{
    GROUP_CERTIFICATE_EXPIRED, GROUP_CERTIFICATE_EXPIRES, GROUP_CERTIFICATE_READ,
    GROUP_CERTIFICATE_UNREADABLE,
};

use super::identity::{IdentityFiles, TlsIdentity};
use super::names::{self, Names};
use parking_lot::RwLock;
use rustls::pki_types::UnixTime;
use towline_logging::log;
use towline_tls::{Expiry, in_date};

/// Between two looks at the files.
#[cfg(not(test))]
const LOOK_EVERY: Duration = Duration::from_secs(5);
#[cfg(test)]
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Between two such warnings.
const WARN_EVERY: Duration = Duration::from_secs(86_400);

/// The identity in force, and the files that it was read from.
pub(super) struct RotatingIdentity {
    files: IdentityFiles,
    names: Names,
    /// Replaced when the files change; connections that stand keep what they began with.
    in_force: RwLock<Arc<TlsIdentity>>,
}

impl RotatingIdentity {
    /// The identity of the instance with these names, read from its files.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it.
    pub(super) fn read(files: IdentityFiles, names: Names) -> Result<RotatingIdentity, String> {
        let identity = TlsIdentity::read(&files)?;
        belongs(&files, &identity, &names)?;
        Ok(RotatingIdentity { files, names, in_force: RwLock::new(Arc::new(identity)) })
    }

    /// What a connection begins with now.
    pub(super) fn in_force(&self) -> Arc<TlsIdentity> {
        Arc::clone(&self.in_force.read())
    }

    /// Looks at once, for an operator. New files are in force afterwards: the time until which
    /// their certificate is valid.
    ///
    /// # Errors
    /// Why the files cannot be used, changed or not; the ones in use stay.
    pub(super) fn reload(&self) -> Result<Option<String>, String> {
        let Some(identity) = self.look_again()? else {
            self.in_date_now(&self.in_force())?;
            return Ok(None);
        };
        let until = identity.expires().to_string();
        self.put_in_force(identity);
        Ok(Some(until))
    }

    fn put_in_force(&self, identity: TlsIdentity) {
        log(&GROUP_CERTIFICATE_READ, &[&identity.expires().to_string()]);
        *self.in_force.write() = Arc::new(identity);
    }

    /// The files' new content, checked, if it is another one.
    fn look_again(&self) -> Result<Option<TlsIdentity>, String> {
        if !self.in_force().changed()? {
            return Ok(None);
        }
        let identity = TlsIdentity::read(&self.files)?;
        belongs(&self.files, &identity, &self.names)?;
        self.in_date_now(&identity)?;
        Ok(Some(identity))
    }

    /// Refuses a certificate that all peers would refuse: the one in use may be a better one.
    fn in_date_now(&self, identity: &TlsIdentity) -> Result<(), String> {
        let file = self.files.certificate.display();
        let own = [identity.own().clone()];
        in_date(Some(&own), UnixTime::now()).map_err(|why| {
            format!("certificate {file}: {why}; issue a new one (towline group certificates)")
        })
    }
}

fn belongs(files: &IdentityFiles, identity: &TlsIdentity, names: &Names) -> Result<(), String> {
    let file = files.certificate.display();
    names::belongs(identity.own(), names).map_err(|why| format!("certificate {file}: {why}"))
}

/// Looks until the runtime ends.
pub(super) async fn watch(rotating: Arc<RotatingIdentity>) {
    let mut reported = String::new();
    let mut seen = String::new();
    let mut told_expiry =
        ReportedExpiry { expiry: rotating.in_force().expires().expiry(), age: Duration::ZERO };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = Arc::clone(&rotating);
        // A disk that does not answer must not keep heartbeats waiting.
        let looked = tokio::task::spawn_blocking(move || look.look_again()).await;
        match looked.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(None) => (reported, seen) = Default::default(),
            Ok(Some(identity)) => {
                rotating.put_in_force(identity);
                (reported, seen) = Default::default();
            }
            Err(why) => {
                // Once may be in the middle of a change: certificate and key are two files.
                if why == seen && why != reported {
                    log(&GROUP_CERTIFICATE_UNREADABLE, &[&why]);
                    reported.clone_from(&why);
                }
                seen = why;
            }
        }
        told_expiry = tell_expiry(&rotating.in_force(), Some(told_expiry));
    }
}

/// What was reported last, and how long ago.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedExpiry {
    expiry: Expiry,
    age: Duration,
}

/// Reports that the certificate expires, or has expired, unless that was reported within the last
/// day.
pub(super) fn tell_expiry(
    identity: &TlsIdentity,
    before: Option<ReportedExpiry>,
) -> ReportedExpiry {
    let expires = identity.expires();
    let expiry = expires.expiry();
    let same = |reported: &ReportedExpiry| {
        std::mem::discriminant(&reported.expiry) == std::mem::discriminant(&expiry)
            && reported.age < WARN_EVERY
    };
    if let Some(reported) = before.filter(same) {
        return ReportedExpiry { age: reported.age + LOOK_EVERY, ..reported };
    }
    match expiry {
        Expiry::Far => {}
        Expiry::Near(days) => {
            log(&GROUP_CERTIFICATE_EXPIRES, &[&days.to_string(), &expires.to_string()]);
        }
        Expiry::Over => log(&GROUP_CERTIFICATE_EXPIRED, &[&expires.to_string()]),
    }
    ReportedExpiry { expiry, age: Duration::ZERO }
}
