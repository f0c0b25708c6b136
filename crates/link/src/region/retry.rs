//! When the other region is dialled again: a number of tries with a short timer, then a long one
//! for ever (ShortRetryTimer, ShortRetryCount, LongRetryTimer; IBM MQ, Native HA cross-region
//! replication, tuning).
//!
//! Not here: sockets. Invariant: two tries that nothing but the other end caused are never closer
//! than the short timer, so two regions that refuse each other do not drive each other around.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::settings::Retries;

/// What the link does to reach the other region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryPhase {
    /// It is not dialled: the other end may.
    #[default]
    Off,
    /// The first try is under way.
    First,
    /// A connection that we dialled stands.
    Connected,
    /// Dialled again after each short timer.
    Short,
    /// Dialled again after each long timer.
    Long,
}

impl RetryPhase {
    /// As status and messages name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RetryPhase::Off => "not dialled",
            RetryPhase::First => "connecting",
            RetryPhase::Connected => "connected",
            RetryPhase::Short => "short retry timer",
            RetryPhase::Long => "long retry timer",
        }
    }
}

/// What follows a try that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextTry {
    pub(super) pause: Duration,
    pub(super) phase: RetryPhase,
    /// It is the first one of its phase.
    pub(super) begins: bool,
}

impl NextTry {
    /// Whether the try that failed is logged: each one, or the first one of each phase
    /// (RetryReporting).
    pub(super) fn is_reported(self, each_try: bool) -> bool {
        each_try || self.begins
    }
}

/// Counts the tries.
#[derive(Debug)]
pub(super) struct RetrySchedule {
    retries: Retries,
    failures: u32,
}

impl RetrySchedule {
    pub(super) fn new(retries: Retries) -> RetrySchedule {
        assert!(!retries.short_timer.is_zero(), "a retry timer of zero would spin");
        RetrySchedule { retries, failures: 0 }
    }

    /// An order came, or a connection: the short timer applies from now on.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// A try failed.
    pub(super) fn failed(&mut self) -> NextTry {
        let Retries { short_timer, short_count, long_timer } = self.retries;
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let is_short = failures < short_count;
        NextTry {
            pause: if is_short { short_timer } else { long_timer.max(short_timer) },
            phase: if is_short { RetryPhase::Short } else { RetryPhase::Long },
            begins: failures == 0 || failures == short_count,
        }
    }

    /// A connection ended that stood for so long. One that was shorter than the short timer counts
    /// as a try that failed, and so does one that was refused: what ends each connection at once
    /// must not be repeated for ever.
    pub(super) fn ended(&mut self, stood: Duration, is_refused: bool) -> NextTry {
        if is_refused || stood < self.retries.short_timer {
            return self.failed();
        }
        self.reset();
        NextTry { pause: Duration::ZERO, phase: RetryPhase::First, begins: true }
    }
}

/// What shortens a pause.
#[derive(Debug, Default)]
pub(super) struct Kicks {
    /// Dial at once.
    pub(super) now: Notify,
    /// The other end showed that it lives.
    pub(super) alive: Notify,
}

