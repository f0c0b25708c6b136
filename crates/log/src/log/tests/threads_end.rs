//! The end of the threads of a log whose last handle goes.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use towline_os::simulated::crash;
use towline_os::simulated::fs::{FileSystem, OperationKind, Verdict};
use towline_os::sync::Mutex;
use towline_os::thread::yield_now;

use super::*;

/// Has its log, as the driver of a group has.
struct Owner {
    log: OnceLock<Log>,
    called: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
    /// Goes after the log.
    _gone: Gone,
}

/// Says whether all that went before it went without a panic.
struct Gone(Sender<bool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.send(!std::thread::panicking()).unwrap();
    }
}

impl Listener for Owner {
    fn durable(&self, _upto: Lsn) {
        self.called.send(()).unwrap();
        self.goes_on.lock().recv().unwrap();
    }

    fn failed(&self, error: &LogError) {
        unreachable!("nothing fails here: {error}")
    }

    fn space(&self, _space: Space) {}
}

#[test]
fn a_thread_of_the_log_that_has_its_last_handle_does_not_wait_for_itself() {
    let (_, disk) = memory();
    let ((called, call), (go, goes_on)) = (channel(), channel());
    let (gone, whether_gone) = channel();
    let goes_on = Mutex::new(goes_on);
    let owner = Arc::new(Owner { log: OnceLock::new(), called, goes_on, _gone: Gone(gone) });
    let (recovery, _, _) = recover(&disk, Options::small()).unwrap();
    let log = recovery.start(Arc::clone(&owner) as Arc<dyn Listener>).unwrap();
    append(&log, &[record(7, 100)], Urgency::Forced);
    assert!(owner.log.set(log).is_ok());
    call.recv().unwrap();
    // A writer is in the listener, and has the last handle of it now.
    drop(owner);
    go.send(()).unwrap();
    assert!(whether_gone.recv().unwrap(), "it ended in order");
}

#[test]
fn a_disk_that_hangs_delays_the_end_of_the_last_handle_by_ten_seconds() {
    let files = FileSystem::new();
    assert!(files.make_folder("/data"));
    let (is_armed, hangs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (armed, hung) = (Arc::clone(&is_armed), Arc::clone(&hangs));
    files.set_faults(move |operation| {
        if operation.kind != OperationKind::Write || !armed.load(Ordering::Relaxed) {
            return Verdict::Goes;
        }
        hung.store(true, Ordering::Relaxed);
        Verdict::Hangs
    });
    let work = move || {
        let folder = Path::new("/data/log");
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder).unwrap());
        let (recovery, _, _) = recover(&disk, Options::small()).unwrap();
        drop(disk);
        let log = recovery.start(Watch::new() as Arc<dyn Listener>).unwrap();
        is_armed.store(true, Ordering::Relaxed);
        append(&log, &[record(7, 100)], Urgency::Forced);
        while !hangs.load(Ordering::Relaxed) {
            yield_now();
        }
        let began = Instant::now();
        drop(log);
        let is_locked = matches!(LinuxDisk::open(folder), Err(LogError::Locked { .. }));
        (began.elapsed(), is_locked)
    };
    let (took, is_locked) = crash::in_process(&files, 1, work).unwrap();
    assert_eq!(took.as_secs(), PATIENCE.as_secs(), "{took:?}");
    assert!(is_locked, "what was begun may still be written");
}
