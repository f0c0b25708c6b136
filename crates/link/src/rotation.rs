//! Looks at the certificate files every few seconds: new ones count for the connections that come,
//! without a restart. Warns when this instance's certificate is about to expire.
//!
//! Connections that stand are not ended: a certificate counts when a connection begins.
//!
//! Invariant: files that cannot be used leave the ones in use as they are, and are reported once,
//! when they are the same at the next look.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use towline_admin::catalogue::{
    GROUP_CERTIFICATE_EXPIRED, GROUP_CERTIFICATE_EXPIRES, GROUP_CERTIFICATE_READ,
    GROUP_CERTIFICATE_UNREADABLE,
};

use super::identity::TlsIdentity;
use super::{Shared, names};
use towline_logging::log;

/// Between two looks at the files.
#[cfg(not(test))]
const LOOK_EVERY: Duration = Duration::from_secs(5);
#[cfg(test)]
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long before its end the expiry of a certificate is reported.
const WARN_BEFORE: Duration = Duration::from_secs(30 * DAY_S);
/// Between two such warnings.
const WARN_EVERY: Duration = Duration::from_secs(DAY_S);
const DAY_S: u64 = 86_400;

/// What is to be reported about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Later than 30 days from now.
    Far,
    /// In so many days.
    Near(u64),
    /// It has expired.
    Over,
}

/// Looks until the runtime ends.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut reported = String::new();
    let mut seen = String::new();
    let mut told_expiry =
        ReportedExpiry { expiry: expiry(shared.identity().expires_at), age: Duration::ZERO };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = Arc::clone(&shared);
        // A disk that does not answer must not keep heartbeats waiting.
        let looked = tokio::task::spawn_blocking(move || look_again(&look)).await;
        match looked.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(None) => (reported, seen) = Default::default(),
            Ok(Some(identity)) => {
                log(&GROUP_CERTIFICATE_READ, &[&identity.expires()]);
                *shared.identity.write() = Arc::new(identity);
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
        told_expiry = tell_expiry(&shared.identity(), Some(told_expiry));
    }
}

/// The files' new content, checked, if it is another one.
fn look_again(shared: &Shared) -> Result<Option<TlsIdentity>, String> {
    let settings = &shared.settings;
    if !shared.identity().changed(&settings.identity)? {
        return Ok(None);
    }
    let identity = TlsIdentity::read(&settings.identity)?;
    let file = settings.identity.certificate.display();
    names::belongs(identity.own(), &settings.names(settings.this))
        .map_err(|why| format!("certificate {file}: {why}"))?;
    Ok(Some(identity))
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
    let expiry = expiry(identity.expires_at);
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
            log(&GROUP_CERTIFICATE_EXPIRES, &[&days.to_string(), &identity.expires()]);
        }
        Expiry::Over => log(&GROUP_CERTIFICATE_EXPIRED, &[&identity.expires()]),
    }
    ReportedExpiry { expiry, age: Duration::ZERO }
}

/// What is to be reported of a certificate that expires at `at` (seconds since 1970).
pub fn expiry(at: i64) -> Expiry {
    // A clock before 1970 shows no certificate to be out of date.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    expiry_at(at, now)
}

fn expiry_at(at: i64, now: Duration) -> Expiry {
    let Ok(at) = u64::try_from(at) else { return Expiry::Over };
    match Duration::from_secs(at).checked_sub(now) {
        None | Some(Duration::ZERO) => Expiry::Over,
        Some(left) if left <= WARN_BEFORE => Expiry::Near(left.as_secs() / DAY_S),
        Some(_) => Expiry::Far,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_of_a_certificate_is_reported_thirty_days_before() {
        let now = Duration::from_secs(100 * DAY_S);
        let at = |days: i64| expiry_at(days * 86_400, now);
        assert_eq!(at(-1), Expiry::Over);
        assert_eq!(at(100), Expiry::Over);
        assert_eq!(at(101), Expiry::Near(1));
        assert_eq!(at(130), Expiry::Near(30));
        assert_eq!(at(131), Expiry::Far);
    }
}
