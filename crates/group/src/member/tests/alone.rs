//! A group of one member: it asks no other, and what is on its disk is committed.

use super::*;
use towline_types::SeededRandom;

/// The only member, with a log on which what is not synced is lost with the process.
struct Alone {
    member: Member,
    hard_state: HardState,
    log: Vec<BatchPlace>,
    synced: usize,
    now: Time,
}

impl Alone {
    fn new() -> Alone {
        let hard_state = HardState { may_vote: true, knows_term: true, ..HardState::default() };
        let (log, now) = (Vec::new(), Time(1_000_000));
        let member = Alone::started(hard_state, &log, now);
        Alone { member, hard_state, log, synced: 0, now }
    }

    fn started(hard_state: HardState, log: &[BatchPlace], now: Time) -> Member {
        let held = RecoveredLog { places: log.to_vec(), ..RecoveredLog::default() };
        let options = Options { voters: vec![id(0)], meets_first: true, ..first_of_three() };
        Member::new(options, hard_state, held, now)
    }

    /// The process is killed, and the next one starts with what was synced.
    fn restart(&mut self) {
        self.log.truncate(self.synced);
        self.member = Alone::started(self.hard_state, &self.log, self.now);
    }

    fn place(&self, term: u64) -> BatchPlace {
        let index = self.log.len() as u64 + 1;
        let lsn = Lsn(index * 4_096);
        BatchPlace { index, term, lsn, end: Lsn(lsn.0 + 40) }
    }

    fn step(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let mut out = Output::default();
            self.member.step(self.now, input, &mut out);
            self.hard_state = out.hard_state.unwrap_or(self.hard_state);
            assert!(out.send.is_empty() && out.copy_from.is_none(), "there is none to send to");
            if let Some(term) = out.lead {
                assert!(self.hard_state.term == term, "its term is kept before it leads");
                let first = self.place(term);
                self.log.push(first);
                next = Some(Input::Leading(first));
            }
        }
        let durable = self.log.get(..self.synced).and_then(|synced| synced.last()).copied();
        let durable = durable.unwrap_or_default();
        assert!(self.member.committed() <= durable.index, "what is committed is on the disk");
    }

    fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(50);
        self.step(Input::Tick);
    }

    fn until_it_leads(&mut self) {
        (0..10).for_each(|_| self.tick());
        assert_eq!(self.member.role(), Role::Leader);
    }

    fn propose(&mut self) {
        let place = self.place(self.member.progress().term);
        self.log.push(place);
        let BatchPlace { index, term, lsn, .. } = place;
        self.step(Input::Left(Batch { index, term, lsn, payload: bytes::Bytes::new() }));
    }

    fn sync(&mut self) {
        self.synced = self.log.len();
        let end = self.log.last().copied().unwrap_or_default().end;
        self.step(Input::Durable(end));
    }
}

#[test]
fn the_only_member_leads_without_a_question_and_commits_what_is_on_its_disk_and_no_more() {
    let mut alone = Alone::new();
    alone.until_it_leads();
    alone.sync();
    assert_eq!(alone.member.committed(), 1, "the first batch of its term");
    alone.propose();
    alone.propose();
    assert_eq!(alone.member.committed(), 1, "they are on their way");
    alone.sync();
    let progress = alone.member.progress();
    assert_eq!((progress.committed.index, progress.peers.len()), (3, 0));
    assert!(progress.is_in_sync && progress.hears_leader && progress.unheard.is_empty());
}

#[test]
fn no_silence_takes_the_lead_from_the_only_member() {
    let mut alone = Alone::new();
    alone.until_it_leads();
    alone.sync();
    let term = alone.member.progress().term;
    // Its process, or its machine, stood still.
    alone.now = alone.now + 20 * TIMEOUT;
    (0..200).for_each(|_| alone.tick());
    assert_eq!((alone.member.role(), alone.member.progress().term), (Role::Leader, term));
    // There is none to hand over to.
    alone.step(Input::Transfer(id(1)));
    alone.propose();
    alone.sync();
    assert_eq!(alone.member.committed(), alone.log.len() as u64);
}

#[test]
fn the_only_member_goes_on_above_all_terms_of_its_log_when_it_lost_its_hard_state() {
    let mut alone = Alone::new();
    for _ in 0..3 {
        alone.until_it_leads();
        alone.propose();
        alone.sync();
        alone.restart();
    }
    let newest = alone.log.last().unwrap().term;
    assert_eq!(newest, 3);
    // What the caller makes of a hard state that is gone, and of an older copy of one.
    for term in [0, 1] {
        alone.hard_state =
            HardState { term, may_vote: true, knows_term: true, ..HardState::default() };
        let held = alone.log.len() as u64;
        alone.restart();
        (0..2).for_each(|_| alone.tick());
        assert_eq!(alone.member.role(), Role::Leader, "at once: it waits for no favoured one");
        assert!(alone.member.progress().term > alone.log[alone.synced - 1].term);
        alone.sync();
        assert!(alone.member.committed() > held, "all that was there, and the first of its term");
    }
}

#[test]
fn the_only_member_without_a_vote_never_leads_and_asks_none() {
    let mut alone = Alone::new();
    alone.until_it_leads();
    alone.sync();
    alone.restart();
    // Its log lacks what is noted: also without the caller's word.
    alone.hard_state =
        HardState { committed: 9, committed_end: Lsn(9 * 4_096), ..alone.hard_state };
    alone.restart();
    (0..400).for_each(|_| alone.tick());
    let progress = alone.member.progress();
    assert_eq!((progress.role, progress.may_vote), (Role::Follower, false));
    assert!(progress.unheard.is_empty() && !progress.is_in_sync);
}

#[test]
fn histories_of_kills_lose_nothing_that_was_committed_by_the_only_member() {
    let seeds = std::env::var("GROUP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seeds.map_or(0..200, |seed: u64| seed..seed + 1);
    for seed in seeds {
        println!("GROUP_SEED={seed}");
        let mut dice = SeededRandom::mixed(seed);
        let mut alone = Alone::new();
        let mut committed: Vec<BatchPlace> = Vec::new();
        for _ in 0..200 {
            match dice.below(10) {
                0 => alone.restart(),
                1..4 => alone.sync(),
                4..7 if alone.member.role() == Role::Leader => alone.propose(),
                _ => alone.tick(),
            }
            let upto = usize::try_from(alone.member.committed()).unwrap();
            let held = &alone.log[..upto];
            let both = committed.len().min(held.len());
            assert_eq!(committed[..both], held[..both], "what is committed stays as it is");
            assert!(alone.log.len() >= committed.len(), "and is never lost");
            if held.len() > committed.len() {
                committed = held.to_vec();
            }
            assert!(alone.log.windows(2).all(|two| two[0].term <= two[1].term));
        }
        alone.until_it_leads();
        alone.sync();
        assert!(alone.member.committed() >= committed.len() as u64, "all of it is committed again");
    }
}
