//! A world of two groups with one log, in steps that are drawn from a seed: one is live, and what
//! it commits is shipped to the other. Messages of relays are lost, doubled and reordered,
//! processes end and lose what was not synced, links are cut, shipping ends and begins at another
//! member.

mod roles;
mod shipping;

use std::collections::BTreeMap;

use super::*;
use crate::{Mode, Shipment, relayed};
use bytes::Bytes;
use roles::by_log;
use towline_types::SeededRandom;

const TICK: Duration = Duration::from_millis(50);
/// Begins the payload of a batch that says which group is live behind it, and in which history.
const LIVE: &[u8] = b"live:";

/// A member of one of the groups.
pub(super) type Seat = (usize, usize);

#[derive(Default)]
pub(super) struct Node {
    pub(super) member: Option<Member>,
    pub(super) hard_state: HardState,
    pub(super) log: Vec<Batch>,
    pub(super) durable: usize,
    pub(super) applied: u64,
    /// A start applies from behind this again.
    image: u64,
    last_tick: Time,
    leads: bool,
    begins_again: bool,
    pub(super) copy_from: Option<MemberId>,
    /// So much was durable on a disk that was lost.
    lost: usize,
    /// It stays away for long.
    pub(super) is_away: bool,
}

struct Parcel {
    group: usize,
    to: usize,
    message: Message,
}

/// The live group's end of a link between the regions.
struct Shipper {
    to: usize,
    next: u64,
}

pub(super) struct Regions {
    pub(super) now: Time,
    pub(super) seed: u64,
    pub(super) random: SeededRandom,
    pub(super) groups: [[Node; 3]; 2],
    net: Vec<Parcel>,
    parted: [[[bool; 3]; 3]; 2],
    /// The group that is live.
    pub(super) live: usize,
    /// The history that it was promoted to, if it was.
    pub(super) promoted: Option<[u8; 16]>,
    shippers: Vec<Shipper>,
    shipments: Vec<(Seat, Shipment)>,
    /// Every batch that a member of each group ever applied.
    pub(super) truth: [BTreeMap<u64, Batch>; 2],
    leaders: BTreeMap<(usize, u64), usize>,
    /// The newest recovery point that each group reported.
    pub(super) reported: [BatchPlace; 2],
    pub(super) answers: Vec<ShippedAnswer>,
    /// No more is decided in this group: a switch is under way.
    pub(super) is_closing: [bool; 2],
    processes: u64,
    made: u64,
    /// Relays' messages arrive as they were sent.
    pub(super) is_calm: bool,
    /// How many members each group has.
    size: usize,
}

fn id(at: usize) -> MemberId {
    MemberId(at as u64 + 1)
}

fn position(id: MemberId) -> usize {
    usize::try_from(id.0).unwrap() - 1
}

/// Where a batch stands in a vector of all.
fn before(index: u64) -> usize {
    usize::try_from(index - 1).unwrap()
}

pub(super) fn live_payload(group: usize, history: [u8; 16]) -> Bytes {
    let mut payload = LIVE.to_vec();
    payload.push(u8::try_from(group).unwrap());
    payload.extend_from_slice(&history);
    Bytes::from(payload)
}

pub(super) fn said_live(payload: &[u8]) -> Option<(usize, [u8; 16])> {
    let [group, history @ ..] = payload.strip_prefix(LIVE)? else { return None };
    Some((usize::from(*group), history.try_into().ok()?))
}

impl Regions {
    /// Group 0 is live, group 1 is in recovery; both have just started.
    pub(super) fn new(seed: u64, size: usize) -> Regions {
        let mut regions = Regions {
            now: Time(1_000_000_000),
            seed,
            random: SeededRandom::mixed(seed),
            groups: Default::default(),
            net: Vec::new(),
            parted: [[[false; 3]; 3]; 2],
            live: 0,
            promoted: None,
            shippers: Vec::new(),
            shipments: Vec::new(),
            truth: Default::default(),
            leaders: BTreeMap::new(),
            reported: Default::default(),
            answers: Vec::new(),
            is_closing: [false; 2],
            processes: 0,
            made: 0,
            is_calm: true,
            size,
        };
        for seat in regions.seats() {
            if seat.0 == 1 {
                regions.node_mut(seat).hard_state.mode = Mode::Recovery;
            }
            regions.start(seat);
        }
        (0..size).for_each(|at| regions.input((0, at), Input::Form));
        regions
    }

