//! Waiting for a level: a condition is asked again and again until it holds or time is up.
//!
//! No test sleeps to give something "time to happen"; the pauses here only keep a loop from
//! burning a core.

use std::thread;
use std::time::{Duration, Instant};

use crate::Try;

/// How long between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Asks until the answer is there.
///
/// # Errors
/// When `limit` has passed without an answer; the text names what was waited for.
pub fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Try<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if Instant::now() >= end {
            return Err(format!("waited {limit:?} in vain for: {what}").into());
        }
        pause(LOOK_AGAIN);
    }
}

/// Asks until the answer is true.
///
/// # Errors
/// When `limit` has passed.
pub fn until_true(what: &str, limit: Duration, mut ask: impl FnMut() -> bool) -> Try {
    until(what, limit, || ask().then_some(()))
}

/// Lets a stated time pass: the moment of a random fault, or the time that a rule is about.
pub fn pause(time: Duration) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}
