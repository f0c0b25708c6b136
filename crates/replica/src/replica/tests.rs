//! A replica alone, on a simulated disk: no other instance tells it what is committed.
//!
//! Its data folder has an image, and behind it the end of messages that are in the image. The first
//! extent held nothing else, and was reclaimed.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use towline_backup::{give, take};
use towline_config::{Config, GroupConfig};
use towline_core::NewMessage;
use towline_engine::{
    AdminJobs, BackupFolders, OpenInstance, ReplayTarget, ReplayedLog, RunningInstance, StartError,
    StartOptions, replay,
};
use towline_link::LinkStream;
use towline_log::{Disk, LinuxDisk, REBUILD_MARKER};
use towline_node::{Farewell, PutTo, Request};
use towline_os::simulated::fs::FileSystem;
use towline_os::simulated::{ProcessEnd, crash};
use towline_os::task::{Handle, sleep};
use towline_replication::copy::{CopySource, give as give_copy};
use towline_replication::membership;
use towline_standby::Home;
use towline_types::{FORMAT_LEVEL_UNASKED, Payload};

use super::*;

const DATA: &str = "/data";
const EXTENT_BYTES: u64 = 1 << 20;
/// More than fit into an extent.
const PUTS: u64 = 12;
const CONTENT_BYTES: usize = 100_000;
/// As much as a copy takes.
const PIPE_BYTES: usize = 64 << 20;
/// A message that goes to the log as one, and not in pieces that others may stand between. An
/// extent, with its header, does not hold it.
const AS_ONE_BYTES: usize = 1 << 20;
const LIVES: Duration = Duration::from_secs(10);

fn config() -> (Config, GroupConfig) {
    config_of(&["a", "b", "c"])
}

fn config_of(members: &[&str]) -> (Config, GroupConfig) {
    let member = |name: &str| format!("[[group.member]]\nname = '{name}'\naddress = '{name}:1'\n");
    let group = "[group]\nname = 'G'\ninstance = 'a'\ncertificate = ''\nprivate_key = ''\n\
                 authorities = ''\n";
    let members: String = members.iter().map(|name| member(name)).collect();
    let mut config = Config::parse(&format!("{group}{members}")).unwrap();
    config.log.extent_bytes = EXTENT_BYTES;
    let group = config.group.clone().unwrap();
    (config, group)
}

/// Reads the log back, as far as `known` says that it is committed.
fn read_back(known: Option<u64>) -> Result<ReplayedLog, StartError> {
    let (config, _) = config();
    let target = ReplayTarget { new_id: membership::log_id("QMS"), known };
    replay("QMS", &Home::single(Path::new(DATA)), &config, StartOptions::default(), target)
}

fn path(name: &str) -> PathBuf {
    Path::new(DATA).join(name)
}

fn is_marked() -> bool {
    towline_os::fs::try_exists(Path::new(DATA).join(REBUILD_MARKER)).unwrap()
}

fn replica() -> Arc<crate::OpenReplica> {
    let (config, group) = config();
    let about = (&config, &group, 0);
    let start = (Clock::start(), None);
    Arc::new(crate::open("QMS", Path::new(DATA), about, StartOptions::default(), start).unwrap())
}

fn waits(done: impl Fn() -> bool) {
    while !done() {
        Handle::current().block_on(sleep(Duration::from_millis(10)));
    }
}

