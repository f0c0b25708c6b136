//! `towline restore`: a data folder from a backup. Reads what position or time was meant; the rest
//! is done in the crates below.

use std::path::Path;

use serde_json::json;
use towline_backup::{RestoreReport, Upto};
use towline_types::{CivilTime, Time};

use crate::arguments::Restore;
use crate::failure::Failure;
use crate::{backup, log, progress, show};

/// Runs the command.
pub(crate) fn run(arguments: &Restore) -> Result<(), Failure> {
    let upto = match (&arguments.to_lsn, &arguments.to_time) {
        (Some(position), _) => Upto::Lsn(log::position(position)?),
        (None, Some(time)) => Upto::Time(moment(time)?),
        (None, None) => Upto::End,
    };
    let bar = progress::byte_bar(arguments.json);
    let (from, data) = (&arguments.from, &arguments.data);
    let restored = towline_server::backup::restore(from, data, upto, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let (restored, name) = restored.map_err(Failure::failed)?;
    if arguments.json {
        as_json(&restored, name.as_deref())?;
    } else {
        as_text(&restored, name.as_deref(), &arguments.data)?;
    }
    if restored.damaged.is_empty() { Ok(()) } else { Err(Failure::Silent) }
}

fn as_json(restored: &RestoreReport, name: Option<&str>) -> Result<(), Failure> {
    show::json(&json!({
        "lsn": restored.end.to_string(),
        "image_lsn": restored.image.map(|at| at.to_string()),
        "time": restored.at.map(|at| CivilTime::of(at).to_string()),
        "extents": restored.extents,
        "bytes": restored.bytes,
        "queue_manager": name,
        "damaged": backup::damaged(&restored.damaged),
    }))
}

fn as_text(restored: &RestoreReport, name: Option<&str>, data: &Path) -> Result<(), Failure> {
    let at = restored.at.map(|at| format!(", of {}", CivilTime::of(at))).unwrap_or_default();
    let (end, bytes) = (restored.end, restored.bytes);
    show::line(&format!("restored up to {end}{at}: {bytes} bytes"))?;
    for damaged in &restored.damaged {
        show::line(&format!("! {damaged}, since before the backup was made"))?;
    }
    if !restored.damaged.is_empty() {
        show::line(
            "All else is there. Messages that cannot be read are set aside when a consumer reaches them: \
             see docs/guides/damaged-log.md.",
        )?;
    }
    let data = data.display();
    match name {
        Some(name) => show::line(&format!("Start it with: towline run {name} --data {data}")),
        None => show::line(&format!(
            "The backup lacks the name of the queue manager: the first start sets it. Start \
             it under its own name with: towline run NAME --data {data}"
        )),
    }
}

/// A time as RFC 3339 writes it, such as `2026-11-22T01:00:00Z` or with `+01:00` at the end.
fn moment(text: &str) -> Result<Time, Failure> {
    let wrong = || Failure::Usage(format!("{text}: expected a time such as 2026-11-22T01:00:00Z"));
    parse(text).ok_or_else(wrong)
}

/// RFC 3339, section 5.6; years from 1970 on, no leap seconds.
fn parse(text: &str) -> Option<Time> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (clock, offset_minutes) = zone(rest)?;
    let date: Vec<u64> = numbers(date, '-', &[4, 2, 2])?;
    let [year, month, day] = date.try_into().ok()?;
    let (clock, microsecond) = match clock.split_once('.') {
        Some((clock, digits)) => (clock, fraction(digits)?),
        None => (clock, 0),
    };
    let clock = numbers(clock, ':', &[2, 2, 2])?;
    let [hour, minute, second]: [u64; 3] = clock.try_into().ok()?;
    let two_digits = |number: u64| u8::try_from(number).ok();
    let there = CivilTime {
        year: u16::try_from(year).ok()?,
        month: two_digits(month)?,
        day: two_digits(day)?,
        hour: two_digits(hour)?,
        minute: two_digits(minute)?,
        second: two_digits(second)?,
        microsecond: u32::try_from(microsecond).ok()?,
    };
    let offset_us = offset_minutes * 60_000_000;
    let since_epoch = i64::try_from(there.since_epoch()?.0).ok()?.checked_sub(offset_us)?;
    u64::try_from(since_epoch).ok().map(Time)
}

/// The clock, and how many minutes it is ahead of UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (clock, zone) = text.split_at(at);
    let ahead = zone.starts_with('+');
    let parts = numbers(zone.get(1..)?, ':', &[2, 2])?;
    let [hours, minutes]: [u64; 2] = parts.try_into().ok()?;
    let minutes =
        i64::try_from(hours * 60 + minutes).ok().filter(|_| hours < 24 && minutes < 60)?;
    Some((clock, if ahead { minutes } else { -minutes }))
}

fn numbers(text: &str, between: char, digits: &[usize]) -> Option<Vec<u64>> {
    let parts: Vec<&str> = text.split(between).collect();
    let right = parts.len() == digits.len()
        && parts.iter().zip(digits).all(|(part, digits)| part.len() == *digits);
    if !right || !parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    parts.iter().map(|part| part.parse().ok()).collect()
}

/// Digits behind the point, in microseconds.
fn fraction(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let six: String = digits.chars().chain("000000".chars()).take(6).collect();
    six.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_rfc_3339_writes_them() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00.5Z", 951_782_400_500_000),
            ("2026-11-22T02:00:00.007+01:00", 1_795_309_200_007_000),
            ("2026-11-21 20:30:00-04:30", 1_795_309_200_000_000),
        ] {
            assert_eq!(parse(text), Some(Time(micros)), "{text}");
        }
        for text in [
            "",
            "2026-11-22",
            "2026-11-22T01:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-22T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-22T01:00:00.Z",
            "1970-01-01T00:00:00+00:01",
            "2026-1-22T01:00:00Z",
            "2026-11-22T01:00:00+1:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let shown = CivilTime::of(Time(1_795_309_200_007_000)).to_string();
        assert_eq!(parse(&shown), Some(Time(1_795_309_200_007_000)), "{shown}");
    }
}
