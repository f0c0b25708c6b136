//! The preferred location: when the preferred instance has been in sync for a while and another one
//! is active, the active one hands over to it.
//!
//! Each instance but the preferred one watches. Not here: handing over (`hand_over`).
//!
//! Invariant: when the preferred instance took over and was active for less than a minute, an
//! instance that saw this does not hand over to it again until it was active for a minute. A file
//! in the data folder remembers it, because an instance that hands over re-executes itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use towline_os::fs;
use towline_os::time::Instant;

use towline_admin::catalogue::{PREFERRED_HANDS_OVER, PREFERRED_HELD_OFF};
use towline_group::Role;
use towline_os::task::{MissedTickBehavior, interval};

use crate::driver::Driver;
use crate::frames::{member_of, peer_of};
use crate::hand_over::{self, AdminRequest};
use towline_config::GroupConfig;
use towline_link::Peer;
use towline_logging::log as say;

/// So long the preferred instance must be active for what happens then to be no failure of it. Also
/// the least time between two hand-overs.
const LASTING: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Name of the file that is there while the preferred instance gets nothing.
const FILE: &str = "preferred-held-off";

/// Watches until it is dropped.
pub async fn watch(driver: Arc<Driver>, group: GroupConfig, data: PathBuf) {
    let this = driver.this();
    let delay = group.preferred_delay();
    let Some(preferred) = group.position(&group.preferred_location) else { return };
    if preferred == this {
        return;
    }
    let file = data.join(FILE);
    let mut preference = Preference::new(preferred, this, delay, fs::exists(&file));
    let mut place = driver.whereabouts();
    let mut pause = interval(LOOK_INTERVAL);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = pause.tick() => {}
            changed = place.changed() => if changed.is_err() { return },
        }
        let held_off = preference.held_off;
        let verdict = preference.look(Instant::now(), seen(&driver, preferred));
        if preference.held_off != held_off {
            keep(&file, preference.held_off);
        }
        let to = &group.preferred_location;
        match verdict {
            PreferenceVerdict::Nothing => {}
            PreferenceVerdict::HeldOff => say(&PREFERRED_HELD_OFF, &[to]),
            PreferenceVerdict::HandOver => {
                say(&PREFERRED_HANDS_OVER, &[to]);
                hand_over::carry_out(&driver, AdminRequest::Switch { to: Some(to.clone()) });
            }
        }
    }
}

fn seen(driver: &Driver, preferred: Peer) -> PreferenceInputs {
    let group = driver.group();
    let serves = group.role == Role::Leader && driver.active().is_some();
    let member = member_of(preferred);
    let in_sync = group.peers.iter().any(|peer| peer.id == member && peer.is_in_sync);
    // With an address that only this instance can hold, it would serve no client there.
    let can_take = serves && in_sync && !driver.conditions().loses_address(preferred);
    PreferenceInputs { leader: group.leader.map(peer_of), can_take }
}

/// Writes down whether the preferred instance is held off. When that fails it is forgotten at the
/// end of the process: then it is tried once more than it should be.
fn keep(file: &Path, held_off: bool) {
    let kept = if held_off { fs::write(file, "") } else { fs::remove_file(file) };
    if let Err(error) = kept {
        tracing::warn!(%error, file = %file.display(), "whether the preferred instance is held off");
    }
}

/// What is to be seen at one moment.
#[derive(Clone, Copy, Debug)]
struct PreferenceInputs {
    leader: Option<Peer>,
    /// This instance serves clients, the preferred one is in sync with it, and can hold the
    /// floating address, if this one can.
    can_take: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreferenceVerdict {
    Nothing,
    HandOver,
    /// It would be time, but the last time was no success. Said once for each time.
    HeldOff,
}

/// The preferred instance is or was active.
#[derive(Clone, Copy, Debug)]
struct Reign {
    since: Instant,
    /// When it was seen last.
    seen_at: Instant,
    /// Another one was active before.
    after_another: bool,
}

/// What one instance remembers of the preferred one.
#[derive(Debug)]
struct Preference {
    preferred: Peer,
    this: Peer,
    delay: Duration,
    leader: Option<Peer>,
    /// While the preferred one is active, and until it is known that another one is.
    reign: Option<Reign>,
    can_take_since: Option<Instant>,
    held_off: bool,
    reported: bool,
}

impl Preference {
    fn new(preferred: Peer, this: Peer, delay: Duration, held_off: bool) -> Preference {
        assert_ne!(preferred, this, "no instance hands over to itself");
        let leader = None;
        let reign = None;
        let can_take_since = None;
        Preference {
            preferred,
            this,
            delay,
            leader,
            reign,
            can_take_since,
            held_off,
            reported: false,
        }
    }

