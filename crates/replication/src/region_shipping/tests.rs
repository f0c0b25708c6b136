use bytes::Bytes;
use towline_os::sync::Mutex;
use towline_region::SyncPolicy;
use towline_region::wire::Batches;
use towline_types::{Batch, Lsn, SeededRandom};

use super::*;

const BATCHES: u64 = 50;
const PAYLOAD_BYTES: usize = 20_000;

fn batch(index: u64) -> Batch {
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    Batch { index, term: 2, lsn: Lsn(index * 32_768), payload }
}

/// A log of which more and more is committed.
struct TestLog {
    committed: Mutex<u64>,
    known_behind: Mutex<u64>,
}

impl TestLog {
    fn of(committed: u64) -> Arc<TestLog> {
        Arc::new(TestLog { committed: Mutex::new(committed), known_behind: Mutex::new(0) })
    }
}

impl ShippedLog for TestLog {
    fn term(&self) -> u64 {
        2
    }

    fn committed(&self) -> BatchPlace {
        batch(*self.committed.lock()).place()
    }

    fn place(&self, index: u64) -> Option<BatchPlace> {
        (*self.known_behind.lock()..=BATCHES).contains(&index).then(|| batch(index).place())
    }

    fn known_behind(&self) -> u64 {
        *self.known_behind.lock()
    }

    fn behind(&self, index: u64, bytes_max: u64) -> Result<Vec<Batch>, String> {
        if index < self.known_behind() {
            return Ok(Vec::new());
        }
        let fit = usize::try_from(bytes_max / 32_768).unwrap().max(1);
        Ok((index + 1..=*self.committed.lock()).map(batch).take(fit).collect())
    }

    fn sum(&self, place: BatchPlace) -> Option<u32> {
        Some(sum_of(place.index))
    }
}

fn sum_of(index: u64) -> u32 {
    u32::try_from(index).unwrap() * 3
}

/// A link that keeps what is sent, until it is read.
#[derive(Default)]
struct TestLink {
    id: u64,
    sent: Mutex<Vec<Bytes>>,
    closed: Mutex<Option<String>>,
    is_full: Mutex<bool>,
}

impl TestLink {
    fn of(id: u64) -> Arc<TestLink> {
        Arc::new(TestLink { id, ..TestLink::default() })
    }

    /// Indexes of the batches that were sent since the last call.
    fn read(&self) -> Vec<u64> {
        let frames = std::mem::take(&mut *self.sent.lock());
        let of_frame = |frame| Batches::decode(&frame).unwrap().batches;
        frames.into_iter().flat_map(of_frame).map(|batch| batch.index).collect()
    }
}

impl towline_link::RegionConnection for TestLink {
    fn id(&self) -> LinkId {
        LinkId(self.id)
    }

    fn send(&self, kind: u8, body: FrameBody) -> bool {
        assert_eq!(kind, KIND_BATCHES);
        let taken = !*self.is_full.lock();
        if taken {
            self.sent.lock().push([body.head, body.parts.concat()].concat().into());
        }
        taken
    }

    fn send_newest(&self, kind: u8, body: FrameBody) -> bool {
        self.send(kind, body)
    }

    fn queued_bytes(&self) -> usize {
        self.sent.lock().iter().map(Bytes::len).sum()
    }

    fn resume(&self) {}

    fn close(&self, why: &str) {
        *self.closed.lock() = Some(why.to_owned());
    }
}

fn shipping(log: &Arc<TestLog>, window_bytes: u64) -> Shipping {
    let log: Arc<dyn ShippedLog> = Arc::clone(log) as _;
    Shipping::new(log, window_bytes, (Counts::default(), BatchPlace::default()), Time(0))
}

fn open(shipping: &Shipping, link: &Arc<TestLink>, last: u64) -> Result<(), ShippingEnd> {
    let last = if last == 0 { BatchPlace::default() } else { batch(last).place() };
    let position = RegionPosition { blank: false, last, committed: last };
    let sum = Some(sum_of(position.last.index));
    let sums = PositionSums { last: sum, committed: sum };
    shipping.opened(Arc::clone(link) as _, (&position, sums, None), Time(1))
}

