use std::path::Path;

use towline_group::{HardState, Mode};
use towline_link::RegionConnection;
use towline_log::{Disk, MemoryDisk};
use towline_region::Counts;
use towline_types::{Batch, BatchPlace, History, HistoryId};

use super::*;
use crate::driver::RegionEvents;
use crate::driver::tests::{LONG, one_of};

/// A link that keeps what is sent on it.
#[derive(Default)]
struct TestLink {
    id: u64,
    sent: Mutex<Vec<(u8, Bytes)>>,
    resumed: Mutex<u32>,
    closed: Mutex<Option<String>>,
}

impl TestLink {
    fn of(id: u64) -> Arc<TestLink> {
        Arc::new(TestLink { id, ..TestLink::default() })
    }

    fn points(&self) -> Vec<RecoveryPoint> {
        let sent = self.sent.lock();
        let points = sent.iter().filter(|(kind, _)| *kind == KIND_POINT);
        points.map(|(_, body)| RecoveryPoint::decode(body).unwrap()).collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        let sent = self.sent.lock();
        let refusals = sent.iter().filter(|(kind, _)| *kind == KIND_REFUSED);
        refusals.map(|(_, body)| Refusal::decode(body).unwrap()).collect()
    }
}

impl RegionConnection for TestLink {
    fn id(&self) -> LinkId {
        LinkId(self.id)
    }

    fn send(&self, kind: u8, body: FrameBody) -> bool {
        self.sent.lock().push((kind, [body.head, body.parts.concat()].concat().into()));
        true
    }

    fn send_newest(&self, kind: u8, body: FrameBody) -> bool {
        self.send(kind, body)
    }

    fn queued_bytes(&self) -> usize {
        0
    }

    fn resume(&self) {
        *self.resumed.lock() += 1;
    }

    fn close(&self, why: &str) {
        self.closed.lock().get_or_insert(why.to_owned());
    }
}

/// A recovery instance on which nothing was shipped yet, and its thread.
struct Rig {
    driver: Arc<Driver>,
    receiving: Arc<Receiving>,
    /// Its driver does not own them.
    _events: Arc<dyn RegionEvents>,
    refused: Arc<Mutex<Vec<Refusal>>>,
    /// What its queues have counted.
    counted: Arc<Mutex<CountedLog>>,
    thread: Option<std::thread::JoinHandle<()>>,
    first: u64,
    folder: tempfile::TempDir,
}

struct Events(Arc<Receiving>);

impl RegionEvents for Events {
    fn answers(&self, answer: ShippedAnswer) {
        self.0.answers(answer);
    }

    fn committed(&self) {}
}

impl Rig {
    fn of(names: &[&str]) -> Rig {
        let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
        let folder = tempfile::tempdir().unwrap();
        let mode = Mode::Recovery;
        let hard_state =
            HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
        let (driver, _ends) = one_of(names, hard_state, &disk, folder.path());
        let refused = Arc::new(Mutex::default());
        let keeps: Arc<Mutex<Vec<Refusal>>> = Arc::clone(&refused);
        let counted = Arc::new(Mutex::new(CountedLog::default()));
        let counts = Arc::clone(&counted);
        let host = ReceivingHost {
            counts: Box::new(move || *counts.lock()),
            round_trip: Box::new(|| Some(Duration::from_millis(8))),
            refused: Box::new(move |why| keeps.lock().push(why)),
            before: Box::new(|_| None),
            rebases: Box::new(|| 2),
        };
        let receiving = Receiving::new(Arc::clone(&driver), ReportPolicy::default(), host);
        let receiving = Arc::new(receiving);
        let events = Arc::new(Events(Arc::clone(&receiving))) as Arc<dyn RegionEvents>;
        driver.set_region(&events);
        let runs = Arc::clone(&receiving);
        let thread = Some(std::thread::spawn(move || runs.run()));
        let first = driver.log().tail().0.next_multiple_of(4_096);
        Rig { driver, receiving, _events: events, refused, counted, thread, first, folder }
    }

