//! Each thing that can stand in the way does, alone, and says what to do.

use super::*;
use crate::status::{InstanceStatus, RegionFenceStatus};

const NOW_MS: u64 = 1_800_000_000_000;

fn condition(instance: &str) -> RegionConditionStatus {
    RegionConditionStatus {
        instance: instance.into(),
        version: "0.1.0".into(),
        configured_count: 3,
        connected_count: 3,
        in_sync_count: 3,
        certificate_expires_s: NOW_MS / 1_000 + 365 * 86_400,
        log_bytes: 1_000_000,
        free_bytes: 5_000_000,
        ..RegionConditionStatus::default()
    }
}

/// A live group as its active instance reports it, with all as it should be.
fn live() -> GroupStatus {
    let other = OtherRegionStatus {
        group_name: "EAST".into(),
        group_role: "recovery".into(),
        status: OtherRegionState::Normal,
        connected: true,
        is_known: true,
        in_sync: true,
        instance: "x".into(),
        round_trip_us: 40_100,
        here: condition("a"),
        there: Some(condition("x")),
        advertised: vec!["amqp://a.west.example:5672".into(), "amqp://x.east.example:5672".into()],
        ..OtherRegionStatus::default()
    };
    GroupStatus {
        group_name: "WEST".into(),
        group_role: "live".into(),
        instance: "a".into(),
        role: GroupRole::Active,
        other_region: Some(other),
        ..GroupStatus::default()
    }
}

fn with(change: impl FnOnce(&mut OtherRegionStatus)) -> GroupStatus {
    let mut group = live();
    change(group.other_region.as_mut().unwrap());
    group
}

fn found(group: &GroupStatus) -> Vec<RegionFinding> {
    region_findings(group, NOW_MS).unwrap()
}

/// What is not fine.
fn wrong(group: &GroupStatus) -> Vec<RegionFinding> {
    found(group).into_iter().filter(|one| one.weight != FindingWeight::Fine).collect()
}

fn there(change: impl FnOnce(&mut RegionConditionStatus)) -> GroupStatus {
    with(|other| change(other.there.as_mut().unwrap()))
}

#[test]
fn nothing_stands_in_the_way_of_groups_that_are_as_they_should_be() {
    for role in ["live", "recovery"] {
        let mut group = live();
        group.group_role = role.into();
        assert_eq!(wrong(&group), []);
        let text = region_findings_table(&found(&group));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.ends_with("Nothing stands in the way of a switch.\n"), "{text}");
        assert!(text.contains("ok    quorum EAST      3 of 3 instances connected"), "{text}");
    }
    assert_eq!(region_findings(&GroupStatus::default(), NOW_MS), None);
}

#[test]
fn each_thing_that_stands_in_the_way_is_found_alone() {
    let cases = [
        (with(|other| other.connected = false), "link", "none to group 'EAST'"),
        (with(|other| other.status = OtherRegionState::Partitioned), "logs", "not one"),
        (with(|other| other.status = OtherRegionState::NeedsCopy), "logs", "lacks log"),
        (with(|other| other.is_known = false), "lag", "has not reported"),
        (with(|other| other.misses_rpo = true), "lag", "more than the objective"),
        (
            with(|other| (other.is_known, other.misses_rpo, other.rpo_s) = (false, true, 7)),
            "lag",
            "since live became active: the objective (rpo_s 7) counts as missed",
        ),
        (
            with(|other| {
                (other.misses_rpo, other.backlog_age_us) = (true, 8_000_000);
                (other.rpo_bytes, other.rpo_s) = (9, 7);
            }),
            "lag",
            "the oldest 8000 ms old: more than the objective allows (rpo_bytes 9, rpo_s 7)",
        ),
        (
            with(|other| (other.rpo_bytes, other.backlog_bytes) = (10, 11)),
            "lag",
            "11 bytes of log, the oldest 0 ms old: more",
        ),
        (with(|other| other.here.connected_count = 1), "quorum WEST", "1 of 3 instances"),
        (there(|it| it.connected_count = 1), "quorum EAST", "1 of 3 instances"),
        (there(|it| it.in_sync_count = 1), "quorum EAST", "1 in sync"),
        (
            there(|it| it.certificate_expires_s = NOW_MS / 1_000),
            "certificate EAST",
            "'x' for the link has expired",
        ),
        (with(|other| other.clock_ahead_us = -5_050_100), "clocks", "5.050 s behind"),
        (there(|it| it.free_bytes = 999_999), "space in EAST", "999999 bytes free"),
        (with(|other| other.here.free_bytes = 999_999), "space in WEST", "999999 bytes free"),
        (there(|it| it.version = "0.0.9".into()), "versions", "has 0.0.9"),
        (there(|it| it.version = "0.10.0".into()), "versions", "has 0.10.0"),
    ];
    for (group, check, text) in cases {
        let wrong = wrong(&group);
        let [one] = wrong.as_slice() else { panic!("{check}: {wrong:?}") };
        assert_eq!((one.check.as_str(), one.weight), (check, FindingWeight::Stands));
        assert!(one.text.contains(text), "{one:?}");
        assert!(!one.what_to_do.is_empty(), "{one:?}");
        assert!(!nothing_stands(&found(&group)));
        let text = region_findings_table(&found(&group));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("NO    ") && text.contains(" -> "), "{text}");
        assert!(text.ends_with("1 thing stands in the way of a switch.\n"), "{text}");
    }
}