/// The same, of one that says what its group has; at `now`.
fn open_with(shipping: &Shipping, link: &Arc<TestLink>, point: RecoveryPoint, now: Time) {
    let last = point.place;
    let position = RegionPosition { blank: false, last, committed: last };
    let sum = Some(sum_of(last.index));
    let sums = PositionSums { last: sum, committed: sum };
    shipping.opened(Arc::clone(link) as _, (&position, sums, Some(point)), now).unwrap();
}

fn ship_all(shipping: &Shipping) {
    while shipping.ship_next() {}
}

fn point(upto: u64) -> Bytes {
    let place = batch(upto).place();
    RecoveryPoint { place, received: place.end, ..RecoveryPoint::default() }.encode().into()
}

#[test]
fn what_is_committed_is_shipped_once_in_order_behind_what_the_other_region_has() {
    let log = TestLog::of(5);
    let shipping = shipping(&log, 1 << 30);
    let link = TestLink::of(1);
    open(&shipping, &link, 2).unwrap();
    ship_all(&shipping);
    assert_eq!(link.read(), [3, 4, 5]);
    *log.committed.lock() = 7;
    ship_all(&shipping);
    assert_eq!(link.read(), [0; 0], "not before it is notified");
    shipping.committed(Counts::default(), Time(2));
    ship_all(&shipping);
    assert_eq!(link.read(), [6, 7]);
    assert_eq!(shipping.view(Time(3)).sent_bytes, 5 * PAYLOAD_BYTES as u64);
}

#[test]
fn no_more_than_the_window_is_on_its_way() {
    let shipping = shipping(&TestLog::of(BATCHES), 10 * 32_768);
    let link = TestLink::of(1);
    open(&shipping, &link, 0).unwrap();
    ship_all(&shipping);
    let sent = link.read();
    assert!((9..=12).contains(&sent.len()), "{sent:?}");
    shipping.frame(LinkId(1), KIND_POINT, &point(4), Time(2)).unwrap();
    ship_all(&shipping);
    assert_eq!(link.read().first(), Some(&(sent.len() as u64 + 1)));
    assert_eq!(shipping.view(Time(2)).point.place, batch(4).place());
}

#[test]
fn a_link_whose_queue_is_long_gets_nothing_more_and_goes_on_later() {
    let shipping = shipping(&TestLog::of(BATCHES), 1 << 30);
    let link = TestLink::of(1);
    open(&shipping, &link, 0).unwrap();
    link.sent.lock().push(Bytes::from(vec![0; QUEUED_BYTES_MAX]));
    ship_all(&shipping);
    assert_eq!(link.sent.lock().len(), 1);
    link.sent.lock().clear();
    ship_all(&shipping);
    assert_eq!(link.read(), (1..=BATCHES).collect::<Vec<_>>());
}

#[test]
fn nothing_is_shipped_behind_a_batch_that_is_another_one_there() {
    let shipping = shipping(&TestLog::of(BATCHES), 1 << 30);
    let last = batch(7).place();
    let position = RegionPosition { blank: false, last, committed: last };
    let other = Some(sum_of(7) + 1);
    for (sum, is_shipped) in [(other, false), (None, true), (Some(sum_of(7)), true)] {
        let link = TestLink::of(1);
        let sums = PositionSums { last: sum, committed: other };
        shipping.opened(Arc::clone(&link) as _, (&position, sums, None), Time(1)).unwrap();
        ship_all(&shipping);
        assert_eq!(!link.read().is_empty(), is_shipped, "{sum:?}");
        let why = link.closed.lock().clone().unwrap_or_default();
        assert_eq!(why.contains("another batch 7"), !is_shipped, "{why}");
    }
}

