//! Starts from a data folder: which image and which pages are trusted, and how far the log is
//! applied.

use bytes::Bytes;
use towline_core::{CommitId, Fact, MessageSequence, NewMessage, QueueId, record};
use towline_log::Urgency;
use towline_node::{PutTo, Request};
use towline_process::Clock;
use towline_types::Payload;

use super::*;
use crate::running::OpenInstance;

const PUTS: u64 = 30;

fn config() -> Config {
    let mut config = Config::default();
    config.log.extent_bytes = 1 << 20;
    config
}

/// A data folder with the log of a queue manager, and so many images, with messages before each.
fn data_folder(images: usize) -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::single(folder.path());
    let start = StartOptions::default();
    let open = OpenInstance::open("QM1", &home, &config(), start, Clock::start()).unwrap();
    let door = Arc::clone(open.door());
    door.define_defaults();
    let (connection, _) = door.connect();
    for _ in 0..images.max(1) {
        let put = |token| Request::Put {
            token,
            target: PutTo::Name("DEV.QUEUE.1".into()),
            message: NewMessage {
                persistent: Some(true),
                priority: None,
                expires_at: None,
                correlation_hash: 0,
                message_id_hash: 0,
                content: Payload::from(Bytes::from_static(b"content")),
                envelope_bytes: 0,
                ..NewMessage::default()
            },
            unit: None,
            reply_wanted: true,
        };
        let mut requests: Vec<Request> = (0..PUTS).map(put).collect();
        door.step(door.clock().now(), connection, &mut requests);
        while door.look(|instance| instance.runs_pending()) > 0 {
            std::thread::yield_now();
        }
        while images > 0 && open.images().take(door.as_ref()).unwrap().is_none() {}
    }
    door.log().shutdown();
    copy_of(folder.path())
}

/// The door and its log keep each other, and with them the lock of the folder.
fn copy_of(folder: &Path) -> (tempfile::TempDir, Home) {
    let copy = tempfile::tempdir().unwrap();
    let home = Home::single(copy.path());
    copy_files(folder, copy.path());
    copy_files(&folder.join("log"), home.log_folder());
    (copy, home)
}

/// Another process goes on with the log, and ends behind this run.
fn goes_on(home: &Home, run: &[Fact]) -> (tempfile::TempDir, Home) {
    let start = StartOptions::default();
    let open = OpenInstance::open("QM1", home, &config(), start, Clock::start()).unwrap();
    let log = open.door().log();
    let mut appender = log.appender();
    for (index, fact) in run.iter().enumerate() {
        appender.record(0, |bytes| {
            record::encode(fact, index + 1 == run.len(), bytes);
        });
    }
    appender.commit(Urgency::Forced).unwrap();
    log.shutdown();
    copy_of(home.data())
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_file() && entry.file_name() != "lock" {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn replayed(home: &Home, known: Option<u64>) -> ReplayedLog {
    let target = ReplayTarget { new_id: LogId(1), known };
    replay("QM1", home, &config(), StartOptions::default(), target).unwrap()
}

/// The files of images, the newest last.
fn images(home: &Home) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.log_folder()).unwrap().map(|entry| entry.unwrap().path());
    let is_image =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("image-");
    let mut images: Vec<PathBuf> = entries.filter(is_image).collect();
    images.sort();
    images
}

#[test]
fn beside_an_older_image_the_page_file_is_not_trusted_and_a_marker_says_so_before_it_is_emptied() {
    let (_folder, home) = data_folder(3);
    let sound = replayed(&home, None);
    assert!(!sound.status.rebuilt && !home.rebuild_marker().exists());
    drop(sound);
    let newest = images(&home).pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    bytes[4_100] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let rebuilt = replayed(&home, None);
    assert!(rebuilt.status.rebuilt, "its pages may have been used again for the newest one");
    assert!(home.rebuild_marker().exists(), "until there is an image of what was rebuilt");
    let tail = rebuilt.tail;
    let mut instance = rebuilt.restart.finish(tail);
    assert!(instance.plan_image().unwrap().applied > Lsn::ZERO);
}

#[test]
fn in_a_group_nothing_is_applied_that_is_not_known_to_be_committed() {
    let (_folder, home) = data_folder(0);
    let facts = |known| replayed(&home, known).restart.facts;
    assert!(facts(None) > PUTS, "all of the log");
    assert_eq!(facts(Some(0)), 0, "none of it");
}

/// One that follows would take no image, and free none of its log, until the leader changes again.
#[test]
fn a_start_gives_up_the_parts_of_a_commit_that_nobody_completed_where_the_term_changes() {
    for images in [0, 1] {
        let (_first, home) = data_folder(images);
        let commit = CommitId(1 << 40);
        let got = Fact::Got { queue: QueueId(1), sequence: MessageSequence(1) };
        let part = |operations| Fact::Part { commit, operations };
        let (_second, home) = goes_on(&home, &[part(1), got, part(0)]);
        let mut within = replayed(&home, Some(u64::MAX));
        assert!(within.restart.instance().plan_image().is_none(), "its leader may complete it");
        drop(within);
        let (_third, home) = goes_on(&home, &[Fact::Committed { operations: 0 }]);
        let mut behind = replayed(&home, Some(u64::MAX));
        assert!(behind.restart.instance().plan_image().is_some());
    }
}

#[test]
fn a_rebuild_marker_that_cannot_be_looked_at_refuses_the_start() {
    let (_folder, home) = data_folder(1);
    let marker = home.rebuild_marker();
    std::os::unix::fs::symlink(&marker, &marker).unwrap();
    let target = ReplayTarget { new_id: LogId(1), known: None };
    let refused = replay("QM1", &home, &config(), StartOptions::default(), target);
    assert!(matches!(refused, Err(StartError::Folder(_))), "pages may not be trusted");
    std::fs::remove_file(&marker).unwrap();
    replayed(&home, None);
}
