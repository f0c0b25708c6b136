//! Copies that go through a stream: what arrives is the log that was sent, or nothing that starts.

use super::*;
use towline_log::Hold;

impl Rig {
    /// What the giver writes.
    fn given(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        self.give(&self.log.hold(Lsn::ZERO), &mut stream, &mut |_| {}).unwrap();
        stream
    }

    fn give(
        &self,
        hold: &Hold,
        to: &mut dyn std::io::Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, BackupError> {
        let keep_from = self.log.first_held();
        let source = Source::running(&self.log, self.image_at, keep_from)?.unwrap();
        let rows = [Row { at: Time(5), upto: self.log.durable() }];
        give(source, (&self.pages, self.used.clone()), &rows, hold, to, progress)
    }

    fn gift(&self) -> Gift {
        let source = Source::running(&self.log, self.image_at, self.log.first_held());
        let rows = [Row { at: Time(5), upto: self.log.durable() }];
        Gift::new(source.unwrap().unwrap(), self.used.clone(), &rows).unwrap()
    }
}

fn rig() -> Rig {
    let mut rig = Rig::new(12);
    rig.append(40);
    rig.image(0, 9);
    rig.append(20);
    rig
}

fn taken(disk: &MemoryDisk, mut stream: &[u8]) -> Result<ReceivedCopy, BackupError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    take(&disk, &mut stream, &mut |_| {})
}

#[test]
fn a_copy_ends_where_the_log_did_in_the_same_term_and_has_its_pages_and_times() {
    let rig = rig();
    let stream = rig.given();
    let memory = MemoryDisk::new();
    let copy = taken(&memory, &stream).unwrap();
    assert_eq!((copy.end, copy.image), (rig.end(), rig.image_at));
    let disk: Arc<dyn Disk> = Arc::new(memory);
    assert!(offline::verify_disk(&disk).unwrap().findings.is_empty());
    assert_eq!(towline_log::time_index::read(disk.as_ref()).unwrap().len(), 1);
    let pages = Pages::open(Arc::clone(&disk), rig.used.clone()).unwrap();
    assert!(pages.read_all(&rig.used).iter().all(Result::is_ok));
    let mut recovery = Recovery::open(disk, Options::small(), LOG_ID).unwrap();
    recovery.keep_places();
    let mut records = Vec::new();
    let replayed = recovery.replay(|lsn, bytes| {
        records.push((lsn, bytes.to_vec()));
        Ok::<(), std::convert::Infallible>(())
    });
    replayed.unwrap();
    assert_eq!(records, rig.records(rig.image_at, rig.end()));
    let towline_log::BatchPlaces { base, batches: places } = recovery.places();
    let last = places.last().copied().unwrap_or(base);
    let seam = rig.log.mark_at(rig.log.durable()).unwrap().seam();
    assert_eq!((last.index, last.term), (seam.index, u64::from(seam.term)));
}

#[test]
fn a_bit_that_is_flipped_on_the_way_or_an_early_end_leaves_a_folder_that_nobody_starts_with() {
    let rig = rig();
    let stream = rig.given();
    let mut random = SeededRandom::new(3);
    for turn in 0..60 {
        let mut other = stream.clone();
        let at = usize::try_from(random.below(other.len() as u64)).unwrap();
        if turn % 3 == 0 {
            other.truncate(at);
        } else {
            other[at] ^= 1 << random.below(8);
        }
        let memory = MemoryDisk::new();
        let refused = taken(&memory, &other).unwrap_err();
        let of_stream = matches!(refused, BackupError::Stream(_) | BackupError::Log(_));
        assert!(of_stream, "byte {at}: {refused}");
        // Before the head is known to be whole, nothing is written.
        let begun: Arc<dyn Disk> = Arc::new(MemoryDisk::with_files(memory.files()));
        let found = Recovery::open(begun, Options::small(), LOG_ID);
        let marked = matches!(found, Err(LogError::Restoring { .. }));
        assert!(marked != memory.files().is_empty(), "byte {at}");
        taken(&memory, &stream).unwrap();
    }
}

#[test]
fn a_power_cut_while_a_copy_arrives_leaves_one_that_is_whole_or_refused() {
    let rig = rig();
    let stream = rig.given();
    let target = MemoryDisk::recording();
    let copy = taken(&target, &stream).unwrap();
    let journal = target.journal();
    let (mut whole, mut refused) = (0, 0);
    for point in 0..=journal.len() {
        let rule = CrashRule { keep_percent: 50, unit_bytes: 512, seed: point as u64 };
        let found = journal.crash(CrashPoint(point), rule);
        if found.files().is_empty() {
            continue;
        }
        let disk: Arc<dyn Disk> = Arc::new(found.clone());
        match recover(&disk, Options::small()) {
            Err(LogError::Restoring { .. }) => {
                refused += 1;
                assert_eq!(taken(&found, &stream).unwrap(), copy);
            }
            Ok((_, _, records)) => {
                whole += 1;
                assert_eq!(records, rig.records(rig.image_at, rig.end()), "point {point}");
            }
            Err(other) => panic!("point {point}: {other}"),
        }
    }
    assert!(whole > 0 && refused > 10, "{whole} {refused}");
}