#[test]
fn a_log_without_the_fork_is_not_told_to_rejoin() {
    for own in ["fenced", "recovery"] {
        let mut group = with(|other| {
            (other.status, other.connected) = (OtherRegionState::Partitioned, false);
            (other.group_role, other.fork_lsn) = ("live".into(), "<0:0:0:5000>".into());
            (other.reason, other.needs_copy) = ("why".into(), true);
        });
        group.group_role = own.into();
        let found = found(&group);
        let logs = found.iter().find(|one| one.check == "logs").unwrap();
        assert!(logs.what_to_do.contains("empty its data folders"), "{logs:?}");
        assert!(logs.what_to_do.contains("--export"), "{logs:?}");
    }
}

/// What is to be done about two logs that are not one depends on what both groups are, and on
/// whether this one knows where it can go back to.
#[test]
fn logs_that_are_not_one_name_a_way_that_there_is() {
    for (own, other_role, fork, way) in [
        ("recovery", "live", "<0:0:0:5000>", "'towline region rejoin'"),
        ("fenced", "live", "<0:0:0:5000>", "'towline region rejoin'"),
        ("recovery", "live", "", "empty data folders"),
        ("live", "live", "<0:0:0:5000>", "decide which group's log is to be kept"),
        ("fenced", "live", "", "decide which group's log is to be kept"),
        ("live", "recovery", "", "at the instances of group 'EAST'"),
        ("live", "fenced", "", "at the instances of group 'EAST'"),
    ] {
        let mut group = with(|other| {
            (other.status, other.connected) = (OtherRegionState::Partitioned, false);
            (other.group_role, other.fork_lsn) = (other_role.into(), fork.into());
            other.reason = "why".into();
        });
        group.group_role = own.into();
        let found = found(&group);
        let of = |check| found.iter().find(|one| one.check == check).unwrap();
        assert!(of("logs").what_to_do.contains(way), "{own} {other_role}: {:?}", of("logs"));
        assert_eq!(of("link").what_to_do, "see the logs");
    }
}

#[test]
fn what_is_only_worth_a_look_does_not_stand_in_the_way() {
    let cases = [
        (with(|other| other.status = OtherRegionState::Synchronizing), "lag"),
        (there(|it| (it.connected_count, it.in_sync_count) = (2, 2)), "quorum EAST"),
        (there(|it| it.certificate_expires_s = NOW_MS / 1_000 + 86_400), "certificate EAST"),
        (there(|it| it.certificate_expires_s = 0), "certificate EAST"),
        (with(|other| other.clock_ahead_us = 600_000), "clocks"),
        (there(|it| (it.free_bytes, it.log_bytes) = (0, 0)), "space in EAST"),
        (with(|other| other.differences = vec!["rpo_s is 1 there".into()]), "configuration"),
        (with(|other| other.advertised.clear()), "clients"),
    ];
    for (group, check) in cases {
        let wrong = wrong(&group);
        let [one] = wrong.as_slice() else { panic!("{check}: {wrong:?}") };
        assert_eq!((one.check.as_str(), one.weight), (check, FindingWeight::Warning));
        assert!(nothing_stands(&found(&group)));
    }
    // The difference is not known better than half a round trip.
    let far = with(|other| (other.clock_ahead_us, other.round_trip_us) = (600_000, 300_000));
    assert_eq!(wrong(&far), []);
}