    pub(super) fn seats(&self) -> Vec<Seat> {
        (0..2).flat_map(|group| (0..self.size).map(move |at| (group, at))).collect()
    }

    pub(super) fn node(&self, seat: Seat) -> &Node {
        &self.groups[seat.0][seat.1]
    }

    pub(super) fn node_mut(&mut self, seat: Seat) -> &mut Node {
        &mut self.groups[seat.0][seat.1]
    }

    pub(super) fn member(&self, seat: Seat) -> &Member {
        self.node(seat).member.as_ref().unwrap()
    }

    pub(super) fn lives(&self, seat: Seat) -> bool {
        self.node(seat).member.is_some()
    }

    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    pub(super) fn draw_at(&mut self) -> usize {
        self.random.index(self.size)
    }

    pub(super) fn start(&mut self, seat: Seat) {
        let (group, at) = seat;
        self.processes += 1;
        let options = Options {
            id: id(at),
            voters: (0..self.size).map(id).collect(),
            tick: TICK,
            heartbeat_interval: Duration::from_millis(250),
            heartbeat_timeout: TIMEOUT,
            seed: self.seed.wrapping_mul(1_000_003) ^ self.processes,
            meets_first: true,
            lacks_batches: false,
        };
        let now = self.now;
        let node = self.node_mut(seat);
        let places = node.log.iter().map(Batch::place).collect();
        node.durable = node.log.len();
        let mut held = RecoveredLog { base: BatchPlace::default(), places, applied: 0 };
        if held.has(&node.hard_state) {
            held.applied = node.hard_state.committed;
        }
        let applied = held.applied.max(node.image);
        node.hard_state = by_log(node, group, applied);
        node.member = Some(Member::new(options, node.hard_state, held, now));
        node.applied = node.image;
        (node.copy_from, node.leads, node.begins_again) = (None, false, false);
        node.last_tick = now;
        for other in (0..self.size).filter(|other| *other != at) {
            self.connect(group, at, other);
        }
        self.apply(seat);
    }

    fn connect(&mut self, group: usize, a: usize, b: usize) {
        let lives = [a, b].iter().all(|at| self.lives((group, *at)));
        if self.parted[group][a][b] || !lives {
            return;
        }
        let said = [a, b].map(|at| {
            let node = self.node((group, at));
            let term = node.member.as_ref().unwrap().hard_state().term;
            Input::PeerOpened { peer: id(at), last_index: node.log.len() as u64, term }
        });
        for (to, input) in [b, a].into_iter().zip(said) {
            self.input((group, to), input);
        }
    }

    pub(super) fn part(&mut self, group: usize, a: usize, b: usize) {
        (self.parted[group][a][b], self.parted[group][b][a]) = (true, true);
        self.input((group, a), Input::PeerClosed(id(b)));
        self.input((group, b), Input::PeerClosed(id(a)));
    }

