//! A group in recovery, as commands judge it that restart or replace its instances. It has no
//! active instance: while the live group ships to one of them (its leader), that one knows what
//! each of the others has; while nothing is shipped, each knows what it has itself, and what a
//! majority had.
//!
//! Not here: groups that serve clients.

use towline_admin::status::{
    GroupRole, GroupStatus, InstanceState, InstanceStatus, OtherRegionState,
};
use towline_types::Lsn;

use crate::log;

/// Whether it is one.
pub(super) fn is_in_recovery(group: &GroupStatus) -> bool {
    group.group_role == "recovery"
}

/// Whether the live group ships to an instance of it, as far as this one has heard: one that has
/// just begun hears of the link a moment later than it is in sync, which it is with a leader alone.
pub(super) fn is_shipped_to(group: &GroupStatus) -> bool {
    let is_led = is_in_recovery(group) && group.in_sync;
    is_led || group.other_region.as_ref().is_some_and(|other| other.connected)
}

/// The instance that is shipped to, if that is known.
pub(super) fn leader(group: &GroupStatus) -> Option<&str> {
    let leads = |row: &&InstanceStatus| row.role == GroupRole::Leader;
    let leader = group.instances.iter().find(leads).map(|row| row.instance.as_str());
    leader.filter(|_| is_shipped_to(group))
}

/// A position as a status shows it.
pub(super) fn position_of(text: &str) -> Option<Lsn> {
    log::position(text).ok()
}

/// What a status says of one instance.
pub(super) fn row_of<'a>(group: &'a GroupStatus, name: &str) -> Option<&'a InstanceStatus> {
    group.instances.iter().find(|row| row.instance == name)
}

/// Why no instance is to be restarted now, as one of them sees it.
pub(super) fn obstacle_to_restart(group: &GroupStatus) -> Option<String> {
    let other = group.other_region.as_ref();
    if other.is_some_and(|other| other.status == OtherRegionState::Rebasing) {
        return Some("a copy of the live group's log is on its way".to_owned());
    }
    let is_led = is_shipped_to(group);
    let fits = |row: &&InstanceStatus| match row.status {
        InstanceState::Blank => false,
        _ if is_led && group.role == GroupRole::Leader => row.in_sync,
        _ if row.instance == group.instance => !is_led || group.in_sync,
        _ => row.connected_here,
    };
    let without = group.instances.iter().filter(|row| !fits(row));
    let without: Vec<&str> = without.map(|row| row.instance.as_str()).collect();
    let (count, all) = (group.instances.len() - without.len(), group.instances.len());
    let what = if is_led { "in sync" } else { "connected, and have a log that counts" };
    (count < all)
        .then(|| format!("{count} of {all} instances are {what} (not {})", without.join(", ")))
}

/// What is wanted of an instance that was restarted.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedInstance {
    /// It has so much.
    pub(super) target: Option<Lsn>,
    /// The live group shipped to the group before: it is to do so again.
    pub(super) was_shipped_to: bool,
    /// Also all the others are to be there.
    pub(super) whole: bool,
    /// Only its own words are known.
    pub(super) is_alone_asked: bool,
}

/// Whether an instance of a recovery group, by its own words (`own`) and by those of the group's
/// leader (`view`), is as before a restart.
pub(super) fn is_back(own: &GroupStatus, view: &GroupStatus, wanted: WantedInstance) -> bool {
    let WantedInstance { target, was_shipped_to, whole, is_alone_asked } = wanted;
    let Some(row) = row_of(own, &own.instance) else { return false };
    let has = position_of(&row.ack_lsn) >= target;
    if row.status == InstanceState::Blank || !has {
        return false;
    }
    if !was_shipped_to {
        return !whole || own.instances.iter().all(|row| row.connected_here);
    }
    let by_leader = view.role == GroupRole::Leader
        && row_of(view, &own.instance).is_some_and(|row| row.in_sync && row.connected)
        && (!whole || view.in_sync_count == view.configured_count);
    own.in_sync && (by_leader || is_alone_asked)
}

/// How an instance is, while it is waited for. `was_shipped_to`: the live group is to be connected
/// again.
pub(super) fn state_of(own: &GroupStatus, view: &GroupStatus, was_shipped_to: bool) -> String {
    let is_led = view.role == GroupRole::Leader || is_shipped_to(own);
    if was_shipped_to && !is_led {
        return "the live group is not connected again".to_owned();
    }
    match row_of(view, &own.instance) {
        None => "not in the group".to_owned(),
        Some(row) => format!("{}, backlog {} KB", row.status.as_str(), row.backlog_kb),
    }
}

