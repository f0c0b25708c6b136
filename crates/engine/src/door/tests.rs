//! The door of an instance with a disk that does not write: what waits for it, and what does not.

use bytes::Bytes;
use towline_config::Config;
use towline_core::{NewMessage, Pages as Trust};
use towline_log::{Disk, Listener, LogId, MemoryDisk, Pages, Recovery};
use towline_node::{PutTo, Response, Restart};

use towline_types::{FORMAT_LEVEL_UNASKED, LevelRaise};

use super::*;
use crate::settings::{options, rules};
use crate::workers::WorkQueues;

const LOGGED: &str = "DEV.QUEUE.1";
const OTHER: &str = "DEV.QUEUE.2";
const PUT_BYTES: usize = 256 * 1024;

struct Bench {
    disk: MemoryDisk,
    door: Arc<Door>,
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    asked: u64,
    queues: WorkQueues,
}

impl Bench {
    fn new() -> Bench {
        let mut config = Config::default();
        config.log.extent_bytes = 32 << 20;
        let disk = MemoryDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut recovery = Recovery::open(Arc::clone(&shared), options(&config), LogId(7)).unwrap();
        let extent_bytes = recovery.extent_bytes();
        let restart = Restart::begin("QM1", rules(&config), extent_bytes, None, Trust::Ignored);
        let report = recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
        let pages = Pages::open(shared, []).unwrap();
        let (workers, queues) = Workers::new(std::path::Path::new("none"));
        let clock = Clock::start();
        let status = ProcessStatus::new(clock, pages);
        let instance = restart.unwrap().finish(report.tail);
        let door = Arc::new(Door::new(instance, workers, status, clock));
        let listener: Arc<dyn Listener> = door.clone();
        door.set_log(recovery.start(listener).unwrap());
        door.define_defaults();
        // Its disk may stop now: there is an extent to go on to.
        while door.log().stats().bytes_reusable < config.log.extent_bytes {
            std::thread::yield_now();
        }
        let (connection, outbox) = door.connect();
        Bench { disk, door, connection, outbox, asked: 0, queues }
    }

    fn put(&mut self, queue: &str, persistent: bool, bytes: usize) {
        let content = Payload::from(Bytes::from(vec![b'x'; bytes]));
        let message = NewMessage { persistent: Some(persistent), content, ..NewMessage::default() };
        let (token, target) = (self.asked, PutTo::Name(queue.into()));
        self.asked += 1;
        let put = Request::Put { token, target, message, unit: None, reply_wanted: true };
        self.door.step(self.door.clock().now(), self.connection, &mut vec![put]);
    }

    /// The tokens of puts that were accepted.
    fn accepted(&self) -> Vec<u64> {
        let mut responses = std::collections::VecDeque::new();
        self.outbox.take(&mut responses, Waker::noop());
        let accepted = responses.into_iter().map(|response| match response {
            Response::Put { token, result: Ok(()), .. } => token,
            other => panic!("not asked for: {other:?}"),
        });
        accepted.collect()
    }

    fn stalled(&self) -> bool {
        self.door.look(|instance| instance.waits_for_log())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.disk.open_gate();
        self.door.log().shutdown();
    }
}

#[test]
fn what_is_not_logged_and_the_status_go_on_while_writers_are_16_mib_behind() {
    let mut bench = Bench::new();
    bench.disk.hold_syncs();
    // Each of these would stop here for ever if the log was waited for.
    while !bench.stalled() {
        bench.put(LOGGED, true, PUT_BYTES);
    }
    assert!(bench.door.log().unsynced_bytes() > 16 << 20, "{:?}", bench.door.log().stats());
    for _ in 0..10 {
        bench.put(LOGGED, true, PUT_BYTES);
    }
    assert!(bench.accepted().is_empty(), "nothing is durable");
    let before = bench.asked;
    bench.put(OTHER, false, 100);
    assert_eq!(bench.accepted(), [before]);
    assert!(bench.door.log_is_behind(false));
    assert_eq!(bench.door.status().name, "QM1");
    bench.disk.open_gate();
    while bench.door.look(|instance| instance.runs_pending()) > 0 {
        std::thread::yield_now();
    }
    let wanted: Vec<u64> = (0..bench.asked).filter(|token| *token != before).collect();
    assert_eq!(bench.accepted(), wanted, "in order, and none is refused");
    assert!(!bench.stalled());
}