/// Waits until it is time for the next try. The last one ended when this is called. Whether an
/// order came is returned.
///
/// That the other end lives makes the next try earlier and counts for nothing else: it may live
/// and refuse this side for ever.
pub(super) async fn pause(kicks: &Kicks, length: Duration, short_timer: Duration) -> bool {
    let began = Instant::now();
    let until = began + length;
    tokio::select! {
        biased;
        () = kicks.now.notified() => return true,
        () = kicks.alive.notified() => {}
        () = sleep_until(until) => return false,
    }
    tokio::select! {
        biased;
        () = kicks.now.notified() => true,
        () = sleep_until(until.min(began + short_timer)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2_500);
    const LONG: Duration = Duration::from_secs(60);

    fn schedule(short_count: u32) -> RetrySchedule {
        RetrySchedule::new(Retries { short_timer: SHORT, short_count, long_timer: LONG })
    }

    #[test]
    fn the_short_timer_applies_so_many_times_and_then_the_long_one_for_ever() {
        let mut schedule = schedule(3);
        let short = |begins| NextTry { pause: SHORT, phase: RetryPhase::Short, begins };
        let long = |begins| NextTry { pause: LONG, phase: RetryPhase::Long, begins };
        let first: Vec<_> = (0..5).map(|_| schedule.failed()).collect();
        assert_eq!(first, [short(true), short(false), short(false), long(true), long(false)]);
        for _ in 0..1_000 {
            assert_eq!(schedule.failed(), long(false));
        }
        schedule.failures = u32::MAX;
        assert_eq!((schedule.failed(), schedule.failed()), (long(false), long(false)));
        schedule.reset();
        assert_eq!(schedule.failed(), short(true));
    }

    #[test]
    fn without_short_tries_the_long_timer_applies_at_once() {
        let next = schedule(0).failed();
        assert_eq!((next.pause, next.phase, next.begins), (LONG, RetryPhase::Long, true));
    }

    #[test]
    fn a_connection_that_stood_is_dialled_again_at_once_and_a_short_one_was_a_try_that_failed() {
        let mut schedule = schedule(2);
        schedule.failed();
        assert_eq!(schedule.ended(SHORT, false).pause, Duration::ZERO);
        assert!(schedule.failed().begins, "it counts anew");
        let short = SHORT - Duration::from_millis(1);
        let phases: Vec<_> = (0..3).map(|_| schedule.ended(short, false).phase).collect();
        assert_eq!(phases, [RetryPhase::Short, RetryPhase::Long, RetryPhase::Long]);
    }

    /// Two logs that have diverged find it out behind a connection that stands.
    #[test]
    fn a_connection_that_was_refused_counts_as_a_try_that_failed_however_long_it_stood() {
        let mut schedule = schedule(2);
        let phases: Vec<_> = (0..3).map(|_| schedule.ended(2 * SHORT, true).phase).collect();
        assert_eq!(phases, [RetryPhase::Short, RetryPhase::Short, RetryPhase::Long]);
        assert_eq!(schedule.ended(2 * SHORT, false).pause, Duration::ZERO);
    }

    #[test]
    fn the_first_try_of_each_phase_is_reported_or_each_one() {
        let mut schedule = schedule(3);
        let tries: Vec<_> = (0..6).map(|_| schedule.failed()).collect();
        let phase = tries.iter().map(|next| next.is_reported(false)).collect::<Vec<_>>();
        assert_eq!(phase, [true, false, false, true, false, false]);
        assert!(tries.iter().all(|next| next.is_reported(true)));
    }

    /// How long a pause of the long timer takes when these come in the middle, and what it says.
    fn paused(kicks: impl AsyncFnOnce(&Kicks)) -> (Duration, bool) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (all, began) = (Kicks::default(), Instant::now());
            let ((), is_kicked) =
                tokio::join!(kicks(&all), async { pause(&all, LONG, SHORT).await });
            (began.elapsed(), is_kicked)
        })
    }

    async fn at(time: Duration) {
        sleep_until(Instant::now() + time).await;
    }

    /// Virtual time advances in milliseconds.
    fn about(paused: (Duration, bool)) -> (u128, bool) {
        (paused.0.as_millis() / 10 * 10, paused.1)
    }

    #[test]
    fn a_pause_lasts_as_long_as_its_timer_unless_the_other_end_shows_that_it_lives() {
        let second = Duration::from_secs(1);
        assert_eq!(about(paused(async |_| {})), (60_000, false));
        let order = paused(async |kicks| {
            at(second).await;
            kicks.now.notify_one();
        });
        assert_eq!(about(order), (1_000, true), "an order counts at once");
        let early = paused(async |kicks| {
            at(second).await;
            kicks.alive.notify_one();
        });
        assert_eq!(about(early), (2_500, false), "not before the short timer");
        let late = paused(async |kicks| {
            at(10 * second).await;
            kicks.alive.notify_one();
        });
        assert_eq!(about(late), (10_000, false), "at once behind it");
        let both = paused(async |kicks| {
            kicks.alive.notify_one();
            at(second).await;
            kicks.now.notify_one();
        });
        assert_eq!(about(both), (1_000, true));
    }
}
