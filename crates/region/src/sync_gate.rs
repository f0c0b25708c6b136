//! Up to where replies may go that wait for the other region as well (SyncReplication).
//!
//! A reply to a client goes when its run is durable at a majority of the recovery group. While
//! that group is away or behind, *strict* answers nothing; *eventual* goes on alone after a bounded
//! wait, and waits again once recovery has caught up.
//!
//! | State | Replies wait | What was answered is in recovery |
//! | --- | --- | --- |
//! | waiting | yes | once it is: see [`SyncGate::covers`] |
//! | in step | yes | yes |
//! | alone | no | not all of it |
//!
//! A gate begins as waiting: an earlier active instance may have been in step, and what goes on in
//! step through a change of leaders must not be alone in between without anyone being informed. It
//! leaves *alone* in two steps. From the first on replies wait again; in step it is when recovery
//! has what had been answered until the first, which only the one that answers knows.
//!
//! Not here: the replies (`towline_node`), the link. Time is an argument.
//!
//! Invariants: without being alone nothing is released that recovery did not report; strict is
//! alone only by order; *in step* says that a fail-over loses nothing that was answered.

use std::time::Duration;

use towline_types::{Lsn, Time};

/// What happens while recovery is away or behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Nothing is answered.
    Strict,
    /// Live goes on alone.
    Eventual,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// Replies wait, and recovery is not known to have all that was answered, or is not there.
    Waiting {
        /// Since when.
        since: Time,
    },
    /// Replies wait; recovery has all that was answered, and what is new within a moment.
    InStep,
    /// Replies do not wait.
    Alone {
        /// Since when.
        since: Time,
    },
}

/// What is known of recovery at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncSight {
    /// A link stands, and recovery has reported on it.
    pub is_in_touch: bool,
    /// Age of the oldest commit that it lacks, microseconds.
    pub age_us: u64,
}

/// What the operator is to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncTurn {
    /// It is in step again, or for the first time.
    InStep,
    /// Replies have waited for as long as they are to wait, and go on waiting.
    Withholds,
    /// It goes on alone.
    Alone,
}

/// Figures for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncView {
    /// The policy.
    pub policy: SyncPolicy,
    /// The state.
    pub state: SyncState,
    /// Whether recovery has all that was answered: a fail-over would lose none of it.
    pub covers: bool,
    /// How often it went on alone.
    pub times_alone: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SyncGate {
    policy: SyncPolicy,
    wait_max: Duration,
    state: SyncState,
    /// The furthest that recovery has reported.
    reported: Lsn,
    /// What it reported last.
    has: Lsn,
    /// Up to here something may have been answered without recovery; `None`: not known yet.
    floor: Option<Lsn>,
    /// Since when there is no link on which recovery reports.
    out_of_touch: Option<Time>,
    /// The operator has heard that replies wait, or that it is alone.
    is_told: bool,
    times_alone: u64,
}

impl SyncGate {
    /// Of an instance that becomes active at `now`. A reply waits for `wait_max`, about.
    #[must_use]
    pub fn new(policy: SyncPolicy, wait_max: Duration, now: Time) -> SyncGate {
        SyncGate {
            policy,
            wait_max,
            state: SyncState::Waiting { since: now },
            reported: Lsn::ZERO,
            has: Lsn::ZERO,
            floor: None,
            out_of_touch: Some(now),
            is_told: false,
            times_alone: 0,
        }
    }

    /// A majority of recovery has the log up to here. One that reports less than before lost
    /// something: what was released was there, and is not any more.
    pub fn reported(&mut self, end: Lsn) {
        self.has = end;
        self.reported = self.reported.max(end);
    }

    /// The other region says, on no link that ships or in words that cannot be compared, that it
    /// has no more than this.
    pub fn has_at_most(&mut self, end: Lsn) {
        self.has = self.has.min(end);
    }

    /// Up to where replies may go; [`u64::MAX`]: all may.
    #[must_use]
    pub fn released(&self) -> Lsn {
        match self.state {
            SyncState::Alone { .. } => Lsn(u64::MAX),
            SyncState::Waiting { .. } | SyncState::InStep => self.reported,
        }
    }