    fn look(&mut self, now: Instant, seen: PreferenceInputs) -> PreferenceVerdict {
        if let Some(leader) = seen.leader {
            self.led_by(now, leader);
        }
        if seen.leader != Some(self.this) || !seen.can_take {
            (self.can_take_since, self.reported) = (None, false);
            return PreferenceVerdict::Nothing;
        }
        let since = *self.can_take_since.get_or_insert(now);
        if now.saturating_duration_since(since) < self.delay || self.reported {
            return PreferenceVerdict::Nothing;
        }
        self.reported = true;
        if self.held_off {
            return PreferenceVerdict::HeldOff;
        }
        // Until it has shown that it can.
        self.held_off = true;
        PreferenceVerdict::HandOver
    }

    fn led_by(&mut self, now: Instant, leader: Peer) {
        let before = self.leader.replace(leader);
        if leader == self.preferred {
            let after_another = before.is_some_and(|before| before != leader);
            let begun = Reign { since: now, seen_at: now, after_another };
            let reign = self.reign.get_or_insert(begun);
            reign.seen_at = now;
            if reign.lasted() >= LASTING {
                self.held_off = false;
            }
        } else if let Some(reign) = self.reign.take()
            && reign.after_another
            && reign.lasted() < LASTING
        {
            self.held_off = true;
        }
    }
}

impl Reign {
    fn lasted(&self) -> Duration {
        self.seen_at.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(30);
    const A: Peer = 0;
    const B: Peer = 1;
    const C: Peer = 2;

    /// Instance B, which looks every second.
    struct Observer {
        preference: Preference,
        now: Instant,
    }

    impl Observer {
        fn new(held_off: bool) -> Observer {
            Observer { preference: Preference::new(A, B, DELAY, held_off), now: Instant::now() }
        }

        /// For so many seconds `leader` leads; yields what came of it, with the second.
        fn sees(
            &mut self,
            seconds: u64,
            leader: Option<Peer>,
            in_sync: bool,
        ) -> Vec<(u64, PreferenceVerdict)> {
            let mut verdicts = Vec::new();
            for second in 0..seconds {
                let seen = PreferenceInputs { leader, can_take: leader == Some(B) && in_sync };
                let verdict = self.preference.look(self.now, seen);
                if verdict != PreferenceVerdict::Nothing {
                    verdicts.push((second, verdict));
                }
                self.now += Duration::from_secs(1);
            }
            verdicts
        }
    }

    #[test]
    fn the_preferred_instance_gets_the_active_part_once_it_was_in_sync_for_the_delay() {
        let mut reported = Observer::new(false);
        assert_eq!(reported.sees(100, Some(B), false), []);
        assert_eq!(reported.sees(20, Some(B), true), []);
        assert_eq!(reported.sees(1, Some(B), false), []);
        assert_eq!(reported.sees(31, Some(B), true), [(30, PreferenceVerdict::HandOver)]);
    }

    #[test]
    fn only_the_active_instance_hands_over() {
        let mut reported = Observer::new(false);
        assert_eq!(reported.sees(100, Some(C), true), []);
        assert_eq!(reported.sees(100, None, true), []);
    }

    #[test]
    fn a_hand_over_that_fails_is_not_tried_twice() {
        let mut reported = Observer::new(false);
        assert_eq!(reported.sees(200, Some(B), true), [(30, PreferenceVerdict::HandOver)]);
        // It was away and is in sync again.
        reported.sees(1, Some(B), false);
        assert_eq!(reported.sees(200, Some(B), true), [(30, PreferenceVerdict::HeldOff)]);
    }

    #[test]
    fn a_preferred_instance_that_did_not_last_is_held_off_by_the_giver_and_by_the_watcher() {
        // B handed over, re-executed itself with the file there, and is active again.
        let mut giver = Observer::new(true);
        giver.sees(20, Some(A), true);
        assert_eq!(giver.sees(100, Some(B), true), [(30, PreferenceVerdict::HeldOff)]);
        // Here C gave.
        let mut watcher = Observer::new(false);
        watcher.sees(100, Some(C), true);
        watcher.sees(59, Some(A), true);
        // No instance was active for long: that does not count as a time of the preferred one.
        watcher.sees(500, None, true);
        assert_eq!(watcher.sees(100, Some(B), true), [(30, PreferenceVerdict::HeldOff)]);
    }

    #[test]
    fn a_preferred_instance_that_was_active_for_a_minute_gets_it_again() {
        let mut reported = Observer::new(true);
        reported.sees(30, Some(A), true);
        // No active instance is known for a moment, and then the same one.
        reported.sees(5, None, true);
        reported.sees(31, Some(A), true);
        assert!(!reported.preference.held_off);
        assert_eq!(reported.sees(31, Some(B), true), [(30, PreferenceVerdict::HandOver)]);
    }

    #[test]
    fn the_first_active_instance_of_a_young_group_may_fail_and_come_back() {
        let mut reported = Observer::new(false);
        reported.sees(10, Some(A), true);
        reported.sees(2, None, true);
        assert_eq!(reported.sees(31, Some(B), true), [(30, PreferenceVerdict::HandOver)]);
    }

    #[test]
    fn that_it_is_held_off_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        keep(&file, true);
        assert!(file.exists());
        keep(&file, false);
        assert!(!file.exists());
    }
}
