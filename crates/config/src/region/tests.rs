//! Defaults, ranges and what must go together; the reference says of each key what the program
//! does.

use super::*;
use crate::{Config, GroupConfig};

const REFERENCE: &str = include_str!("../../../../docs/reference/config.md");

/// A group of three: keys of `[group]`, and what follows the members. Members have an address for
/// the other region each.
fn text(keys: &str, rest: &str) -> String {
    let mut text = format!(
        "[group]\nname = \"west\"\ninstance = \"a\"\ncertificate = \"a.pem\"\n\
         private_key = \"a-key.pem\"\nauthorities = \"authority.pem\"\n{keys}\n"
    );
    for name in ["a", "b", "c"] {
        text += &format!(
            "[[group.member]]\nname = \"{name}\"\naddress = \"{name}.west:5700\"\n\
             region_address = \"{name}.west:5800\"\n"
        );
    }
    text + rest
}

const OTHER: &str = "[group.recovery]\nname = \"east\"\naddresses = [\"a.east:5800\"]\n";

/// With further keys of `[group.recovery]`.
fn recovery(keys: &str) -> String {
    text("", &format!("{OTHER}{keys}\n"))
}

fn group(text: &str) -> GroupConfig {
    Config::parse(text).unwrap_or_else(|why| panic!("{why}: {text}")).group.unwrap()
}

