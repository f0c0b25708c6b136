//! The power goes at any moment while an instance receives, cuts off, leads.

use super::*;
use crate::disk::{CrashPoint, CrashRule, Fault, FaultOn};
use crate::format::ExtentHeader;
use crate::testing::CUT;
use towline_types::SeededRandom;

/// Set in a note that a call begins that may cut something off; the number of the version is in it.
const BEGINS: u64 = 1 << 62;

/// What the log should hold after each change of mind of the group.
type Versions = Vec<Vec<Batch>>;

/// A random batch behind `behind`: records of any kind; now and then it begins the next extent
/// though it would have fitted.
fn random_batch(random: &mut SeededRandom, behind: BatchPlace, term: u64) -> Batch {
    if behind.term != term {
        return made(behind, term, &[]);
    }
    let big = random.below(6) == 0;
    let records: Vec<(Vec<u8>, Kind)> = (0..1 + random.below(4))
        .map(|_| {
            let bytes = random.below(if big { 40_000 } else { 700 });
            let kind = if random.below(3) == 0 { Kind::More } else { Kind::Last };
            (body(random, bytes), kind)
        })
        .collect();
    let records: Vec<(&[u8], Kind)> =
        records.iter().map(|(b, kind)| (b.as_slice(), *kind)).collect();
    let mut batch = made(behind, term, &records);
    if random.below(40) == 0 && behind.index > 0 {
        let next = (behind.end.0 - 1) / EXTENT_BYTES_MIN + 1;
        batch.lsn = Lsn(next * EXTENT_BYTES_MIN + EXTENT_HEADER_BYTES as u64);
    }
    batch
}

fn last(batches: &[Batch]) -> BatchPlace {
    batches.last().map(Batch::place).unwrap_or_default()
}

/// One random life: what the group decides arrives in pieces, and now and then otherwise than
/// before; in the end the instance may lead.
fn live(memory: &MemoryDisk, random: &mut SeededRandom, rounds: u64) -> Versions {
    let instance = Instance::watched(memory, Options::small(), Watch::noting(memory));
    let mut versions: Versions = vec![Vec::new()];
    let mut term = 1;
    for _ in 0..rounds {
        let mut now = versions.last().unwrap().clone();
        let before = now.len();
        // It changes its mind about what is not covered by an image: there is none here.
        let back = if random.below(5) == 0 { size(random.below(30)).min(before) } else { 0 };
        now.truncate(before - back);
        term += u64::from(back > 0 || random.below(10) == 0);
        let seen = now.len().saturating_sub(size(random.below(3)));
        for _ in 0..=random.below(5) {
            now.push(random_batch(random, last(&now), term));
        }
        let given = now[seen..].to_vec();
        versions.push(now);
        memory.note(BEGINS | (versions.len() - 1) as u64);
        instance.log.receive(&given).unwrap();
        if random.below(4) == 0 {
            instance.watch.wait_durable(given.last().unwrap().end());
        }
    }
    if random.below(2) == 0 {
        let mut now = versions.last().unwrap().clone();
        memory.note(BEGINS | versions.len() as u64);
        now.push(instance.log.lead(term + 1).unwrap());
        for _ in 0..10 {
            instance.append(&[body(random, 2_000), body(random, 20_000)]);
        }
        now.extend(instance.outbox.take());
        versions.push(now);
    }
    instance.end();
    versions
}

/// What must have come back of `versions`, by the notes made before the crash.
fn check(versions: &Versions, notes: &[u64], found: &Instance) {
    let mut version = 0;
    let mut durable = 0;
    // Versions that may be there: more than one while something is being cut off.
    let mut possible = vec![0];
    for note in notes {
        if note & CUT != 0 {
            assert!(possible.len() > 1, "what is cut off was in the way");
            possible = vec![version];
            durable = note & !CUT;
        } else if note & BEGINS != 0 {
            version = size(note & !BEGINS);
            possible.push(version);
            let before = &versions[version - 1];
            let goes_on = versions[version].get(..before.len()) == Some(&before[..]);
            if goes_on {
                possible = vec![version];
            } else {
                let same = before.iter().zip(&versions[version]).take_while(|(a, b)| a == b);
                let kept = same.last().map_or(0, |(batch, _)| batch.end().0);
                durable = durable.min(kept);
            }
        } else if possible.len() == 1 {
            durable = *note;
        }
    }
    let is_prefix = |version: &usize| {
        let places = versions[*version].iter().map(Batch::place);
        let there: Vec<BatchPlace> = places.take(found.places.len()).collect();
        there == found.places
    };
    let version = possible.iter().find(|version| is_prefix(version));
    assert!(version.is_some(), "not what was received, of versions {possible:?}");
    let kept = &versions[*version.unwrap()][..found.places.len()];
    // An empty log ends behind the header of its first extent.
    assert!(last(kept).end.0.max(4_096) >= durable, "{:?} was told durable", Lsn(durable));
    let read = found.log.read_batches(&found.places, usize::MAX).unwrap();
    assert_eq!(read, kept);
    assert_eq!(found.records, streamed(kept));
}

