//! Whether the logs of two regions are one, as `towline log dump` shows them.
//!
//! Not here: the regions.

use crate::regions::{EAST, Regions, WEST};
use crate::{Try, require};

/// The batches of the log of an instance that has ended, each with its records. Images are taken by
/// each instance on its own.
fn batches(regions: &Regions, group: usize, at: usize) -> Try<Vec<String>> {
    let dump = regions.site(group, at).runs(&["log", "dump"], 0)?;
    let mut batches: Vec<String> = Vec::new();
    for line in dump.lines().filter(|line| !line.contains("> image, ")) {
        match batches.last_mut() {
            Some(batch) if line.starts_with(' ') => batch.extend(["\n", line]),
            _ => batches.push(line.to_owned()),
        }
    }
    Ok(batches)
}

/// The logs of all instances of both groups, which have ended, are one: each of east is the
/// beginning of one of west, batch by batch, and whole.
///
/// # Errors
/// What differs.
pub fn logs_are_one(regions: &Regions, size: usize) -> Try {
    let mut all = Vec::new();
    for group in [WEST, EAST] {
        for at in 0..size {
            regions.site(group, at).runs(&["log", "verify"], 0)?;
            all.push((group, at, batches(regions, group, at)?));
        }
    }
    let (west, east): (Vec<_>, Vec<_>) = all.iter().partition(|(group, _, _)| *group == WEST);
    for (_, at, log) in &east {
        require!(log.len() > 10, "too little to compare: {log:?}");
        // An instance may have reclaimed the beginning, or lack the end; one of west that stopped
        // may have an end that was never committed.
        let lacks = west.iter().map(|(_, _, of_west)| {
            let first = of_west.iter().position(|batch| Some(batch) == log.first());
            let there = first.and_then(|first| of_west.get(first..)).unwrap_or_default();
            log.iter().zip(there).take_while(|(one, other)| one == other).count()
        });
        let equal = lacks.max().unwrap_or(0);
        require!(equal == log.len(), "east {at} has what no log of west has: {}", log[equal]);
    }
    Ok(())
}

/// The log of each instance of the group that follows `live` is the beginning of one of `live`'s.
/// All have ended.
///
/// # Errors
/// What differs.
pub fn follows(regions: &Regions, live: usize, size: usize) -> Try {
    let mut all = [Vec::new(), Vec::new()];
    for (group, logs) in all.iter_mut().enumerate() {
        for at in 0..size {
            regions.site(group, at).runs(&["log", "verify"], 0)?;
            logs.push(batches(regions, group, at)?);
        }
    }
    for (at, log) in all[1 - live].iter().enumerate() {
        require!(log.len() > 10, "too little to compare: {log:?}");
        let equal = all[live].iter().map(|of_live| {
            let first = of_live.iter().position(|batch| Some(batch) == log.first());
            let there = first.and_then(|first| of_live.get(first..)).unwrap_or_default();
            log.iter().zip(there).take_while(|(one, other)| one == other).count()
        });
        let equal = equal.max().unwrap_or(0);
        require!(equal == log.len(), "{at} has what no log of live has: {}", log[equal]);
    }
    Ok(())
}