#[test]
fn a_frame_that_a_link_does_not_take_ends_it() {
    let shipping = shipping(&TestLog::of(BATCHES), 1 << 30);
    let link = TestLink::of(1);
    open(&shipping, &link, 0).unwrap();
    *link.is_full.lock() = true;
    ship_all(&shipping);
    assert!(link.closed.lock().is_some() && !shipping.view(Time(1)).connected);
    let next = TestLink::of(2);
    open(&shipping, &next, 3).unwrap();
    ship_all(&shipping);
    assert_eq!(next.read().first(), Some(&4), "from where the other region is, and no gap");
}

#[test]
fn log_that_is_gone_ends_the_link_and_the_next_one_needs_a_copy() {
    let log = TestLog::of(BATCHES);
    let shipping = shipping(&log, 1 << 30);
    let link = TestLink::of(1);
    open(&shipping, &link, 2).unwrap();
    *log.known_behind.lock() = 10;
    ship_all(&shipping);
    assert!(link.closed.lock().as_deref().unwrap().contains("needs a copy"));
    assert_eq!(shipping.view(Time(1)).ended, Some(ShippingEnd::NeedsCopy));
    assert_eq!(open(&shipping, &TestLink::of(2), 2), Err(ShippingEnd::NeedsCopy));
}

#[test]
fn what_comes_on_an_older_link_is_not_believed() {
    let shipping = shipping(&TestLog::of(BATCHES), 1 << 30);
    let (old, new) = (TestLink::of(1), TestLink::of(2));
    open(&shipping, &old, 0).unwrap();
    ship_all(&shipping);
    open(&shipping, &new, 0).unwrap();
    assert!(old.closed.lock().is_some());
    shipping.frame(LinkId(1), KIND_POINT, &point(40), Time(2)).unwrap();
    assert_eq!(shipping.view(Time(2)).point, RecoveryPoint::default());
    shipping.closed(LinkId(1));
    assert!(shipping.view(Time(2)).connected, "the newer one stands");
    shipping.closed(LinkId(2));
    assert!(!shipping.view(Time(2)).connected);
}

/// How long the other region has acknowledged nothing is not how old that is which it lacks: one
/// that is behind, and goes on, stands in no one's way.
#[test]
fn one_that_lacks_something_and_reports_the_same_point_stands_still() {
    let log = TestLog::of(5);
    let shipping = shipping(&log, 1 << 30);
    let link = TestLink::of(1);
    open(&shipping, &link, 0).unwrap();
    let reports = |upto, at| shipping.frame(LinkId(1), KIND_POINT, &point(upto), Time(at)).unwrap();
    let still_us = |at| shipping.view(Time(at)).still_us;
    ship_all(&shipping);
    shipping.committed(Counts::default(), Time(10));
    reports(3, 1_000);
    assert_eq!((still_us(1_000), still_us(9_000)), (0, 8_000));
    reports(3, 9_000);
    assert_eq!(still_us(10_000), 9_000, "it has the same as before");
    reports(4, 10_000);
    assert_eq!(still_us(11_000), 1_000, "it goes on");
    reports(5, 12_000);
    assert_eq!(still_us(90_000), 0, "it lacks nothing");
    *log.committed.lock() = 6;
    shipping.committed(Counts::default(), Time(100_000));
    assert_eq!(still_us(100_500), 500, "only since there is something to acknowledge");
}

#[test]
fn a_refusal_and_a_report_that_cannot_be_end_the_link() {
    let shipping = shipping(&TestLog::of(BATCHES), 1 << 30);
    open(&shipping, &TestLink::of(1), 0).unwrap();
    ship_all(&shipping);
    let promoted = Bytes::from(Refusal::Promoted.encode());
    let ended = shipping.frame(LinkId(1), KIND_REFUSED, &promoted, Time(2));
    assert_eq!(ended, Err(ShippingEnd::Refused(Refusal::Promoted)));
    let beyond = shipping.frame(LinkId(1), KIND_POINT, &point(BATCHES + 1), Time(2));
    assert!(matches!(beyond, Err(ShippingEnd::Fault(_))));
    let nonsense = shipping.frame(LinkId(1), KIND_POINT, &Bytes::from_static(b"?"), Time(2));
    assert!(matches!(nonsense, Err(ShippingEnd::Fault(_))));
    assert_eq!(shipping.frame(LinkId(1), 99, &promoted, Time(2)), Ok(()));
}

