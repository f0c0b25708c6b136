//! Copies between two regions, as this instance's part knows them: which instance of the other
//! group needs one, and whether this one takes one.
//!
//! Not here: giving and taking (`region_giving`, `region_taking`). Invariants: as of the part: no
//! copy goes where the log of this instance is not the one to follow, and none before that log has
//! a history.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::REGION_FULL_GETS_COPY;
use towline_link::{LinkStream, RegionHello};
use towline_logging::log as say;
use towline_os::thread::Builder;
use towline_types::FORMAT_LEVEL_OF_REGIONS;

use super::RegionPart;
use crate::copy::Patient;
use crate::region_giving::{self, Giving, GivingHost};
use crate::region_meeting::{RegionSaid, meet};
use crate::region_shipping::{Shipping, ShippingEnd, ShippingView};

/// Why a link for frames ends, or does not come to stand.
const FULL: &str = "its log is full: it gets a copy of the log here, which is shorter";
/// What the other group said counts for so long.
const HEARD_MAX: Duration = Duration::from_secs(3);
/// If a copy does not come in this time, because its disk has no space for one, it is shipped to
/// again: it may have more space for its log by then.
const FULL_AGAIN: Duration = Duration::from_secs(600);

/// Whether a log with a limit of `max` bytes has space, and a quarter of it left, with a copy of
/// one of `bytes` bytes, which goes on at once.
fn copy_fits(bytes: u64, max: u64, extent_bytes: u64) -> bool {
    bytes.saturating_add(extent_bytes) <= max - max / 4
}

impl RegionPart {
    /// What gives copies of this instance's log to the other region.
    pub(super) fn giver(self: &Arc<Self>) -> Giving {
        let weak = || Arc::downgrade(self);
        let over = || "this instance ends".to_owned();
        let [opens, needs, begins, dials] = [weak(), weak(), weak(), weak()];
        let host = GivingHost {
            open: Box::new(move || {
                let part = opens.upgrade().ok_or_else(over)?;
                region_giving::open(part.links().as_ref())
            }),
            is_needed: Box::new(move |hello| {
                let part = needs.upgrade().ok_or_else(over)?;
                part.needs_copy(hello)
            }),
            has_history: Box::new(move || {
                let part = begins.upgrade().ok_or_else(over)?;
                part.awaits_first_history()
            }),
            dial: Box::new(move || {
                if let Some(part) = dials.upgrade() {
                    part.links().kick();
                }
            }),
            source: self.host.copy_source(),
        };
        Giving::new(Arc::clone(&self.driver), self.terms.recovery.name.clone(), host)
    }

    /// Whether an instance of the other group needs a copy of this log.
    fn needs_copy(&self, hello: &RegionHello) -> Result<bool, String> {
        let other = RegionSaid::decode(&hello.sections)?;
        self.judge(false, &other).map_err(|refusal| refusal.why)?;
        let shipping = self.shipping().ok_or("this instance is not active")?;
        match shipping.start(&other.position) {
            Ok(_) => Ok(self.is_full_there(&other)),
            Err(end @ ShippingEnd::NeedsCopy) => {
                self.keep_end(&end);
                Ok(true)
            }
            Err(end) => Err(end.to_string()),
        }
    }

    /// The log of the other group is full of messages that are gone here by now, and their removals
    /// do not fit: it gets a copy instead of them, if that helps.
    pub(super) fn helps_full_log(&self, shipping: &Shipping, view: &ShippingView) {
        let Some(heard) = self.condition().filter(|heard| heard.condition.log_full) else { return };
        let now = self.driver.now();
        let stats = self.driver.log().stats();
        let (bytes, max) = (stats.bytes_in_use, heard.condition.log_bytes_max);
        let fits = copy_fits(bytes, max, self.driver.log().extent_bytes());
        let Some(link) = shipping.link().filter(|_| view.connected && fits) else { return };
        if now.since(heard.said.oldest()) >= HEARD_MAX || self.giving.get().is_none() {
            return;
        }
        let committed = self.driver.group().committed.index;
        let mut known = self.known.lock();
        if known.full_before.is_some_and(|(_, since)| now.since(since) < FULL_AGAIN) {
            return;
        }
        known.full_before = Some((committed, now));
        drop(known);
        let told = [max, bytes].map(|bytes| bytes.to_string());
        say(&REGION_FULL_GETS_COPY, &[&self.terms.recovery.name, &told[0], &told[1]]);
        link.close(FULL);
        self.links().kick();
    }

