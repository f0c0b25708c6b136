//! The other region, as the driver of one member knows it: what the live group ships is given to
//! the member, and what follows from that goes to the thread that answers; what is committed here
//! wakes the thread that ships.
//!
//! A relay says to its peers which histories the log has, before it sends them the first batch of
//! it on a connection: any of them may be the relay tomorrow, and must be able to say what its
//! bytes are of (`followed_histories`).
//!
//! Not here: the link between regions (`region_part`). Invariants: nothing here waits for the other
//! region; a peer gets no relayed batch before the chain that belongs to it; a member that takes
//! part in elections says only the histories that it has applied, and keeps none that a live group
//! says; none becomes live in a history of which it has heard that it is over.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use towline_group::{Input, Mode, Shipment, ShippedAnswer};
use towline_link::{FrameBody, Peer};
use towline_os::sync::{Mutex, MutexGuard, OnceLock};
use towline_types::{Batch, BatchPlace, Histories, HistoryId, Lsn};

use super::returning::ReturnOrders;
use super::shipped_room::ShippedRoom;
use super::{Core, Driver};
use crate::followed_histories::{self, FollowedHistories};
use crate::frames::KIND_HISTORIES;
use crate::region_position::{PositionSums, RegionPosition};
use crate::repair;

/// What must hear of the member. Called under the lock of the driver: nothing of it may call the
/// driver, or wait.
pub trait RegionEvents: Send + Sync {
    /// This group is so far with what was shipped.
    fn answers(&self, answer: ShippedAnswer);

    /// More is committed.
    fn committed(&self);
}

/// What a driver has of the other region.
pub(crate) struct DriverRegion {
    /// Not owned: what hears of them owns the driver.
    events: OnceLock<Weak<dyn RegionEvents>>,
    followed: FollowedHistories,
    /// Held while a chain is kept, and while this member changes its part: taken before the lock of
    /// the driver, and never under it.
    changes_part: Mutex<()>,
    /// The live group ships to this instance.
    relays: AtomicBool,
    /// By peer: it was not sent the chain on its newest connection.
    owed: Vec<AtomicBool>,
    /// The order to return, if one was given.
    pub(super) returning: ReturnOrders,
    /// Whether the log has space for what is shipped.
    pub(super) room: ShippedRoom,
}

impl DriverRegion {
    /// `file`: any one of the data folder.
    ///
    /// # Errors
    /// See [`FollowedHistories::read`]; and the order to return cannot be read.
    pub(crate) fn beside(file: &Path, members: usize) -> io::Result<DriverRegion> {
        let followed = FollowedHistories::read(file.parent().unwrap_or(file))?;
        let owed = (0..members).map(|_| AtomicBool::new(true)).collect();
        let (events, relays) = (OnceLock::new(), AtomicBool::new(false));
        let returning = ReturnOrders::beside(file, members)?;
        let (changes_part, room) = (Mutex::new(()), ShippedRoom::default());
        Ok(DriverRegion { events, followed, changes_part, relays, owed, returning, room })
    }

    pub(crate) fn answers(&self, answer: ShippedAnswer) {
        if let Some(events) = self.events.get().and_then(Weak::upgrade) {
            events.answers(answer);
        }
    }

    pub(crate) fn committed(&self) {
        if let Some(events) = self.events.get().and_then(Weak::upgrade) {
            events.committed();
        }
    }

    /// No chain is kept meanwhile.
    pub(super) fn changes_part(&self) -> MutexGuard<'_, ()> {
        self.changes_part.lock()
    }

    /// Whether the live group has said that another history has gone on from this one.
    pub(super) fn is_over(&self, history: HistoryId) -> bool {
        self.followed.goes_on_from(history)
    }

    /// This group is live from here on. Under [`DriverRegion::changes_part`].
    pub(super) fn follows_no_more(&self, has_begun: impl Fn(HistoryId) -> bool) {
        if let Err(error) = self.followed.cut(has_begun) {
            // One that votes does not say it anyway.
            tracing::warn!(%error, "histories that are followed no more cannot be forgotten");
        }
    }

    /// A connection with a peer is new.
    pub(crate) fn connected(&self, peer: Peer) {
        self.owed[peer].store(true, Ordering::SeqCst);
    }
}

impl Driver {
    /// Sets what hears of shipments and commits, as long as it is there.
    pub fn set_region(&self, events: &Arc<dyn RegionEvents>) {
        assert!(
            self.region.events.set(Arc::downgrade(events)).is_ok(),
            "a member has one other region"
        );
    }

    /// Whether something here connects to another region.
    pub fn has_region(&self) -> bool {
        self.region.events.get().is_some()
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        self.notes.folder()
    }

    /// The same.
    pub(crate) fn folder(&self) -> &Path {
        self.notes.folder()
    }

    /// What part this member has in its group.
    pub fn mode(&self) -> Mode {
        self.look(|core| core.member.mode())
    }

    /// Whether the live group ships to this instance.
    pub fn relays(&self) -> bool {
        self.region.relays.load(Ordering::SeqCst)
    }