/// A group that was promoted has other batches of the same numbers: an instance of it that still
/// had the link reported them, and replies went that no instance there could keep.
#[test]
fn a_point_of_another_history_ends_the_link_and_no_reply_goes_by_it() {
    let shipping = shipping(&TestLog::of(10), 1 << 30);
    shipping.waits_by(Some(SyncGate::new(SyncPolicy::Strict, Duration::from_secs(5), Time(0))));
    open(&shipping, &TestLink::of(1), 0).unwrap();
    ship_all(&shipping);
    shipping.frame(LinkId(1), KIND_POINT, &point(4), Time(2)).unwrap();
    assert_eq!(told(&shipping), Some(batch(4).end()));
    let place = batch(6).place();
    let (later_term, elsewhere) = (
        BatchPlace { term: 3, ..place },
        BatchPlace { lsn: Lsn(place.lsn.0 - 4_096), end: Lsn(place.end.0 - 4_096), ..place },
    );
    for place in [later_term, elsewhere] {
        let point = RecoveryPoint { place, received: place.end, ..RecoveryPoint::default() };
        let ended = shipping.frame(LinkId(1), KIND_POINT, &point.encode().into(), Time(3));
        let Err(ShippingEnd::Fault(why)) = ended else { panic!("{ended:?}") };
        assert!(why.contains("batch 6, which is another one here"), "{why}");
        assert_eq!(told(&shipping), None);
        assert_eq!(shipping.view(Time(3)).point.place, batch(4).place());
    }
}

