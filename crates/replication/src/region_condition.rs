//! What two groups say of themselves over the link between their regions beside the log: how many
//! instances they have, what is free, the time of day. Twice a second, both ways, as JSON.
//!
//! It is for people, and for checks before a change of roles: nothing of the log depends on it, so
//! a frame that is not understood is left out, and one that is lost is followed by the next.
//!
//! Not here: what is said (`towline_admin::status::RegionConditionStatus`), and what follows from
//! it (`region_findings`). Invariant: what is kept is one frame, of at most [`BYTES_MAX`] bytes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use towline_admin::status::RegionConditionStatus;
use towline_link::FrameBody;
use towline_os::sync::Mutex;
use towline_types::Time;

/// Between two frames.
pub const CONDITION_INTERVAL: Duration = Duration::from_millis(500);
/// Longest frame that is read. It has names, numbers and a version.
pub const BYTES_MAX: usize = 4_096;

/// A frame.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SaidCondition {
    /// The time of day when it was sent, microseconds since 1970.
    clock_us: u64,
    condition: RegionConditionStatus,
}

/// What the other group said last.
#[derive(Clone, Debug, PartialEq)]
pub struct HeardCondition {
    /// Of the instance that has the link.
    pub condition: RegionConditionStatus,
    /// When it came, by the clock of ages.
    pub at: Time,
    /// By how many microseconds the time of day that it said was ahead of the one here when it
    /// came: less than the truth by its way over the link.
    pub clock_ahead_us: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RegionConditions(Mutex<Option<HeardCondition>>);

/// The body of a frame that says this at a time of day.
#[must_use]
pub fn frame(condition: &RegionConditionStatus, wall: Time) -> Option<FrameBody> {
    let said = SaidCondition { clock_us: wall.0, condition: condition.clone() };
    let head = serde_json::to_vec(&said).ok().filter(|head| head.len() <= BYTES_MAX)?;
    Some(FrameBody { head, parts: Vec::new() })
}

impl RegionConditions {
    /// A frame came at `now`, at the time of day `wall`.
    pub fn hears(&self, body: &[u8], now: Time, wall: Time) {
        if body.len() > BYTES_MAX {
            // As often as the other end likes: this is for developers.
            return tracing::debug!(bytes = body.len(), "what the other region says of itself");
        }
        match serde_json::from_slice::<SaidCondition>(body) {
            Ok(SaidCondition { clock_us, condition }) => {
                let us = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
                let clock_ahead_us = us(clock_us).saturating_sub(us(wall.0));
                *self.0.lock() = Some(HeardCondition { condition, at: now, clock_ahead_us });
            }
            Err(error) => tracing::debug!(%error, "what the other region says of itself"),
        }
    }

    /// What came last.
    pub fn heard(&self) -> Option<HeardCondition> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_group_says_the_other_one_hears_with_the_difference_of_the_clocks() {
        let condition = RegionConditionStatus {
            instance: "a".into(),
            in_sync_count: 3,
            ..RegionConditionStatus::default()
        };
        let body = frame(&condition, Time(5_000_000)).unwrap();
        let heard = RegionConditions::default();
        assert_eq!(heard.heard(), None);
        heard.hears(&body.head, Time(77), Time(6_500_000));
        let expected = HeardCondition { condition, at: Time(77), clock_ahead_us: -1_500_000 };
        assert_eq!(heard.heard(), Some(expected));
    }

    #[test]
    fn what_is_not_understood_leaves_what_was_heard_before() {
        let heard = RegionConditions::default();
        let body = frame(&RegionConditionStatus::default(), Time(1)).unwrap();
        heard.hears(&body.head, Time(1), Time(1));
        let before = heard.heard();
        let long = vec![b' '; BYTES_MAX + 1];
        let later = b"{\"clock_us\":18446744073709551615,\"more\":[1]}";
        for body in [&b"nonsense"[..], b"", b"{\"clock_us\":-1}", &long] {
            heard.hears(body, Time(2), Time(2));
            assert_eq!(heard.heard(), before);
        }
        heard.hears(later, Time(3), Time(0));
        assert_eq!(heard.heard().unwrap().clock_ahead_us, i64::MAX, "of a later version");
        let endless = RegionConditionStatus {
            instance: "x".repeat(BYTES_MAX),
            ..RegionConditionStatus::default()
        };
        assert!(frame(&endless, Time(1)).is_none());
    }
}
