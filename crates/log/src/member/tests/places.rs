//! Reading batches back, images, positions of batches.

use super::*;
use crate::format::BATCH_HEADER_BYTES;
use crate::testing::image;

fn places(batches: &[Batch]) -> Vec<BatchPlace> {
    batches.iter().map(Batch::place).collect()
}

#[test]
fn batches_are_read_back_whole_from_old_extents_and_from_memory() {
    let (leader, batches) = leader(11, 300);
    assert!(batches.last().unwrap().lsn.0 > 4 * EXTENT_BYTES_MIN);
    let places = places(&batches);
    assert_eq!(leader.log.read_batches(&places, usize::MAX).unwrap(), batches);
    let follower = Instance::new();
    follower.receive(&batches);
    assert_eq!(follower.log.read_batches(&places, usize::MAX).unwrap(), batches);
    let mut read = Vec::new();
    while read.len() < places.len() {
        let some = follower.log.read_batches(&places[read.len()..], 20_000).unwrap();
        let bytes: usize = some.iter().map(|batch| batch.payload.len() + 40).sum();
        assert!(some.len() == 1 || bytes <= 20_000);
        read.extend(some);
    }
    assert_eq!(read, batches);
    assert_eq!(follower.log.read_batches(&[], 10).unwrap(), []);
}

#[test]
fn a_batch_that_is_not_durable_yet_is_read_from_memory() {
    let follower = Instance::new();
    let batches = made_many(BatchPlace::default(), 1, 5, 1_000);
    follower.receive(&batches[..2]);
    follower.memory.hold_syncs();
    follower.log.receive(&batches[2..]).unwrap();
    let all = places(&batches);
    assert_eq!(follower.log.read_batches(&all, usize::MAX).unwrap(), batches);
    follower.memory.open_gate();
    follower.watch.wait_durable(batches[4].end());
    let first = follower.log.lead(2).unwrap();
    follower.watch.wait_durable(first.end());
    follower.memory.hold_syncs();
    let (_, end) = append(&follower.log, &[vec![1; 100]], Urgency::Forced);
    follower.memory.wait_for_syncs(1);
    let told = follower.outbox.take();
    assert_eq!(follower.log.read_batches(&places(&told), 1).unwrap(), told);
    follower.memory.open_gate();
    follower.watch.wait_durable(end);
    assert_eq!(follower.log.read_batches(&[first.place()], 1).unwrap(), [first]);
}

#[test]
fn a_place_that_is_not_in_this_log_is_refused() {
    let follower = Instance::new();
    let batches = made_many(BatchPlace::default(), 1, 5, 1_000);
    follower.receive(&batches);
    let place = batches[2].place();
    let read = |place: BatchPlace| follower.log.read_batches(&[place], 10);
    let elsewhere = |result| matches!(result, Err(LogError::OutOfPlace { .. }));
    assert!(elsewhere(read(BatchPlace { index: 9, ..place })));
    assert!(elsewhere(read(BatchPlace { term: 2, ..place })));
    assert!(elsewhere(read(BatchPlace { end: place.end.after(4_096), ..place })));
    let in_its_block = BatchPlace { end: place.end.after(1), ..place };
    assert_eq!(read(in_its_block).unwrap(), [batches[2].clone()], "its header knows better");
    assert!(elsewhere(read(BatchPlace { end: place.lsn, ..place })));
    assert!(elsewhere(read(BatchPlace { end: Lsn::ZERO, ..place })));
    let behind = BatchPlace { lsn: batches[4].end(), end: batches[4].end().after(100), ..place };
    assert!(matches!(read(behind), Err(LogError::Gone { .. })));
    // Cut off: something else is there.
    let other = made(batches[1].place(), 2, &[(&[9; 1_000], Kind::Last)]);
    follower.log.receive(std::slice::from_ref(&other)).unwrap();
    follower.watch.wait_durable(other.end());
    assert!(elsewhere(read(place)));
    assert_eq!(read(other.place()).unwrap(), [other]);
    let (name, offset) = (extent_name(0), size(batches[0].lsn.0) + 100);
    follower.memory.change(&name, |file| file[offset] ^= 1);
    assert!(matches!(read(batches[0].place()), Err(LogError::Damaged(_))));
}

