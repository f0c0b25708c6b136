//! Holds log for the other instances while this one is active, or relays what another region ships,
//! and lets it go when it is due.
//!
//! Not here: for which instance, and how long (`retention`).

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::HOUSEKEEPING_FAILED;
use towline_group::Mode;
use towline_log::{LogError, Stats};

use towline_os::task::{MissedTickBehavior, interval, spawn_blocking};

use crate::driver::Driver;
use crate::retention::RetentionInputs;
use towline_link::Peer;
use towline_logging::log as say;

/// How often holds are looked at: a fast disk fills a small log in a second.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Looks at all holds again and again, until dropped; an instance that is neither active nor a
/// relay has none. `reclaim` lets go of log that is not held any more, and may wait for the disk.
pub async fn watch(
    driver: Arc<Driver>,
    percent_full: impl Fn(&Stats) -> u64 + Send + Sync,
    reclaim: impl Fn() -> Result<(), LogError> + Send + Sync + 'static,
) {
    let reclaim = Arc::new(reclaim);
    let mut ticks = interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !look(&driver, &percent_full) {
            continue;
        }
        let reclaim = Arc::clone(&reclaim);
        if let Ok(Err(error)) = spawn_blocking(move || reclaim()).await {
            say(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
        }
    }
}

/// True when log was let go that is wanted now.
fn look(driver: &Driver, percent_full: &dyn Fn(&Stats) -> u64) -> bool {
    let is_relay = driver.mode() == Mode::Recovery && driver.relays();
    if !is_relay && !driver.leads() {
        driver.retention().let_go();
        return false;
    }
    let group = driver.group();
    driver.retention().look(&RetentionInputs {
        log: driver.log(),
        group: &group,
        names: driver.names(),
        is_connected: &|peer: Peer| driver.is_connected(peer),
        percent_full,
    })
}
