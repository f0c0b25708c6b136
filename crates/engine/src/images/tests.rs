//! Images of an instance on a disk in memory: what a power cut leaves of them, and what happens to
//! their pages.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use towline_config::Config;
use towline_core::{ConnectionId, NewMessage, Pages as Trust};
use towline_log::disk::{CrashPoint, CrashRule, Fault, FaultOn};
use towline_log::testing::Watch;
use towline_log::{Listener, LogId, MemoryDisk, Recovery};
use towline_node::{PutTo, Request, Restart};
use towline_types::Payload;

use super::*;
use crate::door::Door;
use crate::housekeeping::note_time;
use crate::process_status::ProcessStatus;
use crate::relocation::{RelocationEnd, relocate, room};
use crate::settings::{options, rules};
use crate::workers::{WorkQueues, Workers};

const QUEUE: &str = "DEV.QUEUE.1";

/// An instance with a queue and a log of its own.
struct Bench {
    disk: MemoryDisk,
    door: Arc<Door>,
    images: Arc<Images>,
    connection: ConnectionId,
    failed: AtomicBool,
    _queues: WorkQueues,
}

fn config() -> Config {
    let mut config = Config::default();
    config.log.extent_bytes = 1 << 20;
    config
}

fn recovered(disk: &MemoryDisk) -> Recovery {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Recovery::open(disk, options(&config()), LogId(7)).unwrap()
}

impl Bench {
    fn new() -> Bench {
        Bench::with(|door| door)
    }

    /// The log reports to `listener` of the door.
    fn with(listener: impl FnOnce(Arc<Door>) -> Arc<dyn Listener>) -> Bench {
        let disk = MemoryDisk::recording();
        let mut recovery = recovered(&disk);
        let extent_bytes = recovery.extent_bytes();
        let restart = Restart::begin("QM1", rules(&config()), extent_bytes, None, Trust::Ignored);
        let report = recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
        let pages = Pages::open(Arc::new(disk.clone()), []).unwrap();
        let (workers, queues) = Workers::new(std::path::Path::new("none"));
        let clock = Clock::start();
        let status = ProcessStatus::new(clock, pages.clone());
        let door =
            Arc::new(Door::new(restart.unwrap().finish(report.tail), workers, status, clock));
        let log = recovery.start(listener(door.clone())).unwrap();
        door.set_log(log.clone());
        let images = Images::open(Arc::new(disk.clone()), log.durable(), pages);
        door.define_defaults();
        let (connection, _) = door.connect();
        let failed = AtomicBool::new(false);
        Bench { disk, door, images, connection, failed, _queues: queues }
    }

    /// Puts messages, and waits until they are durable.
    fn put(&self, count: u64) {
        self.put_all(count, Bytes::from_static(b"content"));
    }

    fn put_all(&self, count: u64, content: Bytes) {
        self.send(count, content);
        while self.door.look(|instance| instance.runs_pending()) > 0 {
            std::thread::yield_now();
        }
    }

    fn send(&self, count: u64, content: Bytes) {
        let put = |token| Request::Put {
            token,
            target: PutTo::Name(QUEUE.into()),
            message: NewMessage {
                persistent: Some(true),
                priority: None,
                expires_at: None,
                correlation_hash: 0,
                message_id_hash: 0,
                content: Payload::from(content.clone()),
                envelope_bytes: 0,
                ..NewMessage::default()
            },
            unit: None,
            reply_wanted: true,
        };
        let mut requests: Vec<Request> = (0..count).map(put).collect();
        self.door.step(self.door.clock().now(), self.connection, &mut requests);
    }

    fn image(&self) -> ImageReport {
        loop {
            if let Some(taken) = self.images.take(self).unwrap() {
                return taken;
            }
        }
    }

    fn fails(&self, on: FaultOn, prefix: &str) {
        let error = std::io::ErrorKind::Other;
        self.disk.inject(Fault { on, prefix: prefix.into(), after: 0, times: 1, error });
    }

    fn used_bytes(&self) -> u64 {
        self.images.pages().stats().used_bytes
    }
}

