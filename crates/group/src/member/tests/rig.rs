//! A world for three members: a clock, a network that delays, logs that become durable later.

use std::collections::BTreeMap;

use super::*;
use bytes::Bytes;
use towline_types::SeededRandom;

const TICK: Duration = Duration::from_millis(50);

pub(super) fn id(at: usize) -> MemberId {
    MemberId(at as u64 + 1)
}

fn position(id: MemberId) -> usize {
    usize::try_from(id.0).unwrap() - 1
}

#[derive(Default)]
struct Node {
    member: Option<Member>,
    hard_state: HardState,
    /// All batches of the log from index 1 on, durable or not.
    log: Vec<Batch>,
    durable: usize,
    /// Syncs under way: when they end, and how much is durable then.
    syncs: Vec<(Time, usize)>,
    last_tick: Time,
    copy_from: Option<MemberId>,
    leads: bool,
    begins_again: bool,
}

pub(super) struct Trio {
    pub(super) now: Time,
    seed: u64,
    nodes: [Node; 3],
    net: BTreeMap<(Time, u64), (usize, Message)>,
    sent: u64,
    cut: [bool; 3],
    /// Pairs between which there is neither a connection nor a message on its way.
    parted: [[bool; 3]; 3],
    sync_us: [u64; 3],
    random: SeededRandom,
    /// Every batch that any member ever saw committed, by index.
    seen: BTreeMap<u64, Batch>,
    /// Set: what members want read waits here, with the member that wants it, until it is answered.
    reads_wait: Option<Vec<(usize, FetchOrder)>>,
}

impl Trio {
    pub(super) fn blank(seed: u64) -> Trio {
        let mut trio = Trio {
            now: Time(1_000_000_000),
            seed,
            nodes: Default::default(),
            net: BTreeMap::new(),
            sent: 0,
            cut: [false; 3],
            parted: [[false; 3]; 3],
            sync_us: [100; 3],
            random: SeededRandom::new(seed),
            seen: BTreeMap::new(),
            reads_wait: None,
        };
        (0..3).for_each(|at| trio.start(at));
        trio
    }

