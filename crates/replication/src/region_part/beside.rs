//! What the two groups say to each other beside the log: how they are, and where clients find them.
//!
//! Not here: what is in it (`region_condition`, `region_clients`), when it is said (the daemon).
//! Invariant: nothing here waits for the other region.

use std::sync::Arc;

use bytes::Bytes;
use towline_admin::status::RegionConditionStatus;
use towline_region::wire::KIND_CONDITION;

use super::RegionPart;
use crate::driver::LiveSync;
use crate::region_clients::GroupClients;
use crate::region_condition::{self, HeardCondition};

impl RegionPart {
    /// Where clients find the other group, as it said when it was connected last.
    pub fn clients(&self) -> Option<Arc<GroupClients>> {
        self.known.lock().clients.clone()
    }

    /// Says to the other group how this one is, if a link stands.
    pub fn tell(&self, condition: &RegionConditionStatus) {
        let shipping = self.shipping().and_then(|shipping| shipping.link());
        let Some(link) = shipping.or_else(|| self.receiving().link()) else { return };
        if let Some(body) = region_condition::frame(condition, self.host.wall()) {
            // One that is not taken is followed by the next.
            link.send(KIND_CONDITION, body);
        }
    }

    /// The other group says how it is.
    pub(super) fn hears_condition(&self, body: &Bytes) {
        self.conditions.hears(body, self.driver.now(), self.host.wall());
        if !self.receiving().view().connected {
            return;
        }
        let sync = self.conditions.heard().map(|heard| {
            let RegionConditionStatus { sync_consistency, sync_covers, .. } = heard.condition;
            match (sync_covers, sync_consistency.as_str()) {
                (true, "strict") => LiveSync::Strict,
                (true, "eventual") => LiveSync::Eventual,
                (true | false, _) => LiveSync::Not,
            }
        });
        self.driver.heard_sync(sync.unwrap_or_default());
    }

    /// How the other group is, as it said last.
    pub fn condition(&self) -> Option<HeardCondition> {
        self.conditions.heard()
    }

    /// When the certificate expires that this instance shows to the other region, seconds since
    /// 1970.
    pub fn certificate_expires_s(&self) -> u64 {
        self.links.get().map_or(0, |links| links.certificate_expires_s())
    }

    /// The instance of the live group that ships to this one; `None`: none does.
    pub fn live_instance(&self) -> Option<Arc<str>> {
        let state = self.links.get().filter(|_| self.receiving().view().connected)?.state();
        Some(state.instance)
    }
}
