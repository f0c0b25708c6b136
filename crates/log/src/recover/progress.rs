//! How far replay is, for display.
//!
//! Not here: what is shown.

use std::time::Duration;
use towline_os::time::Instant;

use towline_types::Lsn;

use super::files::Files;

/// Bytes after which progress is reported again,
const STEP_BYTES: u64 = 64 * 1024 * 1024;
/// or time.
const STEP_TIME: Duration = Duration::from_millis(100);

/// Reports how many bytes of how many are done, now and then.
pub(super) struct Progress<F> {
    from: Lsn,
    /// How much there can be: the last extents may be empty.
    total: u64,
    told: (u64, Instant),
    tell: F,
}

impl<F: FnMut(u64, u64)> Progress<F> {
    pub(super) fn new(from: Lsn, files: &Files, tell: F) -> Progress<F> {
        let end = (files.last() + 1).saturating_mul(files.identity().extent_bytes);
        let total = end.saturating_sub(from.0);
        Progress { from, total, told: (0, Instant::now()), tell }
    }

    /// All before `upto` is done.
    pub(super) fn done(&mut self, upto: Lsn) {
        let done = upto.0.saturating_sub(self.from.0);
        let (told, since) = self.told;
        let is_due = done - told.min(done) >= STEP_BYTES || since.elapsed() >= STEP_TIME;
        if is_due {
            self.told = (done, Instant::now());
            (self.tell)(done, self.total);
        }
    }

    /// All is done.
    pub(super) fn end(&mut self) {
        (self.tell)(self.total, self.total);
    }
}
