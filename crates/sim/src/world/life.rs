//! Processes start, end, and get copies; connections between them.

use std::collections::BTreeMap;

use towline_core::{Limits, Pages};
use towline_group::{Input, Member, MemberId, Options, Witness};
use towline_node::Restart;
use towline_types::{Lsn, Time};

use super::{At, Event, Phase, World, tell};
use crate::client::Answer;
use crate::network::{Link, Micros, Parcel};
use crate::process::{Clock, Process, Stage};
use crate::runs::Runs;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// kill -9: what was written stays, what was about to be does not.
    Kill,
    /// What was not synced may be gone, and no process learns of it.
    PowerCut,
    /// It re-executes itself, for it led and leads no more.
    Exec,
    /// It stops to get a copy, or to be replaced by another build.
    Stop,
}

/// After so many of a thousand ends of a process its disk is copied, by an operator that may put
/// some of the copy back one day.
const COPIED_PER_MILLE: u64 = 200;

/// A member's name.
pub(crate) fn member_id(node: usize) -> MemberId {
    MemberId(node as u64 + 1)
}

/// The node of a member's instance.
pub(crate) fn node_of(member: MemberId) -> usize {
    usize::try_from(member.0).map_or(0, |number| number.saturating_sub(1))
}

impl World {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            unit_staged_bytes_max: self.plan.unit_staged_bytes_max,
            // Units and what clients hold are small here: both ways happen.
            returned_at_once_max: 2,
            committed_at_once_max: 2,
            ..Limits::default()
        }
    }

    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() || self.nodes[node].copying {
            return;
        }
        if self.nodes[node].disk.rotten {
            let keeps_term = self.dice.chance(500);
            tell!(self, "{node}: finds its log damaged and begins blank");
            let disk = &mut self.nodes[node].disk;
            disk.wipe(keeps_term);
            // As after `towline instance replace`: whether it is the newest is the operator's word.
            disk.hard_state = disk.hard_state.forgotten();
        }
        self.counts.starts += 1;
        self.processes += 1;
        let number = self.processes;
        self.nodes[node].disk.recover(node, number);
        let clock = Clock {
            began: self.now,
            began_local: self.nodes[node].wall_us + self.now,
            drift_ppm: self.plan.drift_ppm[node],
        };
        let disk = &self.nodes[node].disk;
        let member = self.member(node, clock.local(self.now));
        let image = disk.image.clone();
        let bytes = image.as_ref().map(|image| image.bytes.as_slice());
        let extent = self.plan.extent_bytes;
        let restart = match Restart::begin("QMS", self.limits(), extent, bytes, Pages::Whole) {
            Ok(restart) => restart,
            Err(error) => return self.fail(format!("{node}: no restart: {error}")),
        };
        let at = image.map_or(Lsn::ZERO, |image| image.at);
        let next = (disk.base.index + 1..=disk.last())
            .find(|index| disk.batch(*index).is_some_and(|batch| batch.end() > at))
            .unwrap_or(disk.last() + 1);
        let committed = member.committed();
        tell!(
            self,
            "{node}: begins as process {number}, log {}..{}, committed {committed}, image {at}",
            disk.base.index,
            disk.last()
        );
        let process = Process {
            number,
            clock,
            member,
            stage: Stage::Warm(Box::new(restart)),
            runs: Runs::default(),
            next,
            seam: None,
            compared: 0,
            leading: None,
            has_led: false,
            blank_peers: [false; 3],
            peer_starts: Default::default(),
            try_at: None,
            image_at: self.now,
            image_under_way: false,
            connections: BTreeMap::new(),
        };
        self.nodes[node].process = Some(process);
        let at = At { node, process: number };
        let first = self.dice.below(self.plan.tick.as_micros_u64());
        self.plan_in(first, Event::Tick { at });
        self.progress(at);
    }

    fn member(&self, node: usize, now: Time) -> Member {
        let options = Options {
            id: member_id(node),
            voters: (0..3).map(member_id).collect(),
            tick: self.plan.tick,
            heartbeat_interval: self.plan.heartbeat_interval,
            heartbeat_timeout: self.plan.heartbeat_timeout,
            seed: self.seed.wrapping_mul(1_000_003) ^ self.processes,
            meets_first: true,
            lacks_batches: false,
        };
        let disk = &self.nodes[node].disk;
        Member::new(options, disk.hard_state, disk.held(), now)
    }

    /// A process ends. Nothing starts it again.
    pub(crate) fn end(&mut self, node: usize, ending: ProcessEnd) {
        let Some(process) = self.nodes[node].process.take() else { return };
        // A process that is killed while it is stopped has read nothing of what came.
        self.nodes[node].paused_until = 0;
        self.nodes[node].held.clear();
        tell!(self, "{node}: process {} ends: {ending:?}", process.number);
        let Process { number: _, stage, seam, next, connections, .. } = process;
        self.compare_replica(node, stage, seam, next);
        let keep_per_mille = match ending {
            ProcessEnd::PowerCut => self.dice.below(700),
            ProcessEnd::Kill | ProcessEnd::Exec => self.dice.below(1_001),
            ProcessEnd::Stop => 1_000,
        };
        let lost = self.nodes[node].disk.lose_unsynced(keep_per_mille, &mut self.dice);
        if self.nodes[node].older.is_none() || self.dice.chance(COPIED_PER_MILLE) {
            self.nodes[node].older = Some(self.nodes[node].disk.clone());
        }
        if lost > 0 {
            tell!(self, "{node}: {lost} batches that were not synced are gone");
        }
        for link in self.network.ends(node) {
            if ending != ProcessEnd::PowerCut {
                self.announce(link, Parcel::End);
            }
        }
        for (connection, (client, _)) in connections {
            self.history.connection_ended(connection.0);
            self.tell_client(client, connection, Answer::Closed);
        }
    }

    /// A process ends and another begins after a while.
    pub(crate) fn restart(&mut self, node: usize, ending: ProcessEnd) {
        self.end(node, ending);
        let after = match ending {
            ProcessEnd::Exec => 1_000 + self.dice.below(20_000),
            ProcessEnd::Kill | ProcessEnd::PowerCut | ProcessEnd::Stop
                if self.phase == Phase::Safety =>
            {
                1_000 + self.dice.below(self.plan.restart_after_us)
            }
            ProcessEnd::Kill | ProcessEnd::PowerCut | ProcessEnd::Stop => 10_000,
        };
        self.plan_in(after, Event::Start { node });
    }

    /// A member wants a copy of the leader's disk.
    pub(crate) fn begin_copy(&mut self, at: At, from: usize) {
        let Some(from) = self.at(from) else { return };
        tell!(self, "{}: asks {} for a copy", at.node, from.node);
        self.end(at.node, ProcessEnd::Stop);
        // Two blank members could not make a leader, should the third need one.
        let wipes_first = self.plan.copy_wipes_first && self.others_are_sound(at.node);
        let node = &mut self.nodes[at.node];
        node.copying = true;
        if wipes_first {
            node.disk.wipe(true);
        }
        let after = 5_000 + self.dice.below(400_000);
        self.plan_in(after, Event::Copied { node: at.node, from });
    }

    pub(crate) fn copied(&mut self, node: usize, from: At) {
        self.nodes[node].copying = false;
        let reaches =
            !self.network.is_cut(from.node, node) && !self.network.is_cut(node, from.node);
        let leader = self.nodes[from.node].process.as_ref();
        let leader = leader.filter(|leader| leader.number == from.process && reaches);
        if let Some(leader) = leader.filter(|leader| leader.has_led) {
            let hard_state = leader.member.hard_state();
            let copy = self.nodes[from.node].disk.clone();
            self.counts.copies += 1;
            tell!(self, "{node}: has a copy of {}, up to {}", from.node, copy.last());
            self.nodes[node].disk.take_copy(&copy, hard_state);
        } else {
            tell!(self, "{node}: the copy of {} broke off", from.node);
        }
        self.start(node);
    }

    /// Connects the processes that should be connected.
    pub(crate) fn connect(&mut self) {
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            let (Some(at_a), Some(at_b)) = (self.at(a), self.at(b)) else { continue };
            if self.is_paused(a) || self.is_paused(b) {
                continue;
            }
            let Some(number) = self.network.connect(self.now, a, b) else { continue };
            for (from, to) in [(a, at_b), (b, at_a)] {
                let there = &self.nodes[from];
                let hard_state = there
                    .process
                    .as_ref()
                    .map_or(there.disk.hard_state, |it| it.member.hard_state());
                let hello = Parcel::Hello {
                    receiver: to.process,
                    last: there.disk.last(),
                    // Whatever a member wants kept is on the simulated disk at once.
                    term: hard_state.term,
                    blank: self.is_blank(from),
                    start: there.disk.starts.own(),
                    noted: there.disk.starts.noted().to_vec(),
                    witness: there
                        .process
                        .as_ref()
                        .map_or_else(Witness::default, |it| it.member.witness(member_id(to.node))),
                };
                self.announce(Link { from, to: to.node, number }, hello);
            }
        }
        let after = 1 + self.dice.below(self.plan.reconnect_us);
        self.plan_in(after, Event::Connect);
    }

    /// Never took part in anything.
    fn is_blank(&self, node: usize) -> bool {
        let process = self.nodes[node].process.as_ref();
        let hard_state =
            process.map_or(self.nodes[node].disk.hard_state, |process| process.member.hard_state());
        hard_state.term == 0 && !hard_state.may_vote && self.nodes[node].disk.last() == 0
    }

    pub(crate) fn announce(&mut self, link: Link, parcel: Parcel) {
        let arrival = self.network.announce(self.now, link, parcel, &mut self.dice);
        if let Some((time, link, parcel)) = arrival {
            self.plan_at(time, Event::Arrives { link, parcel });
        }
    }

    pub(crate) fn arrives(&mut self, link: Link, parcel: Parcel) {
        let Some(at) = self.at(link.to) else { return };
        let peer = member_id(link.from);
        match parcel {
            Parcel::Hello { receiver, last, term, blank, start, noted, witness }
                if receiver == at.process =>
            {
                if self.is_put_back(at, &noted, witness) {
                    return;
                }
                self.says_start(at, link, start);
                tell!(self, "{}: connection {} to {}", link.to, link.number, link.from);
                if self.network.opened(link).is_some() {
                    self.input(at, Input::PeerClosed(peer));
                }
                self.input(at, Input::PeerOpened { peer, last_index: last, term });
                if let Some(process) = self.process(at) {
                    process.blank_peers[link.from] = blank;
                    let blank_peers = process.blank_peers.iter().filter(|blank| **blank).count();
                    if blank_peers == 2 && self.is_blank(link.to) {
                        tell!(self, "{}: forms the group", link.to);
                        self.input(at, Input::Form);
                    }
                }
            }
            Parcel::Hello { .. } => {}
            Parcel::Noted(noted) => {
                if self.network.is_open(link) {
                    self.is_put_back(at, &noted, Witness::default());
                }
            }
            Parcel::End => {
                if self.network.closed(link) {
                    tell!(self, "{}: connection {} to {} ends", link.to, link.number, link.from);
                    self.input(at, Input::PeerClosed(peer));
                }
            }
            Parcel::Message(message) => {
                if self.network.is_open(link) {
                    self.note_start(at, link);
                    self.input(at, Input::Message(*message));
                }
            }
        }
    }
}
