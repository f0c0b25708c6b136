//! Dispositions that wait to be written, joined into ranges of consecutive delivery ids.

use crate::output::Output;
use crate::types::{DeliveryState, Disposition, Role};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Settlements {
    runs: Vec<Disposition>,
}

impl Settlements {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Notes one delivery; `role` is ours towards it.
    pub(crate) fn push(
        &mut self,
        role: Role,
        delivery: u32,
        settled: bool,
        state: Option<DeliveryState>,
    ) {
        if let Some(run) = self.runs.last_mut()
            && run.role == role
            && run.settled == settled
            && run.last.unwrap_or(run.first).wrapping_add(1) == delivery
            && run.state == state
        {
            run.last = Some(delivery);
            return;
        }
        let first = delivery;
        self.runs.push(Disposition { role, first, last: None, settled, state, batchable: false });
    }

    pub(crate) fn write(&mut self, channel: u16, output: &mut Output) {
        for run in self.runs.drain(..) {
            output.frame(channel, &run);
        }
    }
}
