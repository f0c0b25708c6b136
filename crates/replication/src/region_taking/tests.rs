use std::path::Path;

use towline_backup::{Gift, Source};
use towline_group::HardState;
use towline_log::{Hold, Log, MemoryDisk, Pages, Urgency};
use towline_os::sync::mpsc::Receiver;
use towline_types::{Lsn, SeededRandom};

use super::*;
use crate::driver::tests::{led, one_of};
use crate::lifecycle::EndReason;
use crate::rebase_wire::ANSWER_BYTES;

/// The log of a live group, of several extents, with an image.
struct Live {
    log: Log,
    pages: Pages,
    image_at: Lsn,
}

impl Live {
    fn new() -> Live {
        let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
        let log = led(&disk);
        let mut live =
            Live { log, pages: Pages::open(disk, Vec::new()).unwrap(), image_at: Lsn(0) };
        live.append(11);
        live.image_at = live.log.durable();
        let mark = live.log.mark_at(live.image_at).unwrap();
        live.log.write_image(mark, b"an image").unwrap();
        live.append(3);
        live
    }

    fn append(&self, count: usize) {
        let mut end = Lsn::ZERO;
        for _ in 0..count {
            let mut appender = self.log.appender();
            appender.record(50_000, |memory| memory.resize(memory.len() + 50_000, 7));
            end = appender.commit(Urgency::Forced).unwrap();
        }
        while self.log.durable() < end {
            std::thread::yield_now();
        }
    }

    fn gift(&self) -> Gift {
        let source = Source::running(&self.log, self.image_at, self.log.first_held());
        Gift::new(source.unwrap().unwrap(), Vec::new(), &[]).unwrap()
    }

    /// What a giver says from a point on that the taker has.
    fn says(&self, gift: &mut Gift, point: CopyPoint) -> Vec<u8> {
        let hold: Hold = self.log.hold(Lsn::ZERO);
        let mut stream = gift.head().encode().to_vec();
        stream.extend_from_slice(&point.done.to_le_bytes());
        gift.give_behind(point, &self.pages, &hold, &mut stream, &mut |_| {}).unwrap();
        stream
    }
}

/// A stream on which a giver said something, before it ended; what the taker answers.
struct Said {
    bytes: io::Cursor<Vec<u8>>,
    answers: Vec<u8>,
    /// The taker's answers go nowhere from here on.
    is_deaf_from: usize,
}

impl Read for &mut Said {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(place)
    }
}