    /// Whether [`SyncGate::answered_alone`] is to be called.
    #[must_use]
    pub fn wants_floor(&self) -> bool {
        self.floor.is_none() && !matches!(self.state, SyncState::Alone { .. })
    }

    /// Replies wait again; up to here something may have been answered before.
    pub fn answered_alone(&mut self, upto: Lsn) {
        if self.wants_floor() {
            self.floor = Some(upto);
        }
    }

    /// Whether recovery has all that was answered. Of an earlier active instance too, as long as
    /// its log was this one.
    #[must_use]
    pub fn covers(&self) -> bool {
        self.floor.is_some_and(|floor| self.has >= self.reported.max(floor))
    }

    /// Looks at what is known now; to be called a few times within the longest wait.
    pub fn look(&mut self, sight: SyncSight, now: Time) -> Option<SyncTurn> {
        self.out_of_touch = match (sight.is_in_touch, self.out_of_touch) {
            (true, _) => None,
            (false, since) => since.or(Some(now)),
        };
        let out = self.out_of_touch.map_or(Duration::ZERO, |since| now.since(since));
        let behind = Duration::from_micros(sight.age_us);
        let waits = out.max(behind);
        let follows = sight.is_in_touch && behind <= self.wait_max / 2;
        match (self.state, self.policy) {
            (SyncState::Alone { .. }, _) if follows => {
                // What is answered from here on waits. In step it is later.
                (self.state, self.floor) = (SyncState::Waiting { since: now }, None);
                None
            }
            (SyncState::Alone { .. }, _) => None,
            (_, SyncPolicy::Eventual) if waits >= self.wait_max => {
                self.goes_alone(now);
                Some(SyncTurn::Alone)
            }
            (SyncState::Waiting { .. }, _) if follows && self.covers() => {
                self.state = SyncState::InStep;
                self.is_told = false;
                Some(SyncTurn::InStep)
            }
            (SyncState::InStep, _) if !follows || !self.covers() => {
                self.state = SyncState::Waiting { since: now };
                None
            }
            (SyncState::Waiting { .. }, _) if waits >= self.wait_max && !self.is_told => {
                self.is_told = true;
                Some(SyncTurn::Withholds)
            }
            (SyncState::Waiting { .. } | SyncState::InStep, _) => None,
        }
    }

    /// An operator has it go on alone, whatever the policy, until recovery has caught up. False: it
    /// is in step, or alone already.
    pub fn order_alone(&mut self, now: Time) -> bool {
        let waits = matches!(self.state, SyncState::Waiting { .. });
        if waits {
            self.goes_alone(now);
        }
        waits
    }

    /// Figures for the status.
    #[must_use]
    pub fn view(&self) -> SyncView {
        SyncView {
            policy: self.policy,
            state: self.state,
            covers: self.covers(),
            times_alone: self.times_alone,
        }
    }

    fn goes_alone(&mut self, now: Time) {
        (self.state, self.floor) = (SyncState::Alone { since: now }, None);
        self.times_alone += 1;
        self.is_told = true;
    }
}

#[cfg(test)]
mod tests {
    use towline_types::SeededRandom;

    use super::*;

    const WAIT: Duration = Duration::from_secs(5);
    const IN_TOUCH: SyncSight = SyncSight { is_in_touch: true, age_us: 0 };
    const AWAY: SyncSight = SyncSight { is_in_touch: false, age_us: 0 };

    fn at(ms: u64) -> Time {
        Time(ms * 1_000)
    }

    /// In step at 1 s, with all up to 100.
    fn in_step(policy: SyncPolicy) -> SyncGate {
        let mut gate = SyncGate::new(policy, WAIT, at(0));
        gate.answered_alone(Lsn(100));
        gate.reported(Lsn(100));
        assert_eq!(gate.look(IN_TOUCH, at(1_000)), Some(SyncTurn::InStep));
        gate
    }

