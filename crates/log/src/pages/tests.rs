//! The page file: what is written comes back, what was not written does not.

use std::io::ErrorKind;

use super::*;
use crate::disk::{CrashPoint, CrashRule, Fault, FaultOn, LinuxDisk, MemoryDisk};
use crate::testing::body;
use towline_types::SeededRandom;

fn open(disk: &MemoryDisk, used: &[PageRef]) -> Result<Pages, LogError> {
    Pages::open(Arc::new(disk.clone()), used.iter().copied())
}

fn what(error: &LogError) -> Option<(Damage, u64)> {
    match error {
        LogError::Damaged(finding) => Some((finding.what, finding.offset)),
        _ => None,
    }
}

fn fault(on: FaultOn, error: ErrorKind) -> Fault {
    Fault { on, prefix: PAGES_NAME.into(), after: 0, times: 1, error }
}

#[test]
fn pages_come_back_after_they_were_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = SeededRandom::new(1);
    let contents: Vec<Bytes> =
        [1, 4_095, 4_096, 4_097, 70_000].map(|bytes| body(&mut random, bytes).into()).into();
    let disk = Arc::new(LinuxDisk::open(folder.path()).unwrap());
    let pages = Pages::open(disk.clone(), []).unwrap();
    let mut places = pages.write_all(&contents).unwrap();
    places.push(pages.write(b"single").unwrap());
    pages.sync().unwrap();
    drop(pages);
    let pages = Pages::open(disk, places.iter().copied()).unwrap();
    for (place, content) in places.iter().zip(&contents) {
        assert_eq!(pages.read(*place).unwrap(), content);
    }
    let mut mixed = places.clone();
    mixed.swap(0, 3);
    let found: Vec<Bytes> = pages.read_all(&mixed).into_iter().map(Result::unwrap).collect();
    assert_eq!(found[0], contents[3]);
    assert_eq!((&found[3], &found[5]), (&contents[0], &Bytes::from_static(b"single")));
}

#[test]
fn neighbours_travel_in_one_write_and_one_read_of_at_most_1_mib() {
    let pages = open(&MemoryDisk::new(), &[]).unwrap();
    let contents = vec![Bytes::from(vec![7; 10_000]); 200];
    let places = pages.write_all(&contents).unwrap();
    // 85 pages of three units are 1,044,480 bytes.
    assert_eq!(pages.stats().writes, 3);
    assert_eq!(pages.stats().bytes_written, 200 * 12_288);
    assert!(pages.read_all(&places).iter().all(Result::is_ok));
    assert_eq!((pages.stats().reads, pages.stats().bytes_read), (3, 200 * 12_288));
    assert_eq!(pages.stats().used_bytes, 200 * 12_288);
}

#[test]
fn a_flipped_bit_is_damage_and_says_where() {
    let disk = MemoryDisk::new();
    let pages = open(&disk, &[]).unwrap();
    let places = pages.write_all(&[Bytes::from(vec![1; 5_000]), Bytes::from(vec![2; 9])]).unwrap();
    disk.change(PAGES_NAME, |bytes| bytes[8_192 + 8] ^= 0x10);
    assert_eq!(pages.read(places[0]).unwrap(), vec![1; 5_000]);
    assert_eq!(what(&pages.read(places[1]).unwrap_err()), Some((Damage::Page, 8_192)));
    let both = pages.read_all(&places);
    assert!(both[0].is_ok() && both[1].is_err());
    let text = pages.read(places[1]).unwrap_err().to_string();
    assert_eq!(text, "the log is damaged: pages at offset 8192: a page is damaged or missing");
}

