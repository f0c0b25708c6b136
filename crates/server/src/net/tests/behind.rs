//! Connections at an instance with a disk that does not write.

use std::sync::OnceLock;

use tokio::task::{spawn_local, yield_now};
use towline_admin::status::RestartStatus;
use towline_core::Pages as Trust;
use towline_engine::settings::{options, rules};
use towline_engine::{AdminJobs, Arrival, BackupFolders, Images, LogContext, OpenInstance};
use towline_log::{Disk, Listener, LogError, LogId, MemoryDisk, Pages, Recovery, Space};
use towline_node::Restart;
use towline_os::task::handle_of;
use towline_types::{Lsn, limits};

use super::*;

const MIB: usize = 1024 * 1024;
const MESSAGE_BYTES: usize = 200_000;
/// More than the log takes, and than a connection may have on its way.
const MESSAGES: u64 = 200;

/// The door, once it is there.
#[derive(Default)]
struct Relay(OnceLock<Arc<Door>>);

impl Listener for Relay {
    fn durable(&self, upto: Lsn) {
        self.0.get().unwrap().durable(upto);
    }

    fn failed(&self, error: &LogError) {
        unreachable!("nothing fails here: {error}")
    }

    fn space(&self, space: Space) {
        Listener::space(self.0.get().unwrap().as_ref(), space);
    }

    fn caught_up(&self) {
        self.0.get().unwrap().caught_up();
    }
}

/// A disk that goes on also when a test has failed: the end of the log waits for it.
struct OpenedAtTheEnd<'a>(&'a MemoryDisk);

impl Drop for OpenedAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.open_gate();
    }
}

/// An instance with two queues, on a disk that can be stopped; what the log reports to; and the
/// threads of the instance, which have not begun.
fn bench() -> (Bench, MemoryDisk, Arc<Relay>, OpenInstance) {
    let mut config = Config::default();
    config.log.extent_bytes = 32 * MIB as u64;
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut recovery = Recovery::open(Arc::clone(&shared), options(&config), LogId(7)).unwrap();
    let extent_bytes = recovery.extent_bytes();
    let restart = Restart::begin("QM1", rules(&config), extent_bytes, None, Trust::Ignored);
    let report = recovery.replay(|_, _| Ok::<(), std::convert::Infallible>(())).unwrap();
    let pages = Pages::open(Arc::clone(&shared), []).unwrap();
    let relay = Arc::new(Relay::default());
    let log = recovery.start(relay.clone()).unwrap();
    let images = Images::open(shared, log.durable(), pages.clone());
    let rebuild_marker = std::path::PathBuf::from("none");
    let restarted = RestartStatus::default();
    let context =
        LogContext { extent_bytes, restart: restarted, pages, rebuild_marker, lease: None };
    let instance = restart.unwrap().finish(report.tail);
    let open = OpenInstance::of_leader(instance, &config, context, log, images, Clock::start());
    let door = Arc::clone(open.door());
    assert!(relay.0.set(Arc::clone(&door)).is_ok());
    door.define_defaults();
    // Its disk may stop now: there is an extent to go on to, and nothing is on its way.
    while door.log().stats().bytes_reusable < extent_bytes
        || door.look(|instance| instance.runs_pending()) > 0
    {
        std::thread::yield_now();
    }
    (Bench::around(door, None), disk, relay, open)
}

impl Bench {
    /// Whether a put to the queue was decided.
    fn has_message(&self, queue: &str) -> bool {
        self.depth(queue) > 0
    }

    fn depth(&self, queue: &str) -> u64 {
        let status = self.door.status();
        status.queues.iter().find(|row| row.name == queue).map_or(0, |row| row.depth)
    }
}

