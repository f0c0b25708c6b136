//! Shared by the tests of this crate: a listener that can be waited for, and short ways to open,
//! write and read a log. Nothing here waits for time to pass.

#![allow(
    clippy::unwrap_used,
    reason = "a test whose log does not open has to fail where it stands"
)]

use std::sync::Arc;
use towline_os::sync::{Condvar, Mutex};

use towline_types::{Lsn, SeededRandom};

use crate::disk::{Disk, MemoryDisk};
use crate::error::LogError;
use crate::extents::Space;
use crate::format::LogId;
use crate::listener::{Listener, Urgency};
use crate::log::Log;
use crate::options::Options;
use crate::recover::{Recovery, ReplayError, Report};

/// The identity of the logs that tests make.
pub const LOG_ID: LogId = LogId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

/// Set in a note that says where the log was cut off, as against how far it is durable.
pub const CUT: u64 = 1 << 63;

/// A listener that remembers.
#[derive(Default)]
pub struct Watch {
    seen: Mutex<Seen>,
    changed: Condvar,
    /// Where durability is noted in the journal.
    disk: Option<MemoryDisk>,
}

#[derive(Default)]
struct Seen {
    durable: Vec<Lsn>,
    failures: Vec<String>,
    durable_after_failure: bool,
    spaces: Vec<Space>,
    hindrances: usize,
    headers_repaired: Vec<String>,
    caught_up: usize,
}

impl Watch {
    /// A listener that keeps all that it hears.
    pub fn new() -> Arc<Watch> {
        Arc::new(Watch::default())
    }

    /// Notes each durable position in the disk's journal too.
    pub fn noting(disk: &MemoryDisk) -> Arc<Watch> {
        Arc::new(Watch { disk: Some(disk.clone()), ..Watch::default() })
    }

    /// Waits until the log is durable up to `upto`.
    pub fn wait_durable(&self, upto: Lsn) {
        let mut seen = self.seen.lock();
        while seen.durable.last().is_none_or(|durable| *durable < upto) {
            assert!(seen.failures.is_empty(), "the log failed: {:?}", seen.failures);
            self.changed.wait(&mut seen);
        }
    }

    /// Whether it became durable: false when the log failed before.
    pub fn wait_durable_or_failed(&self, upto: Lsn) -> bool {
        let mut seen = self.seen.lock();
        while seen.durable.last().is_none_or(|durable| *durable < upto) {
            if !seen.failures.is_empty() {
                return false;
            }
            self.changed.wait(&mut seen);
        }
        true
    }

    /// Waits until the log failed; yields the reason.
    pub fn wait_failed(&self) -> String {
        let mut seen = self.seen.lock();
        while seen.failures.is_empty() {
            self.changed.wait(&mut seen);
        }
        seen.failures[0].clone()
    }

    /// Waits until `space` is called, or takes a call that was made since the last wait.
    pub fn wait_space(&self, space: Space) {
        let mut seen = self.seen.lock();
        loop {
            let found = seen.spaces.iter().position(|told| *told == space);
            if let Some(found) = found {
                seen.spaces.drain(..=found);
                return;
            }
            self.changed.wait(&mut seen);
        }
    }

    /// Waits until the log has caught up, or takes a call that was made since the last wait.
    pub fn wait_caught_up(&self) {
        let mut seen = self.seen.lock();
        while seen.caught_up == 0 {
            self.changed.wait(&mut seen);
        }
        seen.caught_up -= 1;
    }

    /// Calls of `caught_up` that no test has waited for.
    pub fn caught_up(&self) -> usize {
        self.seen.lock().caught_up
    }

    /// How often the preparation of an extent failed.
    pub fn hindrances(&self) -> usize {
        self.seen.lock().hindrances
    }

    /// Extents whose headers were written again.
    pub fn headers_repaired(&self) -> Vec<String> {
        self.seen.lock().headers_repaired.clone()
    }

    /// All durable positions, in the order in which they were heard.
    pub fn durable(&self) -> Vec<Lsn> {
        self.seen.lock().durable.clone()
    }

