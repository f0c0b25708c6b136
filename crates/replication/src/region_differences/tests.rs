//! Each difference that would matter after a switch is found, with both values and what to do, and
//! by both groups alike.

use super::super::region_agreement::tests::{agreement_of, configuration};
use super::*;
use towline_types::FormatLevels;

fn west() -> RegionAgreement {
    agreement_of(&configuration("west", "east", ""))
}

fn east() -> RegionAgreement {
    let mut config = configuration("east", "west", "");
    config.group.as_mut().unwrap().role = towline_config::FirstRole::Recovery;
    agreement_of(&config)
}

/// The one difference of two groups that otherwise fit.
fn only(west: &RegionAgreement, east: &RegionAgreement) -> RegionDifference {
    let mut found = west.differences(east);
    assert_eq!(found, east.differences(west), "both groups find the same");
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// What the two say when one value of `west` is another.
fn changed(change: impl FnOnce(&mut RegionAgreement)) -> RegionDifference {
    let mut west = west();
    change(&mut west);
    only(&west, &east())
}

fn refused(change: impl FnOnce(&mut RegionAgreement)) -> String {
    let RegionDifference { weight, text } = changed(change);
    assert_eq!(weight, DifferenceWeight::Refuses, "{text}");
    text
}

fn warned(change: impl FnOnce(&mut RegionAgreement)) -> String {
    let difference = changed(change);
    assert_eq!(refusal(std::slice::from_ref(&difference)), None, "{difference}");
    difference.text
}

#[test]
fn two_groups_that_mirror_each_other_differ_in_nothing() {
    assert_eq!(west().differences(&east()), []);
    assert_eq!(refusal(&[]), None);
}

#[test]
fn groups_that_do_not_mean_each_other_are_refused() {
    let why = refused(|west| west.queue_manager = "QM2".into());
    assert!(why.contains("'QM1' in group 'east' and 'QM2' in group 'west'"), "{why}");
    let why = refused(|west| west.other_group = "north".into());
    assert!(why.contains("group 'west' has 'north' as the other group"), "{why}");
    let mut same = east();
    same.group = "west".into();
    let all = west().differences(&same);
    assert!(refusal(&all).unwrap().contains("both groups are named 'west'"), "{all:?}");
}

#[test]
fn logs_that_cannot_be_one_are_refused() {
    let why = refused(|west| west.extent_bytes = 1 << 22);
    assert!(why.contains("67108864 in group 'east' and 4194304 in group 'west'"), "{why}");
    let why = refused(|west| west.levels.in_force = 4);
    assert!(why.contains("the log of group 'west' has format level 4"), "{why}");
    assert!(why.contains("of group 'east' reads up to 3: upgrade"), "{why}");
    let why = refused(|west| west.levels.read = 1);
    assert!(why.contains("the log of group 'east' has format level 2"), "{why}");
    // A level that is read and not in force harms no log.
    let newer = RegionAgreement { levels: FormatLevels { in_force: 2, read: 9 }, ..west() };
    assert_eq!(newer.differences(&east()), []);
}

#[test]
fn a_log_with_less_space_than_the_other_is_a_warning() {
    let why = warned(|west| west.log_bytes_max = 1 << 30);
    let text = "log.log_bytes_max is 1073741824 in group 'west' and 0 (the disk) in group 'east'";
    assert!(why.starts_with(text), "{why}");
    let sized = |bytes: u64, agreement: RegionAgreement| RegionAgreement {
        log_bytes_max: bytes,
        ..agreement
    };
    let why = only(&sized(9, west()), &sized(8, east())).text;
    assert!(why.starts_with("log.log_bytes_max is 8 in group 'east' and 9 in"), "{why}");
    assert_eq!(sized(8, west()).differences(&sized(8, east())), []);
}

#[test]
fn recovery_is_upgraded_first() {
    let at = |version: &str, is_live: Option<bool>, agreement: RegionAgreement| RegionAgreement {
        version: version.into(),
        is_live,
        ..agreement
    };
    let [live, recovery] = [Some(true), Some(false)];
    let early = only(&at("0.10.0", live, west()), &at("0.9.4", recovery, east())).text;
    assert!(early.contains("'east' runs version 0.9.4 and group 'west' version 0.10.0"), "{early}");
    assert!(early.contains("recovery must not be older than live"), "{early}");
    assert!(early.ends_with("upgrade 'east'"), "{early}");
    let right = only(&at("0.9.4", live, west()), &at("0.10.0", recovery, east())).text;
    assert!(right.contains("recovery is the newer one, as it must be; upgrade 'west'"), "{right}");
    let unknown = only(&at("1.0.0", None, west()), &at("2.0.0", None, east())).text;
    assert!(unknown.contains("upgrade the group that is recovery first"), "{unknown}");
    let built = at("1.0.0+b2", live, west()).differences(&at("1.0.0", recovery, east()));
    assert_eq!(built, [], "another build of the same version");
}

#[test]
fn cipher_suites_that_exclude_each_other_are_refused() {
    let suite = |name: &str, agreement: RegionAgreement| RegionAgreement {
        ciphers: name.into(),
        ..agreement
    };
    let [one, other] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"];
    let found = only(&suite(one, west()), &suite(other, east()));
    assert_eq!(found.weight, DifferenceWeight::Refuses);
    assert!(found.text.contains("no cipher suite in common"), "{found}");
    assert_eq!(suite(one, west()).differences(&suite(one, east())), []);
    assert_eq!(suite(one, west()).differences(&east()), [], "the other one takes any");
}

#[test]
fn the_way_back_must_be_there_before_it_is_needed() {
    let why = warned(|west| west.addresses = vec!["old.east:5800".into()]);
    let text = "group 'west' looks for group 'east' at old.east:5800, and 'east' takes links at \
                a.east:5800, b.east:5800, c.east:5800";
    assert!(why.starts_with(text), "{why}");
    assert!(why.contains("while 'west' is live, it may not reach 'east'"), "{why}");
    let why = warned(|west| west.addresses.truncate(1));
    assert!(why.contains("group 'west' lacks b.east:5800, c.east:5800: while"), "{why}");
    let why = warned(|west| west.region_addresses[1] = "b.elsewhere:5800".into());
    assert!(why.contains("group 'east' lacks b.elsewhere:5800"), "{why}");
    let mut wildcards = west();
    wildcards.region_addresses = vec!["0.0.0.0:5800".into(), "[::]:5800".into()];
    wildcards.addresses[0] = "A.EAST:5800".into();
    assert_eq!(wildcards.differences(&east()), [], "a wildcard is any host; case does not count");
    wildcards.region_addresses = vec!["0.0.0.0:5801".into()];
    assert!(only(&wildcards, &east()).text.contains("takes links at 0.0.0.0:5801"));
}

#[test]
fn clients_are_sent_only_where_the_other_region_serves_them() {
    let why = warned(|west| west.clients = vec![vec!["x.east:1".into(), "a.east:5672".into()]]);
    assert!(why.contains("clients of group 'west' has x.east:1, which"), "{why}");
    let mut both = west();
    both.clients = vec![vec!["a.east:5672".into(), String::new()]];
    assert_eq!(both.differences(&east()), []);
    let mut silent = east();
    silent.own_clients = vec![vec![]; 3];
    both.clients = vec![vec!["balancer:1".into()]];
    assert_eq!(both.differences(&silent), [], "it says no addresses of its own");
}

#[test]
fn roles_and_switches_that_forbid_a_switch_back_are_warnings() {
    let why = warned(|west| west.first_role = "recovery".into());
    assert!(why.contains("group.role is 'recovery' in group 'east' and in group 'west'"), "{why}");
    let why = warned(|west| west.enabled = false);
    assert!(why.contains("false in group 'west'") && why.contains("set it to true"), "{why}");
}

#[test]
fn each_value_that_should_be_equal_is_compared() {
    let keys: Vec<String> = west().values.into_iter().map(|(key, _)| key).collect();
    for key in &keys {
        let why = warned(|west| {
            let value = west.values.iter_mut().find(|(of, _)| of == key).unwrap();
            value.1 = "other".into();
        });
        assert!(why.starts_with(&format!("{key} is '")), "{why}");
        assert!(why.contains("'other' in group 'west'"), "{why}");
        assert!(why.ends_with("; make them equal"), "{why}");
    }
    // No consequence is of a key that there is not.
    for (key, _) in CONSEQUENCES.iter().filter(|(key, _)| !key.is_empty()) {
        assert!(keys.iter().any(|of| of == key), "{key}");
    }
    let mut later = west();
    later.values.push(("group.recovery.later".into(), "1".into()));
    assert_eq!(later.differences(&east()), [], "only one of both says it");
}

#[test]
fn what_refuses_comes_first_and_nothing_that_was_said_controls_a_terminal() {
    let mut west = west();
    west.enabled = false;
    west.extent_bytes = 1;
    west.ciphers = "\u{1b}[31m".into();
    let mut east = east();
    east.ciphers = "TLS".into();
    let found = west.differences(&east);
    let weights: Vec<_> = found.iter().map(|difference| difference.weight).collect();
    let [refuses, warning] = [DifferenceWeight::Refuses, DifferenceWeight::Warning];
    assert_eq!(weights, [refuses, refuses, warning]);
    assert!(found.iter().all(|it| !it.text.contains('\u{1b}')), "{found:?}");
    let why = refusal(&found).unwrap();
    assert!(why.contains("extent_bytes") && why.contains("; group.region_ciphers"), "{why}");
}
