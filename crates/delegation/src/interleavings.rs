//! All interleavings of two threads that post and one that works under the lock, by loom: at the
//! end all news was taken. The same with two faults built in, which loom must find.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

/// News: the highest number that was posted. The value under the lock: the highest one taken.
struct Rig {
    lock: DelegationLock<u64>,
    news: AtomicU64,
}

impl Rig {
    fn take(&self) {
        let news = |taken: &mut u64| *taken = (*taken).max(self.news.load(Ordering::SeqCst));
        self.lock.take_posted(news, |()| ());
    }

    fn post(&self, number: u64) {
        self.news.fetch_max(number, Ordering::SeqCst);
        self.lock.post();
        self.take();
    }

    fn hold(&self) {
        let held = self.lock.value.lock();
        // Loom lets another thread run here because both use the same atomic.
        self.news.load(Ordering::SeqCst);
        drop(held);
    }

    fn work(&self) {
        self.hold();
        self.take();
    }
}

/// Runs `first` and `second` in threads of their own beside a thread that works under the lock, and
/// looks whether the news was taken.
fn explore(first: fn(&Rig), second: fn(&Rig)) {
    loom::model(move || {
        let lock = DelegationLock::new(0);
        let rig = Arc::new(Rig { lock, news: AtomicU64::new(0) });
        let threads = [first, second].map(|act| {
            let rig = Arc::clone(&rig);
            thread::spawn(move || act(&rig))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let taken = *rig.lock.value.lock().unwrap();
        assert_eq!(taken, rig.news.load(Ordering::SeqCst), "news was lost");
    });
}

#[test]
fn no_post_is_lost_beside_a_thread_that_works() {
    explore(|rig| rig.post(1), Rig::work);
}

#[test]
fn no_post_is_lost_between_two_threads_that_post() {
    explore(|rig| rig.post(1), |rig| rig.post(2));
}

/// A mutant: the holder does not look again after it released the lock.
#[test]
#[should_panic(expected = "news was lost")]
fn loom_finds_a_holder_that_does_not_look_again() {
    explore(|rig| rig.post(1), Rig::hold);
}

/// A mutant: the flag is cleared after the news was read, and so the flag of later news with it.
#[test]
#[should_panic(expected = "news was lost")]
fn loom_finds_a_flag_that_is_cleared_too_late() {
    let post = |rig: &Rig, number| {
        rig.news.fetch_max(number, Ordering::SeqCst);
        rig.lock.post();
        while rig.lock.is_posted.load(Ordering::SeqCst) {
            let Some(mut taken) = rig.lock.try_lock() else { return };
            *taken = (*taken).max(rig.news.load(Ordering::SeqCst));
            rig.lock.is_posted.swap(false, Ordering::SeqCst);
        }
    };
    loom::model(move || {
        let rig = Arc::new(Rig { lock: DelegationLock::new(0), news: AtomicU64::new(0) });
        let other = Arc::clone(&rig);
        let thread = thread::spawn(move || post(&other, 1));
        post(&rig, 2);
        thread.join().unwrap();
        let taken = *rig.lock.value.lock().unwrap();
        assert_eq!(taken, rig.news.load(Ordering::SeqCst), "news was lost");
    });
}
