//! When this process ran, and when it heard from each of the others: status and switch need that,
//! the member does not.
//!
//! When a stopped process goes on (SIGSTOP, a frozen machine), its sockets hold what the others
//! sent before they gave it up, and that looks new when it is read. So after a standstill the
//! leader counts as heard only with a message that is later than what can have waited in a socket.
//! The only instance of a group has none to hear: while it stood still, no other one took over.
//!
//! Not here: what the member does, which goes by ticks and terms. Invariant: no decision about the
//! log depends on this.

use std::time::Duration;

use towline_group::{MemberId, Message};
use towline_os::sync::Mutex;
use towline_types::Time;

use super::{Driver, Heartbeat};
use crate::frames::{member_of, peer_of};
use towline_link::Peer;

/// See the module.
#[derive(Default)]
pub(crate) struct Liveness {
    seen: Mutex<HeardTimes>,
}

#[derive(Debug, Default)]
struct HeardTimes {
    /// The last tick.
    ticked: Option<Time>,
    /// It stood still up to here, and has not heard its leader since.
    woke: Option<Time>,
    /// When each peer was heard last.
    heard: Vec<(Peer, Time)>,
}

impl HeardTimes {
    fn ticks(&mut self, now: Time, longest: Duration) {
        if self.is_gap(now, longest) {
            self.woke = Some(now);
        }
        self.ticked = Some(now);
    }

    fn is_gap(&self, now: Time, longest: Duration) -> bool {
        self.ticked.is_some_and(|ticked| now.since(ticked) >= longest)
    }

    fn hears(
        &mut self,
        from: Peer,
        leads: bool,
        now: Time,
        Heartbeat { interval, timeout }: Heartbeat,
    ) {
        self.heard.retain(|(peer, _)| *peer != from);
        self.heard.push((from, now));
        // Before its first tick it does not know yet that it stood still.
        let is_new = |woke: Time| now.since(woke) >= interval;
        if leads && !self.is_gap(now, timeout) && self.woke.is_some_and(is_new) {
            self.woke = None;
        }
    }

    fn stood_still(&self, now: Time, longest: Duration) -> bool {
        self.woke.is_some() || self.is_gap(now, longest)
    }
}

impl Driver {
    /// Time passes for this process.
    pub(crate) fn ticks(&self) {
        self.liveness.seen.lock().ticks(self.now(), self.heartbeat_timeout());
    }

    /// A peer is heard, by an instance that is led by `leader`, or leads itself.
    pub(crate) fn notes_heard(&self, message: &Message, leader: Option<MemberId>) {
        let from = message.from();
        let leads = leader == Some(from) || leader == Some(member_of(self.this()));
        let now = self.now();
        self.liveness.seen.lock().hears(peer_of(from), leads, now, self.surroundings.heartbeat);
    }

    /// Whether this process stood still for HeartbeatTimeout, and has not heard how the group is
    /// since.
    pub fn stood_still(&self) -> bool {
        let seen = self.liveness.seen.lock();
        !self.is_alone() && seen.stood_still(self.now(), self.heartbeat_timeout())
    }

    /// Those that were heard after `since`.
    pub fn heard_since(&self, since: Time) -> Vec<Peer> {
        let seen = self.liveness.seen.lock();
        seen.heard.iter().filter(|(_, when)| *when > since).map(|(peer, _)| *peer).collect()
    }

    /// HeartbeatTimeout.
    pub fn heartbeat_timeout(&self) -> Duration {
        self.surroundings.heartbeat.timeout
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towline_group::HardState;
    use towline_log::{Disk, MemoryDisk};

    use super::super::tests::one_of;
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_millis(2_000);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn after_a_standstill_the_leader_is_heard_by_what_cannot_have_waited_in_a_socket() {
        let mut seen = HeardTimes::default();
        let times = Heartbeat { interval: INTERVAL, timeout: LONGEST };
        seen.ticks(at(0), LONGEST);
        seen.hears(1, true, at(10), times);
        seen.ticks(at(1_900), LONGEST);
        assert!(!seen.stood_still(at(1_900), LONGEST), "a busy machine");
        // SIGSTOP; whichever thread runs first after it.
        assert!(seen.stood_still(at(5_000), LONGEST), "before its first tick");
        seen.hears(1, true, at(5_000), times);
        assert!(seen.stood_still(at(5_001), LONGEST), "that had waited");
        seen.ticks(at(5_002), LONGEST);
        seen.hears(1, true, at(5_003), times);
        assert!(seen.stood_still(at(5_004), LONGEST), "that too");
        seen.ticks(at(5_090), LONGEST);
        seen.hears(2, false, at(5_200), times);
        assert!(seen.stood_still(at(5_200), LONGEST), "not the leader");
        seen.hears(1, true, at(5_201), times);
        assert!(!seen.stood_still(at(5_202), LONGEST));
    }

    #[test]
    fn the_only_instance_of_a_group_knows_how_it_is_after_a_standstill_and_one_of_three_does_not() {
        for (names, stood_still) in [(&["a"][..], false), (&["a", "b", "c"], true)] {
            let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
            let folder = tempfile::tempdir().unwrap();
            let (driver, _told) = one_of(names, HardState::default(), &disk, folder.path());
            // Its clock is at a second, and its last tick was at zero.
            driver.liveness.seen.lock().ticks(Time::ZERO, LONGEST);
            driver.tick();
            assert_eq!(driver.stood_still(), stood_still, "{names:?}");
            driver.log().shutdown();
        }
    }
}
