//! What a start reports as durable was made durable by that start: the process before may have been
//! killed between a write and its sync, and the power may go afterwards.

use super::*;
use crate::pages::Pages;
use towline_types::SeededRandom;

/// Every change of the disk from the `after`th on fails: so a process looks from outside that is
/// killed there.
fn kill_after(disk: &MemoryDisk, after: u64) {
    let (on, error) = (FaultOn::Change, std::io::ErrorKind::Other);
    disk.inject(Fault { on, prefix: String::new(), after, times: u64::MAX, error });
}

/// A life with images, reclaim and pages, which ends where the disk no longer takes anything.
fn live_until_killed(disk: &MemoryDisk, random: &mut SeededRandom) {
    let Ok((recovery, _, _)) = recover(&shared(disk), options()) else { return };
    let watch = Watch::new();
    let Ok(log) = recovery.start(Arc::clone(&watch) as Arc<dyn Listener>) else { return };
    let Ok(pages) = Pages::open(shared(disk), []) else { return };
    for round in 0_u64..40 {
        let mut appender = log.appender();
        let bytes = random.below(30_000);
        let record = body(random, bytes);
        appender.record(record.len(), |buffer| buffer.extend_from_slice(&record));
        let Ok(end) = appender.commit(Urgency::Forced) else { return };
        if !watch.wait_durable_or_failed(end) {
            return;
        }
        if round % 8 == 7 {
            let Some(mark) = log.mark_at(end) else { return };
            let written = pages.write(&round.to_le_bytes()).and_then(|_| pages.sync());
            if written.and_then(|()| log.write_image(mark, &[1])).is_err() {
                return;
            }
            drop(log.reclaim(end));
        }
    }
}

fn options() -> Options {
    Options { reserve_bytes: 0, ..Options::small() }
}

/// What a start found, and how far it said that it is durable.
fn start_again(
    disk: &MemoryDisk,
) -> (Vec<Record>, Option<(Lsn, Bytes)>, Lsn, crate::disk::Journal) {
    let (recovery, _, records) = recover(&shared(disk), options()).unwrap();
    let image = image_of(&recovery);
    let log = recovery.start(Watch::new() as Arc<dyn Listener>).unwrap();
    (records, image, log.durable(), disk.journal())
}

#[test]
fn what_a_start_calls_durable_survives_a_power_cut_wherever_the_process_before_was_killed() {
    let seed = 11;
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let mut unsynced = 0;
    for after in (0..400).step_by(3) {
        let disk = MemoryDisk::recording();
        kill_after(&disk, after);
        live_until_killed(&disk, &mut random);
        disk.heal();
        let killed = disk.journal();
        let (records, image, durable, journal) = start_again(&disk);
        for keep_percent in [0, 40] {
            let rule = CrashRule { keep_percent, unit_bytes: 512, seed: random.next_u64() };
            let lost = recover(&shared(&killed.crash(CrashPoint(killed.len()), rule)), options());
            unsynced += u64::from(lost.is_ok_and(|(_, _, lost)| lost != records));
            let found = journal.crash(CrashPoint(journal.len()), rule);
            let (recovery, report, again) = recover(&shared(&found), options()).unwrap();
            assert_eq!(report.tail, durable, "killed after {after}, {rule:?}");
            assert!(again == records && image_of(&recovery) == image, "killed after {after}");
        }
    }
    assert!(unsynced > 10, "without a start in between the power cut would show: {unsynced}");
}

#[test]
fn a_start_whose_sync_fails_is_refused_and_not_tried_again() {
    for (on, prefix) in [(FaultOn::Sync, "extent-"), (FaultOn::SyncNames, "")] {
        let disk = MemoryDisk::recording();
        write(&disk, 5, 500, false);
        // Of a log that ran: the folder of another one is synced when it is opened.
        disk.create("pages").unwrap();
        let error = std::io::ErrorKind::Other;
        disk.inject(Fault { on, prefix: prefix.to_owned(), after: 0, times: 1, error });
        let mut recovery = Recovery::open(shared(&disk), Options::small(), LOG_ID).unwrap();
        let nothing = |_: Lsn, _: &[u8]| Ok::<(), std::convert::Infallible>(());
        let refused = recovery.replay(nothing);
        assert!(matches!(refused, Err(ReplayError::Log(LogError::Io { .. }))), "{on:?}");
        let refused = recovery.replay(nothing);
        assert!(matches!(refused, Err(ReplayError::Log(LogError::Failed))), "{on:?}");
    }
}

#[test]
fn a_start_syncs_the_extents_that_it_read_and_the_folder_once_each() {
    let disk = MemoryDisk::new();
    let written = write(&disk, 100, 9_000, false);
    let (_, report, _) = recover(&shared(&disk), Options::small()).unwrap();
    let extents = disk.files().keys().filter(|name| name.starts_with("extent-")).count();
    assert_eq!(report.syncs, extents as u64 + 1);
    // Behind an image: what the image covers was durable when it was taken.
    let watch = Watch::new();
    let log = start(&shared(&disk), Options::small(), &watch);
    image(&log, written.ends[99], b"image");
    drop(log);
    let before = disk.syncs();
    let (_, report, _) = recover(&shared(&disk), Options::small()).unwrap();
    assert_eq!(report.syncs - 1, disk.syncs() - before);
    let behind = u64::try_from(extents).unwrap() - written.ends[99].0 / EXTENT_BYTES_MIN;
    assert_eq!(report.syncs, behind + 1);
}
