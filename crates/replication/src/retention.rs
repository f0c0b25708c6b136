//! Log retention for the other instances. The active instance retains the log behind a copy until
//! the taker is in sync, and the log that a replica has not acknowledged while it lags or has been
//! away for a short time. Otherwise a load that reuses the log quickly would outrun the replica,
//! which would need one copy after the other.
//!
//! Not here: the copy itself (`copy`); what a hold keeps (`towline_log::Hold`).
//!
//! Invariants: one hold for each instance; the free space of the active instance goes first: no
//! hold outlives the moment at which the log becomes tight.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use towline_os::time::Instant;

use towline_admin::catalogue::GROUP_HOLD_ENDED;
use towline_group::{PeerProgress, Progress};
use towline_log::{Hold, Log, Space, Stats};
use towline_os::sync::Mutex;
use towline_types::{Lsn, limits};

use crate::frames::peer_of;
use towline_link::Peer;
use towline_logging::log as say;

/// No log is retained for an instance that is disconnected for longer: a restart takes less.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// Bytes retained for an instance that lags without a copy: beyond that a copy is quicker.
const LAG_BYTES_MAX: u64 = 1 << 30;
/// The same during a copy and after it: an instance that has not caught up by then does not gain on
/// the load.
const HELD_BYTES_MAX: u64 = 16 << 30;

/// See the module.
#[derive(Default)]
pub struct Retention {
    all: Mutex<BTreeMap<Peer, RetainedLog>>,
    /// Instances with a hold that ended while they were away: they get a new one when they are
    /// back.
    given_up: Mutex<BTreeSet<Peer>>,
}

struct RetainedLog {
    hold: Arc<Hold>,
    stage: RetentionStage,
    connected_at: Instant,
}

/// What log is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetentionStage {
    /// A copy that is on its way.
    CopyRetention,
    /// One that catches up after a copy.
    Given,
    /// One that lags or is away, and needs no copy yet.
    Lagging,
}

impl RetentionStage {
    fn bytes_max(self) -> u64 {
        match self {
            RetentionStage::CopyRetention | RetentionStage::Given => HELD_BYTES_MAX,
            RetentionStage::Lagging => LAG_BYTES_MAX,
        }
    }
}

/// The hold for a copy on its way. When it is dropped before [`CopyRetention::given`], the copy
/// failed and nothing is held.
pub(crate) struct CopyRetention<'a> {
    retention: &'a Retention,
    peer: Peer,
    hold: Arc<Hold>,
}

impl CopyRetention<'_> {
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// The copy arrived.
    pub(crate) fn given(self) {
        if let Some(held) = self.retention.all.lock().get_mut(&self.peer)
            && Arc::ptr_eq(&held.hold, &self.hold)
        {
            (held.stage, held.connected_at) = (RetentionStage::Given, Instant::now());
        }
    }
}

impl Drop for CopyRetention<'_> {
    fn drop(&mut self) {
        let mut all = self.retention.all.lock();
        let own = all.get(&self.peer).is_some_and(|held| Arc::ptr_eq(&held.hold, &self.hold));
        if own
            && all.get(&self.peer).is_some_and(|held| held.stage == RetentionStage::CopyRetention)
        {
            all.remove(&self.peer);
            self.hold.let_go();
        }
    }
}

/// The group and its log at one moment.
pub(crate) struct RetentionInputs<'a> {
    pub(crate) log: &'a Log,
    pub(crate) group: &'a Progress,
    /// Names of all members, in order.
    pub(crate) names: &'a [String],
    /// Whether both connections with a peer stand.
    pub(crate) is_connected: &'a dyn Fn(Peer) -> bool,
    /// The part of the log that is in use, in percent of what puts may fill.
    pub(crate) percent_full: &'a dyn Fn(&Stats) -> u64,
}

/// What is known of a hold at one look.
#[derive(Clone, Copy)]
struct RetentionView {
    stage: RetentionStage,
    /// What the leader knows of the instance.
    row: Option<PeerProgress>,
    is_connected: bool,
    away: Duration,
    /// Bytes that are retained only for it.
    bytes: u64,
    /// The log that is in use, in percent of what puts may fill, and the free space.
    percent: u64,
    space: Space,
}

