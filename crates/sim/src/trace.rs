//! The last events of a run, readable. Kept beside the run, so that a broken assertion deep inside
//! can still be reported with what came before it.
//!
//! Invariant: writing nothing costs nothing, so that runs without a reader are fast.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

use towline_os::simulated::time::UPTIME;
use towline_os::time::since_boot;

/// Lines kept.
const LINES_MAX: usize = 200_000;

thread_local! {
    static LINES: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Begins anew, with or without a reader.
pub(crate) fn begin(wanted: bool) {
    LINES.with_borrow_mut(VecDeque::clear);
    WANTED.set(wanted);
}

/// Whether the trace of this run is read.
pub(crate) fn is_wanted() -> bool {
    WANTED.get()
}

pub(crate) fn write(now: u64, line: fmt::Arguments<'_>) {
    if !WANTED.get() {
        return;
    }
    LINES.with_borrow_mut(|lines| {
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(format!("{:>10.6} {line}", Seconds(now)));
    });
}

/// How long the run of the coroutine that runs has taken, in microseconds, as a line shows it: its
/// machine was started long before.
pub(crate) fn now_us() -> u64 {
    let time = since_boot().saturating_sub(UPTIME);
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The newest lines of this thread's run, oldest first, at most so many.
#[must_use]
pub fn last_events(count: usize) -> Vec<String> {
    LINES.with_borrow(|lines| {
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    })
}

struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        out.pad_integral(true, "", &text)
    }
}
