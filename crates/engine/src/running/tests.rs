//! An instance with a lease, on a clock that the test moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use towline_os::simulated::fs::FileSystem;
use towline_os::simulated::{Process, World};
use towline_standby::lease::{Claim, Loss};

use super::*;
use crate::backup_folders::BackupFolders;

const SECOND_US: u64 = 1_000_000;

/// What wakes up while no client is there costs power on every machine that runs a queue manager
/// for a rare need. A new poll is noticed here: one of 50 ms are 1,200 wake-ups a minute.
#[test]
fn an_idle_instance_wakes_up_once_a_second_to_look_at_the_clock_and_for_its_ticks() {
    /// Looks at the clock, the ticks of `expiry_interval_s` (10 s), and what one of them wakes.
    const WAKE_UPS_MAX: u64 = 60 + 6 + 4;
    let (files, process, world) = (FileSystem::new(), Process(1), World::new(1));
    assert!(files.make_folder("/data"));
    world.mount(process, &files);
    world.start(process, "work", || {
        let home = Home::single(std::path::Path::new("/data"));
        let (config, options) = (Config::default(), StartOptions::default());
        let open = OpenInstance::open("QM1", &home, &config, options, Clock::start()).unwrap();
        let backup_folders = Arc::new(BackupFolders::new(&[]));
        let jobs = AdminJobs { name: "QM1".into(), backup_folders };
        let running = open.start(&config, jobs, &Handle::current()).unwrap();
        let (_stop, never) = towline_os::sync::mpsc::channel::<()>();
        assert!(never.recv().is_err(), "it ends with the world");
        drop(running);
    });
    world.run_until(30 * SECOND_US);
    let before = world.switches();
    world.run_until(90 * SECOND_US);
    assert_eq!(world.ended(process), None);
    let wake_ups = world.switches() - before;
    assert!(wake_ups <= WAKE_UPS_MAX, "{wake_ups} wake-ups in a minute");
}

/// Also when nothing that it does needs the log: another instance may have given the same message
/// to another client by then.
#[test]
fn an_instance_makes_no_step_when_its_lease_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    let length = Duration::from_secs(1);
    let seconds = Arc::new(AtomicU64::new(5));
    let losses = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&seconds);
    let clock = Arc::new(move || Duration::from_secs(read.load(Ordering::SeqCst)));
    let noted = Arc::clone(&losses);
    let halt = Box::new(move |_, loss: &Loss| noted.lock().push(loss.clone()));
    let claim =
        Claim { data: folder.path(), epoch: 1, length, window_bytes: 1 << 20, holder: "here:1" };
    let lease = Lease::claim(&claim, clock, halt).unwrap().unwrap();
    let home = Home::leased(folder.path().to_owned(), folder.path().join("log-1"), lease);
    let mut config = Config::default();
    config.log.extent_bytes = 4 << 20;
    let open =
        OpenInstance::open("QM1", &home, &config, StartOptions::default(), Clock::start()).unwrap();
    let door = Arc::clone(open.door());
    door.tick();
    // The log's own threads prove the lease too: none of them has anything to do from here on.
    door.log().shutdown();
    assert_eq!(*losses.lock(), []);
    seconds.fetch_add(length.as_secs(), Ordering::SeqCst);
    let (done, steps) = mpsc::channel();
    thread::spawn(move || {
        door.tick();
        done.send(()).unwrap();
    });
    while losses.lock().is_empty() {
        assert!(steps.try_recv().is_err(), "it made a step");
        thread::yield_now();
    }
    assert_eq!(*losses.lock(), [Loss::RanOut]);
    assert!(steps.try_recv().is_err(), "it made a step");
}