/// What the last line of a command says of it.
pub(super) fn told(group: &GroupStatus) -> String {
    match leader(group) {
        Some(leader) => format!("in recovery, {leader} is shipped to, quorum {}", group.quorum()),
        None => "in recovery, and the live group is not connected".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use towline_admin::status::OtherRegionStatus;

    use super::*;

    /// A group in recovery as `instance` sees it, with `leader`, if it is shipped to.
    fn group(instance: &str, leader: Option<&str>) -> GroupStatus {
        let row = |name: &str| InstanceStatus {
            instance: name.into(),
            role: if leader == Some(name) { GroupRole::Leader } else { GroupRole::Replica },
            in_sync: leader.is_some(),
            connected: true,
            connected_here: true,
            ack_lsn: "<0:0:0:9000>".into(),
            status: InstanceState::Normal,
            ..InstanceStatus::default()
        };
        let connected = leader.is_some();
        GroupStatus {
            instance: instance.into(),
            role: if leader == Some(instance) { GroupRole::Leader } else { GroupRole::Replica },
            group_role: "recovery".into(),
            group_name: "WEST".into(),
            in_sync: connected,
            in_sync_count: if connected { 3 } else { 0 },
            configured_count: 3,
            group_lsn: "<0:0:0:9000>".into(),
            instances: ["a", "b", "c"].map(row).to_vec(),
            other_region: Some(OtherRegionStatus { connected, ..OtherRegionStatus::default() }),
            ..GroupStatus::default()
        }
    }

    fn wanted(was_shipped_to: bool) -> WantedInstance {
        let target = position_of("<0:0:0:9000>");
        WantedInstance { target, was_shipped_to, whole: true, is_alone_asked: false }
    }

    #[test]
    fn a_group_in_recovery_is_judged_by_the_instance_that_is_shipped_to() {
        let leads = group("a", Some("a"));
        assert_eq!(obstacle_to_restart(&leads), None);
        assert_eq!(obstacle_to_restart(&group("b", Some("a"))), None);
        let mut lags = leads.clone();
        lags.instances[2].in_sync = false;
        let why = obstacle_to_restart(&lags).unwrap();
        assert_eq!(why, "2 of 3 instances are in sync (not c)");
        let own = group("b", Some("a"));
        assert!(is_back(&own, &leads, wanted(true)));
        assert!(!is_back(&own, &own, wanted(true)), "its leader does not say so");
        assert!(is_back(&own, &own, WantedInstance { is_alone_asked: true, ..wanted(true) }));
        lags.in_sync_count = 2;
        assert!(!is_back(&own, &lags, wanted(true)), "another one lags");
        assert!(is_back(&own, &lags, WantedInstance { whole: false, ..wanted(true) }));
        let without = group("b", None);
        assert!(!is_back(&without, &without, wanted(true)), "live is not connected again");
        assert_eq!(state_of(&without, &without, true), "the live group is not connected again");
        assert_eq!(told(&leads), "in recovery, a is shipped to, quorum 3/3");
        let mut just_begun = group("b", Some("a"));
        just_begun.other_region = None;
        assert!(told(&just_begun).contains("a is shipped to"), "it has not heard of the link yet");
    }

    #[test]
    fn while_nothing_is_shipped_each_instance_is_to_have_what_a_majority_had() {
        let own = group("b", None);
        assert_eq!(obstacle_to_restart(&own), None);
        assert!(is_back(&own, &own, wanted(false)));
        let mut short = own.clone();
        short.instances[1].ack_lsn = "<0:0:0:8999>".into();
        assert!(!is_back(&short, &own, wanted(false)), "it lacks some of it");
        let mut blank = own.clone();
        blank.instances[1].status = InstanceState::Blank;
        assert!(!is_back(&blank, &own, wanted(false)) && obstacle_to_restart(&blank).is_some());
        let mut apart = own.clone();
        apart.instances[2].connected_here = false;
        assert!(!is_back(&apart, &own, wanted(false)));
        let why = obstacle_to_restart(&apart).unwrap();
        assert!(
            why.starts_with("2 of 3 instances are connected") && why.contains("(not c)"),
            "{why}"
        );
        assert_eq!(told(&own), "in recovery, and the live group is not connected");
    }

    #[test]
    fn a_group_of_one_in_recovery_is_its_own_leader_or_has_none() {
        for leader in [Some("a"), None] {
            let mut alone = group("a", leader);
            alone.instances.truncate(1);
            (alone.configured_count, alone.in_sync_count) = (1, u64::from(leader.is_some()));
            assert_eq!(obstacle_to_restart(&alone), None);
            assert!(is_back(&alone, &alone, wanted(leader.is_some())));
        }
    }

    #[test]
    fn nothing_is_restarted_while_a_copy_is_on_its_way() {
        let mut taken = group("a", None);
        taken.other_region.as_mut().unwrap().status = OtherRegionState::Rebasing;
        assert!(obstacle_to_restart(&taken).unwrap().contains("copy"));
    }
}
