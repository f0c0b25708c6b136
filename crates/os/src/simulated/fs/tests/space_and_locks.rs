//! Space that runs out, direct transfers, locks, handles of files that were removed, and several
//! processes on the same files.

use std::io::Read;

use super::*;
use crate::fs::{MetadataExt, OpenOptionsExt, TryLockError};
use crate::simulated::fs::OperationKind;

const BLOCK: usize = 4096;
const B: Process = Process(2);

#[test]
fn what_is_set_aside_can_be_filled_on_a_full_disk_and_nothing_else() {
    let system = FileSystem::new();
    system.set_bytes_max(10 * BLOCK as u64);
    run(&system, 1, || {
        let (one, other) = (File::create("/one").unwrap(), File::create("/other").unwrap());
        fs::reserve(&one, 6 * BLOCK as u64).unwrap();
        assert_eq!(one.metadata().unwrap().len(), 0);
        let full = fs::reserve(&other, 5 * BLOCK as u64).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert_eq!(other.write_at(&[1; 6 * BLOCK], 0).unwrap(), 4 * BLOCK, "as much as fits");
        assert_eq!(other.write_at(b"x", 4 * BLOCK as u64).unwrap_err().kind(), full.kind());
        one.write_all_at(&[2; 6 * BLOCK], 0).unwrap();
        assert_eq!(fs::space(&one).unwrap().bytes_free, 0);
        one.write_all_at(&[3; 6 * BLOCK], 0).unwrap();
        other.set_len(BLOCK as u64 + 1).unwrap();
        assert_eq!(fs::space(&one).unwrap().bytes_free, 2 * BLOCK as u64);
        fs::remove_file("/one").unwrap();
        assert_eq!(fs::space(&other).unwrap().bytes_free, 2 * BLOCK as u64, "it is still open");
        drop(one);
        let space = fs::space(&other).unwrap();
        assert_eq!((space.bytes_free, space.bytes_max), (8 * BLOCK as u64, 10 * BLOCK as u64));
    });
}

#[test]
fn a_file_that_comes_back_takes_its_space_again() {
    let system = FileSystem::new();
    system.set_bytes_max(10 * BLOCK as u64);
    system.put("/a", &[1; 4 * BLOCK]);
    let outcomes = after_cuts(
        &system,
        || fs::remove_file("/a").unwrap(),
        |system| format!("{} {}", system.has("/a"), system.bytes_free() / BLOCK as u64),
    );
    assert_eq!(keys(&outcomes), ["false 10", "true 6"]);
}

#[test]
fn space_that_was_cut_away_or_written_over_is_counted_once() {
    let system = FileSystem::new();
    system.set_bytes_max(100 * BLOCK as u64);
    run(&system, 1, || {
        for _ in 0..50 {
            fs::write("/a", [1; 10 * BLOCK]).unwrap();
            fs::write("/new", [1; 10 * BLOCK]).unwrap();
            fs::rename("/new", "/a").unwrap();
            fs::hard_link("/a", "/b").unwrap();
            fs::remove_file("/b").unwrap();
            let file = File::options().write(true).open("/a").unwrap();
            fs::reserve(&file, 20 * BLOCK as u64).unwrap();
            file.set_len(5 * BLOCK as u64).unwrap();
        }
    });
    assert_eq!(system.bytes_free(), 95 * BLOCK as u64);
    run(&system, 2, || fs::remove_file("/a").unwrap());
    assert_eq!(system.bytes_free(), 100 * BLOCK as u64);
}

#[test]
fn a_direct_transfer_is_aligned_or_refused() {
    const DIRECT: i32 = 0o40_000;
    let system = FileSystem::new();
    system.put("/a", &[7; 2 * BLOCK]);
    let open = || File::options().read(true).write(true).custom_flags(DIRECT).open("/a");
    run(&system, 1, move || {
        let file = open().unwrap();
        let mut buffer = vec![0; 3 * BLOCK];
        let begin = buffer.as_ptr().align_offset(BLOCK);
        let aligned = &mut buffer[begin..begin + BLOCK];
        assert_eq!(file.read_at(aligned, BLOCK as u64).unwrap(), BLOCK);
        file.write_all_at(aligned, 0).unwrap();
        assert!(file.write_at(aligned, 100).is_err());
        assert!(file.write_at(&aligned[..100], 0).is_err());
        assert!(file.read_at(&mut aligned[1..513], 0).is_err());
    });
    system.set_takes_direct(false);
    let refused = run(&system, 1, move || open().unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_file_that_was_removed_or_replaced_stays_usable_by_its_handle() {
    run(&FileSystem::new(), 1, || {
        fs::write("/a", b"first").unwrap();
        fs::write("/b", b"second").unwrap();
        let (first, second) = (File::open("/a").unwrap(), File::open("/b").unwrap());
        fs::hard_link("/b", "/c").unwrap();
        assert_eq!(second.metadata().unwrap().nlink(), 2);
        fs::rename("/b", "/a").unwrap();
        fs::remove_file("/a").unwrap();
        fs::remove_file("/c").unwrap();
        for (mut file, expected) in [(first, "first"), (second, "second")] {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), (expected, 0));
        }
    });
}