impl ImageSource for Bench {
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        ImageSource::look(self.door.as_ref(), look)
    }

    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        self.door.look_between_runs(look)
    }

    fn log(&self) -> Log {
        ImageSource::log(self.door.as_ref())
    }

    fn clock(&self) -> Clock {
        ImageSource::clock(self.door.as_ref())
    }

    fn log_failed(&self, _error: &LogError) {
        self.failed.store(true, Ordering::SeqCst);
    }

    fn image_taken(&self, image: &ImageReport, now: Time) {
        self.door.image_taken(image, now);
    }
}

/// The pages that the newest image on a disk refers to.
fn pages_of_newest(disk: &MemoryDisk) -> Vec<PageRef> {
    let recovery = recovered(disk);
    let Some(image) = recovery.image() else { return Vec::new() };
    let bytes = Some(image.bytes.as_ref());
    let extent_bytes = recovery.extent_bytes();
    let restart = Restart::begin("QM1", rules(&config()), extent_bytes, bytes, Trust::Whole);
    restart.unwrap().pages().collect()
}

fn are_readable(disk: &MemoryDisk, pages: &[PageRef]) -> bool {
    let Ok(file) = Pages::open(Arc::new(disk.clone()), pages.iter().copied()) else { return false };
    pages.iter().all(|page| file.read(*page).is_ok())
}

#[test]
fn a_power_cut_at_any_moment_leaves_an_image_whose_pages_are_there() {
    let bench = Bench::new();
    bench.put(20);
    bench.image();
    let from = bench.disk.journal().len();
    for _ in 0..3 {
        bench.put(20);
        bench.image();
    }
    let journal = bench.disk.journal();
    let mut with_pages = 0;
    for point in from..=journal.len() {
        for (keep_percent, seed) in [(0, 1), (50, 2)] {
            let rule = CrashRule { keep_percent, unit_bytes: 4_096, seed };
            let found = journal.crash(CrashPoint(point), rule);
            let pages = pages_of_newest(&found);
            with_pages += usize::from(!pages.is_empty());
            assert!(
                pages.is_empty() || are_readable(&found, &pages),
                "after operation {point}, {keep_percent} % of the rest, seed {seed}"
            );
        }
    }
    assert!(with_pages > 0, "there are images with pages");
}

#[test]
fn pages_are_reused_when_no_backup_copies_them_any_more() {
    let bench = Bench::new();
    bench.put(20);
    bench.image();
    let copied = pages_of_newest(&bench.disk);
    let hold = bench.images.hold_pages();
    for _ in 0..3 {
        bench.put(20);
        bench.image();
    }
    let file = bench.images.pages();
    assert!(copied.iter().all(|page| file.read(*page).is_ok()), "they are being copied");
    let before = bench.used_bytes();
    drop(hold);
    assert!(bench.used_bytes() < before, "all that no image refers to is free");
}

#[test]
fn an_image_lets_no_log_go_that_holds_a_message() {
    let bench = Bench::new();
    let extent_bytes = config().log.extent_bytes;
    for _ in 0..3 {
        bench.put_all(4, Bytes::from(vec![7; 200_000]));
        assert_eq!(bench.image().keep_from, Lsn::ZERO);
    }
    assert!(bench.log().durable() > Lsn(2 * extent_bytes));
    assert!(bench.disk.files().contains_key("extent-0000000000000000"));
}

#[test]
fn an_image_that_fails_leaves_what_it_would_have_freed_to_the_next_one() {
    let used_bytes = |fails: bool| {
        let bench = Bench::new();
        for round in 0..5 {
            bench.put(20);
            // By then there are pages that no image refers to any more.
            if fails && round == 3 {
                bench.fails(FaultOn::Rename, "new-image");
                bench.images.take(&bench).unwrap_err();
                bench.disk.heal();
                assert!(are_readable(&bench.disk, &pages_of_newest(&bench.disk)), "it counts");
            }
            bench.image();
        }
        bench.used_bytes()
    };
    assert_eq!(used_bytes(true), used_bytes(false), "no page is forgotten");
}

#[test]
fn a_failed_sync_of_the_page_file_ends_the_process_and_leaves_no_image() {
    let bench = Bench::new();
    bench.put(20);
    bench.fails(FaultOn::Sync, "pages");
    bench.images.take(&bench).unwrap_err();
    assert!(bench.failed.load(Ordering::SeqCst));
    assert_eq!(bench.log().image_at(), None);
}