    #[test]
    fn a_new_active_instance_waits_until_recovery_has_what_the_one_before_may_have_answered() {
        for policy in [SyncPolicy::Strict, SyncPolicy::Eventual] {
            let mut gate = SyncGate::new(policy, WAIT, at(0));
            assert_eq!(gate.released(), Lsn::ZERO);
            assert!(gate.wants_floor() && !gate.covers());
            gate.reported(Lsn(90));
            assert_eq!(gate.look(IN_TOUCH, at(100)), None, "what was answered is not known");
            gate.answered_alone(Lsn(100));
            assert_eq!(gate.look(IN_TOUCH, at(200)), None);
            assert_eq!((gate.released(), gate.covers()), (Lsn(90), false));
            gate.reported(Lsn(100));
            assert_eq!(gate.look(IN_TOUCH, at(300)), Some(SyncTurn::InStep));
            assert!(gate.covers());
            assert_eq!(gate.view().state, SyncState::InStep);
        }
    }

    #[test]
    fn strict_answers_nothing_while_recovery_is_away_and_says_so_once() {
        let mut gate = in_step(SyncPolicy::Strict);
        assert_eq!(gate.look(AWAY, at(2_000)), None);
        assert_eq!(gate.view().state, SyncState::Waiting { since: at(2_000) });
        assert_eq!(gate.look(AWAY, at(6_999)), None);
        assert_eq!(gate.look(AWAY, at(7_000)), Some(SyncTurn::Withholds));
        assert_eq!(gate.look(AWAY, at(900_000)), None);
        assert_eq!(gate.released(), Lsn(100));
        assert!(gate.covers(), "nothing was answered since");
        assert_eq!(gate.look(IN_TOUCH, at(900_200)), Some(SyncTurn::InStep));
        assert_eq!(gate.view().times_alone, 0);
    }

    #[test]
    fn eventual_goes_on_alone_after_its_wait_and_waits_again_once_recovery_has_caught_up() {
        let mut gate = in_step(SyncPolicy::Eventual);
        assert_eq!(gate.look(AWAY, at(2_000)), None);
        assert_eq!(gate.look(AWAY, at(6_900)), None);
        assert_eq!(gate.released(), Lsn(100));
        assert_eq!(gate.look(AWAY, at(7_000)), Some(SyncTurn::Alone));
        assert_eq!(gate.released(), Lsn(u64::MAX));
        assert!(!gate.covers() && !gate.wants_floor());
        let behind = SyncSight { age_us: 60_000_000, ..IN_TOUCH };
        assert_eq!(gate.look(behind, at(60_000)), None, "it catches up");
        assert_eq!(gate.view().state, SyncState::Alone { since: at(7_000) });
        gate.reported(Lsn(480));
        assert_eq!(gate.look(IN_TOUCH, at(61_000)), None);
        assert_eq!(gate.released(), Lsn(480), "replies wait again");
        assert_eq!(gate.view().state, SyncState::Waiting { since: at(61_000) });
        assert!(gate.wants_floor() && !gate.covers());
        gate.answered_alone(Lsn(500));
        assert_eq!(gate.look(IN_TOUCH, at(61_200)), None);
        gate.reported(Lsn(500));
        assert_eq!(gate.look(IN_TOUCH, at(61_400)), Some(SyncTurn::InStep));
        assert_eq!(gate.view().times_alone, 1);
    }

    #[test]
    fn a_recovery_that_is_connected_and_receives_nothing_is_waited_for_no_longer() {
        let mut gate = in_step(SyncPolicy::Eventual);
        let behind = |age_us| SyncSight { age_us, ..IN_TOUCH };
        assert_eq!(gate.look(behind(2_500_000), at(2_000)), None);
        assert_eq!(gate.view().state, SyncState::InStep);
        assert_eq!(gate.look(behind(2_500_001), at(2_200)), None);
        assert_eq!(gate.view().state, SyncState::Waiting { since: at(2_200) });
        assert_eq!(gate.look(behind(5_000_000), at(4_000)), Some(SyncTurn::Alone));
    }

