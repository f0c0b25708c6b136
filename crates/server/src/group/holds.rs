//! What the active instance keeps for the others: the log behind a copy, until the instance that
//! took it is in sync; and the log that an instance has not acknowledged which lags, or has been
//! away for a short time. Otherwise a load that reuses the log quickly would outrun them, and they
//! would need a copy, and another one.
//!
//! Not here: the copy itself (`copy`); what a hold keeps (`towline_log::Hold`).
//!
//! Invariants: one hold for each instance; the active one's own room goes first: no hold outlives
//! the moment at which the log becomes tight.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towline_admin::catalogue::{GROUP_HOLD_ENDED, HOUSEKEEPING_FAILED};
use towline_group::{PeerProgress, Progress};
use towline_log::{Hold, Log, Space};
use towline_types::{Lsn, limits};

use super::driver::Driver;
use super::peer_of;
use super::start::Opened;
use crate::housekeeping::percent_full;
use towline_link::Peer;
use towline_logging::log as say;

/// An instance whose connection is away for so long is not waited for: a restart takes less.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// A copy is quicker than so much log, for one that was not brought one: bytes held for it.
const LAG_BYTES_MAX: u64 = 1 << 30;
/// The same during a copy and after it: who has not caught up by then does not gain on the load.
const HELD_BYTES_MAX: u64 = 16 << 30;
/// How often it is looked: a fast disk fills a small log in a second.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Default)]
pub(crate) struct Holds {
    all: Mutex<BTreeMap<Peer, Held>>,
    /// Instances for which nothing was held since their hold ended while they were away: nothing
    /// will be before they are back.
    given_up: Mutex<BTreeSet<Peer>>,
}

struct Held {
    hold: Arc<Hold>,
    stage: Stage,
    connected_at: Instant,
}

/// What log is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A copy that is on its way.
    Giving,
    /// One that catches up after a copy.
    Given,
    /// One that lags or is away, and needs no copy yet.
    Lagging,
}

impl Stage {
    fn bytes_max(self) -> u64 {
        match self {
            Stage::Giving | Stage::Given => HELD_BYTES_MAX,
            Stage::Lagging => LAG_BYTES_MAX,
        }
    }
}

/// A copy that is being given; dropped before [`Giving::given`] it failed, and nothing is held.
pub(crate) struct Giving<'a> {
    holds: &'a Holds,
    peer: Peer,
    hold: Arc<Hold>,
}

impl Giving<'_> {
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// The copy arrived.
    pub(crate) fn given(self) {
        if let Some(held) = self.holds.all.lock().get_mut(&self.peer)
            && Arc::ptr_eq(&held.hold, &self.hold)
        {
            (held.stage, held.connected_at) = (Stage::Given, Instant::now());
        }
    }
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        let mut all = self.holds.all.lock();
        let own = all.get(&self.peer).is_some_and(|held| Arc::ptr_eq(&held.hold, &self.hold));
        if own && all.get(&self.peer).is_some_and(|held| held.stage == Stage::Giving) {
            all.remove(&self.peer);
            self.hold.let_go();
        }
    }
}

/// What one look at a hold finds.
#[derive(Clone, Copy)]
struct Sight {
    stage: Stage,
    /// What the leader knows of the instance.
    row: Option<PeerProgress>,
    is_connected: bool,
    away: Duration,
    /// Bytes that are there only for it.
    bytes: u64,
    /// The log that is in use, in percent of its room, and how much room there is besides.
    percent: u64,
    space: Space,
}

/// What becomes of a hold.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// Only from here on: all before it is acknowledged.
    From(Lsn),
    InSync,
    Away,
    /// It lags so far that a copy is quicker.
    TooFar,
    /// The log became tight.
    Pressed,
}

/// From where on log is to be held for an instance for which none is held yet. One that has not
/// acknowledged anything to this active instance lacks, as far as is known, all behind `base`: what
/// lies before that cannot be sent anyway.
fn wanted(row: &PeerProgress, is_connected: bool, given_up: bool, base: Lsn) -> Option<Lsn> {
    let is_awaited = if is_connected { !row.is_in_sync } else { !given_up };
    (is_awaited && !row.needs_copy).then_some(row.acknowledged.max(base))
}

fn is_connected(driver: &Driver, peer: Peer) -> bool {
    let state = driver.links().map(|links| links.state(peer)).unwrap_or_default();
    state.connected_in && state.connected_out
}

fn is_tight(percent: u64, space: Space) -> bool {
    percent >= limits::LOG_HOLD_PERCENT || space != Space::Ample
}

