//! How many commits per second a queue manager will reach, from what batches take to write.
//!
//! The model is in docs/guides/choosing-a-disk.md. It knows the disk by measurement, and processors
//! by two constants; so it gives the order of magnitude, not the last ten percent. Not here:
//! measuring.

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
/// On a slow disk some clients miss a turn: each has one in this many times of a write.
/// `towline load put` with 2 and 10 ms of added delay: 1.07 to 1.23.
const SLOW_TURN: f64 = 1.15;
/// Way of a lone commit without the disk: client, two sockets, changes of thread.
const PATH_US: f64 = 130.0;
/// What each batch of several clients costs besides: a writer that wakes, one that steps the
/// instance.
const BATCH_US: f64 = 40.0;
/// Processor time of one commit of many, client and queue manager together, that does not pass
/// while the disk works: on two processors, docs/benchmarks/disktest.md.
const COMMIT_US: f64 = 12.0;

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
    /// With the rest of the way, on the processors of a small machine.
    pub(crate) expected_commits_per_s: f64,
}

/// Predicts, from the average time of a write and its sync of [`Load::batch_bytes`].
pub(crate) fn predict(load: Load, latency: Duration) -> Prediction {
    let (clients, commits) = (load.clients as f64, load.commits as f64);
    let latency_us = (latency.as_secs_f64() * 1e6).max(0.1);
    let (disk, expected) = if load.clients == 1 {
        (1.0 / latency_us, 1.0 / (latency_us + PATH_US + COMMIT_US))
    } else if latency_us < SLOW_WRITE_US {
        // One batch at a time, with half of the clients in it.
        (commits / latency_us, commits / (latency_us + BATCH_US + commits * COMMIT_US))
    } else {
        // Batches side by side: within one write's time each client has its turn, nearly.
        let by_turns = clients / (latency_us * SLOW_TURN + PATH_US);
        (clients / latency_us, by_turns.min(1.0 / COMMIT_US))
    };
    Prediction {
        clients: load.clients,
        message_bytes: MESSAGE_BYTES,
        batch_bytes: load.batch_bytes(),
        latency_avg_us: (latency_us * 10.0).round() / 10.0,
        disk_commits_per_s: (disk * 1e6).round(),
        expected_commits_per_s: (expected * 1e6).round(),
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
        assert!(expected(64, fast) <= 1e6 / COMMIT_US);
        assert!(expected(10, fast) > expected(1, fast));
    }

    #[test]
    fn the_prediction_is_near_what_was_measured() {
        // Clients, time of a write and its sync, commits per second (docs/benchmarks/disktest.md).
        for (clients, latency_us, measured) in [
            (1, 200, 3_088.0),
            (10, 179, 18_843.0),
            (64, 193, 49_463.0),
            (10, 2_700, 3_012.0),
            (64, 2_700, 18_382.0),
            (10, 11_000, 776.0),
            (64, 11_000, 4_666.0),
        ] {
            let ratio = expected(clients, Duration::from_micros(latency_us)) / measured;
            assert!((0.8..1.25).contains(&ratio), "{clients} at {latency_us} us: {ratio:.2}");
        }
    }

    #[test]
    fn no_time_at_all_is_no_division_by_zero() {
        for clients in CLIENTS {
            let prediction = predict(Load::of(clients), Duration::ZERO);
            assert!(prediction.disk_commits_per_s.is_finite(), "{prediction:?}");
            assert!(prediction.expected_commits_per_s > 0.0, "{prediction:?}");
        }
    }
}
