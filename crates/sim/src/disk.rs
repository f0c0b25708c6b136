//! A simulated disk of one instance: batches written and synced, what a member keeps, the image and
//! its pages.
//!
//! Not here: how long anything takes; when it fails (the world says both).
//!
//! Invariants: batches follow each other by index; what is before `synced` survives every end of
//! the process and of the power, and nothing is synced but by a sync: a process that ends leaves
//! what it wrote in the system's memory; what an image needs is in the log.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use towline_group::{HardState, RecoveredLog, Starts};
use towline_types::{Batch, BatchPlace, BodyLocation, Lsn, PageRef};

use towline_types::SeededRandom;

/// An image that is durable.
#[derive(Debug)]
pub(crate) struct Image {
    /// As [`towline_node::Restart::begin`] takes it.
    pub(crate) bytes: Vec<u8>,
    /// Up to where it speaks.
    pub(crate) at: Lsn,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) hard_state: HardState,
    /// The last batch of which a member need only know the position.
    pub(crate) base: BatchPlace,
    /// All batches that are still there; those up to `base` only for the bodies in them.
    log: VecDeque<Batch>,
    /// Index of the newest batch that is synced.
    pub(crate) synced: u64,
    /// A sync is under way: what it will make durable.
    pub(crate) flight: Option<u64>,
    pub(crate) image: Option<Rc<Image>>,
    pages: BTreeMap<u32, Bytes>,
    next_unit: u32,
    /// A batch that was synced long ago can no longer be read: seen at the next start.
    pub(crate) rotten: bool,
    /// The number of this log, and the one of the log that `hard_state` was promised for.
    incarnations: [u64; 2],
    /// Kept beside `hard_state`.
    pub(crate) starts: Starts,
    /// The member that it belongs to, as is kept beside `hard_state`.
    pub(crate) whose: Option<usize>,
}

/// Which part of a disk an older copy restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskPart {
    Log,
    HardState,
    /// All of it.
    Folder,
}

impl Disk {
    /// Index of the newest batch.
    pub(crate) fn last(&self) -> u64 {
        self.log.back().map_or(self.base.index, |batch| batch.index)
    }

    /// Position of the newest batch.
    pub(crate) fn last_place(&self) -> BatchPlace {
        self.log.back().map_or(self.base, Batch::place)
    }