fn judge(sight: &Sight) -> Fate {
    let tight = is_tight(sight.percent, sight.space);
    let follows = sight.stage != Stage::Giving;
    let row = sight.row.filter(|_| follows && sight.is_connected);
    match row {
        Some(row) if row.is_in_sync => Fate::InSync,
        _ if sight.bytes > 0 && tight => Fate::Pressed,
        _ if sight.bytes > sight.stage.bytes_max() => Fate::TooFar,
        _ if follows && sight.away >= AWAY_MAX => Fate::Away,
        Some(row) => Fate::From(row.acknowledged),
        None => Fate::Stays,
    }
}

impl Holds {
    /// A copy for `peer` begins: all log that is there now is held. An earlier hold for it ends.
    pub(crate) fn begin(&self, peer: Peer, log: &Log) -> Giving<'_> {
        let hold = Arc::new(log.hold(Lsn::ZERO));
        let (stage, connected_at) = (Stage::Giving, Instant::now());
        let held = Held { hold: Arc::clone(&hold), stage, connected_at };
        if let Some(before) = self.all.lock().insert(peer, held) {
            before.hold.let_go();
        }
        Giving { holds: self, peer, hold }
    }

    /// Bytes that are kept only for `peer`; `None` when nothing is held for it.
    pub(crate) fn bytes(&self, peer: Peer, log: &Log) -> Option<u64> {
        let from = self.all.lock().get(&peer)?.hold.from()?;
        Some(log.bytes_held_back(from))
    }

    /// Whether `peer` is brought a copy, or catches up after one.
    pub(crate) fn is_rebasing(&self, peer: Peer) -> bool {
        self.all.lock().get(&peer).is_some_and(|held| held.stage != Stage::Lagging)
    }

    /// What is to be held anew: for which instances, and from where on.
    fn wanted(&self, driver: &Driver, group: &Progress) -> Vec<(Peer, Lsn)> {
        let (all, mut given_up) = (self.all.lock(), self.given_up.lock());
        let mut found = Vec::new();
        for row in &group.peers {
            let peer = peer_of(row.id);
            let is_connected = is_connected(driver, peer);
            if is_connected {
                given_up.remove(&peer);
            }
            let from = wanted(row, is_connected, given_up.contains(&peer), group.base.end);
            found.extend(from.filter(|_| !all.contains_key(&peer)).map(|from| (peer, from)));
        }
        found
    }

    /// Holds what instances lack that lag, or are away.
    fn hold_for_laggards(&self, driver: &Driver, wanted: &[(Peer, Lsn)]) {
        for (peer, from) in wanted {
            let mut all = self.all.lock();
            let Entry::Vacant(place) = all.entry(*peer) else { continue };
            // When something is let go just now, it is looked again soon.
            if let Some(hold) = driver.log().try_hold(*from) {
                let (stage, connected_at) = (Stage::Lagging, Instant::now());
                place.insert(Held { hold: Arc::new(hold), stage, connected_at });
            }
        }
    }

    /// Looks at each; true when log was let go that is wanted now.
    fn look(&self, driver: &Driver, reserve_bytes: u64) -> bool {
        let (log, group) = (driver.log(), driver.group());
        let wanted = self.wanted(driver, &group);
        if self.all.lock().is_empty() && wanted.is_empty() {
            return false;
        }
        let (stats, space) = (log.stats(), log.space());
        let percent = percent_full(stats.bytes_in_use, &stats, reserve_bytes);
        if !is_tight(percent, space) {
            self.hold_for_laggards(driver, &wanted);
        }
        let mut pressed = false;
        self.all.lock().retain(|&peer, held| {
            let is_connected = is_connected(driver, peer);
            if is_connected {
                held.connected_at = Instant::now();
            }
            let from = held.hold.from().unwrap_or(Lsn(u64::MAX));
            let fate = judge(&Sight {
                stage: held.stage,
                row: group.peers.iter().find(|row| peer_of(row.id) == peer).copied(),
                is_connected,
                away: held.connected_at.elapsed(),
                bytes: log.bytes_held_back(from),
                percent,
                space,
            });
            let why = match fate {
                Fate::Stays => return true,
                Fate::From(from) => {
                    held.hold.only_from(from);
                    return true;
                }
                Fate::InSync => None,
                Fate::TooFar => Some("it does not gain on the load".to_owned()),
                Fate::Away => Some("it was not connected for 60 seconds".to_owned()),
                Fate::Pressed => Some(format!("the log is {percent} % full, and goes on")),
            };
            held.hold.let_go();
            pressed |= fate == Fate::Pressed;
            if !is_connected {
                self.given_up.lock().insert(peer);
            }
            // Who lags is told when it asks for a copy.
            if let Some(why) = why.filter(|_| held.stage != Stage::Lagging) {
                let name = driver.names().get(peer).map_or("", String::as_str);
                say(&GROUP_HOLD_ENDED, &[name, &why]);
            }
            false
        });
        pressed
    }
}

