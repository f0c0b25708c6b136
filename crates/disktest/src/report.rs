//! The result of a run, with stable names for programs: units last, `null` where something was not
//! looked at. The names are documented in docs/guides/choosing-a-disk.md.

use serde::Serialize;

use super::honesty::{Judgement, Verdict};
use super::location::FolderLocation;
use super::locks::LockTest;
use super::measure::{Latency, Slice};
use super::predict::Prediction;

/// Version of the names. A name that changes or goes raises it, a new one does not.
const VERSION: u32 = 1;

/// What a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    /// Whether a queue manager may trust this disk.
    pub(crate) fit: bool,
    #[serde(flatten)]
    pub(crate) place: FolderLocation,
    pub(crate) elapsed_s: f64,
    /// `None`: no file was written.
    pub(crate) file_bytes: Option<u64>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) skipped: Vec<SkippedMode>,
    /// What such a disk is like; of the fastest way with the smallest block.
    pub(crate) latency_class: Option<&'static str>,
    /// Part of the measured time in which not the disk was waited for but a processor.
    pub(crate) processor_wait_percent: Option<f64>,
    pub(crate) predictions: Vec<Prediction>,
    /// How the predictions' batches were written.
    pub(crate) prediction_mode: Option<&'static str>,
    pub(crate) sync: Option<Judgement>,
    pub(crate) locks: Option<Vec<LockTest>>,
}

/// One way of writing with one size.
#[derive(Debug, Serialize)]
pub(crate) struct Block {
    pub(crate) mode: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) writes_count: u64,
    pub(crate) written_bytes: u64,
    pub(crate) elapsed_s: f64,
    #[serde(flatten)]
    pub(crate) latency: Latency,
    pub(crate) rate_min_bytes_per_s: u64,
    pub(crate) rate_avg_bytes_per_s: u64,
    pub(crate) rate_max_bytes_per_s: u64,
    /// Of each second, in order.
    pub(crate) rates_bytes_per_s: Vec<u64>,
}

/// A way of writing that is not possible here.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SkippedMode {
    pub(crate) mode: &'static str,
    pub(crate) reason: String,
}

impl Report {
    /// Nothing found yet.
    pub(crate) fn of(place: FolderLocation) -> Report {
        Report {
            version: VERSION,
            fit: true,
            place,
            elapsed_s: 0.0,
            file_bytes: None,
            blocks: Vec::new(),
            skipped: Vec::new(),
            latency_class: None,
            processor_wait_percent: None,
            predictions: Vec::new(),
            prediction_mode: None,
            sync: None,
            locks: None,
        }
    }

    /// Draws the conclusions.
    pub(crate) fn conclude(&mut self, elapsed_s: f64) {
        self.elapsed_s = (elapsed_s * 1e3).round() / 1e3;
        let smallest = self.blocks.iter().map(|block| block.block_bytes).min();
        let best = self.blocks.iter().filter(|block| Some(block.block_bytes) == smallest);
        let best = best.map(|block| block.latency.avg).reduce(f64::min);
        self.latency_class = best.map(class);
        let lies = self.sync.as_ref().is_some_and(|sync| sync.verdict == Verdict::Lies);
        let locks_fail = self.locks.iter().flatten().any(|test| !test.passed);
        self.fit = !lies && !locks_fail;
    }
}

/// What to expect of kinds of storage (the README of IBM's mqldt), by the average latency of a
/// write in microseconds.
fn class(avg_us: f64) -> &'static str {
    match avg_us {
        us if us < 100.0 => "NVMe (below 100 us)",
        us if us < 7_000.0 => "a disk or a storage network (below 7 ms)",
        us if us < 10_000.0 => "block storage of a cloud (below 10 ms)",
        us if us < 50_000.0 => "file storage of a cloud (below 50 ms)",
        _ => "nothing that a queue manager should run on (50 ms and more)",
    }
}

