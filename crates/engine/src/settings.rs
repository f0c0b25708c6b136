//! The configuration as the log and the rules take it.

use std::time::Duration;

use towline_config::{Config, LOG_BLOCK_BYTES};
use towline_core::{AutoDefine, Limits};
use towline_log::Options;
use towline_log::format::BLOCK_BYTES;
use towline_types::limits;

const _: () = assert!(LOG_BLOCK_BYTES == BLOCK_BYTES as u64, "the two are the same blocks");

/// The bound of the log in bytes; without one, the largest number.
pub(crate) fn log_bytes_max(config: &Config) -> u64 {
    if config.log.log_bytes_max == 0 { u64::MAX } else { config.log.log_bytes_max }
}

/// The options of the log.
#[must_use]
pub fn options(config: &Config) -> Options {
    let log = &config.log;
    Options {
        extent_bytes: log.extent_bytes,
        writes_in_flight_max: log.writes_in_flight_max,
        cache_bytes: usize::try_from(log.cache_bytes).unwrap_or(usize::MAX),
        log_bytes_max: log_bytes_max(config),
        reserve_bytes: log.reserve_bytes,
        ..Options::default()
    }
}

/// The limits of the rules.
#[must_use]
pub fn rules(config: &Config) -> Limits {
    let manager = &config.queue_manager;
    let auto_define = config
        .auto_define
        .iter()
        .map(|rule| AutoDefine { pattern: rule.pattern.clone(), model: rule.model.clone() });
    Limits {
        unit_messages_max: manager.maxumsgs,
        unit_bytes_max: manager.unit_bytes_max,
        unit_staged_bytes_max: limits::UNIT_STAGED_BYTES_MAX,
        unit_age_max: Duration::from_secs(manager.unit_age_max_s),
        units_per_connection_max: limits::UNITS_PER_CONNECTION_MAX,
        staged_puts_max: limits::CONNECTION_STAGED_PUTS_MAX,
        memory_bytes_max: manager.memory_bytes_max,
        message_bytes_max: manager.maxmsgl,
        expired_to_dead_letter: manager.expired_to_deadq,
        dead_letter_queue: manager.deadq.clone(),
        auto_define: auto_define.collect(),
        expiry_scan_interval: Duration::from_secs(manager.expiry_interval_s),
        index_bytes_max: manager.index_bytes_max,
        returned_at_once_max: at_once(limits::RETURNED_AT_ONCE_MAX),
        committed_at_once_max: at_once(limits::COMMITTED_AT_ONCE_MAX),
        // As the log has them; set when the log is open.
        extent_bytes: limits::EXTENT_BYTES_DEFAULT,
    }
}

/// What units of work in a simulation have at most is small: there, what takes more than one step
/// happens from three messages on.
fn at_once(messages: usize) -> usize {
    if towline_os::is_simulated() { 2 } else { messages }
}

#[cfg(test)]
mod tests;
