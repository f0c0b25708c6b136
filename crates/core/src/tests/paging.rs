//! Deep queues: a consumer that needs a page gets it, whatever happens meanwhile; pages say what
//! they should.

use std::time::Duration;

use proptest::prelude::*;
use towline_types::{Lsn, Time};

use super::rig::{CLIENT, Rig, first_byte, message, persistent, spec};
use crate::object::ObjectType;
use crate::{
    ConsumerId, ConsumerMode, ConsumerSpec, Effect, FilterKey, Limits, NewMessage, Outcome,
    RelocationCursor, RelocationSearch, Unreadable,
};

/// A queue of so many messages, of which all but the newest block is away.
fn deep(count: u64) -> Rig {
    deep_with(count, |_| persistent("x"))
}

fn deep_with(count: u64, message: impl Fn(u64) -> NewMessage) -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    for number in 0..count {
        rig.put_with("Q", message(number)).unwrap();
    }
    rig.dispatch();
    rig.evict();
    rig
}

fn numbered(number: u64) -> NewMessage {
    persistent(&format!("{number:04}"))
}

fn wanted(numbers: impl Iterator<Item = u64>) -> Vec<String> {
    numbers.map(|number| format!("{number:04}")).collect()
}

impl Rig {
    /// All pages that are not in memory are read, as by a walk through all messages.
    pub(crate) fn read_all(&mut self) {
        let mut cursor = RelocationCursor::default();
        loop {
            match self.core.find_old(Lsn(u64::MAX), &mut cursor, 1_000, &mut Vec::new()) {
                RelocationSearch::Needs(request) => self.arrive(request),
                RelocationSearch::More => {}
                RelocationSearch::All => break,
            }
        }
    }
}

#[test]
fn a_page_that_a_search_for_old_messages_left_unread_is_asked_for_by_the_consumer_that_needs_it() {
    let mut rig = deep_with(40, numbered);
    let mut found = Vec::new();
    let mut cursor = RelocationCursor::default();
    let step = rig.core.find_old(Lsn(u64::MAX), &mut cursor, 10, &mut found);
    assert!(matches!(step, RelocationSearch::Needs(_)), "{step:?}");
    // The search gave up: the log has no space for what it would carry forward.
    rig.consumer("Q", 100);
    assert_eq!(rig.delivered(), wanted(0..40));
    rig.core.audit();
}

#[test]
fn a_page_of_a_queue_that_was_cleared_may_hold_anything_by_now() {
    let mut rig = deep(40);
    let browse = ConsumerSpec { mode: ConsumerMode::Browse, ..spec("Q") };
    let browser = rig.open_get(&browse).unwrap();
    rig.core.set_credit(browser, 100, false);
    rig.serve();
    rig.take_outputs();
    let requests = std::mem::take(&mut rig.loads);
    assert!(!requests.is_empty() && rig.core.needs_page(requests[0]));
    rig.close(browser, false);
    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
    rig.carry_out();
    for request in requests {
        assert!(!rig.core.needs_page(request));
        rig.core.page_arrived(request, b"another page lies here now").unwrap();
    }
    assert_eq!((rig.depth("Q"), rig.shares().len()), (0, 0));
    rig.core.audit();
}

#[test]
fn a_consumer_whose_page_was_given_up_looks_again() {
    let mut rig = deep_with(40, numbered);
    rig.consumer("Q", 100);
    let got = rig.dispatch();
    assert_eq!(got.len(), 40);
    for delivery in &got {
        rig.settle(delivery, Outcome::Released);
    }
    rig.close(got[0].consumer, false);
    rig.evict();
    let filter = first_byte(b'0', None);
    let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, 100, false);
    rig.serve();
    rig.take_outputs();
    let requests = std::mem::take(&mut rig.loads);
    // Another reader has the blocks read, they change, are written elsewhere and leave again.
    rig.read_all();
    rig.deliveries.clear();
    for request in requests {
        rig.core.page_arrived(request, b"").unwrap();
    }
    assert_eq!(rig.delivered(), wanted(0..40));
}

#[test]
fn a_block_that_was_asked_for_stays_for_a_while_however_full_memory_is() {
    let mut rig = deep(80);
    let request = match rig.core.find_old(
        Lsn(u64::MAX),
        &mut RelocationCursor::default(),
        1,
        &mut Vec::new(),
    ) {
        RelocationSearch::Needs(request) => request,
        other => panic!("{other:?}"),
    };
    rig.arrive(request);
    rig.arrive(request);
    assert!(rig.core.plan_eviction(64).jobs.is_empty());
    assert!(!rig.core.needs_page(request), "it is still here");
    rig.evict();
    assert!(rig.core.needs_page(request), "all the same it can leave");
    rig.core.audit();
}

