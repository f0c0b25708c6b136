//! Lanes and the key index against naive models.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use proptest::prelude::*;
use towline_types::Time;

use super::block::BLOCK_ENTRIES;
use super::*;
use crate::FilterKey;

fn entry(sequence: u64) -> Entry {
    Entry {
        sequence,
        expires_at: Time::NEVER,
        put_at: Time(0),
        correlation_hash: sequence % 5,
        message_id_hash: sequence,
        group: 0,
        place: EntryBody::NOWHERE,
        backout_count: 0,
        state: EntryState::Available,
        priority: 4,
        persistent: true,
        marks: Marks::of(false),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append { gap: u64 },
    InsertBefore { back: u64 },
    Remove(prop::sample::Index),
    Hold(prop::sample::Index),
    Free(prop::sample::Index),
    First,
    RemoveFront(usize),
    Evict,
    Load(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (1..4_u64).prop_map(|gap| Step::Append { gap }),
        1 => (1..600_u64).prop_map(|back| Step::InsertBefore { back }),
        3 => index().prop_map(Step::Remove),
        3 => index().prop_map(Step::Hold),
        2 => index().prop_map(Step::Free),
        2 => Just(Step::First),
        1 => (1..300_usize).prop_map(Step::RemoveFront),
        2 => Just(Step::Evict),
        2 => index().prop_map(Step::Load),
    ]
}

fn nth(model: &BTreeMap<u64, EntryState>, at: &prop::sample::Index) -> Option<u64> {
    (!model.is_empty()).then(|| *model.keys().nth(at.index(model.len())).unwrap())
}

/// A lane and the pages of its blocks that are away, by first sequence.
#[derive(Debug)]
struct Paged {
    lane: Lane,
    pages: BTreeMap<u64, Vec<u8>>,
    units: u32,
    /// First sequences of blocks that were named as ones that may leave, or were read from a page.
    may_leave: BTreeSet<u64>,
}

impl Paged {
    fn new() -> Paged {
        let lane = Lane::new(Arc::default());
        Paged { lane, pages: BTreeMap::new(), units: 0, may_leave: BTreeSet::new() }
    }

    /// All blocks that can leave do.
    fn evict(&mut self) {
        for at in 0..self.lane.blocks().len() {
            let block = &self.lane.blocks()[at];
            if !block.can_leave() {
                continue;
            }
            let mut bytes = Vec::new();
            let outline = page::encode(block.sheet().unwrap(), EXTENT_BYTES, &mut bytes);
            let mut outline = outline.unwrap();
            outline.page.unit = self.units;
            self.units += 1;
            self.pages.insert(outline.first, bytes);
            let (first, version, current) = (block.first, block.version, block.current);
            let stored = self.lane.page_stored(first, version, Arc::new(outline));
            assert_eq!(stored, !current, "a page of what a block holds is taken once");
            self.lane.send_away(at);
        }
    }

    /// Reads the page of a block if it is away.
    fn load(&mut self, at: usize) {
        let block = &self.lane.blocks()[at];
        if !block.is_here() {
            self.may_leave.insert(block.first);
            let sheet = page::decode(&self.pages[&block.first]).unwrap();
            self.lane.bring_in(at, sheet);
        }
    }

    fn insert(&mut self, sequence: u64) {
        self.may_leave.extend(self.lane.insert(entry(sequence), None).iter().flatten());
    }

    /// Does this walk again and again, reading each page that it needs.
    fn walk(&mut self, mut walk: impl FnMut(&mut Lane) -> Walk) -> Option<u64> {
        loop {
            match walk(&mut self.lane) {
                Walk::At(at) => return Some(self.lane.entry(at).sequence),
                Walk::OnPage(at) => self.load(at),
                Walk::End => return None,
            }
        }
    }

    /// The position of a live entry, its page read if need be.
    fn find(&mut self, sequence: u64) -> Option<LanePosition> {
        self.walk(|lane| lane.find(sequence))?;
        self.lane.find(sequence).found()
    }

    /// Reads what must be here before an entry can be inserted; as `Queue::away_at`.
    fn make_place(&mut self, sequence: u64) {
        let newest = self.lane.blocks().back().and_then(Block::last);
        if newest.is_some_and(|newest| newest >= sequence) {
            let at = self.lane.block_for(sequence).unwrap();
            self.load(at);
        }
    }
}

const EXTENT_BYTES: u64 = 1 << 20;

/// A block that is not the newest is known as one that may leave.
fn check_candidates(lane: &Lane, may_leave: &BTreeSet<u64>) {
    let blocks = lane.blocks();
    for block in blocks.iter().take(blocks.len().saturating_sub(1)) {
        let walked = block.came_in > 0 || block.stored.is_some();
        assert!(
            walked || may_leave.contains(&block.first),
            "it is in no list of blocks that may leave"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_lane_is_an_ordered_map(steps in prop::collection::vec(step(), 1..1200)) {
        let mut paged = Paged::new();
        let mut model: BTreeMap<u64, EntryState> = BTreeMap::new();
        let mut next = 1_000;
        for step in steps {
            match step {
                Step::Append { gap } => {
                    next += gap;
                    paged.insert(next);
                    model.insert(next, EntryState::Available);
                }
                Step::InsertBefore { back } => {
                    let sequence = next - back;
                    if let btree_map::Entry::Vacant(place) = model.entry(sequence) {
                        paged.make_place(sequence);
                        paged.insert(sequence);
                        place.insert(EntryState::Available);
                    }
                }
                Step::Remove(at) => {
                    if let Some(sequence) = nth(&model, &at) {
                        let position = paged.find(sequence).unwrap();
                        prop_assert_eq!(paged.lane.remove(position).0.sequence, sequence);
                        model.remove(&sequence);
                        prop_assert_eq!(paged.lane.find(sequence), Walk::End);
                    }
                }
                Step::Hold(at) | Step::Free(at) => {
                    if let Some(sequence) = nth(&model, &at) {
                        let state = match step {
                            Step::Hold(_) => EntryState::Held,
                            _ => EntryState::Available,
                        };
                        let position = paged.find(sequence).unwrap();
                        paged.lane.set_state(position, state);
                        model.insert(sequence, state);
                    }
                }
                Step::First => {
                    let found = paged.walk(Lane::first_available);
                    let wanted = model.iter().find(|(_, state)| **state == EntryState::Available);
                    prop_assert_eq!(found, wanted.map(|(sequence, _)| *sequence));
                }
                Step::RemoveFront(count) => {
                    for _ in 0..count {
                        let Some(sequence) = model.keys().next().copied() else { break };
                        let position = paged.find(sequence).unwrap();
                        paged.lane.remove(position);
                        model.remove(&sequence);
                    }
                }
                Step::Evict => paged.evict(),
                Step::Load(_) if paged.lane.blocks().is_empty() => {}
                Step::Load(at) => paged.load(at.index(paged.lane.blocks().len())),
            }
            prop_assert_eq!(paged.lane.live(), model.len());
            paged.lane.audit();
        }
        check_candidates(&paged.lane, &paged.may_leave);
        for from in (900..next + 2).step_by(7) {
            let live = paged.walk(|lane| lane.next_live(from));
            prop_assert_eq!(live, model.range(from..).next().map(|(sequence, _)| *sequence));
        }
        for at in 0..paged.lane.blocks().len() {
            paged.load(at);
        }
        paged.lane.audit();
        let all: Vec<u64> = paged.lane.iter().map(|entry| entry.sequence).collect();
        prop_assert_eq!(all, model.keys().copied().collect::<Vec<_>>());
    }

    #[test]
    fn a_filter_of_keys_never_excludes_one_that_is_there(
        hashes in prop::collection::vec((1..=u64::MAX, 1..=u64::MAX), 1..=256),
        others in prop::collection::vec(any::<u64>(), 1..200),
        kinds in 0..3_u8,
    ) {
        let entries: Vec<Entry> = hashes
            .iter()
            .zip(1..)
            .map(|((correlation, id), sequence)| Entry {
                correlation_hash: *correlation,
                message_id_hash: *id,
                ..entry(sequence)
            })
            .collect();
        let kinds_of = KeyKinds { correlation: kinds != 1, message_id: kinds != 0 };
        let filter = keys::KeyFilter::of(&entries, kinds_of).unwrap();
        for (correlation, id) in &hashes {
            prop_assert!(!filter.excludes(FilterKey::Correlation(*correlation)));
            prop_assert!(!filter.excludes(FilterKey::MessageId(*id)));
        }
        for other in others {
            // A kind that it does not know is never excluded.
            prop_assert!(kinds != 1 || !filter.excludes(FilterKey::Correlation(other)));
            prop_assert!(kinds != 0 || !filter.excludes(FilterKey::MessageId(other)));
        }
        prop_assert!(keys::KeyFilter::of(&entries, KeyKinds::default()).is_none());
    }
}

/// Like the hash of an id: each bit depends on all of it (the end of SplitMix64).
fn mixed(number: u64) -> u64 {
    let once = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let twice = (once ^ once >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    twice ^ twice >> 31
}

#[test]
fn a_filter_of_keys_excludes_nearly_all_others() {
    let entries: Vec<Entry> =
        (1..=256_u64).map(|n| Entry { correlation_hash: mixed(n), ..entry(n) }).collect();
    let filter = keys::KeyFilter::of(&entries, KeyKinds::of(FilterKey::Correlation(0))).unwrap();
    let wrong = (1_000..101_000_u64)
        .filter(|n| !filter.excludes(FilterKey::Correlation(mixed(*n))))
        .count();
    assert!(wrong < 500, "one in four hundred, or less: {wrong} of 100,000");
}

#[test]
fn memory_of_a_lane_follows_its_depth_and_a_shallow_one_stays_in_one_block() {
    let mut lane = Lane::new(Arc::default());
    for sequence in 1..100_000_u64 {
        lane.insert(entry(sequence), None);
        if sequence > 3 {
            lane.remove(lane.find(sequence - 3).found().unwrap());
        }
    }
    assert_eq!(lane.live(), 3);
    assert_eq!(lane.blocks().len(), 1);
    for sequence in 100_000..110_000_u64 {
        lane.insert(entry(sequence), None);
    }
    assert!(lane.blocks().len() >= 10_000 / BLOCK_ENTRIES);
    for sequence in (99_997..110_000).rev() {
        lane.remove(lane.find(sequence).found().unwrap());
    }
    assert_eq!((lane.live(), lane.blocks().len()), (0, 1));
    lane.audit();
}

#[test]
fn the_index_yields_messages_of_a_key_in_order_of_delivery() {
    let mut index = KeyIndex::default();
    let key = FilterKey::Correlation(7);
    let entries: Vec<Entry> =
        (1..=4).map(|sequence| Entry { correlation_hash: 7, ..entry(sequence) }).collect();
    let kinds = KeyKinds::of(key);
    for (lane, entry) in [4, 4, 9, 0].into_iter().zip(&entries) {
        index.add(Rank::new(lane, entry.sequence), entry.hashes(), kinds);
    }
    let mut order = Vec::new();
    let mut from = Rank::FIRST;
    while let Some(rank) = index.next(key, from) {
        order.push((rank.lane(), rank.sequence()));
        from = rank.after();
    }
    assert_eq!(order, [(9, 3), (4, 1), (4, 2), (0, 4)]);
    index.remove(Rank::new(4, 1), entries[0].hashes(), kinds);
    assert_eq!(index.next(key, Rank::new(4, 1)).map(Rank::sequence), Some(2));
    assert_eq!(index.next(FilterKey::Correlation(6), Rank::FIRST), None, "7 is another key");
    assert_eq!(index.next(FilterKey::MessageId(7), Rank::FIRST), None);
    assert_eq!((index.give_up(2), index.give_up(2)), (2, 1), "bit by bit");
}