#[test]
fn a_replica_takes_images_lets_log_go_and_begins_again_with_them() {
    let follower = Instance::new();
    let batches = made_many(BatchPlace::default(), 3, 60, 30_000);
    follower.receive(&batches);
    let (older, newer) = (batches[30].end(), batches[50].end());
    image(&follower.log, older, b"older");
    image(&follower.log, newer, b"newer");
    follower.log.reclaim(newer).unwrap();
    let gone = follower.log.read_batches(&[batches[0].place()], 1);
    assert!(matches!(gone, Err(LogError::Gone { .. })));
    // What an image covers is never cut off.
    let conflict = made(batches[40].place(), 4, &[(b"x", Kind::Last)]);
    assert!(matches!(follower.log.receive(&[conflict]), Err(LogError::OutOfPlace { .. })));
    let follower = follower.again();
    assert_eq!(follower.base, batches[50].place());
    assert_eq!(follower.places, places(&batches[51..]));
    assert_eq!(follower.records, streamed(&batches[51..]));
    // Any batch behind the image can be cut off, and any end of a run can be the position of an
    // image.
    assert!(follower.log.mark_at(batches[55].end()).is_some_and(|m| m.at() == batches[55].end()));
    let other = made(batches[50].place(), 4, &[(b"other", Kind::Last)]);
    follower.log.receive(std::slice::from_ref(&other)).unwrap();
    follower.watch.wait_durable(other.end());
    assert!(follower.log.mark_at(batches[55].end()).is_none());
    image(&follower.log, other.end(), b"newest");
    let follower = follower.again();
    assert_eq!((follower.base, follower.places.len()), (other.place(), 0));
    follower.log.lead(5).unwrap();
    follower.append(&[vec![1]]);
    assert_eq!(follower.again().records.len(), 1);
}

#[test]
fn places_before_the_image_are_found_again_as_far_back_as_the_log_leads() {
    let follower = Instance::new();
    let mut batches = made_many(BatchPlace::default(), 3, 60, 30_000);
    batches.extend(made_many(batches[59].place(), 4, 240, 100));
    follower.receive(&batches);
    image(&follower.log, batches[30].end(), b"older");
    image(&follower.log, batches[280].end(), b"newer");
    follower.log.reclaim(batches[30].end()).unwrap();
    let files = follower.memory.files();
    follower.end();
    let found = |memory: &MemoryDisk| {
        let mut recovery = Recovery::open(disk(memory), Options::small(), LOG_ID).unwrap();
        recovery.keep_places();
        recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
        assert_eq!(recovery.places().base, batches[280].place());
        recovery.places_from_earlier()
    };
    // All that is in extents that are there; the first of it is the base.
    let crate::BatchPlaces { base, batches: places } =
        found(&MemoryDisk::with_files(files.clone()));
    assert!(base.index > 1 && base.index <= 31, "{base:?}");
    let wanted: Vec<BatchPlace> = batches.iter().map(Batch::place).collect();
    let at = size(base.index) - 1;
    assert_eq!(wanted[at], base);
    assert_eq!(places, wanted[at + 1..]);

    // A header that was damaged ends it there: what is behind its extent stays known.
    let memory = MemoryDisk::with_files(files);
    let damaged = batches[40].lsn.0;
    let (name, offset) =
        (extent_name(damaged / EXTENT_BYTES_MIN), size(damaged % EXTENT_BYTES_MIN));
    memory.change(&name, |file| file[offset + 9] ^= 1);
    let crate::BatchPlaces { base, batches: places } = found(&memory);
    assert!(base.lsn.0 / EXTENT_BYTES_MIN == damaged / EXTENT_BYTES_MIN + 1, "{base:?}");
    assert_eq!(places, wanted[size(base.index)..]);
}

