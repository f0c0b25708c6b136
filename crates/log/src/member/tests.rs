//! What the log of an instance of a group promises.

mod back;
mod crash;
mod group;
mod places;

use crate::folder::names::extent_name;
use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::Mutex;

use bytes::Bytes;
use towline_types::{Batch, BatchPlace, Lsn, SeededRandom};

use super::{Replicator, RunStream};
use crate::disk::{Disk, MemoryDisk};
use crate::error::LogError;
use crate::format::{BLOCK_BYTES, EXTENT_HEADER_BYTES, padded, size};
use crate::listener::{Listener, Urgency};
use crate::log::Log;
use crate::options::{EXTENT_BYTES_MIN, Options};
use crate::record::{Kind, put_prefix};
use crate::recover::{Recovery, ReplayItem};
use crate::testing::{LOG_ID, Record, Watch, append, body, recover};

/// What a leader passed to its replicator.
#[derive(Default)]
struct Outbox {
    batches: Mutex<Vec<Batch>>,
}

impl Outbox {
    fn take(&self) -> Vec<Batch> {
        std::mem::take(&mut *self.batches.lock())
    }
}

impl Replicator for Outbox {
    fn leaves(&self, batch: Batch) {
        let mut batches = self.batches.lock();
        let last = batches.last();
        assert!(last.is_none_or(|last| last.index + 1 == batch.index), "told in order");
        batches.push(batch);
    }
}

/// One instance's log, with its disk, its listener and its replicator.
struct Instance {
    memory: MemoryDisk,
    log: Log,
    watch: Arc<Watch>,
    outbox: Arc<Outbox>,
    base: BatchPlace,
    places: Vec<BatchPlace>,
    /// What replay yielded.
    records: Vec<Record>,
}

impl Instance {
    fn start(memory: &MemoryDisk, options: Options) -> Instance {
        Instance::watched(memory, options, Watch::new())
    }

    fn watched(memory: &MemoryDisk, options: Options, watch: Arc<Watch>) -> Instance {
        let mut recovery = Recovery::open(disk(memory), options, LOG_ID).unwrap();
        recovery.keep_places();
        let mut records = Vec::new();
        let replayed = recovery.replay(|lsn, bytes| {
            records.push((lsn, bytes.to_vec()));
            Ok::<(), std::convert::Infallible>(())
        });
        replayed.unwrap();
        let crate::BatchPlaces { base, batches: places } = recovery.places();
        let outbox = Arc::new(Outbox::default());
        let listener = Arc::clone(&watch) as Arc<dyn Listener>;
        let replicator = Arc::clone(&outbox) as Arc<dyn Replicator>;
        let log = recovery.start_following(listener, replicator).unwrap();
        Instance { memory: memory.clone(), log, watch, outbox, base, places, records }
    }

    fn new() -> Instance {
        Instance::start(&MemoryDisk::new(), Options::small())
    }

    /// Ends like a crash that loses nothing that was written, and restarts.
    fn again(self) -> Instance {
        let memory = self.memory.clone();
        self.end();
        Instance::start(&memory, Options::small())
    }

    fn end(self) {
        drop(self.log);
    }

    fn receive(&self, batches: &[Batch]) {
        self.log.receive(batches).unwrap();
        self.watch.wait_durable(batches.last().unwrap().end());
    }

    /// Appends a run and waits until it is durable.
    fn append(&self, records: &[Vec<u8>]) -> Lsn {
        let (_, end) = append(&self.log, records, Urgency::Forced);
        self.watch.wait_durable(end);
        end
    }
}

fn disk(memory: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(memory.clone())
}

/// A leader of term 1 on an empty log, and the batches that it wrote for `runs` random runs.
fn leader(seed: u64, runs: u64) -> (Instance, Vec<Batch>) {
    let leader = Instance::new();
    let first = leader.log.lead(1).unwrap();
    let mut random = SeededRandom::new(seed);
    for _ in 0..runs {
        let count = 1 + random.below(3);
        let big = random.below(8) == 0;
        let records: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let bytes = random.below(if big { 40_000 } else { 2_000 });
                body(&mut random, bytes)
            })
            .collect();
        leader.append(&records);
    }
    let mut batches = vec![first];
    batches.extend(leader.outbox.take());
    (leader, batches)
}

