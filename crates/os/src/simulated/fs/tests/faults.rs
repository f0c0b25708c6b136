//! Faults that a test makes, the time that operations take, and the trace.

use std::io::{Read, Write};
use std::time::Duration;

use super::*;
use crate::fs::OpenOptionsExt;
use crate::simulated::fs::{DiskTiming, Operation, OperationKind};
use crate::thread;
use crate::time::Instant;

const EIO: i32 = 5;
/// As open(2) takes it.
const DIRECT: i32 = 0o40_000;
/// Where a direct transfer may begin.
#[repr(align(4096))]
struct Block([u8; 4_096]);

/// The verdict on the operations of a kind, and on no other.
fn on(kind: OperationKind, verdict: Verdict) -> impl FnMut(&Operation<'_>) -> Verdict + Send {
    move |operation| if operation.kind == kind { verdict } else { Verdict::Goes }
}

#[test]
fn an_operation_that_fails_has_no_effect_or_has_one() {
    for (verdict, expected) in [(Verdict::Fails(28), ""), (Verdict::FailsAfter(28), "x")] {
        let system = FileSystem::new();
        system.put("/a", b"");
        system.set_faults(on(OperationKind::Write, verdict));
        let error = run(&system, 1, || fs::write("/a", b"x").unwrap_err());
        assert_eq!(error.raw_os_error(), Some(28));
        assert_eq!(system.bytes("/a").unwrap(), expected.as_bytes());
    }
}

#[test]
fn a_fault_sees_what_is_about_to_happen_and_may_look_into_the_files() {
    let system = FileSystem::new();
    system.make_folder("/data");
    let (inside, seen) = (system.clone(), Arc::new(Plain::new(Vec::new())));
    let list = Arc::clone(&seen);
    system.set_faults(move |operation| {
        assert_eq!(operation.process, A);
        let Operation { kind, path, to, offset, length, .. } = *operation;
        list.lock().push((kind, path.to_owned(), offset, length, inside.names("/data").len()));
        assert_eq!(to.is_some(), kind == OperationKind::Rename);
        Verdict::Goes
    });
    run(&system, 1, || {
        let file = File::create("/data/a").unwrap();
        file.write_all_at(b"four", 8).unwrap();
        fs::rename("/data/a", "/data/b").unwrap();
    });
    let path = |name: &str| Path::new(name).to_owned();
    assert_eq!(
        *seen.lock(),
        [
            (OperationKind::Create, path("/data/a"), 0, 0, 0),
            (OperationKind::Write, path("/data/a"), 8, 4, 1),
            (OperationKind::Rename, path("/data/a"), 0, 0, 1),
        ]
    );
}

#[test]
fn a_sync_that_fails_leaves_some_of_it_durable_and_gives_the_rest_up_or_not() {
    const NEW: [u8; 4 * 4096] = [b'1'; 4 * 4096];
    let (mut some, mut outcomes) = (0, [0, 0]);
    for seed in 0..200 {
        let system = FileSystem::new();
        system.put("/a", &[b'0'; 4 * 4096]);
        system.set_faults(|operation| match (operation.kind, operation.number) {
            (OperationKind::Sync, 3) => Verdict::FailsAfter(EIO),
            _ => Verdict::Goes,
        });
        let looks = system.clone();
        let after_failure = run(&system, seed, move || {
            let file = File::options().read(true).write(true).open("/a").unwrap();
            file.write_all_at(&NEW, 0).unwrap();
            assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
            let after_failure = looks.synced().bytes("/a").unwrap();
            let mut seen = [0; 4 * 4096];
            file.read_exact_at(&mut seen, 0).unwrap();
            assert_eq!(seen, NEW, "readers see what was written");
            file.sync_data().unwrap();
            after_failure
        });
        let count = after_failure.iter().filter(|byte| **byte == b'1').count();
        some += usize::from(0 < count && count < NEW.len());
        outcomes[usize::from(system.synced().bytes("/a").unwrap() == NEW)] += 1;
    }
    assert!(some > 20 && outcomes[0] > 20 && outcomes[1] > 20, "{some} {outcomes:?}");
}

#[test]
fn what_was_written_directly_and_lost_by_a_failed_sync_is_not_shown() {
    let mut outcomes = [0, 0];
    for seed in 0..100 {
        let system = FileSystem::new();
        system.set_bytes_max(1_000 * 4096);
        system.put("/a", b"");
        system.set_faults(on(OperationKind::Sync, Verdict::FailsAfter(EIO)));
        let seen = run(&system, seed, || {
            let file = File::options().read(true).write(true).custom_flags(DIRECT).open("/a");
            let (file, mut buffer) = (file.unwrap(), vec![7; 3 * 4096]);
            let begin = buffer.as_ptr().align_offset(4096);
            file.write_all_at(&buffer[begin..begin + 8192], 0).unwrap();
            file.sync_data().unwrap_err();
            let length = file.read_at(&mut buffer[begin..begin + 8192], 0).unwrap();
            buffer[begin..begin + length].to_vec()
        });
        let synced = system.synced();
        let is_lost = seen != [7; 8192];
        assert!(!is_lost || synced.bytes("/a").unwrap() == seen, "seed {seed}");
        outcomes[usize::from(is_lost)] += 1;
        system.clear_faults();
        run(&system, seed, || fs::remove_file("/a").unwrap());
        assert_eq!(system.bytes_free(), 1_000 * 4096, "seed {seed}");
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 10, "{outcomes:?}");
}

