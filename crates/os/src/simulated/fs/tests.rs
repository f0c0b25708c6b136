mod differential;
mod faults;
mod space_and_locks;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex as Plain;
use towline_types::SeededRandom;

use super::{FileSystem, Verdict};
use crate::fs::{self, File, FileExt, OpenOptions};
use crate::simulated::{Process, ProcessEnd, World};

const LONG_US: u64 = 1_000_000_000;
const A: Process = Process(1);

/// Runs `body` in a process of its own over these files, to its end.
fn run<T: Send + 'static>(
    system: &FileSystem,
    seed: u64,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let world = World::new(seed);
    world.mount(A, system);
    let done = Arc::new(Plain::new(None));
    let result = Arc::clone(&done);
    world.start(A, "runs", move || {
        let value = body();
        *result.lock() = Some(value);
    });
    world.run_until(LONG_US);
    assert_eq!(world.ended(A), None);
    let value = done.lock().take();
    value.unwrap()
}

/// What came of `body` and a power cut, for many draws; each outcome with how often.
fn after_cuts(
    system: &FileSystem,
    body: impl Fn() + Send + Copy + 'static,
    look: impl Fn(&FileSystem) -> String,
) -> std::collections::BTreeMap<String, u32> {
    let mut outcomes = std::collections::BTreeMap::new();
    for seed in 0..300 {
        let system = system.copy();
        run(&system, seed, body);
        system.power_cut(&mut SeededRandom::mixed(seed));
        *outcomes.entry(look(&system)).or_default() += 1;
    }
    outcomes
}

fn keys(outcomes: &std::collections::BTreeMap<String, u32>) -> Vec<&str> {
    outcomes.keys().map(String::as_str).collect()
}

fn names(system: &FileSystem) -> String {
    system.names("/").join(" ")
}

/// Waits until the process ends.
fn never() {
    crate::sync::OnceLock::<()>::new().wait();
}

fn sync_folder(path: impl AsRef<Path>) {
    File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn what_is_written_is_read_back_and_outlives_the_process_that_wrote_it() {
    let system = FileSystem::new();
    run(&system, 1, || {
        fs::create_dir_all("/data/log").unwrap();
        let file = OpenOptions::new().read(true).write(true).create_new(true).open("/data/log/a");
        let file = file.unwrap();
        file.write_all_at(b"hello", 4094).unwrap();
        let mut back = [9; 7];
        file.read_exact_at(&mut back, 4092).unwrap();
        assert_eq!(&back, b"\0\0hello");
        assert_eq!(file.metadata().unwrap().len(), 4099);
        assert!(fs::is_file("/data/log/a") && fs::is_dir("/data") && !fs::exists("/data/b"));
    });
    assert_eq!(system.bytes("/data/log/a").unwrap().len(), 4099);
    assert_eq!(run(&system, 2, || fs::read("/data/log/a").unwrap().len()), 4099);
}

#[test]
fn a_file_that_was_synced_with_its_name_is_there_after_a_power_cut() {
    let outcomes = after_cuts(
        &FileSystem::new(),
        || {
            let mut file = File::create("/a").unwrap();
            file.write_all(&[7; 5000]).unwrap();
            file.sync_data().unwrap();
            sync_folder("/");
        },
        |system| format!("{:?}", system.bytes("/a").map(|bytes| bytes == [7; 5000])),
    );
    assert_eq!(keys(&outcomes), ["Some(true)"]);
}

#[test]
fn the_sync_of_a_file_does_not_make_its_name_durable() {
    let outcomes = after_cuts(
        &FileSystem::new(),
        || {
            let mut file = File::create("/a").unwrap();
            file.write_all(b"x").unwrap();
            file.sync_all().unwrap();
        },
        |system| format!("{:?}", system.bytes("/a")),
    );
    assert_eq!(keys(&outcomes), ["None", "Some([120])"]);
}

#[test]
fn the_sync_of_a_folder_does_not_make_the_bytes_of_its_files_durable() {
    let outcomes = after_cuts(
        &FileSystem::new(),
        || {
            File::create("/a").unwrap().write_all(b"x").unwrap();
            sync_folder("/");
        },
        |system| format!("{:?}", system.bytes("/a")),
    );
    assert_eq!(keys(&outcomes), ["Some([0])", "Some([120])", "Some([])"]);
}

#[test]
fn a_power_cut_keeps_any_sectors_of_a_write_and_old_versions_under_new_ones() {
    let system = FileSystem::new();
    system.put("/a", &[b'0'; 3 * 512]);
    let outcomes = after_cuts(
        &system,
        || {
            let file = File::options().write(true).open("/a").unwrap();
            file.write_all_at(&[b'1'; 3 * 512], 0).unwrap();
            file.write_all_at(&[b'2'; 512], 512).unwrap();
        },
        |system| {
            let bytes = system.bytes("/a").unwrap();
            let sectors = bytes.chunks(512).map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
                char::from(sector[0])
            });
            sectors.collect()
        },
    );
    // The first and the third are of 0 or 1; the second of 0, 1 or 2.
    assert_eq!(outcomes.len(), 12, "{outcomes:?}");
    assert!(outcomes.contains_key("011") && outcomes.contains_key("120"), "{outcomes:?}");
}