/// Bytes of a batch that a start before did not check: its term decides what consensus takes for
/// the same batch, and a term that went down ended each start with an assertion.
#[test]
fn a_flipped_bit_of_a_term_before_the_image_is_not_believed() {
    let follower = Instance::new();
    // One bit is between the terms 6 and 4, and no batch beside a change is the last of its extent.
    let mut batches = made_many(BatchPlace::default(), 3, 9, 30_000);
    batches.extend(made_many(batches[8].place(), 4, 10, 30_000));
    batches.extend(made_many(batches[18].place(), 6, 11, 30_000));
    follower.receive(&batches);
    image(&follower.log, batches[25].end(), b"image");
    let files = follower.memory.files();
    follower.end();
    let wanted: Vec<BatchPlace> = batches.iter().map(Batch::place).collect();
    let known = |memory: &MemoryDisk| {
        let mut recovery = Recovery::open(disk(memory), Options::small(), LOG_ID).unwrap();
        recovery.keep_places();
        recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
        assert_eq!(recovery.places().base, batches[25].place());
        let crate::BatchPlaces { base, batches } = recovery.places_from_earlier();
        all_of(base, batches)
    };
    assert_eq!(known(&MemoryDisk::with_files(files.clone())), wanted);
    // Of the term, and of the length in blocks.
    let bits = [24 * 8, 24 * 8 + 1, 24 * 8 + 2, 24 * 8 + 6, 27 * 8 + 7, 4 * 8 + 12, 4 * 8 + 15];
    for (at, bit) in (0..25).flat_map(|at| bits.map(|bit| (at, bit))) {
        let memory = MemoryDisk::with_files(files.clone());
        let lsn = batches[at].lsn.0;
        let (name, offset) = (extent_name(lsn / EXTENT_BYTES_MIN), size(lsn % EXTENT_BYTES_MIN));
        memory.change(&name, |file| file[offset + bit / 8] ^= 1 << (bit % 8));
        let found = known(&memory);
        assert!(wanted.ends_with(&found), "bit {bit} of batch {at}");
        assert!(found.len() + at < wanted.len(), "batch {at} is damaged, bit {bit}");
    }
}

/// All of an instance's log, but for what replay reads.
fn before_the_image(memory: &MemoryDisk, options: Options) -> Vec<BatchPlace> {
    let memory = MemoryDisk::with_files(memory.files());
    let mut recovery = Recovery::open(disk(&memory), options, LOG_ID).unwrap();
    recovery.keep_places();
    recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
    let crate::BatchPlaces { base, batches } = recovery.places_from_earlier();
    all_of(base, batches)
}

/// The base with the others, unless it is none: then the log is known from its first batch on.
fn all_of(base: BatchPlace, batches: Vec<BatchPlace>) -> Vec<BatchPlace> {
    assert!(base.index > 0 || batches.first().is_some_and(|first| first.index == 1));
    std::iter::once(base).filter(|base| base.index > 0).chain(batches).collect()
}

/// Nothing shows where a batch ends in its last block but its own header. A replica that lags needs
/// the batch: its leader repairs it, and must then take what was repaired for the batch.
#[test]
fn a_flipped_bit_of_a_length_before_the_image_is_mended_and_the_batch_read_all_the_same() {
    let (follower, there) = (Instance::new(), Instance::new());
    let batches = made_many(BatchPlace::default(), 3, 30, 30_000);
    follower.receive(&batches);
    there.receive(&batches);
    image(&follower.log, batches[25].end(), b"image");
    let files = follower.memory.files();
    follower.end();
    let batch = &batches[11];
    let (name, offset) =
        (extent_name(batch.lsn.0 / EXTENT_BYTES_MIN), size(batch.lsn.0 % EXTENT_BYTES_MIN));
    for bit in [0, 1, 2, 4, 5, 8, 9, 10] {
        let memory = MemoryDisk::with_files(files.clone());
        memory.change(&name, |file| file[offset + 4 + bit / 8] ^= 1 << (bit % 8));
        let known = before_the_image(&memory, Options::small());
        let place = known.into_iter().find(|place| place.index == batch.index).unwrap();
        assert_ne!(place, batch.place(), "bit {bit}: nothing but a whole batch shows it");
        let here = Instance::start(&memory, Options::small());
        let read = || here.log.read_batches(&[place], usize::MAX);
        assert!(matches!(read(), Err(LogError::Damaged(_))), "bit {bit}: {:?}", read());
        let part = towline_types::BodyLocation { lsn: place.lsn, bytes: 40 };
        let came = there.log.batch_over(part).unwrap();
        here.log.mend_batch(part, &came).unwrap().unwrap();
        assert_eq!(read().unwrap(), std::slice::from_ref(batch), "bit {bit}");
        here.end();
    }
}