#[test]
fn a_sync_of_a_folder_that_fails_leaves_some_of_its_names_durable() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let system = FileSystem::new();
        system.set_faults(|operation| match operation.number {
            4 => Verdict::FailsAfter(EIO),
            _ => Verdict::Goes,
        });
        let looks = system.clone();
        seen.insert(run(&system, seed, move || {
            File::create("/a").unwrap();
            File::create("/b").unwrap();
            let folder = File::open("/").unwrap();
            folder.sync_all().unwrap_err();
            let some = names(&looks.synced());
            folder.sync_all().unwrap();
            assert_eq!(names(&looks.synced()), "a b");
            some
        }));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["", "a", "a b", "b"]);
}

#[test]
fn an_operation_takes_as_long_as_it_is_told_and_meanwhile_others_go_on() {
    let (system, world) = (FileSystem::new(), World::new(6));
    system.put("/a", b"");
    system.put("/b", b"");
    system.set_faults(|operation| {
        let is_slow = operation.kind == OperationKind::Sync && operation.path.ends_with("a");
        if is_slow { Verdict::Takes(Duration::from_secs(3)) } else { Verdict::Goes }
    });
    world.mount(A, &system);
    let took = Arc::new(Plain::new(Vec::new()));
    for name in ["/a", "/b"] {
        let took = Arc::clone(&took);
        world.start(A, name, move || {
            let file = File::open(name).unwrap();
            let began = Instant::now();
            file.sync_all().unwrap();
            took.lock().push((name, began.elapsed().as_millis()));
        });
    }
    world.run_until(LONG_US);
    assert_eq!(*took.lock(), [("/b", 0), ("/a", 3_000)]);
}

#[test]
fn an_operation_that_hangs_ends_with_its_process_without_effect() {
    let (system, world) = (FileSystem::new(), World::new(7));
    system.set_faults(on(OperationKind::Write, Verdict::Hangs));
    world.mount(A, &system);
    world.start(A, "writes", || fs::write("/a", b"x").unwrap());
    world.run_until(LONG_US);
    assert!(world.is_left(A));
    world.kill(A);
    world.run_until(LONG_US + 1);
    assert!(!world.is_left(A));
    assert_eq!(system.bytes("/a").unwrap(), b"");
}

#[test]
fn an_operation_that_hangs_goes_on_when_faults_are_cleared() {
    let (system, world) = (FileSystem::new(), World::new(7));
    system.set_faults(on(OperationKind::Write, Verdict::Hangs));
    world.mount(A, &system);
    world.start(A, "writes", || fs::write("/a", b"x").unwrap());
    world.run_until(LONG_US);
    assert_eq!(system.bytes("/a").unwrap(), b"");
    system.clear_faults();
    world.run_until(2 * LONG_US);
    assert!(!world.is_left(A));
    assert_eq!(system.bytes("/a").unwrap(), b"x");
}

#[test]
fn a_kill_in_the_middle_of_a_write_leaves_it_done_or_not() {
    let mut outcomes = [0, 0];
    for seed in 0..100 {
        let (system, world) = (FileSystem::new(), World::new(seed));
        system.set_timing(DiskTiming { write_us: (1_000_000, 1_000_000), ..DiskTiming::default() });
        world.mount(A, &system);
        world.start(A, "writes", || fs::write("/a", b"x").unwrap());
        world.run_until(500_000);
        world.kill(A);
        world.run_until(LONG_US);
        outcomes[system.bytes("/a").unwrap().len()] += 1;
    }
    assert!(outcomes[0] > 20 && outcomes[1] > 20, "{outcomes:?}");
}

#[test]
fn a_read_can_come_with_a_wrong_bit_and_the_file_does_not_change() {
    let system = FileSystem::new();
    system.put("/a", &[0; 4]);
    let mut left = 1;
    system.set_faults(move |operation| {
        let flips = operation.kind == OperationKind::Read && left > 0;
        left -= i32::from(flips);
        if flips { Verdict::FlipsBit(9) } else { Verdict::Goes }
    });
    let read = run(&system, 1, || {
        let file = File::open("/a").unwrap();
        let (mut first, mut second) = ([9; 4], [9; 4]);
        file.read_exact_at(&mut first, 0).unwrap();
        file.read_exact_at(&mut second, 0).unwrap();
        (first, second)
    });
    assert_eq!(read, ([0, 2, 0, 0], [0; 4]));
    assert!(system.flip_bit("/a", 9) && !system.flip_bit("/a", 32));
    assert_eq!(system.synced().bytes("/a").unwrap(), [0, 2, 0, 0], "at rest it does");
}

