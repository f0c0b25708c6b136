//! Waiting for the driver: for something to apply, for leadership, for the end; and the end.

use std::time::Duration;
use towline_os::time::Instant;

use super::{ApplyProgress, Driver};

impl Driver {
    /// Waits until there is something to apply behind `applied`, or until it may lead, or `most`
    /// passed.
    pub fn wait(&self, applied: u64, most: Duration) -> ApplyProgress {
        let mut seen = self.progress.lock();
        let ready = |seen: &ApplyProgress| {
            seen.ending
                || seen.committed > applied
                || seen.leads_from.is_some_and(|from| applied >= from)
        };
        if !ready(&seen) {
            self.changed.wait_for(&mut seen, most);
        }
        *seen
    }

    /// Waits until `done`, or until `most` passed or the process ends; looks when something
    /// changed, and every millisecond. Yields whether it is done.
    pub fn wait_until(&self, most: Duration, mut done: impl FnMut() -> bool) -> bool {
        const LOOK_INTERVAL: Duration = Duration::from_millis(1);
        let began = Instant::now();
        loop {
            if done() {
                return true;
            }
            let rest = most.saturating_sub(began.elapsed());
            let mut seen = self.progress.lock();
            if rest.is_zero() || seen.ending {
                return false;
            }
            self.changed.wait_for(&mut seen, rest.min(LOOK_INTERVAL));
        }
    }

    /// Lets `most` pass, unless the process ends.
    pub fn pause(&self, most: Duration) {
        let began = Instant::now();
        let mut seen = self.progress.lock();
        while !seen.ending && began.elapsed() < most {
            self.turned.wait_for(&mut seen, most.saturating_sub(began.elapsed()));
        }
    }

    /// The same, unless this instance is to lead.
    pub fn rest(&self, most: Duration) {
        let began = Instant::now();
        let mut seen = self.progress.lock();
        while !seen.ending && seen.leads_from.is_none() && began.elapsed() < most {
            self.turned.wait_for(&mut seen, most.saturating_sub(began.elapsed()));
        }
    }

    /// Wakes all waiting threads: the process ends.
    pub fn end(&self) {
        self.progress.lock().ending = true;
        self.changed.notify_all();
        self.turned.notify_all();
    }

    /// Shuts the log down, in order, and first takes part in nothing any more: a batch that a peer
    /// sends later, or an election that is won, would find a log that refuses it.
    pub fn shutdown(&self) {
        self.core.lock().lifecycle.withdraws();
        self.log().shutdown();
    }
}