    /// The live group shipped this. `None`: this instance takes nothing at present, and may a
    /// little later.
    ///
    /// # Errors
    /// It has batches that do not fit into this log, in words: nothing of it was taken.
    pub fn ship(&self, shipment: Shipment) -> Result<Option<ShippedAnswer>, String> {
        self.region.relays.store(true, Ordering::SeqCst);
        let mut core = self.core.lock();
        let answer = self.ship_in(&mut core, shipment);
        drop(core);
        self.after();
        answer
    }

    fn ship_in(
        &self,
        core: &mut Core,
        shipment: Shipment,
    ) -> Result<Option<ShippedAnswer>, String> {
        // Another batch than one that is committed is refused by the member, in its own words.
        let committed = core.member.committed();
        let is_new = |batches: &[Batch]| batches.first().is_some_and(|it| it.index > committed);
        if let Some((behind, batches)) = core.member.new_shipped(&shipment)
            && is_new(&batches)
        {
            if !self.has_room_for(&batches) {
                return Ok(None);
            }
            let checked = self.log().check_batches(behind, &batches);
            checked.map_err(|error| format!("it sent a batch that does not fit: {error}"))?;
        }
        core.shipped = None;
        self.run(core, Input::Shipped(shipment));
        Ok(core.shipped.take())
    }

    /// The live group ships to this instance no more.
    pub fn end_shipping(&self) {
        self.region.relays.store(false, Ordering::SeqCst);
        self.step(Input::ShippingEnded);
    }

    /// Where this instance is in its log, as it says to the other region. Reads a batch or two from
    /// the disk if they are not in memory.
    pub fn region_position(&self) -> (RegionPosition, PositionSums) {
        let (last, committed) =
            self.look(|core| (core.member.last(), core.member.committed_place()));
        let position = RegionPosition { blank: last.index == 0, last, committed };
        let sums = PositionSums { last: self.sum_of(last), committed: self.sum_of(committed) };
        (position, sums)
    }

    /// End of the last batch of this log, committed or not.
    pub(crate) fn last_end(&self) -> Lsn {
        self.look(|core| core.member.last().end)
    }

    /// The checksum of a batch; `None`: there is none, or it cannot be read.
    pub(crate) fn sum_of(&self, place: BatchPlace) -> Option<u32> {
        if place.index == 0 {
            return None;
        }
        let of = |payload: &Bytes| crc32c::crc32c(payload);
        let known = self.look(|core| core.member.batch(place.index));
        if let Some(batch) = known.filter(|batch| batch.place() == place) {
            return Some(of(&batch.payload));
        }
        if place.index <= self.look(|core| core.member.progress().base.index) {
            return None;
        }
        let read = repair::read_batches(self, &[place], 1).ok()?;
        read.first().map(|batch| of(&batch.payload))
    }

    /// The log that is about to come from the live group has these histories: kept, durably. False:
    /// this member takes part in elections by now, and takes no such log.
    ///
    /// # Errors
    /// What the disk said.
    pub fn follow(&self, chain: &Histories) -> io::Result<bool> {
        let _as_it_is = self.region.changes_part();
        let takes_it = self.mode() == Mode::Recovery;
        if takes_it {
            self.keep_followed(chain)?;
        }
        Ok(takes_it)
    }

    fn keep_followed(&self, chain: &Histories) -> io::Result<()> {
        if self.region.followed.keep(chain)? {
            (0..self.names.len()).for_each(|peer| self.region.connected(peer));
        }
        Ok(())
    }

    /// A relay said which histories the log has that it sends. One that votes still was away when
    /// its group became one of recovery: it takes that log, and says none of these before its own
    /// log has said so. One that is being promoted takes nothing more of it.
    ///
    /// # Errors
    /// They cannot be read, or not be kept.
    pub(crate) fn takes_histories(&self, body: &Bytes) -> Result<(), String> {
        let chain = Histories::from_bytes(body).map_err(|error| error.to_string())?;
        let _as_it_is = self.region.changes_part();
        match self.mode() {
            Mode::Promoting => Ok(()),
            Mode::Voting | Mode::Recovery => self
                .keep_followed(&chain)
                .map_err(|error| format!("histories cannot be kept: {error}")),
        }
    }

    /// The histories of this log, of which `applied` are applied. What a member that votes, or is
    /// being promoted, has behind them is its own, and of no history that a live group said: where
    /// it stands does not make it so.
    pub fn histories_said(&self, applied: Histories) -> Histories {
        let (end, mode) = self.look(|core| (core.member.last().end, core.member.mode()));
        match mode {
            Mode::Recovery => followed_histories::said(applied, &self.region.followed.chain(), end),
            Mode::Voting | Mode::Promoting => applied,
        }
    }

    /// Says the chain to a peer, if it must get that before the next message. False: it could not
    /// be given to the link.
    pub(super) fn has_said_histories(&self, peer: Peer) -> bool {
        if !self.relays() || !self.region.owed[peer].load(Ordering::SeqCst) {
            return true;
        }
        let Some(links) = self.links() else { return false };
        let chain = self.region.followed.chain();
        let body = FrameBody { head: chain.to_bytes(), parts: Vec::new() };
        let taken = links.send(peer, KIND_HISTORIES, false, body);
        if taken {
            self.region.owed[peer].store(false, Ordering::SeqCst);
        }
        taken
    }
}
