//! A start carries out an order to return, on a simulated disk.

use towline_core::object::{Definition, LocalAttributes, LocalQueue, QueueKind, Stamps};
use towline_core::{Body, Fact, Header, Message, MessageSequence, QueueId, record};
use towline_group::{MemberId, Mode};
use towline_log::{Listener, LogId, Options, Recovery, Space, Urgency};
use towline_os::simulated::crash;
use towline_os::simulated::fs::FileSystem;
use towline_os::sync::mpsc::{Sender, channel};
use towline_replication::incarnation;
use towline_replication::membership::Membership;
use towline_replication::return_order::{TailEnd, TailTerm};
use towline_types::Payload;

use super::*;

const DATA: &str = "/data";
const ME: Membership = Membership { member: MemberId(1), members_count: 1 };

/// A listener that passes on how far the log is durable.
struct DurablePositions(Sender<Lsn>);

impl Listener for DurablePositions {
    fn durable(&self, upto: Lsn) {
        self.0.send(upto).ok();
    }

    fn failed(&self, error: &LogError) {
        panic!("{error}");
    }

    fn space(&self, _: Space) {}
}

fn put(sequence: u64) -> Fact {
    let header = Header { persistent: true, ..Header::default() };
    let body = Body::Incoming(Payload::from(bytes::Bytes::from(vec![7; 60_000])));
    let message = Message { header, body, backout_count: 0, dead_letter: None };
    let (queue, sequence) = (QueueId(1), MessageSequence(sequence));
    Fact::Put { queue, sequence, carried: false, message: Box::new(message) }
}

fn define() -> Fact {
    let queue = LocalQueue {
        name: "Q".into(),
        id: QueueId(1),
        kind: QueueKind::Predefined,
        attributes: LocalAttributes::default(),
        stamps: Stamps::default(),
    };
    Fact::Defined { definition: Box::new(Definition::Local(queue)) }
}

/// Writes a log of so many messages, each in a batch of its own; the ends of the batches, the first
/// with the queue.
fn writes(messages: u64) -> Vec<Lsn> {
    writes_with_image(messages, None)
}

/// The same; the first part of them, up to so many, is in an image.
fn writes_with_image(messages: u64, imaged: Option<usize>) -> Vec<Lsn> {
    let folder = Path::new(DATA).join("log");
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(&folder).unwrap());
    let options = Options { extent_bytes: 1 << 20, ..Options::default() };
    let (durable, positions) = channel();
    let listener: Arc<dyn Listener> = Arc::new(DurablePositions(durable));
    let recovery = Recovery::open(disk, options, LogId(5)).unwrap();
    let log = recovery.start(Arc::clone(&listener)).unwrap();
    let mut ends = Vec::new();
    for fact in std::iter::once(define()).chain((1..=messages).map(put)) {
        let mut bytes = Vec::new();
        record::encode(&fact, true, &mut bytes);
        let mut appender = log.appender();
        appender.record(bytes.len(), |out| out.extend_from_slice(&bytes));
        let end = appender.commit(Urgency::Forced).unwrap();
        while positions.recv().unwrap() < end {}
        ends.push(end);
        if imaged == Some(ends.len()) {
            log.write_image(log.mark_at(end).unwrap(), b"an image").unwrap();
        }
    }
    log.shutdown();
    ends
}

const VOTING: HardState = HardState {
    term: 7,
    vote: None,
    may_vote: true,
    knows_term: true,
    committed: 0,
    committed_end: Lsn::ZERO,
    mode: Mode::Voting,
    promoted_to: [0; 16],
    left_term: 0,
    led_term: 0,
    returned_term: 0,
};

/// A member of an old live group with a log over several extents; the ends of its batches.
fn old_live() -> (FileSystem, Vec<Lsn>) {
    let files = FileSystem::new();
    assert!(files.make_folder("/data/log"));
    let lives = || {
        let ends = writes(40);
        let data = Path::new(DATA);
        let file = HardStateFile::of(data);
        incarnation::renew(data, &file, &VOTING, ME, 7).unwrap();
        let (committed, committed_end) = (ends.len() as u64, *ends.last().unwrap());
        file.note_durably(&HardState { committed, committed_end, ..VOTING }).unwrap();
        ends
    };
    let ends = crash::in_process(&files, 1, lives).unwrap();
    files.sync();
    (files, ends)
}