/// The decision about a hold.
#[derive(Debug, PartialEq, Eq)]
enum RetentionVerdict {
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

/// The position from which log is to be retained for an instance without a hold. One that has not
/// acknowledged anything to this active instance lacks, as far as is known, all behind `base`:
/// earlier log cannot be sent anyway.
fn wanted(row: &PeerProgress, is_connected: bool, given_up: bool, base: Lsn) -> Option<Lsn> {
    let is_awaited = if is_connected { !row.is_in_sync } else { !given_up };
    (is_awaited && !row.needs_copy).then_some(row.acknowledged.max(base))
}

fn is_tight(percent: u64, space: Space) -> bool {
    percent >= limits::LOG_HOLD_PERCENT || space != Space::Ample
}

fn judge(sight: &RetentionView) -> RetentionVerdict {
    let tight = is_tight(sight.percent, sight.space);
    let follows = sight.stage != RetentionStage::CopyRetention;
    let row = sight.row.filter(|_| follows && sight.is_connected);
    match row {
        Some(row) if row.is_in_sync => RetentionVerdict::InSync,
        _ if sight.bytes > 0 && tight => RetentionVerdict::Pressed,
        _ if sight.bytes > sight.stage.bytes_max() => RetentionVerdict::TooFar,
        _ if follows && sight.away >= AWAY_MAX => RetentionVerdict::Away,
        Some(row) => RetentionVerdict::From(row.acknowledged),
        None => RetentionVerdict::Stays,
    }
}

impl Retention {
    /// A copy for `peer` begins: all present log is held. An earlier hold for this peer ends.
    pub(crate) fn begin(&self, peer: Peer, log: &Log) -> CopyRetention<'_> {
        let hold = Arc::new(log.hold(Lsn::ZERO));
        let stage = RetentionStage::CopyRetention;
        let connected_at = Instant::now();
        let held = RetainedLog { hold: Arc::clone(&hold), stage, connected_at };
        if let Some(before) = self.all.lock().insert(peer, held) {
            before.hold.let_go();
        }
        CopyRetention { retention: self, peer, hold }
    }

    /// Bytes that are retained only for `peer`; `None` when it has no hold.
    pub fn bytes(&self, peer: Peer, log: &Log) -> Option<u64> {
        let from = self.all.lock().get(&peer)?.hold.from()?;
        Some(log.bytes_held_back(from))
    }

    /// Whether `peer` gets a copy, or catches up after one.
    pub fn is_rebasing(&self, peer: Peer) -> bool {
        self.all.lock().get(&peer).is_some_and(|held| held.stage != RetentionStage::Lagging)
    }

    /// The instances that need a new hold, and the position from which each needs the log.
    fn wanted(&self, inputs: &RetentionInputs<'_>) -> Vec<(Peer, Lsn)> {
        let group = inputs.group;
        let all = self.all.lock();
        let mut given_up = self.given_up.lock();
        let mut found = Vec::new();
        for row in &group.peers {
            let peer = peer_of(row.id);
            let is_connected = (inputs.is_connected)(peer);
            if is_connected {
                given_up.remove(&peer);
            }
            let from = wanted(row, is_connected, given_up.contains(&peer), group.base.end);
            found.extend(from.filter(|_| !all.contains_key(&peer)).map(|from| (peer, from)));
        }
        found
    }

    /// Adds holds for instances that lag or are away.
    fn hold_for_laggards(&self, log: &Log, wanted: &[(Peer, Lsn)]) {
        for (peer, from) in wanted {
            let mut all = self.all.lock();
            let Entry::Vacant(place) = all.entry(*peer) else { continue };
            // When something is let go just now, it is looked again soon.
            if let Some(hold) = log.try_hold(*from) {
                let stage = RetentionStage::Lagging;
                let connected_at = Instant::now();
                place.insert(RetainedLog { hold: Arc::new(hold), stage, connected_at });
            }
        }
    }

    /// This instance sends its log to no other one any more: what it holds for copies that arrived,
    /// and for others that lag, is let go.
    pub(crate) fn let_go(&self) {
        self.all.lock().retain(|_, held| {
            let is_on_its_way = held.stage == RetentionStage::CopyRetention;
            if !is_on_its_way {
                held.hold.let_go();
            }
            is_on_its_way
        });
    }

