//! When a certificate expires, and whether that is to be reported.

use std::fmt;
use std::time::{Duration, SystemTime};

/// How long before its end the expiry of a certificate is reported.
const WARN_BEFORE: Duration = Duration::from_secs(30 * DAY_S);
const DAY_S: u64 = 86_400;

/// When a certificate expires. Displayed as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryTime {
    /// Seconds since 1970.
    pub(crate) unix_seconds: i64,
    /// The same for people.
    pub(crate) text: String,
}

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

impl ExpiryTime {
    /// Seconds since 1970; 0 for what expired before that.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        u64::try_from(self.unix_seconds).unwrap_or(0)
    }

    /// What is to be reported now.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        expiry_at(self.unix_seconds, now)
    }
}

impl fmt::Display for ExpiryTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
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
