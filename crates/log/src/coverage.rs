//! Which extents exist, in words: for an operator looking for a missing file.
//!
//! Not here: whether the log can be used without the others (`recover`).

use std::fmt;

/// Runs of extents that a line names; older ones are only said to be there. Two show the newest
/// gap, and more would make every error of the log larger.
const RUNS_MAX: usize = 2;

/// Which extents there are, and from which on they are needed. Numbers are those in the names of
/// the files, as far as 32 bits go: that is a petabyte of the smallest extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// First and last of the newest runs of extents, oldest first, in the last `count` elements.
    runs: [(u32, u32); RUNS_MAX],
    count: u8,
    /// Whether there are older ones.
    has_older: bool,
    /// The extent from which on the log is needed, where an image says so; else [`u32::MAX`].
    needed: u32,
}

impl Coverage {
    /// `sequences` ascend.
    pub(crate) fn of(sequences: impl Iterator<Item = u64>, needed: Option<u64>) -> Coverage {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for sequence in sequences {
            match all.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(sequence) => *last = sequence,
                Some(_) | None => all.push((sequence, sequence)),
            }
        }
        let mut runs = [(0, 0); RUNS_MAX];
        let mut count = 0;
        for (place, run) in runs.iter_mut().rev().zip(all.iter().rev()) {
            *place = (short(run.0), short(run.1));
            count += 1;
        }
        let has_older = all.len() > RUNS_MAX;
        Coverage { runs, count, has_older, needed: needed.map_or(u32::MAX, short) }
    }

    fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.runs.iter().skip(RUNS_MAX - usize::from(self.count).min(RUNS_MAX)).copied()
    }
}

fn short(sequence: u64) -> u32 {
    u32::try_from(sequence).unwrap_or(u32::MAX)
}

fn span(out: &mut fmt::Formatter<'_>, (first, last): (u32, u32)) -> fmt::Result {
    if first == last { write!(out, "{first:x}") } else { write!(out, "{first:x} to {last:x}") }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = || self.runs();
        if runs().next().is_none() {
            write!(out, "there is no extent")?;
        } else {
            write!(out, "{}", if self.has_older { "older ones and extents " } else { "extents " })?;
            for (number, run) in runs().enumerate() {
                write!(out, "{}", if number > 0 { ", " } else { "" })?;
                span(out, run)?;
            }
            write!(out, " are there")?;
        }
        let gaps = runs()
            .zip(runs().skip(1))
            .map(|((_, last), (first, _))| (last.saturating_add(1), first.saturating_sub(1)));
        for (number, gap) in gaps.enumerate() {
            write!(out, "{}", if number > 0 { ", " } else { "; " })?;
            span(out, gap)?;
        }
        if runs().nth(1).is_some() {
            write!(out, " missing")?;
        }
        match self.needed {
            u32::MAX => Ok(()),
            needed => write!(out, "; the image needs {needed:x} on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(sequences: &[u64], needed: Option<u64>) -> String {
        Coverage::of(sequences.iter().copied(), needed).to_string()
    }

    #[test]
    fn what_is_there_and_what_is_missing_is_named() {
        assert_eq!(
            said(&[5, 9, 10, 11], Some(7)),
            "extents 5, 9 to b are there; 6 to 8 missing; the image needs 7 on"
        );
        assert_eq!(said(&[3, 4], None), "extents 3 to 4 are there");
        assert_eq!(said(&[], Some(2)), "there is no extent; the image needs 2 on");
        assert_eq!(
            said(&[1, 3, 5, 7, 9], None),
            "older ones and extents 7, 9 are there; 8 missing"
        );
    }
}
