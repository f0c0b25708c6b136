//! What two groups say of themselves over the link between their regions beside the log: how many
//! instances they have, what is free, the time of day. Twice a second, both ways, as JSON.
//!
//! It is for people, and for checks before a change of roles: nothing of the log depends on it, so
//! a frame that is not understood is left out, and one that is lost is followed by the next. It
//! goes before the log that waits, so what it says of that may be ahead of what has come: no one
//! takes its position for log that is here. It still waits for what the system sends, and for a
//! receiver that is full, so each has a stamp (`said_times`).
//!
//! Not here: what is said (`towline_admin::status::RegionConditionStatus`), and what follows from
//! it (`region_findings`). Invariant: what is kept is one frame, of at most [`BYTES_MAX`] bytes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use towline_admin::status::RegionConditionStatus;
use towline_link::{FrameBody, LinkId};
use towline_os::sync::Mutex;
use towline_types::Time;

use crate::said_times::{HeardStamp, SaidTime, SaidTimes};

/// Between two frames.
pub const CONDITION_INTERVAL: Duration = Duration::from_millis(500);
/// Longest frame that is read. It has names, numbers and a version.
pub const BYTES_MAX: usize = 4_096;
/// Of a version before stamps: the clock of the frame that waited least in this time counts. So
/// long may waiting last.
const UNSTAMPED_WINDOW: Duration = Duration::from_secs(60);

/// A frame.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SaidCondition {
    /// The time of day when it was said, microseconds since 1970.
    clock_us: u64,
    condition: RegionConditionStatus,
    /// The same by the clock of ages of the sender, microseconds; none: of a version before.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp_us: Option<u64>,
    /// The newest stamp that the sender heard on this link, and when that came to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_stamp_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_came_us: Option<u64>,
}

/// When something is said: to be taken before it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SayingTime {
    /// By the clock of ages.
    pub now: Time,
    /// The time of day.
    pub wall: Time,
}

/// What the other group said last.
#[derive(Clone, Debug, PartialEq)]
pub struct HeardCondition {
    /// Of the instance that has the link.
    pub condition: RegionConditionStatus,
    /// When it was said, by the clock of ages here.
    pub said: SaidTime,
    /// By how many microseconds the time of day that it said was ahead of the one here then. Where
    /// it is not known how long it was on its way, that is as if it had not been.
    pub clock_ahead_us: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RegionConditions(Mutex<Conditions>);

#[derive(Debug, Default)]
struct Conditions {
    heard: Option<HeardCondition>,
    /// Of the link on which it came last.
    link: Option<LinkId>,
    times: SaidTimes,
    /// Of a version before stamps, on that link: the clock that is furthest ahead, and when it was
    /// heard.
    unstamped: Option<(i64, Time)>,
}

impl RegionConditions {
    /// The body of a frame on a link that says this.
    pub fn frame(
        &self,
        link: LinkId,
        condition: &RegionConditionStatus,
        at: SayingTime,
    ) -> Option<FrameBody> {
        let state = self.0.lock();
        let heard = state.times.heard().filter(|_| state.link == Some(link));
        drop(state);
        let said = SaidCondition {
            clock_us: at.wall.0,
            condition: condition.clone(),
            stamp_us: Some(at.now.0),
            heard_stamp_us: heard.map(|heard| heard.said_us),
            heard_came_us: heard.map(|heard| heard.came_us),
        };
        let head = serde_json::to_vec(&said).ok().filter(|head| head.len() <= BYTES_MAX)?;
        Some(FrameBody { head, parts: Vec::new() })
    }

    /// A frame came on a link: what it says.
    pub fn hears(&self, link: LinkId, body: &[u8], at: SayingTime) -> Option<HeardCondition> {
        if body.len() > BYTES_MAX {
            // As often as the other end likes: this is for developers.
            tracing::debug!(bytes = body.len(), "what the other region says of itself");
            return None;
        }
        match serde_json::from_slice::<SaidCondition>(body) {
            Ok(said) => Some(self.0.lock().hears(link, said, at)),
            Err(error) => {
                tracing::debug!(%error, "what the other region says of itself");
                None
            }
        }
    }

    /// What came last.
    pub fn heard(&self) -> Option<HeardCondition> {
        self.0.lock().heard.clone()
    }
}

impl Conditions {
    fn hears(&mut self, link: LinkId, frame: SaidCondition, at: SayingTime) -> HeardCondition {
        if self.link.replace(link) != Some(link) {
            (self.times, self.unstamped) = (SaidTimes::default(), None);
        }
        let pair = frame.heard_stamp_us.zip(frame.heard_came_us);
        let echo = pair.map(|(said_us, came_us)| HeardStamp { said_us, came_us });
        let said = match frame.stamp_us {
            Some(stamp_us) => self.times.came(stamp_us, echo, at.now),
            None => SaidTime { latest: at.now, earliest: None },
        };
        let us = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let way_us = said.earliest.map_or(0, |earliest| {
            let [least, most] = [said.latest, earliest].map(|said| at.now.0.saturating_sub(said.0));
            us(least / 2 + most / 2)
        });
        let mut clock_ahead_us =
            us(frame.clock_us).saturating_sub(us(at.wall.0)).saturating_add(way_us);
        if frame.stamp_us.is_none() {
            let kept = self.unstamped.filter(|(kept_us, since)| {
                *kept_us > clock_ahead_us && at.now.since(*since) < UNSTAMPED_WINDOW
            });
            (clock_ahead_us, _) = *self.unstamped.insert(kept.unwrap_or((clock_ahead_us, at.now)));
        }
        let heard = HeardCondition { condition: frame.condition, said, clock_ahead_us };
        self.heard = Some(heard.clone());
        heard
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
        let body = said(&condition, at(5_000, 5_000_000));
        let heard = RegionConditions::default();
        assert_eq!(heard.heard(), None);
        heard.hears(LinkId(1), &body, at(77, 6_500_000)).unwrap();
        let said = SaidTime { latest: Time(77), earliest: None };
        let expected = HeardCondition { condition, said, clock_ahead_us: -1_500_000 };
        assert_eq!(heard.heard(), Some(expected));
    }