#[test]
fn a_handle_of_before_a_power_cut_is_of_no_use() {
    let power_cut = |system: &FileSystem| system.power_cut(&mut SeededRandom::mixed(1));
    let put_back = |system: &FileSystem| system.put_back(&system.copy());
    for act in [power_cut as fn(&FileSystem), put_back] {
        let system = FileSystem::new();
        system.put("/a", b"1");
        let other = system.clone();
        let failed = run(&system, 1, move || {
            let file = File::options().write(true).open("/a").unwrap();
            act(&other);
            file.write_all_at(b"2", 0).is_err()
        });
        assert_eq!((failed, system.bytes("/a").unwrap()), (true, b"1".to_vec()));
    }
}

/// Takes a lock and keeps it for ever.
fn holds(world: &World, process: Process, is_flock: bool) {
    world.start(process, "holds", move || {
        let file = File::options().write(true).open("/lock").unwrap();
        if is_flock {
            file.try_lock().unwrap()
        } else {
            fs::lock_description(&file).unwrap()
        }
        // Nothing closes it when the process ends.
        std::mem::forget(file);
        never();
    });
    world.run_until(world.now_us() + 1_000_000);
}

#[test]
fn a_lock_ends_with_its_process_and_the_kinds_do_not_see_each_other() {
    for is_flock in [true, false] {
        let (system, world) = (FileSystem::new(), World::new(1));
        system.put("/lock", b"");
        world.mount(A, &system);
        world.mount(B, &system);
        holds(&world, A, is_flock);
        let seen = Arc::new(Plain::new(Vec::new()));
        let look = |process| {
            let seen = Arc::clone(&seen);
            world.start(process, "looks", move || {
                let file = File::options().write(true).open("/lock").unwrap();
                let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
                seen.lock().push((is_locked, fs::is_description_locked(&file).unwrap()));
            });
            world.run_until(world.now_us() + 1_000_000);
        };
        look(B);
        look(A);
        world.kill(A);
        look(B);
        let held = (is_flock, !is_flock);
        assert_eq!(*seen.lock(), [held, held, (false, false)]);
    }
}

#[test]
fn shared_locks_go_together_and_an_exclusive_one_with_none() {
    let system = FileSystem::new();
    system.put("/lock", b"");
    run(&system, 1, || {
        let [one, two, three] = [(); 3].map(|()| File::open("/lock").unwrap());
        one.try_lock_shared().unwrap();
        two.try_lock_shared().unwrap();
        assert!(matches!(three.try_lock(), Err(TryLockError::WouldBlock)));
        one.unlock().unwrap();
        assert!(matches!(three.try_lock(), Err(TryLockError::WouldBlock)));
        drop(two);
        three.try_lock().unwrap();
        three.try_lock().unwrap();
        assert!(matches!(one.try_lock_shared(), Err(TryLockError::WouldBlock)));
    });
}

#[test]
fn what_waits_for_a_lock_gets_it_when_its_holder_gives_it_back_or_is_killed() {
    for killed in [false, true] {
        let (system, world) = (FileSystem::new(), World::new(2));
        system.put("/lock", b"");
        world.mount(A, &system);
        world.mount(B, &system);
        world.start(A, "holds", move || {
            let file = File::open("/lock").unwrap();
            file.lock().unwrap();
            crate::sync::mpsc::channel::<()>()
                .1
                .recv_timeout(std::time::Duration::from_secs(2))
                .ok();
            if killed {
                never();
            }
        });
        world.run_until(1_000_000);
        let got = Arc::new(Plain::new(None));
        let at = Arc::clone(&got);
        world.start(B, "waits", move || {
            File::open("/lock").unwrap().lock().unwrap();
            *at.lock() = Some(());
        });
        world.run_until(1_500_000);
        assert_eq!(*got.lock(), None);
        if killed {
            world.kill(A);
        }
        world.run_until(3_000_000);
        assert_eq!(*got.lock(), Some(()), "killed: {killed}");
    }
}

