use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Plain;

use super::*;
use crate::sync::mpsc::channel;
use crate::sync::{Condvar, Mutex, OnceLock};
use crate::thread::{self, Builder};
use crate::time::Instant;

const LONG_US: u64 = 1_000_000_000;

fn run(world: &World) {
    world.run_until(LONG_US);
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    Builder::new().name("child".into()).spawn(body).unwrap()
}

#[test]
fn a_value_under_a_lock_has_one_user_at_a_time() {
    for seed in 0..50 {
        let (world, count) = (World::new(seed), Arc::new(Mutex::new(0)));
        world.set_overtaken(100);
        for _ in 0..8 {
            let count = Arc::clone(&count);
            world.start(Process(1), "adds", move || {
                for _ in 0..10 {
                    let mut count = count.lock();
                    let before = *count;
                    thread::yield_now();
                    *count = before + 1;
                }
            });
        }
        run(&world);
        assert_eq!(*count.lock(), 80, "seed {seed}");
        assert!(world.left().is_empty());
    }
}

#[test]
fn a_wait_ends_by_its_notice_or_at_its_deadline_and_takes_no_real_time() {
    let world = World::new(1);
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let seen = Arc::new(Plain::new(Vec::new()));
    let (waiter, found) = (Arc::clone(&shared), Arc::clone(&seen));
    world.start(Process(1), "waits", move || {
        let mut ready = waiter.0.lock();
        let minute = Duration::from_secs(60);
        let late = waiter.1.wait_for(&mut ready, minute).timed_out();
        found.lock().push((late, *ready));
        while !*ready {
            assert!(!waiter.1.wait_for(&mut ready, minute).timed_out());
        }
        found.lock().push((false, *ready));
    });
    world.start(Process(1), "notifies", move || {
        let began = Instant::now();
        thread::sleep(Duration::from_secs(90));
        assert_eq!(began.elapsed(), Duration::from_secs(90));
        *shared.0.lock() = true;
        shared.1.notify_all();
    });
    while world.step(LONG_US) {
        assert!(world.now_us() <= 90_000_000);
    }
    assert_eq!(*seen.lock(), [(true, false), (false, true)]);
}

#[test]
fn a_wait_for_what_is_on_its_way_ends_when_it_comes() {
    let world = World::new(1);
    let shared = Arc::new((Mutex::new(()), Condvar::new()));
    let seen = Arc::new(Plain::new(Vec::new()));
    let (waiter, found) = (Arc::clone(&shared), Arc::clone(&seen));
    world.start(Process(1), "waits", move || {
        let mut nothing = waiter.0.lock();
        let began = Instant::now();
        for _ in 0..2 {
            waiter.1.wait_for(&mut nothing, Duration::from_secs(60));
            found.lock().push(began.elapsed().as_secs());
        }
    });
    world.start(Process(1), "sends", move || {
        thread::sleep(Duration::from_secs(1));
        // A wait becomes shorter by it, and never longer.
        for seconds in [5, 2, 100] {
            shared.1.notify_all_at(Instant::now() + Duration::from_secs(seconds));
        }
    });
    run(&world);
    assert_eq!(*seen.lock(), [3, 63]);
}

#[test]
fn a_stack_is_used_again_by_another_process_and_after_its_world() {
    for seed in 0..20 {
        let (world, ran) = (World::new(seed), Arc::new(Plain::new(Vec::new())));
        for process in 1..=3 {
            for number in 0..20 {
                let ran = Arc::clone(&ran);
                world.start(Process(process), "works", move || {
                    let deep = [number; 2_000];
                    thread::sleep(Duration::from_millis(number));
                    assert!(deep.iter().all(|here| *here == number), "it is its own");
                    ran.lock().push(number);
                });
            }
            world.run_until((process - 1) * 1_000_000 + 9_500);
            // Ten of them unwind, and one panics.
            world.kill(Process(process));
            world.start(Process(10 + process), "panics", panic_quietly);
            world.run_until(process * 1_000_000);
            assert!(world.left().is_empty(), "{:?}", world.left());
            assert!(matches!(world.ended(Process(10 + process)), Some(ProcessEnd::Panicked(_))));
        }
        assert_eq!(world.ends(), 6);
        let mut ran = ran.lock().clone();
        ran.sort_unstable();
        let expected: Vec<u64> = (0..10).flat_map(|number| [number; 3]).collect();
        assert_eq!(ran, expected, "seed {seed}");
    }
}