#[test]
fn a_page_that_cannot_be_is_damage_and_takes_no_memory() {
    let disk = MemoryDisk::new();
    let pages = open(&disk, &[]).unwrap();
    let there = pages.write(&[3; 100]).unwrap();
    for wrong in [
        PageRef { unit: 1, ..there },
        PageRef { unit: u32::MAX, ..there },
        PageRef { bytes: u32::MAX, ..there },
        PageRef { bytes: 0, ..there },
        PageRef { bytes: 99, ..there },
        PageRef { checksum: there.checksum ^ 1, ..there },
    ] {
        assert_eq!(what(&pages.read(wrong).unwrap_err()).unwrap().0, Damage::Page, "{wrong:?}");
        assert!(pages.read_all(&[there, wrong])[1].is_err());
    }
    drop(pages);
    let far = PageRef { unit: 7, ..there };
    assert_eq!(what(&open(&disk, &[there, far]).err().unwrap()), Some((Damage::Page, 28_672)));
    let twice = open(&disk, &[there, there]).err().unwrap();
    assert_eq!(what(&twice), Some((Damage::PagesOverlap, 0)));
    assert!(open(&MemoryDisk::new(), &[there]).is_err(), "the file is not there");
}

#[test]
fn an_unreadable_page_does_not_make_its_neighbours_unreadable() {
    let disk = MemoryDisk::new();
    let pages = open(&disk, &[]).unwrap();
    let places = pages.write_all(&[Bytes::from_static(b"a"), Bytes::from_static(b"b")]).unwrap();
    disk.inject(fault(FaultOn::Read, ErrorKind::Other));
    assert!(pages.read_all(&places).iter().all(Result::is_ok));
    disk.inject(fault(FaultOn::Read, ErrorKind::Other));
    assert!(matches!(pages.read(places[0]), Err(LogError::Io { .. })));
    assert!(pages.read(places[0]).is_ok());
}

#[test]
fn a_place_is_given_out_again_only_when_it_may_be() {
    let pages = open(&MemoryDisk::new(), &[]).unwrap();
    let first = pages.write(&[1; 8_192]).unwrap();
    let second = pages.write(&[2; 8_192]).unwrap();
    assert_eq!(pages.read(first).unwrap(), vec![1; 8_192]);
    pages.reuse(&[first]);
    let third = pages.write(&[3; 4_096]).unwrap();
    let fourth = pages.write(&[4; 8_192]).unwrap();
    assert_eq!((first.unit, third.unit, second.unit, fourth.unit), (0, 0, 2, 4));
    assert_eq!(pages.read(second).unwrap(), vec![2; 8_192]);
    assert!(pages.read(first).is_err(), "the place holds another page");
}

#[test]
fn the_file_grows_in_steps_and_is_cut_when_more_than_half_is_free() {
    let disk = MemoryDisk::new();
    let pages = open(&disk, &[]).unwrap();
    let contents = vec![Bytes::from(vec![1; 1024 * 1024]); 30];
    let places = pages.write_all(&contents).unwrap();
    assert_eq!(pages.stats().file_bytes, 4 * STEP_BYTES);
    pages.reuse(&places[..20]);
    // The last page holds the end.
    assert_eq!(pages.stats().file_bytes, 4 * STEP_BYTES);
    assert_eq!(pages.stats().free_bytes, 4 * STEP_BYTES - 10 * 1024 * 1024);
    pages.reuse(&places[21..]);
    assert_eq!(pages.stats().file_bytes, 3 * STEP_BYTES);
    assert_eq!(disk.files()[PAGES_NAME].len() as u64, 3 * STEP_BYTES);
    assert_eq!(pages.read(places[20]).unwrap(), contents[20]);
    pages.reuse(&places[20..21]);
    assert_eq!(pages.stats().file_bytes, 0);
    assert_eq!(pages.write(b"again").unwrap().unit, 0);
}

