//! Times for people: RFC 3339 in UTC.
//!
//! Not here: reading a time that a person wrote.

use towline_types::Time;

/// A time as RFC 3339 shows it, in UTC, to the millisecond.
#[must_use]
pub fn rfc3339(time: Time) -> String {
    let millis = time.as_millis();
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar: years begin
/// in March here, so that the leap day is the last one.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_rfc_3339_shows_them() {
        let shown = |seconds: u64| rfc3339(Time(seconds * 1_000_000 + 7_000));
        assert_eq!(shown(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(shown(1_795_309_200), "2026-11-22T01:00:00.007Z");
        assert_eq!(shown(4_107_542_399), "2100-02-28T23:59:59.007Z");
    }
}