#[test]
fn who_adds_to_a_log_that_is_behind_waits_unread_and_others_go_on() {
    let (bench, disk, _relay, _threads) = bench();
    run_on(bench, false, async |bench| {
        let (mut writer, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let link = writer.sender("DEV.QUEUE.1").await;
        let (mut other, served) = bench.connect(ClientLogin::Anonymous, WIDE);
        disk.hold_syncs();
        let _gate = OpenedAtTheEnd(&disk);
        for key in 0..MESSAGES {
            writer.send(link, key, true, MESSAGE_BYTES);
        }
        let written = spawn_local(async move {
            writer.accepted(MESSAGES).await;
            writer
        });
        while !bench.door.log_is_behind(false) {
            yield_now().await;
        }
        let unlogged = other.sender("DEV.QUEUE.2").await;
        for key in 0..100 {
            other.send(unlogged, key, false, 1_000);
        }
        other.accepted(100).await;
        let (mut third, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let links = third.receivers("DEV.QUEUE.2", 1).await;
        third.machine.set_credit(links[0], 1);
        while !matches!(third.event().await, Some(Event::Transfer(_))) {}
        let small = third.one_more_sender("DEV.DEAD.LETTER.QUEUE").await;
        third.send(small, 0, true, 1_000);
        let mut accepted = Box::pin(third.accepted(1));
        while !bench.has_message("DEV.DEAD.LETTER.QUEUE") {
            assert!(is_pending(&mut accepted).await, "nothing is durable");
        }
        let log = bench.door.log();
        let one_step = (limits::STEP_BYTES_MAX + MESSAGE_BYTES) as u64;
        assert!(log.unsynced_bytes() < limits::LOG_BEHIND_BYTES + 2 * one_step);
        assert!(bench.door.log_is_behind(false), "and one that has little on its way went on");
        assert!(!bench.door.look(|instance| instance.waits_for_log()), "no request got so far");
        assert!(!written.is_finished());
        disk.open_gate();
        let writer = written.await.unwrap();
        accepted.await;
        third.close().await;
        other.close().await;
        drop(other);
        assert_eq!(served.await.unwrap(), End::Orderly);
        drop(writer);
    });
}

#[test]
fn who_has_little_on_its_way_takes_as_much_of_what_a_log_that_is_behind_has_for_all_as_it_adds() {
    const PUTS: u64 = 50;
    let (bench, disk, _relay, _threads) = bench();
    run_on(bench, false, async |bench| {
        let (mut writer, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let link = writer.sender("DEV.QUEUE.1").await;
        disk.hold_syncs();
        let _gate = OpenedAtTheEnd(&disk);
        for key in 0..MESSAGES {
            writer.send(link, key, true, MESSAGE_BYTES);
        }
        let _written = spawn_local(async move { writer.accepted(MESSAGES).await });
        while !bench.door.log_is_behind(false) {
            yield_now().await;
        }
        let (mut other, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let small = other.sender("DEV.QUEUE.2").await;
        for key in 0..PUTS {
            other.send(small, key, true, 1_250);
            other.flush().await.unwrap();
            let mut looks = 0;
            while bench.depth("DEV.QUEUE.2") <= key {
                yield_now().await;
                looks += 1;
                assert!(looks < 10_000, "message {key} waits for the log");
            }
        }
        let (mut third, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let small = third.sender("DEV.DEAD.LETTER.QUEUE").await;
        third.send(small, 0, true, 1_000);
        third.flush().await.unwrap();
        let mut looks = 0;
        while !bench.has_message("DEV.DEAD.LETTER.QUEUE") {
            yield_now().await;
            looks += 1;
            assert!(looks < 10_000, "63 KB of another client are as much as 6 MB");
        }
    });
}

#[test]
fn who_asks_for_much_behind_a_large_message_is_not_read_until_it_is_in_the_log() {
    // More than wait there, in what all links of a connection have credit for.
    const LINKS: u64 = 12;
    const PUTS: u64 = 700;
    let (bench, _disk, _relay, threads) = bench();
    run_on(bench, false, async |bench| {
        let (mut client, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let large = client.sender("DEV.QUEUE.1").await;
        let mut unlogged = Vec::new();
        for _ in 0..LINKS {
            unlogged.push(client.one_more_sender("DEV.QUEUE.2").await);
        }
        client.send(large, 0, true, 2 * MIB);
        for link in unlogged {
            (0..PUTS).for_each(|key| client.send(link, key, false, 1));
        }
        let mut accepted = Box::pin(client.accepted(1 + LINKS * PUTS));
        let id = towline_core::ConnectionId(1);
        // The large one is checked by another thread, and the others wait until that is done.
        while bench.door.look(|instance| !instance.has_enough_of(id)) {
            assert!(is_pending(&mut accepted).await);
        }
        assert!(is_pending(&mut accepted).await);
        let waiting = bench.door.look(|instance| instance.requests_waiting(id));
        let most = limits::REQUESTS_WAITING_MAX + limits::STEP_REQUESTS_MAX;
        assert!(waiting < most, "{waiting}");
        // Its pieces are logged by a thread, which begins only now.
        let backup_folders = Arc::new(BackupFolders::new(&[]));
        let jobs = AdminJobs { name: "QM1".into(), backup_folders };
        let _running =
            threads.start(&Config::default(), jobs, &handle_of(&tokio::runtime::Handle::current()));
        accepted.await;
    });
}

/// The longest piece of whole frames in the first half of `bytes`, and the rest.
fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(frame) = bytes[at..].first_chunk::<4>().filter(|_| at < bytes.len() / 2) {
        at += u32::from_be_bytes(*frame) as usize;
    }
    bytes.split_at(at)
}

#[test]
fn who_asks_for_too_much_in_the_middle_of_a_message_ends_it_when_others_wait_for_its_memory() {
    const LINKS: u64 = 7;
    const PUTS: u64 = 700;
    // The threads of the instance do not begin: a large message never gets to the log.
    let (bench, _disk, _relay, _threads) = bench();
    run_on(bench, false, async |bench| {
        let (mut client, _) = bench.connect(ClientLogin::Anonymous, WIDE);
        let cut = client.sender("DEV.QUEUE.1").await;
        let mut links = Vec::new();
        for _ in 0..=LINKS {
            links.push(client.one_more_sender("DEV.QUEUE.2").await);
        }
        client.flush().await.unwrap();
        client.send(cut, 0, false, 2 * MIB);
        let (mut pieces, mut message) = (VecDeque::new(), Vec::new());
        client.machine.take_output(&mut pieces, usize::MAX);
        pieces.iter().for_each(|piece| message.extend_from_slice(piece));
        let (begin, end) = halves(&message);
        client.socket.write_all(begin).await.unwrap();
        client.send(links.pop().unwrap(), 0, true, 2 * MIB);
        for link in links {
            (0..PUTS).for_each(|key| client.send(link, key, false, 1));
        }
        client.flush().await.unwrap();
        let id = towline_core::ConnectionId(1);
        while bench.door.look(|instance| !instance.has_enough_of(id)) {
            yield_now().await;
        }
        let mut ended = Box::pin(client.socket.write_all(end));
        assert!(is_pending(&mut ended).await, "it is read, and has asked for too much");
        let one = limits::MEDIUM_MESSAGE_BYTES_MAX;
        let count = limits::MEDIUM_MESSAGES_BYTES_MAX / one;
        let mut others: Vec<Arrival> = (0..count).map(|_| bench.door.arrivals().join()).collect();
        others.iter_mut().for_each(|other| other.holds(one));
        assert!(!others[0].may_read(&mut Context::from_waker(Waker::noop())));
        assert!(!is_pending(&mut ended).await, "others wait");
        while !others[0].may_read(&mut Context::from_waker(Waker::noop())) {
            yield_now().await;
        }
    });
}
