//! Copies between two regions, as this instance's part knows them: which instance of the other
//! group needs one, and whether this one takes one.
//!
//! Not here: giving and taking (`region_giving`, `region_taking`). Invariants: as of the part: no
//! copy goes where the log of this instance is not the one to follow, and none before that log has
//! a history.

use std::sync::Arc;
use std::time::Duration;

use towline_link::{LinkStream, RegionHello};
use towline_os::thread::Builder;
use towline_types::FORMAT_LEVEL_OF_REGIONS;

use super::RegionPart;
use crate::copy::Patient;
use crate::region_giving::{self, Giving, GivingHost};
use crate::region_meeting::{RegionSaid, meet};
use crate::region_shipping::ShippingEnd;

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
            Ok(_) => Ok(false),
            Err(end @ ShippingEnd::NeedsCopy) => {
                self.keep_end(&end);
                Ok(true)
            }
            Err(end) => Err(end.to_string()),
        }
    }

    /// An instance of the other group lacks log that is not there any more.
    pub(super) fn lacks(&self, hello: &RegionHello, other: &RegionSaid) {
        self.driver.region_reads(other.agreement.levels.read);
        if let (Some(point), Some(shipping)) = (other.point, self.shipping()) {
            shipping.knows(point, self.driver.now());
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
            self.keep_refusal_of(&other, refusal);
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
