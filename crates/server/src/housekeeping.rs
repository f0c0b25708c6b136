//! What happens without a request: time passes for the node, images are taken when they are due, and
//! extents without live messages are given back to the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towline_admin::catalogue::HOUSEKEEPING_FAILED;
use towline_core::{CarryCursor, FoundOld};
use towline_log::{LogError, Space};
use towline_node::OldBody;
use towline_types::Lsn;

use crate::bodies;
use crate::config::Config;
use crate::door::Door;
use crate::images::Images;
use crate::logging::log;

/// How often the node is told that time passes (expiry scans, ages of units of work).
const TICK: Duration = Duration::from_millis(250);
/// The same, while there is more to do than one tick may: a scan of a million messages takes five
/// seconds, and leaves nearly all of that time to others.
const TICK_UNFINISHED: Duration = Duration::from_millis(10);
/// How often the log is looked at.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(1);

/// Steps the node as time passes, until dropped.
pub(crate) async fn tick(door: Arc<Door>) {
    loop {
        if door.tick_is_due() {
            door.tick();
        }
        let pause = if door.tick_is_due() { TICK_UNFINISHED } else { TICK };
        tokio::time::sleep(pause).await;
    }
}

/// Extents that the log may have beyond twice its live bytes before old messages are carried.
const EXTENTS_SPARE: u64 = 4;

/// Logs the live messages of the oldest extent again when most of the log holds nothing that lives:
/// one message that nobody gets must not keep all that was logged after it.
pub(crate) fn carry_if_due(door: &Door, images: &Images, extent_bytes: u64) {
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
        let step = door.look(|instance| instance.find_old(before, &mut cursor, &mut found));
        for OldBody { queue, sequence, body } in found.drain(..) {
            if log.space() != Space::Ample {
                return;
            }
            match bodies::read(&log, &body) {
                Ok(content) => door.carry(queue, sequence, content),
                Err(error) => door.unreadable_body(&error),
            }
        }
        match step {
            FoundOld::More => {}
            FoundOld::All => return,
            FoundOld::Needs(request) => match images.pages().read(request.page) {
                Ok(content) => door.page(request, &content),
                Err(error) => door.page_unreadable(request, &error.to_string()),
            },
        }
    }
}

/// When images are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    extent_bytes: u64,
    /// IMGLOGLN in bytes of log.
    log_bytes: u64,
    /// IMGINTVL.
    interval: Duration,
}

impl Policy {
    pub(crate) fn of(config: &Config, extent_bytes: u64) -> Policy {
        let manager = &config.queue_manager;
        let megabytes = |of: u64| of.saturating_mul(1024 * 1024);
        let log_bytes = match manager.imglogln {
            0 => u64::MAX,
            // Extents go when two images lie behind them: with small ones, images come sooner.
            length => megabytes(length).min(extent_bytes.saturating_mul(EXTENTS_PER_IMAGE)),
        };
        let interval = match manager.imgintvl {
            0 => Duration::MAX,
            minutes => Duration::from_secs(minutes.saturating_mul(60)),
        };
        Policy { extent_bytes, log_bytes, interval }
    }
}

/// Extents of log after which an image is due in any case.
const EXTENTS_PER_IMAGE: u64 = 4;

/// Takes images when they are due, and gives extents back, until dropped.
pub(crate) async fn reclaim(door: Arc<Door>, images: Arc<Images>, policy: Policy) {
    let mut interval = tokio::time::interval(RECLAIM_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last =
        LastImage { at: door.log().image_at().unwrap_or(Lsn::ZERO), taken: Instant::now() };
    loop {
        interval.tick().await;
        let (worker, taker) = (Arc::clone(&door), Arc::clone(&images));
        let done = tokio::task::spawn_blocking(move || {
            carry_if_due(&worker, &taker, policy.extent_bytes);
            image_if_due(&worker, &taker, policy, last)
        });
        match done.await {
            Ok(Ok(now)) => last = now,
            Ok(Err(error)) => log(&HOUSEKEEPING_FAILED, &[&error.to_string()]),
            Err(error) => log(&HOUSEKEEPING_FAILED, &[&error.to_string()]),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct LastImage {
    at: Lsn,
    taken: Instant,
}

fn image_if_due(
    door: &Door,
    images: &Images,
    policy: Policy,
    last: LastImage,
) -> Result<LastImage, LogError> {
    let log = door.log();
    // Somebody may have asked for one meanwhile.
    let at = log.image_at().unwrap_or(Lsn::ZERO).max(last.at);
    let length = log.durable().0.saturating_sub(at.0);
    let old = length > 0 && last.taken.elapsed() >= policy.interval;
    // Where there is no room, an image is what makes it.
    let pressed = log.space() != Space::Ample && length > 0;
    if length < policy.log_bytes && !old && !pressed {
        return Ok(LastImage { at, ..last });
    }
    match images.take(door)? {
        Some(taken) => Ok(LastImage { at: taken.at, taken: Instant::now() }),
        None => Ok(last),
    }
}
