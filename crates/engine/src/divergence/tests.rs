use std::convert::Infallible;

use bytes::Bytes;
use towline_core::{
    Body, CommitId, DeadLetter, DeadLetterReason, Fact, Message, MessageSequence, QueueId, record,
};
use towline_log::testing::{LOG_ID, Watch, image};
use towline_log::{Disk, Log, Urgency};
use towline_types::{Payload, Time};

use super::*;

/// A log that is written run by run.
struct Written {
    folder: tempfile::TempDir,
    watch: Arc<Watch>,
    log: Log,
}

impl Written {
    fn new() -> Written {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder.path()).unwrap());
        let options = Options { extent_bytes: 1 << 20, ..Options::default() };
        let watch = Watch::new();
        let listener: Arc<dyn towline_log::Listener> = Arc::clone(&watch) as _;
        let log = Recovery::open(disk, options, LOG_ID).unwrap().start(listener).unwrap();
        Written { folder, watch, log }
    }

    fn run(&self, facts: &[Fact]) -> Lsn {
        let mut appender = self.log.appender();
        for (number, fact) in facts.iter().enumerate() {
            let mut bytes = Vec::new();
            record::encode(fact, number + 1 == facts.len(), &mut bytes);
            appender.record(bytes.len(), |out| out.extend_from_slice(&bytes));
        }
        let end = appender.commit(Urgency::Forced).unwrap();
        self.watch.wait_durable(end);
        end
    }

    /// What happened behind `fork`: the change, queue and sequence, in order of sequences.
    fn listed(&self, fork: Lsn) -> (Vec<(TailChange, String, u64)>, Divergence) {
        self.listed_from(TailBegin::at(fork))
    }

    fn listed_from(&self, begin: TailBegin) -> (Vec<(TailChange, String, u64)>, Divergence) {
        let mut listed = Vec::new();
        let found = list::<Infallible>(self.folder.path(), begin, &mut |message| {
            listed.push((message.change, message.queue.clone(), message.sequence));
            Ok(())
        });
        listed.sort_by_key(|(_, _, sequence)| *sequence);
        (listed, found.unwrap())
    }
}

fn put(queue: u32, sequence: u64) -> Fact {
    put_with(queue, sequence, false, 100)
}

/// Another put of a message whose first one is to be released.
fn carried(queue: u32, sequence: u64) -> Fact {
    put_with(queue, sequence, true, 100)
}

fn put_with(queue: u32, sequence: u64, carried: bool, bytes: usize) -> Fact {
    let header = Header { persistent: true, put_at: Time(7), ..Header::default() };
    let body = Body::Incoming(Payload::from(Bytes::from(vec![1; bytes])));
    let message = Message { header, body, backout_count: 0, dead_letter: None };
    Fact::Put {
        queue: QueueId(queue),
        sequence: MessageSequence(sequence),
        carried,
        message: Box::new(message),
    }
}

fn got(queue: u32, sequence: u64) -> Fact {
    Fact::Got { queue: QueueId(queue), sequence: MessageSequence(sequence) }
}

fn moved((from, sequence): (u32, u64), (to, new_sequence): (u32, u64)) -> Fact {
    let dead_letter = DeadLetter {
        reason: DeadLetterReason::Rejected,
        origin: "Q".into(),
        origin_id: QueueId(from),
        moved_at: Time(8),
    };
    Fact::Moved {
        from: QueueId(from),
        sequence: MessageSequence(sequence),
        to: QueueId(to),
        new_sequence: MessageSequence(new_sequence),
        order: None,
        dead_letter: Box::new(dead_letter),
    }
}

