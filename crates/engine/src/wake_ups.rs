//! What wakes the tasks that have nothing to do most of the time: they sleep until a step of the
//! instance, or the log, says that there is something.
//!
//! Not here: what they do (`housekeeping`, `pager`).
//!
//! Invariant: no wake-up is lost. A task writes down for what it waits, and then looks once more
//! whether that has come about; who brings it about stores it first, and then looks whether a task
//! waits for it. All of these are sequentially consistent, so one of the two sees the other. A
//! notice that finds no task waiting is kept for the next wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use towline_node::Instance;
use towline_types::{Lsn, Time};

/// What an instance needs done for it by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstanceNeeds {
    /// When it must be stepped with the time.
    pub(crate) next_tick: Time,
    /// Units of work may have bodies in the log.
    pub(crate) has_bodies_ahead: bool,
    /// More of the queues is in memory than should be.
    pub(crate) eviction: bool,
}

impl InstanceNeeds {
    /// Of an instance before its first step.
    pub(crate) const NONE: InstanceNeeds =
        InstanceNeeds { next_tick: Time::NEVER, has_bodies_ahead: false, eviction: false };

    /// As they are now; cheap, because it is asked after each step.
    pub(crate) fn of(instance: &Instance) -> InstanceNeeds {
        InstanceNeeds {
            next_tick: instance.next_tick(),
            has_bodies_ahead: instance.has_bodies_ahead(),
            eviction: instance.wants_eviction(),
        }
    }
}

/// Tasks to be notified when the lock of the door is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToNotify {
    tick: bool,
    pressure: bool,
}