#[test]
fn a_scan_for_expired_messages_ends_though_each_page_leaves_at_once() {
    let due = Time(2_000_000_000);
    let mut rig = deep_with(80, |number| {
        let expires_at = (number % 3 != 0).then_some(due);
        NewMessage { expires_at, ..numbered(number) }
    });
    rig.tick();
    rig.now = due + Duration::from_secs(300);
    let mut rounds = 0;
    while rig.core.next_tick() <= rig.now || !rig.loads.is_empty() {
        rounds += 1;
        assert!(rounds < 50, "the scan goes on");
        rig.tick();
        rig.dispatch_in_no_memory();
    }
    assert_eq!(rig.depth("Q"), 27);
    assert_eq!(rig.browse("Q"), wanted((0..80).filter(|number| number % 3 == 0)));
    rig.core.audit();
}

#[test]
fn a_scan_reads_no_page_on_which_nothing_expired() {
    let due = Time(2_000_000_000);
    let mut rig = deep_with(160, |number| {
        let expires_at = (number / 8 == 11).then_some(due);
        NewMessage { expires_at, ..numbered(number) }
    });
    rig.tick();
    rig.now = due + Duration::from_secs(300);
    rig.tick();
    assert_eq!(rig.loads.len(), 1, "{:?}", rig.loads);
    rig.dispatch_in_no_memory();
    while rig.core.next_tick() <= rig.now {
        rig.tick();
    }
    assert_eq!((rig.depth("Q"), rig.loads_read), (152, 1));
}

#[test]
fn a_scan_whose_queue_was_deleted_meanwhile_goes_on_with_the_others() {
    let due = Time(2_000_000_000);
    let mut rig = Rig::new();
    for name in ["Q", "R"] {
        rig.define(name);
        for number in 0..40 {
            let message = NewMessage { expires_at: Some(due), ..numbered(number) };
            rig.put_with(name, message).unwrap();
        }
    }
    rig.dispatch();
    rig.evict();
    rig.tick();
    rig.now = due + Duration::from_secs(300);
    rig.tick();
    let waits_for = rig.loads[0].key.queue;
    let name = ["Q", "R"].into_iter().find(|name| rig.status(name).queue == waits_for).unwrap();
    rig.core.delete(rig.now, name, ObjectType::Local, true, &mut rig.decision).unwrap();
    rig.carry_out();
    let mut rounds = 0;
    while rig.core.next_tick() <= rig.now || !rig.loads.is_empty() {
        rounds += 1;
        assert!(rounds < 50, "the scan goes on");
        rig.tick();
        rig.dispatch_in_no_memory();
    }
    let other = if name == "Q" { "R" } else { "Q" };
    assert_eq!(rig.depth(other), 0);
    rig.core.audit();
}

fn keyed(rig: &mut Rig, byte: u8, hash: u64, credit: u32) -> ConsumerId {
    let filter = first_byte(byte, Some(FilterKey::Correlation(hash)));
    let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, credit, false);
    id
}

#[test]
fn a_search_for_a_key_reads_each_page_once_and_the_next_one_only_what_may_hold_it() {
    let hash = |number: u64| ((number + 1) << 32) | (number * 7_919);
    let mut rig =
        deep_with(160, |number| NewMessage { correlation_hash: hash(number), ..numbered(number) });
    let id = keyed(&mut rig, b'0', hash(150), 1);
    let found = rig.dispatch_in_no_memory();
    assert_eq!(found.len(), 1);
    assert!(rig.loads_read <= 20, "each page once: {}", rig.loads_read);
    rig.settle(&found[0], Outcome::Accepted);
    rig.close(id, false);
    rig.evict();
    rig.loads_read = 0;
    keyed(&mut rig, b'0', hash(80), 1);
    let found = rig.dispatch_in_no_memory();
    assert_eq!(found.len(), 1);
    assert!(rig.loads_read <= 3, "filters tell which page it is: {}", rig.loads_read);
    rig.core.audit();
}

#[test]
fn a_queue_is_deleted_with_messages_that_are_away() {
    let mut rig = deep(100);
    rig.core.delete(rig.now, "Q", ObjectType::Local, true, &mut rig.decision).unwrap();
    rig.carry_out();
    assert!(rig.shares().is_empty(), "no message needs their bodies");
    let pages = rig.core.take_obsolete_pages();
    assert_eq!(pages.len(), rig.pages.len(), "nor their pages");
    rig.core.audit();
}

