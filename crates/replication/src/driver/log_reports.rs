//! What the log of a member reports.
//!
//! Not here: what became of it (`driver`).

use towline_log::{Listener, LogError, Space};
use towline_logging::log as say;
use towline_types::Lsn;

use super::Driver;

impl Listener for Driver {
    fn durable(&self, _upto: Lsn) {
        self.core.post();
        self.take_durable_news();
        self.report_committed();
        if let Some(active) = self.active.get() {
            active.written();
        }
    }

    fn failed(&self, error: &LogError) {
        say(&towline_admin::catalogue::LOG_WRITE_FAILED, &[&error.to_string()]);
        towline_os::process::exit(self.surroundings.log_failed_status);
    }

    fn hindered(&self, error: &LogError) {
        say(&towline_admin::catalogue::LOG_EXTENT_REFUSED, &[&error.to_string()]);
    }

    fn header_repaired(&self, file: &str) {
        say(&towline_admin::catalogue::EXTENT_HEADER_REPAIRED, &[file]);
    }

    fn space(&self, space: Space) {
        if let Some(active) = self.active.get() {
            active.space(space);
        }
    }

    fn caught_up(&self) {
        if let Some(active) = self.active.get() {
            active.caught_up();
        }
    }
}
