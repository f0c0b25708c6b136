//! Text for terminals and line-based replies: rows of name and value, shortened names and numbers.

use std::fmt::Write as _;

pub(crate) use towline_types::printable;

pub(crate) fn row(text: &mut String, name: &str, value: &str) {
    line(text, &format!("{name:<20}{value}"));
}

pub(crate) fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(text, "{line}").ok();
}

/// Text of at most so many characters, the middle left out.
pub(crate) fn cut(text: &str, characters_max: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= characters_max {
        return text.into();
    }
    let kept = characters_max.saturating_sub(1);
    let head = kept.div_ceil(2);
    let tail = kept / 2;
    let start: String = characters.iter().take(head).collect();
    let end: String = characters.iter().skip(characters.len().saturating_sub(tail)).collect();
    format!("{start}…{end}")
}

/// A number that fits so many characters, shortened by thousands when it must be.
pub(crate) fn count(number: u64, characters_max: usize) -> String {
    let mut shown = number.to_string();
    let mut left = number;
    for unit in ["k", "M", "G", "T", "P"] {
        if shown.len() <= characters_max {
            break;
        }
        left /= 1_000;
        shown = format!("{left}{unit}");
    }
    shown
}