#[test]
fn a_message_that_is_away_is_carried_forward_in_its_place() {
    let limits = Limits { extent_bytes: 100, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.define("Q");
    for number in 0..100 {
        rig.put_with("Q", numbered(number)).unwrap();
    }
    let image = rig.image();
    let before_image = rig.durable;
    rig.evict();
    let before = Lsn(700);
    let mut cursor = RelocationCursor::default();
    let mut found = Vec::new();
    let mut carried = 0;
    loop {
        let step = rig.core.find_old(before, &mut cursor, 10, &mut found);
        for (queue, sequence, body) in found.drain(..) {
            let content = bytes::Bytes::from(rig.cold.content(&body));
            let content = towline_types::Payload::from(content);
            if rig.core.relocate(queue, sequence, content, &mut rig.decision) {
                carried += 1;
                rig.instant = carried % 3 == 0;
                rig.carry_out();
            }
        }
        match step {
            RelocationSearch::More => {}
            RelocationSearch::Needs(request) => {
                rig.evict();
                rig.arrive(request);
            }
            RelocationSearch::All => break,
        }
    }
    rig.instant = true;
    rig.sync();
    assert!(carried > 10, "{carried}");
    let oldest = rig.shares().into_keys().next().unwrap();
    assert!(oldest >= 7, "extents 0 to 6 can be used again: {oldest}");
    rig.core.audit();
    rig.evict();
    assert_eq!(rig.browse("Q"), wanted(0..100));
    for again in [
        rig.restart_whole(&image, before_image, rig.log.len()),
        rig.restart(Some((&image, before_image)), rig.log.len()),
    ] {
        let mut again = again;
        assert_eq!(again.shares(), rig.shares());
        assert_eq!(again.browse("Q"), wanted(0..100));
        again.core.audit();
    }
}

/// How a consumer of the property test looks for messages.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Filter,
    Key,
    Browse,
}

#[derive(Clone, Debug)]
enum Step {
    Put { count: u64, priority: u8, byte: u8, persistent: bool },
    Get { way: Way, byte: u8, credit: u32, keep: bool },
    Clear,
    Image,
}

fn step() -> impl Strategy<Value = Step> {
    let way = prop_oneof![Just(Way::Plain), Just(Way::Filter), Just(Way::Key), Just(Way::Browse)];
    prop_oneof![
        6 => (1..20_u64, 0..10_u8, b'a'..b'd', prop::bool::weighted(0.9)).prop_map(
            |(count, priority, byte, persistent)| Step::Put { count, priority, byte, persistent }
        ),
        6 => (way, b'a'..b'd', 0..30_u32, any::<bool>())
            .prop_map(|(way, byte, credit, keep)| Step::Get { way, byte, credit, keep }),
        1 => Just(Step::Clear),
        1 => Just(Step::Image),
    ]
}

/// What is in the queue, in order of delivery: (9 - priority, number, content).
type Model = std::collections::BTreeSet<(u8, u64, String)>;

fn put(rig: &mut Rig, model: &mut Model, next: &mut u64, step: (u8, u8, bool)) {
    let (priority, byte, is_persistent) = step;
    *next += 1;
    let text = format!("{}{next}", char::from(byte));
    let base = if is_persistent { persistent(&text) } else { message(&text) };
    let correlation_hash = (u64::from(byte) << 40) | u64::from(byte);
    let sent = NewMessage { priority: Some(priority), correlation_hash, ..base };
    rig.put_with("Q", sent).unwrap();
    model.insert((9 - priority, *next, text));
}

/// Opens a consumer that asks for so many and drains: it gets exactly the first ones that fit, and
/// learns that there are no more.
fn get(rig: &mut Rig, model: &mut Model, way: Way, byte: u8, (credit, keep): (u32, bool)) {
    let key = (u64::from(byte) << 40) | u64::from(byte);
    let (mode, filter) = match way {
        Way::Plain => (ConsumerMode::Consume, None),
        Way::Browse => (ConsumerMode::Browse, None),
        Way::Filter => (ConsumerMode::Consume, first_byte(byte, None)),
        Way::Key => (ConsumerMode::Consume, first_byte(byte, Some(FilterKey::Correlation(key)))),
    };
    let all = filter.is_none();
    let id = rig.open_get(&ConsumerSpec { mode, filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, credit, true);
    let got = rig.dispatch_in_no_memory();
    let fits = |text: &str| all || text.as_bytes()[0] == byte;
    let first: Vec<_> =
        model.iter().filter(|row| fits(&row.2)).take(credit as usize).cloned().collect();
    let texts: Vec<String> = got.iter().map(|delivery| rig.text(delivery)).collect();
    assert_eq!(texts, first.iter().map(|row| row.2.clone()).collect::<Vec<_>>(), "{way:?}");
    let drained = |effect: &Effect| matches!(effect, Effect::Drained { connection: CLIENT, consumer } if *consumer == id);
    assert!(rig.effects.iter().any(drained), "{way:?}: a drain ends");
    rig.effects.clear();
    for delivery in &got {
        let outcome = if keep { Outcome::Released } else { Outcome::Accepted };
        rig.settle(delivery, outcome);
    }
    if mode == ConsumerMode::Consume && !keep {
        for row in first {
            model.remove(&row);
        }
    }
    rig.close(id, false);
    rig.evict();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_way_to_get_sees_all_and_in_order_though_nothing_stays_in_memory(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let mut rig = Rig::new();
        rig.define("Q");
        let mut model = Model::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Put { count, priority, byte, persistent } => {
                    for _ in 0..count {
                        put(&mut rig, &mut model, &mut next, (priority, byte, persistent));
                    }
                    rig.evict();
                }
                Step::Get { way, byte, credit, keep } => {
                    get(&mut rig, &mut model, way, byte, (credit, keep));
                }
                Step::Clear => {
                    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
                    rig.carry_out();
                    model.clear();
                }
                Step::Image => {
                    let image = rig.image();
                    let again = rig.restart_whole(&image, rig.durable, rig.log.len());
                    assert_eq!(again.shares(), rig.shares(), "the same bodies live");
                    again.core.audit();
                }
            }
            rig.core.audit();
            prop_assert_eq!(rig.status("Q").available, model.len() as u64);
        }
        get(&mut rig, &mut model, Way::Browse, 0, (u32::MAX, false));
        get(&mut rig, &mut model, Way::Plain, 0, (u32::MAX, false));
        prop_assert_eq!((rig.depth("Q"), rig.shares().len()), (0, 0));
    }
}

