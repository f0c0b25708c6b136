//! A connection whose requests add to a log that is behind its disk: its share of what may be added
//! out of turn, and what wakes it.
//!
//! Not here: whether the log is behind, and the order of those that wait (`towline_engine`).

use std::task::Context;

use tokio::io::{AsyncRead, AsyncWrite};
use towline_types::limits;

use super::ConnectionTask;
use crate::net::portion;

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Whether it has so little on its way that it does not wait in turn with those that fill the
    /// log: then the next requests are in its share of that. What has no body is a record as well.
    pub(super) fn takes_share(&mut self, count: usize) -> bool {
        const RECORD_BYTES: u64 = 128;
        if self.front.incoming_bytes() as u64 > limits::LOG_SHARE_BYTES {
            return false;
        }
        let requests = self.requests.get(..count).unwrap_or_default();
        let bytes = (portion::bytes(requests) as u64).max(count as u64 * RECORD_BYTES);
        self.door.log_takes_share(&mut self.log_share, bytes)
    }

    /// Has the task woken when the log has caught up, if anything waits for that. True when it has
    /// already.
    pub(super) fn has_log_again(&mut self, context: &Context<'_>) -> bool {
        let waits = self.waits_for_log || self.front.withholds_credit();
        waits && !self.door.wake_when_written(self.id, context)
    }
}