fn ordered(files: &FileSystem, fork: Lsn, tail: TailEnd) {
    let keep = move || {
        let disk: Arc<dyn Disk> =
            Arc::new(LinuxDisk::read_only(&Path::new(DATA).join("log")).unwrap());
        // As far as the tail was looked at, both logs were compared.
        let common = match tail.end {
            ALL => Vec::new(),
            _ => summed_upto(&disk, fork).map(|(at, sum)| vec![BatchMark::of(at, sum)]).unwrap(),
        };
        let order = ReturnOrder { fork: fork.0, tail, common, ..ReturnOrder::default() };
        let kept = KeptReturn { order, ..KeptReturn::default() };
        return_order::keep(Path::new(DATA), &kept).unwrap();
    };
    crash::in_process(files, 1, keep).unwrap();
    files.sync();
}

/// What a start makes of it: how far the order is, the end of the log, the hard state.
fn settled(files: &FileSystem) -> (ReturnStage, Lsn, HardState) {
    let settles = || {
        let data = Path::new(DATA);
        settle(data).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(&data.join("log")).unwrap());
        let end = last_upto(&disk, Lsn(u64::MAX >> 1)).unwrap().end;
        inspection::can_start_at(&disk, end, Trust::Whole).unwrap();
        let kept = return_order::kept(data).unwrap().unwrap();
        let hard_state = HardStateFile::of(data).read().unwrap().unwrap();
        assert_eq!(kept.had_all, kept.stage == ReturnStage::Done && hard_state.may_vote);
        (kept.stage, end, hard_state)
    };
    crash::in_process(files, 2, settles).unwrap()
}

#[test]
fn a_log_is_cut_at_the_fork_and_its_member_is_in_recovery() {
    let (files, ends) = old_live();
    ordered(&files, ends[9], TailEnd::all());
    for _ in 0..2 {
        let (stage, end, hard_state) = settled(&files);
        assert_eq!((stage, end), (ReturnStage::Done, ends[9]));
        assert_eq!((hard_state.mode, hard_state.left_term), (Mode::Recovery, 7));
        assert_eq!((hard_state.committed, hard_state.committed_end), (10, ends[9]));
    }
}

#[test]
fn what_was_not_looked_at_is_not_given_up() {
    let (files, ends) = old_live();
    let tail = |end: Lsn, term, last| TailEnd { end: end.0, terms: vec![TailTerm { term, last }] };
    let last = *ends.last().unwrap();
    for (tail, why) in [
        (tail(ends[20], 1, 21), "the log went on at"),
        (tail(last, 1, 30), "not the one that was exported"),
        (tail(last, 9, 41), "not the one that was exported"),
    ] {
        ordered(&files, ends[9], tail);
        let (stage, end, hard_state) = settled(&files);
        assert!(matches!(&stage, ReturnStage::Refused(said) if said.contains(why)), "{stage:?}");
        assert_eq!((end > ends[39], hard_state.mode), (true, Mode::Voting), "nothing was changed");
    }
    ordered(&files, Lsn(ends[9].0 - 1), TailEnd::all());
    let (stage, ..) = settled(&files);
    assert!(matches!(&stage, ReturnStage::Refused(said) if said.contains("empty the data folder")));
    let disk_last = settled(&files).1;
    let tail = tail(disk_last, 1, 50);
    ordered(&files, ends[9], tail);
    assert_eq!(settled(&files).1, ends[9], "all of it was");
}