/// Seed 9013235 of clusters: the flipped bit was of an index, "another batch" was there, and the
/// process ended instead of repairing it.
#[test]
fn a_flipped_bit_of_a_header_is_damage_whatever_field_it_is_of() {
    let (here, there) = (Instance::new(), Instance::new());
    let batches = made_many(BatchPlace::default(), 3, 5, 6_000);
    here.receive(&batches);
    there.receive(&batches);
    let batch = &batches[2];
    let read = || here.log.read_batches(&[batch.place()], usize::MAX);
    for bit in 0..BATCH_HEADER_BYTES * 8 {
        here.memory.change(&extent_name(0), |file| {
            file[size(batch.lsn.0) + bit / 8] ^= 1 << (bit % 8);
        });
        assert!(matches!(read(), Err(LogError::Damaged(_))), "bit {bit}: {:?}", read());
        let part = towline_types::BodyLocation { lsn: batch.lsn, bytes: 40 };
        let came = there.log.batch_over(part).unwrap();
        here.log.mend_batch(part, &came).unwrap().unwrap();
        assert_eq!(read().unwrap(), std::slice::from_ref(batch), "bit {bit}");
    }
}

#[test]
fn a_longer_batch_in_the_place_of_one_that_was_cut_off_is_not_damage() {
    let follower = Instance::new();
    let batches = made_many(BatchPlace::default(), 1, 5, 1_000);
    follower.receive(&batches);
    let place = batches[2].place();
    let longer = made(batches[1].place(), 2, &[(&[9; 100_000], Kind::Last)]);
    follower.log.receive(std::slice::from_ref(&longer)).unwrap();
    follower.watch.wait_durable(longer.end());
    let read = follower.log.read_batches(&[place], 10);
    assert!(matches!(read, Err(LogError::OutOfPlace { .. })), "{read:?}");
}

/// Behind the last batch of an extent none shows its length, also where the image ends with the
/// next one.
#[test]
fn the_batch_before_an_image_is_proved_where_it_is_the_last_of_its_extent() {
    let batches = made_many(BatchPlace::default(), 3, 30, 30_000);
    let is_last = |at: &usize| {
        batches[*at].lsn.0 / EXTENT_BYTES_MIN < batches[*at + 1].lsn.0 / EXTENT_BYTES_MIN
    };
    for at in (8..25).filter(is_last) {
        let follower = Instance::new();
        follower.receive(&batches);
        image(&follower.log, batches[at + 1].end(), b"image");
        let lsn = batches[at].lsn.0;
        let (name, offset) = (extent_name(lsn / EXTENT_BYTES_MIN), size(lsn % EXTENT_BYTES_MIN));
        follower.memory.change(&name, |file| file[offset + 5] ^= 1 << 4);
        let known = before_the_image(&follower.memory, Options::small());
        assert_eq!(known, places(&batches[at + 1..]), "{at}");
        follower.end();
    }
}

/// What is read to find batches leaves enough to prove the oldest one.
#[test]
fn a_log_that_is_longer_than_what_a_start_reads_of_it_is_known_as_far_as_it_was_read() {
    let options = || Options { log_bytes_max: 1 << 30, ..Options::small() };
    let follower = Instance::start(&MemoryDisk::new(), options());
    let mut batches = made_many(BatchPlace::default(), 3, 200, 200_000);
    batches.extend(made_many(batches[199].place(), 3, 160, 200_000));
    for some in batches.chunks(20) {
        follower.receive(some);
    }
    image(&follower.log, batches[359].end(), b"image");
    let known = before_the_image(&follower.memory, options());
    let wanted: Vec<BatchPlace> = batches.iter().map(Batch::place).collect();
    assert!(wanted.ends_with(&known));
    assert!(known.len() > 300 && known.len() < 360, "{}", known.len());
}

#[test]
fn an_image_within_a_run_begins_before_it_even_after_a_restart() {
    let follower = Instance::new();
    let one = made(BatchPlace::default(), 1, &[(b"one", Kind::Last), (b"two-", Kind::More)]);
    let two = made(one.place(), 1, &[(b"-two", Kind::Last), (b"three-", Kind::More)]);
    follower.receive(&[one.clone(), two.clone()]);
    assert!(follower.log.mark_at(one.end()).is_some_and(|mark| mark.seam().index == 0));
    let follower = follower.again();
    assert_eq!(follower.records, streamed(&[one.clone(), two.clone()]));
    let mark = follower.log.mark_at(two.end()).unwrap();
    assert_eq!(mark.seam().index, 0);
    follower.log.write_image(mark, b"one, two").unwrap();
    let three = made(two.place(), 1, &[(b"-three", Kind::Last)]);
    follower.receive(std::slice::from_ref(&three));
    let follower = follower.again();
    assert_eq!(follower.base, BatchPlace::default());
    assert_eq!(follower.places, [one.place(), two.place(), three.place()]);
    let found: Vec<Vec<u8>> = follower.records.iter().map(|record| record.1.clone()).collect();
    assert_eq!(found, [b"three-".to_vec(), b"-three".to_vec()]);
}