    #[test]
    fn strict_goes_on_alone_by_order_until_recovery_is_back() {
        let mut gate = in_step(SyncPolicy::Strict);
        assert!(!gate.order_alone(at(1_500)), "it is in step");
        assert_eq!(gate.look(AWAY, at(2_000)), None);
        assert!(gate.order_alone(at(3_000)));
        assert!(!gate.order_alone(at(3_100)), "it is alone");
        assert_eq!((gate.released(), gate.covers()), (Lsn(u64::MAX), false));
        assert_eq!(gate.look(AWAY, at(50_000)), None);
        assert_eq!(gate.look(IN_TOUCH, at(51_000)), None);
        assert_eq!(gate.released(), Lsn(100));
    }

    #[test]
    fn a_recovery_that_lost_what_it_had_is_not_in_step_before_it_has_it_again() {
        let mut gate = in_step(SyncPolicy::Strict);
        gate.reported(Lsn(40));
        assert!(!gate.covers());
        assert_eq!(gate.look(IN_TOUCH, at(1_200)), None);
        assert_eq!(gate.view().state, SyncState::Waiting { since: at(1_200) });
        assert_eq!(gate.released(), Lsn(100), "no more than was there");
        gate.reported(Lsn(100));
        assert_eq!(gate.look(IN_TOUCH, at(1_400)), Some(SyncTurn::InStep));
    }

    /// One that answers, and a recovery that is there or not: whenever the gate says that recovery
    /// has all that was answered, it has.
    #[test]
    fn in_step_a_fail_over_loses_nothing_that_was_answered() {
        let from = std::env::var("SYNC_SEED").ok().and_then(|seed| seed.parse().ok());
        let seeds = from.map_or(0..300, |seed: u64| seed..seed + 1);
        for seed in seeds {
            println!("SYNC_SEED={seed}");
            let mut random = SeededRandom::new(seed);
            let policy = match random.below(2) {
                0 => SyncPolicy::Strict,
                _ => SyncPolicy::Eventual,
            };
            let (mut now, mut durable, mut has) = (0, 100, 0);
            let mut gate = SyncGate::new(policy, WAIT, at(0));
            // What the one that answers heard last, and what it has answered since it began.
            let (mut told, mut answered, mut alone_upto) = (0, durable, durable);
            let (mut is_in_touch, mut lacking_since) = (false, None);
            let mut steps_in_step = 0;
            for _ in 0..2_000 {
                now += random.below(300);
                match random.below(8) {
                    0 => is_in_touch = random.below(4) > 0,
                    1..=3 => durable += random.below(50),
                    4 if is_in_touch => {
                        let lacks = durable - has;
                        has += if random.below(2) == 0 { lacks } else { random.below(lacks + 1) };
                        gate.reported(Lsn(has));
                    }
                    5 if random.below(30) == 0 => {
                        has = random.below(has + 1);
                        gate.reported(Lsn(has));
                    }
                    6 if random.below(20) == 0 => {
                        gate.order_alone(at(now));
                    }
                    _ => {}
                }
                lacking_since = if has < durable { lacking_since.or(Some(now)) } else { None };
                let age_us = lacking_since.map_or(0, |since| (now - since) * 1_000);
                gate.look(SyncSight { is_in_touch, age_us }, at(now));
                // The one that answers hears of it a little later, or not yet.
                if random.below(3) > 0 {
                    let next = gate.released().0;
                    if next < told {
                        alone_upto = alone_upto.max(durable);
                    }
                    told = next;
                }
                answered = answered.max(told.min(durable));
                if told < u64::MAX && random.below(2) == 0 {
                    gate.answered_alone(Lsn(alone_upto));
                }
                assert!(
                    !gate.covers() || answered <= has,
                    "{answered} were answered, {has} are there"
                );
                if gate.view().state == SyncState::InStep {
                    steps_in_step += 1;
                    assert!(gate.covers());
                }
            }
            assert!(steps_in_step > 0, "it was never in step");
        }
    }
}
