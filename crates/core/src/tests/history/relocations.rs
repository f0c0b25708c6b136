//! Steps that carry messages forward while others arrive out of the order of their sequences: units
//! with persistent and non-persistent puts.

use bytes::Bytes;
use towline_types::{Lsn, Payload};

use super::World;
use crate::{RelocationCursor, RelocationSearch};

/// Messages that one step looks at.
const LOOKS: usize = 64;
/// Puts of one unit: two blocks are full with it, as the tests have them.
const MIX: u16 = 16;

impl World {
    /// One of the first messages in the log is logged again; it is on its way until a sync.
    pub(super) fn relocate(&mut self, nth: usize) {
        let waiting = self.rig.waiting();
        let (mut found, mut cursor) = (Vec::new(), RelocationCursor::default());
        while let RelocationSearch::Needs(request) =
            self.rig.core.find_old(Lsn(u64::MAX), &mut cursor, LOOKS, &mut found)
        {
            self.rig.arrive(request);
        }
        if found.is_empty() {
            return;
        }
        let (queue, sequence, body) = found.swap_remove(nth % found.len());
        let content = Payload::from(Bytes::from(self.rig.cold.content(&body)));
        let rig = &mut self.rig;
        rig.core.relocate(queue, sequence, content, &mut rig.decision);
        rig.carry_out();
        self.record(waiting, Vec::new());
    }

    /// A unit of its own, with a persistent put for each bit that is set. The facts of the
    /// persistent ones are applied first, so the others come in between.
    pub(super) fn mix(&mut self, queue: usize, persistent: u16) {
        self.units.push((self.rig.declare(), super::Unit::default()));
        for bit in 0..MIX {
            self.put(queue, persistent >> bit & 1 == 1, 4, true);
        }
        self.discharge(self.units.len() - 1, false);
    }
}