    pub(super) fn formed(seed: u64) -> Trio {
        let mut trio = Trio::blank(seed);
        (0..3).for_each(|at| trio.input(at, Input::Form));
        trio
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    pub(super) fn member(&self, at: usize) -> &Member {
        self.nodes[at].member.as_ref().unwrap()
    }

    /// A member as it is, for a look at what it does next.
    pub(super) fn take(&mut self, at: usize) -> Member {
        self.nodes[at].member.take().unwrap()
    }

    pub(super) fn start(&mut self, at: usize) {
        let options = Options {
            id: id(at),
            voters: (0..3).map(id).collect(),
            tick: TICK,
            heartbeat_interval: Duration::from_millis(250),
            heartbeat_timeout: TIMEOUT,
            seed: self.seed * 3 + at as u64,
            meets_first: true,
            lacks_batches: false,
        };
        let node = &mut self.nodes[at];
        node.log.truncate(node.durable);
        let places = node.log.iter().map(Batch::place).collect();
        let mut held = RecoveredLog { base: BatchPlace::default(), places, applied: 0 };
        if held.has(&node.hard_state) {
            held.applied = node.hard_state.committed;
        }
        node.member = Some(Member::new(options, node.hard_state, held, self.now));
        (node.copy_from, node.leads, node.begins_again) = (None, false, false);
        for other in (0..3).filter(|other| *other != at) {
            self.connect(at, other);
        }
    }

    /// Both hear of a connection, when both live and it can be made.
    fn connect(&mut self, a: usize, b: usize) {
        if self.parted[a][b] || [a, b].iter().any(|at| self.nodes[*at].member.is_none()) {
            return;
        }
        let said = [a, b].map(|at| self.opened(at));
        for (to, input) in [b, a].into_iter().zip(said) {
            self.input(to, input);
        }
    }

    /// What a member says with a connection that it makes now.
    pub(super) fn opened(&self, at: usize) -> Input {
        let last_index = self.nodes[at].log.len() as u64;
        Input::PeerOpened { peer: id(at), last_index, term: self.member(at).hard_state().term }
    }

    /// There is no connection between two, and none can be made; each learns that at once.
    pub(super) fn part(&mut self, a: usize, b: usize) {
        (self.parted[a][b], self.parted[b][a]) = (true, true);
        self.input(a, Input::PeerClosed(id(b)));
        self.input(b, Input::PeerClosed(id(a)));
    }

    /// They find each other again.
    pub(super) fn meet(&mut self, a: usize, b: usize) {
        (self.parted[a][b], self.parted[b][a]) = (false, false);
        self.connect(a, b);
    }

    pub(super) fn kill(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.member = None;
        node.syncs.clear();
        node.log.truncate(node.durable);
        // What was on its way arrives before the end of the connection, or never.
        self.net.retain(|_, (_, message)| message.from() != id(at));
        for other in (0..3).filter(|other| *other != at) {
            if self.nodes[other].member.is_some() {
                self.input(other, Input::PeerClosed(id(at)));
            }
        }
    }

    pub(super) fn wipe(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        (node.log, node.durable, node.hard_state) = (Vec::new(), 0, HardState::default());
    }

    /// The last batches of a log are gone, and nothing else.
    pub(super) fn shorten(&mut self, at: usize, by: usize) {
        let node = &mut self.nodes[at];
        node.log.truncate(node.log.len() - by);
        node.durable = node.log.len();
    }

    /// A copy of all that is on its disk.
    pub(super) fn copy_disk(&self, at: usize) -> (Vec<Batch>, HardState) {
        let node = &self.nodes[at];
        (node.log[..node.durable].to_vec(), node.hard_state)
    }

    /// It is put back.
    pub(super) fn put_disk_back(&mut self, at: usize, (log, hard_state): (Vec<Batch>, HardState)) {
        let node = &mut self.nodes[at];
        (node.durable, node.log, node.hard_state) = (log.len(), log, hard_state);
    }

    /// More is lost than a group of three survives: what was committed is not compared with what
    /// comes.
    pub(super) fn forget_what_was_seen(&mut self) {
        self.seen.clear();
    }

    /// What a driver keeps of a member that was put back.
    pub(super) fn forget(&mut self, at: usize) {
        self.nodes[at].hard_state = self.nodes[at].hard_state.forgotten();
    }

    /// No connection with any other can be made from now on.
    pub(super) fn part_quietly(&mut self, at: usize) {
        for other in (0..3).filter(|other| *other != at) {
            (self.parted[at][other], self.parted[other][at]) = (true, true);
        }
    }

    /// What a driver writes down now and then.
    pub(super) fn note(&mut self, at: usize) {
        self.nodes[at].hard_state = self.member(at).noted();
    }

    pub(super) fn hard_state(&self, at: usize) -> HardState {
        self.nodes[at].hard_state
    }

    /// One gets the log of another, as it would have it from a copy of its disk: it votes with that
    /// if the copy bears out what it promised.
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        let log = self.nodes[from].log.clone();
        let last = |log: &[Batch]| log.last().map(Batch::place).unwrap_or_default();
        let node = &mut self.nodes[to];
        if !node.hard_state.is_borne_out_by(last(&node.log), last(&log)) {
            node.hard_state = node.hard_state.without_vote();
        }
        node.hard_state = node.hard_state.with_copy(last(&log));
        (node.durable, node.log) = (log.len(), log);
    }

    pub(super) fn cut_off(&mut self, at: usize) {
        self.cut[at] = true;
    }

    pub(super) fn heal(&mut self) {
        self.cut = [false; 3];
    }