#[test]
fn what_the_other_region_said_long_ago_is_not_known_any_more() {
    let silent = with(|other| other.there_age_ms = 5_001);
    let never = with(|other| other.there = None);
    for (group, fewer) in [(silent, 1), (never, 0)] {
        let wrong = wrong(&group);
        assert!(wrong.iter().all(|one| one.weight == FindingWeight::Stands), "{wrong:?}");
        let checks: Vec<&str> = wrong.iter().map(|one| one.check.as_str()).collect();
        let all = [
            "quorum EAST",
            "certificate EAST",
            "clocks",
            "space for rebase",
            "versions",
            "configuration",
        ];
        assert_eq!(checks, all[..all.len() - fewer]);
    }
}

#[test]
fn an_instance_without_the_link_says_which_one_has_it() {
    let mut group = with(|other| other.connected = false);
    let row = |instance: &str, role| InstanceStatus {
        instance: instance.into(),
        role,
        ..InstanceStatus::default()
    };
    group.instances = vec![row("a", GroupRole::Replica), row("b", GroupRole::Leader)];
    let wrong = wrong(&group);
    assert_eq!(wrong[0].what_to_do, "run this command for instance 'b'");
    group.instance = "b".into();
    assert!(found(&group)[0].text.starts_with("none to group 'EAST'"));
}