    /// How often the log failed.
    pub fn failures(&self) -> usize {
        let seen = self.seen.lock();
        assert!(!seen.durable_after_failure, "durability reported after a failure");
        seen.failures.len()
    }
}

impl Listener for Watch {
    fn durable(&self, upto: Lsn) {
        if let Some(disk) = &self.disk {
            disk.note(upto.0);
        }
        let mut seen = self.seen.lock();
        assert!(seen.durable.last().is_none_or(|last| *last < upto), "durability ascends");
        seen.durable_after_failure |= !seen.failures.is_empty();
        seen.durable.push(upto);
        self.changed.notify_all();
    }

    fn cut(&self, upto: Lsn) {
        if let Some(disk) = &self.disk {
            disk.note(CUT | upto.0);
        }
        let mut seen = self.seen.lock();
        seen.durable.retain(|durable| *durable <= upto);
    }

    fn failed(&self, error: &LogError) {
        self.seen.lock().failures.push(error.to_string());
        self.changed.notify_all();
    }

    fn header_repaired(&self, file: &str) {
        self.seen.lock().headers_repaired.push(file.to_owned());
    }

    fn hindered(&self, _error: &LogError) {
        self.seen.lock().hindrances += 1;
    }

    fn caught_up(&self) {
        self.seen.lock().caught_up += 1;
        self.changed.notify_all();
    }

    fn space(&self, space: Space) {
        self.seen.lock().spaces.push(space);
        self.changed.notify_all();
    }
}

/// A record with its position.
pub type Record = (Lsn, Vec<u8>);

/// Opens and replays.
pub fn recover(
    disk: &Arc<dyn Disk>,
    options: Options,
) -> Result<(Recovery, Report, Vec<Record>), LogError> {
    let mut recovery = Recovery::open(Arc::clone(disk), options, LOG_ID)?;
    let mut records = Vec::new();
    let replayed = recovery.replay(|lsn, bytes| {
        records.push((lsn, bytes.to_vec()));
        Ok::<(), std::convert::Infallible>(())
    });
    match replayed {
        Ok(report) => Ok((recovery, report, records)),
        Err(ReplayError::Log(error)) => Err(error),
        Err(ReplayError::Record { error, .. }) => match error {},
    }
}

/// Opens, replays into nothing, starts.
pub fn start(disk: &Arc<dyn Disk>, options: Options, watch: &Arc<Watch>) -> Log {
    let (recovery, _, _) = recover(disk, options).unwrap();
    let listener: Arc<dyn Listener> = Arc::clone(watch) as Arc<dyn Listener>;
    recovery.start(listener).unwrap()
}

/// Appends a run; returns its records' positions and its end.
pub fn append(log: &Log, records: &[Vec<u8>], urgency: Urgency) -> (Vec<Lsn>, Lsn) {
    let mut appender = log.appender();
    let write = |record: &Vec<u8>| {
        let bytes = record.clone();
        appender.record_with_body(bytes.len(), move |buffer| {
            buffer.extend_from_slice(&bytes);
            Some(head_of(bytes.len()))
        })
    };
    let places = records.iter().map(write).collect();
    (places, appender.commit(urgency).unwrap())
}

/// Where the body begins in a record of [`append`]; some have none before it.
pub fn head_of(bytes: usize) -> usize {
    (bytes / 3).min(20)
}

/// Writes an image of what lies before `at`.
pub fn image(log: &Log, at: Lsn, bytes: &[u8]) {
    let mark = log.mark_at(at);
    assert!(mark.is_some(), "{at} is durable, and not long");
    if let Some(mark) = mark {
        log.write_image(mark, bytes).unwrap();
    }
}

/// Bytes that differ from position to position, so that a mix-up shows.
pub fn body(random: &mut SeededRandom, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|_| random.next_u64().to_le_bytes()[0]).collect()
}

/// The term of the batches that a log opens.
pub fn term(log: &Log) -> u32 {
    log.shared().state().term
}
