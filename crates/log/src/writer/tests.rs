//! A listener that appends: the log goes on, and reports all positions in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use towline_os::sync::Mutex;

use towline_types::Lsn;

use super::report;
use crate::disk::{Disk, MemoryDisk};
use crate::error::LogError;
use crate::extents::Space;
use crate::listener::{Listener, Urgency};
use crate::log::Log;
use crate::options::{EXTENT_BYTES_MIN, Options};
use crate::shared::SEALED_BYTES_MAX;
use crate::testing::{Watch, append, image, recover, start};

/// Only so that a fault is a failure and not a test that never ends.
const HANGS: Duration = Duration::from_secs(60);
const MIB: usize = 1024 * 1024;

/// Appends `run` from inside the listener; returns what it was notified of and where its own run
/// ended.
struct Feeder {
    log: Mutex<Option<Log>>,
    run: Vec<Vec<u8>>,
    runs_left: AtomicUsize,
    inside: AtomicBool,
    /// Whether to append when there is space again, as against when something is durable.
    on_room: bool,
    told: Mutex<Sender<(Lsn, Option<Lsn>)>>,
    full: Mutex<Sender<()>>,
}

impl Feeder {
    fn feed(&self) -> Option<Lsn> {
        let log = self.log.lock().clone()?;
        let left = self.runs_left.load(Ordering::Relaxed).checked_sub(1)?;
        self.runs_left.store(left, Ordering::Relaxed);
        Some(append(&log, &self.run, Urgency::Forced).1)
    }

    fn tell(&self, upto: Lsn, fed: Option<Lsn>) {
        self.told.lock().send((upto, fed)).unwrap();
    }
}

impl Listener for Feeder {
    fn durable(&self, upto: Lsn) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "one call at a time");
        let fed = if self.on_room { None } else { self.feed() };
        self.inside.store(false, Ordering::SeqCst);
        self.tell(upto, fed);
    }

    fn failed(&self, error: &LogError) {
        panic!("{error}");
    }

    fn space(&self, space: Space) {
        match space {
            Space::Ample if self.on_room => self.tell(Lsn::ZERO, self.feed()),
            Space::Ample | Space::Low => {}
            Space::Full => self.full.lock().send(()).unwrap(),
        }
    }
}

struct Fed {
    feeder: Arc<Feeder>,
    log: Log,
    told: Receiver<(Lsn, Option<Lsn>)>,
    full: Receiver<()>,
}

impl Fed {
    fn start(disk: MemoryDisk, options: Options, run: Vec<Vec<u8>>, on_room: bool) -> Fed {
        let (sender, told) = channel();
        let (full_sender, full) = channel();
        let feeder = Arc::new(Feeder {
            log: Mutex::new(None),
            run,
            runs_left: AtomicUsize::new(if on_room { 1 } else { 3 }),
            inside: AtomicBool::new(false),
            on_room,
            told: Mutex::new(sender),
            full: Mutex::new(full_sender),
        });
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let (recovery, _, _) = recover(&disk, options).unwrap();
        let log = recovery.start(Arc::clone(&feeder) as Arc<dyn Listener>).unwrap();
        *feeder.log.lock() = Some(log.clone());
        Fed { feeder, log, told, full }
    }

    /// Ends the log's threads here, not on one of them. After a failure they are left behind: the
    /// feeder holds the log.
    fn end(self) {
        drop(self.feeder.log.lock().take());
        self.log.shutdown();
    }
}

fn a_listener_that_appends_under_back_pressure_goes_on(writers: usize) {
    let disk = MemoryDisk::new();
    let options = Options {
        // Filled at once: the syncs of preallocation are not held.
        extent_bytes: 4 * MIB as u64,
        batch_bytes_target: MIB,
        writes_in_flight_max: writers,
        slow_write: Duration::ZERO,
        cache_bytes: MIB,
        log_bytes_max: 1 << 30,
        ..Options::default()
    };
    // More than may wait for writers, whatever they have taken.
    let run = vec![vec![7; MIB / 2]; 64];
    let fed = Fed::start(disk.clone(), options, run.clone(), false);
    disk.hold_syncs();
    append(&fed.log, &[vec![1]], Urgency::Forced);
    disk.wait_for_syncs(1);
    // Another thread has the turn and waits for writers when the first report begins.
    let outside = thread::spawn({
        let log = fed.log.clone();
        move || append(&log, &run, Urgency::Forced).1
    });
    let waits_from = (SEALED_BYTES_MAX + (writers - 1) * MIB) as u64;
    while fed.log.unsynced_bytes() <= waits_from {
        thread::yield_now();
    }
    disk.open_gate();
    let (mut last, mut fed_to, mut runs) = (Lsn::ZERO, Lsn::ZERO, 0);
    while runs < 3 || last < fed_to {
        let (upto, end) = fed.told.recv_timeout(HANGS).unwrap();
        assert!(upto > last, "positions told ascend");
        last = upto;
        if let Some(end) = end {
            fed_to = end;
            runs += 1;
        }
    }
    let end = outside.join().unwrap().max(fed_to);
    while last < end {
        last = fed.told.recv_timeout(HANGS).unwrap().0;
    }
    assert_eq!((last, fed.log.durable()), (end, end), "the last position is told");
    fed.end();
}

#[test]
fn what_became_durable_beside_a_cut_is_reported_when_the_cut_is_over() {
    let watch = Watch::new();
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let log = start(&disk, Options::small(), &watch);
    // As a cut holds it; the writer finds it held and does not wait.
    let held = log.shared().reported.lock();
    let (_, end) = append(&log, &[vec![1]], Urgency::Forced);
    while log.durable() < end {
        thread::yield_now();
    }
    assert_eq!(watch.durable(), []);
    drop(held);
    report(log.shared());
    watch.wait_durable(end);
}

#[test]
fn a_listener_that_appends_under_back_pressure_goes_on_with_one_writer() {
    a_listener_that_appends_under_back_pressure_goes_on(1);
}

#[test]
fn a_listener_that_appends_under_back_pressure_goes_on_with_four_writers() {
    a_listener_that_appends_under_back_pressure_goes_on(4);
}

#[test]
fn a_listener_that_appends_more_than_is_ready_when_there_is_room_goes_on() {
    let options = Options { log_bytes_max: 5 * EXTENT_BYTES_MIN, ..Options::small() };
    let fed = Fed::start(MemoryDisk::new(), options, vec![vec![7; 20_000]; 40], true);
    let mut last = Lsn::ZERO;
    loop {
        let mut appender = fed.log.appender();
        appender.record(20_000, |buffer| buffer.resize(buffer.len() + 20_000, 1));
        match appender.commit(Urgency::Forced) {
            Ok(end) => last = end,
            Err(LogError::Full) => break,
            Err(other) => panic!("{other}"),
        }
    }
    fed.full.recv_timeout(HANGS).unwrap();
    let mut upto = Lsn::ZERO;
    while upto < last {
        upto = fed.told.recv_timeout(HANGS).unwrap().0;
    }
    {
        // The feeder waits until all the space is free.
        let _feeder_waits = fed.feeder.log.lock();
        image(&fed.log, last, &[1]);
        fed.log.reclaim(last).unwrap();
    }
    // The run needs more extents than are held ready: preallocation must be free to make them so.
    let (mut end, mut upto) = (None, Lsn::ZERO);
    while end.is_none_or(|end| upto < end) {
        let (told, fed_to) = fed.told.recv_timeout(HANGS).unwrap();
        upto = upto.max(told);
        end = end.or(fed_to);
    }
    fed.end();
}