/// Panics without a line on the screen.
fn panic_quietly() {
    std::panic::resume_unwind(Box::new("on purpose"));
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_one_another() {
    let order = |seed| {
        let (world, order) = (World::new(seed), Arc::new(Plain::new(Vec::new())));
        for number in 0..6 {
            let order = Arc::clone(&order);
            world.start(Process(1), "runs", move || {
                for _ in 0..4 {
                    order.lock().push(number);
                    thread::yield_now();
                }
            });
        }
        run(&world);
        let mut drawn = [0; 8];
        world.start(Process(1), "draws", {
            let order = Arc::clone(&order);
            move || {
                crate::random::fill(&mut drawn).unwrap();
                order.lock().extend(drawn);
            }
        });
        run(&world);
        std::mem::take(&mut *order.lock())
    };
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
}

#[test]
fn coroutines_that_wait_for_each_other_are_named() {
    let world = World::new(3);
    let locks = Arc::new((Mutex::new(()), Mutex::new(())));
    let other = Arc::clone(&locks);
    world.start(Process(1), "a-b", move || {
        let _a = locks.0.lock();
        thread::sleep(Duration::from_millis(1));
        let _b = locks.1.lock();
    });
    world.start(Process(2), "b-a", move || {
        let _b = other.1.lock();
        thread::sleep(Duration::from_millis(1));
        let _a = other.0.lock();
    });
    run(&world);
    let mut left = world.left();
    left.sort();
    assert_eq!(left, [(Process(1), "a-b".into()), (Process(2), "b-a".into())]);
    world.kill(Process(1));
    run(&world);
    assert!(world.left().is_empty(), "the one that was killed gave its lock back");
}

#[test]
fn a_thread_of_a_thread_belongs_to_its_process_and_can_be_waited_for() {
    let (world, got) = (World::new(4), Arc::new(Plain::new(0)));
    let result = Arc::clone(&got);
    world.start(Process(9), "starts", move || {
        let child = spawn(|| {
            thread::sleep(Duration::from_secs(1));
            42
        });
        assert!(!child.is_finished());
        *result.lock() = child.join().unwrap();
    });
    while world.left().len() < 2 {
        assert!(world.step(LONG_US));
    }
    assert!(world.left().iter().all(|(process, _)| *process == Process(9)));
    run(&world);
    assert_eq!(*got.lock(), 42);
}

#[test]
fn values_come_through_a_queue_in_order_and_its_ends_notice_each_other() {
    let (world, got) = (World::new(5), Arc::new(Plain::new(Vec::new())));
    let (sender, receiver) = channel();
    let values = Arc::clone(&got);
    world.start(Process(1), "receives", move || {
        let early = receiver.recv_timeout(Duration::from_millis(5));
        assert_eq!(early, Err(crate::sync::mpsc::RecvTimeoutError::Timeout));
        values.lock().extend(receiver);
    });
    world.start(Process(2), "sends", move || {
        for number in 0..5 {
            thread::sleep(Duration::from_millis(10));
            sender.send(number).unwrap();
        }
    });
    run(&world);
    assert_eq!(*got.lock(), [0, 1, 2, 3, 4]);
    assert!(world.left().is_empty());
}

/// Says that it was dropped, and waits while it is.
struct Waits(Arc<Plain<u32>>, Option<thread::JoinHandle<()>>);

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(child) = self.1.take() {
            child.join().ok();
        }
        *self.0.lock() += 1;
    }
}