#[test]
fn a_copy_that_finds_no_room_is_refused_before_anything_is_written() {
    let rig = rig();
    let stream = rig.given();
    let memory = MemoryDisk::new();
    memory.set_capacity(Some(stream.len() as u64));
    let refused = taken(&memory, &stream).unwrap_err();
    let words = refused.to_string();
    assert!(matches!(refused, BackupError::NoRoom { .. }), "{words}");
    assert!(words.contains("free space"), "{words}");
    assert!(memory.files().is_empty());
}

#[test]
fn the_log_moves_on_while_a_copy_is_sent_and_what_was_sent_is_let_go() {
    let mut rig = rig();
    let extent_bytes = Options::small().extent_bytes;
    rig.append(400);
    let (log, end) = (rig.log.clone(), rig.end());
    let hold = log.hold(Lsn::ZERO);
    let (mut stream, mut seen) = (Vec::new(), Vec::new());
    // Nothing needs more than the tail any more.
    let mark = log.mark_at(end).unwrap();
    let mut reclaim = |now: Progress| {
        if seen.is_empty() {
            log.write_image(mark, &image_of(&[])).unwrap();
            log.write_image(mark, &image_of(&[])).unwrap();
            log.drop_older_images().unwrap();
        }
        log.reclaim(end).unwrap();
        let first = log.first_held().0 / extent_bytes;
        assert!(first <= now.extent, "extent {} is being sent, {first} is there", now.extent);
        seen.push(first);
    };
    rig.give(&hold, &mut stream, &mut reclaim).unwrap();
    assert!(seen.first() == Some(&0) && seen.last().unwrap() + 1 >= end.0 / extent_bytes);
    assert_eq!(hold.from(), Some(end), "what comes behind its end is held for whoever took it");
    assert_eq!(taken(&MemoryDisk::new(), &stream).unwrap().end, end);
}

#[test]
fn a_hold_that_is_let_go_ends_the_copy() {
    let rig = rig();
    let hold = rig.log.hold(Lsn::ZERO);
    let mut stream = Vec::new();
    let mut pieces = 0;
    let refused = rig.give(&hold, &mut stream, &mut |_| {
        pieces += 1;
        if pieces == 4 {
            hold.let_go();
        }
    });
    assert!(matches!(refused, Err(BackupError::LetGo)), "{refused:?}");
    assert_eq!(pieces, 4, "nothing that is read afterwards is sent");
}

/// What a giver writes from a point on, behind the head.
fn given_behind(rig: &Rig, gift: &mut Gift, from: CopyPoint) -> Vec<u8> {
    let (hold, mut stream) = (rig.log.hold(Lsn::ZERO), Vec::new());
    gift.give_behind(from, &rig.pages, &hold, &mut stream, &mut |_| {}).unwrap();
    stream
}

/// Takes what comes behind `point` until it ends; yields how far it was kept.
fn taken_behind(
    memory: &MemoryDisk,
    head: &CopyHead,
    point: CopyPoint,
    mut stream: &[u8],
) -> (CopyPoint, Result<ReceivedCopy, BackupError>) {
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let mut newest = point;
    let mut keep = |point| {
        newest = point;
        Ok(())
    };
    let came = take_behind(&disk, head, point, &mut stream, &mut keep, &mut |_| {});
    (newest, came)
}

#[test]
fn a_copy_that_is_cut_again_and_again_goes_on_where_it_was() {
    let rig = rig();
    let whole = rig.given();
    let mut gift = rig.gift();
    let head = gift.head();
    assert_eq!(CopyHead::decode(&head.encode()), Some(head));
    assert_eq!(head.bytes() + CopyHead::BYTES as u64 + 4, whole.len() as u64);
    let mut random = SeededRandom::new(9);
    let memory = MemoryDisk::recording();
    prepare(&memory, &head).unwrap();
    let (mut point, mut came) = (CopyPoint::default(), 0);
    let copy = loop {
        assert!(gift.knows(point), "{point:?}");
        let stream = given_behind(&rig, &mut gift, point);
        assert_eq!(&whole[whole.len() - stream.len()..], stream, "from {point:?}");
        let cut = usize::try_from(random.below(stream.len() as u64 * 4 / 3)).unwrap();
        let cut = cut.min(stream.len());
        let (kept, taken) = taken_behind(&memory, &head, point, &stream[..cut]);
        came += cut;
        assert!(kept.done >= point.done && head.can_go_on_at(kept.done));
        point = kept;
        if let Ok(copy) = taken {
            break copy;
        }
        // What was not synced may be gone.
        let journal = memory.journal();
        let rule = CrashRule { keep_percent: 0, unit_bytes: 512, seed: 1 };
        let left = journal.crash(CrashPoint(journal.len()), rule);
        for (name, _) in left.files() {
            assert!(memory.files().contains_key(&name), "{name}");
        }
    };
    assert_eq!((copy.end, copy.image), (rig.end(), rig.image_at));
    assert!(came < 3 * whole.len(), "{came} bytes came of {}", whole.len());
    let disk: Arc<dyn Disk> = Arc::new(memory);
    assert!(offline::verify_disk(&disk).unwrap().findings.is_empty());
    let (_, _, records) = recover(&disk, Options::small()).unwrap();
    assert_eq!(records, rig.records(rig.image_at, rig.end()));
    // All of it had come: the checksum and the check alone are left.
    let stream = given_behind(&rig, &mut gift, point);
    assert_eq!(stream.len(), 4);
}