    pub(crate) fn batch(&self, index: u64) -> Option<&Batch> {
        let first = self.log.front()?.index;
        self.log.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    /// End of the newest batch that is synced.
    pub(crate) fn synced_end(&self) -> Lsn {
        self.batch(self.synced).map_or(self.base.end, Batch::end)
    }

    /// The body at this position.
    pub(crate) fn body(&self, location: BodyLocation) -> Option<Bytes> {
        let behind = self.log.partition_point(|batch| batch.lsn <= location.lsn);
        let batch = self.log.get(behind.checked_sub(1)?)?;
        let payload_at = batch.end().0 - batch.payload.len() as u64;
        let from = usize::try_from(location.lsn.0.checked_sub(payload_at)?).ok()?;
        let upto = from.checked_add(location.bytes as usize)?;
        (upto <= batch.payload.len()).then(|| batch.payload.slice(from..upto))
    }

    /// Adds the next batch; it is not durable yet.
    pub(crate) fn push(&mut self, batch: Batch) {
        let last = self.last_place();
        assert_eq!(batch.index, last.index + 1, "batches follow each other on disk");
        assert!(batch.lsn >= last.end, "batches do not overlap");
        self.log.push_back(batch);
    }

    /// Cuts off the batches from `index` on.
    pub(crate) fn cut(&mut self, index: u64) {
        assert!(index > self.base.index, "what an image needs is never cut off");
        while self.log.back().is_some_and(|batch| batch.index >= index) {
            self.log.pop_back();
        }
        self.synced = self.synced.min(index - 1);
        self.flight = self.flight.map(|upto| upto.min(index - 1));
    }

    /// The sync that is under way is done.
    pub(crate) fn sync_done(&mut self) {
        if let Some(upto) = self.flight.take() {
            self.synced = self.synced.max(upto);
        }
    }

    /// The process ended, or its machine: of what was not synced, some of the beginning is there.
    /// It is not synced for that.
    pub(crate) fn lose_unsynced(&mut self, keep_per_mille: u64, dice: &mut SeededRandom) -> u64 {
        let mut remaining = self.synced;
        while remaining < self.last() && dice.chance(keep_per_mille) {
            remaining += 1;
        }
        let lost = self.last() - remaining;
        if lost > 0 {
            self.cut(remaining + 1);
        }
        self.flight = None;
        lost
    }

    /// A start of this instance: what recovery found is synced before anything is said of it, and a
    /// log that is not the one of the hard state, or lacks what was noted, gives no vote from here
    /// on; nor does the disk of another instance.
    pub(crate) fn recover(&mut self, node: usize, drawn: u64) {
        self.synced = self.last();
        let is_another = self.whose.is_some_and(|whose| whose != node);
        if is_another {
            self.starts = Starts::default();
        }
        if is_another || self.forgot() || self.hard_state.is_older_than(self.last_place()) {
            self.hard_state = self.hard_state.forgotten();
        }
        self.whose = Some(node);
        self.incarnations = [drawn; 2];
        self.starts.begin(drawn);
    }

    /// Whether the log is not the one that the hard state made promises for.
    pub(crate) fn forgot(&self) -> bool {
        let [log, promised] = self.incarnations;
        log != promised || !self.held().has(&self.hard_state)
    }

    /// What a member finds when it starts.
    pub(crate) fn held(&self) -> RecoveredLog {
        let places = self.log.iter().map(Batch::place);
        let places = places.filter(|place| place.index > self.base.index).collect();
        let mut held = RecoveredLog { base: self.base, places, applied: self.base.index };
        // What is noted is owed, not had, while it may not vote.
        if self.hard_state.may_vote && held.has(&self.hard_state) {
            held.applied = self.hard_state.committed;
        }
        held
    }

    /// The log is gone, and what the member kept is there: `towline instance replace`.
    pub(crate) fn lose_log(&mut self) {
        let incarnations = [0, self.incarnations[1]];
        let starts = std::mem::take(&mut self.starts);
        let whose = self.whose;
        *self =
            Disk { hard_state: self.hard_state, incarnations, starts, whose, ..Disk::default() };
    }

    /// A part of it is that of an older copy.
    pub(crate) fn put_back(&mut self, of: &Disk, part: DiskPart) {
        let (log, state) = match part {
            DiskPart::Log => (of.clone(), &*self),
            DiskPart::HardState => (self.clone(), of),
            DiskPart::Folder => (of.clone(), of),
        };
        let incarnations = [log.incarnations[0], state.incarnations[1]];
        let hard_state = state.hard_state;
        let starts = state.starts.clone();
        let whose = state.whose;
        let synced = log.last();
        let flight = None;
        let rotten = false;
        *self = Disk { hard_state, starts, whose, incarnations, synced, flight, rotten, ..log };
    }

    /// Everything is gone, or (a log that is damaged, or is about to be replaced by a copy) all but
    /// what the member kept.
    pub(crate) fn wipe(&mut self, keeps_term: bool) {
        let HardState { term, vote, knows_term, .. } = self.hard_state.without_vote();
        let hard_state = match keeps_term {
            true => HardState { term, vote, knows_term, ..HardState::default() },
            false => HardState::default(),
        };
        let (starts, whose) = match keeps_term {
            true => (std::mem::take(&mut self.starts), self.whose),
            false => (Starts::default(), None),
        };
        *self = Disk { hard_state, starts, whose, ..Disk::default() };
    }

    /// Takes over all of a leader's but what it kept. It votes with that if it could with its own
    /// log, and the copy bears out what it promised.
    pub(crate) fn take_copy(&mut self, of: &Disk, kept_there: HardState) {
        let own = self.hard_state;
        let may_vote = own.is_borne_out_by(self.last_place(), of.last_place());
        let starts = std::mem::take(&mut self.starts);
        let whose = self.whose;
        let knows_term = own.has_newest_term();
        *self = of.clone();
        (self.synced, self.flight, self.rotten) = (self.last(), None, false);
        let committed = kept_there.committed;
        let committed_end = kept_there.committed_end;
        let hard_state = HardState { committed, committed_end, may_vote, knows_term, ..own };
        self.hard_state = hard_state.with_copy(of.last_place());
        (self.starts, self.whose) = (starts, whose);
        // It came without a number.
        self.incarnations = [0; 2];
    }

    pub(crate) fn page(&self, page: PageRef) -> Option<Bytes> {
        self.pages.get(&page.unit).cloned()
    }

    pub(crate) fn write_page(&mut self, content: Vec<u8>) -> PageRef {
        let bytes = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let page = PageRef { unit: self.next_unit, bytes, checksum: 0 };
        self.next_unit += page.units();
        self.pages.insert(page.unit, Bytes::from(content));
        page
    }

    pub(crate) fn drop_pages(&mut self, pages: &[PageRef]) {
        for page in pages {
            self.pages.remove(&page.unit);
        }
    }

    /// A member need not know the batches any more that end at or before `upto`.
    pub(crate) fn forget(&mut self, upto: Lsn) {
        let ended = self.log.partition_point(|batch| batch.end() <= upto);
        let newest = ended.checked_sub(1).and_then(|at| self.log.get(at)).map(Batch::place);
        if let Some(place) = newest.filter(|place| place.index > self.base.index) {
            self.base = place;
        }
    }

    /// No restart needs the bodies before `keep_from`.
    pub(crate) fn reclaim(&mut self, keep_from: Lsn) {
        let base = self.base.index;
        let free = |batch: &Batch| batch.end() <= keep_from && batch.index < base;
        while self.log.front().is_some_and(free) {
            self.log.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(batches: u64) -> Disk {
        let mut disk = Disk::default();
        for index in 1..=batches {
            let payload = Bytes::from(format!("payload {index}"));
            disk.push(Batch { index, term: 1, lsn: Lsn(index * 512), payload });
        }
        disk
    }

    #[test]
    fn what_is_synced_survives_and_of_the_rest_a_beginning() {
        for seed in 0..50 {
            let mut disk = disk(10);
            disk.synced = 4;
            let lost = disk.lose_unsynced(500, &mut SeededRandom::mixed(seed));
            assert!((4..=10).contains(&disk.last()), "seed {seed}");
            assert_eq!((disk.last() + lost, disk.synced), (10, 4), "seed {seed}");
        }
    }

    #[test]
    fn what_a_killed_process_wrote_is_lost_with_the_power_unless_recovery_synced_it() {
        let mut killed = disk(10);
        killed.synced = 4;
        killed.lose_unsynced(1_000, &mut SeededRandom::mixed(1));
        assert_eq!((killed.last(), killed.synced), (10, 4));
        let mut started = killed.clone();
        killed.lose_unsynced(0, &mut SeededRandom::mixed(1));
        assert_eq!(killed.last(), 4);
        started.recover(0, 1);
        started.lose_unsynced(0, &mut SeededRandom::mixed(1));
        assert_eq!(started.last(), 10);
    }

    #[test]
    fn a_log_that_is_lost_or_older_gives_no_vote_and_nor_does_one_with_an_older_hard_state() {
        let mut sound = disk(10);
        (sound.hard_state.may_vote, sound.hard_state.term) = (true, sound.last_place().term);
        sound.recover(0, 1);
        let older = sound.clone();
        sound.recover(0, 2);
        assert!(sound.hard_state.may_vote && !sound.forgot());
        let ways: [fn(&mut Disk, &Disk); 3] = [
            |disk, _| disk.lose_log(),
            |disk, older| disk.put_back(older, DiskPart::Log),
            |disk, older| disk.put_back(older, DiskPart::HardState),
        ];
        for way in ways {
            let mut disk = sound.clone();
            way(&mut disk, &older);
            assert!(disk.forgot() && disk.hard_state.may_vote, "it does not know yet");
            disk.recover(0, 3);
            assert!(!disk.hard_state.may_vote && !disk.forgot());
            assert!(!disk.hard_state.has_newest_term(), "which of both is older is not known");
            disk.recover(0, 4);
            assert!(
                !disk.hard_state.may_vote && !disk.hard_state.knows_term,
                "nor after another start"
            );
        }
    }

    #[test]
    fn a_sync_under_way_does_not_make_durable_what_was_cut_off_and_written_anew() {
        let mut disk = disk(5);
        disk.flight = Some(5);
        disk.cut(3);
        disk.push(Batch { index: 3, term: 2, lsn: Lsn(3 * 512), payload: Bytes::new() });
        disk.sync_done();
        assert_eq!((disk.last(), disk.synced), (3, 2));
    }

    #[test]
    fn a_body_is_found_by_its_position() {
        let disk = disk(3);
        let location = BodyLocation { lsn: Lsn(1_024 + 40 + 8), bytes: 1 };
        assert_eq!(disk.body(location), Some(Bytes::from_static(b"2")));
        let beyond = BodyLocation { bytes: 2, ..location };
        assert_eq!(disk.body(beyond), None);
    }

    #[test]
    fn forgotten_batches_stay_readable_until_they_are_reclaimed() {
        let mut disk = disk(6);
        disk.forget(Lsn(4 * 512));
        assert_eq!((disk.base.index, disk.held().places.len()), (3, 3));
        assert!(disk.batch(1).is_some());
        disk.reclaim(Lsn(6 * 512));
        assert!(disk.batch(2).is_none() && disk.batch(3).is_some());
    }
}
