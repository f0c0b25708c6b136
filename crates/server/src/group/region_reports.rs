//! What an instance says twice a second of both regions: to the other group how its own one is, and
//! to the other instances of its own what it knows of the other group.
//!
//! Not here: what is said (`region`), how it gets there (`RegionPart::tell`, `ClientAddresses`).

use std::sync::Arc;

use towline_engine::GroupView;
use towline_replication::region_condition::CONDITION_INTERVAL;
use towline_replication::region_part::RegionPart;

use super::addresses::ClientAddresses;
use super::status::View;

/// Says it until dropped.
pub(super) async fn say(part: Arc<RegionPart>, view: Arc<View>, addresses: Arc<ClientAddresses>) {
    let mut interval = tokio::time::interval(CONDITION_INTERVAL);
    loop {
        interval.tick().await;
        let (part, view) = (Arc::clone(&part), Arc::clone(&view));
        let addresses = Arc::clone(&addresses);
        // A disk that hangs may keep it waiting.
        let told = tokio::task::spawn_blocking(move || {
            view.note_certificate();
            // It is as old as its oldest part.
            let at = part.saying_time();
            let group = view.group();
            if part.receives() {
                view.tell();
            }
            if let Some(other) = &group.other_region {
                part.tell(&other.here, at);
                addresses.tell(other);
            }
        });
        if let Err(error) = told.await {
            tracing::warn!(%error, "what is said to the other region");
        }
    }
}
