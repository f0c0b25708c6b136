//! Dates and times of day as people write them, in UTC.
//!
//! It stands here because the crates that show dates (`admin`, `backup`, `cli`) have no other crate
//! in common. The calendar is that of the crate `time`, whose clock is not used.
//!
//! Not here: other time zones, and the ways in which a person may write a time.

use std::fmt;

use time::{Date, Month, OffsetDateTime, UtcOffset};

use crate::Time;

/// A time in the Gregorian calendar, UTC, years 1970 to 9999. It shows as RFC 3339 says, to the
/// millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CivilTime {
    /// 1970 to 9999.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59: there are no leap seconds.
    pub second: u8,
    /// 0 to 999,999.
    pub microsecond: u32,
}

impl CivilTime {
    /// The last one: RFC 3339 has no later year.
    const LAST: CivilTime = CivilTime {
        year: 9999,
        month: 12,
        day: 31,
        hour: 23,
        minute: 59,
        second: 59,
        microsecond: 999_999,
    };

    /// A time since the epoch; one after the year 9999 is taken for the end of that year.
    #[must_use]
    pub fn of(time: Time) -> CivilTime {
        let found = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time.0) * 1_000);
        let Ok(found) = found else { return CivilTime::LAST };
        let Ok(year) = u16::try_from(found.year()) else { return CivilTime::LAST };
        let (hour, minute, second, microsecond) = found.to_hms_micro();
        let (month, day) = (u8::from(found.month()), found.day());
        CivilTime { year, month, day, hour, minute, second, microsecond }
    }

    /// The time since the epoch; `None` when there is no such day or no such time of day.
    #[must_use]
    pub fn since_epoch(self) -> Option<Time> {
        let CivilTime { year, month, day, hour, minute, second, microsecond } = self;
        let month = Month::try_from(month).ok()?;
        let date = Date::from_calendar_date(i32::from(year), month, day).ok()?;
        let at = date.with_hms_micro(hour, minute, second, microsecond).ok()?;
        let nanoseconds = at.assume_offset(UtcOffset::UTC).unix_timestamp_nanos();
        u64::try_from(nanoseconds / 1_000).ok().filter(|_| nanoseconds >= 0).map(Time)
    }
}

impl fmt::Display for CivilTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CivilTime { year, month, day, hour, minute, second, microsecond } = self;
        let milli = microsecond / 1_000;
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_rfc_3339_shows_them() {
        let shown = |seconds: u64| CivilTime::of(Time(seconds * 1_000_000 + 7_000)).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(shown(1_795_309_200), "2026-11-22T01:00:00.007Z");
        assert_eq!(shown(4_107_542_399), "2100-02-28T23:59:59.007Z");
    }

    #[test]
    fn a_time_after_the_year_9999_is_its_end() {
        assert_eq!(CivilTime::of(Time::NEVER).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_civil_time_is_the_time_that_it_was_made_of() {
        for time in [0, 1, 951_782_400_000_001, 1_795_309_200_007_000, 253_402_300_799_999_999] {
            assert_eq!(CivilTime::of(Time(time)).since_epoch(), Some(Time(time)));
        }
        let leap_day = CivilTime { year: 2000, month: 2, day: 29, ..CivilTime::of(Time::ZERO) };
        assert!(leap_day.since_epoch().is_some());
        for wrong in [
            CivilTime { year: 2100, ..leap_day },
            CivilTime { month: 13, ..leap_day },
            CivilTime { day: 0, ..leap_day },
            CivilTime { hour: 24, ..leap_day },
            CivilTime { second: 60, ..leap_day },
            CivilTime { year: 1968, ..leap_day },
        ] {
            assert_eq!(wrong.since_epoch(), None, "{wrong:?}");
        }
    }
}