    fn at(now: u64, wall: u64) -> SayingTime {
        SayingTime { now: Time(now), wall: Time(wall) }
    }

    fn said(condition: &RegionConditionStatus, at: SayingTime) -> Vec<u8> {
        RegionConditions::default().frame(LinkId(1), condition, at).unwrap().head
    }

    /// Behind 4 MiB at 2 Mbit/s, on one machine: the clocks were called 18 s apart, and what was
    /// said 18 s before counted as said now.
    #[test]
    fn what_waited_for_18_s_is_18_s_old_and_says_the_clock_of_then() {
        let (west, east) = (RegionConditions::default(), RegionConditions::default());
        let (one, second) = (LinkId(1), 1_000_000);
        let condition = RegionConditionStatus::default();
        let wall = |us: u64| at(us, us + 50 * second);
        // It says what it heard of the other end, and that as much.
        let early = east.frame(one, &condition, wall(second)).unwrap();
        west.hears(one, &early.head, wall(second + 20_000)).unwrap();
        let prompt = west.frame(one, &condition, wall(2 * second)).unwrap();
        let prompt = east.hears(one, &prompt.head, wall(2 * second + 30_000)).unwrap();
        assert!(prompt.said.latest >= Time(2 * second) && prompt.said.oldest() <= Time(2 * second));
        let late = west.frame(one, &condition, wall(3 * second)).unwrap();
        let late = east.hears(one, &late.head, wall(21 * second)).unwrap();
        let (least, most) = (late.said.earliest.unwrap(), late.said.latest);
        assert!(least <= Time(3 * second) && most >= Time(3 * second), "{late:?}");
        assert!(most.since(least) < Duration::from_millis(60), "{late:?}");
        assert!(late.clock_ahead_us.abs() < 30_000, "{late:?}");
        // Another link has another process at its end, and other clocks.
        let anew = east.frame(LinkId(2), &condition, wall(22 * second)).unwrap();
        assert!(!String::from_utf8(anew.head).unwrap().contains("heard_stamp_us"));
        let body = said(&condition, wall(22 * second));
        assert_eq!(east.hears(LinkId(2), &body, wall(23 * second)).unwrap().said.earliest, None);
    }

    #[test]
    fn of_a_version_before_stamps_the_age_has_no_bound_and_the_clock_is_that_of_the_promptest() {
        let heard = RegionConditions::default();
        let hears = |clock_us: u64, now: u64| {
            let body = format!("{{\"clock_us\":{clock_us},\"condition\":{{\"instance\":\"a\"}}}}");
            heard.hears(LinkId(1), body.as_bytes(), at(now, now)).unwrap()
        };
        let second = 1_000_000;
        assert_eq!(hears(second, second).clock_ahead_us, 0);
        let late = hears(2 * second, 20 * second);
        assert_eq!((late.said.latest, late.said.earliest), (Time(20 * second), None));
        assert_eq!(late.clock_ahead_us, 0, "it waited");
        assert_eq!(hears(60 * second, 62 * second).clock_ahead_us, -2 * second as i64);
    }

    #[test]
    fn what_is_not_understood_leaves_what_was_heard_before() {
        let heard = RegionConditions::default();
        let body = said(&RegionConditionStatus::default(), at(1, 1));
        heard.hears(LinkId(1), &body, at(1, 1)).unwrap();
        let before = heard.heard();
        let long = vec![b' '; BYTES_MAX + 1];
        let later = b"{\"clock_us\":18446744073709551615,\"more\":[1]}";
        for body in [&b"nonsense"[..], b"", b"{\"clock_us\":-1}", &long] {
            assert_eq!(heard.hears(LinkId(1), body, at(2, 2)), None);
            assert_eq!(heard.heard(), before);
        }
        let later = heard.hears(LinkId(1), later, at(3, 0)).unwrap();
        assert_eq!(later.clock_ahead_us, i64::MAX, "of a later version");
        let endless = RegionConditionStatus {
            instance: "x".repeat(BYTES_MAX),
            ..RegionConditionStatus::default()
        };
        assert!(heard.frame(LinkId(1), &endless, at(1, 1)).is_none());
    }
}