#[test]
fn a_text_of_another_instance_moves_no_cursor_and_breaks_no_column() {
    let group = with(|other| {
        other.differences = vec![format!("\u{1b}[2J{}", "x".repeat(300))];
        other.group_name = "E".repeat(48);
    });
    let text = region_findings_table(&found(&group));
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_fenced_group_says_so_first_and_what_to_do() {
    let why = "this group serves no client: group 'EAST' of another region took over from it";
    let fence = RegionFenceStatus {
        why: why.into(),
        what_to_do: "'towline region rejoin'".into(),
        ..RegionFenceStatus::default()
    };
    let mut group = live();
    (group.group_role, group.fence) = ("fenced".into(), Some(fence));
    let all = wrong(&group);
    let first = &all[0];
    assert_eq!((all.len(), first.check.as_str(), first.text.as_str()), (1, "fence", why));
    assert!(first.weight == FindingWeight::Stands && first.what_to_do.contains("rejoin"));
}

#[test]
fn an_instance_without_the_link_says_who_told_it() {
    let group = with(|other| (other.heard_from, other.heard_age_ms) = ("b".into(), 1_400));
    assert_eq!(wrong(&group), []);
    let link = found(&group).into_iter().find(|one| one.check == "link").unwrap();
    assert!(link.text.ends_with("as heard from instance 'b' 1 s ago"), "{}", link.text);
}

#[test]
fn replies_that_do_not_wait_as_they_are_to_are_worth_a_look_on_either_side() {
    for role in ["live", "recovery"] {
        let say = |consistency: &str, state: &str, covers| {
            let mut group = with(|other| {
                let of_recovery = role == "recovery";
                let live = match of_recovery {
                    true => other.there.as_mut().unwrap(),
                    false => &mut other.here,
                };
                live.sync_consistency = consistency.into();
                (live.sync_state, live.sync_covers) = (state.into(), covers);
            });
            group.group_role = role.into();
            wrong(&group)
        };
        assert_eq!(say("off", "off", false), []);
        assert_eq!(say("strict", "in step", true), []);
        let waits = say("strict", "waiting", true);
        assert!(waits[0].text.contains("has all that was acknowledged"), "{waits:?}");
        assert!(waits[0].text.contains("clients are not answered"), "{waits:?}");
        assert!(waits[0].what_to_do.contains("`towline region alone`"), "{waits:?}");
        assert_eq!(waits[0].weight, FindingWeight::Warning);
        let waits = say("eventual", "waiting", false);
        assert!(waits[0].text.contains("not known to have all"), "{waits:?}");
        let alone = say("eventual", "alone", false);
        assert!(alone[0].text.contains("is not in recovery"), "{alone:?}");
        assert_eq!(alone[0].weight, FindingWeight::Warning);
    }
}

/// A switch would come to its end with the rest of it, and with none of these.
#[test]
fn a_group_that_cannot_write_or_is_not_heard_forbids_a_switch() {
    let of = |group: &GroupStatus| -> Vec<String> {
        found(group).iter().filter(|it| it.forbids_switch()).map(RegionFinding::line).collect()
    };
    assert_eq!(of(&live()), [""; 0]);
    assert_eq!(of(&with(|other| other.misses_rpo = true)), [""; 0]);
    assert_eq!(of(&there(|there| there.in_sync_count = 2)), [""; 0], "only a warning");
    let zero = of(&there(|there| there.in_sync_count = 0));
    assert_eq!(zero, ["quorum EAST: 3 of 3 instances connected, 0 in sync"]);
    assert_eq!(of(&there(|there| there.connected_count = 1)).len(), 1);
    assert_eq!(of(&with(|other| other.here.in_sync_count = 1)).len(), 1);
    let silent = of(&with(|other| other.there_age_ms = HEARD_MS_MAX + 1));
    assert!(silent[0].contains("group 'EAST' has not said it"), "{silent:?}");
}

#[test]
fn recovery_does_not_take_for_fine_what_it_cannot_know() {
    let mut group = with(|other| {
        (other.connected, other.is_known, other.in_sync) = (false, false, false);
        (other.unheard_ms, other.rpo_s, other.misses_rpo) = (9_500, 2, true);
    });
    group.group_role = "recovery".into();
    let lag = found(&group).into_iter().find(|one| one.check == "lag").unwrap();
    assert_eq!(lag.weight, FindingWeight::Stands);
    assert!(lag.text.starts_with("not known: live's log was not heard of for 9 s"), "{}", lag.text);
    assert!(lag.text.ends_with("(rpo_s 2) counts as missed"), "{}", lag.text);
}

#[test]
fn a_live_group_that_is_fenced_stands_in_the_way_at_recovery_too() {
    let mut group = with(|other| other.group_role = "fenced".into());
    group.group_role = "recovery".into();
    let wrong = wrong(&group);
    let [one] = wrong.as_slice() else { panic!("{wrong:?}") };
    assert_eq!((one.check.as_str(), one.weight), ("fence", FindingWeight::Stands));
    assert!(one.what_to_do.contains("unfence") && one.what_to_do.contains("failover"), "{one:?}");
}

/// It was said to have expired, and only by the other region.
#[test]
fn a_certificate_that_is_not_valid_yet_is_found() {
    let begins = |at, of: &str| {
        there(|it| (it.certificate_begins_s, it.certificate_begins_of) = (at, of.into()))
    };
    let now_s = NOW_MS / 1_000;
    let wrong_there = wrong(&begins(now_s + 259_200, "b"));
    assert_eq!(wrong_there[0].check, "certificate EAST");
    assert_eq!(wrong_there[0].weight, FindingWeight::Stands);
    assert!(wrong_there[0].text.contains("'b' for the link is not valid yet"), "{wrong_there:?}");
    assert!(wrong_there[0].text.ends_with("in 259200 s"), "{wrong_there:?}");
    assert!(wrong(&begins(now_s, "b")).is_empty(), "it is valid now");
}

#[test]
fn the_certificate_that_expires_first_is_looked_at_whichever_instance_shows_it() {
    let soon = NOW_MS / 1_000 + 7_300;
    let group = there(|it| (it.certificate_expires_s, it.certificate_of) = (soon, "c".into()));
    let wrong = wrong(&group);
    assert_eq!(wrong[0].weight, FindingWeight::Warning);
    let wanted = "that of instance 'c' for the link, the first to expire, is valid for 2 hours";
    assert_eq!(wrong[0].text, wanted);
}

/// It said "wait until recovery has caught up" of what never would.
#[test]
fn a_full_log_of_recovery_is_named_with_what_to_do() {
    let full = |it: &mut RegionConditionStatus| {
        (it.log_full, it.in_sync_count, it.log_bytes_max) = (true, 0, 20_971_520);
    };
    let mut receives = with(|other| full(&mut other.here));
    receives.group_role = "recovery".into();
    for (group, name) in [(there(full), "EAST"), (receives, "WEST")] {
        let wrong = wrong(&group);
        let checks: Vec<&str> = wrong.iter().map(|one| one.check.as_str()).collect();
        assert_eq!(checks, ["lag", &format!("quorum {name}"), &format!("log of {name}")]);
        assert!(wrong.iter().all(|one| !one.what_to_do.contains("wait")), "{wrong:?}");
        let log = &wrong[2];
        assert!(log.text.contains("(log_bytes_max) is 20971520"), "{log:?}");
        assert!(log.what_to_do.contains("raise log_bytes_max"), "{log:?}");
    }
}