/// Puts messages of so many bytes each, which expire soon.
fn puts(count: u64, content_bytes: usize) -> RunningInstance {
    let (config, _) = config();
    let home = Home::single(Path::new(DATA));
    let start = StartOptions::default();
    let open = OpenInstance::open("QMS", &home, &config, start, Clock::start()).unwrap();
    let jobs = AdminJobs { name: "QMS".into(), backup_folders: Arc::new(BackupFolders::default()) };
    let running = open.start(&config, jobs, &Handle::current()).unwrap();
    let door = Arc::clone(running.door());
    let (connection, _) = door.connect();
    let put = |token| Request::Put {
        token,
        target: PutTo::Name("DEV.QUEUE.1".into()),
        message: NewMessage {
            persistent: Some(true),
            priority: None,
            expires_at: Some(door.clock().wall() + LIVES),
            correlation_hash: 0,
            message_id_hash: 0,
            content: Payload::from(Bytes::from(vec![7; content_bytes])),
            envelope_bytes: 0,
            ..NewMessage::default()
        },
        unit: None,
        reply_wanted: true,
    };
    let mut requests: Vec<Request> = (0..count).map(put).collect();
    door.step(door.clock().now(), connection, &mut requests);
    waits(|| door.look(|instance| instance.runs_pending()) == 0);
    running
}

fn ends(mut running: RunningInstance) {
    running.door().end(Farewell::Ending);
    running.stop_housekeeping();
    running.door().log().shutdown();
}

/// Puts messages, takes an image, and lets the messages expire.
fn lives() {
    let running = puts(PUTS, CONTENT_BYTES);
    let door = Arc::clone(running.door());
    waits(|| running.images().take(door.as_ref()).unwrap().is_some());
    waits(|| door.look(|instance| instance.keep_from()) >= Lsn(EXTENT_BYTES));
    running.images().reclaim(door.as_ref()).unwrap();
    assert!(door.log().first_held() >= Lsn(EXTENT_BYTES), "nothing else was in the first extent");
    assert_eq!(door.log().images().len(), 1, "the messages live in the only one");
    ends(running);
}

fn data_folder() -> FileSystem {
    let files = FileSystem::new();
    assert!(files.make_folder(DATA));
    crash::in_process(&files, 1, || drop(read_back(None).unwrap())).unwrap();
    crash::in_process(&files, 2, lives).unwrap();
    files
}