#[test]
fn what_comes_while_a_batch_is_not_committed_gathers_and_goes_when_it_is() {
    let leader = Instance::new();
    let first = leader.log.lead(1).unwrap();
    leader.watch.wait_durable(first.end());
    leader.log.committed(first.end());
    let end = leader.append(&[vec![1; 100], vec![2; 100]]);
    let forced = |bytes: u8| append(&leader.log, &[vec![bytes; 100]], Urgency::Forced).1;
    // As many commits as are on their way: it goes beside them.
    leader.watch.wait_durable(forced(3));
    assert_eq!(leader.outbox.take().len(), 2);
    // Fewer: it waits, whatever comes, until some are committed.
    let waits = forced(4);
    let (_, lazy) = append(&leader.log, &[vec![5; 10]], Urgency::Lazy);
    assert!(leader.log.durable() < waits);
    leader.log.committed(end);
    leader.watch.wait_durable(lazy);
    assert_eq!(leader.outbox.take().len(), 1);
}

#[test]
fn a_lazy_run_behind_what_is_not_committed_goes_after_its_delay_when_it_is() {
    let leader = Instance::new();
    let first = leader.log.lead(1).unwrap();
    leader.watch.wait_durable(first.end());
    leader.log.committed(first.end());
    let end = leader.append(&[vec![1; 100]]);
    let (_, lazy) = append(&leader.log, &[vec![2; 10]], Urgency::Lazy);
    leader.log.committed(end);
    // Nothing else comes.
    leader.watch.wait_durable(lazy);
}

/// A batch behind another one, of records of these kinds.
fn made(behind: BatchPlace, term: u64, records: &[(&[u8], Kind)]) -> Batch {
    let mut payload = Vec::new();
    for (bytes, kind) in records {
        put_prefix(&mut payload, bytes.len(), *kind);
        payload.extend_from_slice(bytes);
    }
    let bytes = 40 + payload.len() as u64;
    let sequence = behind.end.0.saturating_sub(1) / EXTENT_BYTES_MIN;
    let offset = padded(behind.end.0 - sequence * EXTENT_BYTES_MIN);
    let offset = offset.max(EXTENT_HEADER_BYTES as u64);
    let lsn = if offset + bytes <= EXTENT_BYTES_MIN {
        Lsn(sequence * EXTENT_BYTES_MIN + offset)
    } else {
        Lsn((sequence + 1) * EXTENT_BYTES_MIN + EXTENT_HEADER_BYTES as u64)
    };
    Batch { index: behind.index + 1, term, lsn, payload: Bytes::from(payload) }
}

/// Batches of one run each, behind each other.
fn made_many(behind: BatchPlace, term: u64, count: u8, bytes: usize) -> Vec<Batch> {
    let mut last = behind;
    let next = |number: u8| {
        let record = vec![number; bytes];
        let batch = made(last, term, &[(&record, Kind::Last)]);
        last = batch.place();
        batch
    };
    (0..count).map(next).collect()
}

/// The runs of batches, put together as an instance does that follows.
fn streamed(batches: &[Batch]) -> Vec<Record> {
    let mut stream = RunStream::new();
    let mut records = Vec::new();
    for batch in batches {
        let mut record = |lsn: Lsn, bytes: &[u8]| {
            records.push((lsn, bytes.to_vec()));
            Ok::<(), std::convert::Infallible>(())
        };
        stream.feed(batch.lsn, &batch.payload, &mut record).unwrap();
    }
    records
}

/// The bytes of a batch's payload on a disk.
fn on_disk(memory: &MemoryDisk, batch: &Batch) -> Vec<u8> {
    let file = memory.files()[&extent_name(batch.lsn.0 / EXTENT_BYTES_MIN)].clone();
    let at = size(batch.lsn.0 % EXTENT_BYTES_MIN) + 40;
    file[at..at + batch.payload.len()].to_vec()
}

#[test]
fn what_is_received_stands_at_the_same_place_byte_for_byte() {
    let (leader, batches) = leader(1, 200);
    let follower = Instance::new();
    let seed = 2;
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let mut rest = &batches[..];
    while !rest.is_empty() {
        let count = size(1 + random.below(5)).min(rest.len());
        follower.log.receive(&rest[..count]).unwrap();
        assert_eq!(follower.log.tail(), rest[count - 1].end());
        rest = &rest[count..];
    }
    let last = batches.last().unwrap().clone();
    follower.watch.wait_durable(last.end());
    assert!(last.lsn.0 > 3 * EXTENT_BYTES_MIN, "extents are crossed");
    for batch in &batches {
        assert_eq!(on_disk(&leader.memory, batch), batch.payload);
        assert_eq!(on_disk(&follower.memory, batch), batch.payload);
    }
    let stats = (follower.log.stats(), leader.log.stats());
    assert_eq!(stats.0.logical_bytes_written, stats.1.logical_bytes_written);
    assert_eq!(stats.0.commits, stats.1.commits);
    assert_eq!(follower.log.unsynced_bytes(), 0);
    let (memory, wanted) = (follower.memory.clone(), recover_records(&leader.memory));
    follower.log.shutdown();
    assert_eq!(recover_records(&memory), wanted);
    assert_eq!(streamed(&batches), wanted);
}

