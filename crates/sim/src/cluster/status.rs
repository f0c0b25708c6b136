//! What the status of each instance says of the group, against what the run knows.
//!
//! Not here: how `towline status` words it, and the rows that the active instance sends to the
//! others, which need the links. What the status says of term, leader, commit position, lag and
//! being in sync is the `Progress` that is looked at here.
//!
//! Invariant: an instance that is paused, or whose disk failed or is slow, is not looked at. While
//! its disk keeps it busy it shows what was so before.

use std::collections::BTreeMap;

use towline_group::{MemberId, Progress, Role};
use towline_replication::frames::peer_of;
use towline_types::{BatchPlace, Lsn};

use super::Cluster;
use crate::trace::now_us;

/// What was shown is older by no more than this, and two stalls of a disk: a single operation that
/// is drawn to take long takes up to a second, and what the status shows waits for it.
const SHOWN_US: u64 = 1_500_000;

/// What the statuses have said so far.
#[derive(Default)]
pub(super) struct Statuses {
    leaders: BTreeMap<u64, MemberId>,
    committed: BTreeMap<u64, BatchPlace>,
    acknowledged: Vec<Acknowledged>,
}

/// What a leader said of the log of another instance.
struct Acknowledged {
    at_us: u64,
    term: u64,
    node: usize,
    process: u64,
    upto: Lsn,
}

/// The status of one instance.
struct Seen {
    node: usize,
    process: u64,
    /// It has less than it acknowledged, by what the run did to its disk.
    is_impaired: bool,
    group: Progress,
}

impl Cluster {
    /// Looks at the status of each instance.
    pub(super) fn look_at_statuses(&mut self) {
        let seen: Vec<Seen> = (0..3).filter_map(|node| self.status_of(node)).collect();
        let judged = seen.iter().try_for_each(|seen| {
            self.statuses.note(&seen.group)?;
            self.judge_sync(&seen.group)
        });
        let before = self.now.saturating_sub(self.shown_us());
        let judged = judged.and_then(|()| self.statuses.judge_acknowledged(&seen, before));
        let said = seen.iter().flat_map(|leader| said(leader, &seen, self.now));
        self.statuses.acknowledged.extend(said);
        *self.happened.entry("statuses found true").or_default() += seen.len() as u64;
        if let Err(broken) = judged {
            self.fail(format!("a status is not true: {broken}"));
        }
    }

    fn status_of(&self, node: usize) -> Option<Seen> {
        let machine = &self.machines[node];
        if machine.is_paused || machine.is_slow {
            return None;
        }
        let live = machine.live.as_ref().filter(|it| !machine.let_down.has(it.process))?;
        let (group, _) = live.board.group.lock().clone()?;
        let (process, is_impaired) = (live.process.0, machine.is_impaired);
        Some(Seen { node, process, is_impaired, group })
    }

    /// How old what is shown may be.
    fn shown_us(&self) -> u64 {
        SHOWN_US + 2 * self.plan.disk.stall_us
    }

    /// An instance that is in sync has what was acknowledged to clients, but for what it could not
    /// hear of within the time in which it would notice that its leader is gone.
    fn judge_sync(&self, group: &Progress) -> Result<(), String> {
        if !(group.is_in_sync && group.may_vote && group.hears_leader) {
            return Ok(());
        }
        // The leader's message may have been held by a cut for one time-out, and count for another.
        let timeout = u64::try_from(self.plan.heartbeat_timeout.as_micros()).unwrap_or(u64::MAX);
        let before = now_us().saturating_sub(3 * timeout + self.shown_us());
        let owed = self.shared.acknowledged_before(before);
        if group.last.index < owed {
            let has = group.last.index;
            return Err(format!("in sync with {has} batches, {owed} were acknowledged: {group:?}"));
        }
        Ok(())
    }
}

impl Statuses {
    /// In one term there is one leader; a committed batch is the same for all, and durable.
    fn note(&mut self, group: &Progress) -> Result<(), String> {
        let Progress { term, leader, committed, durable, .. } = group;
        if let Some(leader) = leader {
            let known = *self.leaders.entry(*term).or_insert(*leader);
            if known != *leader {
                return Err(format!("{leader:?} leads in term {term}, and {known:?} does"));
            }
        }
        if group.role == Role::Leader && leader.is_none() {
            return Err(format!("a leader knows none: {group:?}"));
        }
        if committed.index == 0 {
            return Ok(());
        }
        if committed.end > *durable {
            return Err(format!("{committed:?} is committed, and {durable} durable"));
        }
        let known = *self.committed.entry(committed.index).or_insert(*committed);
        let is_same = (known.term, known.lsn, known.end);
        if is_same != (committed.term, committed.lsn, committed.end) {
            return Err(format!("{committed:?} is committed, and {known:?} was"));
        }
        Ok(())
    }

    /// What a leader said that another instance acknowledged, that one has on its disk.
    fn judge_acknowledged(&mut self, seen: &[Seen], before: u64) -> Result<(), String> {
        let due = self.acknowledged.partition_point(|said| said.at_us <= before);
        for Acknowledged { term, node, process, upto, .. } in self.acknowledged.drain(..due) {
            let it = seen.iter().find(|it| (it.node, it.process) == (node, process));
            let is_sound = |it: &&Seen| it.group.term == term && !it.is_impaired;
            let Some(Seen { group, .. }) = it.filter(is_sound) else { continue };
            if group.durable < upto {
                let durable = group.durable;
                return Err(format!("instance {node} acknowledged {upto}, and has {durable}"));
            }
        }
        Ok(())
    }
}

/// What a leader says of the logs of others.
fn said(leader: &Seen, seen: &[Seen], at_us: u64) -> Vec<Acknowledged> {
    if leader.group.role != Role::Leader {
        return Vec::new();
    }
    let rows = leader.group.peers.iter().filter_map(|peer| {
        let node = peer_of(peer.id);
        let it = seen.iter().find(|it| it.node == node && !it.is_impaired)?;
        let (term, process, upto) = (leader.group.term, it.process, peer.acknowledged);
        Some(Acknowledged { at_us, term, node, process, upto })
    });
    rows.collect()
}
