use std::sync::Arc;

use towline_types::{Lsn, SeededRandom};

use super::*;
use crate::disk::{CrashPoint, CrashRule, MemoryDisk};
use crate::format::size;
use crate::listener::Urgency;
use crate::options::Options;
use crate::recover::Recovery;
use crate::testing::{LOG_ID, Watch, append, image, start};

/// A log of several extents, with images. Yields the ends of its batches.
fn written(memory: &MemoryDisk, random: &mut SeededRandom) -> Vec<Lsn> {
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let watch = Watch::new();
    let log = start(&disk, Options::small(), &watch);
    let mut ends = Vec::new();
    for number in 0..60_u8 {
        let bytes = if random.below(3) == 0 { 60_000 } else { 300 };
        let record = vec![number; 1 + size(random.below(bytes))];
        let (_, end) = append(&log, &[record], Urgency::Forced);
        watch.wait_durable(end);
        ends.push(end);
        if random.below(15) == 0 {
            image(&log, end, b"an image");
        }
    }
    log.shutdown();
    ends
}

/// The records of a log, in order, as a start reads them from its beginning.
fn records(disk: &Arc<dyn Disk>) -> (Vec<Vec<u8>>, Lsn) {
    let mut recovery = Recovery::open(Arc::clone(disk), Options::small(), LOG_ID).unwrap();
    recovery.look_only();
    let mut records = Vec::new();
    let take = |_: Lsn, bytes: &[u8]| {
        records.push(bytes.to_vec());
        Ok::<(), std::convert::Infallible>(())
    };
    let begin = crate::recover::Begin::Oldest;
    let report = recovery.replay_from(begin, take, |_, _| {}).unwrap();
    (records, report.tail)
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.map_or(1..=6, |seed: u64| seed..=seed)
}

#[test]
fn a_log_that_is_cut_back_is_its_beginning_and_goes_on_from_there() {
    for seed in seeds() {
        println!("seed {seed} (TOWLINE_SEED)");
        let mut random = SeededRandom::new(seed);
        let memory = MemoryDisk::recording();
        let ends = written(&memory, &mut random);
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let (all, _) = records(&disk);
        let keeps = 1 + size(random.below(ends.len() as u64));
        let fork = ends[keeps - 1];
        let (view, last) = CutView::of(&disk, fork).unwrap();
        assert_eq!((last.end, last.index), (fork, keeps as u64));
        let view: Arc<dyn Disk> = Arc::new(view);
        assert_eq!(records(&view), (all[..keeps].to_vec(), fork), "the view");
        assert_eq!(records(&disk).0, all, "a look changes nothing");
        assert_eq!(cut_back(&disk, fork).unwrap(), last);
        assert_eq!(records(&disk), (all[..keeps].to_vec(), fork));
        assert_eq!(cut_back(&disk, fork).unwrap(), last, "done again");
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let (_, end) = append(&log, &[b"new".to_vec()], Urgency::Forced);
        watch.wait_durable(end);
        log.shutdown();
        let (found, _) = records(&disk);
        assert_eq!((&found[..keeps], &found[keeps..]), (&all[..keeps], &[b"new".to_vec()][..]));
    }
}

#[test]
fn a_power_cut_at_any_moment_of_a_cut_is_gone_on_with() {
    for seed in seeds() {
        println!("seed {seed} (TOWLINE_SEED)");
        let mut random = SeededRandom::new(seed);
        let memory = MemoryDisk::recording();
        let ends = written(&memory, &mut random);
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let (all, _) = records(&disk);
        let keeps = 1 + size(random.below(ends.len() as u64));
        let fork = ends[keeps - 1];
        let began = memory.journal().len();
        let last = cut_back(&disk, fork).unwrap();
        let journal = memory.journal();
        assert!(journal.len() > began, "something was done");
        for point in began..=journal.len() {
            for any_order in [false, true] {
                let keep_percent = [0, 30, 70, 100][size(random.below(4))];
                let unit_bytes = [512, 4_096][size(random.below(2))];
                let rule = CrashRule { keep_percent, unit_bytes, seed: random.next_u64() };
                println!("point {point}, {rule:?}, any order {any_order}");
                let left = match any_order {
                    false => journal.crash(CrashPoint(point), rule),
                    true => journal.crash_with_names_in_any_order(CrashPoint(point), rule),
                };
                let left: Arc<dyn Disk> = Arc::new(left);
                assert_eq!(cut_back(&left, fork).unwrap(), last);
                assert_eq!(records(&left), (all[..keeps].to_vec(), fork));
            }
        }
    }
}

#[test]
fn a_position_within_a_batch_or_before_the_log_is_refused_and_one_behind_its_end_changes_nothing() {
    let memory = MemoryDisk::recording();
    let ends = written(&memory, &mut SeededRandom::new(3));
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let (all, end) = records(&disk);
    let within = Lsn(ends[20].0 - 1);
    assert!(
        matches!(cut_back(&disk, within), Err(CutError::WithinBatch(batch)) if batch.index == 21)
    );
    assert!(matches!(cut_back(&disk, Lsn(4_096)), Err(CutError::Gone)));
    assert_eq!(records(&disk), (all.clone(), end));
    assert_eq!(last_upto(&disk, Lsn(end.0 + 100_000_000)).unwrap().end, end);
    cut_back(&disk, Lsn(end.0 + 100_000_000)).unwrap();
    assert_eq!(records(&disk), (all, end));
}