#[test]
fn a_power_cut_at_any_moment_leaves_what_was_durable_and_nothing_that_was_cut_off() {
    let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(1..=5, |seed: u64| seed..=seed);
    for seed in seeds {
        println!("seed {seed} (TOWLINE_SEED)");
        let mut random = SeededRandom::new(seed);
        let memory = MemoryDisk::recording();
        let versions = live(&memory, &mut random, 40);
        let journal = memory.journal();
        let step = (journal.len() / 150).max(1);
        for point in (0..=journal.len()).step_by(step) {
            let notes = journal.notes_before(CrashPoint(point));
            let keep_percent = [0, 30, 70, 100][size(random.below(4))];
            let unit_bytes = [512, 4_096][size(random.below(2))];
            let rule = CrashRule { keep_percent, unit_bytes, seed: random.next_u64() };
            println!("point {point}, {rule:?}");
            let found = Instance::start(&journal.crash(CrashPoint(point), rule), Options::small());
            check(&versions, &notes, &found);
            if random.below(6) == 0 {
                go_on(found, &mut random);
            }
        }
    }
}

/// The instance continues in the same term, as its leader does, or leads; and re-executes.
fn go_on(found: Instance, random: &mut SeededRandom) {
    let mut all = found.log.read_batches(&found.places, usize::MAX).unwrap();
    let term = last(&all).term.max(1);
    if random.below(2) == 0 {
        for _ in 0..5 {
            let batch = random_batch(random, last(&all), term);
            found.receive(std::slice::from_ref(&batch));
            all.push(batch);
        }
    } else {
        all.push(found.log.lead(term + 1).unwrap());
        found.append(&[body(random, 30_000), body(random, 100)]);
        all.extend(found.outbox.take());
    }
    let found = found.again();
    assert_eq!(found.places, all.iter().map(Batch::place).collect::<Vec<_>>());
    assert_eq!(found.records, streamed(&all));
}

/// What the group decides arrives in pieces, now and then otherwise than before, until the process
/// is killed after so many changes of its disk.
fn live_until_killed(memory: &MemoryDisk, after: u64, random: &mut SeededRandom) {
    let (on, error) = (FaultOn::Change, std::io::ErrorKind::Other);
    memory.inject(Fault { on, prefix: String::new(), after, times: u64::MAX, error });
    let Ok(mut recovery) = Recovery::open(disk(memory), Options::small(), LOG_ID) else { return };
    recovery.keep_places();
    let watch = Watch::new();
    let listener = Arc::clone(&watch) as Arc<dyn Listener>;
    let Ok(log) = recovery.start_following(listener, Arc::new(Outbox::default())) else { return };
    let mut now: Vec<Batch> = Vec::new();
    for term in 1..40 {
        let kept = now.len().saturating_sub(size(random.below(4)));
        now.truncate(kept);
        for _ in 0..=random.below(5) {
            now.push(random_batch(random, last(&now), term));
        }
        if log.receive(&now[kept..]).is_err() {
            return;
        }
        if random.below(2) == 0 && !watch.wait_durable_or_failed(last(&now).end) {
            return;
        }
    }
}

#[test]
fn what_a_replica_acknowledges_after_it_was_killed_survives_a_power_cut() {
    let seed = 5;
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let mut unsynced = 0;
    for after in 3..250 {
        let memory = MemoryDisk::recording();
        live_until_killed(&memory, after, &mut random);
        memory.heal();
        let killed = memory.journal();
        // The batches that it has are acknowledged to the leader from now on.
        let acknowledged = Instance::start(&memory, Options::small());
        let journal = memory.journal();
        for keep_percent in [0, 40] {
            let rule = CrashRule { keep_percent, unit_bytes: 512, seed: random.next_u64() };
            let lost =
                recover(&disk(&killed.crash(CrashPoint(killed.len()), rule)), Options::small());
            unsynced += u64::from(lost.is_ok_and(|(_, _, lost)| lost != acknowledged.records));
            let found = journal.crash(CrashPoint(journal.len()), rule);
            let found = Instance::start(&found, Options::small());
            assert_eq!(found.places, acknowledged.places, "killed after {after}, {rule:?}");
        }
        acknowledged.end();
    }
    assert!(unsynced > 10, "without a start in between the power cut would show: {unsynced}");
}

#[test]
fn where_the_extent_behind_the_last_batch_cannot_be_read_the_start_is_refused_until_it_can_be() {
    let replica = Instance::new();
    let first = made_many(BatchPlace::default(), 1, 3, 700);
    replica.receive(&first);
    let mut files = replica.memory.files();
    replica.end();
    // A thread makes it ahead, and may not have done so yet.
    files.entry(extent_name(1)).or_insert_with(|| {
        let (sequence, extent_bytes) = (1, EXTENT_BYTES_MIN);
        let header = ExtentHeader { log_id: LOG_ID, sequence, extent_bytes };
        let mut bytes = header.encode().to_vec();
        bytes.resize(size(extent_bytes), 0);
        bytes
    });
    let memory = MemoryDisk::with_files(files);
    // Its header is read; whether a batch follows there is not.
    let (on, error) = (FaultOn::Read, std::io::ErrorKind::Other);
    memory.inject(Fault { on, prefix: extent_name(1), after: 1, times: 1, error });
    let refused = recover(&disk(&memory), Options::small()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("the disk cannot read these bytes"), "{refused}");
    let replica = Instance::start(&memory, Options::small());
    assert_eq!(replica.places.last(), Some(&last(&first)));
    let next = made(last(&first), 2, &[]);
    assert!(next.lsn.0 < EXTENT_BYTES_MIN);
    replica.receive(std::slice::from_ref(&next));
    let replica = replica.again();
    assert_eq!(replica.places.last(), Some(&next.place()));
}