#[test]
fn a_full_disk_refuses_a_page_and_nothing_else_happens() {
    let disk = MemoryDisk::new();
    let pages = open(&disk, &[]).unwrap();
    let first = pages.write(&[1; 4_096]).unwrap();
    pages.reuse(&[]);
    disk.set_capacity(Some(3 * STEP_BYTES));
    let too_much = vec![Bytes::from(vec![2; 1024 * 1024]); 25];
    let refused = pages.write_all(&too_much).unwrap_err();
    assert!(refused.is_full(), "{refused}");
    assert_eq!(pages.stats().used_bytes, 4_096);
    // Less than a step is left, and enough.
    disk.set_capacity(Some(16_384));
    let second = pages.write_all(&[Bytes::from(vec![3; 8_192]), Bytes::from(vec![4; 4_096])]);
    assert_eq!(second.unwrap()[1].unit, 3);
    assert!(pages.write(&[5]).unwrap_err().is_full());
    assert_eq!(pages.read(first).unwrap(), vec![1; 4_096]);
    disk.set_capacity(None);
    assert_eq!(pages.write(&[5]).unwrap().unit, 4);
}

#[test]
fn a_failed_write_gives_its_places_back_and_a_failed_sync_is_final() {
    let disk = MemoryDisk::new();
    let pages = open(&disk, &[]).unwrap();
    disk.inject(fault(FaultOn::Write, ErrorKind::Other));
    let failed = pages.write(b"one").unwrap_err();
    assert!(matches!(failed, LogError::Io { .. }) && !failed.is_full());
    let place = pages.write(b"two").unwrap();
    assert_eq!(place.unit, 0);
    disk.inject(fault(FaultOn::Sync, ErrorKind::Other));
    assert!(matches!(pages.sync(), Err(LogError::Io { .. })));
    assert!(matches!(pages.sync(), Err(LogError::Failed)), "a sync is never tried again");
    assert!(matches!(pages.write(b"three"), Err(LogError::Failed)));
    assert_eq!(pages.read(place).unwrap(), b"two".as_slice());
}

#[test]
fn after_a_power_cut_what_was_synced_is_there_and_what_was_not_is_told_by_its_checksum() {
    let seed = 77;
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let disk = MemoryDisk::recording();
    let pages = open(&disk, &[]).unwrap();
    // Written, and of them those that a sync covers, by the journal's length when that was so.
    let mut written: Vec<(PageRef, Bytes)> = Vec::new();
    let mut synced: Vec<(usize, Vec<(PageRef, Bytes)>)> = Vec::new();
    for _ in 0..60 {
        match random.below(10) {
            0..6 => {
                let bytes = 1 + random.below(20_000);
                let content = Bytes::from(body(&mut random, bytes));
                written.push((pages.write(&content).unwrap(), content));
            }
            6..8 => {
                pages.sync().unwrap();
                synced.push((disk.journal().len(), written.clone()));
            }
            _ if !written.is_empty() => {
                let gone = usize::try_from(random.below(written.len() as u64)).unwrap();
                let (gone, _) = written.swap_remove(gone);
                // No promise of an earlier sync holds for it any more.
                synced
                    .iter_mut()
                    .for_each(|(_, promised)| promised.retain(|(page, _)| *page != gone));
                pages.reuse(&[gone]);
            }
            _ => {}
        }
    }
    let journal = disk.journal();
    for (from, promised) in &synced {
        for point in *from..=journal.len() {
            let rule = CrashRule { keep_percent: 50, unit_bytes: 512, seed: point as u64 };
            let found = journal.crash(CrashPoint(point), rule);
            let used: Vec<PageRef> = promised.iter().map(|(page, _)| *page).collect();
            let pages = open(&found, &used).unwrap();
            for (page, content) in promised {
                assert_eq!(pages.read(*page).unwrap(), content, "point {point} {page:?}");
            }
        }
    }
    // What the last sync does not cover may be lost, and is never mistaken.
    let last = pages.write(&[9; 20_000]).unwrap();
    let journal = disk.journal();
    let damaged = |seed| {
        let rule = CrashRule { keep_percent: 50, unit_bytes: 4_096, seed };
        let found = journal.crash(CrashPoint(journal.len()), rule);
        open(&found, &[last]).and_then(|pages| pages.read(last)).is_err()
    };
    assert!((0..20).any(damaged));
}
