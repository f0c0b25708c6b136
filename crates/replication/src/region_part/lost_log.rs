//! This group is configured as live and its log is new, but the other group has a log with
//! histories: its disk was lost or is not mounted, or the folder of a group that another one took
//! over from was emptied. What the other group has is all that there is, and what is put here would
//! be in a second log. So no client is served here from then on, as in a group that was superseded.
//!
//! A log without histories that is older than those of the other group is no lost one: it had no
//! other region so far, and the other group has a log of former times. Nothing is done then: the
//! two logs are not connected, and an operator decides.
//!
//! Not here: how it is kept and said to the others (`driver::fencing`). Invariant: a group whose
//! log has a history, or of which the other group's log is empty, is not stopped by this.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::REGION_LOG_LOST;
use towline_group::Mode;
use towline_logging::log as say;
use towline_os::thread::Builder;

use super::RegionPart;
use crate::fence::{BY_ITSELF, FenceOrder, NO_HISTORY};
use crate::region_meeting::RegionSaid;

/// A live group with a new log lets its clients in when it has heard the other one, and without
/// that after so long: both groups can be installed one after the other. It is the time of a
/// connection over a slow line with a lost packet or two.
const FIRST_WORD_MAX: Duration = Duration::from_secs(3);

impl RegionPart {
    /// If the log of this live group is new, its clients are let in when the other group was heard.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn waits_for_first_word(self: &Arc<Self>) -> std::io::Result<()> {
        if !self.driver.takes_wait_for_word() {
            return Ok(());
        }
        let part = Arc::clone(self);
        let body = move || {
            let is_heard = || part.known.lock().other.is_some();
            part.driver.wait_until(FIRST_WORD_MAX, is_heard);
            // If it was heard that this log is lost, it is fenced by now.
            part.driver.lets_clients_in();
        };
        Builder::new().name("region-first-word".into()).spawn(body).map(drop)
    }

    /// The other group said what it has.
    pub(super) fn looks_for_lost_log(&self, own: &RegionSaid, other: &RegionSaid) {
        // One that has no batch yet is new in its group, and gets the log of that.
        let has_begun = own.position.last.index > 0 && own.histories.is_empty();
        if self.driver.mode() != Mode::Voting || !has_begun {
            return;
        }
        let Some(newest) = other.histories.newest() else { return };
        if self.host.is_log_older_than(newest.began) != Some(false) {
            return;
        }
        let (group, history) = (&other.agreement.group, newest.id.to_string());
        let reason = format!(
            "its log is new, and group '{group}' has the log that it should have (history {history})"
        );
        let before = self.driver.kept_fence().order.filter(|order| order.of == NO_HISTORY);
        // What an operator took back stays so.
        if before.as_ref().is_some_and(|order| order.is_on || order.by != BY_ITSELF) {
            return;
        }
        if self.orders_by_itself(before, true, reason) {
            say(&REGION_LOG_LOST, &[group, &history]);
        }
    }

    /// The other group takes this log: it has none.
    pub(super) fn has_no_lost_log(&self) {
        let before = self.driver.kept_fence().order;
        let is_fenced =
            |order: &FenceOrder| order.of == NO_HISTORY && order.is_on && order.by == BY_ITSELF;
        if before.as_ref().is_some_and(is_fenced) {
            self.orders_by_itself(before, false, String::new());
        }
    }

    fn orders_by_itself(&self, before: Option<FenceOrder>, is_on: bool, reason: String) -> bool {
        let [one, other] = [self.host.drawn(), self.host.drawn()].map(u128::from);
        let order = FenceOrder {
            of: NO_HISTORY,
            number: before.map_or(0, |order| order.number).saturating_add(1),
            id: ((one << 64) | other).to_le_bytes(),
            is_on,
            by: BY_ITSELF.to_owned(),
            reason,
            at_ms: self.host.wall().as_millis(),
        };
        self.driver.order_fence(order).is_ok()
    }
}