#[test]
fn the_trace_has_what_was_done_in_order_and_what_came_of_it() {
    let system = FileSystem::new();
    system.put("/old", b"1");
    assert!(system.take_trace().is_empty());
    system.start_trace();
    run(&system, 1, || {
        fs::rename("/old", "/new").unwrap();
        fs::remove_file("/old").unwrap_err();
        let mut text = String::new();
        File::open("/new").unwrap().read_to_string(&mut text).unwrap();
        File::options().append(true).open("/new").unwrap().write_all(b"2").unwrap();
    });
    let trace = system.take_trace();
    let lines = trace.iter().map(|done| {
        let to = done.to.as_ref().map(|to| to.display().to_string()).unwrap_or_default();
        format!("{:?} {} {to}{:?}", done.kind, done.path.display(), done.error)
    });
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines[..3], ["Rename /old /newNone", "Remove /old Some(2)", "Open /new None"]);
    assert!(lines[3].starts_with("Read /new"));
    assert!(trace.is_sorted_by_key(|done| (done.number, done.at_us)), "{trace:?}");
    assert!(trace.iter().all(|done| done.process == A));
    assert_eq!((trace.last().unwrap().offset, trace.last().unwrap().length), (1, 1));
    assert_eq!(system.bytes("/new").unwrap(), b"12");
    assert!(system.take_trace().is_empty());
}

#[test]
fn the_same_seed_gives_the_same_times_and_another_one_others() {
    let times = |seed| {
        let system = FileSystem::new();
        system.start_trace();
        run(&system, seed, || {
            fs::write("/a", [1; 9_000]).unwrap();
            File::open("/a").unwrap().sync_all().unwrap();
        });
        system.take_trace().iter().map(|done| done.at_us).collect::<Vec<_>>()
    };
    assert_eq!(times(7), times(7));
    assert_ne!(times(7), times(8));
}

#[test]
fn stalls_come_as_often_as_they_should() {
    let system = FileSystem::new();
    let stall_us = (1_000_000, 1_000_000);
    system.set_timing(DiskTiming { stalls_per_mille: 100, stall_us, ..DiskTiming::default() });
    let took = run(&system, 3, || {
        let file = File::create("/a").unwrap();
        let began = Instant::now();
        (0..500).for_each(|_| file.write_all_at(b"x", 0).unwrap());
        began.elapsed().as_secs()
    });
    assert!((20..=90).contains(&took), "{took}");
}

/// Two threads write a block each and sync it, with the first sync failing. Blocks of which a sync
/// said that they are on the medium and which are not, over many seeds.
fn believed_and_lost(is_direct: bool, opens_each: bool) -> usize {
    let lost_with = |seed| {
        let (system, world) = (FileSystem::new(), World::new(seed));
        system.put("/a", &[0; 3 * 4_096]);
        system.set_timing(DiskTiming { sync_us: (0, 2_000_000), ..DiskTiming::default() });
        let mut first = true;
        system.set_faults(move |operation| {
            let is_first = operation.kind == OperationKind::Sync && std::mem::take(&mut first);
            if is_first { Verdict::FailsAfter(EIO) } else { Verdict::Goes }
        });
        world.mount(A, &system);
        let synced = Arc::new(Plain::new(Vec::new()));
        let results = Arc::clone(&synced);
        world.start(A, "syncs", move || {
            let open = move || {
                let mut options = OpenOptions::new();
                let options = options.write(true);
                options.custom_flags(if is_direct { DIRECT } else { 0 }).open("/a").unwrap()
            };
            let shared = Arc::new(open());
            let both = [1, 2].map(|at| {
                let file = if opens_each { Arc::new(open()) } else { Arc::clone(&shared) };
                let results = Arc::clone(&results);
                let sync = move || {
                    let block = Block([at; 4_096]);
                    file.write_all_at(&block.0, u64::from(at) * 4_096).unwrap();
                    let is_synced = file.sync_all().is_ok();
                    results.lock().push((at, is_synced));
                };
                thread::Builder::new().spawn(sync).unwrap()
            });
            both.into_iter().for_each(|thread| thread.join().unwrap());
        });
        world.run_until(LONG_US);
        let synced = synced.lock();
        assert_eq!(synced.len(), 2, "{seed}");
        let is_lost = |at: u8| !system.is_synced("/a", u64::from(at) * 4_096, &[at; 4_096]);
        synced.iter().filter(|(at, is_synced)| *is_synced && is_lost(*at)).count()
    };
    (0..100).map(lost_with).sum()
}

#[test]
fn a_flush_beside_one_that_failed_fails_too() {
    assert_eq!(believed_and_lost(true, false), 0);
    assert_eq!(believed_and_lost(true, true), 0);
}

#[test]
fn what_the_system_could_not_write_is_reported_once_to_each_open_file_as_linux_does() {
    assert_eq!(believed_and_lost(false, true), 0);
    assert!(
        believed_and_lost(false, false) > 0,
        "one of two that share a file does not hear of it"
    );
}
