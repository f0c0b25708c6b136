//! Lanes and the key index against naive models.

use std::collections::BTreeMap;
use std::collections::btree_map;

use proptest::prelude::*;
use towline_types::{BodyLocation, Time};

use super::block::BLOCK_ENTRIES;
use super::*;

fn entry(sequence: u64) -> Entry {
    Entry {
        sequence,
        expires_at: Time::NEVER,
        put_at: Time(0),
        correlation_hash: sequence % 5,
        message_id_hash: sequence,
        place: Place::Log(BodyLocation::default()),
        backout_count: 0,
        state: State::Available,
        priority: 4,
        persistent: true,
        extra: false,
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
    ]
}

fn nth(model: &BTreeMap<u64, State>, at: &prop::sample::Index) -> Option<u64> {
    (!model.is_empty()).then(|| *model.keys().nth(at.index(model.len())).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_lane_is_an_ordered_map(steps in prop::collection::vec(step(), 1..1200)) {
        let mut lane = Lane::new(Arc::default());
        let mut model: BTreeMap<u64, State> = BTreeMap::new();
        let mut next = 1_000;
        for step in steps {
            match step {
                Step::Append { gap } => {
                    next += gap;
                    lane.insert(entry(next), None);
                    model.insert(next, State::Available);
                }
                Step::InsertBefore { back } => {
                    let sequence = next - back;
                    if let btree_map::Entry::Vacant(place) = model.entry(sequence) {
                        lane.insert(entry(sequence), None);
                        place.insert(State::Available);
                    }
                }
                Step::Remove(at) => {
                    if let Some(sequence) = nth(&model, &at) {
                        let position = lane.find(sequence).found().unwrap();
                        prop_assert_eq!(lane.remove(position).0.sequence, sequence);
                        model.remove(&sequence);
                        prop_assert_eq!(lane.find(sequence), Walk::End);
                    }
                }
                Step::Hold(at) | Step::Free(at) => {
                    if let Some(sequence) = nth(&model, &at) {
                        let state = match step {
                            Step::Hold(_) => State::Held,
                            _ => State::Available,
                        };
                        lane.set_state(lane.find(sequence).found().unwrap(), state);
                        model.insert(sequence, state);
                    }
                }
                Step::First => {
                    let found = lane.first_available().found().map(|at| lane.entry(at).sequence);
                    let wanted = model.iter().find(|(_, state)| **state == State::Available);
                    prop_assert_eq!(found, wanted.map(|(sequence, _)| *sequence));
                }
                Step::RemoveFront(count) => {
                    for _ in 0..count {
                        let Some(sequence) = model.keys().next().copied() else { break };
                        let position = lane.find(sequence).found().unwrap();
                        lane.remove(position);
                        model.remove(&sequence);
                    }
                }
            }
            prop_assert_eq!(lane.live(), model.len());
        }
        lane.audit();
        let all: Vec<u64> = lane.iter().map(|entry| entry.sequence).collect();
        prop_assert_eq!(all, model.keys().copied().collect::<Vec<_>>());
        for from in (900..next + 2).step_by(7) {
            let live = lane.next_live(from).found().map(|at| lane.entry(at).sequence);
            prop_assert_eq!(live, model.range(from..).next().map(|(sequence, _)| *sequence));
        }
    }
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
    index.cover(key, [(4_u8, &entries[0]), (4, &entries[1])].into_iter());
    index.add(Rank::new(9, 3), entries[2].hashes());
    index.add(Rank::new(0, 4), entries[3].hashes());
    let mut order = Vec::new();
    let mut from = Rank::FIRST;
    while let Some(rank) = index.next(key, from) {
        order.push((rank.lane(), rank.sequence()));
        from = rank.after();
    }
    assert_eq!(order, [(9, 3), (4, 1), (4, 2), (0, 4)]);
    index.remove(Rank::new(4, 1), entries[0].hashes());
    assert_eq!(index.next(key, Rank::new(4, 1)).map(Rank::sequence), Some(2));
    assert!(!index.covers(FilterKey::MessageId(1)));
}
