//! Backups of a log with damaged batches: what is whole comes back, and what is not is named by
//! everything that reads the backup.

use std::io;
use towline_log::folder::names::extent_name;

use super::super::copy::read_piece;
use super::*;
use towline_log::block::Aligned;
use towline_log::disk::{DiskFile, Fault, FaultOn};
use towline_log::format::{BATCH_HEADER_BYTES, BLOCK_BYTES};
use towline_log::offline::{Filter, Item};

impl Rig {
    /// Batches of the log: their positions and lengths.
    fn batches(&self) -> Vec<(Lsn, u64)> {
        let mut batches = Vec::new();
        let mut show = |item: Item<'_>| {
            if let Item::Batch { lsn, bytes, .. } = item {
                batches.push((lsn, bytes));
            }
        };
        offline::dump_disk(&self.disk, Filter::default(), &mut show).unwrap();
        batches
    }

    /// The same between two positions.
    fn batches_within(&self, from: Lsn, to: Lsn) -> Vec<(Lsn, u64)> {
        let inside = |(lsn, bytes): &(Lsn, u64)| *lsn >= from && lsn.after(*bytes) <= to;
        self.batches().into_iter().filter(inside).collect()
    }

    /// Flips a bit in the middle of a batch's payload, or flips it back.
    fn flip(&self, (lsn, bytes): (Lsn, u64)) {
        self.flip_at(lsn, (BATCH_HEADER_BYTES as u64 + bytes) / 2);
    }

    fn flip_at(&self, lsn: Lsn, behind: u64) {
        let (name, offset) = self.place(lsn);
        let at = usize::try_from(offset + behind).unwrap();
        self.memory.change(&name, |file| file[at] ^= 4);
    }

    fn place(&self, lsn: Lsn) -> (String, u64) {
        let extent_bytes = self.log.extent_bytes();
        (extent_name(lsn.0 / extent_bytes), lsn.0 % extent_bytes)
    }
}

fn positions(damaged: &[DamagedBatch]) -> Vec<Lsn> {
    damaged.iter().map(|damaged| damaged.lsn).collect()
}

fn version(backup: &MemoryDisk) -> u32 {
    Backup::look_disk(Arc::new(backup.clone())).unwrap().manifest().unwrap().version
}

#[test]
fn a_backup_beside_a_damaged_batch_is_made_and_names_it_wherever_it_is_read() {
    let mut rig = Rig::new(21);
    rig.append(60);
    rig.image(0, 9);
    rig.append(20);
    let all = rig.batches_within(Lsn::ZERO, rig.image_at);
    for hit in [0, all.len() / 2, all.len() - 1] {
        rig.flip(all[hit]);
        let to = MemoryDisk::new();
        let done = rig.back_up(&to, &choices(1)).unwrap();
        assert_eq!(positions(&done.damaged), [all[hit].0]);
        let (file, offset) = rig.place(all[hit].0);
        let told = done.damaged[0].to_string();
        assert!(told.starts_with(&format!("{file} at offset {offset} (")), "{told}");
        assert_eq!(version(&to), MANIFEST_VERSION, "an older program must not take it for whole");
        let report = check(&to);
        assert_eq!(report.findings, Vec::<String>::new());
        assert_eq!(positions(&report.damaged), [all[hit].0]);
        let (restored, records) = brought_back(&to, Upto::End).unwrap();
        assert_eq!(positions(&restored.damaged), [all[hit].0]);
        assert_eq!(records, rig.records(rig.image_at, rig.end()));
        let (restored, _) = brought_back(&to, Upto::Lsn(rig.runs[70].0)).unwrap();
        assert_eq!(restored.end, rig.runs[70].0, "a position behind the image can be had");
        rig.flip(all[hit]);
    }
    let to = MemoryDisk::new();
    assert_eq!(rig.back_up(&to, &choices(1)).unwrap().damaged, []);
    assert_eq!(version(&to), 1, "a program of before reads it");
}

/// Of each batch of a log, wherever it lies: the backup is made with the damage named, or it is
/// refused because a restart would read the batch.
#[test]
fn whichever_batch_is_damaged_a_backup_that_is_made_can_be_restored() {
    let mut rig = Rig::new(22);
    rig.append(40);
    rig.image(0, 3);
    rig.append(10);
    for (number, batch) in rig.batches().into_iter().enumerate() {
        // The header, and behind it.
        for behind in [4, BATCH_HEADER_BYTES as u64 + 1] {
            rig.flip_at(batch.0, behind);
            let to = MemoryDisk::new();
            let context = format!("batch {number} of {batch:?}, byte {behind}");
            match rig.back_up(&to, &choices(1)) {
                Ok(done) => {
                    assert!(batch.0 < rig.image_at, "{context}");
                    assert_eq!(positions(&done.damaged), [batch.0], "{context}");
                    assert_eq!(check(&to).findings, Vec::<String>::new(), "{context}");
                    let (_, records) = brought_back(&to, Upto::End).unwrap();
                    assert_eq!(records, rig.records(rig.image_at, rig.end()), "{context}");
                }
                Err(BackupError::SourceDamaged(found)) => {
                    let needed = batch.0.after(batch.1) >= rig.image_at;
                    assert!(needed && found.lsn <= batch.0, "{context}: {found}");
                    assert_eq!(to.files(), BTreeMap::new(), "{context}: nothing is left");
                }
                Err(other) => panic!("{context}: {other}"),
            }
            rig.flip_at(batch.0, behind);
        }
    }
}

