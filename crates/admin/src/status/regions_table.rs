//! The groups of two regions as text, at most 80 columns wide: a row for each group, then the link
//! and what is at risk.
//!
//! Not here: what the words mean (`region`).

use towline_types::{CivilTime, Time};

use super::{GroupStatus, OtherRegionState, OtherRegionStatus, RegionSyncStatus};
use crate::text::{count, cut, line, printable, row};

/// Characters of a line's text behind its name.
const TEXT: usize = 58;
/// Characters of a name.
const NAME: usize = 20;

/// Both groups for a terminal, each line ended, as an instance of one reports; `None`: there is no
/// other region.
#[must_use]
pub fn regions_table(group: &GroupStatus) -> Option<String> {
    let other = group.other_region.as_ref()?;
    let mut text = String::new();
    let receives = group.group_role == "recovery";
    line(&mut text, "GRPNAME              GRPROLE   CONNGRP  INSYNC  BACKLOG  GRSTATUS");
    let yes = |is: bool| if is { "yes" } else { "no" };
    let of = |is_recovery: bool, of_recovery: String| match is_recovery {
        true => of_recovery,
        false => "-".to_owned(),
    };
    let backlog = match other.is_known {
        true => count(other.backlog_bytes.div_ceil(1024), 7),
        false => "?".to_owned(),
    };
    let in_sync = if other.is_known { yes(other.in_sync) } else { "?" };
    let groups = [
        (&group.group_name, &group.group_role, receives),
        (&other.group_name, &other.group_role, !receives),
    ];
    for (name, role, is_recovery) in groups {
        let name = cut(&printable(name), NAME);
        let (connected, role) = (yes(other.connected), cut(&printable(role), 9));
        let in_sync = of(is_recovery, in_sync.to_owned());
        let backlog = of(is_recovery, backlog.clone());
        let status = other.status.as_str();
        let columns =
            format!("{name:<20} {role:<9} {connected:<8} {in_sync:<7} {backlog:>7}  {status}");
        line(&mut text, &columns);
    }
    line(&mut text, "");
    link(&mut text, other);
    if receives {
        received(&mut text, other);
    } else {
        at_risk(&mut text, other);
    }
    rebase(&mut text, other);
    if !other.reason.is_empty() {
        row(&mut text, "Reason", &cut(&printable(&other.reason), TEXT));
    }
    for difference in &other.differences {
        row(&mut text, "Differs", &cut(&printable(difference), TEXT));
    }
    Some(text)
}

fn link(text: &mut String, other: &OtherRegionStatus) {
    let addresses = cut(&printable(&other.addresses.join(", ")), 40);
    let to = match other.instance.as_str() {
        "" => format!("to {addresses}: {}", printable(&other.retry)),
        instance => format!("to instance {} at {addresses}", cut(&printable(instance), NAME)),
    };
    row(text, "Link", &cut(&to, TEXT));
    if other.round_trip_us > 0 {
        row(text, "Round trip", &milliseconds(other.round_trip_us));
    }
}

fn at_risk(text: &mut String, other: &OtherRegionStatus) {
    if !other.is_known {
        return row(text, "At risk", "not known before the other group has reported");
    }
    let age = milliseconds(other.backlog_age_us);
    let bytes = count(other.backlog_bytes, 11);
    row(text, "At risk", &format!("{bytes} bytes, the oldest committed {age} ago"));
    let [lost, again] = [other.backlog_puts, other.backlog_removals].map(|it| count(it, 11));
    row(text, "", &format!("{lost} messages would be lost, {again} would come again"));
    let objectives = [(other.rpo_bytes, "bytes"), (other.rpo_s, "s")];
    let objectives = objectives.iter().filter(|(value, _)| *value > 0);
    let objectives: Vec<String> =
        objectives.map(|(value, unit)| format!("{value} {unit}")).collect();
    if !objectives.is_empty() {
        let met = if other.misses_rpo { "MISSED" } else { "met" };
        row(text, "Objective", &format!("{}: {met}", objectives.join(", ")));
    }
    sync(text, other);
    row(text, "RCOVLSN", &cut(&printable(&other.recovery_lsn), TEXT));
    let sent = format!(
        "{} bytes of log, {} bytes over the link",
        count(other.log_bytes_sent, 11),
        count(other.wire_bytes_sent, 11)
    );
    row(text, "Sent", &sent);
}

/// Replies that wait for the other group.
fn sync(text: &mut String, other: &OtherRegionStatus) {
    let RegionSyncStatus { consistency, state, state_ms, covers, replies, .. } = &other.sync;
    if matches!(consistency.as_str(), "" | "off") {
        return;
    }
    let is_in_step = state == "in step";
    let lasts = match is_in_step {
        true => String::new(),
        false => format!(" for {} s", state_ms / 1_000),
    };
    let covered = match (covers, is_in_step) {
        (true, true) => "",
        (true, false) => "; all acknowledged is there",
        (false, _) => "; NOT ALL acknowledged is there",
    };
    let words = format!("{}, {}{lasts}{covered}", printable(consistency), printable(state));
    row(text, "Replies", &cut(&words, TEXT));
    let mean = replies.waited_us.checked_div(replies.answered).unwrap_or(0);
    let [waiting, answered] = [replies.waiting, replies.answered].map(|it| count(it, 7));
    let waits = format!(
        "{waiting} wait, {answered} waited {}, at most {}",
        milliseconds(mean),
        milliseconds(replies.waited_us_max)
    );
    row(text, "", &cut(&waits, TEXT));
}

