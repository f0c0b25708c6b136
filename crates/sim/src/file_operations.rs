//! What the code below the sockets does to files, and in which order, recorded from runs: the page
//! docs/internals/file-operations.md.
//!
//! Not here: reads and looks; the bytes.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towline_group::HardState;
use towline_log::{
    Disk, LinuxDisk, Listener, Log, LogError, LogId, Options, Recovery, Space, Urgency,
};
use towline_os::simulated::fs::{DiskTiming, FileSystem, OperationKind, TracedOperation};
use towline_os::simulated::{Process, World};
use towline_os::thread;
use towline_replication::hard_state_file::HardStateFile;
use towline_replication::membership::Membership;
use towline_replication::{incarnation, log_identity, log_swap, vote};
use towline_types::Lsn;

const DATA: &str = "/data";
const RECORD_BYTES: usize = 40_000;
/// A path that a scene looks at when what comes is its subject.
const FROM_HERE: &str = "/from-here";

/// A scene: its title, what it is about, what happens before it and in it.
struct Scene {
    title: &'static str,
    about: &'static str,
    before: fn(),
    act: fn(),
}

const SCENES: &[Scene] = &[
    Scene {
        title: "A log is made",
        about: "`Recovery::open` on an empty folder, then `start`. The extents get their names \
                when they are filled with zeros and synced; the second one is made ready beside \
                the first batch.",
        before: make_folder,
        act: || drop(open_log()),
    },
    Scene {
        title: "A batch is written",
        about: "One forced run. Its reply leaves when the sync has returned.",
        before: || drop(open_log()),
        act: || {
            let log = open_log();
            from_here();
            append(&log, 1);
        },
    },
    Scene {
        title: "The next extent is made ready",
        about: "While batches fill the extent before it, by a thread of its own.",
        before: || append(&open_log(), 5),
        act: || {
            let log = open_log();
            from_here();
            append(&log, 3);
        },
    },
    Scene {
        title: "An image is written, and log is let go",
        about: "The image gets its name when it is synced, and the older of three is removed. Then \
                `reclaim`: an extent is removed, or becomes a spare, oldest first.",
        before: || append(&open_log(), 14),
        act: || {
            let log = open_log();
            for _ in 0..2 {
                append(&log, 14);
                take_image(&log);
            }
            append(&log, 2);
            from_here();
            take_image(&log);
            must(log.reclaim(log.durable()));
            settle();
        },
    },
    Scene {
        title: "A spare extent is used again",
        about: "It is `new` while its header is old, and gets the name of an extent when the new \
                header is synced.",
        before: || append(&open_log(), 14),
        act: || {
            let log = open_log();
            for _ in 0..3 {
                append(&log, 14);
                take_image(&log);
            }
            must(log.reclaim(log.durable()));
            from_here();
            append(&log, 7);
        },
    },
    Scene {
        title: "A log is read back after a crash",
        about: "What recovery has read may be in the system's memory only: it is synced before \
                anything of it counts as durable. The first sync of the folder is that of a log \
                without a page file: the start that made its first extent may have ended there.",
        before: || append(&open_log(), 3),
        act: || drop(open_log()),
    },
    Scene {
        title: "A vote is kept",
        about: "Two slots, each twice; the older one is overwritten, and synced before the \
                message that it is for leaves.",
        before: || {
            make_folder();
            keep_vote(1);
        },
        act: || keep_vote(2),
    },
    Scene {
        title: "A member starts with its log",
        about: "It draws a new number for log and hard state: first into the hard state, as the \
                next one, then into the log, then the hard state takes it for its own.",
        before: || {
            drop(open_log());
            keep_vote(1);
        },
        act: renew,
    },
    Scene {
        title: "A log names its group",
        about: "Before the first promise, once.",
        before: || drop(open_log()),
        act: || must(log_identity::note_owner(Path::new(DATA), "G", 3, true)),
    },
    Scene {
        title: "A copy replaces the log",
        about: "`hand_in` at the end of the transfer, by the process that took it; `settle` and \
                `clear_up` at the next start.",
        before: || {
            drop(open_log());
            keep_vote(1);
            renew();
        },
        act: || {
            let data = Path::new(DATA);
            let made = must(log_swap::begin(data));
            must(towline_os::fs::write(made.join("log").join("copied"), b"log"));
            let hard_state = must(HardStateFile::of(data).read()).unwrap_or_default();
            must(log_swap::hand_in(data, &made, &hard_state, 7));
            assert!(log_swap::settle(data, "rebuild-queues").is_ok(), "the copy is taken");
            log_swap::clear_up(data);
        },
    },
    Scene {
        title: "The vote is given up",
        about: "`towline instance replace`, before the log is set aside.",
        before: || {
            drop(open_log());
            keep_vote(1);
        },
        act: || must(vote::give_up_vote(Path::new(DATA))),
    },
];

/// What was done before is not shown.
fn from_here() {
    let _is_there = towline_os::fs::exists(FROM_HERE);
}

fn take_image(log: &Log) {
    let mark = log.mark_at(log.durable());
    assert!(mark.is_some(), "the end of the log has a mark");
    mark.into_iter().for_each(|mark| must(log.write_image(mark, b"image")));
}

fn must<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => unreachable!("nothing fails here: {error}"),
    }
}