impl Write for &mut Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.answers.len() >= self.is_deaf_from {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.answers.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn said(bytes: Vec<u8>) -> Said {
    Said { bytes: io::Cursor::new(bytes), answers: Vec::new(), is_deaf_from: usize::MAX }
}

fn answers(said: &Said) -> Vec<RebaseAnswer> {
    let all = said.answers.chunks_exact(ANSWER_BYTES);
    all.map(|bytes| RebaseAnswer::decode(bytes.try_into().unwrap()).unwrap()).collect()
}

/// An instance in recovery, and what it takes.
fn taker(folder: &Path, names: &[&str], mode: Mode) -> (Taking, Receiver<EndReason>) {
    std::fs::create_dir_all(folder.join("log")).unwrap();
    let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
    let hard_state = HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
    let (driver, ends) = one_of(names, hard_state, &disk, folder);
    let point = RecoveryPoint { received: Lsn(9), ..RecoveryPoint::default() };
    let taking = Taking::new(driver, "WEST".into(), Box::new(move || point)).unwrap();
    (taking, ends)
}

fn take(taking: &Taking, stream: &mut Said) {
    taking.take(stream, &Histories::default(), 4_711);
}

#[test]
fn a_copy_that_comes_in_one_piece_is_handed_in_and_ends_the_process() {
    let (live, folder) = (Live::new(), tempfile::tempdir().unwrap());
    let (taking, ends) = taker(folder.path(), &["a"], Mode::Recovery);
    taking.admits().unwrap();
    let mut stream = said(live.says(&mut live.gift(), CopyPoint::default()));
    take(&taking, &mut stream);
    assert_eq!(ends.try_recv(), Ok(EndReason::Rebased), "{:?}", taking.trouble());
    assert!(folder.path().join("log.new").is_dir() && folder.path().join("log").is_dir());
    let answers = answers(&stream);
    assert_eq!(answers[0], RebaseAnswer::HasBegun(CopyPoint::default()));
    let all = live.gift().head().bytes();
    assert_eq!(answers[answers.len() - 2..], [RebaseAnswer::Keeps(all), RebaseAnswer::Whole]);
    assert_eq!((taking.begun(), taking.before_now()), (1, None), "it is a group by itself");
    assert!(taking.admits().is_err(), "it ends");
    taking.driver.log().shutdown();
}

#[test]
fn what_was_promotable_before_a_copy_stays_the_point_until_a_majority_has_it() {
    let (live, folder) = (Live::new(), tempfile::tempdir().unwrap());
    let (taking, ends) = taker(folder.path(), &["a", "b", "c"], Mode::Recovery);
    let mut stream = said(live.says(&mut live.gift(), CopyPoint::default()));
    take(&taking, &mut stream);
    assert_eq!(ends.try_recv(), Ok(EndReason::Rebased), "{:?}", taking.trouble());
    let last = live.gift().head().promises().index;
    let point = |majority| taking.before(majority).map(|point| point.received);
    assert_eq!((point(0), point(last - 1)), (Some(Lsn(9)), Some(Lsn(9))));
    assert_eq!((point(last), taking.before_now()), (None, None));
    taking.driver.log().shutdown();
}

#[test]
fn streams_that_break_anywhere_and_processes_that_end_lose_no_file_that_was_acknowledged() {
    let (live, folder) = (Live::new(), tempfile::tempdir().unwrap());
    let seed = std::env::var("TAKING_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    println!("TAKING_SEED={seed}");
    let mut random = SeededRandom::new(seed);
    let mut gift = live.gift();
    let all = gift.head().bytes();
    let (mut point, mut came, mut rounds) = (CopyPoint::default(), 0, 0);
    loop {
        rounds += 1;
        // Each is a process of its own.
        let (taking, ends) = taker(folder.path(), &["a"], Mode::Recovery);
        let mut bytes = live.says(&mut gift, point);
        let head = CopyHead::BYTES + 8;
        let some = random.below((bytes.len() - head) as u64 * 4 / 3 + 2);
        bytes.truncate(head + usize::try_from(some).unwrap());
        came += bytes.len() as u64;
        let mut stream = said(bytes);
        if random.below(4) == 0 {
            stream.is_deaf_from = ANSWER_BYTES * usize::try_from(1 + random.below(3)).unwrap();
        }
        take(&taking, &mut stream);
        let answers = answers(&stream);
        assert_eq!(answers[0], RebaseAnswer::HasBegun(point), "round {rounds}");
        assert_eq!(taking.begun(), 1, "it goes on");
        taking.driver.log().shutdown();
        if ends.try_recv().is_ok() {
            break;
        }
        assert!(!folder.path().join("log.new").exists(), "round {rounds}");
        let acknowledged = answers.iter().filter_map(|answer| match answer {
            RebaseAnswer::Keeps(done) => Some(*done),
            _ => None,
        });
        let acknowledged = acknowledged.max().unwrap_or(point.done);
        point = RebaseFolder::of(folder.path()).begun().unwrap().unwrap().1;
        assert!(point.done >= acknowledged && gift.knows(point), "{point:?} {acknowledged}");
    }
    assert!(rounds > 1 && came < 4 * all, "{rounds} rounds, {came} bytes of {all}");
}

#[test]
fn another_copy_begins_anew_and_one_that_the_giver_does_not_know_any_more_does() {
    let (live, folder) = (Live::new(), tempfile::tempdir().unwrap());
    let (taking, _ends) = taker(folder.path(), &["a"], Mode::Recovery);
    let mut gift = live.gift();
    let mut bytes = live.says(&mut gift, CopyPoint::default());
    bytes.truncate(bytes.len() - 100_000);
    take(&taking, &mut said(bytes));
    let rebase = RebaseFolder::of(folder.path());
    assert!(rebase.begun().unwrap().unwrap().1.done > 0);
    // The giver restarted, and has the same image but no memory of what it gave.
    let mut bytes = live.says(&mut live.gift(), CopyPoint::default());
    bytes.truncate(bytes.len() - 100_000);
    take(&taking, &mut said(bytes));
    assert_eq!(taking.begun(), 2);
    // It has another image.
    live.append(1);
    let mut stream = said(live.says(&mut live.gift(), CopyPoint::default()));
    take(&taking, &mut stream);
    assert_eq!(answers(&stream)[0], RebaseAnswer::HasBegun(CopyPoint::default()));
    assert_eq!((taking.begun(), answers(&stream).last()), (3, Some(&RebaseAnswer::Whole)));
    taking.driver.log().shutdown();
}

#[test]
fn a_copy_with_a_flipped_bit_never_becomes_the_log() {
    let (live, folder) = (Live::new(), tempfile::tempdir().unwrap());
    let mut random = SeededRandom::new(11);
    let (taking, ends) = taker(folder.path(), &["a"], Mode::Recovery);
    let whole = live.says(&mut live.gift(), CopyPoint::default());
    for _ in 0..12 {
        let mut bytes = whole.clone();
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        bytes[at] ^= 1 << random.below(8);
        take(&taking, &mut said(bytes));
        assert!(taking.trouble().is_some() && ends.try_recv().is_err(), "byte {at}");
        assert!(!folder.path().join("log.new").exists(), "byte {at}");
    }
    take(&taking, &mut said(whole));
    assert_eq!(ends.try_recv(), Ok(EndReason::Rebased), "{:?}", taking.trouble());
    taking.driver.log().shutdown();
}

#[test]
fn an_instance_that_is_promoted_or_has_more_takes_no_copy() {
    let live = Live::new();
    for mode in [Mode::Voting, Mode::Promoting] {
        let folder = tempfile::tempdir().unwrap();
        let (taking, ends) = taker(folder.path(), &["a"], mode);
        assert!(taking.admits().is_err());
        take(&taking, &mut said(live.says(&mut live.gift(), CopyPoint::default())));
        assert!(ends.try_recv().is_err() && taking.trouble().is_some());
        assert!(!folder.path().join("log.new").exists());
        taking.driver.log().shutdown();
    }
}