#[test]
fn each_message_that_the_tail_added_or_removed_is_listed_once() {
    let written = Written::new();
    written.run(&[put(1, 1), put(1, 2), put(1, 3), put(1, 4)]);
    written.run(&[got(1, 1)]);
    let fork = written.run(&[moved((1, 2), (2, 5))]);
    assert_eq!(written.listed(fork).0, []);
    assert_eq!(first_change(written.folder.path(), fork), Ok(None));
    written.run(&[put(1, 6), got(1, 3)]);
    let later = written.run(&[put(1, 7), put(1, 8)]);
    written.run(&[got(1, 7)]);
    written.run(&[got(2, 5)]);
    written.run(&[moved((1, 4), (2, 9)), moved((1, 8), (2, 10))]);
    let (listed, found) = written.listed(fork);
    let [one, two] = ["queue 1", "queue 2"].map(str::to_owned);
    let got = HowEnded::Got;
    assert_eq!(
        listed,
        [
            (TailChange::Removed(got), one.clone(), 3),
            (TailChange::Removed(got), two.clone(), 5),
            (TailChange::Added, one.clone(), 6),
            (TailChange::AddedAndRemoved(got), one, 7),
            (TailChange::Moved, two.clone(), 9),
            (TailChange::Added, two, 10),
        ]
    );
    assert_eq!((found.added, found.passed), ((2, 200), (1, 100)));
    assert_eq!((found.removed, found.moved), ((2, 200), (1, 100)));
    assert!(found.end > later && found.findings.is_empty() && found.unknown == 0);
    let first = first_change(written.folder.path(), fork).unwrap();
    assert!(first.is_some_and(|first| first >= fork && first < later), "{first:?}");
    assert_eq!(first_change(written.folder.path(), found.end), Ok(None));
    written.log.shutdown();
}

#[test]
fn what_went_with_its_queue_is_listed_and_what_was_gone_before_is_not() {
    let written = Written::new();
    written.run(&[put(1, 1), put(1, 2), put(2, 3)]);
    let fork = written.run(&[got(1, 1)]);
    written.run(&[put(1, 4)]);
    let upto = MessageSequence(5);
    written.run(&[Fact::Cleared { queue: QueueId(1), upto }]);
    written.run(&[put(1, 6)]);
    written.run(&[Fact::Deleted { queue: QueueId(2) }]);
    let (listed, found) = written.listed(fork);
    let [one, two] = ["queue 1", "queue 2"].map(str::to_owned);
    assert_eq!(
        listed,
        [
            (TailChange::Removed(HowEnded::Cleared), one.clone(), 2),
            (TailChange::Removed(HowEnded::QueueDeleted), two, 3),
            (TailChange::AddedAndRemoved(HowEnded::Cleared), one.clone(), 4),
            (TailChange::Added, one, 6),
        ]
    );
    assert_eq!(found.objects, 1);
    written.log.shutdown();
}

#[test]
fn a_commit_in_parts_counts_when_it_is_completed() {
    let written = Written::new();
    written.run(&[put(1, 1)]);
    let commit = CommitId(9);
    let part = |operations| Fact::Part { commit, operations };
    // Its first part is before the fork, and never happened there.
    let fork = written.run(&[part(2), put(1, 0), put(1, 1), part(0)]);
    assert_eq!(written.listed(fork).0, []);
    written.run(&[part(1), got(1, 1), part(0)]);
    assert_eq!(written.listed(fork).0, []);
    assert_eq!(first_change(written.folder.path(), fork), Ok(None));
    written.run(&[Fact::Completed { commit, operations: 3, first: MessageSequence(20) }]);
    let (listed, _) = written.listed(fork);
    let one = "queue 1".to_owned();
    assert_eq!(
        listed,
        [
            (TailChange::Removed(HowEnded::Got), one.clone(), 1),
            (TailChange::Added, one.clone(), 20),
            (TailChange::Added, one, 21),
        ]
    );
    assert!(first_change(written.folder.path(), fork).unwrap().is_some());
    written.log.shutdown();
}

/// The rows of queue 1.
fn of_one(listed: Vec<(TailChange, String, u64)>) -> Vec<(TailChange, u64)> {
    let of_one = listed.into_iter().filter(|(_, queue, _)| queue == "queue 1");
    of_one.map(|(change, _, sequence)| (change, sequence)).collect()
}