impl ToNotify {
    pub(crate) fn join(&mut self, other: ToNotify) {
        self.tick |= other.tick;
        self.pressure |= other.pressure;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct WakeUps {
    /// When the instance must be stepped with the time: [`InstanceNeeds::next_tick`].
    next_tick: AtomicU64,
    /// When the task that does so wakes by itself.
    tick_planned: AtomicU64,
    tick: Notify,
    has_bodies_ahead: AtomicBool,
    pressure: Notify,
    /// The log is to be checked when it is durable beyond this position.
    next_look: AtomicU64,
    look: Notify,
}

impl WakeUps {
    pub(crate) fn new() -> WakeUps {
        WakeUps {
            next_tick: AtomicU64::new(InstanceNeeds::NONE.next_tick.0),
            tick_planned: AtomicU64::new(0),
            tick: Notify::new(),
            has_bodies_ahead: AtomicBool::new(InstanceNeeds::NONE.has_bodies_ahead),
            pressure: Notify::new(),
            next_look: AtomicU64::new(u64::MAX),
            look: Notify::new(),
        }
    }

    /// The needs of the instance were `before` and are `now`. Called under the lock of the door,
    /// so they are stored in their order.
    pub(crate) fn changed(&self, before: InstanceNeeds, now: InstanceNeeds) -> ToNotify {
        let mut notify = ToNotify::default();
        if now.next_tick != before.next_tick {
            self.next_tick.store(now.next_tick.0, Ordering::SeqCst);
            notify.tick = now.next_tick.0 < self.tick_planned.load(Ordering::SeqCst);
        }
        if now.has_bodies_ahead != before.has_bodies_ahead {
            self.has_bodies_ahead.store(now.has_bodies_ahead, Ordering::SeqCst);
            notify.pressure = now.has_bodies_ahead;
        }
        notify
    }

    /// Wakes them.
    pub(crate) fn notify(&self, whom: ToNotify) {
        if whom.tick {
            self.tick.notify_one();
        }
        if whom.pressure {
            self.pressure.notify_one();
        }
    }

    /// When the instance must be stepped with the time.
    pub(crate) fn next_tick(&self) -> Time {
        Time(self.next_tick.load(Ordering::SeqCst))
    }

    /// The task that ticks is about to sleep: for how long it may, `longest` at most.
    pub(crate) fn plan_tick(&self, now: Time, longest: Duration) -> Duration {
        let planned = self.next_tick().min(now + longest);
        self.tick_planned.store(planned.0, Ordering::SeqCst);
        // A step between these two lines saw the plan of before.
        self.next_tick().min(planned).since(now)
    }

    /// Returns when a tick is due sooner than was planned.
    pub(crate) async fn tick_comes_sooner(&self) {
        self.tick.notified().await;
    }

    /// Returns when units of work may have bodies in the log.
    pub(crate) async fn bodies_ahead(&self) {
        while !self.has_bodies_ahead.load(Ordering::SeqCst) {
            self.pressure.notified().await;
        }
    }

    /// The log is to be checked when it is durable beyond `position`; `durable` says how far it is.
    pub(crate) fn plan_look(&self, position: Lsn, durable: impl FnOnce() -> Lsn) {
        self.next_look.store(position.0, Ordering::SeqCst);
        // What became durable between these two lines was compared with the plan of before.
        if durable() > position {
            self.look.notify_one();
        }
    }

    /// The log is durable up to here.
    pub(crate) fn durable(&self, upto: Lsn) {
        if upto.0 > self.next_look.load(Ordering::SeqCst) {
            // Once: the next plan says what comes next.
            self.next_look.store(u64::MAX, Ordering::SeqCst);
            self.look.notify_one();
        }
    }

    /// The log is to be checked now.
    pub(crate) fn look_now(&self) {
        self.look.notify_one();
    }

    /// Returns when the log is to be checked, as it was planned.
    pub(crate) async fn look(&self) {
        self.look.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn needs(next_tick: u64) -> InstanceNeeds {
        InstanceNeeds { next_tick: Time(next_tick), ..InstanceNeeds::NONE }
    }

    #[test]
    fn only_a_tick_that_is_due_sooner_than_planned_wakes_the_task() {
        let (wake_ups, none) = (WakeUps::new(), InstanceNeeds::NONE);
        assert_eq!(wake_ups.plan_tick(Time(5_000), SECOND), SECOND);
        assert!(!wake_ups.changed(none, needs(1_005_000)).tick, "the task wakes by itself then");
        assert!(wake_ups.changed(needs(1_005_000), needs(900_000)).tick);
        assert_eq!(wake_ups.plan_tick(Time(5_000), SECOND), Duration::from_micros(895_000));
        assert!(!wake_ups.changed(needs(900_000), none).tick, "none is due");
        assert!(wake_ups.changed(none, needs(0)).tick);
        assert_eq!(wake_ups.plan_tick(Time(5_000), SECOND), Duration::ZERO, "overdue");
    }

    #[test]
    fn bodies_ahead_wake_when_they_appear_and_not_at_each_step() {
        let (wake_ups, none) = (WakeUps::new(), InstanceNeeds::NONE);
        let some = InstanceNeeds { has_bodies_ahead: true, ..none };
        assert!(wake_ups.changed(none, some).pressure);
        assert!(!wake_ups.changed(some, some).pressure);
        assert!(!wake_ups.changed(some, none).pressure);
    }

    #[tokio::test]
    async fn a_position_is_noticed_once_whether_it_is_passed_before_or_after_it_was_planned() {
        let wake_ups = WakeUps::new();
        wake_ups.durable(Lsn(100));
        wake_ups.plan_look(Lsn(200), || Lsn(100));
        wake_ups.durable(Lsn(200));
        let is_noticed = async || tokio::time::timeout(Duration::ZERO, wake_ups.look()).await;
        assert!(is_noticed().await.is_err(), "it is not beyond");
        wake_ups.durable(Lsn(201));
        wake_ups.durable(Lsn(300));
        assert!(is_noticed().await.is_ok());
        assert!(is_noticed().await.is_err(), "once");
        wake_ups.plan_look(Lsn(250), || Lsn(300));
        assert!(is_noticed().await.is_ok(), "it was passed before");
    }
}