/// The queues that it finds in the log lack the messages of the first extent, and the removals of
/// these messages are not known to be committed yet. An image would say that the queues are whole,
/// and each later start would come to removals of messages that were never put.
#[test]
fn a_replica_that_was_rebuilt_takes_no_image_before_all_that_its_log_had_is_applied() {
    let files = data_folder();
    let images = files.names("/data/log");
    let rebuilt = || {
        mark_rebuild(&Path::new(DATA).join(REBUILD_MARKER)).unwrap();
        let opened = replica();
        assert!(opened.restart.rebuilt);
        assert!(opened.images.take(opened.replica.as_ref()).unwrap().is_none(), "not now");
        assert!(opened.images.take_last(opened.replica.as_ref()).unwrap().is_none(), "nor last");
        is_marked()
    };
    assert!(crash::in_process(&files, 3, rebuilt).unwrap(), "the next start rebuilds again");
    let are_images = |names: &[String]| {
        names.iter().filter(|name| name.starts_with("image-")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(are_images(&files.names("/data/log")), are_images(&images));
    let live = || read_back(None).map(|found| found.restart.live_extents().len());
    let live = crash::in_process(&files, 4, move || live().map_err(|error| error.to_string()));
    assert_eq!(live.unwrap(), Ok(0), "all of them expired");
}

/// Its pages are not those of its image, and its group may wait for the copy.
#[test]
fn a_replica_that_was_rebuilt_gives_a_copy_that_is_rebuilt() {
    let files = FileSystem::new();
    assert!(files.make_folder(DATA));
    crash::in_process(&files, 1, || drop(read_back(None).unwrap())).unwrap();
    let puts_all = || {
        let running = puts(PUTS, CONTENT_BYTES);
        let door = Arc::clone(running.door());
        waits(|| running.images().take(door.as_ref()).unwrap().is_some());
        ends(running);
    };
    crash::in_process(&files, 2, puts_all).unwrap();
    let gives = || {
        let whole = read_back(Some(0)).unwrap();
        assert!(!whole.status.rebuilt);
        let live = whole.restart.live_extents();
        drop(whole);
        mark_rebuild(&path(REBUILD_MARKER)).unwrap();
        let opened = replica();
        let own = opened.driver.log().clone();
        let (source, pages) = opened.source(&own).unwrap();
        assert!(opened.images.owes_rebuilt() && pages.is_empty());
        let (mut bytes, hold) = (Vec::new(), own.hold(Lsn::ZERO));
        let page_file = opened.images.pages();
        give(source, (page_file, pages), &[], &hold, &mut bytes, &mut |_| ()).unwrap();
        towline_os::fs::create_dir_all(path("copy")).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(&path("copy")).unwrap());
        take(&disk, &mut bytes.as_slice(), &mut |_| ()).unwrap();
        live
    };
    let live = crash::in_process(&files, 3, gives).unwrap();
    assert!(live.len() > 1, "{live:?}");
    let starts = || {
        towline_os::fs::remove_dir_all(path("log")).unwrap();
        towline_os::fs::rename(path("copy"), path("log")).unwrap();
        towline_os::fs::remove_file(path(REBUILD_MARKER)).unwrap();
        let found = read_back(None).unwrap();
        (found.status.rebuilt, found.restart.live_extents())
    };
    assert_eq!(crash::in_process(&files, 4, starts).unwrap(), (true, live));
}

/// With all of its log applied nothing can be missing.
#[test]
fn a_replica_that_was_rebuilt_takes_an_image_when_all_that_its_log_had_is_applied() {
    let files = data_folder();
    let rebuilt = || {
        mark_rebuild(&Path::new(DATA).join(REBUILD_MARKER)).unwrap();
        let places = read_back(Some(0)).unwrap().recovery.places().batches;
        let opened = replica();
        apply(&opened, &places);
        let policy = ImagePolicy::of(&config().0, EXTENT_BYTES);
        let last = housekeeping::LastImage::at_start(opened.driver.log());
        let replica = opened.replica.as_ref();
        housekeeping::image_if_due(replica, &opened.images, policy, last).unwrap();
        is_marked()
    };
    assert!(!crash::in_process(&files, 3, rebuilt).unwrap(), "it is due at once");
    let live = || read_back(None).map(|found| found.restart.live_extents().len());
    let live = crash::in_process(&files, 4, move || live().map_err(|error| error.to_string()));
    assert_eq!(live.unwrap(), Ok(0), "all of them expired");
}

fn damage_a_page(files: &FileSystem) {
    let pages = files.bytes("/data/log/pages").unwrap();
    let damaged = pages.iter().position(|byte| *byte != 0).unwrap() as u64 * 8;
    assert!(files.flip_bit("/data/log/pages", damaged));
}

/// Applies what the group would have committed.
fn apply(opened: &crate::OpenReplica, places: &[BatchPlace]) {
    let mut state = opened.replica.state.lock();
    let ApplyState { restart: Some(restart), stream, applied, .. } = &mut *state else {
        unreachable!("it does not lead")
    };
    let behind = places.iter().copied().filter(|place| place.index > applied.index);
    let behind: Vec<BatchPlace> = behind.collect();
    assert!(!behind.is_empty(), "there is more behind the image");
    for place in behind {
        for batch in opened.driver.log().read_batches(&[place], usize::MAX).unwrap() {
            opened.replica.apply_batch(restart, stream, &batch);
            *applied = batch.place();
        }
    }
    restart.reached(applied.end);
}

/// What needs the page is not known to be committed at a start, so that no start comes to it.
#[test]
fn a_damaged_page_that_a_replica_comes_to_is_the_last_time() {
    let files = data_folder();
    damage_a_page(&files);
    let applies = || {
        let places = read_back(Some(0)).unwrap().recovery.places().batches;
        let opened = replica();
        assert!(!opened.restart.rebuilt, "no start reads the page");
        apply(&opened, &places);
    };
    let end = crash::in_process(&files, 3, applies).unwrap_err();
    assert_eq!(end, ProcessEnd::Exited(towline_process::EXIT_LOG_FAILED));
    let rebuilt = || replica().restart.rebuilt;
    assert!(crash::in_process(&files, 4, rebuilt).unwrap());
}

/// Each later copy would come to it again.
#[test]
fn a_copy_that_comes_to_a_damaged_page_is_the_last_one_before_a_rebuild() {
    let files = data_folder();
    damage_a_page(&files);
    let gives = || {
        drop(read_back(Some(0)).unwrap());
        let opened = replica();
        assert!(!opened.restart.rebuilt, "no start reads the page");
        let (giver, _taker) = tokio::io::duplex(PIPE_BYTES);
        let driver = Arc::clone(&opened.driver);
        give_copy(driver, opened, 1, LinkStream::piped(giver));
        Handle::current().block_on(sleep(Duration::from_mins(1)));
    };
    let end = crash::in_process(&files, 3, gives).unwrap_err();
    assert_eq!(end, ProcessEnd::Exited(towline_process::EXIT_LOG_FAILED));
    let rebuilt = || replica().restart.rebuilt;
    assert!(crash::in_process(&files, 4, rebuilt).unwrap());
}

/// Its group waits for the copy to commit the rest: an image of what is committed would come too
/// late.
#[test]
fn one_of_which_only_half_a_unit_of_work_is_committed_gives_a_copy_behind_its_newest_image() {
    let files = data_folder();
    crash::in_process(&files, 3, || ends(puts(1, AS_ONE_BYTES))).unwrap();
    let gives = || {
        let places = read_back(Some(0)).unwrap().recovery.places().batches;
        let opened = replica();
        let log = opened.driver.log().clone();
        let half = places.iter().position(|place| {
            apply(&opened, &places[..=usize::try_from(place.index - places[0].index).unwrap()]);
            !opened.replica.state.lock().stream.at_seam()
        });
        assert!(half.is_some_and(|at| at + 1 < places.len()), "{half:?} of {}", places.len());
        assert!(opened.images.take(opened.replica.as_ref()).unwrap().is_none(), "not now");
        let (source, _) = opened.source(&log).unwrap();
        assert!(source.image().is_some());
        (source.first() == log.first_held(), source.end() == log.durable())
    };
    assert_eq!(crash::in_process(&files, 4, gives).unwrap(), (true, true));
}

/// As after a power cut: that the removals of these messages are committed was known before it.
#[test]
fn one_that_does_not_know_yet_that_reclaimed_messages_are_gone_gives_a_copy_without_them() {
    let files = data_folder();
    let gives = || {
        drop(read_back(Some(0)).unwrap());
        let opened = replica();
        let log = opened.driver.log().clone();
        let keep_from = opened.replica.look(|instance| instance.keep_from());
        assert!(keep_from < log.first_held(), "{keep_from}: what is applied has these messages");
        let (source, _) = opened.source(&log).unwrap();
        assert!(source.image().is_some());
        (source.first() == log.first_held(), source.end() == log.durable())
    };
    assert_eq!(crash::in_process(&files, 3, gives).unwrap(), (true, true));
}

/// Until the group commits it nothing of it is applied, and an instance of a version that does not
/// read it might join meanwhile.
#[test]
fn one_that_restarts_says_the_format_level_of_all_that_its_log_has() {
    let files = FileSystem::new();
    assert!(files.make_folder(DATA));
    crash::in_process(&files, 1, || drop(read_back(None).unwrap())).unwrap();
    let says = || {
        drop(read_back(Some(0)).unwrap());
        let opened = replica();
        let applied = opened.replica.look(|instance| instance.format_level());
        (applied, opened.driver.levels().in_force)
    };
    assert_eq!(crash::in_process(&files, 2, says).unwrap(), (1, 1));
    crash::in_process(&files, 3, || ends(puts(1, 10))).unwrap();
    assert_eq!(crash::in_process(&files, 4, says).unwrap(), (1, FORMAT_LEVEL_UNASKED));
}
