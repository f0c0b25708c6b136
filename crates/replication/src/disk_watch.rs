//! Watches the disk of this instance, and reports its condition to the others. An active instance
//! whose log is full hands over to one with free space.
//!
//! Not here: how a disk that hangs is noticed (`driver`), how leadership is handed over
//! (`hand_over`).
//!
//! Invariant: an instance hands over for its full log at most once until it had free space again in
//! between, and to none that is full: leadership does not circulate among full disks.

use std::sync::Arc;
use std::time::Duration;
use towline_os::time::Instant;

use towline_admin::catalogue::{GROUP_ALL_FULL, GROUP_FULL_HANDS_OVER, GROUP_SWITCH_FAILED};
use towline_log::Space;

use crate::disk_condition::DiskCondition;
use crate::driver::Driver;
use crate::frames::{KIND_CONDITION, peer_of};
use crate::hand_over;
use towline_group::PeerProgress;
use towline_link::{FrameBody, Peer};
use towline_logging::log as say;

/// How often the condition is reported.
const TELL_INTERVAL: Duration = Duration::from_millis(500);
/// The log must be full for so long: one that only waits for an image has free space a moment
/// later.
const FULL_FOR: Duration = Duration::from_secs(2);
/// Before the next attempt, when handing over failed.
const PAUSE: Duration = Duration::from_secs(10);
/// How often the disk is looked at, of the time that it may take, and the bounds of that.
const LOOKS: u32 = 20;
const LOOK_INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// The condition of this instance, but for whether it votes.
pub fn own(driver: &Driver) -> DiskCondition {
    let overdue = driver.overdue().map(|overdue| overdue.since.as_millis());
    DiskCondition {
        log_full: driver.log().space() == Space::Full,
        sync_overdue_ms: overdue.map_or(0, |since| u64::try_from(since).unwrap_or(u64::MAX)),
        address_refused: driver.conditions().address_refused(),
        region_certificate_s: driver.conditions().region_certificate_s(),
        region_certificate_begins_s: driver.conditions().region_certificate_begins_s(),
        votes: None,
    }
}

/// Watches the disk, and reports to the others, until the process ends; `longest` is how long the
/// disk may take.
pub fn watch(driver: &Arc<Driver>, longest: Duration) {
    let interval = (longest / LOOKS).clamp(LOOK_INTERVAL.0, LOOK_INTERVAL.1);
    let mut last = None;
    let mut fullness = Fullness::default();
    let mut running = Running { since: Instant::now(), gap: longest / 4 };
    while !driver.is_ending() {
        driver.look_at_disk(longest, running.since.elapsed());
        let now = Instant::now();
        let condition = own(driver);
        let is_due = last.is_none_or(|(when, reported): (Instant, DiskCondition)| {
            reported.log_full != condition.log_full || now.duration_since(when) >= TELL_INTERVAL
        });
        if is_due {
            tell(driver, condition);
            last = Some((now, condition));
            fullness.look(driver, condition.log_full, now);
        }
        let before = Instant::now();
        driver.pause(interval);
        running.paused(before, Instant::now());
    }
}

/// Since when this process has been running without standing still: what the disk owes for longer
/// may have been done while the process was stopped, and could not be seen.
#[derive(Debug)]
struct Running {
    since: Instant,
    /// A pause that is longer was none of ours.
    gap: Duration,
}

impl Running {
    fn paused(&mut self, from: Instant, to: Instant) {
        if to.duration_since(from) >= self.gap + LOOK_INTERVAL.1 {
            self.since = to;
        }
    }
}

fn tell(driver: &Driver, condition: DiskCondition) {
    let Some(links) = driver.links() else { return };
    let votes = Some(driver.group().may_vote);
    let Ok(body) = serde_json::to_vec(&DiskCondition { votes, ..condition }) else {
        unreachable!("flags and a number are JSON")
    };
    for peer in (0..driver.names().len()).filter(|peer| *peer != driver.this()) {
        // A peer that misses it gets the next one.
        let head = body.clone();
        links.send(peer, KIND_CONDITION, true, FrameBody { head, parts: Vec::new() });
    }
}

/// What this instance does about its own full log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fullness {
    /// Since when it is full.
    since: Option<Instant>,
    /// Not again before; `None` in it: not before it had free space.
    tried: Option<Option<Instant>>,
    /// That no instance has free space was logged.
    all_logged: bool,
}

