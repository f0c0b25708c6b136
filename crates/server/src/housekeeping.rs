//! What happens without a request: time passes for the node, and extents without live messages are
//! given back to the log.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::HOUSEKEEPING_FAILED;
use towline_core::CarryCursor;
use towline_log::Space;
use towline_node::OldBody;
use towline_types::Lsn;

use crate::bodies;
use crate::door::Door;
use crate::logging::log;

/// How often the node is told that time passes (expiry scans, ages of units of work).
const TICK: Duration = Duration::from_millis(250);
/// How often the log is looked at.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(1);

/// Steps the node as time passes, until dropped.
pub(crate) async fn tick(door: Arc<Door>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if door.tick_is_due() {
            door.tick();
        }
    }
}

/// Extents that the log may have beyond twice its live bytes before old messages are carried.
const EXTENTS_SPARE: u64 = 4;

/// Logs the live messages of the oldest extent again when most of the log holds nothing that lives:
/// one message that nobody gets must not keep all that was logged after it.
pub(crate) fn carry_if_due(door: &Door, extent_bytes: u64) {
    let log = door.log();
    // What is left of the log is for gets: they free more than carrying would.
    if log.space() != Space::Ample {
        return;
    }
    let (live_bytes, keep_from) =
        door.look(|instance| (instance.live_bytes(), instance.keep_from()));
    let in_use = log.durable().0.saturating_sub(keep_from.0);
    if in_use < 2 * live_bytes + EXTENTS_SPARE * extent_bytes {
        return;
    }
    let before = Lsn(keep_from.0.saturating_add(extent_bytes));
    let mut cursor = CarryCursor::default();
    let mut found = Vec::new();
    loop {
        let done = door.look(|instance| instance.find_old(before, &mut cursor, &mut found));
        for OldBody { queue, sequence, body } in found.drain(..) {
            if log.space() != Space::Ample {
                return;
            }
            match bodies::read(&log, &body) {
                Ok(content) => door.carry(queue, sequence, content),
                Err(error) => door.unreadable_body(&error),
            }
        }
        if done {
            return;
        }
    }
}

/// Gives extents back as their last message goes, until dropped.
pub(crate) async fn reclaim(door: Arc<Door>, extent_bytes: u64) {
    let mut interval = tokio::time::interval(RECLAIM_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut kept_from = Lsn::ZERO;
    loop {
        interval.tick().await;
        let carrier = Arc::clone(&door);
        let carried = tokio::task::spawn_blocking(move || carry_if_due(&carrier, extent_bytes));
        if let Err(error) = carried.await {
            log(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
        }
        let keep_from = door.look(|instance| instance.keep_from());
        // An image costs two syncs: one for each extent is rare enough.
        if keep_from.0 < kept_from.0.saturating_add(extent_bytes) {
            continue;
        }
        let worker = Arc::clone(&door);
        let done = tokio::task::spawn_blocking(move || write_image(&worker)).await;
        match done {
            Ok(Ok(upto)) => kept_from = upto,
            Ok(Err(error)) => log(&HOUSEKEEPING_FAILED, &[&error.to_string()]),
            Err(error) => log(&HOUSEKEEPING_FAILED, &[&error.to_string()]),
        }
    }
}

/// Writes an image and lets go of what lies before it.
pub(crate) fn write_image(door: &Door) -> Result<Lsn, towline_log::LogError> {
    let plan = door.look(|instance| instance.plan_image());
    let log = door.log();
    // The image says itself how far it goes, and a start reads all of the log that is there: the mark
    // only says that the log was durable up to here.
    let Some(mark) = log.mark_at(log.durable()) else { return Ok(Lsn::ZERO) };
    log.write_image(mark, &plan.bytes)?;
    log.reclaim(plan.keep_from)?;
    Ok(plan.keep_from)
}
