//! Quantities with a unit on the command line: read as an operator writes them, and shown.
//!
//! Bytes are read as by the disk tester (K, M, G and T are powers of 1024), bits a second as of
//! networks (powers of 1000).

use std::time::Duration;

pub(crate) use towline_disktest::bytes;

/// Bits a second: `50000000`, `50M`, `50Mbit/s`, `1.5G`.
pub(crate) fn bits_per_s(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text}: a bandwidth such as 50M, 50Mbit/s or 1.5G was expected");
    let (number, unit) = parts(text).ok_or_else(wrong)?;
    let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
    let factor = match unit.strip_suffix("bit").or_else(|| unit.strip_suffix('b')).unwrap_or(unit) {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(wrong()),
    };
    let bits = (number * factor).round();
    // A terabit a second is beyond what a link carries, and far from the end of the type.
    if (1.0..=1e12).contains(&bits) { Ok(bits) } else { Err(wrong()) }
}

/// A time: `40ms`, `250us`, `1.5s`, `10min`, `2h`, `1d`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text}: a time such as 40ms, 1.5s, 10min or 2h was expected");
    let (number, unit) = parts(text).ok_or_else(wrong)?;
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let seconds = number * factor;
    // As far as other time-outs of the command line.
    if seconds > 31_536_000.0 {
        return Err(format!("{text}: at most a year was expected"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The number, finite and not negative, and what follows it.
fn parts(text: &str) -> Option<(f64, &str)> {
    let digits = text.find(|each: char| !each.is_ascii_digit() && each != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some((number, unit))
}

/// Bytes with three digits: `312 B`, `2.09 MiB`.
pub(crate) fn shown_bytes(bytes: f64) -> String {
    shown(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"])
}

/// Bits a second with three digits: `17.6 Mbit/s`.
pub(crate) fn shown_bits_per_s(bits: f64) -> String {
    shown(bits, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A time with three digits, or in two units: `21.5 ms`, `1 min 40 s`, `2 h 5 min`.
pub(crate) fn shown_time(seconds: f64) -> String {
    if seconds < 1.0 {
        return format!("{} ms", three_digits(seconds * 1e3));
    }
    if seconds < 60.0 {
        return format!("{} s", three_digits(seconds));
    }
    let two = |large: &str, small: &str, small_s: f64, per_large: f64| {
        let steps = (seconds / small_s).round();
        let (many, rest) = ((steps / per_large).floor(), steps % per_large);
        if rest == 0.0 {
            format!("{many} {large}")
        } else {
            format!("{many} {large} {rest} {small}")
        }
    };
    match seconds {
        ..3_600.0 => two("min", "s", 1.0, 60.0),
        ..86_400.0 => two("h", "min", 60.0, 60.0),
        _ => two("d", "h", 3_600.0, 24.0),
    }
}

/// A count, in groups of three digits, while that is short: `1,234`, `9.46e16`.
pub(crate) fn shown_count(count: f64) -> String {
    if count >= 1e10 {
        return format!("{count:.2e}");
    }
    let digits = format!("{:.0}", count.ceil());
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn shown(number: f64, factor: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut units = units.iter().peekable();
    while let Some(unit) = units.next() {
        // 999.6 has three digits as 1.00 of the next unit.
        if number < factor.min(999.5) || units.peek().is_none() {
            return format!("{} {unit}", three_digits(number));
        }
        number /= factor;
    }
    String::new()
}

fn three_digits(number: f64) -> String {
    match number {
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_read_in_all_their_spellings() {
        for (text, wanted) in [
            ("64000", 64e3),
            ("50M", 50e6),
            ("50Mbit/s", 50e6),
            ("50Mbps", 50e6),
            ("512k", 512e3),
            ("1.5Gbit", 1.5e9),
        ] {
            assert_eq!(bits_per_s(text), Ok(wanted), "{text}");
        }
        for text in ["", "M", "50MB", "-1", "50 M", "0", "1e9", "2000G", "1.2.3", "50MiB/s"] {
            assert!(bits_per_s(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        for (text, wanted_us) in [
            ("40ms", 40_000),
            ("250us", 250),
            ("1.5s", 1_500_000),
            ("10m", 600_000_000),
            ("10min", 600_000_000),
            ("2h", 7_200_000_000),
            ("0s", 0),
        ] {
            assert_eq!(time(text), Ok(Duration::from_micros(wanted_us)), "{text}");
        }
        for text in ["", "40", "ms", "-1s", "1 s", "400d", "1e9s", "infs"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_are_shown_with_three_digits() {
        let bytes = [0.0, 312.0, 1_000.0, 2_190_000.0, 1e12, 1e30].map(shown_bytes);
        assert_eq!(bytes[..4], ["0.00 B", "312 B", "0.98 KiB", "2.09 MiB"]);
        assert_eq!(bytes[4..], ["931 GiB", "827181 YiB"]);
        let bits = [17_560_000.0, 50e6, 999_600.0].map(shown_bits_per_s);
        assert_eq!(bits, ["17.6 Mbit/s", "50.0 Mbit/s", "1.00 Mbit/s"]);
        let times = [0.0215, 0.99999, 42.0, 100.0, 3_600.0, 7_500.0, 90_000.0, 86_390.0];
        assert_eq!(
            times.map(shown_time),
            ["21.5 ms", "1000 ms", "42.0 s", "1 min 40 s", "1 h", "2 h 5 min", "1 d 1 h", "24 h"]
        );
        let counts = [0.0, 999.2, 1_234_567.0, 9.4608e16].map(shown_count);
        assert_eq!(counts, ["0", "1,000", "1,234,567", "9.46e16"]);
    }
}