#[test]
fn a_power_cut_keeps_the_first_changes_of_a_length() {
    let system = FileSystem::new();
    system.put("/a", &[b'0'; 8192]);
    let outcomes = after_cuts(
        &system,
        || {
            let file = File::options().write(true).open("/a").unwrap();
            file.set_len(0).unwrap();
            file.write_all_at(&[b'1'; 4096], 0).unwrap();
        },
        |system| {
            let bytes = system.bytes("/a").unwrap();
            let mut kinds = bytes.clone();
            kinds.dedup();
            format!("{} {}", bytes.len(), String::from_utf8_lossy(&kinds).replace('\0', "-"))
        },
    );
    // What was written after the cut does not lie over what was there before it.
    let expected = ["0 ", "4096 -", "4096 1", "8192 0"];
    let is_torn = |key: &str| key.strip_prefix("4096 ").is_some_and(|kinds| !kinds.contains('0'));
    assert!(keys(&outcomes).iter().all(|key| expected.contains(key) || is_torn(key)));
    assert!(expected.iter().all(|key| outcomes.contains_key(*key)), "{outcomes:?}");
}

#[test]
fn a_rename_is_one_change_also_between_folders() {
    let system = FileSystem::new();
    system.put("/x/file", b"1");
    system.put("/y/other", b"");
    let outcomes = after_cuts(
        &system,
        || fs::rename("/x/file", "/y/file").unwrap(),
        |system| format!("{} {}", system.has("/x/file"), system.has("/y/file")),
    );
    assert_eq!(keys(&outcomes), ["false true", "true false"]);
    for synced in ["/x", "/y"] {
        let system = system.copy();
        run(&system, 1, move || {
            fs::rename("/x/file", "/y/file").unwrap();
            sync_folder(synced);
        });
        assert!(system.synced().has("/y/file") && !system.synced().has("/x/file"));
    }
}

#[test]
fn names_come_back_in_any_combination_that_could_have_been() {
    let system = FileSystem::new();
    system.put("/old", b"old");
    system.put("/gone", b"");
    let outcomes = after_cuts(
        &system,
        || {
            fs::remove_file("/gone").unwrap();
            fs::write("/new", b"new").unwrap();
            fs::rename("/new", "/old").unwrap();
        },
        |system| {
            let old = system.bytes("/old").unwrap();
            format!("{} {}", names(system), old == b"old")
        },
    );
    let expected = [
        "gone new old true",
        "gone old false",
        "gone old true",
        "new old true",
        "old false",
        "old true",
    ];
    assert_eq!(keys(&outcomes), expected);
}

#[test]
fn no_file_is_lost_because_its_old_name_was_used_again_or_its_second_one_came_late() {
    let system = FileSystem::new();
    system.put("/a", b"old");
    let has_old = |system: &FileSystem| {
        let mut files = system.tree().into_values().flatten();
        files.any(|bytes| bytes == b"old").to_string()
    };
    let name_used_again = || {
        fs::rename("/a", "/b").unwrap();
        fs::write("/a", b"new").unwrap();
    };
    assert_eq!(keys(&after_cuts(&system, name_used_again, has_old)), ["true"]);
    let second_name = || {
        fs::hard_link("/a", "/b").unwrap();
        fs::remove_file("/a").unwrap();
    };
    assert_eq!(keys(&after_cuts(&system, second_name, has_old)), ["true"]);
}

#[test]
fn a_kill_loses_nothing_that_was_written() {
    let (system, world) = (FileSystem::new(), World::new(3));
    world.mount(A, &system);
    world.start(A, "writes", || {
        fs::write("/a", b"written").unwrap();
        never();
        fs::write("/b", b"never").unwrap();
    });
    world.run_until(500_000);
    world.kill(A);
    world.run_until(LONG_US);
    assert_eq!((names(&system).as_str(), system.bytes("/a").unwrap()), ("a", b"written".to_vec()));
}

/// Writes when it is dropped.
struct AtEnd(Arc<Plain<Option<ErrorKind>>>, File);

impl Drop for AtEnd {
    fn drop(&mut self) {
        assert!(fs::write("/late", b"late").is_err());
        *self.0.lock() = self.1.write_all(b"late").err().map(|error| error.kind());
    }
}

#[test]
fn a_process_that_was_killed_has_no_effect_also_while_it_unwinds() {
    let (system, world) = (FileSystem::new(), World::new(4));
    let error = Arc::new(Plain::new(None));
    let seen = Arc::clone(&error);
    world.mount(A, &system);
    world.start(A, "writes", move || {
        let _at_end = AtEnd(seen, File::create("/a").unwrap());
        never();
    });
    world.run_until(500_000);
    world.kill(A);
    world.run_until(LONG_US);
    assert!(error.lock().is_some());
    assert_eq!((names(&system).as_str(), system.bytes("/a").unwrap().len()), ("a", 0));
}

#[test]
fn a_crash_after_any_single_operation_can_be_had_by_its_number() {
    let write = || {
        let mut file = File::create("/new").unwrap();
        file.write_all(b"content").unwrap();
        file.sync_all().unwrap();
        fs::rename("/new", "/name").unwrap();
        sync_folder("/");
    };
    let whole = FileSystem::new();
    run(&whole, 5, write);
    let count = whole.operations();
    assert_eq!(count, 6);
    for (verdict, before) in [(Verdict::KillsBefore, 1), (Verdict::KillsAfter, 0)] {
        let mut seen = Vec::new();
        for number in 1..=count {
            let (system, world) = (FileSystem::new(), World::new(number));
            system.set_faults(
                move |operation| {
                    if operation.number == number { verdict } else { Verdict::Goes }
                },
            );
            world.mount(A, &system);
            world.start(A, "writes", write);
            world.run_until(LONG_US);
            assert_eq!(world.ended(A), Some(ProcessEnd::Killed));
            assert_eq!(system.operations(), number);
            seen.push(names(&system));
        }
        let by_operation = ["", "new", "new", "new", "name", "name", "name"];
        let expected = &by_operation[1 - before..][..6];
        assert_eq!(seen, expected, "{verdict:?}");
    }
}
