//! Long texts of findings, in lines that fit a terminal.

use super::{COLUMNS, MARGIN};
use crate::text::line;

/// A text over as many lines as it needs, behind `head` and below it. Words longer than a line are
/// cut into lines.
pub(super) fn wrapped(text: &mut String, head: &str, words: &str) {
    let width = COLUMNS - MARGIN;
    let mut row = String::new();
    let mut rows = Vec::new();
    for word in words.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let taken = row.chars().count();
        if taken > 0 && taken + 1 + word.len() > width {
            rows.push(std::mem::take(&mut row));
        }
        while word.len() > width {
            let rest = word.split_off(width);
            rows.push(word.iter().collect());
            word = rest;
        }
        if !row.is_empty() {
            row.push(' ');
        }
        row.extend(word);
    }
    if !row.is_empty() || rows.is_empty() {
        rows.push(row);
    }
    for (at, row) in rows.iter().enumerate() {
        let before = if at == 0 { head.to_owned() } else { " ".repeat(MARGIN) };
        line(text, format!("{before}{row}").trim_end());
    }
}
