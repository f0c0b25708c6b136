//! What a rehearsal reads: the log of this recovery instance up to its recovery point, which is
//! held as long as the rehearsal goes on. Another process reads the files where they are; see
//! [`SharedLog`].
//!
//! Not here: that process, and the connection on which it says that it lives (the daemon).
//! Invariants: what is shown is committed in this group; this instance goes first: it lets go when
//! its log is tight, when too much is held, and when its group is to be promoted.

use std::time::Duration;

use towline_config::GroupConfig;
use towline_engine::backup::patiently;
use towline_engine::{ImageReport, SharedLog, SharedPagesHold};
use towline_group::Mode;
use towline_log::{Hold, Space};
use towline_types::{Lsn, limits};

use crate::open::OpenReplica;

/// With more log behind the newest image a new one is taken first: to read it takes longer.
const BEHIND_IMAGE_MAX: u64 = 16 * 1024 * 1024;
/// How long is waited until all that this instance has is committed.
const COMMIT_MAX: Duration = Duration::from_millis(300);
/// Bytes of log that are kept for a rehearsal and for nothing else.
const HELD_BYTES_MAX: u64 = 16 << 30;

/// See the module. Dropping it lets go.
pub struct RehearsedLog {
    /// What is read.
    pub log: SharedLog,
    /// The image that was taken for it.
    pub image: Option<ImageReport>,
    hold: Hold,
    _pages: SharedPagesHold,
}

/// Holds the log for a rehearsal, which may write `room_bytes` bytes beside it.
///
/// # Errors
/// Why this instance can give none, in words for the operator.
pub fn share(
    opened: &OpenReplica,
    group: &GroupConfig,
    room_bytes: u64,
) -> Result<RehearsedLog, String> {
    let driver = &opened.driver;
    if let Some(why) = not_following(opened) {
        return Err(format!("{why}: group '{}' cannot be rehearsed with", group.name));
    }
    let log = driver.log();
    let free = log.disk().free_bytes();
    // What this instance needs for itself is not touched.
    let needed = room_bytes.saturating_add(2 * log.extent_bytes());
    if free < needed {
        return Err(format!(
            "the disk has {free} bytes free, and {needed} are needed: {room_bytes} for what the \
             rehearsal writes, and two extents; see --room"
        ));
    }
    if opened.images.owes_rebuilt() {
        return Err("the queues of this instance are being rebuilt from its log: try again".into());
    }
    // What it has it may not know yet to be committed: its leader says so with what it sends next.
    let has = log.durable();
    driver.wait_until(COMMIT_MAX, || driver.committed_end() >= has);
    // Before the image is chosen: what it refers to must not go meanwhile.
    let (hold, pages) = (log.hold(Lsn::ZERO), opened.images.share_pages());
    let behind = log.image_at().map(|newest| driver.committed_end().0.saturating_sub(newest.0));
    let image = match behind.is_none_or(|bytes| bytes > BEHIND_IMAGE_MAX) {
        true => take_image(opened),
        false => None,
    };
    if log.image_at().is_none() {
        return Err("this instance has no image yet: try again when it has received log".into());
    }
    let shared = patiently(|| {
        let upto = driver.committed_end();
        SharedLog::of(log, upto, room_bytes).map_err(|error| error.to_string())
    })?;
    hold.only_from(Lsn(shared.first_extent.saturating_mul(shared.extent_bytes)));
    Ok(RehearsedLog { log: shared, image, hold, _pages: pages })
}

/// Without one more log is read at the start.
fn take_image(opened: &OpenReplica) -> Option<ImageReport> {
    let take = || opened.images.take(opened.replica.as_ref()).map_err(|error| error.to_string());
    match patiently(take) {
        Ok(image) => Some(image),
        Err(error) => {
            tracing::warn!(%error, "no new image can be taken for a rehearsal");
            None
        }
    }
}

fn not_following(opened: &OpenReplica) -> Option<&'static str> {
    let driver = &opened.driver;
    match driver.mode() {
        _ if driver.is_ending() => Some("this instance ends"),
        _ if opened.door().is_some() => Some("this instance is active"),
        Mode::Recovery => None,
        Mode::Voting => Some("its group is live, and not one of recovery"),
        Mode::Promoting => Some("its group is being promoted"),
    }
}

impl RehearsedLog {
    /// Why the rehearsal must end now. `percent`: the part of the log that is in use.
    #[must_use]
    pub fn objection(&self, opened: &OpenReplica, percent: u64) -> Option<String> {
        if let Some(why) = not_following(opened) {
            return Some(why.to_owned());
        }
        let log = opened.driver.log();
        let Some(from) = self.hold.from() else { return Some("the log was let go".to_owned()) };
        let bytes = log.bytes_held_back(from);
        let is_tight = percent >= limits::LOG_HOLD_PERCENT || log.space() != Space::Ample;
        match bytes {
            0 => None,
            _ if is_tight => Some(format!("the log is {percent} % full, and goes on")),
            HELD_BYTES_MAX.. => Some(format!("{bytes} bytes of log are kept for it")),
            _ => None,
        }
    }
}
