//! How many commits per second a queue manager will reach, from what batches take to write.
//!
//! The model is in docs/guides/choosing-a-disk.md. It knows the disk by measurement, and processors
//! by two constants; so it tells the order, not the last ten percent. Not here: measuring.

use std::time::Duration;

use serde::Serialize;

/// A message of the prediction: 2 KB, as in the published tests of IBM MQ.
pub(crate) const MESSAGE_BYTES: u64 = 2048;
/// What the log adds to a message: the record's own fields and AMQP's headers (88 bytes at 1 KB in
/// docs/benchmarks/bars.md).
const RECORD_BYTES: u64 = 88;
/// Header of a batch (docs/internals/log-format.md).
const BATCH_HEADER_BYTES: u64 = 40;
/// A batch is padded to whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// From this time of a write and its sync on, the log lets several batches go at a time.
const SLOW_WRITE_US: f64 = 1_000.0;
/// Way of one commit without the disk: client, two sockets, four changes of thread.
const PATH_US: f64 = 150.0;
/// Processor time of one commit, client and queue manager together, on one of two processors.
const COMMIT_CPU_US: f64 = 20.0;

/// Clients that a run predicts for.
pub(crate) const CLIENTS: [u64; 3] = [1, 10, 64];

/// How many clients there are and how their commits share batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) clients: u64,
    /// Commits in a batch on a fast disk.
    pub(crate) commits: u64,
}

impl Load {
    /// Each client puts one message, waits for its commit, and puts the next. While one batch is
    /// written, the other clients fill the next: half of them ride in each. One client rides alone.
    pub(crate) fn of(clients: u64) -> Load {
        Load { clients, commits: clients.div_ceil(2) }
    }

    /// Bytes of the write.
    pub(crate) fn batch_bytes(self) -> u64 {
        let content = BATCH_HEADER_BYTES + self.commits * (MESSAGE_BYTES + RECORD_BYTES);
        content.next_multiple_of(BLOCK_BYTES)
    }
}

/// A prediction for a number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Prediction {
    #[serde(rename = "clients_count")]
    pub(crate) clients: u64,
    pub(crate) message_bytes: u64,
    pub(crate) batch_bytes: u64,
    /// Time of a write and its sync of such a batch.
    pub(crate) latency_avg_us: f64,
    /// What the disk alone would allow.
    pub(crate) disk_commits_per_s: f64,
    /// With the rest of the way, and the processors of a small machine.
    pub(crate) expected_commits_per_s: f64,
}

/// Predicts, from the average time of a write and its sync of [`Load::batch_bytes`].
pub(crate) fn predict(load: Load, latency: Duration) -> Prediction {
    let Load { clients, commits } = load;
    let latency_us = latency.as_secs_f64() * 1e6;
    // On a slow disk, batches go side by side, and within one write's time each client has a turn.
    let commits_a_turn = if latency_us >= SLOW_WRITE_US { clients } else { commits } as f64;
    let per_second = 1e6 / latency_us.max(0.1);
    let disk = commits_a_turn * per_second;
    // A client's own turn bounds it from one side, the processors all of them from the other.
    let turn_us = latency_us + PATH_US;
    let by_turns = if latency_us >= SLOW_WRITE_US || clients == 1 {
        clients as f64 * 1e6 / turn_us
    } else {
        // One batch is under way, one fills: a client's turn is up to two writes.
        (clients as f64 * 1e6 / turn_us).min(disk)
    };
    let expected = by_turns.min(1e6 / COMMIT_CPU_US);
    Prediction {
        clients,
        message_bytes: MESSAGE_BYTES,
        batch_bytes: load.batch_bytes(),
        latency_avg_us: (latency_us * 10.0).round() / 10.0,
        disk_commits_per_s: disk.round(),
        expected_commits_per_s: expected.round(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(clients: u64, latency: Duration) -> f64 {
        predict(Load::of(clients), latency).expected_commits_per_s
    }

    #[test]
    fn batches_are_padded_as_the_log_pads_them() {
        assert_eq!(Load::of(1), Load { clients: 1, commits: 1 });
        assert_eq!(Load::of(1).batch_bytes(), 4096);
        assert_eq!(Load::of(10).batch_bytes(), 12_288);
        assert_eq!(Load::of(64).batch_bytes(), 69_632);
    }

    #[test]
    fn on_a_slow_disk_clients_share_the_sync() {
        let slow = Duration::from_millis(5);
        let (one, many) = (expected(1, slow), expected(64, slow));
        assert!((180.0..200.0).contains(&one), "{one}");
        assert!(many / one >= 40.0, "{many} / {one}");
    }

    #[test]
    fn on_a_fast_disk_the_rest_of_the_way_counts() {
        let fast = Duration::from_micros(50);
        let prediction = predict(Load::of(1), fast);
        assert!(prediction.expected_commits_per_s < prediction.disk_commits_per_s / 2.0);
        assert!(expected(64, fast) <= 1e6 / COMMIT_CPU_US);
        assert!(expected(10, fast) > expected(1, fast));
    }
}
