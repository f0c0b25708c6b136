//! What is said of a rehearsal. No logic.

use serde::{Deserialize, Serialize};

use super::Held;
use crate::failure::Failure;
use crate::show;

/// Queues that are shown, the deepest ones; JSON has all.
const QUEUES_SHOWN: usize = 20;

/// What there is to say of a rehearsal.
#[derive(Debug, Default, Serialize)]
pub(super) struct RehearsalReport {
    group: String,
    instance: String,
    pub(super) queue_manager: String,
    pub(super) url: String,
    /// The recovery point.
    pub(super) lsn: String,
    /// Time of day when it was taken.
    at: String,
    /// The newest time of which it is known that the log was no longer than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_was_longer_at: Option<String>,
    image_lsn: String,
    image_was_taken: bool,
    /// Until the instance held its log.
    held_ms: u64,
    /// Until clients could connect.
    serving_ms: u64,
    pub(super) messages: u64,
    pub(super) queues: Vec<QueueDepth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) check: Option<CheckReport>,
    /// Blocks that it wrote beside the log.
    pub(super) written_bytes: u64,
    pub(super) took_ms: u64,
}

/// A queue and what is on it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct QueueDepth {
    pub(super) name: String,
    pub(super) depth: u64,
}

/// What came of the check.
#[derive(Debug, Serialize)]
pub(super) struct CheckReport {
    pub(super) command: Vec<String>,
    /// None: a signal ended it.
    pub(super) exit_code: Option<i32>,
    pub(super) ended: String,
    pub(super) took_ms: u64,
}

impl RehearsalReport {
    pub(super) fn of(held: Held, serving_ms: u64) -> RehearsalReport {
        let Held {
            group,
            instance,
            lsn,
            image_lsn,
            image_was_taken,
            at,
            log_was_longer_at,
            took_ms,
            ..
        } = held;
        RehearsalReport {
            group,
            instance,
            lsn,
            image_lsn,
            image_was_taken,
            at,
            log_was_longer_at,
            held_ms: took_ms,
            serving_ms,
            ..RehearsalReport::default()
        }
    }

    pub(super) fn show(&self) -> Result<(), Failure> {
        let RehearsalReport { group, instance, lsn, at, queue_manager, url, .. } = self;
        show::line(&format!("Rehearsal with group {group}, instance {instance}"))?;
        show::line(&format!("  recovery point  {lsn}, {at}"))?;
        show::line(&format!("  serves          {queue_manager} at {url}, {} ms", self.serving_ms))?;
        show::line(&format!(
            "  messages        {} on {} queues",
            self.messages,
            self.queues.len()
        ))?;
        let mut deepest: Vec<&QueueDepth> =
            self.queues.iter().filter(|queue| queue.depth > 0).collect();
        deepest.sort_by_key(|queue| std::cmp::Reverse(queue.depth));
        for queue in deepest.iter().take(QUEUES_SHOWN) {
            show::line(&format!("  {:>14}  {}", queue.depth, queue.name))?;
        }
        match deepest.len().saturating_sub(QUEUES_SHOWN) {
            0 => Ok(()),
            more => show::line(&format!("  {more} more queues have messages: see --json")),
        }
    }
}

impl CheckReport {
    pub(super) fn show(&self) -> Result<(), Failure> {
        show::line(&format!("  check           {}, {} ms", self.ended, self.took_ms))
    }
}