/// By then another process may have the folder, and the pages in it.
#[test]
fn behind_the_last_image_of_a_process_nothing_is_written_and_nothing_fails() {
    let bench = Bench::new();
    bench.put(20);
    let last = bench.images.take_last(&bench).unwrap().unwrap();
    bench.put(20);
    bench.fails(FaultOn::Sync, "pages");
    assert!(matches!(bench.images.take(&bench), Err(LogError::Stopped)));
    let stopped = [bench.images.keep_only_the_newest(&bench), bench.images.reclaim(&bench)];
    assert!(stopped.iter().all(|done| matches!(done, Err(LogError::Stopped))), "{stopped:?}");
    assert!(!bench.failed.load(Ordering::SeqCst));
    assert_eq!(bench.log().image_at(), Some(last.at));
}

/// What a replica applied.
struct Ahead {
    bench: Bench,
    instance: Mutex<Instance>,
}

impl ImageSource for Ahead {
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        look(&mut self.instance.lock())
    }

    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        Some(self.look(look))
    }

    fn log(&self) -> Log {
        self.bench.log()
    }

    fn clock(&self) -> Clock {
        self.bench.clock()
    }

    fn log_failed(&self, error: &LogError) {
        self.bench.log_failed(error);
    }

    fn image_taken(&self, _image: &ImageReport, _now: Time) {}
}

#[test]
fn a_replica_that_applied_more_than_its_disk_has_reclaims_no_further_than_that() {
    let bench = Bench::new();
    let extent_bytes = config().log.extent_bytes;
    let restart = Restart::begin("QM1", rules(&config()), extent_bytes, None, Trust::Ignored);
    let instance = Mutex::new(restart.unwrap().finish(Lsn(5 * extent_bytes)));
    let ahead = Ahead { bench, instance };
    assert!(ahead.look(|instance| instance.keep_from()) > ahead.log().durable());
    ahead.bench.images.reclaim(&ahead).unwrap();
}

/// What only one disk of a group has may be cut off, and then other work stands there: a restore to
/// this time would include it.
#[test]
fn a_time_stands_for_what_is_applied_and_not_for_what_only_the_own_disk_has() {
    // As in a group: the door hears what is committed, and not what its own disk has.
    let own_disk = Watch::new();
    let bench = Bench::with(|_| own_disk.clone());
    let log = bench.door.log();
    let rows = || bench.images.time_index().unwrap().rows();
    bench.send(3, Bytes::from_static(b"content"));
    own_disk.wait_durable(log.tail());
    note_time(&bench.door, &bench.images);
    let applied = bench.door.look(|instance| instance.applied());
    assert!(
        applied < log.durable() && rows().iter().all(|row| row.upto <= applied),
        "{:?}",
        rows()
    );
    // The group commits it.
    Listener::durable(bench.door.as_ref(), log.durable());
    note_time(&bench.door, &bench.images);
    assert_eq!(rows().last().map(|row| row.upto), Some(log.durable()));
}

#[test]
fn nothing_is_read_to_be_relocated_while_the_log_is_behind() {
    let bench = Bench::new();
    bench.put_all(20, Bytes::from(vec![b'x'; 100_000]));
    bench.disk.hold_syncs();
    while !bench.door.log_is_behind(false) {
        bench.send(1, Bytes::from(vec![b'y'; 100_000]));
    }
    let tail = bench.door.log().tail();
    let before = Lsn(bench.door.extent_bytes());
    assert_eq!(relocate(&bench.door, &bench.images, before), RelocationEnd::UntilLogWasBehind);
    assert_eq!(bench.door.log().tail(), tail);
    bench.disk.open_gate();
    while bench.door.look(|instance| instance.runs_pending()) > 0 {
        std::thread::yield_now();
    }
    let tail = bench.door.log().tail();
    assert_eq!(relocate(&bench.door, &bench.images, before), RelocationEnd::AsFarAsPossible);
    assert!(bench.door.log().tail() > tail, "what was left is moved later");
}

#[test]
fn a_large_message_that_has_begun_keeps_its_space_from_what_is_relocated() {
    let bench = Bench::new();
    let log = bench.door.log();
    let before = room(&bench.door, &log);
    assert_eq!(before, log.room_for_relocation());
    // No thread logs its pieces here.
    bench.send(1, Bytes::from(vec![b'x'; 2 << 20]));
    assert_eq!(log.room_for_relocation(), before, "none of it is in the log");
    assert!(room(&bench.door, &log) <= before - (2 << 20));
}