fn received(text: &mut String, other: &OtherRegionStatus) {
    row(text, "RCOVLSN", &cut(&printable(&other.recovery_lsn), TEXT));
    row(text, "Live had", &cut(&printable(&other.live_lsn), TEXT));
    let received = format!(
        "{} bytes of log, {} bytes over the link",
        count(other.log_bytes_received, 11),
        count(other.wire_bytes_received, 11)
    );
    row(text, "Received", &received);
}

/// A copy that is on its way, and what can be promoted meanwhile.
fn rebase(text: &mut String, other: &OtherRegionStatus) {
    let is_lacking =
        matches!(other.status, OtherRegionState::Rebasing | OtherRegionState::NeedsCopy);
    if other.rebase_bytes > 0 {
        let [done, all] = [other.rebase_bytes_done, other.rebase_bytes].map(|it| count(it, 14));
        row(text, "Copy", &format!("{done} of {all} bytes"));
        if other.rebase_bytes_per_second > 0 {
            let rate = count(other.rebase_bytes_per_second, 11);
            let rest = count(other.rebase_rest_s, 7);
            row(text, "", &format!("{rate} bytes a second, about {rest} s to go"));
        }
    }
    if is_lacking {
        let at = match other.promotable_at {
            0 => String::new(),
            at => format!(" of {}", CivilTime::of(Time(at.saturating_mul(1_000)))),
        };
        let promotable = format!("{}{at}", printable(&other.promotable_lsn));
        row(text, "Promotable", &cut(&promotable, TEXT));
    }
}

fn milliseconds(us: u64) -> String {
    format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ReplyWaitsStatus;

    fn live() -> GroupStatus {
        let other = OtherRegionStatus {
            group_name: "EAST".into(),
            group_role: "recovery".into(),
            addresses: vec!["east-a.example:5800".into()],
            instance: "a".into(),
            status: OtherRegionState::Synchronizing,
            connected: true,
            is_known: true,
            backlog_bytes: 1_234_567,
            backlog_age_us: 65_400,
            rpo_bytes: 1_000_000,
            misses_rpo: true,
            round_trip_us: 40_100,
            recovery_lsn: "<0:0:2:31232>".into(),
            log_bytes_sent: 5_000_000,
            wire_bytes_sent: 900_000,
            differences: vec!["group.recovery.rpo_bytes is 1 there".into()],
            ..OtherRegionStatus::default()
        };
        GroupStatus {
            group_name: "WEST".into(),
            group_role: "live".into(),
            other_region: Some(other),
            ..GroupStatus::default()
        }
    }

    #[test]
    fn both_groups_and_what_is_at_risk_are_shown_within_a_terminal() {
        let text = regions_table(&live()).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [
            "WEST                 live      yes      -             -  synchronizing",
            "EAST                 recovery  yes      no         1206  synchronizing",
            "1234567 bytes, the oldest committed 65.4 ms ago",
            "1000000 bytes: MISSED",
            "40.1 ms",
            "rpo_bytes is 1 there",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert_eq!(regions_table(&GroupStatus::default()), None);
    }

    #[test]
    fn replies_that_wait_are_shown_with_what_a_fail_over_would_lose_of_them() {
        let mut group = live();
        let other = group.other_region.as_mut().unwrap();
        other.sync = RegionSyncStatus {
            consistency: "strict".into(),
            state: "waiting".into(),
            state_ms: 65_000,
            covers: true,
            times_alone: 0,
            replies: ReplyWaitsStatus {
                waiting: 12,
                answered: 1_000,
                waited_us: 40_100_000,
                waited_us_max: 65_400,
            },
        };
        let text = regions_table(&group).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("strict, waiting for 65 s; all acknowledged is there"), "{text}");
        assert!(text.contains("1000 waited 40.1 ms, at most 65.4 ms"), "{text}");
        let other = group.other_region.as_mut().unwrap();
        (other.sync.state, other.sync.covers) = ("in step".into(), true);
        assert!(regions_table(&group).unwrap().contains("strict, in step\n"));
        let other = group.other_region.as_mut().unwrap();
        (other.sync.state, other.sync.covers) = ("alone".into(), false);
        assert!(regions_table(&group).unwrap().contains("NOT ALL acknowledged is there"));
    }

    #[test]
    fn on_a_recovery_instance_the_backlog_stands_with_its_own_group() {
        let mut group = live();
        group.group_role = "recovery".into();
        let text = regions_table(&group).unwrap();
        assert!(text.contains("WEST                 recovery  yes      no         1206"), "{text}");
        assert!(text.contains("Live had") && !text.contains("At risk"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_shown_as_nothing() {
        let mut group = live();
        let other = group.other_region.as_mut().unwrap();
        (other.is_known, other.connected, other.instance) = (false, false, String::new());
        (other.retry, other.reason) = ("short retry timer".into(), "refused".into());
        let text = regions_table(&group).unwrap();
        assert!(text.contains("not known before") && text.contains("short retry timer"), "{text}");
        assert!(text.contains("no       ?             ?"), "{text}");
    }
}
