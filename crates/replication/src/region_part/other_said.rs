//! What the other group said last of itself, and whether that is still at odds with this log: a
//! member that had not applied a change of roles yet when it heard takes it for a partition, and no
//! one connects to it again.
//!
//! Not here: the judgement of a connection (`region_meeting`). Invariant: a partition in which both
//! groups are live, or their histories differ, stays.

use towline_types::{Histories, RegionLog, Standing};

use super::{KnownRegion, RegionPart};
use crate::region_meeting::RegionSaid;

/// What the other group said that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherRole {
    /// It has said nothing to this process.
    #[default]
    Unknown,
    /// It serves, or is to.
    Live,
    /// It follows.
    Recovery,
    /// It is being promoted.
    PendingLive,
}

impl OtherRole {
    fn of(is_live: Option<bool>) -> OtherRole {
        match is_live {
            Some(true) => OtherRole::Live,
            Some(false) => OtherRole::Recovery,
            None => OtherRole::PendingLive,
        }
    }

    /// As the status shows it (GRPROLE).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OtherRole::Unknown => "unknown",
            OtherRole::Live => "live",
            OtherRole::Recovery => "recovery",
            OtherRole::PendingLive => "pending_live",
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct OtherSaid {
    pub(super) role: OtherRole,
    histories: Histories,
    end: towline_types::Lsn,
}

impl OtherSaid {
    pub(super) fn of(said: &RegionSaid) -> OtherSaid {
        OtherSaid {
            role: OtherRole::of(said.agreement.is_live),
            histories: said.histories.clone(),
            end: said.position.last.end,
        }
    }

    /// Whether this log, which is live or not, is at odds with what was said no more.
    fn is_one_with(&self, own: RegionLog<'_>, own_is_live: bool) -> bool {
        if own_is_live && self.role == OtherRole::Live {
            return false;
        }
        let [newest, other] = [own.histories, &self.histories].map(|it| it.newest());
        if newest.is_some() && newest.map(|it| it.id) == other.map(|it| it.id) {
            // Either may have gone on in the same history since.
            return true;
        }
        let said = RegionLog { histories: &self.histories, end: self.end };
        let fits = |it| matches!(it, Standing::Empty | Standing::Continues);
        fits(Standing::of(said, own)) || fits(Standing::of(own, said))
    }
}

impl KnownRegion {
    /// What an instance of the other group said of itself.
    pub(super) fn hears(&mut self, other: &RegionSaid) {
        self.other = Some(OtherSaid::of(other));
    }

    /// A link with it stands, or may: what was refused before is over.
    pub(super) fn is_one_with(&mut self, other: &RegionSaid) {
        self.hears(other);
        (self.partition, self.trouble) = (None, None);
    }
}

impl RegionPart {
    /// Forgets a partition that is none any more.
    pub(super) fn settle_partition(&self) {
        let known = self.known.lock();
        let is_said = known.partition.is_some() && known.partition_is_said;
        let Some(other) = known.other.clone().filter(|_| is_said) else { return };
        drop(known);
        let (histories, own_is_live) = self.role_now();
        let end = self.driver.last_end();
        if !other.is_one_with(RegionLog { histories: &histories, end }, own_is_live) {
            return;
        }
        let mut known = self.known.lock();
        if known.partition_is_said {
            known.partition = None;
            self.forgets_fork(&mut known);
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_types::{History, HistoryId, Lsn, Time};

    use super::*;

    fn chain(lives: &[(u8, &str)]) -> Histories {
        let mut chain = Histories::default();
        for (at, (id, live)) in lives.iter().enumerate() {
            let history = History {
                id: HistoryId([*id; 16]),
                parent: chain.newest().map(|newest| newest.id),
                fork: Lsn(at as u64 * 5_000),
                live: (*live).to_owned(),
                began: Time(1),
                cause: String::new(),
            };
            chain.push(history).unwrap();
        }
        chain
    }

    fn said(role: OtherRole, lives: &[(u8, &str)], end: u64) -> OtherSaid {
        OtherSaid { role, histories: chain(lives), end: Lsn(end) }
    }

    fn is_one(other: &OtherSaid, lives: &[(u8, &str)], end: u64, own_is_live: bool) -> bool {
        let histories = chain(lives);
        other.is_one_with(RegionLog { histories: &histories, end: Lsn(end) }, own_is_live)
    }

    #[test]
    fn a_member_that_applied_a_clean_switch_late_is_not_partitioned_any_more() {
        let east = said(OtherRole::Live, &[(1, "WEST"), (2, "EAST")], 5_100);
        assert!(!is_one(&east, &[(1, "WEST")], 5_100, true), "it has not applied the last batch");
        assert!(is_one(&east, &[(1, "WEST"), (2, "EAST")], 5_100, false));
        assert!(is_one(&east, &[(1, "WEST"), (2, "EAST")], 9_000, false), "both went on since");
    }

    #[test]
    fn one_with_a_tail_and_one_of_two_live_groups_stay_partitioned() {
        let east = said(OtherRole::Live, &[(1, "WEST"), (2, "EAST")], 7_000);
        assert!(!is_one(&east, &[(1, "WEST")], 6_000, true));
        assert!(!is_one(&east, &[(1, "WEST"), (3, "WEST")], 6_000, true), "both went on");
        assert!(!is_one(&east, &[(1, "WEST"), (3, "WEST")], 6_000, false));
        assert!(!is_one(&east, &[(1, "WEST")], 6_000, false), "it has a tail");
        assert!(is_one(&east, &[(1, "WEST")], 5_000, false), "its tail was cut off");
    }
}