/// Figures, and a list of objects: neither says anything of the messages on their way.
#[test]
fn an_administrator_is_answered_while_messages_wait_for_a_disk_that_does_not_write() {
    let mut bench = Bench::new();
    while bench.door.look(|instance| instance.runs_pending()) > 0 {
        std::thread::yield_now();
    }
    bench.disk.hold_syncs();
    bench.put(LOGGED, true, 100);
    for (kind, text) in [("status", ""), ("mqsc", "DISPLAY QLOCAL(*)")] {
        let (kind, text) = (kind.to_owned(), text.to_owned());
        let request = Request::Admin { token: 0, kind, text, owner: true };
        bench.door.step(bench.door.clock().now(), bench.connection, &mut vec![request]);
    }
    let Bench { door, queues, outbox, .. } = &bench;
    let status = queues.statuses.try_recv().unwrap();
    crate::administration::answer_status(door, status);
    let script = queues.scripts.try_recv().unwrap();
    crate::administration::run_for(door, script);
    let mut responses = std::collections::VecDeque::new();
    outbox.take(&mut responses, Waker::noop());
    assert!(matches!(responses.make_contiguous(), [Response::Admin(_), Response::Admin(_)]));
}

#[test]
fn a_connection_that_waits_is_woken_when_little_is_left() {
    let mut bench = Bench::new();
    bench.disk.hold_syncs();
    while !bench.door.log_is_behind(false) {
        bench.put(LOGGED, true, PUT_BYTES);
    }
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(bench.door.wake_when_written(bench.connection, &Context::from_waker(&waker)));
    bench.disk.open_gate();
    while !woken.0.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    assert!(!bench.door.log_is_behind(true));
}

#[test]
fn a_connection_that_left_waits_for_the_log_no_more() {
    let mut bench = Bench::new();
    bench.disk.hold_syncs();
    while !bench.door.log_is_behind(false) {
        bench.put(LOGGED, true, PUT_BYTES);
    }
    let woken = Arc::new(Woken::default());
    for _ in 0..10 {
        let (connection, _outbox) = bench.door.connect();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(bench.door.wake_when_written(connection, &Context::from_waker(&waker)));
        bench.door.disconnect(connection, true);
    }
    assert_eq!(Arc::strong_count(&woken), 1, "nothing is kept of those that left");
}

/// Whether it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The operator learns it when there is no way back any more, and not before.
#[test]
fn a_raised_format_level_is_said_when_its_record_is_durable() {
    let bench = Bench::new();
    let said = || bench.door.with_inner(|inner| inner.level_said);
    bench.disk.hold_syncs();
    assert_eq!(bench.door.raise_format_level(FORMAT_LEVEL_UNASKED), LevelRaise::OnItsWay);
    assert_eq!(
        (said(), bench.door.raise_format_level(FORMAT_LEVEL_UNASKED)),
        (1, LevelRaise::OnItsWay)
    );
    assert_eq!(bench.door.look(|instance| instance.runs_pending()), 1, "it is decided once");
    bench.disk.open_gate();
    while bench.door.look(|instance| instance.format_level()) < FORMAT_LEVEL_UNASKED {
        std::thread::yield_now();
    }
    assert_eq!(
        (said(), bench.door.raise_format_level(FORMAT_LEVEL_UNASKED)),
        (FORMAT_LEVEL_UNASKED, LevelRaise::InForce)
    );
}

/// When it is appended at last, the readers of the log may be others.
#[test]
fn no_format_level_is_decided_while_runs_wait_for_the_log() {
    let mut bench = Bench::new();
    bench.disk.hold_syncs();
    while !bench.stalled() {
        bench.put(LOGGED, true, PUT_BYTES);
    }
    assert_eq!(bench.door.raise_format_level(FORMAT_LEVEL_UNASKED), LevelRaise::Refused);
    bench.disk.open_gate();
    while bench.door.look(|instance| instance.runs_pending()) > 0 {
        std::thread::yield_now();
    }
    assert_eq!(bench.door.look(|instance| instance.format_level()), 1);
    assert_eq!(bench.door.raise_format_level(FORMAT_LEVEL_UNASKED), LevelRaise::OnItsWay);
}
