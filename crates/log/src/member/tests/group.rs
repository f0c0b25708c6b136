//! Three logs, leaders that change, batches that arrive late: what a majority had is in all logs in
//! the end, byte for byte.

use super::*;
use towline_types::SeededRandom;

struct Group {
    logs: Vec<Option<Instance>>,
    /// What each log holds, by the rules of the group.
    batches: Vec<Vec<Batch>>,
    term: u64,
    leader: usize,
    /// What a majority held at some time: never lost.
    committed: Vec<Batch>,
}

impl Group {
    fn new() -> Group {
        let logs = (0..3).map(|_| Some(Instance::new())).collect();
        let batches = vec![Vec::new(); 3];
        Group { logs, batches, term: 0, leader: 0, committed: Vec::new() }
    }

    fn log(&self, number: usize) -> &Instance {
        self.logs[number].as_ref().unwrap()
    }

    fn restart(&mut self, number: usize) {
        let old = self.logs[number].take().unwrap();
        if self.term.is_multiple_of(2) && number != self.leader {
            old.log.shutdown();
        }
        let outbox = Arc::clone(&old.outbox);
        let new = old.again();
        // What was on its way when it ended.
        self.batches[number].extend(outbox.take());
        let places: Vec<BatchPlace> = self.batches[number].iter().map(Batch::place).collect();
        assert_eq!(new.places, places);
        assert_eq!(new.records, streamed(&self.batches[number]));
        self.logs[number] = Some(new);
    }

    /// The most advanced of two instances leads; the former leader re-executes.
    fn elect(&mut self, random: &mut SeededRandom) {
        let absent = size(random.below(3));
        let newest = |number: &usize| {
            let last = self.batches[*number].last().map(Batch::place).unwrap_or_default();
            (last.term, last.index)
        };
        let next = (0..3).filter(|number| *number != absent).max_by_key(newest).unwrap();
        if self.term > 0 {
            self.restart(self.leader);
        }
        self.term += 1 + random.below(2);
        self.leader = next;
        let first = self.log(next).log.lead(self.term).unwrap();
        self.log(next).watch.wait_durable(first.end());
        self.batches[next].push(first);
    }

    fn append(&mut self, random: &mut SeededRandom) {
        let leader = self.log(self.leader);
        let big = random.below(10) == 0;
        let records: Vec<Vec<u8>> = (0..1 + random.below(3))
            .map(|_| {
                let bytes = random.below(if big { 30_000 } else { 900 });
                body(random, bytes)
            })
            .collect();
        if random.below(8) == 0 {
            let mut appender = leader.log.appender();
            for record in records.iter().cycle().take(9) {
                appender.record(record.len(), |buffer| buffer.extend_from_slice(record));
            }
            return;
        }
        leader.append(&records);
        let told = leader.outbox.take();
        self.batches[self.leader].extend(told);
    }

    /// The leader sends some of what a replica does not have, and some that it has.
    fn send(&mut self, to: usize, random: &mut SeededRandom, all: bool) {
        let leader = &self.batches[self.leader];
        let same = leader.iter().zip(&self.batches[to]).take_while(|(a, b)| a == b).count();
        let from = same.saturating_sub(size(random.below(4)));
        let until = leader.len().min(same + 1 + size(random.below(6)));
        let until = if all { leader.len() } else { until };
        let places: Vec<BatchPlace> = leader[from..until].iter().map(Batch::place).collect();
        let read = self.log(self.leader).log.read_batches(&places, usize::MAX).unwrap();
        assert_eq!(read, leader[from..until]);
        self.log(to).log.receive(&read).unwrap();
        let kept = if until > same { until } else { self.batches[to].len() };
        let end = if until > same { leader[until - 1].end() } else { self.log(to).log.tail() };
        if until > same {
            self.log(to).watch.wait_durable(end);
            let sent = leader[same..until].to_vec();
            self.batches[to].truncate(same);
            self.batches[to].extend(sent);
        }
        assert_eq!(self.batches[to].len(), kept);
        assert_eq!(self.log(to).log.tail(), end);
        self.commit(to);
    }

    /// Enters what leader and replica have both, if its last batch is of the leader's term.
    fn commit(&mut self, replica: usize) {
        let held = self.batches[replica].len().min(self.batches[self.leader].len());
        let both = &self.batches[self.leader][..held];
        let is_current = both.last().is_some_and(|batch| batch.term == self.term);
        if is_current && both == &self.batches[replica][..held] && held > self.committed.len() {
            assert_eq!(both[..self.committed.len()], self.committed[..], "committed and lost");
            self.committed = both.to_vec();
        }
    }
}

#[test]
fn logs_of_a_group_become_equal_whoever_leads_and_whatever_was_cut_off() {
    let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(1..=6, |seed: u64| seed..=seed);
    for seed in seeds {
        println!("seed {seed} (TOWLINE_SEED)");
        let mut random = SeededRandom::new(seed);
        let mut group = Group::new();
        group.elect(&mut random);
        for _ in 0..150 {
            let other = (group.leader + 1 + size(random.below(2))) % 3;
            match random.below(20) {
                0 => group.elect(&mut random),
                1 => group.restart(other),
                2..8 => group.append(&mut random),
                _ => group.send(other, &mut random, false),
            }
        }
        group.log(group.leader).append(&[vec![1]]);
        let told = group.log(group.leader).outbox.take();
        group.batches[group.leader].extend(told);
        for other in [group.leader + 1, group.leader + 2] {
            group.send(other % 3, &mut random, true);
        }
        let leader = group.batches[group.leader].clone();
        assert_eq!(leader[..group.committed.len()], group.committed[..]);
        for number in 0..3 {
            group.restart(number);
            assert_eq!(group.batches[number], leader);
            let memory = &group.log(number).memory;
            assert!(leader.iter().all(|batch| on_disk(memory, batch) == batch.payload));
        }
    }
}