impl From<&Slice> for Block {
    fn from(slice: &Slice) -> Block {
        Block {
            mode: slice.way.name(),
            block_bytes: slice.block_bytes,
            writes_count: slice.writes,
            written_bytes: slice.written_bytes(),
            elapsed_s: (slice.elapsed.as_secs_f64() * 1e3).round() / 1e3,
            latency: slice.latency,
            rate_min_bytes_per_s: slice.rate_min(),
            rate_avg_bytes_per_s: slice.rate_avg(),
            rate_max_bytes_per_s: slice.rate_max(),
            rates_bytes_per_s: slice.rates.clone(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::honesty::Probe;
    use super::super::location::{Device, Kind};
    use super::super::locks::LockTest;
    use super::super::predict::{Load, predict};
    use super::*;

    /// A report with something of everything.
    pub(crate) fn sample() -> Report {
        let device = Device {
            name: "nvme0n1".into(),
            write_cache: Some("write back".into()),
            fua: Some(true),
            rotational: Some(false),
            is_virtual: false,
        };
        let mut report = Report::of(FolderLocation {
            folder: "/var/lib/towline".into(),
            file_system: "xfs".into(),
            kind: Kind::Local,
            mount_source: Some("/dev/nvme0n1p2".into()),
            mount_options: vec!["rw".into()],
            device: Some(device),
        });
        report.file_bytes = Some(64 << 20);
        for (mode, factor) in [("direct-dsync", 1.0), ("buffered-sync", 12.5)] {
            for block_bytes in [4 << 10, 1 << 20] {
                let us = |times: f64| 52.4 * factor * times;
                report.blocks.push(Block {
                    mode,
                    block_bytes,
                    writes_count: 1_234_567,
                    written_bytes: 1_234_567 * block_bytes,
                    elapsed_s: 5.0,
                    latency: Latency {
                        min: us(0.5),
                        avg: us(1.0),
                        p50: us(0.9),
                        p99: us(9.0),
                        p999: us(90.0),
                        max: us(9_000.0),
                    },
                    rate_min_bytes_per_s: 21_200_000,
                    rate_avg_bytes_per_s: 22_300_000,
                    rate_max_bytes_per_s: 2_340_000_000,
                    rates_bytes_per_s: vec![21_200_000, 22_300_000, 2_340_000_000],
                });
            }
        }
        report.skipped.push(SkippedMode { mode: "direct-dsync", reason: "refused".into() });
        report.predictions = vec![predict(Load::of(64), std::time::Duration::from_micros(120))];
        report.prediction_mode = Some("direct-sync");
        report.processor_wait_percent = Some(62.5);
        report.sync = Some(Judgement {
            verdict: Verdict::Honest,
            evidence: vec!["it said something that is long ".repeat(6)],
            probe: Probe {
                buffered_write_p50_us: 2.0,
                buffered_sync_p50_us: 100.0,
                direct_write_p50_us: Some(10.0),
                direct_sync_p50_us: None,
                bulk_sync_bytes_per_s: 1e9,
            },
        });
        report.locks = Some(vec![LockTest {
            test: "counting under the lock",
            lock: Some("flock"),
            passed: false,
            seen: "2 x 100 gave 187".into(),
            meaning: "UNFIT: instances overwrite each other's files",
        }]);
        report.conclude(59.9);
        report
    }

    #[test]
    fn names_of_fields_stay() {
        let value = serde_json::to_value(sample()).unwrap();
        let keys = |value: &serde_json::Value| -> String {
            let object = value.as_object().unwrap();
            object.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            keys(&value),
            "blocks device elapsed_s file_bytes file_system file_system_kind fit folder \
             latency_class locks mount_options mount_source prediction_mode predictions \
             processor_wait_percent skipped sync version"
        );
        assert_eq!(
            keys(&value["blocks"][0]),
            "block_bytes elapsed_s latency_avg_us latency_max_us latency_min_us latency_p50_us \
             latency_p999_us latency_p99_us mode rate_avg_bytes_per_s rate_max_bytes_per_s \
             rate_min_bytes_per_s rates_bytes_per_s writes_count written_bytes"
        );
        assert_eq!(
            keys(&value["predictions"][0]),
            "batch_bytes clients_count disk_commits_per_s expected_commits_per_s latency_avg_us \
             message_bytes"
        );
        assert_eq!(
            keys(&value["sync"]),
            "buffered_sync_p50_us buffered_write_p50_us bulk_sync_bytes_per_s \
             direct_sync_p50_us direct_write_p50_us evidence verdict"
        );
        assert_eq!(keys(&value["locks"][0]), "lock meaning passed seen test");
        assert_eq!(keys(&value["device"]), "fua name rotational virtual write_cache");
    }

    #[test]
    fn lies_and_locks_that_fail_make_a_disk_unfit_and_suspicion_does_not() {
        let fit = |change: fn(&mut Report)| {
            let mut report = sample();
            report.locks = None;
            change(&mut report);
            report.conclude(1.0);
            report.fit
        };
        let verdict = |report: &mut Report, verdict| {
            report.sync.as_mut().unwrap().verdict = verdict;
        };
        assert!(fit(|_| {}));
        assert!(fit(|report| report.sync = None));
        assert!(fit(|report| report.sync.as_mut().unwrap().verdict = Verdict::Suspicious));
        assert!(!fit(|report| report.sync.as_mut().unwrap().verdict = Verdict::Lies));
        let mut report = sample();
        verdict(&mut report, Verdict::Honest);
        report.conclude(1.0);
        assert!(!report.fit, "a lock test failed");
    }
}
