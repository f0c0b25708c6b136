//! The file as the product has it, over simulated files: a crash at each operation, by a kill and
//! by a power cut.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use towline_os::simulated::crash;
use towline_os::simulated::fs::FileSystem;
use towline_types::SeededRandom;

use super::*;

const DATA: &str = "/data";

/// Prepares the file and writes terms up to this one; tells each that is promised.
fn promise(upto: u64, promised: &AtomicU64) {
    let file = HardStateFile::of(Path::new(DATA));
    file.prepare().unwrap();
    let before = file.read().unwrap().map_or(0, |read| read.term);
    promised.fetch_max(before, Ordering::SeqCst);
    for term in before + 1..=upto {
        file.write(&hard_state(term)).unwrap();
        promised.store(term, Ordering::SeqCst);
        file.note(&HardState { committed: term, ..hard_state(term) }).unwrap();
    }
}

/// What a start reads from these files.
fn read(files: &FileSystem) -> u64 {
    let read = crash::in_process(files, 1, || HardStateFile::of(Path::new(DATA)).read().unwrap());
    read.unwrap().map_or(0, |hard_state| {
        assert_eq!(hard_state.vote, self::hard_state(hard_state.term).vote);
        hard_state.term
    })
}

#[test]
fn what_was_promised_is_read_after_a_crash_at_any_operation_and_after_a_power_cut_then() {
    let files = FileSystem::new();
    files.make_folder(DATA);
    let promised = Arc::new(AtomicU64::new(0));
    let by_first = Arc::clone(&promised);
    let first = move || promise(3, &by_first);
    let runs = crash::at_each_operation(&files, 5, first, |left, run| {
        let found = read(left);
        let before = promised.swap(0, Ordering::SeqCst);
        assert!((before..=before + 1).contains(&found), "{run}: {before} and {found}");
        // What the first process began and did not sync, the next one may not take for synced.
        for upto in [0, 5] {
            let left = left.copy();
            let by_second = Arc::clone(&promised);
            crash::in_process(&left, 2, move || promise(upto, &by_second)).unwrap();
            let before = promised.swap(0, Ordering::SeqCst);
            assert_eq!(before, found.max(upto));
            for seed in 0..3 {
                let cut = left.copy();
                cut.power_cut(&mut SeededRandom::mixed(seed));
                assert_eq!(read(&cut), before, "{run}");
            }
        }
    });
    assert!(runs > 20 * 2 * 6, "{runs}");
}
