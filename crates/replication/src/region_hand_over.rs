//! An instance of a group that was live until its log said that the other group is. While that one
//! may lack the last batch, this instance ships to it, as a live one does: what it lacks is the
//! beginning of this log. So a switch that lost its link, or its processes, just after its
//! last batch was decided comes to its end by itself.
//!
//! The instance that was active ships that batch itself, and then the other group connects to this
//! one: so it is waited for a while first. Each instance of this group hands over, one a little
//! later than the other: two relays at once do no harm, but would take turns.
//!
//! Not here: the switch itself (the caller of `Door::begin_history`), shipping (`region_shipping`).
//! Invariant: this side ships nothing more once the other group is known to be live.

use std::sync::Arc;
use std::time::Duration;

use towline_group::Mode;
use towline_types::{Histories, HistoryId};

use crate::region_meeting::was_handed_over;
use crate::region_part::{RegionPart, ShippingSeat};

/// The first instance hands over when the other group has not connected for so long; each other one
/// as much later.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether there is something to hand over.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl RegionPart {
    /// Whether the newest history of this log says that the other group is live.
    pub(crate) fn names_other(&self, histories: &Histories) -> bool {
        histories.newest().is_some_and(|newest| newest.live == self.terms.recovery.name)
    }

    /// Looks until the process ends.
    pub(crate) fn watch_hand_over(self: &Arc<Self>) {
        let mut since = None;
        let place = u32::try_from(self.driver.this()).unwrap_or(u32::MAX);
        let patience = PATIENCE.saturating_mul(place.saturating_add(1));
        while !self.driver.is_ending() {
            let now = self.driver.now();
            since = if self.is_to_hand_over() { since.or(Some(now)) } else { None };
            let is_due = since.is_some_and(|since| now.since(since) >= patience);
            if is_due {
                self.begin_hand_over();
            } else {
                self.end_hand_over();
            }
            self.driver.pause(LOOK_INTERVAL);
        }
    }

    fn begin_hand_over(self: &Arc<Self>) {
        if self.shipping.lock().shipping.is_some() {
            return;
        }
        let shipping = match self.start_shipping() {
            Ok(shipping) => shipping,
            Err(error) => return tracing::warn!(%error, "nothing can be handed over"),
        };
        let mut seat = self.shipping.lock();
        if seat.shipping.is_some() {
            drop(seat);
            return shipping.retire("this group is live again");
        }
        *seat = ShippingSeat { shipping: Some(shipping), hands_over: true };
        self.links().dial(true);
    }

    fn end_hand_over(&self) {
        let mut seat = self.shipping.lock();
        if !seat.hands_over {
            return;
        }
        let before = std::mem::take(&mut *seat);
        self.links().dial(false);
        drop(seat);
        before.shipping.iter().for_each(|it| it.retire("this group hands over no more"));
    }

    fn is_to_hand_over(&self) -> bool {
        if self.driver.mode() != Mode::Recovery || !self.terms.recovery.enabled {
            return false;
        }
        if self.receiving().view().connected {
            // Only a live group ships to one that was.
            self.note_taken_over();
            return false;
        }
        let (own, other) = (&self.terms.group.name, &self.terms.recovery.name);
        let histories = self.host.histories();
        let newest = histories.newest().map(|newest| newest.id);
        self.known.lock().taken_over_in != newest && was_handed_over(&histories, own, other)
    }

    /// Whether the other group is known to be live in this history.
    pub fn has_taken_over(&self, history: HistoryId) -> bool {
        self.known.lock().taken_over_in == Some(history)
    }

    /// The other group is live, if the newest history of this log says so: it ships to this
    /// instance, or to another one of this group, as that says.
    pub fn note_taken_over(&self) {
        let histories = self.host.histories();
        if self.names_other(&histories) {
            self.known.lock().taken_over_in = histories.newest().map(|newest| newest.id);
        }
    }
}