fn recover_records(memory: &MemoryDisk) -> Vec<Record> {
    let copy = MemoryDisk::with_files(memory.files());
    recover(&disk(&copy), Options::small()).unwrap().2
}

#[test]
fn batches_that_wait_go_to_the_disk_with_one_write_and_one_sync() {
    let options = Options { slow_write: Duration::from_secs(3_600), ..Options::small() };
    let follower = Instance::start(&MemoryDisk::new(), options);
    let batches = made_many(BatchPlace::default(), 1, 20, 100);
    follower.memory.hold_syncs();
    follower.log.receive(&batches[..1]).unwrap();
    follower.memory.wait_for_syncs(1);
    for batch in &batches[1..] {
        follower.log.receive(std::slice::from_ref(batch)).unwrap();
    }
    follower.memory.open_gate();
    follower.watch.wait_durable(batches[19].end());
    let stats = follower.log.stats();
    assert_eq!((stats.writes, stats.syncs, stats.commits), (2, 2, 20));
    let follower = follower.again();
    assert_eq!(follower.places, batches.iter().map(Batch::place).collect::<Vec<_>>());
}

/// What the leader before did not finish is given up at a start, as by an instance that follows.
#[test]
fn replay_says_where_a_term_begins_also_when_its_first_batch_is_the_last_and_is_empty() {
    let (leader, batches) = leader(1, 3);
    let follower = Instance::new();
    let last = batches.last().unwrap().place();
    let begins = made(last, last.term + 1, &[]);
    follower.receive(&batches);
    follower.receive(std::slice::from_ref(&begins));
    leader.end();
    let memory = follower.memory.clone();
    follower.end();
    for (committed, terms) in [(last.index, vec![]), (begins.index, vec![begins.lsn])] {
        let mut recovery = Recovery::open(disk(&memory), Options::small(), LOG_ID).unwrap();
        recovery.yield_upto(committed);
        let mut begun = Vec::new();
        let take = |item: ReplayItem<'_>| {
            begun.extend(match item {
                ReplayItem::NewTerm { at } => Some(at),
                ReplayItem::Record { .. } => None,
            });
            Ok::<(), std::convert::Infallible>(())
        };
        recovery.replay_items(crate::Begin::Image, take, |_, _| {}).unwrap();
        assert_eq!(begun, terms, "known up to {committed}");
    }
}

#[test]
fn a_replica_appends_nothing_and_a_leader_receives_nothing() {
    let follower = Instance::new();
    let mut appender = follower.log.appender();
    assert_eq!(appender.record(3, |buffer| buffer.extend([1, 2, 3])), Lsn::ZERO);
    assert!(matches!(appender.commit(Urgency::Forced), Err(LogError::Following)));
    let nothing = follower.log.appender().commit(Urgency::Lazy);
    assert!(matches!(nothing, Err(LogError::Following)));
    assert!(matches!(follower.log.lead(0), Err(LogError::OutOfPlace { .. })));
    assert!(matches!(follower.log.lead(1 << 32), Err(LogError::OutOfPlace { .. })));
    let first = follower.log.lead(7).unwrap();
    let place = BatchPlace { index: 1, term: 7, lsn: Lsn(4_096), end: Lsn(4_136) };
    assert_eq!(first.place(), place);
    follower.append(&[vec![1]]);
    assert!(matches!(follower.log.lead(8), Err(LogError::Leading)));
    assert!(matches!(follower.log.receive(&[first]), Err(LogError::Leading)));
    let told = follower.outbox.take();
    assert_eq!(told.iter().map(|batch| (batch.index, batch.term)).collect::<Vec<_>>(), [(2, 7)]);
}

