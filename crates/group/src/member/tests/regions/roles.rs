//! What a process makes of its log: the part in which it starts, and whether it may lead.

use super::*;
use crate::LogSays;

/// The newest batch up to this index that says which group is live, and that group.
fn newest_live(log: &[Batch], upto: u64) -> Option<(&Batch, usize)> {
    let log = log.get(..usize::try_from(upto).unwrap()).unwrap_or(log);
    log.iter().rev().find_map(|batch| Some((batch, said_live(&batch.payload)?.0)))
}

/// What a start makes of a hard state beside a log of which so much is applied.
pub(super) fn by_log(node: &Node, group: usize, applied: u64) -> HardState {
    let kept = node.hard_state;
    let log = match newest_live(&node.log, applied) {
        Some((_, live)) if live == group => LogSays::OwnLive,
        Some(_) => LogSays::OtherLive,
        None if node.log.is_empty() => LogSays::Empty,
        None => LogSays::Nothing,
    };
    // A disk that was lost begins as configured, and that is kept here.
    let mode = Mode::at_start(kept.mode, log, kept.mode).unwrap();
    if mode == kept.mode {
        return kept;
    }
    let at = newest_live(&node.log, applied).unwrap().0.index;
    let left = at.checked_sub(2).and_then(|place| node.log.get(usize::try_from(place).unwrap()));
    kept.behind_other(left.map_or(0, |batch| batch.term))
}

impl Regions {
    /// It has applied the first batch of its term, and what is before says that the other group is
    /// live: it begins no history, for it is not marked.
    pub(super) fn must_not_lead(&self, seat: Seat, first: &Batch) -> bool {
        let node = self.node(seat);
        let member = node.member.as_ref().unwrap();
        let is_led = member.role() == Role::Leader && first.term == member.raw.raft.term;
        let is_first = is_led && first.payload.is_empty();
        let live = newest_live(&node.log, first.index).map(|(_, live)| live);
        is_first && member.mode() == Mode::Voting && live.is_some_and(|live| live != seat.0)
    }
}
