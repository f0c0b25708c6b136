//! Deliveries that we sent and that have no final outcome, by delivery id.
//!
//! Ids are given out one by one, so young deliveries stand in a ring and are found by subtraction.
//! Old stragglers move to a tree, so that one forgotten delivery does not make the ring grow.
//!
//! Invariants: the ring covers the ids `base .. next` and never holds more than [`RING_SPARE`]
//! holes beyond four slots for each open delivery; ids are 64 bits wide here and 32 on the wire.

use std::collections::{BTreeMap, VecDeque};

use crate::event::Deliveries;

/// Holes that the ring may always have.
const RING_SPARE: usize = 1_024;

/// One delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Index of its link in the session.
    pub(crate) link: u16,
    /// The driver's name for it.
    pub(crate) key: u64,
    /// The driver has heard an outcome that did not settle it.
    pub(crate) reported: bool,
}

/// How many deliveries there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsettledCount {
    /// Sent, and not settled.
    pub open: usize,
    /// Settled, with a slot that is kept because an older one is open.
    pub holes: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    base: u64,
    ring: VecDeque<Option<Entry>>,
    live: usize,
    old: BTreeMap<u64, Entry>,
    /// Deliveries reported to the driver but not settled, by link and key.
    reported: BTreeMap<(u16, u64), u64>,
    /// By index: a link that ends is not searched for among the deliveries of all others.
    links: Vec<LinkIds>,
}

/// The open deliveries of one link.
#[derive(Debug, Default)]
struct LinkIds {
    /// Ascending; some may be closed.
    ids: VecDeque<u64>,
    open: usize,
}

/// Closed ids that a link may always have.
const CLOSED_SPARE: usize = 64;

impl LinkIds {
    fn close(&mut self, id: u64) {
        self.open = self.open.saturating_sub(1);
        if self.ids.front() == Some(&id) {
            self.ids.pop_front();
        }
        if self.open == 0 {
            self.ids.clear();
        }
    }
}

fn close_of(links: &mut [LinkIds], link: u16, id: u64) {
    if let Some(of) = links.get_mut(usize::from(link)) {
        of.close(id);
    }
}

impl Unsettled {
    pub(crate) fn count(&self) -> UnsettledCount {
        UnsettledCount { open: self.live + self.old.len(), holes: self.ring.len() - self.live }
    }

    fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// Gives out the next delivery id; `entry` is none for a delivery that is settled already.
    pub(crate) fn push(&mut self, entry: Option<Entry>) -> u32 {
        let id = self.next();
        match entry {
            None if self.ring.is_empty() => self.base += 1,
            None => self.ring.push_back(None),
            Some(entry) => {
                self.ring.push_back(Some(entry));
                self.live += 1;
                self.open(entry.link, id);
            }
        }
        self.trim();
        wire(id)
    }

    fn open(&mut self, link: u16, id: u64) {
        let index = usize::from(link);
        if self.links.len() <= index {
            self.links.resize_with(index + 1, LinkIds::default);
        }
        let Some(of) = self.links.get_mut(index) else { return };
        of.ids.push_back(id);
        of.open += 1;
        if of.ids.len() > CLOSED_SPARE + 2 * of.open {
            let mut ids = std::mem::take(&mut of.ids);
            ids.retain(|id| self.get(*id).is_some_and(|entry| entry.link == link));
            if let Some(of) = self.links.get_mut(index) {
                of.ids = ids;
            }
        }
    }

    fn get(&self, id: u64) -> Option<&Entry> {
        let offset = id.checked_sub(self.base).and_then(|offset| usize::try_from(offset).ok());
        match offset {
            Some(offset) => self.ring.get(offset)?.as_ref(),
            None => self.old.get(&id),
        }
    }