#[test]
fn a_process_that_is_killed_unwinds_wherever_it_waits_and_does_no_more() {
    for seed in 0..50 {
        let (world, dropped) = (World::new(seed), Arc::new(Plain::new(0)));
        let done = Arc::new(Plain::new(0));
        let (count, steps) = (Arc::clone(&dropped), Arc::clone(&done));
        world.start(Process(1), "parent", move || {
            let counted = Arc::clone(&count);
            let child = spawn(move || {
                let _at_end = Waits(counted, None);
                thread::sleep(Duration::from_secs(100));
            });
            let _at_end = Waits(count, Some(child));
            let never = OnceLock::<()>::new();
            *steps.lock() += 1;
            never.wait();
            *steps.lock() += 1;
        });
        world.run_until(1_000_000);
        world.kill(Process(1));
        world.run_until(1_000_001);
        assert_eq!((*dropped.lock(), *done.lock()), (2, 1), "seed {seed}");
        assert_eq!(world.ended(Process(1)), Some(ProcessEnd::Killed));
        assert!(!world.is_left(Process(1)));
    }
}

#[test]
fn a_process_that_exits_or_panics_ends_and_others_go_on() {
    let (world, done) = (World::new(6), Arc::new(Plain::new(0)));
    world.start(Process(1), "exits", || {
        let _waits_for = spawn(|| thread::sleep(Duration::from_secs(1)));
        crate::process::exit(70)
    });
    world.start(Process(2), "panics", || {
        thread::sleep(Duration::from_millis(1));
        let nothing: Option<u32> = None;
        assert!(nothing.is_some(), "it was there");
    });
    let count = Arc::clone(&done);
    world.start(Process(3), "goes on", move || {
        thread::sleep(Duration::from_secs(2));
        *count.lock() += 1;
    });
    run(&world);
    assert_eq!(world.ended(Process(1)), Some(ProcessEnd::Exited(70)));
    assert_eq!(world.ended(Process(2)), Some(ProcessEnd::Panicked("it was there".into())));
    assert_eq!((world.ended(Process(3)), *done.lock()), (None, 1));
    assert!(world.left().is_empty());
}

#[test]
fn outside_of_a_world_all_of_it_is_the_operating_systems() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let other = Arc::clone(&shared);
    let (sender, receiver) = channel();
    let thread = spawn(move || {
        *other.0.lock() += 1;
        other.1.notify_all();
        receiver.recv().unwrap()
    });
    let mut value = shared.0.lock();
    while *value == 0 {
        shared.1.wait(&mut value);
    }
    sender.send(7).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
}

#[cfg(feature = "tasks")]
#[test]
fn tasks_wait_for_timers_and_for_each_other_and_can_be_aborted() {
    use crate::task::{Handle, JoinSet, interval, sleep, spawn_blocking, timeout};

    let (world, seen) = (World::new(8), Arc::new(Plain::new(Vec::new())));
    let events = Arc::clone(&seen);
    world.start(Process(1), "main", move || {
        let notice = Arc::new(tokio::sync::Notify::new());
        let mut tasks = JoinSet::new();
        let (waits, ticks) = (Arc::clone(&notice), Arc::clone(&events));
        tasks.spawn(async move {
            let mut interval = interval(Duration::from_millis(10));
            loop {
                interval.tick().await;
                ticks.lock().push("tick");
            }
        });
        let told = Arc::clone(&events);
        tasks.spawn(async move {
            let late = timeout(Duration::from_millis(5), waits.notified()).await;
            told.lock().push(if late.is_err() { "late" } else { "notified" });
            waits.notified().await;
            told.lock().push("notified");
        });
        let handle = Handle::current();
        handle.block_on(async {
            sleep(Duration::from_millis(25)).await;
            notice.notify_one();
            let worked = spawn_blocking(|| {
                thread::sleep(Duration::from_millis(2));
                "worked"
            });
            let worked = worked.await.unwrap();
            events.lock().push(worked);
            tasks.abort_all();
            sleep(Duration::from_secs(1)).await;
        });
    });
    run(&world);
    assert_eq!(*seen.lock(), ["tick", "late", "tick", "tick", "notified", "worked"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}