fn refusal(text: &str) -> String {
    match Config::parse(text) {
        Ok(_) => panic!("it is taken: {text}"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn a_second_region_has_its_defaults() {
    let group = group(&recovery(""));
    assert_eq!((group.role, group.region_ciphers), (FirstRole::Live, RegionCiphers::Any));
    assert_eq!(group.member[1].region_address.as_deref(), Some("b.west:5800"));
    let recovery = group.recovery.unwrap();
    assert_eq!((recovery.name.as_str(), recovery.enabled), ("east", true));
    assert_eq!(recovery.status_interval(), Duration::ZERO);
    let retries = [recovery.short_retry_timer(), recovery.long_retry_timer()];
    assert_eq!(retries, [Duration::from_millis(2_500), Duration::from_secs(60)]);
    let default = RecoveryConfig::default();
    assert_eq!(recovery.shared_values(), default.shared_values());
    assert!(Config::parse(&text("", "")).is_ok(), "addresses may be there before the other group");
}

#[test]
fn log_kept_for_recovery_is_half_of_a_bounded_log_and_never_what_fills_it() {
    let behind = |log: &str, keys: &str| {
        let config = Config::parse(&format!("{log}\n{}", recovery(keys)));
        config.map(|config| config.group.unwrap().recovery.unwrap().log_bytes_behind(&config.log))
    };
    let bounded = "[log]\nlog_bytes_max = 1000000000";
    assert_eq!(behind("", "").unwrap(), limits::REGION_BEHIND_BYTES_DEFAULT);
    assert_eq!(behind(bounded, "").unwrap(), 500_000_000);
    assert_eq!(behind(bounded, "log_bytes_behind_max = 800000000").unwrap(), 800_000_000);
    assert!(behind("", "log_bytes_behind_max = 67108864").is_ok(), "one extent");
    let most = behind(bounded, "log_bytes_behind_max = 800000001").unwrap_err().to_string();
    assert!(most.contains("must be 67108864 to 800000000 (an extent, and 80 %"), "{most}");
    let least = behind("", "log_bytes_behind_max = 67108863").unwrap_err().to_string();
    assert!(least.contains("must be at least 67108864"), "{least}");
}

#[test]
fn two_regions_that_cannot_work_are_refused() {
    let of = |addresses: &str| text("", &OTHER.replace("[\"a.east:5800\"]", addresses));
    let named = |name: &str| text("", &OTHER.replace("east\"\n", &format!("{name}\"\n")));
    let at = |address: &str| recovery("").replace("b.west:5800", address);
    let one_left_out = recovery("").replace("region_address = \"b.west:5800\"\n", "");
    let all_left_out = ["a", "b", "c"].iter().fold(recovery(""), |text, name| {
        text.replace(&format!("region_address = \"{name}.west:5800\"\n"), "")
    });
    for (text, why) in [
        (named("west"), "'west' is this group"),
        (named(""), "group.recovery.name = '': must be 1 to 48 letters"),
        (text("", "[group.recovery]\naddresses = [\"h:1\"]\n"), "group.recovery.name = ''"),
        (text("", "[group.recovery]\nname = \"east\"\n"), "addresses = 0: must be 1 to 3"),
        (of("[\"a:1\", \"b:1\", \"c:1\", \"d:1\"]"), "addresses = 4: must be 1 to 3"),
        (of("[\"a.east\"]"), "'a.east': must be host:port"),
        (of(&format!("[\"{}:1\"]", "a".repeat(258))), "at most 259 bytes"),
        (of("[\"a.east:1\", \"A.East:1\"]"), "'A.East:1' is given twice"),
        (of("[\"c.west:5800\"]"), "'c.west:5800' is an address of this group"),
        (of("[\"B.west:5700\"]"), "'B.west:5700' is an address of this group"),
        (at("nowhere"), "region_address of b = 'nowhere': must be host:port"),
        (at("a.west:5800"), "region_address of b = 'a.west:5800' is given twice"),
        (at("b.west:5700"), "is the address of links inside the group"),
        (one_left_out, "region_address of b is missing"),
        (all_left_out, "[group.recovery] needs group.member.region_address"),
        (text("role = \"recovery\"", ""), "group.role = 'recovery' needs [group.recovery]"),
        (text("role = \"standby\"", OTHER), "unknown variant `standby`"),
        (text("region_certificate = \"r.pem\"", OTHER), "go together"),
        (text("region_private_key = \"r.pem\"", OTHER), "go together"),
        (text("region_ciphers = \"ANY_TLS12\"", OTHER), "always TLS 1.3"),
        (text("region_ciphers = \"TLS_NULL\"", OTHER), "TLS_CHACHA20_POLY1305_SHA256; the link"),
        (recovery("clients = [\"h:1\"]"), "expected a sequence"),
        (recovery("clients = [[]]"), "of an instance = 0: must be 1 to 16"),
        (recovery("clients = [[\"h\"]]"), "group.recovery.clients = 'h': must be host:port"),
        (recovery("clients = [[\"h:1\"], [\"h:2\"], [\"h:3\"], [\"h:4\"]]"), "must be 0 to 3"),
        (recovery("rpo = 1"), "did you mean 'rpo_s'?"),
    ] {
        let refusal = refusal(&text);
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[test]
fn what_is_written_in_the_way_of_ibm_mq_is_taken() {
    let ciphers = |name: &str| group(&text(&format!("region_ciphers = \"{name}\""), OTHER));
    for name in ["any", "ANY", "ANY_TLS13", "ANY_TLS13_OR_HIGHER", "ANY_TLS12_OR_HIGHER"] {
        assert_eq!(ciphers(name).region_ciphers, RegionCiphers::Any);
    }
    for suite in RegionCiphers::ALL {
        assert_eq!(ciphers(suite.name()).region_ciphers, suite);
        assert_eq!(suite.to_string(), suite.name());
    }
    let wildcard = recovery("").replace("a.west:5800", "0.0.0.0:5800");
    let wildcards = wildcard.replace("b.west:5800", "0.0.0.0:5800");
    assert_eq!(group(&wildcards).member[0].region_address.as_deref(), Some("0.0.0.0:5800"));
    let clients = "clients = [[\"a.east:5672\", \"\"], [\"[::1]:5672\"]]";
    assert_eq!(group(&recovery(clients)).recovery.unwrap().clients[0], ["a.east:5672", ""]);
}

#[test]
fn files_for_the_other_region_are_seen_from_the_folder_of_the_process() {
    let keys = "region_certificate = \"r.pem\"\nregion_private_key = \"r-key.pem\"\n\
                region_authorities = \"/ca.pem\"";
    let group = group(&text(keys, OTHER)).seen_from(std::path::Path::new("/srv"));
    let files = [&group.region_certificate, &group.region_private_key, &group.region_authorities];
    let files = files.map(|file| file.as_ref().unwrap().to_str().unwrap());
    assert_eq!(files, ["/srv/r.pem", "/srv/r-key.pem", "/ca.pem"]);
}

/// The rows of the table under a heading: keys, default, range.
fn rows(heading: &str) -> Vec<[&'static str; 3]> {
    let section = REFERENCE.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some([cells.next()?.trim_end_matches('`'), cells.next()?, cells.next()?])
    });
    rows.collect()
}

/// Least and most of a range `1 to 9 ms`.
fn bounds(range: &str) -> Option<[u64; 2]> {
    let (least, rest) = range.split_once(" to ")?;
    Some([least.parse().ok()?, rest.split(' ').next()?.parse().ok()?])
}

/// Values of a range that lists them: `"phase"`, `"all"`.
fn listed(range: &str) -> Vec<&str> {
    range.split('`').skip(1).step_by(2).filter(|value| value.starts_with('"')).collect()
}

/// Checks defaults and ranges of a table; `with` gives a whole file with these keys added.
fn holds(heading: &str, with: impl Fn(&str) -> String) -> usize {
    let without = Config::parse(&with("")).unwrap();
    let mut checked = 0;
    for [key, default, range] in rows(heading) {
        if default == "must be given" {
            continue;
        }
        if let Some(value) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
            let given = Config::parse(&with(&format!("{key} = {value}")));
            assert_eq!(given.unwrap(), without, "the default of {key}");
            checked += 1;
        } else if default.parse::<u64>().is_ok() {
            let given = Config::parse(&with(&format!("{key} = {default}")));
            assert_eq!(given.unwrap(), without, "the default of {key}");
            checked += 1;
        }
        if let Some([least, most]) = bounds(range) {
            let taken = |value: u64| Config::parse(&with(&format!("{key} = {value}"))).is_ok();
            assert!(taken(least) && taken(most), "{key}: {range}");
            assert!(least == 0 || !taken(least - 1), "{key}: {range}");
            assert!(!taken(most + 1), "{key}: {range}");
            checked += 1;
        }
        for value in listed(range) {
            assert!(Config::parse(&with(&format!("{key} = {value}"))).is_ok(), "{key} = {value}");
            checked += 1;
        }
    }
    checked
}

#[test]
fn the_reference_has_the_defaults_and_ranges_of_group_and_recovery() {
    // Times that allow any heartbeat interval would not be the defaults.
    let group = |keys: &str| match keys {
        _ if keys.starts_with("heartbeat_interval_ms = 10000") => {
            text(&format!("{keys}\nheartbeat_timeout_ms = 30000"), OTHER)
        }
        _ => text(keys, OTHER),
    };
    assert!(holds("`[group]`", group) >= 18);
    assert!(holds("`[group.recovery]`", recovery) >= 25);
    let keys: Vec<&str> = rows("`[group.recovery]`").iter().map(|[key, ..]| *key).collect();
    assert_eq!(keys.len(), 19, "{keys:?}");
}

#[test]
fn replies_wait_only_for_a_group_that_is_sent_the_log() {
    let waits = |keys: &str| group(&recovery(keys)).recovery.unwrap();
    assert!(!waits("").replies_wait());
    let strict = waits("sync_replication = true");
    assert!(strict.replies_wait());
    assert_eq!(strict.sync_consistency, SyncConsistency::Strict);
    assert_eq!(strict.sync_wait(), Duration::from_secs(5));
    let eventual = waits("sync_replication = true\nsync_consistency = \"eventual\"");
    assert_eq!(eventual.sync_consistency, SyncConsistency::Eventual);
    let why = refusal(&recovery("sync_replication = true\nenabled = false"));
    assert!(why.contains("sync_replication needs group.recovery.enabled"), "{why}");
    for wait in ["999", "600001"] {
        let why = refusal(&recovery(&format!("sync_wait_ms = {wait}")));
        assert!(why.contains("group.recovery.sync_wait_ms"), "{why}");
    }
}