#[test]
fn a_unit_of_both_kinds_keeps_its_order_behind_messages_that_are_all_away() {
    let mut rig = deep_with(16, numbered);
    rig.sync();
    let image = rig.image();
    // As after a start: all that the image knows is away, the newest block too.
    let mut again = rig.restart_whole(&image, rig.log.len(), rig.log.len());
    let unit = again.declare();
    let target = again.open_put("Q").unwrap();
    // What is logged is applied before what is not.
    again.send(&target, message("0016"), Some(unit)).unwrap();
    again.send(&target, persistent("0017"), Some(unit)).unwrap();
    again.send(&target, message("0018"), Some(unit)).unwrap();
    again.discharge(unit, false).unwrap();
    again.sync();
    again.core.audit();
    assert_eq!(again.browse("Q"), wanted(0..19));
}

#[test]
fn the_first_acquirer_is_known_over_a_page_of_messages_never_acquired() {
    let mut rig = deep_with(40, numbered);
    rig.consumer("Q", 20);
    let got = rig.dispatch();
    assert!(
        got.iter().all(|delivery| delivery.first_acquirer),
        "pages came, none was acquired before"
    );
    rig.settle(&got[4], Outcome::Released);
    got.iter().take(4).for_each(|delivery| rig.settle(delivery, Outcome::Accepted));
    rig.disconnect(CLIENT, false);
    rig.evict();
    rig.consumer("Q", 100);
    let again = rig.dispatch();
    let known = again.iter().filter(|delivery| delivery.first_acquirer).count();
    assert!(again.iter().take(16).all(|delivery| !delivery.first_acquirer));
    assert!(known > 0, "of blocks that no consumer touched it is still known");
    rig.core.audit();
}

#[test]
fn notes_of_damaged_messages_are_found_on_pages_and_none_on_a_page_that_cannot_be_read() {
    let limits = Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.define("DLQ");
    rig.define("Q");
    // Dead letters of another kind lie among them.
    (0..60).for_each(|number| rig.put_with("Q", numbered(number)).unwrap());
    let consumer = rig.consumer("Q", 60);
    for (number, delivery) in rig.dispatch().iter().enumerate() {
        if number % 3 == 0 {
            rig.settle(delivery, Outcome::Rejected);
            continue;
        }
        let (queue, sequence, place) = (rig.status("Q").queue, delivery.sequence, String::new());
        let found = Unreadable { queue, sequence, consumer: Some(consumer), place, lasts: true };
        rig.core.set_aside(rig.now, &found, &mut rig.decision);
        rig.carry_out();
    }
    assert_eq!((rig.depth("Q"), rig.depth("DLQ")), (0, 60));
    let none = |_| -> Option<bytes::Bytes> { panic!("all is in memory") };
    assert_eq!(rig.core.bodies_set_aside(&|_| true, &none).len(), 40);
    rig.evict();
    let read = |page: towline_types::PageRef| rig.pages.get(&page.unit).cloned().map(Into::into);
    let mut found = rig.core.bodies_set_aside(&|_| true, &read);
    found.sort_by_key(|body| body.lsn);
    found.dedup();
    assert_eq!(found.len(), 40, "each once");
    let here = rig.core.bodies_set_aside(&|_| true, &|_| None).len();
    assert!(here < 20, "what is not known is not given up: {here}");
    let other = |_| -> Option<bytes::Bytes> { panic!("no page has bodies there") };
    assert_eq!(rig.core.bodies_set_aside(&|_| false, &other).len(), here);
}
