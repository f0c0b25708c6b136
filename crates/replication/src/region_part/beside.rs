//! What the two groups say to each other beside the log: how they are, and where clients find them.
//!
//! Not here: what is in it (`region_condition`, `region_clients`), when it is said (the daemon).
//! Invariant: nothing here waits for the other region.

use std::sync::Arc;

use towline_admin::status::RegionConditionStatus;
use towline_link::LinkId;
use towline_region::wire::KIND_CONDITION;
use towline_region::{BacklogSample, RegionFigures};
use towline_types::{Histories, Time};

use super::RegionPart;
use crate::driver::LiveSync;
use crate::region_clients::GroupClients;
use crate::region_condition::{HeardCondition, SayingTime};

impl RegionPart {
    /// Where clients find the other group, as it said when it was connected last.
    pub fn clients(&self) -> Option<Arc<GroupClients>> {
        self.known.lock().clients.clone()
    }

    /// The time at which something is said to the other group: to be taken before it is looked at.
    pub fn saying_time(&self) -> SayingTime {
        SayingTime { now: self.driver.now(), wall: self.host.wall() }
    }

    /// Says to the other group how this one was at a time, if a link stands, before the log that
    /// waits.
    pub fn tell(&self, condition: &RegionConditionStatus, at: SayingTime) {
        let shipping = self.shipping().and_then(|shipping| shipping.link());
        let Some(link) = shipping.or_else(|| self.receiving().link()) else { return };
        if let Some(body) = self.conditions.frame(link.id(), condition, at) {
            // One that is not taken is followed by the next.
            link.send_newest(KIND_CONDITION, body);
        }
    }

    /// The other group said how it is.
    pub(super) fn hears_condition(&self, link: LinkId, body: &[u8]) {
        let here = self.saying_time();
        let Some(heard) = self.conditions.hears(link, body, here) else { return };
        if self.receiving().link().is_none_or(|of_live| of_live.id() != link) {
            return;
        }
        // Of a live group that puts nothing no batch comes, and those of one that puts much come
        // later than this: it is heard of all the same.
        let RegionConditionStatus { committed_lsn, is_still, .. } = &heard.condition;
        if let Ok(committed) = committed_lsn.parse() {
            self.driver.heard_live(committed, Some((*is_still, heard.said)));
            self.receiving().hears_live(committed);
        }
        self.driver.heard_sync(sync_of(&heard.condition), heard.said);
    }

    /// Whether the live group ships to this instance.
    pub fn receives(&self) -> bool {
        self.receiving().view().connected
    }

    /// For how long the live group has not been heard here, milliseconds: since the process
    /// started, if it never was.
    pub fn live_unheard_ms(&self) -> u64 {
        let heard = self.driver.live_heard();
        let since_start = self.driver.now().since(self.began).as_millis();
        let since_start = u64::try_from(since_start).unwrap_or(u64::MAX);
        let age_ms = heard.age_most_ms.unwrap_or(heard.age_ms);
        if heard.committed > 0 { age_ms } else { since_start }
    }

    /// Whether the log of this instance has no space for what live ships to it.
    pub fn lacks_room(&self) -> bool {
        self.driver.lacks_room_for_shipped()
    }

    /// Why this group serves no client, if it is fenced.
    pub fn fence_why(&self) -> Option<String> {
        self.driver.is_fenced().then(|| self.driver.fence_why())
    }

    /// Whether the other group took over from this one.
    pub fn is_superseded(&self) -> bool {
        self.driver.superseded().is_some()
    }

    /// How the other group is, as it said last.
    pub fn condition(&self) -> Option<HeardCondition> {
        self.conditions.heard()
    }

    /// Counters and states of what is shipped from here; `None`: nothing is, or nothing was
    /// reported yet.
    pub fn figures(&self) -> Option<RegionFigures> {
        let shipping = self.shipping()?.view(self.driver.now());
        let link = self.links.get()?.state().link;
        let point = shipping.point;
        shipping.is_known.then_some(RegionFigures {
            sent_bytes: shipping.sent_bytes,
            sent_frames: shipping.sent_frames,
            wire_bytes: link.sent_wire_bytes,
            compression_us: link.compression_us,
            received_bytes: point.bytes,
            decompression_us: point.decompression_us,
            rebases: point.rebases,
            recovery: point.place.end,
            round_trip_us: link.round_trip_us,
        })
    }

    /// The backlog since the last call, over the real time since then; `None`: nothing is shipped.
    pub fn sample_backlog(&self) -> Option<BacklogSample> {
        Some(self.shipping()?.sample(self.driver.now()))
    }

    /// The time now, which never jumps.
    pub fn now(&self) -> Time {
        self.driver.now()
    }

    /// The histories of the log of this instance, as applied.
    pub fn histories(&self) -> Histories {
        self.host.histories()
    }

    /// When the certificate expires that this instance shows to the other region, seconds since
    /// 1970.
    pub fn certificate_expires_s(&self) -> u64 {
        self.links.get().map_or(0, |links| links.certificate_expires_s())
    }

    /// When it begins to be valid, seconds since 1970.
    pub fn certificate_begins_s(&self) -> u64 {
        self.links.get().map_or(0, |links| links.certificate_begins_s())
    }

    /// The instance of the live group that ships to this one; `None`: none does.
    pub fn live_instance(&self) -> Option<Arc<str>> {
        let state = self.links.get().filter(|_| self.receiving().view().connected)?.state();
        Some(state.instance)
    }
}

/// What replies that wait for this group promise, as live said.
fn sync_of(condition: &RegionConditionStatus) -> LiveSync {
    match (condition.sync_covers, condition.sync_consistency.as_str()) {
        (true, "strict") => LiveSync::Strict,
        (true, "eventual") => LiveSync::Eventual,
        (true | false, _) => LiveSync::Not,
    }
}
