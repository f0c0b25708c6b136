//! The condition of an instance's disk, as instances report it to each other: whether the log has
//! free space, and how long a sync has been overdue; whether it cannot hold the floating address;
//! when its certificate for the other region expires, and whether it votes.
//!
//! Not here: when it is reported, and what follows from it (`disk_watch`).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use towline_os::time::Instant;

use serde::{Deserialize, Serialize};
use towline_os::sync::Mutex;

use towline_link::Peer;

/// How long a report counts.
const REPORT_AGE_MAX: Duration = Duration::from_secs(3);

/// See the module. Fields that a later version adds are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskCondition {
    /// Puts are refused, because the log has no free space.
    pub log_full: bool,
    /// For so long the disk has not answered; 0: it does.
    pub sync_overdue_ms: u64,
    /// It cannot put the floating address of the group on its machine.
    pub address_refused: bool,
    /// When the certificate expires that it shows to the other region, seconds since 1970; 0: it
    /// shows none.
    pub region_certificate_s: u64,
    /// When that begins to be valid; 0: it shows none, or is of an earlier version.
    pub region_certificate_begins_s: u64,
    /// Whether it takes part in elections: it did not lose log, or has caught up. `None`: an
    /// earlier version does not say.
    pub votes: Option<bool>,
}

/// The newest report of each of the others, and when it came.
#[derive(Default)]
pub struct DiskConditions {
    reports: Mutex<Vec<(Peer, Instant, DiskCondition)>>,
    /// Those of this instance.
    address_refused: AtomicBool,
    region_certificate_s: AtomicU64,
    region_certificate_begins_s: AtomicU64,
}

impl DiskConditions {
    /// This instance cannot hold the floating address, or can.
    pub fn refuses_address(&self, refused: bool) {
        self.address_refused.store(refused, Ordering::Relaxed);
    }

    /// Whether this instance cannot hold the floating address.
    pub fn address_refused(&self) -> bool {
        self.address_refused.load(Ordering::Relaxed)
    }

    /// When the certificate that this instance shows to the other region begins to be valid, and
    /// expires.
    pub fn shows_certificate(&self, valid_s: RangeInclusive<u64>) {
        let (begins_s, expires_s) = valid_s.into_inner();
        self.region_certificate_begins_s.store(begins_s, Ordering::Relaxed);
        self.region_certificate_s.store(expires_s, Ordering::Relaxed);
    }

    /// When it expires; 0: it shows none.
    pub fn region_certificate_s(&self) -> u64 {
        self.region_certificate_s.load(Ordering::Relaxed)
    }

    /// When it begins to be valid; 0: it shows none.
    pub fn region_certificate_begins_s(&self) -> u64 {
        self.region_certificate_begins_s.load(Ordering::Relaxed)
    }

    /// Whether clients at the floating address would find no instance when this peer is active,
    /// although they find this one.
    pub fn loses_address(&self, peer: Peer) -> bool {
        !self.address_refused() && self.of(peer).is_some_and(|reported| reported.address_refused)
    }

    /// Takes a report of a peer.
    pub fn enter(&self, peer: Peer, body: &[u8]) {
        match serde_json::from_slice(body) {
            Ok(condition) => {
                let mut reports = self.reports.lock();
                reports.retain(|(of, ..)| *of != peer);
                reports.push((peer, Instant::now(), condition));
            }
            Err(error) => tracing::warn!(%error, peer, "the condition of another instance"),
        }
    }

    /// The condition of a peer, unless its report is missing or too old.
    pub fn of(&self, peer: Peer) -> Option<DiskCondition> {
        let reports = self.reports.lock();
        let found =
            reports.iter().find(|(of, when, _)| *of == peer && when.elapsed() < REPORT_AGE_MAX);
        found.map(|(.., condition)| *condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_peer_replaces_the_one_before_and_fields_of_a_later_version_are_ignored() {
        let conditions = DiskConditions::default();
        assert_eq!(conditions.of(1), None);
        conditions.enter(1, b"{\"log_full\":true,\"colour\":\"red\"}");
        assert_eq!(
            conditions.of(1),
            Some(DiskCondition { log_full: true, ..DiskCondition::default() })
        );
        conditions.enter(1, b"nonsense");
        conditions.enter(1, b"{\"sync_overdue_ms\":7}");
        assert_eq!(
            conditions.of(1),
            Some(DiskCondition { sync_overdue_ms: 7, ..DiskCondition::default() })
        );
        assert_eq!(conditions.of(2), None);
    }

    #[test]
    fn an_address_is_lost_only_to_a_peer_that_cannot_hold_it_when_this_instance_can() {
        let conditions = DiskConditions::default();
        assert!(!conditions.loses_address(1), "it has reported nothing");
        conditions.enter(1, b"{}");
        assert!(!conditions.loses_address(1), "an earlier version");
        conditions.enter(1, b"{\"address_refused\":true}");
        assert!(conditions.loses_address(1));
        conditions.refuses_address(true);
        assert!(!conditions.loses_address(1), "it is not here either");
    }
}
