//! What was sent to the other region in the last whole interval, for the status.
//!
//! Not here: how it is made (`towline_replication::region_intervals`).

use std::sync::Arc;

use towline_admin::status::RegionIntervalStatus;
use towline_replication::region_intervals::{INTERVAL_LOOK, SentIntervals};
use towline_replication::region_part::RegionPart;
use towline_types::Time;

/// For the status at `now`; `None`: none has passed since this instance ships.
pub(super) fn status(sent: &SentIntervals, now: Time) -> Option<RegionIntervalStatus> {
    let (interval, ended) = sent.last()?;
    let ended_ms_ago = u64::try_from(now.since(ended).as_millis()).unwrap_or(u64::MAX);
    Some(RegionIntervalStatus {
        interval_us: interval.interval_us,
        log_bytes_sent: interval.log_bytes_sent,
        backlog_bytes: interval.backlog_bytes,
        backlog_average_bytes: interval.backlog_average_bytes,
        round_trip_average_us: interval.round_trip_average_us,
        compressed_log_bytes_sent: interval.compressed_log_bytes_sent,
        compression_average_us: interval.compression_average_us,
        log_bytes_decompressed: interval.log_bytes_decompressed,
        decompression_average_us: interval.decompression_average_us,
        rebase_count: interval.rebases,
        recovery_lsn: interval.recovery.to_string(),
        recovery_lsn_hex: format!("0x{:016x}", interval.recovery.0),
        ended_ms_ago,
    })
}

/// Makes one interval after the other, until dropped.
pub(super) async fn watch(part: Arc<RegionPart>, sent: Arc<SentIntervals>) {
    let mut tick = tokio::time::interval(INTERVAL_LOOK);
    loop {
        tick.tick().await;
        sent.look(&part);
    }
}