    /// Lets go the settled front of the ring, and moves stragglers out of it.
    fn trim(&mut self) {
        while let Some(front) = self.ring.front() {
            let sparse = self.ring.len() > RING_SPARE + self.live.saturating_mul(4);
            if front.is_some() && !sparse {
                break;
            }
            if let Some(Some(entry)) = self.ring.pop_front() {
                self.old.insert(self.base, entry);
                self.live -= 1;
            }
            self.base += 1;
        }
    }

    /// Hands open deliveries of a range of ids to `visit`, which says whether to keep
    /// them: so many at most. The range that is left, if there is one, begins with an open delivery
    /// and ends with what was sent. The work is bounded by what is open, not by the range.
    pub(crate) fn walk(
        &mut self,
        range: Deliveries,
        most: usize,
        mut visit: impl FnMut(&mut Entry) -> bool,
    ) -> Option<Deliveries> {
        let first = self.widen(range.first)?;
        // An end beyond what was sent is cut.
        let last = self.widen(range.last).unwrap_or(self.next().saturating_sub(1));
        if last < first {
            return None;
        }
        let mut left = most;
        let mut rest = None;
        let mut gone: Vec<(u64, u16)> = Vec::new();
        for (id, entry) in self.old.range_mut(first..=last) {
            if left == 0 {
                rest = Some(*id);
                break;
            }
            left -= 1;
            if !note(&mut self.reported, *id, entry, &mut visit) {
                gone.push((*id, entry.link));
            }
        }
        for (id, link) in gone {
            self.old.remove(&id);
            close_of(&mut self.links, link, id);
        }
        let start = usize::try_from(first.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let count = match last.checked_sub(self.base) {
            None => 0,
            Some(end) => usize::try_from(end).unwrap_or(usize::MAX).saturating_add(1),
        };
        let count = if rest.is_some() { 0 } else { count };
        let slots = self.ring.iter_mut().enumerate().take(count).skip(start);
        for (offset, slot) in slots {
            let Some(entry) = slot else { continue };
            let id = self.base + offset as u64;
            if left == 0 {
                rest = Some(id);
                break;
            }
            left -= 1;
            if !note(&mut self.reported, id, entry, &mut visit) {
                close_of(&mut self.links, entry.link, id);
                *slot = None;
                self.live -= 1;
            }
        }
        self.trim();
        rest.map(|rest| Deliveries { first: wire(rest), last: wire(last) })
    }

    /// Forgets the delivery of this link and key; its wire id when it was open.
    pub(crate) fn settle(&mut self, link: u16, key: u64) -> Option<u32> {
        let id = match self.reported.remove(&(link, key)) {
            Some(id) => id,
            None => self.find(link, key)?,
        };
        if self.old.remove(&id).is_none() {
            let offset = usize::try_from(id.checked_sub(self.base)?).ok()?;
            self.ring.get_mut(offset)?.take()?;
            self.live -= 1;
            self.trim();
        }
        close_of(&mut self.links, link, id);
        Some(wire(id))
    }

    /// The outcome that the driver heard of this delivery came to nothing: it hears the next one.
    pub(crate) fn reopen(&mut self, link: u16, key: u64) {
        let Some(id) = self.reported.remove(&(link, key)) else { return };
        let entry = match self.old.get_mut(&id) {
            Some(entry) => Some(entry),
            None => {
                let offset = id.checked_sub(self.base).and_then(|offset| offset.try_into().ok());
                offset.and_then(|offset: usize| self.ring.get_mut(offset)?.as_mut())
            }
        };
        if let Some(entry) = entry {
            entry.reported = false;
        }
    }

    fn find(&self, link: u16, key: u64) -> Option<u64> {
        let matches = |entry: &Entry| entry.link == link && entry.key == key;
        let in_ring = self.ring.iter().position(|slot| slot.as_ref().is_some_and(matches));
        match in_ring {
            Some(offset) => Some(self.base + offset as u64),
            None => self.old.iter().find(|(_, entry)| matches(entry)).map(|(id, _)| *id),
        }
    }

    /// Forgets all deliveries of a link.
    pub(crate) fn forget_link(&mut self, link: u16) {
        let Some(of) = self.links.get_mut(usize::from(link)) else { return };
        for id in std::mem::take(of).ids {
            if self.get(id).is_none_or(|entry| entry.link != link) {
                continue;
            }
            let entry = match id.checked_sub(self.base).map(usize::try_from) {
                Some(offset) => {
                    self.live -= 1;
                    offset.ok().and_then(|offset| self.ring.get_mut(offset)?.take())
                }
                None => self.old.remove(&id),
            };
            if let Some(entry) = entry.filter(|entry| entry.reported) {
                self.reported.remove(&(link, entry.key));
            }
        }
        self.trim();
    }

    /// The id that was given out for this wire id; none when it lies ahead.
    fn widen(&self, id: u32) -> Option<u64> {
        let next = self.next();
        let behind = wire(next).wrapping_sub(id);
        if behind == 0 || behind > u32::MAX / 2 {
            return None;
        }
        next.checked_sub(u64::from(behind))
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> (usize, usize) {
        (self.ring.len(), self.old.len())
    }
}

/// Visits one delivery and keeps the index of reported ones true.
fn note(
    reported: &mut BTreeMap<(u16, u64), u64>,
    id: u64,
    entry: &mut Entry,
    visit: &mut impl FnMut(&mut Entry) -> bool,
) -> bool {
    let before = entry.reported;
    let kept = visit(entry);
    if before && !kept {
        reported.remove(&(entry.link, entry.key));
    } else if !before && kept && entry.reported {
        reported.insert((entry.link, entry.key), id);
    }
    kept
}

/// The low 32 bits.
fn wire(id: u64) -> u32 {
    let [_, _, _, _, a, b, c, d] = id.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: u64) -> Entry {
        Entry { link: 0, key, reported: false }
    }

    fn settled_by(unsettled: &mut Unsettled, first: u32, last: u32) -> Vec<u64> {
        let mut keys = Vec::new();
        let rest = unsettled.walk(Deliveries { first, last }, usize::MAX, |entry| {
            keys.push(entry.key);
            false
        });
        assert_eq!(rest, None);
        keys
    }

    #[test]
    fn a_range_reaches_what_is_open_in_it_and_nothing_else() {
        let mut unsettled = Unsettled::default();
        for key in 0..10 {
            unsettled.push((key % 3 != 0).then_some(entry(key)));
        }
        assert_eq!(settled_by(&mut unsettled, 2, 5), [2, 4, 5]);
        assert_eq!(settled_by(&mut unsettled, 0, u32::MAX / 2), [1, 7, 8]);
        assert_eq!(unsettled.slots(), (0, 0));
    }

    #[test]
    fn a_link_that_ends_costs_no_walk_over_the_deliveries_of_others() {
        const LINKS: u16 = 500;
        let mut unsettled = Unsettled::default();
        let mut key = 0;
        for _ in 0..20 {
            for link in 0..LINKS {
                unsettled.push(Some(Entry { link, key, reported: false }));
                key += 1;
            }
        }
        // In and out of order, and a straggler in the tree.
        for key in (0..u64::from(LINKS) * 10).rev().filter(|key| key % 3 > 0 && key % 500 != 7) {
            assert!(unsettled.settle(u16::try_from(key % 500).unwrap(), key).is_some());
        }
        for link in 0..LINKS {
            let open = unsettled.links[usize::from(link)].open;
            let known = unsettled.links[usize::from(link)].ids.len();
            assert!(known <= CLOSED_SPARE + 2 * open + 20, "{known} for {open}");
            let before = unsettled.live + unsettled.old.len();
            unsettled.forget_link(link);
            assert_eq!(before - unsettled.live - unsettled.old.len(), open);
        }
        assert_eq!((unsettled.slots(), unsettled.live), ((0, 0), 0));
        assert!(unsettled.reported.is_empty());
    }

    #[test]
    fn the_ids_of_a_link_stay_few_whatever_is_settled_first() {
        let mut unsettled = Unsettled::default();
        unsettled.push(Some(entry(0)));
        for key in 1..10_000 {
            unsettled.push(Some(entry(key)));
            assert!(unsettled.settle(0, key).is_some());
        }
        assert!(unsettled.links[0].ids.len() <= CLOSED_SPARE + 4);
    }

    #[test]
    fn a_long_range_is_walked_in_parts_and_reaches_nothing_that_was_sent_meanwhile() {
        let mut unsettled = Unsettled::default();
        // A straggler, a hole in a ring, and more.
        unsettled.push(Some(entry(0)));
        for key in 1..3_000 {
            unsettled.push((key > 2_000).then_some(entry(key)));
        }
        let all = Deliveries { first: 0, last: u32::MAX / 2 };
        let (mut range, mut keys, mut parts) = (Some(all), Vec::new(), 0);
        while let Some(part) = range {
            let before = keys.len();
            range = unsettled.walk(part, 300, |entry| {
                keys.push(entry.key);
                false
            });
            assert!(keys.len() - before <= 300);
            parts += 1;
            unsettled.push(Some(entry(9_000)));
        }
        assert_eq!(keys, std::iter::once(0).chain(2_001..3_000).collect::<Vec<u64>>());
        assert_eq!(parts, 4);
    }

    #[test]
    fn a_forgotten_delivery_does_not_make_the_ring_grow() {
        let mut unsettled = Unsettled::default();
        unsettled.push(Some(entry(7)));
        for key in 100..50_000 {
            let id = unsettled.push(Some(entry(key)));
            assert_eq!(settled_by(&mut unsettled, id, id), [key]);
        }
        let (ring, old) = unsettled.slots();
        assert!(ring <= RING_SPARE + 8 && old == 1, "{ring} slots, {old} stragglers");
        assert_eq!(settled_by(&mut unsettled, 0, 0), [7]);
    }

    #[test]
    fn ids_go_on_after_the_wire_id_wrapped() {
        let mut unsettled = Unsettled { base: u64::from(u32::MAX) - 1, ..Unsettled::default() };
        let ids: Vec<u32> = (0..4).map(|key| unsettled.push(Some(entry(key)))).collect();
        assert_eq!(ids, [u32::MAX - 1, u32::MAX, 0, 1]);
        assert_eq!(settled_by(&mut unsettled, u32::MAX, 0), [1, 2]);
    }

    #[test]
    fn an_id_that_was_never_given_out_reaches_nothing() {
        let mut unsettled = Unsettled::default();
        unsettled.push(Some(entry(1)));
        assert_eq!(settled_by(&mut unsettled, 1, 5), []);
        assert_eq!(settled_by(&mut unsettled, 9, 2), []);
        assert_eq!(unsettled.slots(), (1, 0));
    }

    #[test]
    fn a_reported_delivery_is_settled_by_its_key() {
        let mut unsettled = Unsettled::default();
        unsettled.push(Some(entry(4)));
        unsettled.push(Some(entry(5)));
        unsettled.walk(Deliveries { first: 1, last: 1 }, 9, |entry| {
            entry.reported = true;
            true
        });
        assert_eq!(unsettled.settle(0, 5), Some(1));
        assert_eq!(unsettled.settle(0, 5), None);
        assert_eq!(unsettled.settle(0, 4), Some(0));
        assert_eq!(unsettled.slots(), (0, 0));
    }

    #[test]
    fn a_reopened_delivery_is_reported_again() {
        let mut unsettled = Unsettled::default();
        unsettled.push(Some(entry(4)));
        for _ in 0..2 {
            let mut reported = Vec::new();
            unsettled.walk(Deliveries { first: 0, last: 0 }, 9, |entry| {
                reported.push(std::mem::replace(&mut entry.reported, true));
                true
            });
            assert_eq!(reported, [false]);
            unsettled.reopen(0, 4);
            unsettled.reopen(0, 5);
        }
        assert_eq!(unsettled.settle(0, 4), Some(0));
    }
}
