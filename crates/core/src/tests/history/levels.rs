//! The format level in random histories: it is raised at some step, and what is said of messages
//! from then on comes back from images, pages and the log.

use std::collections::BTreeMap;

use towline_types::{
    FORMAT_LEVEL_FIRST, FORMAT_LEVEL_OF_REGIONS, FORMAT_LEVEL_UNASKED, HistoryId, Lsn, Time,
};

use super::{QUEUES, World};
use crate::tests::rig::Rig;
use crate::{BeginHistory, Header, NewMessage, Principal};

/// Some messages are in groups, some have a number there, some are due later.
pub(super) fn in_group(id: u32, message: NewMessage) -> NewMessage {
    let group = u64::from(id % 3);
    let deliver_at = (id % 2 == 1).then_some(Time(u64::from(id) << 40));
    NewMessage { group, group_sequence: id % 4, deliver_at, ..message }
}

impl World {
    pub(super) fn raise_level(&mut self) {
        if self.rig.core.has_history_on_its_way() {
            return;
        }
        let waiting = self.rig.waiting();
        match self.rig.core.format_level() {
            FORMAT_LEVEL_FIRST => self.raise_to(FORMAT_LEVEL_UNASKED),
            FORMAT_LEVEL_OF_REGIONS => self.take_over(),
            _ => self.raise_to(FORMAT_LEVEL_OF_REGIONS),
        }
        self.rig.carry_out();
        self.record(waiting, Vec::new());
    }

    fn raise_to(&mut self, level: u8) {
        self.rig.core.raise_level(level, &mut self.rig.decision).unwrap();
    }

    /// A group takes the log over, with all that it has.
    fn take_over(&mut self) {
        let count = self.rig.core.histories().count();
        let live = if count.is_multiple_of(3) { "EAST" } else { "WEST" };
        self.rig.core.set_group(live);
        let (id, fork) = (HistoryId(u128::from(count).to_le_bytes()), Lsn(count));
        let (live, cause) = (live.to_owned(), "random".to_owned());
        let begin = BeginHistory { id, live, fork, began: Time(1), cause };
        self.rig.decision.principal = Principal::Internal;
        self.rig.core.begin_history(&begin, &mut self.rig.decision).unwrap();
        self.rig.decision.principal = Principal::default();
    }
}

/// What is known of all messages that the log has.
fn headers(rig: &mut Rig) -> BTreeMap<u64, Header> {
    for name in QUEUES {
        if rig.core.queue_status(name).is_some() {
            rig.browse(name);
        }
    }
    let queues = rig.core.queues.values();
    let all = queues.flat_map(|queue| {
        let spot = |lane, sequence| crate::queue::Spot { lane, sequence };
        queue.iter().map(move |(lane, entry)| {
            let extra = queue.extra(spot(lane, entry.sequence));
            (entry.sequence, entry.header(lane, extra))
        })
    });
    all.filter(|(_, header)| header.persistent).collect()
}

/// Both know the same of each message, and write the same from now on.
pub(super) fn check_same(one: &mut Rig, other: &mut Rig) {
    assert_eq!(one.core.format_level(), other.core.format_level(), "the same format level");
    assert_eq!(one.core.histories(), other.core.histories(), "the same histories");
    assert_eq!(headers(one), headers(other), "the same is known of each message");
}