#[test]
fn a_batch_told_to_the_group_is_the_one_on_disk_whether_small_or_large() {
    let (leader, batches) = leader(3, 60);
    let large = batches.iter().filter(|batch| batch.payload.len() > 126 * 1024).count();
    let huge = leader.append(&vec![vec![9; 30_000]; 8]);
    let more = leader.outbox.take();
    assert!(more.iter().chain(&batches).all(|b| on_disk(&leader.memory, b) == b.payload));
    assert!(large == 0 && more.last().unwrap().end() == huge);
    let target = 200 * 1024;
    let options = Options { batch_bytes_target: target, ..Options::small() };
    let leader = Instance::start(&MemoryDisk::new(), options);
    leader.log.lead(1).unwrap();
    leader.append(&vec![vec![8; 30_000]; 6]);
    let told = leader.outbox.take();
    assert!(told.len() == 1 && told[0].payload.len() > 126 * 1024, "written without a copy");
    assert_eq!(on_disk(&leader.memory, &told[0]), told[0].payload);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let follower = Instance::new();
    let batches = made_many(BatchPlace::default(), 5, 4, 3_000);
    follower.receive(&batches);
    let next = made(batches[3].place(), 5, &[(b"next", Kind::Last)]);
    let conflict = made(batches[1].place(), 6, &[(b"conflict", Kind::Last)]);
    let name = extent_name(0);
    let before = follower.memory.files()[&name].clone();
    let is_as_before = || follower.memory.files()[&name] == before;
    let refused = |batch: Batch| {
        let result = follower.log.receive(&[next.clone(), batch]);
        assert!(matches!(result, Err(LogError::OutOfPlace { .. })), "{result:?}");
        assert!(is_as_before());
        assert_eq!(follower.log.tail(), batches[3].end());
    };
    let fits = made(next.place(), 5, &[(b"fits", Kind::Last)]);
    let (lsn, block) = (fits.lsn, BLOCK_BYTES as u64);
    refused(Batch { index: fits.index + 1, ..fits.clone() });
    refused(Batch { index: 0, ..fits.clone() });
    refused(Batch { index: u64::MAX, ..fits.clone() });
    refused(Batch { term: 4, ..fits.clone() });
    refused(Batch { term: 1 << 32, ..fits.clone() });
    refused(Batch { lsn: lsn.after(block), ..fits.clone() });
    refused(Batch { lsn: lsn.after(1), ..fits.clone() });
    refused(Batch { lsn: next.lsn, ..fits.clone() });
    refused(Batch { lsn: Lsn(u64::MAX), ..fits.clone() });
    refused(Batch { lsn: Lsn(2 * EXTENT_BYTES_MIN + block), ..fits.clone() });
    refused(Batch { payload: Bytes::from(vec![0; 300 * 1024]), ..fits.clone() });
    refused(Batch { payload: Bytes::from_static(&[0xff, 0xff]), ..fits.clone() });
    // In the way of what conflicts, too: nothing is cut off for it.
    let misplaced = Batch { lsn: lsn.after(block), ..conflict.clone() };
    assert!(follower.log.receive(&[misplaced]).is_err());
    let same_elsewhere = Batch { payload: Bytes::from_static(&[5, 1]), ..batches[2].clone() };
    assert!(follower.log.receive(&[same_elsewhere]).is_err());
    assert!(is_as_before());
    // What is there already is passed over.
    follower.log.receive(&batches[1..3]).unwrap();
    assert!(is_as_before());
    follower.receive(&[batches[3].clone(), next, fits]);
}

#[test]
fn what_conflicts_is_cut_off_back_into_an_earlier_extent_and_never_comes_back() {
    let follower = Instance::new();
    let old = made_many(BatchPlace::default(), 1, 40, 30_000);
    follower.receive(&old);
    assert!(old[39].lsn.0 > 4 * EXTENT_BYTES_MIN);
    // Extents 2, 3 and 4 are left; then the log writes over the same positions again.
    let keep = old.iter().rposition(|batch| batch.lsn.0 < 2 * EXTENT_BYTES_MIN).unwrap() - 1;
    let new = made_many(old[keep].place(), 2, 1, 500);
    follower.log.receive(&new).unwrap();
    follower.watch.wait_durable(new[0].end());
    assert_eq!((follower.log.tail(), follower.log.durable()), (new[0].end(), new[0].end()));
    let follower = follower.again();
    let mut expected: Vec<Batch> = old[..=keep].to_vec();
    expected.extend(new);
    assert_eq!(follower.records, streamed(&expected));
    let more = made_many(expected.last().unwrap().place(), 2, 40, 30_000);
    follower.receive(&more);
    expected.extend(more);
    let follower = follower.again();
    assert_eq!(follower.places, expected.iter().map(Batch::place).collect::<Vec<_>>());
    assert_eq!(follower.records, streamed(&expected));
    // To the very beginning, and with a lower term than what is cut off.
    let all_new = made_many(BatchPlace::default(), 1, 3, 100);
    let other = Batch { term: 0, ..all_new[0].clone() };
    follower.log.receive(std::slice::from_ref(&other)).unwrap();
    follower.watch.wait_durable(other.end());
    assert_eq!(follower.again().places, [other.place()]);
}