#[test]
fn damage_that_a_restart_would_read_refuses_the_backup_with_place_and_way_out() {
    let mut rig = Rig::new(23);
    rig.append(20);
    rig.image(0, 3);
    rig.append(30);
    let to = MemoryDisk::new();
    rig.back_up(&to, &choices(1)).unwrap();
    let before = to.files();
    let from = rig.end();
    rig.append(30);
    let new = rig.batches_within(from, rig.end());
    rig.flip(new[new.len() / 2]);
    let refused = rig.back_up(&to, &choices(1)).unwrap_err().to_string();
    let (file, offset) = rig.place(new[new.len() / 2].0);
    let place = format!("{file} at offset {offset}");
    for words in [place.as_str(), "towline image", "towline log repair"] {
        assert!(refused.contains(words), "no {words} in {refused}");
    }
    assert_eq!(to.files(), before, "the backup before is as good as it was");
    // The action that the refusal recommends.
    rig.image(3, 0);
    assert_eq!(rig.back_up(&to, &choices(1)).unwrap().damaged.len(), 1);
}

#[test]
fn what_was_repaired_in_the_log_is_whole_in_the_next_backup_and_else_it_is_not_copied_again() {
    let mut rig = Rig::new(24);
    rig.append(60);
    rig.image(0, 2);
    let to = MemoryDisk::new();
    let all = rig.batches_within(Lsn::ZERO, rig.image_at);
    let hit = all[all.len() / 3];
    rig.flip(hit);
    rig.back_up(&to, &choices(2)).unwrap();
    rig.append(3);
    rig.image(2, 0);
    let done = rig.back_up(&to, &choices(2)).unwrap();
    assert_eq!(positions(&done.damaged), [hit.0], "it is known still");
    assert!(done.bytes < 200_000, "only what is new was copied: {done:?}");
    rig.flip(hit);
    let again = Choices { instead: true, ..choices(2) };
    let done = rig.back_up(&to, &again).unwrap();
    assert_eq!((done.damaged.len(), version(&to)), (0, 1));
    let manifest = Backup::look_disk(Arc::new(to.clone())).unwrap().manifest.unwrap();
    assert_eq!(manifest.points.len(), 2, "the older point is kept");
    assert!(check(&to).is_sound() && check(&to).damaged.is_empty());
    for upto in [Upto::End, Upto::Lsn(rig.runs[59].0)] {
        assert_eq!(brought_back(&to, upto).unwrap().0.damaged, []);
    }
}

#[test]
fn a_position_that_only_damage_leads_to_is_out_of_reach_and_not_silently_an_earlier_one() {
    let mut rig = Rig::new(25);
    rig.append(20);
    rig.image(0, 2);
    let to = MemoryDisk::new();
    rig.back_up(&to, &choices(2)).unwrap();
    let first = rig.image_at;
    rig.append(40);
    let between = rig.batches_within(first, rig.end());
    let hit = between[between.len() / 2];
    rig.flip(hit);
    rig.image(2, 1);
    rig.append(3);
    rig.back_up(&to, &choices(2)).unwrap();
    let before = rig.runs.iter().map(|(end, _)| *end).filter(|end| *end < hit.0).max().unwrap();
    let (restored, _) = brought_back(&to, Upto::Lsn(before)).unwrap();
    assert_eq!((restored.end, restored.damaged), (before, vec![]));
    let behind = rig.run_before(Lsn(rig.image_at.0 - 1));
    assert!(behind > hit.0);
    match brought_back(&to, Upto::Lsn(behind)).unwrap_err() {
        BackupError::DamageBetween { asked, damaged, behind: image } => {
            assert_eq!((asked, damaged.lsn, image), (behind, hit.0, Some(rig.image_at)));
        }
        other => panic!("{other}"),
    }
    for upto in [rig.image_at, rig.end()] {
        assert_eq!(brought_back(&to, Upto::Lsn(upto)).unwrap().0.end, upto);
    }
}

#[test]
fn an_extent_that_is_gone_is_named_with_what_can_be_done() {
    let mut rig = Rig::new(26);
    rig.append(60);
    rig.image(0, 2);
    let gone = rig.place(rig.batches()[0].0).0;
    rig.disk.remove(&gone).unwrap();
    let refused = rig.back_up(&MemoryDisk::new(), &choices(1)).unwrap_err();
    assert!(matches!(refused, BackupError::ExtentGone { .. }), "{refused}");
    let refused = refused.to_string();
    for words in [gone.as_str(), "towline log repair", "notes on the dead-letter queue"] {
        assert!(refused.contains(words), "no {words} in {refused}");
    }
}