#[test]
fn two_processes_see_the_same_files_and_a_third_its_own() {
    let (shared, own, world) = (FileSystem::new(), FileSystem::new(), World::new(1));
    let third = Process(3);
    for (process, system) in [(A, &shared), (B, &shared), (third, &own)] {
        world.mount(process, system);
    }
    let seen = Arc::new(Plain::new(Vec::new()));
    for process in [A, B, third] {
        let seen = Arc::clone(&seen);
        world.start(process, "runs", move || {
            seen.lock().push(fs::exists("/a"));
            if process == A {
                fs::write("/a", b"").unwrap();
            }
        });
        world.run_until(process.0 * 1_000_000);
    }
    assert_eq!(*seen.lock(), [false, true, false]);
}

#[test]
fn a_copy_changes_apart_and_an_older_one_can_be_put_back() {
    let system = FileSystem::new();
    system.put("/a", b"old");
    let older = system.copy();
    run(&system, 1, || {
        fs::write("/a", b"new").unwrap();
        fs::create_dir("/folder").unwrap();
    });
    assert_eq!((older.bytes("/a").unwrap(), older.has("/folder")), (b"old".to_vec(), false));
    assert_ne!(system.tree(), older.tree());
    system.put_back(&older);
    assert_eq!(system.tree(), older.tree());
    assert!(system.remove("/a") && !system.remove("/a") && older.has("/a"));
}

#[test]
fn a_copy_of_a_full_disk_that_is_put_on_another_one_leaves_that_its_size() {
    let (system, full) = (FileSystem::new(), FileSystem::new());
    system.set_bytes_max(10 * BLOCK as u64);
    full.put("/a", &[1; 4 * BLOCK]);
    full.set_bytes_max(4 * BLOCK as u64);
    system.put_back(&full.synced());
    assert_eq!((system.bytes_free(), full.bytes_free()), (6 * BLOCK as u64, 0));
}

#[test]
fn what_is_synced_is_what_is_there_after_any_power_cut() {
    let system = FileSystem::new();
    system.put("/a", &[1; 2 * BLOCK]);
    assert!(system.is_synced("/a", 100, &[1; BLOCK]));
    assert!(!system.is_synced("/a", 0, &[2]) && !system.is_synced("/a", BLOCK as u64, &[1; 4097]));
    let changed = |act: fn()| {
        let system = system.copy();
        run(&system, 1, act);
        [0, BLOCK as u64].map(|at| system.is_synced("/a", at, &[1; BLOCK]))
    };
    assert_eq!(changed(|| {}), [true, true]);
    let overwrite = || {
        let file = File::options().write(true).open("/a").unwrap();
        file.write_all_at(&[1; 10], 0).unwrap();
        file.write_all_at(&[2; 10], BLOCK as u64 + 9).unwrap();
    };
    assert_eq!(changed(overwrite), [true, false]);
    let cut = || File::options().write(true).open("/a").unwrap().set_len(5_000).unwrap();
    assert_eq!(changed(cut), [true, false]);
    assert_eq!(changed(|| fs::remove_file("/a").unwrap()), [false, false]);
    let replace = || {
        fs::write("/b", [1; 2 * BLOCK]).unwrap();
        File::open("/b").unwrap().sync_all().unwrap();
        fs::rename("/b", "/a").unwrap();
    };
    assert_eq!(changed(replace), [false, false]);
    let durably = || {
        fs::write("/b", [1; 2 * BLOCK]).unwrap();
        File::open("/b").unwrap().sync_all().unwrap();
        fs::rename("/b", "/a").unwrap();
        sync_folder("/");
    };
    assert_eq!(changed(durably), [true, true]);
}

#[test]
fn a_folder_goes_only_when_all_that_was_in_it_has_gone() {
    let system = FileSystem::new();
    for name in ["/data/log/a", "/data/log/deep/b", "/data/other"] {
        system.put(name, b"1");
    }
    let outcomes = after_cuts(
        &system,
        || fs::remove_dir_all("/data/log").unwrap(),
        |system| {
            let tree = system.tree();
            assert!(system.has("/data/other"));
            assert!(!system.has("/data/log/deep/b") || system.has("/data/log/deep"));
            tree.len().to_string()
        },
    );
    assert_eq!(keys(&outcomes), ["2", "3", "4", "5", "6"]);
    run(&system, 1, || {
        fs::remove_dir_all("/data/log").unwrap();
        sync_folder("/data");
    });
    assert_eq!((system.synced().tree().len(), system.unsynced_names()), (2, 0));
}

#[test]
fn each_file_of_a_folder_that_is_removed_is_an_operation() {
    let system = FileSystem::new();
    for number in 0..5 {
        system.put(format!("/folder/{number}"), b"");
    }
    system.start_trace();
    run(&system, 1, || fs::remove_dir_all("/folder").unwrap());
    let kinds: Vec<_> = system.take_trace().iter().map(|done| done.kind).collect();
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count(OperationKind::Remove), count(OperationKind::RemoveFolder)), (5, 1));
    assert!(OperationKind::Remove.changes() && !OperationKind::List.changes());
}