#[test]
fn replay_yields_what_was_committed_and_the_stream_goes_on_there() {
    let (leader, mut batches) = leader(12, 20);
    leader.append(&vec![vec![7; 10_000]; 20]);
    batches.extend(leader.outbox.take());
    let wanted = streamed(&batches);
    let follower = Instance::new();
    follower.receive(&batches);
    // In the middle of some batch: the run that ends there is in the image.
    let image_at = batches[9].end();
    image(&follower.log, image_at, b"image");
    let files = follower.memory.files();
    follower.end();
    let counts = 0..=batches.len() as u64;
    let cases = [(crate::Begin::Image, 10), (crate::Begin::Oldest, 0)];
    for (committed, (begin, base)) in counts.flat_map(|count| cases.map(|case| (count, case))) {
        let memory = MemoryDisk::with_files(files.clone());
        let mut recovery = Recovery::open(disk(&memory), Options::small(), LOG_ID).unwrap();
        recovery.yield_upto(committed);
        let mut records = Vec::new();
        let mut record = |lsn: Lsn, bytes: &[u8]| {
            records.push((lsn, bytes.to_vec()));
            Ok::<(), std::convert::Infallible>(())
        };
        recovery.replay_from(begin, &mut record, |_, _| {}).unwrap();
        let crate::ResumedStream { fed, mut stream } = recovery.stream();
        // What the image covers was committed, whatever was noted of that, also where it is read
        // from the log again.
        assert_eq!(fed, committed.max(10), "{begin:?}");
        let known = recovery.places();
        assert_eq!(known.batches, places(&batches[base..]));
        assert_eq!(known.base.index, base as u64);
        for batch in batches.iter().filter(|batch| batch.index > fed) {
            stream.feed(batch.lsn, &batch.payload, &mut record).unwrap();
        }
        assert!(stream.at_seam());
        let image_at = if base == 0 { Lsn::ZERO } else { image_at };
        let behind = wanted.iter().filter(|(lsn, _)| *lsn > image_at);
        assert!(records.iter().eq(behind), "committed {committed} {begin:?}");
        drop(recovery);
    }
}

#[test]
fn a_body_that_was_cut_off_is_not_read_from_memory() {
    let follower = Instance::new();
    let old = made_many(BatchPlace::default(), 1, 8, 1_000);
    follower.receive(&old);
    let body = towline_types::BodyLocation { lsn: old[4].lsn.after(42), bytes: 500 };
    assert_eq!(follower.log.read(body).unwrap(), [4; 500][..]);
    let new: Vec<Batch> = made_many(old[2].place(), 2, 8, 1_000);
    follower.log.receive(&new[..1]).unwrap();
    assert!(follower.log.resident(body).is_none());
    follower.receive(&new);
    assert_eq!(follower.log.read(body).unwrap(), [1; 500][..]);
    assert_eq!(follower.log.resident(body).unwrap(), [1; 500][..]);
}

#[test]
fn a_full_replica_says_so_and_goes_on_when_there_is_room() {
    let options = Options {
        log_bytes_max: 5 * EXTENT_BYTES_MIN,
        reserve_bytes: EXTENT_BYTES_MIN,
        ..Options::small()
    };
    let follower = Instance::start(&MemoryDisk::new(), options);
    let batches = made_many(BatchPlace::default(), 1, 60, 30_000);
    assert!(matches!(follower.log.receive(&batches), Err(LogError::Full)));
    let taken = batches.iter().rposition(|batch| batch.end() <= follower.log.tail()).unwrap();
    assert!(taken > 30, "{taken}");
    follower.watch.wait_durable(batches[taken].end());
    image(&follower.log, batches[taken].end(), b"image");
    follower.log.reclaim(batches[taken].end()).unwrap();
    follower.log.receive(&batches).unwrap();
    follower.watch.wait_durable(batches[59].end());
}
