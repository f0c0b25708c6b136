//! Looks whether this instance could hold the floating address, before it is active: the others,
//! and the operator, must know it when they choose which instance is to be active.
//!
//! Not here: holding the address (`towline_floating`), what follows (`hand_over`, `preferred`).

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::FLOATING_NOT_HELD;
use towline_config::FloatingConfig;
use towline_logging::log;
use towline_replication::driver::Driver;

/// An interface may come and go; capabilities stay as they are.
const INTERVAL: Duration = Duration::from_secs(2);

/// Looks until dropped; what speaks against it is logged once.
pub(super) async fn watch(driver: Arc<Driver>, floating: Option<FloatingConfig>) {
    let Some(config) = floating else { return };
    let mut logged = None;
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        let why = towline_floating::obstacle(&config);
        driver.conditions().refuses_address(why.is_some());
        if let Some(why) = why.as_ref().filter(|why| logged.as_ref() != Some(*why)) {
            log(&FLOATING_NOT_HELD, &[&config.address.to_string(), &config.interface, why]);
        }
        logged = why;
    }
}