/// Links that broke every two seconds, each before an extent was whole, came to no end.
#[test]
fn what_came_of_an_extent_or_of_pages_counts_when_the_stream_breaks_there() {
    const STEP: u64 = 16 * 1024;
    let rig = rig();
    let mut gift = rig.gift();
    let head = gift.head();
    let mut random = SeededRandom::new(3);
    let memory = MemoryDisk::recording();
    prepare(&memory, &head).unwrap();
    let mut point = CopyPoint::default();
    let mut inside = 0;
    while point.done < head.bytes() {
        let stream = given_behind(&rig, &mut gift, point);
        // Hardly more than one step comes each time, once what is small is there.
        let begins = head.pages_end();
        let some = STEP + random.below(STEP);
        let cut = if point.done < begins { begins - point.done + some } else { some };
        let cut = usize::try_from(cut).unwrap().min(stream.len());
        let (kept, taken) = taken_behind(&memory, &head, point, &stream[..cut]);
        assert!(taken.is_err() || cut == stream.len());
        let came = (point.done + cut as u64).min(head.bytes());
        assert!(kept.done + STEP > came, "{kept:?} of {came}");
        assert!(gift.knows(kept) && head.can_go_on_at(kept.done), "{kept:?}");
        let (_, files) = (kept, memory.files());
        assert!(!files.is_empty());
        inside += u32::from(kept.done % STEP == 0 || kept.done > begins);
        point = kept;
    }
    assert!(inside > 10, "{inside} pieces");
    let stream = given_behind(&rig, &mut gift, point);
    taken_behind(&memory, &head, point, &stream).1.unwrap();
    let disk: Arc<dyn Disk> = Arc::new(memory);
    assert!(offline::verify_disk(&disk).unwrap().findings.is_empty());
    let (_, _, records) = recover(&disk, Options::small()).unwrap();
    assert_eq!(records, rig.records(rig.image_at, rig.end()));
}

#[test]
fn pages_of_which_a_part_came_go_on_behind_the_last_whole_one() {
    let rig = rig();
    let mut gift = rig.gift();
    let head = gift.head();
    let stream = given_behind(&rig, &mut gift, CopyPoint::default());
    let end = usize::try_from(head.pages_end()).unwrap();
    for cut in end.saturating_sub(3_000)..end {
        let memory = MemoryDisk::new();
        prepare(&memory, &head).unwrap();
        let (kept, refused) = taken_behind(&memory, &head, CopyPoint::default(), &stream[..cut]);
        assert!(refused.is_err() && gift.knows(kept) && head.can_go_on_at(kept.done));
        if cut % 500 == 0 {
            let rest = given_behind(&rig, &mut gift, kept);
            taken_behind(&memory, &head, kept, &rest).1.unwrap();
        }
    }
}

#[test]
fn a_copy_goes_on_nowhere_else_and_not_with_what_was_not_given() {
    let rig = rig();
    let mut gift = rig.gift();
    let head = gift.head();
    let stream = given_behind(&rig, &mut gift, CopyPoint::default());
    let memory = MemoryDisk::new();
    prepare(&memory, &head).unwrap();
    let (point, refused) =
        taken_behind(&memory, &head, CopyPoint::default(), &stream[..stream.len() / 2]);
    assert!(refused.is_err() && point.done > 0);
    assert!(!gift.knows(CopyPoint { sum: point.sum ^ 1, ..point }));
    assert!(!gift.knows(CopyPoint { done: point.done + 1, ..point }));
    let rest = given_behind(&rig, &mut gift, point);
    let odd = CopyPoint { done: point.done + 1, ..point };
    assert!(taken_behind(&memory, &head, odd, &rest).1.is_err(), "nothing ends there");
    let other = CopyPoint { sum: point.sum ^ 1, ..point };
    let (_, refused) = taken_behind(&memory, &head, other, &rest);
    assert!(matches!(refused, Err(BackupError::Stream(_))), "{refused:?}");
    taken_behind(&memory, &head, point, &rest).1.unwrap();
    let (_, refused) = taken_behind(&memory, &head, CopyPoint::default(), &rest);
    assert!(refused.is_err(), "what came before lacks");
}