    pub(super) fn copies_wanted(&self, at: usize) -> Option<MemberId> {
        self.nodes[at].copy_from
    }

    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| {
            node.member.as_ref().is_some_and(|member| {
                member.role() == Role::Leader
                    && member.place(member.committed()).unwrap().term == member.raw.raft.term
            })
        };
        (0..3).filter(|at| leads(&self.nodes[*at])).max_by_key(|at| self.member(*at).raw.raft.term)
    }

    pub(super) fn run_until_leader(&mut self) -> usize {
        for _ in 0..20_000 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.run(Duration::from_millis(1));
        }
        panic!("no leader");
    }

    pub(super) fn propose(&mut self, leader: usize, payload: &'static [u8]) {
        let member = self.member(leader);
        if member.role() != Role::Leader || member.held.is_some() {
            return;
        }
        let term = member.raw.raft.term;
        let batch = self.append(leader, term, Bytes::from_static(payload));
        self.input(leader, Input::Left(batch));
    }

    fn append(&mut self, at: usize, term: u64, payload: Bytes) -> Batch {
        let log = &mut self.nodes[at].log;
        let lsn = log.last().map_or(Lsn(4_096), |last| Lsn(last.end().0.next_multiple_of(4_096)));
        let batch = Batch { index: log.len() as u64 + 1, term, lsn, payload };
        log.push(batch.clone());
        self.sync(at);
        batch
    }

    fn sync(&mut self, at: usize) {
        let more = self.sync_us[at];
        let after = self.draw(more) + more;
        let upto = self.nodes[at].log.len();
        self.nodes[at].syncs.push((self.now + Duration::from_micros(after), upto));
    }

    pub(super) fn input(&mut self, at: usize, input: Input) {
        let mut out = Output::default();
        let Some(member) = self.nodes[at].member.as_mut() else { return };
        member.step(self.now, input, &mut out);
        self.carry_out(at, out);
    }

    fn carry_out(&mut self, at: usize, out: Output) {
        let node = &mut self.nodes[at];
        if let Some(hard_state) = out.hard_state {
            node.hard_state = hard_state;
        }
        node.copy_from = out.copy_from.or(node.copy_from);
        if let Some(first) = out.receive.first() {
            let behind = usize::try_from(first.index).unwrap() - 1;
            assert!(behind <= node.log.len(), "no gap");
            node.log.truncate(behind);
            node.durable = node.durable.min(behind);
            node.syncs.retain(|(_, upto)| *upto <= behind);
            node.log.extend(out.receive.iter().cloned());
            self.sync(at);
        }
        for (to, message) in out.send {
            let (head, payloads) = message.encode();
            let bytes: Vec<u8> = head.into_iter().chain(payloads.into_iter().flatten()).collect();
            assert_eq!(Message::decode(&Bytes::from(bytes)), Ok(message.clone()));
            let delay = Duration::from_micros(20 + self.draw(300));
            self.sent += 1;
            let key = (self.now + delay, self.sent);
            let is_parted = self.parted[at][position(to)];
            if !self.cut[at] && !self.cut[position(to)] && !is_parted {
                self.net.insert(key, (position(to), message));
            }
        }
        for order in out.fetch {
            match &mut self.reads_wait {
                Some(waiting) => waiting.push((at, order)),
                None => self.read(at, &order),
            }
        }
        if let Some(term) = out.lead {
            let batch = self.append(at, term, Bytes::new());
            self.input(at, Input::Leading(batch.place()));
        }
        // A process that leads no more restarts: it may have more in its log than was sent.
        let node = &mut self.nodes[at];
        match out.role {
            Some(Role::Leader) => node.leads = true,
            Some(_) if node.leads => node.begins_again = true,
            _ => {}
        }
    }

    fn read(&mut self, at: usize, order: &FetchOrder) {
        let log = &self.nodes[at].log;
        let read = |place: &BatchPlace| log[usize::try_from(place.index).unwrap() - 1].clone();
        let batches = order.places.iter().map(read).collect();
        self.input(at, Input::Fetched(order.id, batches));
    }

    /// From now on a disk takes its time: nothing is read before [`Trio::answer_reads`].
    pub(super) fn hold_reads(&mut self) {
        self.reads_wait = Some(Vec::new());
    }

    /// How many reads wait.
    pub(super) fn reads_waiting(&self) -> usize {
        self.reads_wait.as_ref().map_or(0, Vec::len)
    }

    /// Answers what waits; what is wanted after that is read at once.
    pub(super) fn answer_reads(&mut self) {
        for (at, order) in self.reads_wait.take().unwrap_or_default() {
            self.read(at, &order);
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_micros(100);
            self.deliver();
            for at in 0..3 {
                self.advance(at);
            }
            self.see();
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.net.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (to, message) = entry.remove();
            if !self.parted[to][position(message.from())] {
                self.input(to, Input::Message(message));
            }
        }
    }

    fn advance(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        if node.member.is_none() {
            return;
        }
        if node.begins_again {
            self.kill(at);
            self.start(at);
        }
        let node = &mut self.nodes[at];
        let before = node.durable;
        node.syncs.retain(|(when, upto)| {
            if *when <= now {
                node.durable = node.durable.max(*upto);
            }
            *when > now
        });
        if node.durable > before {
            let upto = node.log[node.durable - 1].end();
            self.input(at, Input::Durable(upto));
        }
        let node = &mut self.nodes[at];
        if now.since(node.last_tick) >= TICK {
            node.last_tick = now;
            self.input(at, Input::Tick);
        }
        let wants = self.nodes[at].member.as_ref().and_then(Member::next_try);
        if wants.is_some_and(|when| when <= now) {
            self.input(at, Input::Durable(Lsn::ZERO));
        }
    }

    fn see(&mut self) {
        for node in &self.nodes {
            let Some(member) = &node.member else { continue };
            let upto = usize::try_from(member.committed()).unwrap();
            assert!(upto <= node.durable, "what may be applied is durable");
            let next = self.seen.last_key_value().map_or(0, |(index, _)| *index);
            for batch in node.log.iter().take(upto).filter(|batch| batch.index > next) {
                self.seen.insert(batch.index, batch.clone());
            }
            if let Some(batch) = upto.checked_sub(1).and_then(|last| node.log.get(last)) {
                assert_eq!(self.seen.get(&batch.index), Some(batch), "seed {}", self.seed);
            }
        }
    }

    pub(super) fn committed_payloads(&self, at: usize) -> Vec<Vec<u8>> {
        let upto = usize::try_from(self.member(at).committed()).unwrap();
        self.nodes[at].log.iter().take(upto).map(|batch| batch.payload.to_vec()).collect()
    }

    /// All that was ever committed is where it was, with every member that lives.
    pub(super) fn check(&self) {
        for node in self.nodes.iter().filter(|node| node.member.is_some()) {
            let upto = usize::try_from(node.member.as_ref().unwrap().committed()).unwrap();
            for batch in node.log.iter().take(upto) {
                assert_eq!(self.seen.get(&batch.index), Some(batch), "seed {}", self.seed);
            }
        }
    }
}