/// What comes of a look.
#[derive(Debug, PartialEq, Eq)]
enum FullnessVerdict {
    Nothing,
    /// No instance that could take over has free space.
    AllFull,
    HandOver(Peer),
}

impl Fullness {
    fn look(&mut self, driver: &Arc<Driver>, is_full: bool, now: Instant) {
        // The only instance says that its log is full as a queue manager without a group does.
        if !is_full || !driver.leads() || driver.is_alone() {
            *self = Fullness::default();
            return;
        }
        let group = driver.group();
        let fit = group.peers.iter().filter(|peer| peer.is_in_sync);
        let with_room = fit.filter(|peer| {
            let reported = driver.conditions().of(peer_of(peer.id));
            reported.is_some_and(|reported| !reported.log_full && reported.sync_overdue_ms == 0)
        });
        let fitness = |peer: &&PeerProgress| {
            (!driver.conditions().loses_address(peer_of(peer.id)), peer.acknowledged)
        };
        let heir = with_room.max_by_key(fitness).map(|peer| peer_of(peer.id));
        match self.judge(heir, now) {
            FullnessVerdict::Nothing => {}
            FullnessVerdict::AllFull => say(&GROUP_ALL_FULL, &[]),
            FullnessVerdict::HandOver(heir) => {
                let name = driver.name(heir).to_owned();
                say(&GROUP_FULL_HANDS_OVER, &[&name]);
                if let Err(why) = hand_over::hand_over(driver, Some(&name)) {
                    say(&GROUP_SWITCH_FAILED, &[&why]);
                    self.tried = Some(now.checked_add(PAUSE));
                }
            }
        }
    }

    /// This instance leads, and its log is full.
    fn judge(&mut self, heir: Option<Peer>, now: Instant) -> FullnessVerdict {
        let since = *self.since.get_or_insert(now);
        let may = match self.tried {
            None => true,
            Some(again) => again.is_some_and(|again| now >= again),
        };
        if now.duration_since(since) < FULL_FOR || !may {
            return FullnessVerdict::Nothing;
        }
        match heir {
            Some(heir) => {
                self.tried = Some(None);
                FullnessVerdict::HandOver(heir)
            }
            None if self.all_logged => FullnessVerdict::Nothing,
            None => {
                self.all_logged = true;
                FullnessVerdict::AllFull
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_stood_still_begins_to_count_anew_and_a_busy_machine_does_not() {
        let began = Instant::now();
        let ms = Duration::from_millis;
        let mut running = Running { since: began, gap: ms(500) };
        running.paused(began, began + ms(550));
        assert_eq!(running.since, began);
        running.paused(began, began + ms(5_000));
        assert_eq!(running.since, began + ms(5_000));
    }

    #[test]
    fn a_full_log_hands_over_once_and_not_before_it_was_full_for_a_while() {
        let mut fullness = Fullness::default();
        let began = Instant::now();
        assert_eq!(fullness.judge(Some(1), began), FullnessVerdict::Nothing);
        let late = began + FULL_FOR;
        assert_eq!(fullness.judge(Some(1), late), FullnessVerdict::HandOver(1));
        assert_eq!(
            fullness.judge(Some(2), late + 10 * PAUSE),
            FullnessVerdict::Nothing,
            "only once"
        );
        // It failed: again after a pause.
        fullness.tried = Some(Some(late + PAUSE));
        assert_eq!(fullness.judge(Some(2), late), FullnessVerdict::Nothing);
        assert_eq!(fullness.judge(Some(2), late + PAUSE), FullnessVerdict::HandOver(2));
    }

    #[test]
    fn while_all_are_full_nothing_is_handed_over_and_that_is_logged_once() {
        let mut fullness = Fullness::default();
        let began = Instant::now();
        fullness.judge(None, began);
        let late = began + FULL_FOR;
        assert_eq!(fullness.judge(None, late), FullnessVerdict::AllFull);
        assert_eq!(fullness.judge(None, late + PAUSE), FullnessVerdict::Nothing);
        assert_eq!(
            fullness.judge(Some(0), late + PAUSE),
            FullnessVerdict::HandOver(0),
            "one has room"
        );
    }
}