fn make_folder() {
    must(towline_os::fs::create_dir_all(DATA));
}

struct Quiet;

impl Listener for Quiet {
    fn durable(&self, _upto: Lsn) {}

    fn failed(&self, error: &LogError) {
        unreachable!("nothing fails here: {error}")
    }

    fn hindered(&self, _error: &LogError) {}

    fn space(&self, _space: Space) {}
}

fn open_log() -> Log {
    let folder = Path::new(DATA).join("log");
    let disk: Arc<dyn Disk> = Arc::new(must(LinuxDisk::open(&folder)));
    let options = Options {
        extent_bytes: 256 * 1024,
        log_bytes_max: 4 * 1024 * 1024,
        reserve_bytes: 256 * 1024,
        writes_in_flight_max: 1,
        cache_bytes: 256 * 1024,
        ..Options::default()
    };
    let log = must(must(Recovery::open(disk, options, LogId(1))).start(Arc::new(Quiet)));
    settle();
    log
}

/// Lets what was begun come to its end.
fn settle() {
    thread::sleep(Duration::from_millis(50));
}

fn append(log: &Log, runs: u32) {
    for _ in 0..runs {
        let mut appender = log.appender();
        appender.record_with_body(RECORD_BYTES, |buffer| {
            buffer.resize(buffer.len() + RECORD_BYTES, 1);
            None
        });
        must(appender.commit(Urgency::Forced));
        settle();
    }
}

fn keep_vote(term: u64) {
    let hard_state = HardState { term, may_vote: true, knows_term: true, ..HardState::default() };
    must(HardStateFile::of(Path::new(DATA)).write(&hard_state));
}

fn renew() {
    let data = Path::new(DATA);
    let file = HardStateFile::of(data);
    let hard_state = must(file.read()).unwrap_or_default();
    let membership = Membership { member: towline_group::MemberId(1), members_count: 3 };
    must(incarnation::renew(data, &file, &hard_state, membership, 7));
}

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for scene in SCENES {
        write_scene(&mut page, scene);
    }
    page
}

const HEAD: &str = "\
# The order of file operations

What the code below the sockets does to the files of a data folder, and in which order. Each list is
recorded from the code itself, in the simulator, and a test compares this page with it
(`crates/sim/src/file_operations.rs`; `UPDATE_REFERENCE=1 cargo test -p towline-sim` writes it
again). Reads are left out, and so are operations of the kind and file of the line before.

A change of names (create, rename, remove) is durable when its folder was synced, a write when its
file was. [The simulator](simulator.md) crashes before and after each of them.
";

fn write_scene(page: &mut String, scene: &Scene) {
    let world = World::new(1);
    let disk = FileSystem::new();
    disk.set_timing(DiskTiming { sync_us: (100, 100), ..DiskTiming::default() });
    let (before, act) = (scene.before, scene.act);
    for (number, part) in [(1, before), (2, act)] {
        let process = Process(number);
        world.mount(process, &disk);
        if number == 2 {
            disk.start_trace();
        }
        world.start(process, "scene", part);
        world.run_until(number * 10_000_000);
        world.kill(process);
        world.run_until(number * 10_000_000 + 1);
    }
    let mut lines = Vec::<String>::new();
    let trace = disk.take_trace();
    let from = trace.iter().rposition(|operation| operation.path == Path::new(FROM_HERE));
    for operation in trace.into_iter().skip(from.map_or(0, |at| at + 1)) {
        let line = line_of(&operation);
        if line.is_some() && lines.last() != line.as_ref() {
            lines.extend(line);
        }
    }
    let lines = lines.join("\n");
    let about = wrapped(scene.about);
    let written = write!(page, "\n## {}\n\n{about}\n\n```text\n{lines}\n```\n", scene.title);
    assert!(written.is_ok(), "a text grows");
}

fn line_of(operation: &TracedOperation) -> Option<String> {
    let short = |path: &Path| match path.strip_prefix(DATA) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
        Ok(rest) => rest.display().to_string(),
        Err(_) => path.display().to_string(),
    };
    let path = short(&operation.path);
    let to = operation.to.as_deref().map(short).unwrap_or_default();
    Some(match operation.kind {
        OperationKind::Create => format!("create   {path}"),
        OperationKind::Write => format!("write    {path}"),
        OperationKind::Sync => format!("sync     {path}"),
        OperationKind::Rename => format!("rename   {path} -> {to}"),
        OperationKind::Link => format!("link     {path} -> {to}"),
        OperationKind::Remove => format!("remove   {path}"),
        OperationKind::MakeFolder => format!("mkdir    {path}"),
        OperationKind::RemoveFolder => format!("rmdir    {path}"),
        OperationKind::SetLength => format!("truncate {path}"),
        OperationKind::Reserve => format!("reserve  {path}"),
        OperationKind::Open
        | OperationKind::Read
        | OperationKind::List
        | OperationKind::Look
        | OperationKind::Lock => return None,
    })
}

/// In lines of 100 letters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if lines.last().is_some_and(|line| line.len() + word.len() >= 100) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_file_operations_is_what_the_code_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/file-operations.md");
        let page = page();
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap();
        assert_eq!(there, page, "UPDATE_REFERENCE=1 cargo test -p towline-sim writes it again");
    }
}
