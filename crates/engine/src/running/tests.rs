//! An instance with a lease, on a clock that the test moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use towline_standby::lease::{Claim, Loss};

use super::*;

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