#[test]
fn what_was_carried_forward_in_a_log_that_was_reclaimed_past_the_fork_is_listed_in_doubt() {
    let written = Written::new();
    let got_it = HowEnded::Got;
    let begin = written.run(&[put(1, 1), put(1, 2)]);
    let fork = written.run(&[moved((2, 50), (1, 6))]);
    written.run(&[put(1, 3), put(1, 4), put(1, 5)]);
    written.run(&[got(1, 4)]);
    for sequence in 0..10 {
        written.run(&[put_with(9, 100 + sequence, false, 300_000)]);
    }
    let upto = MessageSequence(200);
    let before = written.run(&[Fact::Cleared { queue: QueueId(9), upto }]);
    written.run(&[carried(1, 1), carried(1, 3), carried(1, 5), carried(1, 6)]);
    written.run(&[carried(1, 3)]);
    let (listed, found) = written.listed(fork);
    let with_all =
        [(TailChange::Added, 3), (TailChange::AddedAndRemoved(got_it), 4), (TailChange::Added, 5)];
    assert_eq!(of_one(listed), with_all, "the whole log says where each was put");
    assert!(found.findings.is_empty() && found.perhaps_added == (0, 0), "{found:?}");
    // Both logs may part before the fork, from where on all is of this one.
    let doubtful = TailBegin { from: begin, own: fork, parts_before: true };
    let (listed, _) = written.listed_from(doubtful);
    let [three, four, five] = with_all;
    assert_eq!(of_one(listed), [three, four, five, (TailChange::PerhapsAdded, 6)]);

    for bytes in [b"one", b"two"] {
        let end = written.run(&[put(9, 300 + u64::from(bytes[0]))]);
        image(&written.log, end, bytes);
    }
    written.log.reclaim(before).unwrap();
    written.run(&[got(1, 2), got(1, 5), put(1, 20)]);
    let (listed, found) = written.listed(fork);
    assert!(found.first.is_some_and(|first| first > fork && first <= before), "{found:?}");
    assert_eq!(
        of_one(listed),
        [
            (TailChange::PerhapsAdded, 1),
            (TailChange::PerhapsRemoved(got_it), 2),
            (TailChange::PerhapsAdded, 3),
            (TailChange::PerhapsRemoved(got_it), 5),
            (TailChange::PerhapsAdded, 6),
            (TailChange::Added, 20),
        ]
    );
    assert_eq!(found.perhaps_added, (3, 300));
    assert_eq!((found.perhaps_removed, found.unknown), ((2, 100), 1));
    assert_eq!(found.findings.len(), 1);
    assert!(found.findings[0].contains("was reclaimed"), "{}", found.findings[0]);
    // The fork is where the log begins: nothing is missing, and what was carried was there before.
    let (listed, found) = written.listed(before);
    assert!(found.findings.is_empty(), "{found:?}");
    let removed = |sequence| (TailChange::Removed(got_it), sequence);
    assert_eq!(of_one(listed), [removed(2), removed(5), (TailChange::Added, 20)]);
    written.log.shutdown();
}

#[test]
fn what_was_not_compared_is_listed_in_doubt() {
    let written = Written::new();
    let from = written.run(&[put(1, 1), put(1, 2)]);
    let own = written.run(&[put(1, 3), put(1, 4), got(1, 1)]);
    written.run(&[put(1, 5), got(1, 4)]);
    let (listed, found) = written.listed_from(TailBegin { from, own, parts_before: false });
    assert_eq!(
        of_one(listed),
        [
            (TailChange::Removed(HowEnded::Got), 1),
            (TailChange::PerhapsAdded, 3),
            (TailChange::PerhapsRemoved(HowEnded::Got), 4),
            (TailChange::Added, 5),
        ]
    );
    assert!(found.findings.is_empty(), "{found:?}");
    written.log.shutdown();
}
