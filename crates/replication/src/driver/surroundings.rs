//! What a driver takes from its process and its configuration.

use std::time::Duration;

use bytes::Bytes;
use towline_config::GroupConfig;
use towline_types::Time;

use super::log_ids::MadeIds;

/// What a driver takes from its process.
pub struct Surroundings {
    /// The time now; it never jumps.
    pub now: Box<dyn Fn() -> Time + Send + Sync>,
    /// Exit status of a process after a failure of its log.
    pub log_failed_status: i32,
    /// The format level that a program must read for the payload of a batch.
    pub level_of: Box<dyn Fn(&Bytes) -> u8 + Send + Sync>,
    /// HeartbeatInterval and HeartbeatTimeout of the group.
    pub heartbeat: Heartbeat,
    /// The ids that a log of this group gets without a question.
    pub made_ids: MadeIds,
}

/// The times of a group's heartbeats.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// HeartbeatInterval.
    pub interval: Duration,
    /// HeartbeatTimeout.
    pub timeout: Duration,
}

impl Heartbeat {
    /// That of a configured group.
    #[must_use]
    pub fn of(group: &GroupConfig) -> Heartbeat {
        Heartbeat { interval: group.heartbeat_interval(), timeout: group.heartbeat_timeout() }
    }
}