/// A random history, then peace: all is there that was ever committed, and there is a leader.
pub(super) fn history(seed: u64) {
    let mut trio = Trio::formed(seed);
    trio.run_until_leader();
    for _ in 0..40 {
        let at = usize::try_from(trio.draw(3)).unwrap();
        match trio.draw(8) {
            0 if trio.nodes.iter().filter(|node| node.member.is_some()).count() == 3 => {
                trio.kill(at);
            }
            1 => trio.cut_off(at),
            2 => trio.heal(),
            3 => trio.sync_us[at] = 50 + trio.draw(20_000),
            4 => {
                if let Some(leader) = trio.leader() {
                    trio.input(leader, Input::Transfer(id(at)));
                }
            }
            _ => {}
        }
        let leaders = (0..3).filter(|at| trio.nodes[*at].member.is_some());
        let leaders: Vec<usize> =
            leaders.filter(|at| trio.member(*at).role() == Role::Leader).collect();
        for leader in leaders {
            (0..5).for_each(|_| trio.propose(leader, b"something"));
        }
        let pause = trio.draw(900);
        trio.run(Duration::from_millis(pause));
        for at in 0..3 {
            if trio.nodes[at].member.is_none() && trio.draw(2) == 0 {
                trio.start(at);
            }
        }
    }
    trio.heal();
    (0..3)
        .filter(|at| trio.nodes[*at].member.is_none())
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|at| trio.start(at));
    trio.run(Duration::from_secs(5));
    let leader = trio.leader();
    assert!(leader.is_some(), "seed {seed}: no leader in peace");
    trio.check();
    let committed: Vec<usize> = (0..3).map(|at| trio.committed_payloads(at).len()).collect();
    assert!(committed.iter().all(|count| *count == committed[0]), "seed {seed}: {committed:?}");
    assert!(committed[0] >= trio.seen.len(), "seed {seed}");
}