#[test]
fn with_links_that_break_at_any_moment_the_other_region_gets_all_without_a_gap() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut random = SeededRandom::new(seed);
        let log = TestLog::of(1);
        let shipping = shipping(&log, 1 + random.below(400_000));
        let (mut id, mut have) = (0, 0);
        let mut link = TestLink::of(id);
        open(&shipping, &link, have).unwrap();
        while have < BATCHES {
            match random.below(8) {
                0 => {
                    // What is on its way is lost; the other region has what it has.
                    shipping.closed(LinkId(id));
                    id += 1;
                    link = TestLink::of(id);
                    open(&shipping, &link, have).unwrap();
                }
                1 => *link.is_full.lock() = random.below(20) == 0,
                2 | 3 => {
                    let mut committed = log.committed.lock();
                    *committed = (*committed + random.below(4)).min(BATCHES);
                    drop(committed);
                    shipping.committed(Counts::default(), Time(id));
                }
                4 | 5 => ship_all(&shipping),
                _ => {
                    for index in link.read() {
                        assert_eq!(index, have + 1, "in order, without a gap, once");
                        assert!(index <= *log.committed.lock(), "committed");
                        have = index;
                    }
                    if have > 0 && shipping.view(Time(id)).connected {
                        shipping.frame(LinkId(id), KIND_POINT, &point(have), Time(id)).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn a_report_on_the_link_before_says_nothing_of_the_one_that_stands() {
    let shipping = shipping(&TestLog::of(5), 1 << 30);
    let reports = || shipping.view(Time(3)).reports;
    for id in 1..=2 {
        open(&shipping, &TestLink::of(id), 5).unwrap();
        assert!(!reports(), "link {id} is new");
        ship_all(&shipping);
        shipping.frame(LinkId(id), KIND_POINT, &point(5), Time(2)).unwrap();
        assert!(reports());
    }
    shipping.closed(LinkId(2));
    assert!(!reports() && shipping.view(Time(3)).is_known);
}

/// What the one that answers hears, if it is news.
fn told(shipping: &Shipping) -> Option<Lsn> {
    let mut told = None;
    let is_news = shipping.releases(|upto| told = Some(upto));
    assert_eq!(is_news, told.is_some());
    told
}

#[test]
fn replies_go_as_far_as_the_other_region_reports_on_the_link_that_stands() {
    let shipping = shipping(&TestLog::of(10), 1 << 30);
    assert_eq!(told(&shipping), None, "replies do not wait");
    let gate = SyncGate::new(SyncPolicy::Eventual, Duration::from_secs(5), Time(0));
    shipping.waits_by(Some(gate));
    assert_eq!(told(&shipping), Some(Lsn::ZERO));
    assert!(shipping.wants_floor());
    shipping.answered_alone(batch(4).end());
    let (first, second) = (TestLink::of(1), TestLink::of(2));
    open(&shipping, &first, 0).unwrap();
    open(&shipping, &second, 0).unwrap();
    ship_all(&shipping);
    shipping.frame(LinkId(1), KIND_POINT, &point(9), Time(2)).unwrap();
    assert_eq!(told(&shipping), None, "that link has ended");
    assert_eq!(shipping.look_at_gate(Time(2)), None);
    shipping.frame(LinkId(2), KIND_POINT, &point(4), Time(2)).unwrap();
    assert_eq!(told(&shipping), Some(batch(4).end()));
    assert_eq!(told(&shipping), None, "it is said once");
    assert_eq!(shipping.look_at_gate(Time(3)), Some(SyncTurn::InStep));
    shipping.closed(LinkId(2));
    assert_eq!(shipping.look_at_gate(Time(4)), None);
    assert_eq!(told(&shipping), None, "and waits");
    assert_eq!(shipping.look_at_gate(Time(6_000_000)), Some(SyncTurn::Alone));
    assert_eq!(told(&shipping), Some(Lsn(u64::MAX)));
    let view = shipping.view(Time(6_000_000)).sync.unwrap();
    assert_eq!((view.covers, view.times_alone), (false, 1));
}

/// The next active instance is given it, and began with 20 messages at risk that were not.
#[test]
fn what_is_said_of_recovery_has_the_counts_of_when_it_had_all() {
    let log = TestLog::of(5);
    let shipping = shipping(&log, 1 << 30);
    open(&shipping, &TestLink::of(1), 0).unwrap();
    shipping.committed(Counts { put: 20, removed: 0 }, Time(1));
    ship_all(&shipping);
    shipping.frame(LinkId(1), KIND_POINT, &point(5), Time(2)).unwrap();
    assert_eq!(shipping.view(Time(3)).point.counts, Counts { put: 20, removed: 0 });
}

/// What recovery has, up to a batch, as another instance says it.
fn known_point(upto: u64, put: u64) -> RecoveryPoint {
    let counts = Counts { put, removed: 0 };
    RecoveryPoint { counts, ..RecoveryPoint::decode(&point(upto)).unwrap() }
}

#[test]
fn an_instance_that_becomes_active_goes_on_from_what_the_one_before_said() {
    let log: Arc<dyn ShippedLog> = TestLog::of(5);
    let nothing = (Counts::default(), BatchPlace::default());
    let shipping = Shipping::new(log, 1 << 30, nothing, Time(4_000));
    let before = shipping.view(Time(4_100)).unknown.unwrap();
    assert_eq!((before.bytes, before.age_us), (0, 100), "nothing was committed since");
    shipping.knows(known_point(2, 7), Some(Time(0)), Time(5_000));
    let view = shipping.view(Time(5_000));
    assert!(view.is_known && view.unknown.is_none() && !view.reports);
    assert_eq!(view.exposure.bytes, batch(5).place().end.0 - batch(2).place().end.0);
    assert_eq!(view.exposure.age_us, 5_000, "and not from this moment on");
}

#[test]
fn the_age_of_what_recovery_lost_again_is_asked_from_the_log() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let times = move |position: Lsn| {
        seen.lock().push(position);
        Some(Time(1_000))
    };
    let log = TestLog::of(0);
    let shipping = shipping(&log, 1 << 30).with_times(Box::new(times));
    let link = TestLink::of(1);
    open(&shipping, &link, 0).unwrap();
    *log.committed.lock() = 5;
    shipping.committed(Counts::default(), Time(2_000));
    ship_all(&shipping);
    shipping.frame(LinkId(1), KIND_POINT, &point(5), Time(3_000)).unwrap();
    assert!(asked.lock().is_empty(), "it saw the commits");
    shipping.closed(LinkId(1));
    shipping.knows(RecoveryPoint::default(), shipping.time_behind(&known_point(0, 0)), Time(9_000));
    assert_eq!(shipping.view(Time(9_000)).exposure.age_us, 8_000);
    assert_eq!(asked.lock().len(), 1);
}

/// Five batches, all of which the other region reported on link 1; strict replies wait for it.
fn in_step() -> Shipping {
    let shipping = shipping(&TestLog::of(5), 1 << 30);
    let gate = SyncGate::new(SyncPolicy::Strict, Duration::from_secs(5), Time(0));
    shipping.waits_by(Some(gate));
    shipping.answered_alone(batch(4).end());
    open(&shipping, &TestLink::of(1), 0).unwrap();
    ship_all(&shipping);
    shipping.frame(LinkId(1), KIND_POINT, &point(5), Time(2)).unwrap();
    shipping
}

/// All folders of the other region were lost, and one instance is back: it has no majority, so it
/// reports nothing.
#[test]
fn one_that_is_back_with_less_and_reports_nothing_is_believed_after_a_second() {
    let shipping = in_step();
    let seen = |at: u64| {
        shipping.committed(Counts::default(), Time(at));
        let view = shipping.view(Time(at));
        (view.exposure.bytes > 0, view.sync.unwrap().covers)
    };
    assert_eq!(seen(3), (false, true));
    shipping.closed(LinkId(1));
    open_with(&shipping, &TestLink::of(2), RecoveryPoint::default(), Time(10));
    assert_eq!(seen(999_000), (false, true), "it reports within a round trip, if it can");
    assert_eq!(seen(1_000_010), (true, false), "what it said counts");
    assert_eq!(told(&shipping), Some(batch(5).end()), "what was released stays so");
}

/// One instance of three that was away says less than its group has: that reports at once.
#[test]
fn what_one_instance_said_counts_for_nothing_once_its_group_has_reported() {
    let shipping = shipping(&TestLog::of(5), 1 << 30);
    open(&shipping, &TestLink::of(1), 0).unwrap();
    ship_all(&shipping);
    shipping.frame(LinkId(1), KIND_POINT, &point(5), Time(2)).unwrap();
    shipping.closed(LinkId(1));
    open_with(&shipping, &TestLink::of(2), known_point(2, 7), Time(10));
    ship_all(&shipping);
    shipping.frame(LinkId(2), KIND_POINT, &point(5), Time(20)).unwrap();
    shipping.committed(Counts::default(), Time(2_000_000));
    assert_eq!(shipping.view(Time(2_000_000)).exposure.bytes, 0);
}

/// It gets a copy: what it can be promoted with meanwhile is less than what was answered.
#[test]
fn what_is_said_without_a_link_takes_back_that_all_answered_is_there() {
    let shipping = in_step();
    let covers = || shipping.view(Time(3)).sync.unwrap().covers;
    assert!(covers());
    shipping.closed(LinkId(1));
    shipping.knows(known_point(2, 7), None, Time(3));
    assert!(!covers());
    open(&shipping, &TestLink::of(2), 0).unwrap();
    ship_all(&shipping);
    let nothing = RecoveryPoint::default().encode();
    shipping.frame(LinkId(2), KIND_POINT, &nothing.into(), Time(4)).unwrap();
    assert!(!covers(), "it reports that it has nothing");
    shipping.frame(LinkId(2), KIND_POINT, &point(5), Time(5)).unwrap();
    assert!(covers());
}
