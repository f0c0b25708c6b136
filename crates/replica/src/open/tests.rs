//! Whose log an instance of a group starts with, on a simulated disk.

use towline_engine::{AdminJobs, BackupFolders, OpenInstance};
use towline_node::Farewell;
use towline_os::simulated::crash;
use towline_os::simulated::fs::FileSystem;
use towline_os::task::Handle;
use towline_types::Lsn;

use super::*;

const DATA: &str = "/data";
const OF_THREE: &[&str] = &["a", "b", "c"];

fn config_of(name: &str, members: &[&str]) -> (Config, GroupConfig) {
    let member = |name: &str| format!("[[group.member]]\nname = '{name}'\naddress = '{name}:1'\n");
    let group = format!(
        "[group]\nname = '{name}'\ninstance = 'a'\ncertificate = ''\nprivate_key = ''\n\
         authorities = ''\n"
    );
    let members: String = members.iter().map(|name| member(name)).collect();
    let mut config = Config::parse(&format!("{group}{members}")).unwrap();
    config.log.extent_bytes = 1 << 20;
    let group = config.group.clone().unwrap();
    (config, group)
}

/// What a start finds: whether it votes, the id of its log, whether that has anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    votes: bool,
    id: LogId,
    has_some: bool,
}

/// Starts the first instance of a group in a process of its own; what it finds, or why not.
fn starts(
    files: &FileSystem,
    process: u64,
    group: &'static str,
    members: &'static [&str],
) -> Result<Found, String> {
    let start = move || {
        let (config, group) = config_of(group, members);
        let about = (&config, &group, 0);
        let start = (Clock::start(), None);
        let opened = open("QMS", Path::new(DATA), about, StartOptions::default(), start);
        let opened = opened.map_err(|error| error.to_string())?;
        let (log, votes) = (opened.driver.log(), opened.driver.group().may_vote);
        let found = Found { votes, id: log.id(), has_some: log.tail() > Lsn::ZERO };
        log.shutdown();
        Ok(found)
    };
    crash::in_process(files, process, start).unwrap()
}

fn empty_folder() -> FileSystem {
    let files = FileSystem::new();
    assert!(files.make_folder(DATA));
    files
}

/// Makes a log with this id, of a version that notes no group.
fn made_before(files: &FileSystem, id: LogId) {
    assert!(files.make_folder("/data/log"));
    let make = move || {
        let (config, _) = config_of("G", OF_THREE);
        let target = ReplayTarget { new_id: id, known: Some(0) };
        let home = Home::single(Path::new(DATA));
        drop(replay("QMS", &home, &config, StartOptions::default(), target).unwrap());
    };
    crash::in_process(files, 1, make).unwrap();
}

/// A queue manager in no group lives and ends.
fn lives_alone(files: &FileSystem) {
    let lives = || {
        let (config, _) = config_of("G", OF_THREE);
        let (home, start) = (Home::single(Path::new(DATA)), StartOptions::default());
        let open = OpenInstance::open("QMS", &home, &config, start, Clock::start()).unwrap();
        let backup_folders = Arc::new(BackupFolders::default());
        let jobs = AdminJobs { name: "QMS".into(), backup_folders };
        let mut running = open.start(&config, jobs, &Handle::current()).unwrap();
        running.door().end(Farewell::Ending);
        running.stop_housekeeping();
        running.door().log().shutdown();
    };
    crash::in_process(files, 1, lives).unwrap();
}

#[test]
fn the_log_of_a_group_is_refused_by_one_of_another_name_whatever_its_size() {
    for (size, other_size) in [(&["a"][..], &["a"][..]), (OF_THREE, OF_THREE), (&["a"], OF_THREE)] {
        let files = empty_folder();
        let made = starts(&files, 1, "EAST", size).unwrap();
        let why = starts(&files, 2, "WEST", other_size).unwrap_err();
        for part in ["that of group 'EAST'", "is that of group 'WEST'", "--data", "empty folder"] {
            assert!(why.contains(part), "no '{part}' in: {why}");
        }
        assert_eq!(starts(&files, 3, "EAST", size), Ok(made), "it was not changed");
        // Also the log alone.
        for name in files.names(DATA).iter().filter(|name| name.starts_with("group")) {
            assert!(files.remove(format!("{DATA}/{name}")));
        }
        assert_eq!(starts(&files, 4, "WEST", other_size), Err(why));
    }
}

#[test]
fn new_logs_of_two_groups_of_a_queue_manager_have_one_id() {
    let id = |group: &'static str| starts(&empty_folder(), 1, group, OF_THREE).unwrap().id;
    assert_eq!((id("EAST"), id("WEST")), (membership::log_id("QMS"), membership::log_id("QMS")));
}

#[test]
fn a_log_of_a_version_that_made_its_id_of_the_groups_name_is_read_by_that_group_alone() {
    let files = empty_folder();
    let before = membership::log_id_before("QMS", "G");
    made_before(&files, before);
    let why = starts(&files, 2, "H", OF_THREE).unwrap_err();
    assert!(why.contains("not that of a queue manager of this name in group 'H'"), "{why}");
    for process in [3, 4] {
        assert_eq!(starts(&files, process, "G", OF_THREE).unwrap().id, before);
    }
}

/// The log of a queue manager that is in no group has an id that was drawn.
#[test]
fn a_log_that_was_in_no_group_is_taken_by_a_group_of_one_and_by_three_only_after_that() {
    let files = empty_folder();
    lives_alone(&files);
    assert!(starts(&files, 2, "G", OF_THREE).unwrap_err().contains("begin with an empty folder"));
    let found = starts(&files, 3, "G", &["a"]).unwrap();
    assert!(found.votes && found.has_some, "{found:?}");
    assert_eq!(starts(&files, 4, "G", &["a"]), Ok(found));
    assert_eq!(starts(&files, 5, "G", OF_THREE).unwrap().id, found.id, "the others take it");
}

#[test]
fn an_empty_log_that_is_to_have_another_id_is_made_with_it() {
    let files = empty_folder();
    let made = starts(&files, 1, "G", OF_THREE).unwrap();
    let takes = || {
        let data = Path::new(DATA);
        let text = "00000000000000000000000000000007\n";
        towline_os::fs::create_dir_all(data.join("log.new")).unwrap();
        towline_os::fs::write(data.join("log.new/log-id"), text).unwrap();
    };
    crash::in_process(&files, 2, takes).unwrap();
    assert_ne!(made.id, LogId(7));
    for process in [3, 4] {
        assert_eq!(starts(&files, process, "G", OF_THREE).unwrap().id, LogId(7));
    }
}