/// Two members of a group that lost log: what one compared with the live group's log says nothing
/// of the other one's, which has acknowledged batches of its own before the fork.
#[test]
fn a_log_with_other_batches_before_the_fork_is_not_cut() {
    let (files, ends) = old_live();
    let fork = ends[9];
    for tail in [TailEnd::all(), TailEnd { end: u64::MAX - 1, terms: Vec::new() }] {
        let keep = move || {
            let disk: Arc<dyn Disk> =
                Arc::new(LinuxDisk::read_only(&Path::new(DATA).join("log")).unwrap());
            let (at, sum) = summed_upto(&disk, fork).unwrap();
            let common = vec![BatchMark::of(at, sum ^ 1)];
            let order = ReturnOrder { fork: fork.0, tail, common, ..ReturnOrder::default() };
            let kept = KeptReturn { order, ..KeptReturn::default() };
            return_order::keep(Path::new(DATA), &kept).unwrap();
        };
        crash::in_process(&files, 1, keep).unwrap();
        files.sync();
        let (stage, end, hard_state) = settled(&files);
        let why = "batch 10 at";
        assert!(matches!(&stage, ReturnStage::Refused(said) if said.contains(why)), "{stage:?}");
        assert_eq!((end > ends[39], hard_state.mode), (true, Mode::Voting), "nothing was changed");
    }
}

/// The order was given to a recovery member, and its start finds this hard state.
fn ordered_in_recovery(kept: HardState) -> (ReturnStage, Lsn, Lsn) {
    let (files, ends) = old_live();
    let order = ReturnOrder { fork: ends[9].0, tail: TailEnd::all(), ..ReturnOrder::default() };
    let keep = move || {
        let data = Path::new(DATA);
        let order = KeptReturn { order, in_recovery: true, ..KeptReturn::default() };
        return_order::keep(data, &order).unwrap();
        HardStateFile::of(data).write(&kept).unwrap();
    };
    crash::in_process(&files, 1, keep).unwrap();
    files.sync();
    let (stage, end, hard_state) = settled(&files);
    assert_eq!(
        hard_state.mode,
        if stage == ReturnStage::Done { Mode::Recovery } else { kept.mode }
    );
    (stage, end, ends[9])
}

#[test]
fn a_recovery_member_is_cut_unless_it_was_promoted_since() {
    let recovery = HardState { mode: Mode::Recovery, left_term: 1, ..VOTING };
    let (stage, end, fork) = ordered_in_recovery(recovery);
    assert_eq!((stage, end), (ReturnStage::Done, fork));
    for kept in [
        HardState { mode: Mode::Promoting, promoted_to: [3; 16], ..recovery },
        HardState { led_term: 9, ..recovery },
        VOTING,
    ] {
        let (stage, end, fork) = ordered_in_recovery(kept);
        assert!(matches!(&stage, ReturnStage::Refused(why) if why.contains("was promoted")));
        assert!(end > fork, "nothing was changed");
    }
}

#[test]
fn a_crash_or_a_power_cut_at_any_operation_leaves_the_old_log_or_is_gone_on_with() {
    let (files, ends) = old_live();
    ordered(&files, ends[9], TailEnd::all());
    let fork = ends[9];
    let settles = || settle(Path::new(DATA)).unwrap();
    let runs = crash::at_each_operation(&files, 2, settles, |left, run| {
        for _ in 0..2 {
            let (stage, end, hard_state) = settled(left);
            assert_eq!((stage, end), (ReturnStage::Done, fork), "{run}");
            assert_eq!((hard_state.mode, hard_state.left_term), (Mode::Recovery, 7), "{run}");
            assert_eq!((hard_state.committed, hard_state.may_vote), (10, true), "{run}");
        }
    });
    assert!(runs > 60, "{runs}");
}

/// The page file was written on with the image that is cut off: pages of an older one were reused.
#[test]
fn a_cut_that_removes_an_image_has_the_queues_rebuilt_and_one_that_removes_none_does_not() {
    for (imaged, is_marked) in [(Some(20), true), (Some(5), false), (None, false)] {
        let files = FileSystem::new();
        assert!(files.make_folder("/data/log"));
        let cuts = move || {
            let ends = writes_with_image(40, imaged);
            let home = Home::single(Path::new(DATA));
            let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(home.log_folder()).unwrap());
            for _ in 0..2 {
                assert_eq!(cut(&disk, &home, ends[9]).unwrap().end, ends[9]);
                assert_eq!(fs::try_exists(home.rebuild_marker()).unwrap(), is_marked);
            }
        };
        crash::in_process(&files, 1, cuts).unwrap();
    }
}
