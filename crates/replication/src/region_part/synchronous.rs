//! SyncReplication on the active instance: replies that wait for the other region go when it has
//! reported their position, or when it is not waited for any more.
//!
//! Not here: when that is (`towline_region::SyncGate`), the replies (`towline_node`). Invariants:
//! the active instance hears of each change after the state of which it follows, and by no
//! thread that holds the lock of what ships; up to where something was answered alone is asked only
//! after it was ordered to wait again.

use towline_admin::catalogue::{
    REGION_SYNC_ALONE, REGION_SYNC_IN_STEP, REGION_SYNC_ORDERED, REGION_SYNC_WITHHOLDS,
};
use towline_admin::status::ReplyWaitsStatus;
use towline_config::SyncConsistency;
use towline_logging::log as say;
use towline_region::{SyncGate, SyncPolicy, SyncState, SyncTurn, SyncView};
use towline_types::Time;

use super::RegionPart;
use crate::region_shipping::Shipping;

impl RegionPart {
    /// The gate of an instance that becomes active, if replies are to wait.
    pub(super) fn sync_gate(&self) -> Option<SyncGate> {
        let recovery = &self.terms.recovery;
        let policy = match recovery.sync_consistency {
            _ if !recovery.sync_replication => return None,
            SyncConsistency::Strict => SyncPolicy::Strict,
            SyncConsistency::Eventual => SyncPolicy::Eventual,
        };
        Some(SyncGate::new(policy, recovery.sync_wait(), self.driver.now()))
    }

    /// Says to the active instance up to where replies may go.
    pub(super) fn releases(&self, shipping: &Shipping) {
        let Some(active) = self.driver.active() else { return };
        if shipping.releases(|upto| active.region_has(upto)) {
            active.region_news();
        }
    }

    /// Looks whether replies wait, or wait no more, as time passes.
    pub(super) fn watch_gate(&self, shipping: &Shipping) {
        if shipping.wants_floor()
            && let Some(active) = self.driver.active()
            && let Some(upto) = active.answered_alone_upto()
        {
            shipping.answered_alone(upto);
        }
        let turn = shipping.look_at_gate(self.driver.now());
        self.releases(shipping);
        let Some(turn) = turn else { return };
        let other = self.terms.recovery.name.as_str();
        let seconds = self.terms.recovery.sync_wait().as_secs().to_string();
        match turn {
            SyncTurn::InStep => say(&REGION_SYNC_IN_STEP, &[other]),
            SyncTurn::Withholds => say(&REGION_SYNC_WITHHOLDS, &[&seconds, other]),
            SyncTurn::Alone => say(&REGION_SYNC_ALONE, &[other, &seconds]),
        }
    }

    /// Why this instance cannot go on without the other region; `None`: it can.
    pub fn why_not_alone(&self) -> Option<String> {
        let Some(shipping) = self.shipping().filter(|_| self.driver.leads()) else {
            return Some(NOT_ACTIVE.to_owned());
        };
        let sync = shipping.view(self.driver.now()).sync;
        let waits = sync.is_some_and(|sync| matches!(sync.state, SyncState::Waiting { .. }));
        (!waits).then(|| none_waits(&self.terms.recovery.name))
    }

    /// Has the active instance go on without the other region until that has caught up, by order of
    /// `by`.
    ///
    /// # Errors
    /// Why not.
    pub fn go_alone(&self, by: &str) -> Result<(), String> {
        let other = &self.terms.recovery.name;
        let shipping = self.shipping().filter(|_| self.driver.leads());
        let Some(shipping) = shipping else { return Err(NOT_ACTIVE.to_owned()) };
        if !shipping.orders_alone(self.driver.now()) {
            return Err(none_waits(other));
        }
        say(&REGION_SYNC_ORDERED, &[other, by]);
        self.releases(&shipping);
        Ok(())
    }

    /// How replies wait, if they do, and the time now.
    pub fn sync_view(&self) -> Option<(SyncView, Time)> {
        let now = self.driver.now();
        Some((self.shipping()?.view(now).sync?, now))
    }

    /// Replies that wait, or waited, for the other region.
    pub fn reply_waits(&self) -> ReplyWaitsStatus {
        self.driver.active().map(|active| active.reply_waits()).unwrap_or_default()
    }
}

const NOT_ACTIVE: &str =
    "this instance is not active: order it at the active instance of the live group";

fn none_waits(other: &str) -> String {
    format!(
        "no reply waits for group '{other}': it is in step, or this group is alone already, or \
         sync_replication is off"
    )
}