    /// Judges each hold; true when log was released because free space is needed now.
    pub(crate) fn look(&self, inputs: &RetentionInputs<'_>) -> bool {
        let RetentionInputs { log, group, .. } = *inputs;
        let wanted = self.wanted(inputs);
        if self.all.lock().is_empty() && wanted.is_empty() {
            return false;
        }
        let stats = log.stats();
        let space = log.space();
        let percent = (inputs.percent_full)(&stats);
        if !is_tight(percent, space) {
            self.hold_for_laggards(log, &wanted);
        }
        let mut pressed = false;
        self.all.lock().retain(|&peer, held| {
            let is_connected = (inputs.is_connected)(peer);
            if is_connected {
                held.connected_at = Instant::now();
            }
            // A hold that ended by itself keeps nothing.
            let from = held.hold.from().unwrap_or(Lsn(u64::MAX));
            let fate = judge(&RetentionView {
                stage: held.stage,
                row: group.peers.iter().find(|row| peer_of(row.id) == peer).copied(),
                is_connected,
                away: held.connected_at.elapsed(),
                bytes: log.bytes_held_back(from),
                percent,
                space,
            });
            let why = match fate {
                RetentionVerdict::Stays => return true,
                RetentionVerdict::From(from) => {
                    held.hold.only_from(from);
                    return true;
                }
                RetentionVerdict::InSync => None,
                RetentionVerdict::TooFar => Some("it does not gain on the load".to_owned()),
                RetentionVerdict::Away => Some("it was not connected for 60 seconds".to_owned()),
                RetentionVerdict::Pressed => {
                    Some(format!("the log is {percent} % full, and goes on"))
                }
            };
            held.hold.let_go();
            pressed |= fate == RetentionVerdict::Pressed;
            if !is_connected {
                self.given_up.lock().insert(peer);
            }
            // An instance that lags is mentioned when it asks for a copy.
            if let Some(why) = why.filter(|_| held.stage != RetentionStage::Lagging) {
                let name = inputs.names[peer].as_str();
                say(&GROUP_HOLD_ENDED, &[name, &why]);
            }
            false
        });
        pressed
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

    fn catching_up() -> RetentionView {
        RetentionView {
            stage: RetentionStage::Given,
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
        assert_eq!(judge(&catching_up()), RetentionVerdict::From(Lsn(500)));
        let in_sync = RetentionView { row: Some(row(true)), ..catching_up() };
        assert_eq!(judge(&in_sync), RetentionVerdict::InSync);
        // What it was before the copy says nothing.
        assert_eq!(
            judge(&RetentionView { stage: RetentionStage::CopyRetention, ..in_sync }),
            RetentionVerdict::Stays
        );
    }

    #[test]
    fn an_instance_that_is_away_is_waited_for_no_longer_than_a_minute() {
        for stage in [RetentionStage::Given, RetentionStage::Lagging] {
            let away = |seconds| {
                let away = Duration::from_secs(seconds);
                judge(&RetentionView { stage, is_connected: false, away, ..catching_up() })
            };
            assert_eq!(away(59), RetentionVerdict::Stays);
            assert_eq!(away(60), RetentionVerdict::Away);
        }
    }

    #[test]
    fn log_is_held_for_one_that_went_away_or_has_not_answered_a_new_active_instance_yet() {
        let base = Lsn(300);
        let there = true;
        let away = false;
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
        let lagging = |bytes| {
            judge(&RetentionView { stage: RetentionStage::Lagging, bytes, ..catching_up() })
        };
        assert_eq!(lagging(LAG_BYTES_MAX), RetentionVerdict::From(Lsn(500)));
        assert_eq!(lagging(LAG_BYTES_MAX + 1), RetentionVerdict::TooFar);
        let sight =
            RetentionView { stage: RetentionStage::Lagging, is_connected: false, ..catching_up() };
        let away = |bytes| judge(&RetentionView { bytes, ..sight });
        let most = (away(LAG_BYTES_MAX), away(LAG_BYTES_MAX + 1));
        assert_eq!(
            most,
            (RetentionVerdict::Stays, RetentionVerdict::TooFar),
            "nor one that is away"
        );
        let after_copy = |bytes| judge(&RetentionView { bytes, ..catching_up() });
        assert_eq!(after_copy(LAG_BYTES_MAX + 1), RetentionVerdict::From(Lsn(500)));
        assert_eq!(
            after_copy(HELD_BYTES_MAX + 1),
            RetentionVerdict::TooFar,
            "nor is it waited for without end"
        );
    }

    #[test]
    fn a_log_that_becomes_tight_is_held_for_no_instance() {
        let tight = |percent, space| judge(&RetentionView { percent, space, ..catching_up() });
        assert_eq!(tight(79, Space::Ample), RetentionVerdict::From(Lsn(500)));
        assert_eq!(tight(80, Space::Ample), RetentionVerdict::Pressed);
        assert_eq!(tight(10, Space::Low), RetentionVerdict::Pressed);
        let giving =
            RetentionView { stage: RetentionStage::CopyRetention, percent: 80, ..catching_up() };
        assert_eq!(judge(&giving), RetentionVerdict::Pressed, "also while the copy is on its way");
        let nothing = RetentionView { bytes: 0, percent: 99, ..catching_up() };
        assert_eq!(
            judge(&nothing),
            RetentionVerdict::From(Lsn(500)),
            "it is not full for its sake"
        );
    }
}