    pub(super) fn meet_all(&mut self) {
        for group in 0..2 {
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                if b >= self.size {
                    continue;
                }
                if std::mem::take(&mut self.parted[group][a][b]) {
                    self.parted[group][b][a] = false;
                    self.connect(group, a, b);
                }
            }
        }
    }

    /// A process ends: some of what its disk has not synced is lost. A leader's messages end with
    /// its connections, those of relays may come late.
    pub(super) fn kill(&mut self, seat: Seat) {
        let keep = self.draw(3);
        let is_away = self.draw(6) == 0;
        let node = self.node_mut(seat);
        node.is_away = is_away;
        if node.member.take().is_none() {
            return;
        }
        if keep > 0 {
            node.log.truncate(node.durable);
        }
        let (group, at) = seat;
        let is_relayed = |message: &Message| relayed::session_of(&message.inner).is_some();
        let of_it = |parcel: &Parcel| {
            parcel.group == group && (parcel.to == at || parcel.message.from() == id(at))
        };
        self.net.retain(|parcel| !of_it(parcel) || is_relayed(&parcel.message));
        if group != self.live {
            self.shippers.retain(|shipper| shipper.to != at);
            self.shipments.retain(|(of, _)| *of != seat);
        }
        for other in (0..self.size).filter(|other| *other != at) {
            self.input((group, other), Input::PeerClosed(id(at)));
        }
    }

    /// The newest term of each member, also of those that do not run.
    pub(super) fn newest_terms(&self) -> Vec<u64> {
        let all = self.seats().into_iter();
        all.map(|seat| self.node(seat).hard_state.term).collect()
    }

    pub(super) fn leader(&self, group: usize) -> Option<usize> {
        let leads = |at: &usize| {
            self.node((group, *at)).member.as_ref().is_some_and(|member| {
                member.role() == Role::Leader
                    && member.mode().elects()
                    && member.held.is_none()
                    && member.commit_is_of_term()
            })
        };
        (0..self.size).filter(leads).max_by_key(|at| self.member((group, *at)).raw.raft.term)
    }

    /// The live group's leader decides something.
    pub(super) fn decide(&mut self, payload: Option<Bytes>) {
        let Some(leader) = self.leader(self.live) else { return };
        if payload.is_none() && self.is_closing[self.live] {
            return;
        }
        self.made += 1;
        let made = self.made;
        let payload = payload.unwrap_or_else(|| Bytes::from(format!("message {made}")));
        self.propose((self.live, leader), payload);
    }

    fn propose(&mut self, seat: Seat, payload: Bytes) {
        let term = self.member(seat).raw.raft.term;
        let batch = self.append(seat, term, payload);
        self.input(seat, Input::Left(batch));
    }

    fn append(&mut self, seat: Seat, term: u64, payload: Bytes) -> Batch {
        let log = &mut self.node_mut(seat).log;
        let lsn = log.last().map_or(Lsn(4_096), |last| Lsn(last.end().0.next_multiple_of(4_096)));
        let batch = Batch { index: log.len() as u64 + 1, term, lsn, payload };
        log.push(batch.clone());
        batch
    }

    /// The disk has all that was written, or some.
    pub(super) fn sync(&mut self, seat: Seat) {
        let some = self.draw(4);
        let node = self.node_mut(seat);
        let behind = node.log.len() - node.durable;
        if behind == 0 || node.member.is_none() {
            return;
        }
        node.durable += if some == 0 { behind.div_ceil(2) } else { behind };
        let upto = node.log[node.durable - 1].end();
        self.input(seat, Input::Durable(upto));
    }

    pub(super) fn input(&mut self, seat: Seat, input: Input) {
        let now = self.now;
        let mut out = Output::default();
        let Some(member) = self.node_mut(seat).member.as_mut() else { return };
        member.step(now, input, &mut out);
        self.carry_out(seat, out);
        self.apply(seat);
    }

    fn carry_out(&mut self, seat: Seat, out: Output) {
        let seed = self.seed;
        let node = self.node_mut(seat);
        if let Some(hard_state) = out.hard_state {
            node.hard_state = hard_state;
        }
        node.copy_from = out.copy_from.or(node.copy_from);
        if let Some(first) = out.receive.first() {
            let behind = usize::try_from(first.index).unwrap() - 1;
            assert!(behind <= node.log.len(), "seed {seed}: no gap");
            assert!(behind as u64 >= node.applied, "seed {seed}: what is applied is never cut off");
            node.log.truncate(behind);
            node.durable = node.durable.min(behind);
            node.log.extend(out.receive.iter().cloned());
        }
        for (to, message) in out.send {
            self.send(seat, position(to), message);
        }
        for order in out.fetch {
            let log = &self.node(seat).log;
            let read = |place: &BatchPlace| log[usize::try_from(place.index).unwrap() - 1].clone();
            let batches = order.places.iter().map(read).collect();
            self.input(seat, Input::Fetched(order.id, batches));
        }
        if let Some(answer) = out.shipped {
            self.is_answered(seat, answer);
        }
        if let Some(term) = out.lead {
            self.is_elected(seat, term);
            let batch = self.append(seat, term, Bytes::new());
            self.input(seat, Input::Leading(batch.place()));
            let node = self.node(seat);
            let HardState { mode, promoted_to, .. } = node.hard_state;
            if mode == Mode::Promoting && node.member.as_ref().unwrap().role() == Role::Leader {
                self.propose(seat, live_payload(seat.0, promoted_to));
            }
        }
        let node = self.node_mut(seat);
        match out.role {
            Some(Role::Leader) => node.leads = true,
            Some(_) if node.leads => node.begins_again = true,
            _ => {}
        }
        node.begins_again |= out.begins_again;
    }

    fn is_elected(&mut self, (group, at): Seat, term: u64) {
        let seed = self.seed;
        let other = self.leaders.insert((group, term), at);
        assert!(other.is_none_or(|other| other == at), "seed {seed}: two leaders in term {term}");
        let point = self.reported[group];
        let has = |batch: &Batch| batch.place() == point;
        let has = point.index == 0
            || self.node((group, at)).log.get(before(point.index)).is_some_and(has);
        assert!(has, "seed {seed}: the leader of term {term} has what was reported: {point:?}");
    }

    fn send(&mut self, (group, at): Seat, to: usize, message: Message) {
        let (head, payloads) = message.encode();
        let bytes: Vec<u8> = head.into_iter().chain(payloads.into_iter().flatten()).collect();
        assert_eq!(Message::decode(&Bytes::from(bytes)), Ok(message.clone()));
        if !self.parted[group][at][to] && self.net.len() < 400 {
            self.net.push(Parcel { group, to, message });
        }
    }

    /// One message arrives. A leader's come in order.
    pub(super) fn deliver(&mut self) {
        if self.net.is_empty() {
            return;
        }
        let drawn = self.draw(20);
        let picked = self.random.index(self.net.len());
        let is_relayed = relayed::session_of(&self.net[picked].message.inner).is_some();
        let way = |parcel: &Parcel| {
            let is_relayed = relayed::session_of(&parcel.message.inner).is_some();
            (parcel.group, parcel.to, parcel.message.from(), is_relayed)
        };
        let first = self.net.iter().position(|it| way(it) == way(&self.net[picked])).unwrap();
        let is_wild = is_relayed && !self.is_calm;
        let at = if is_wild && drawn < 6 { picked } else { first };
        let Parcel { group, to, message } = self.net.remove(at);
        if drawn == 19 && !self.is_calm {
            return;
        }
        if is_wild && drawn == 18 {
            self.net.push(Parcel { group, to, message: message.clone() });
        }
        if is_relayed || !self.parted[group][to][position(message.from())] {
            self.input((group, to), Input::Message(message));
        }
    }

    /// What a driver does with what is committed.
    fn apply(&mut self, seat: Seat) {
        let seed = self.seed;
        loop {
            let node = self.node(seat);
            let Some(member) = &node.member else { return };
            let upto = member.committed();
            assert!(upto <= node.durable as u64, "seed {seed}: what may be applied is durable");
            if node.applied >= upto || node.begins_again {
                return;
            }
            let batch = node.log[before(node.applied + 1)].clone();
            let known = self.truth[seat.0].entry(batch.index).or_insert_with(|| batch.clone());
            assert_eq!(*known, batch, "seed {seed}: {seat:?} applies another batch");
            self.node_mut(seat).applied += 1;
            if self.must_not_lead(seat, &batch) {
                let node = self.node_mut(seat);
                node.hard_state = node.member.as_ref().unwrap().noted();
                node.begins_again = true;
                return;
            }
            if let Some((group, history)) = said_live(&batch.payload) {
                let mode = if group == seat.0 { Mode::Voting } else { Mode::Recovery };
                self.input(seat, Input::Become { mode, history, at: batch.place() });
                return self.apply(seat);
            }
        }
    }

    /// Time passes, and all members see that.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let now = self.now;
        for seat in self.seats() {
            let node = self.node(seat);
            let Some(member) = &node.member else { continue };
            if node.begins_again {
                self.kill(seat);
                self.start(seat);
                continue;
            }
            let wants = member.next_try().is_some_and(|when| when <= now);
            if now.since(node.last_tick) >= TICK {
                self.node_mut(seat).last_tick = now;
                self.input(seat, Input::Tick);
            } else if wants {
                self.input(seat, Input::Durable(Lsn::ZERO));
            }
        }
    }

    /// A disk is lost, of a group that has all else. It begins as it is configured.
    pub(super) fn lose_disk(&mut self, seat: Seat) {
        let (group, at) = seat;
        let all = (0..self.size).all(|at| {
            let member = self.node((group, at)).member.as_ref();
            member.is_some_and(Member::may_vote)
                && (0..self.size).all(|other| !self.parted[group][at][other])
        });
        if !all || self.size == 1 {
            return;
        }
        self.kill(seat);
        self.net.retain(|parcel| parcel.group != group || parcel.message.from() != id(at));
        let mode = if group == 0 { Mode::Voting } else { Mode::Recovery };
        let hard_state = HardState { mode, ..HardState::default() };
        let lost = self.node(seat).durable;
        *self.node_mut(seat) = Node { hard_state, lost, ..Node::default() };
        self.start(seat);
    }

    /// Takes an image: a start applies from there on; and notes what is committed.
    pub(super) fn take_image(&mut self, seat: Seat) {
        let node = self.node_mut(seat);
        if let Some(member) = &node.member {
            node.image = node.applied;
            node.hard_state = member.noted();
        }
    }

    /// Its process ended, and its log was cut off behind what both groups have.
    pub(super) fn comes_back(&mut self, seat: Seat) {
        let node = self.node_mut(seat);
        let end = node.log.last().map(Batch::place).unwrap_or_default();
        node.member = None;
        node.hard_state = node.hard_state.returned(end);
        node.image = node.image.min(end.index);
        let group = seat.0;
        self.net.retain(|parcel| parcel.group != group);
    }

    /// Everything lives and arrives.
    pub(super) fn calm(&mut self, time: Duration) {
        self.is_calm = true;
        self.meet_all();
        for seat in self.seats() {
            if !self.lives(seat) {
                self.start(seat);
            }
        }
        let until = self.now + time;
        while self.now < until {
            for _ in 0..8 {
                self.deliver();
                self.deliver_shipment();
            }
            if self.shippers.is_empty() && self.draw(8) == 0 {
                // The one before has refused: the next of its addresses.
                let to = self.draw_at();
                self.ship_to(to);
            }
            self.ship();
            self.seats().into_iter().for_each(|seat| self.sync(seat));
            self.pass(Duration::from_millis(5));
        }
    }

    /// The live group's log so far is with all of the other one, and it knows that.
    pub(super) fn check_caught_up(&self) {
        let seed = self.seed;
        let leader = self.leader(self.live);
        assert!(leader.is_some(), "seed {seed}: no leader in peace");
        let whole = &self.member((self.live, leader.unwrap()));
        let last = whole.committed();
        for seat in self.seats() {
            let member = self.member(seat);
            assert_eq!(member.committed(), last, "seed {seed}: {seat:?} {:?}", member.mode());
            let mode = if seat.0 == self.live { Mode::Voting } else { Mode::Recovery };
            assert_eq!(member.mode(), mode, "seed {seed}: {seat:?}");
            assert!(member.may_vote(), "seed {seed}: {seat:?}");
        }
        assert_eq!(self.reported[1 - self.live].index, last, "seed {seed}: the recovery point");
    }

    /// No log in recovery has anything that the live group has not committed.
    pub(super) fn check_prefix(&self) {
        for node in &self.groups[1 - self.live] {
            for batch in &node.log {
                let committed = self.truth[self.live].get(&batch.index);
                assert_eq!(committed, Some(batch), "seed {}", self.seed);
            }
        }
    }
}