/// A file with a sector that the disk does not give back.
struct Scratched {
    sector: u64,
    error: i32,
}

impl DiskFile for Scratched {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if (offset..offset + bytes.len() as u64).contains(&self.sector) {
            return Err(io::Error::from_raw_os_error(self.error));
        }
        bytes.fill(7);
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn cut(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_sector_that_the_disk_does_not_give_back_costs_its_block_and_no_other_error_does() {
    const EIO: i32 = 5;
    const EMFILE: i32 = 24;
    let block = BLOCK_BYTES as u64;
    let mut piece = Aligned::zeroed(4 * BLOCK_BYTES);
    read_piece(&Scratched { sector: 6 * block, error: EIO }, &mut piece, 4 * block).unwrap();
    let blocks: Vec<u8> = piece.bytes().chunks(BLOCK_BYTES).map(|block| block[0]).collect();
    assert_eq!(blocks, [7, 7, 0, 7]);
    let busy = Scratched { sector: 6 * block, error: EMFILE };
    assert!(read_piece(&busy, &mut piece, 4 * block).is_err(), "it may go well later");
}

/// A message lives in the first extent.
fn needs_the_first(disk: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    let first = extent_name(0);
    let there = disk.names().map_err(|error| error.to_string())?.contains(&first);
    Ok((!there).then_some(first))
}

fn unknown(_: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    Err("nobody knows".into())
}

#[test]
fn a_backup_gives_up_no_extent_that_its_messages_need_whatever_the_source_says() {
    let mut rig = Rig::new(27);
    let to = MemoryDisk::new();
    rig.append(60);
    rig.image(0, 2);
    rig.back_up(&to, &choices(1)).unwrap();
    rig.append(10);
    let before = to.files();
    let mut files = rig.memory.files();
    files.remove(&extent_name(0));
    // What is there is taken for all that is needed.
    let source = Source::at_rest(Arc::new(MemoryDisk::with_files(files))).unwrap();
    assert!(source.first() > Lsn::ZERO);
    let try_it = |to: &MemoryDisk, full, lacks| {
        let mut backup = Backup::open_disk(Arc::new(to.clone())).unwrap();
        let choices = Choices { full, lacks, ..choices(1) };
        backup.add(
            &source,
            SourcePages { file: Some(&rig.pages), used: &rig.used },
            &[],
            &choices,
            &mut |_| {},
        )
    };
    for full in [false, true] {
        let refused = try_it(&to, full, needs_the_first as Lacks).unwrap_err();
        assert!(matches!(refused, BackupError::ExtentGone { .. }), "{refused}");
        let refused = try_it(&to, full, unknown).unwrap_err();
        assert!(matches!(refused, BackupError::NotKnown { .. }), "{refused}");
        for words in [extent_name(0).as_str(), "nobody knows", "another folder"] {
            assert!(refused.to_string().contains(words), "no {words} in {refused}");
        }
        assert!(to.files() == before, "the backup is as it was");
    }
    // A new folder has nothing to lose, and a check finds what the copy lacks.
    let new = MemoryDisk::new();
    assert!(try_it(&new, false, needs_the_first as Lacks).is_err());
    try_it(&new, false, unknown).unwrap();
    let new = Backup::look_disk(Arc::new(new)).unwrap();
    let found = new.check(&pages_of, needs_the_first, &mut |_| {}).unwrap().findings;
    assert!(found.len() == 1 && found[0].contains(&extent_name(0)), "{found:?}");
    // No message needs it any more: it goes, as ever.
    try_it(&to, false, nothing).unwrap();
    assert!(!to.files().keys().any(|name| name.starts_with("log-0000000000000000.")));
}

#[test]
fn a_log_at_rest_of_which_a_read_fails_for_a_moment_is_backed_up_whole_or_not_at_all() {
    let mut rig = Rig::new(12);
    rig.append(10);
    rig.image(0, 2);
    let (mut refused, mut sequences) = (0, 0);
    for _ in 0..30 {
        // The newest batch may be the first of its extent.
        rig.append(1);
        let files = rig.memory.files();
        sequences = rig.end().0 / Options::small().extent_bytes;
        for (sequence, after) in (0..=sequences + 1).flat_map(|s| (0..5).map(move |a| (s, a))) {
            let disk = MemoryDisk::with_files(files.clone());
            let (on, error) = (FaultOn::Read, io::ErrorKind::Other);
            disk.inject(Fault { on, prefix: extent_name(sequence), after, times: 2, error });
            match Source::at_rest(Arc::new(disk)) {
                Ok(source) => assert_eq!(source.end(), rig.end(), "{after} of {sequence}"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 0 && sequences > 0, "no fault was met");
}
