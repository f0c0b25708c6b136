//! The live group's active instance ships what is committed to the other region, on a thread of its
//! own.
//!
//! The thread sleeps until something is committed, or received by the other region; then it sends
//! what its window leaves. It gathers for a moment, so that a busy log is sent in long frames. It
//! never waits for the other region in any other way, and nothing waits for it.
//!
//! Not here: when there is a link, and to which instance (`towline_link`); what may be shipped to
//! the other group at all (histories).
//!
//! Invariants: one link at a time, the newest; what comes on an older one is not believed; memory in
//! the link's queue is bounded by [`QUEUED_BYTES_MAX`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_link::{FrameBody, LinkId, RegionLink};
use towline_os::sync::{Condvar, Mutex};
use towline_region::wire::{KIND_BATCHES, KIND_POINT, KIND_REFUSED};
use towline_region::{
    Backlog, BacklogSample, Counts, Exposure, RecoveryPoint, Refusal, Send, Shipper,
};
use towline_types::{BatchPlace, Time};

use crate::region_position::{RegionPosition, ShippedLog, ShippingStart};

/// Bytes that wait in the link's queue, beyond which nothing is added: what is in there has been
/// read, and is kept in memory.
const QUEUED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What is committed in this time goes together.
pub const GATHER: Duration = Duration::from_millis(1);

/// Why a link cannot be used, or is used no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShippingEnd {
    /// The other group needs a copy.
    NeedsCopy,
    /// It took no more.
    Refused(Refusal),
    /// It, or this log, is not what it should be; in words for the operator.
    Fault(String),
}

/// What the other region has, as status and metrics want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShippingView {
    /// Whether a link stands.
    pub connected: bool,
    /// What would be lost now.
    pub exposure: Exposure,
    /// What the other region reported last; all zero before the first report of this link.
    pub point: RecoveryPoint,
    /// Bytes of batches sent since this instance became active, before compression.
    pub sent_bytes: u64,
}

/// See the module.
pub struct Shipping {
    log: Arc<dyn ShippedLog>,
    window_bytes: u64,
    state: Mutex<ShippingState>,
    news: Condvar,
}

struct ShippingState {
    open: Option<OpenLink>,
    backlog: Backlog,
    point: RecoveryPoint,
    sent_bytes: u64,
    /// Something happened since the thread looked last.
    has_news: bool,
    ending: bool,
}

struct OpenLink {
    link: RegionLink,
    shipper: Shipper,
}

impl Shipping {
    /// Of an instance that became active: nothing is known of the other region but that it has
    /// `known`.
    #[must_use]
    pub fn new(
        log: Arc<dyn ShippedLog>,
        window_bytes: u64,
        (counts, known): (Counts, BatchPlace),
        now: Time,
    ) -> Shipping {
        let backlog = Backlog::new(log.committed().end, counts, known.end, now);
        let state = ShippingState {
            open: None,
            backlog,
            point: RecoveryPoint::default(),
            sent_bytes: 0,
            has_news: false,
            ending: false,
        };
        Shipping { log, window_bytes, state: Mutex::new(state), news: Condvar::new() }
    }

    /// A link stands to an instance that is at `position`.
    ///
    /// # Errors
    /// Why nothing can be shipped on it: the caller closes it.
    pub fn opened(
        &self,
        link: RegionLink,
        position: &RegionPosition,
        now: Time,
    ) -> Result<(), ShippingEnd> {
        let behind = match ShippingStart::of(self.log.as_ref(), position) {
            ShippingStart::Behind(behind) => behind,
            ShippingStart::NeedsCopy => return Err(ShippingEnd::NeedsCopy),
            ShippingStart::Diverged { index } => {
                return Err(ShippingEnd::Refused(Refusal::Diverged { index }));
            }
            ShippingStart::NotYet => return Err(ShippingEnd::Refused(Refusal::NotYet)),
        };
        let mut shipper = Shipper::begin(self.window_bytes, behind);
        shipper.committed(self.log.committed(), now);
        let mut state = self.state.lock();
        if let Some(before) = state.open.replace(OpenLink { link, shipper }) {
            before.link.close("there is a newer link");
        }
        self.wake(&mut state);
        Ok(())
    }

    /// A link ended.
    pub fn closed(&self, link: LinkId) {
        let mut state = self.state.lock();
        state.open.take_if(|open| open.link.id() == link);
    }