/// Ends holds when they are due, until dropped. This instance is active.
pub(crate) async fn watch(opened: Arc<Opened>, reserve_bytes: u64) {
    let mut interval = tokio::time::interval(LOOK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let holds = opened.driver.holds();
        if !holds.look(&opened.driver, reserve_bytes) {
            continue;
        }
        let of = Arc::clone(&opened);
        let done = tokio::task::spawn_blocking(move || match of.driver.door() {
            Some(door) => of.images.reclaim(door.as_ref()),
            None => Ok(()),
        });
        if let Ok(Err(error)) = done.await {
            say(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_group::MemberId;

    use super::*;

    fn row(is_in_sync: bool) -> PeerProgress {
        PeerProgress {
            id: MemberId(2),
            acknowledged: Lsn(500),
            backlog_bytes: 0,
            is_heard: true,
            is_in_sync,
            needs_copy: false,
        }
    }

    fn catching_up() -> Sight {
        Sight {
            stage: Stage::Given,
            row: Some(row(false)),
            is_connected: true,
            away: Duration::ZERO,
            bytes: 1_000,
            percent: 50,
            space: Space::Ample,
        }
    }

    #[test]
    fn log_is_held_for_an_instance_until_it_is_in_sync_after_its_copy() {
        assert_eq!(judge(&catching_up()), Fate::From(Lsn(500)));
        let in_sync = Sight { row: Some(row(true)), ..catching_up() };
        assert_eq!(judge(&in_sync), Fate::InSync);
        // What it was before the copy says nothing.
        assert_eq!(judge(&Sight { stage: Stage::Giving, ..in_sync }), Fate::Stays);
    }

    #[test]
    fn an_instance_that_is_away_is_waited_for_no_longer_than_a_minute() {
        for stage in [Stage::Given, Stage::Lagging] {
            let away = |seconds| {
                let away = Duration::from_secs(seconds);
                judge(&Sight { stage, is_connected: false, away, ..catching_up() })
            };
            assert_eq!(away(59), Fate::Stays);
            assert_eq!(away(60), Fate::Away);
        }
    }

    #[test]
    fn log_is_held_for_one_that_went_away_or_has_not_answered_a_new_active_instance_yet() {
        let base = Lsn(300);
        let (there, away) = (true, false);
        assert_eq!(wanted(&row(true), there, false, base), None, "it has everything");
        assert_eq!(wanted(&row(false), there, false, base), Some(Lsn(500)));
        assert_eq!(wanted(&row(true), away, false, base), Some(Lsn(500)), "it was a moment ago");
        assert_eq!(wanted(&row(false), away, true, base), None, "it was waited for long enough");
        let unheard = PeerProgress { acknowledged: Lsn::ZERO, ..row(false) };
        assert_eq!(wanted(&unheard, away, false, base), Some(base), "the active one before");
        assert_eq!(wanted(&unheard, there, false, base), Some(base), "it just came back");
        let lost = PeerProgress { needs_copy: true, ..row(false) };
        assert_eq!(wanted(&lost, there, false, base), None, "the copy holds for itself");
    }

    #[test]
    fn one_that_lags_without_a_copy_is_kept_no_more_than_a_copy_would_take() {
        let lagging = |bytes| judge(&Sight { stage: Stage::Lagging, bytes, ..catching_up() });
        assert_eq!(lagging(LAG_BYTES_MAX), Fate::From(Lsn(500)));
        assert_eq!(lagging(LAG_BYTES_MAX + 1), Fate::TooFar);
        let sight = Sight { stage: Stage::Lagging, is_connected: false, ..catching_up() };
        let away = |bytes| judge(&Sight { bytes, ..sight });
        let most = (away(LAG_BYTES_MAX), away(LAG_BYTES_MAX + 1));
        assert_eq!(most, (Fate::Stays, Fate::TooFar), "nor one that is away");
        let after_copy = |bytes| judge(&Sight { bytes, ..catching_up() });
        assert_eq!(after_copy(LAG_BYTES_MAX + 1), Fate::From(Lsn(500)));
        assert_eq!(
            after_copy(HELD_BYTES_MAX + 1),
            Fate::TooFar,
            "nor is it waited for without end"
        );
    }

    #[test]
    fn a_log_that_becomes_tight_is_not_held_for_anybody() {
        let tight = |percent, space| judge(&Sight { percent, space, ..catching_up() });
        assert_eq!(tight(79, Space::Ample), Fate::From(Lsn(500)));
        assert_eq!(tight(80, Space::Ample), Fate::Pressed);
        assert_eq!(tight(10, Space::Low), Fate::Pressed);
        let giving = Sight { stage: Stage::Giving, percent: 80, ..catching_up() };
        assert_eq!(judge(&giving), Fate::Pressed, "also while the copy is on its way");
        let nothing = Sight { bytes: 0, percent: 99, ..catching_up() };
        assert_eq!(judge(&nothing), Fate::From(Lsn(500)), "it is not full for its sake");
    }
}
