//! This instance leads, and is marked for a promotion: it begins the history as the first records
//! of its term, before its door opens.
//!
//! Not here: the order, and the election (`towline_replication`). Invariant: no client is
//! let in before the record of the history is committed, unless this process leads no more.

use std::time::Duration;

use towline_admin::catalogue::REGION_NOT_BEGUN;
use towline_config::Config;
use towline_engine::Door;
use towline_logging::log as say;

use crate::open::OpenReplica;
use crate::region::place_of_history;

/// Before it is tried again, or looked whether it is committed.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// Begins the history that this instance is marked for, if it is, and waits until it is committed.
pub(crate) fn begin_if_marked(opened: &OpenReplica, door: &Door, config: &Config) {
    let driver = &opened.driver;
    let group = config.group.as_ref().map(|group| group.name.clone());
    let (Some(history), Some(live)) = (driver.marked_for(), group) else { return };
    let has_begun = || door.look(|instance| instance.histories().get(history).is_some());
    // What is behind the last batch of the time before this promotion is of the new history.
    let fork = driver.last_before(history).end;
    let cause = driver.promotion_order().map(|order| order.cause).unwrap_or_default();
    let (mut is_decided, mut is_said) = (has_begun(), false);
    while driver.leads() && !has_begun() {
        if !is_decided {
            match door.begin_history_behind(fork, (history, &live), &cause) {
                Ok(()) => is_decided = true,
                Err(refusal) if !is_said => {
                    is_said = true;
                    say(&REGION_NOT_BEGUN, &[&history.to_string(), &refusal]);
                }
                Err(_) => {}
            }
        }
        driver.wait_until(LOOK_MAX, has_begun);
    }
    if let Some(at) = place_of_history(driver, history) {
        driver.becomes(true, history, at);
    }
}