    /// More is committed, after which `counts` stand. `committed_at`: by the clock that `now` is of.
    pub fn committed(&self, counts: Counts, now: Time) {
        let place = self.log.committed();
        let mut state = self.state.lock();
        state.backlog.committed(place.end, counts, now);
        if let Some(open) = &mut state.open {
            open.shipper.committed(place, now);
            self.wake(&mut state);
        }
    }

    /// A frame came on a link.
    ///
    /// # Errors
    /// The link cannot be used any more: the caller closes it.
    pub fn frame(
        &self,
        link: LinkId,
        kind: u8,
        body: &Bytes,
        now: Time,
    ) -> Result<(), ShippingEnd> {
        let fault = |error: &dyn std::fmt::Display| ShippingEnd::Fault(error.to_string());
        let mut state = self.state.lock();
        let ShippingState { open, backlog, .. } = &mut *state;
        let Some(open) = open.as_mut().filter(|open| open.link.id() == link) else {
            return Ok(());
        };
        match kind {
            KIND_POINT => {
                let point = RecoveryPoint::decode(body).map_err(|error| fault(&error))?;
                open.shipper.point(point).map_err(|error| fault(&error))?;
                backlog.reported(&point, now);
                state.point = point;
                self.wake(&mut state);
                Ok(())
            }
            KIND_REFUSED => {
                let refusal = Refusal::decode(body).map_err(|error| fault(&error))?;
                Err(ShippingEnd::Refused(refusal))
            }
            // Of a later version: what must be understood has another version of the link.
            other => {
                tracing::debug!(other, "a frame of an unknown kind from the other region");
                Ok(())
            }
        }
    }

    /// The link's queue has space again.
    pub fn writable(&self) {
        self.wake(&mut self.state.lock());
    }

    /// Ships until [`Shipping::end`]. `gather` lets a moment pass.
    pub fn run(&self, gather: impl Fn(Duration)) {
        while self.awaits_news() {
            gather(GATHER);
            while self.ship_next() {}
        }
    }

    /// Ends [`Shipping::run`].
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ending = true;
        self.wake(&mut state);
    }

    /// How far the other region is.
    pub fn view(&self, now: Time) -> ShippingView {
        let state = self.state.lock();
        ShippingView {
            connected: state.open.is_some(),
            exposure: state.backlog.exposure(now),
            point: state.point,
            sent_bytes: state.sent_bytes,
        }
    }

    /// The backlog since the last call.
    pub fn sample(&self, now: Time) -> BacklogSample {
        self.state.lock().backlog.sample(now)
    }

    fn wake(&self, state: &mut ShippingState) {
        state.has_news = true;
        self.news.notify_all();
    }

    /// False: it ends.
    fn awaits_news(&self) -> bool {
        let mut state = self.state.lock();
        while !state.has_news && !state.ending {
            self.news.wait(&mut state);
        }
        state.has_news = false;
        !state.ending
    }

    /// Sends one frame; false: there is none to send now.
    fn ship_next(&self) -> bool {
        let Some((id, Send { behind, bytes_max })) = self.due() else { return false };
        // Not under the lock: it may come from the disk.
        let batches = self.log.behind(behind, bytes_max);
        let mut state = self.state.lock();
        let Some(open) = state.open.as_mut().filter(|open| open.link.id() == id) else {
            return true;
        };
        let mut batches = match batches {
            Ok(batches) if !batches.is_empty() => batches,
            // It was forgotten meanwhile: the next link begins with a copy.
            Ok(_) => return self.give_up(&mut state, "the log that it lacks is gone"),
            Err(why) => return self.give_up(&mut state, &why),
        };
        // More may be committed by now than the shipper knows.
        batches.retain(|batch| batch.index <= open.shipper.committed_index());
        let frame = open.shipper.send(self.log.term(), batches);
        let bytes = frame.batches.iter().map(|batch| batch.payload.len() as u64).sum::<u64>();
        let (head, parts) = frame.encode();
        let taken = open.link.send(KIND_BATCHES, FrameBody { head, parts });
        state.sent_bytes += bytes;
        // Refused, it is lost: the next link begins where the other region then is.
        taken || self.give_up(&mut state, "it does not take what is sent")
    }

    fn due(&self) -> Option<(LinkId, Send)> {
        let state = self.state.lock();
        let open = state.open.as_ref()?;
        let has_space = open.link.queued_bytes() < QUEUED_BYTES_MAX;
        let due = open.shipper.due().filter(|_| has_space && !state.ending)?;
        Some((open.link.id(), due))
    }

    fn give_up(&self, state: &mut ShippingState, why: &str) -> bool {
        if let Some(open) = state.open.take() {
            open.link.close(why);
        }
        false
    }
}

#[cfg(test)]
mod tests;
