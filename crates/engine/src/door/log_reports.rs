//! What the log of an instance reports: how far it is durable, how much space it has, and that it
//! takes runs again.
//!
//! Not here: the steps that follow from it (`door`). A thread of the log never waits for the lock.

use std::sync::atomic::Ordering;

use towline_admin::catalogue::{
    DISK_FULL, EXTENT_HEADER_REPAIRED, LOG_EXTENT_REFUSED, LOG_FULL, LOG_HAS_SPACE, LOG_LOW,
    LOG_WRITE_FAILED,
};
use towline_log::{Listener, LogError, Space};
use towline_logging::log;
use towline_types::Lsn;

use super::{Door, SPACE_ENOUGH, SPACE_FULL};

impl Listener for Door {
    fn durable(&self, upto: Lsn) {
        self.durable_upto.fetch_max(upto.0, Ordering::SeqCst);
        self.inner.post();
        self.take_reports();
        self.wake_ups.durable(upto);
        self.written();
    }

    fn failed(&self, error: &LogError) {
        // A failed write or sync is never retried: the content of the disk is unknown from here on,
        // and recovery at the next start is the only safe reader of it.
        if !self.halted.swap(true, Ordering::SeqCst) {
            log(&LOG_WRITE_FAILED, &[&error.to_string()]);
            towline_os::process::exit(towline_process::EXIT_LOG_FAILED);
        }
    }

    fn caught_up(&self) {
        self.log_caught_up.store(true, Ordering::SeqCst);
        self.inner.post();
        self.take_reports();
    }

    fn hindered(&self, error: &LogError) {
        log(&LOG_EXTENT_REFUSED, &[&error.to_string()]);
    }

    fn header_repaired(&self, file: &str) {
        log(&EXTENT_HEADER_REPAIRED, &[file]);
    }

    fn space(&self, space: Space) {
        let report = if matches!(space, Space::Full) { SPACE_FULL } else { SPACE_ENOUGH };
        let stats = self.running_log().stats();
        let bytes = stats.bytes_in_use.to_string();
        match space {
            Space::Ample => log(&LOG_HAS_SPACE, &[]),
            Space::Low => log(&LOG_LOW, &[&bytes]),
            Space::Full if self.process.is_at_its_limit(&stats) => log(&LOG_FULL, &[&bytes]),
            Space::Full => log(&DISK_FULL, &[&bytes]),
        }
        self.space_report.store(report, Ordering::SeqCst);
        self.inner.post();
        self.take_reports();
        // While free space is short, the log is checked however little is logged.
        self.wake_ups.look_now();
    }
}