    fn batch(&self, index: u64, bytes: usize) -> Batch {
        let lsn = Lsn(self.first + (index - 1) * 4_096);
        Batch { index, term: 1, lsn, payload: Bytes::from(vec![1; bytes]) }
    }

    fn place(&self, index: u64) -> BatchPlace {
        if index == 0 { BatchPlace::default() } else { self.batch(index, 0).place() }
    }

    /// A frame with these batches behind the one before them.
    fn frame(&self, previous: BatchPlace, batches: Vec<Batch>) -> Bytes {
        let end = batches.last().map_or(previous.end, Batch::end);
        let term = batches.last().map_or(1, |last| last.term);
        let batches = Batches { term, previous, committed: end, committed_at: Time(5), batches };
        let (head, parts) = batches.encode();
        Bytes::from([head, parts.concat()].concat())
    }

    fn opens(&self, link: &Arc<TestLink>) {
        self.receiving.opened(Arc::clone(link) as RegionLink, chain(), false);
    }

    fn arrives(&self, link: &TestLink, body: Bytes) -> Intake {
        let wire_bytes = body.len();
        let cost = FrameCost { wire_bytes, decompression: Duration::ZERO };
        self.receiving.frame(link.id(), body, cost)
    }

    fn until(&self, what: &str, done: impl FnMut() -> bool) {
        assert!(self.driver.wait_until(LONG, done), "waited for {what}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.receiving.end();
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        self.driver.log().shutdown();
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

fn chain() -> Histories {
    let mut chain = Histories::default();
    let history = History {
        id: HistoryId([3; 16]),
        parent: None,
        fork: Lsn::ZERO,
        live: "WEST".into(),
        began: Time(1),
        cause: String::new(),
    };
    chain.push(history).unwrap();
    chain
}

fn kept(folder: &Path) -> Histories {
    crate::followed_histories::FollowedHistories::read(folder).unwrap().chain()
}

#[test]
fn what_is_shipped_is_followed_and_reported_and_its_histories_are_kept_before() {
    let rig = Rig::of(&["a"]);
    let link = TestLink::of(1);
    rig.opens(&link);
    rig.until("the histories", || kept(rig.folder.path()) == chain());
    assert!(rig.driver.histories_said(Histories::default()).is_empty(), "of no byte yet");
    rig.arrives(&link, rig.frame(rig.place(0), Vec::new()));
    rig.until("the first report", || link.points().len() == 1);
    let counts = Counts { put: 9, removed: 4 };
    *rig.counted.lock() = CountedLog { counts, end: rig.place(3).end };
    let batches = (1..=3).map(|index| rig.batch(index, 0)).collect();
    rig.arrives(&link, rig.frame(rig.place(0), batches));
    let reported = || link.points().last().copied().unwrap_or_default();
    rig.until("the point", || reported().place == rig.place(3));
    let point = reported();
    assert_eq!(point.received, rig.place(3).end);
    assert_eq!(point.counts, counts);
    assert!(point.wire_bytes > 0 && point.bytes == 0, "these batches have no records");
    assert_eq!(rig.driver.committed_end(), rig.place(3).end);
    assert_eq!(rig.driver.histories_said(Histories::default()), chain());
    let view = rig.receiving.view();
    assert!(view.connected && view.live_committed == rig.place(3).end);
    for further in [Lsn(9_000_000), Lsn(8)] {
        rig.receiving.hears_live(further);
        assert_eq!(rig.receiving.view().live_committed, Lsn(9_000_000), "it does not go back");
    }
    // What was sent before that was said comes behind it, and is all that is here.
    rig.arrives(&link, rig.frame(rig.place(3), vec![rig.batch(4, 0)]));
    rig.until("what came", || reported().received == rig.place(4).end);
    assert_eq!(reported().place, rig.place(4));
    assert_eq!(rig.receiving.view().live_committed, Lsn(9_000_000));
    assert!(rig.receiving.view().log_came_at.is_some());
    rig.receiving.closed(link.id());
    rig.until("the end", || !rig.receiving.view().connected && !rig.driver.relays());
}

/// A group that was promoted reported where it parted from the live group's log, with a message
/// that its own clients had put since: of those that were lost, one was not at risk.
#[test]
fn what_is_counted_further_on_is_not_reported_with_an_earlier_point() {
    let rig = Rig::of(&["a"]);
    let link = TestLink::of(1);
    rig.opens(&link);
    rig.arrives(&link, rig.frame(rig.place(0), Vec::new()));
    let reported = || link.points().last().copied().unwrap_or_default();
    let counts = Counts { put: 9, removed: 4 };
    *rig.counted.lock() = CountedLog { counts, end: rig.place(1).end };
    rig.arrives(&link, rig.frame(rig.place(0), vec![rig.batch(1, 0)]));
    rig.until("the counts", || reported().counts == counts);
    let more = Counts { put: 10, removed: 4 };
    *rig.counted.lock() = CountedLog { counts: more, end: rig.place(3).end };
    rig.arrives(&link, rig.frame(rig.place(1), vec![rig.batch(2, 0)]));
    rig.until("the second point", || reported().place == rig.place(2));
    assert_eq!(reported().counts, counts);
    rig.arrives(&link, rig.frame(rig.place(2), vec![rig.batch(3, 0)]));
    rig.until("the third one", || reported().place == rig.place(3));
    assert_eq!(reported().counts, more);
}

#[test]
fn a_gap_and_another_log_are_refused_and_nothing_more_of_that_link_counts() {
    let rig = Rig::of(&["a"]);
    let link = TestLink::of(1);
    rig.opens(&link);
    rig.arrives(&link, rig.frame(rig.place(0), vec![rig.batch(1, 0)]));
    rig.arrives(&link, rig.frame(rig.place(4), vec![rig.batch(5, 0)]));
    rig.until("a refusal", || link.refusals() == [Refusal::Gap { index: 2 }]);
    rig.arrives(&link, rig.frame(rig.place(1), vec![rig.batch(2, 0)]));
    // It commits what came only while it relays.
    rig.until("what came first", || rig.driver.committed_end() == rig.place(1).end);
    rig.receiving.closed(link.id());
    // The next one goes on, and has another batch.
    let next = TestLink::of(2);
    rig.opens(&next);
    let other = Batch { lsn: Lsn(rig.first + 40_960), ..rig.batch(1, 0) };
    rig.arrives(&next, rig.frame(rig.place(0), vec![other]));
    rig.until("another", || next.refusals() == [Refusal::Diverged { index: 1 }]);
    assert_eq!(*rig.refused.lock(), [Refusal::Gap { index: 2 }, Refusal::Diverged { index: 1 }]);
    assert_eq!(rig.driver.group().last.index, 1);
}

#[test]
fn bytes_that_are_no_batches_end_the_link() {
    let rig = Rig::of(&["a"]);
    let link = TestLink::of(1);
    rig.opens(&link);
    rig.arrives(&link, Bytes::from_static(b"nonsense"));
    rig.until("the end", || link.closed.lock().is_some());
}

#[test]
fn without_a_majority_nothing_is_taken_and_the_link_reads_no_more_when_much_waits() {
    let rig = Rig::of(&["a", "b", "c"]);
    let link = TestLink::of(1);
    rig.opens(&link);
    // Of a timeline in which this group is not yet: a majority must enter it first.
    let term = 1 << 22;
    let body = rig.frame(rig.place(4), vec![Batch { term, ..rig.batch(5, 3_000_000) }]);
    rig.arrives(&link, body.clone());
    rig.until("it is given to the member", || rig.driver.relays());
    let intakes = [0, 1, 2].map(|_| rig.arrives(&link, body.clone()));
    assert_eq!(intakes, [Intake::More, Intake::More, Intake::Full]);
    assert!(link.points().is_empty() && link.refusals().is_empty(), "it is given again");
    assert_eq!((rig.driver.group().last.index, *link.resumed.lock()), (0, 0));
    // What waits goes with its link.
    rig.receiving.closed(link.id());
    rig.until("the end", || !rig.driver.relays());
    let next = TestLink::of(2);
    rig.opens(&next);
    assert_eq!(rig.arrives(&next, body), Intake::More);
    assert_eq!(rig.arrives(&link, Bytes::new()), Intake::More, "of a link that is gone");
}