    /// Whether an instance of the other group gets a copy although nothing that it lacks is gone.
    fn is_full_there(&self, other: &RegionSaid) -> bool {
        let before = self.known.lock().full_before;
        before.is_some_and(|(before, since)| {
            let is_recent = self.driver.now().since(since) < FULL_AGAIN;
            is_recent && other.position.last.index < before
        })
    }

    /// Refuses a link for frames with an instance that gets a copy although nothing that it lacks
    /// is gone.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn refuses_full(
        &self,
        hello: &RegionHello,
        other: &RegionSaid,
    ) -> Result<(), String> {
        if !self.is_full_there(other) {
            return Ok(());
        }
        let mut known = self.known.lock();
        (known.needs_copy, known.trouble) = (true, Some(FULL.to_owned()));
        drop(known);
        self.lacks(hello, other);
        Err(FULL.to_owned())
    }

    /// An instance of the other group lacks log that is not there any more.
    pub(super) fn lacks(&self, hello: &RegionHello, other: &RegionSaid) {
        self.driver.region_reads(other.agreement.levels.read);
        if let (Some(point), Some(shipping)) = (other.point, self.shipping()) {
            let behind_at = shipping.time_behind(&point);
            shipping.knows(point, behind_at, self.driver.now());
        }
        if let Some(giving) = self.giving.get() {
            giving.needs(&hello.instance);
        }
    }

    /// Has the log begin its first history, and waits for it a little.
    fn awaits_first_history(&self) -> Result<(), String> {
        /// Looks, with a pause behind each.
        const LOOKS: u32 = 100;
        for _ in 0..LOOKS {
            if !self.host.histories().is_empty() {
                return Ok(());
            }
            self.begin_first_history();
            self.driver.pause(Duration::from_millis(100));
        }
        Err("the first history of the log has not begun yet".into())
    }

    /// Whether this instance takes a copy of the log of one that says this of itself.
    pub(super) fn admits_copy(&self, hello: &RegionHello) -> Result<(), String> {
        let (own, other) = (self.said(), RegionSaid::decode(&hello.sections)?);
        if let Err(refusal) = meet(&other, &own, &|| false) {
            let why = refusal.why.clone();
            self.keep_refusal_of(true, &other, refusal);
            return Err(why);
        }
        match other.log_id == own.log_id {
            true => self.taking.admits(),
            false => Err("it is to take the id of the log first".into()),
        }
    }

    /// A stream for a copy stands.
    pub(super) fn takes_copy(&self, hello: &RegionHello, stream: LinkStream) {
        let Ok(other) = RegionSaid::decode(&hello.sections) else { return };
        let handle = self.links().streams();
        let (taking, drawn) = (Arc::clone(&self.taking), self.host.drawn());
        let body = move || taking.take(Patient { stream, handle }, &other.histories, drawn);
        if let Err(error) = Builder::new().name("region-rebase".into()).spawn(body) {
            tracing::warn!(%error, "there is no thread for a copy");
        }
    }

    /// Has the log begin its first history, if that can be now.
    pub(super) fn begin_first_history(&self) {
        self.driver.wants_level(FORMAT_LEVEL_OF_REGIONS);
        self.driver.raise_level_if_all_read();
        let cause = format!("group '{}' was connected first", self.terms.recovery.name);
        if let Err(why) = self.host.begin_first_history(&cause) {
            tracing::debug!(why, "the first history does not begin yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_gets_a_copy_only_if_that_leaves_it_space() {
        let mib = |count: u64| count << 20;
        assert!(copy_fits(mib(8), mib(20), mib(4)));
        assert!(!copy_fits(mib(12), mib(20), mib(4)), "its limit is too small for the log here");
        assert!(!copy_fits(mib(8), 0, mib(4)), "the disk is full: there is no space for a copy");
    }
}