#[test]
fn what_conflicts_is_cut_off_behind_a_batch_that_was_on_its_way_to_the_disk() {
    let follower = Instance::new();
    let old = made_many(BatchPlace::default(), 1, 4, 100);
    follower.memory.hold_syncs();
    follower.log.receive(&old).unwrap();
    let new = made(old[1].place(), 2, &[(b"new", Kind::Last)]);
    std::thread::scope(|scope| {
        scope.spawn(|| follower.log.receive(std::slice::from_ref(&new)).unwrap());
        while follower.log.shared().state().appenders_waiting == 0 {
            std::thread::yield_now();
        }
        follower.memory.open_gate();
    });
    follower.watch.wait_durable(new.end());
    let expected = [old[0].place(), old[1].place(), new.place()];
    assert_eq!(follower.again().places, expected);
}

#[test]
fn a_run_that_its_leader_did_not_finish_is_given_up_by_the_next() {
    let (first, mut batches) = leader(4, 5);
    first.append(&vec![vec![7; 10_000]; 20]);
    let long = first.outbox.take();
    assert!(long.len() > 3, "the run goes over several batches");
    batches.extend(long[..2].iter().cloned());
    let second = Instance::new();
    second.receive(&batches);
    batches.push(second.log.lead(2).unwrap());
    second.append(&[b"of the second".to_vec()]);
    batches.extend(second.outbox.take());
    // A third one takes the beginning of a run, and the second never says that it gave it up.
    let third = Instance::new();
    third.receive(&batches[..batches.len() - 1]);
    third.log.lead(3).unwrap();
    third.append(&[b"of the third".to_vec()]);
    let told = third.outbox.take();
    let ends = |batches: &[Batch]| streamed(batches).last().unwrap().1.clone();
    assert_eq!(ends(&batches), b"of the second");
    assert_eq!(recover_records(&second.memory), streamed(&batches));
    let kept = &batches[..batches.len() - 1];
    let with_third: Vec<Batch> = kept.iter().chain(&told).cloned().collect();
    assert_eq!(ends(&with_third), b"of the third");
    // Also for one that puts runs together without having seen where terms begin.
    let without: Vec<Batch> =
        with_third.iter().filter(|b| !b.payload.is_empty()).cloned().collect();
    assert_eq!(streamed(&without), streamed(&with_third));
    assert_eq!(recover_records(&third.memory), streamed(&with_third));
}

#[test]
fn a_replica_ends_without_a_batch_of_its_own_and_a_leader_tells_its_last() {
    let (leader, mut batches) = leader(5, 3);
    let follower = Instance::new();
    follower.receive(&batches);
    follower.log.shutdown();
    assert!(matches!(follower.log.receive(&batches), Err(LogError::Stopped)));
    assert!(matches!(follower.log.lead(9), Err(LogError::Stopped)));
    assert_eq!(follower.again().places.last(), Some(&batches.last().unwrap().place()));
    leader.log.shutdown();
    batches.extend(leader.outbox.take());
    assert!(batches.last().unwrap().payload.is_empty());
    assert_eq!(leader.again().places.last(), Some(&batches.last().unwrap().place()));
}

#[test]
fn a_replica_whose_disk_fails_says_so_and_takes_nothing_more() {
    let follower = Instance::new();
    let batches = made_many(BatchPlace::default(), 1, 4, 100);
    follower.receive(&batches[..2]);
    let (on, error) = (crate::disk::FaultOn::Sync, std::io::ErrorKind::Other);
    let prefix = "extent-".to_owned();
    follower.memory.inject(crate::disk::Fault { on, prefix, after: 0, times: 1, error });
    // Cutting off needs the disk too.
    let other = made(batches[0].place(), 2, &[(b"other", Kind::Last)]);
    assert!(matches!(follower.log.receive(&[other]), Err(LogError::Io { .. })));
    assert!(follower.watch.wait_failed().contains("cut off"));
    assert!(matches!(follower.log.receive(&batches[2..]), Err(LogError::Failed)));
    assert!(matches!(follower.log.lead(9), Err(LogError::Failed)));
}
