//! What the instances of a group must have in common, or should have, beside names and
//! certificates.
//!
//! Not here: how it is said and compared (`link::terms`). What clients are granted by the active
//! alone (bounds of connections, users, threads, caches) may differ and is not mentioned.

use towline_group::{HardState, MemberId};

use towline_config::{Config, GroupConfig, ListenerConfig, RecoveryConfig};
use towline_link::{INTERVAL, TIMEOUT, Terms};

/// The terms of this instance, for a log with extents of so many bytes. Format levels change while
/// it runs, and are said with each hello (`Driver::levels`).
pub fn terms(config: &Config, group: &GroupConfig, extent_bytes: u64) -> Terms {
    let mut terms = Terms::default();
    // Numbers in consensus come from the names.
    let names: Vec<&str> = group.member.iter().map(|member| &*member.name).collect();
    terms.bind("the list of instances", names.join(", "));
    // A batch stands at the same position everywhere, and never across an extent's end.
    terms.bind("log.extent_bytes", extent_bytes);
    terms.mention(INTERVAL, group.heartbeat_interval_ms);
    terms.mention(TIMEOUT, group.heartbeat_timeout_ms);
    terms.mention("group.preferred_location", &group.preferred_location);
    for (key, value) in seen_by_clients(config) {
        terms.mention(key, value);
    }
    terms.mention("group.role", group.role.name());
    terms.mention("group.region_ciphers", group.region_ciphers);
    let of_region = group.member.iter().filter_map(|member| member.region_address.as_deref());
    let of_region = of_region.collect::<Vec<_>>().join(", ");
    terms.mention("group.member.region_address", bounded(of_region));
    let recovery = group.recovery.as_ref().map_or_else(|| "none".to_owned(), in_words);
    terms.mention("group.recovery", bounded(recovery));
    terms
}

/// What clients notice when another instance, or another region, becomes active: key and value.
pub(crate) fn seen_by_clients(config: &Config) -> Vec<(&'static str, String)> {
    let manager = &config.queue_manager;
    vec![
        ("queue_manager.deadq", manager.deadq.clone()),
        ("queue_manager.maxmsgl", manager.maxmsgl.to_string()),
        ("queue_manager.maxumsgs", manager.maxumsgs.to_string()),
        ("queue_manager.unit_bytes_max", manager.unit_bytes_max.to_string()),
        ("queue_manager.unit_age_max_s", manager.unit_age_max_s.to_string()),
        ("queue_manager.expired_to_deadq", manager.expired_to_deadq.to_string()),
        ("the number of listeners", config.listener.len().to_string()),
    ]
}

/// Key of the value that says what a group's listeners are, in order.
pub(crate) const LISTENER_SCHEMES: &str = "the list of schemes of the listeners";

/// Of each listener: `amqps` with TLS, else `amqp`.
#[must_use]
pub fn listener_schemes(listeners: &[ListenerConfig]) -> Vec<String> {
    let scheme = |listener: &ListenerConfig| match listener.certificate {
        Some(_) => "amqps".to_owned(),
        None => "amqp".to_owned(),
    };
    listeners.iter().map(scheme).collect()
}

/// `[group.recovery]` as one text: name and addresses, and what is not as by default.
fn in_words(recovery: &RecoveryConfig) -> String {
    let mut words = format!("{} at {}", recovery.name, recovery.addresses.join(", "));
    let default = RecoveryConfig::default();
    let (values, defaults) = (recovery.shared_values(), default.shared_values());
    for ((key, value), (_, by_default)) in values.iter().zip(defaults) {
        if *value != by_default {
            words += &format!(", {key} {value}");
        }
    }
    if !recovery.enabled {
        words += ", not enabled";
    }
    if recovery.log_bytes_behind_max != default.log_bytes_behind_max {
        words += &format!(", log_bytes_behind_max {}", recovery.log_bytes_behind_max);
    }
    if !recovery.clients.is_empty() {
        let clients: Vec<String> = recovery.clients.iter().map(|list| list.join(" ")).collect();
        words += &format!(", clients {}", clients.join(", "));
    }
    words
}

/// Longest of the texts about the other region that a hello has space for, beside everything else.
const REGION_TEXT_BYTES_MAX: usize = 180;

/// The text; of a longer one its beginning and a checksum of all of it, so that two that differ
/// still do.
fn bounded(text: String) -> String {
    if text.len() <= REGION_TEXT_BYTES_MAX {
        return text;
    }
    let checksum = format!(" ... {:08x}", crc32c::crc32c(text.as_bytes()));
    let end = text.floor_char_boundary(REGION_TEXT_BYTES_MAX - checksum.len());
    format!("{}{checksum}", text.get(..end).unwrap_or_default())
}

/// What was kept by the process before, read by this one. That a vote was given counts; for which
/// number does not: a version that numbered the members as its file listed them may have meant
/// another member. A vote in a term before the start is given to no member again, which costs at
/// most one election.
pub fn of_process_before(hard_state: HardState) -> HardState {
    HardState { vote: hard_state.vote.map(|_| MemberId::NONE_OF_THEM), ..hard_state }
}

#[cfg(test)]
mod tests {
    use towline_config::FirstRole;
    use towline_link::TERMS_BYTES_MAX;

    use super::*;
    use crate::region_agreement::tests::configuration;

    fn terms_of(config: &Config) -> Terms {
        terms(config, config.group.as_ref().unwrap(), 1 << 26)
    }

    #[test]
    fn what_is_configured_of_another_region_is_said_and_differs_even_behind_what_has_space() {
        let of = |keys: &str| terms_of(&configuration("west", "east", keys));
        let by_default = of("");
        let none = terms_of(&Config {
            group: configuration("west", "east", "").group.map(|mut group| {
                group.recovery = None;
                group
            }),
            ..Config::default()
        });
        assert_ne!(by_default, none);
        for keys in [
            "window_bytes = 65536",
            "enabled = false",
            "log_bytes_behind_max = 67108864",
            "clients = [[\"h:1\"]]",
            "sync_consistency = \"eventual\"",
        ] {
            assert_ne!(of(keys), by_default, "{keys}");
        }
        let host = "h".repeat(200);
        let far = |port: u16| of(&format!("clients = [[\"{host}:1\"], [\"{host}:{port}\"]]"));
        assert_ne!(far(1), far(2), "behind what has space");
        assert_eq!(far(1), far(1));
        let mut other = configuration("west", "east", "");
        other.group.as_mut().unwrap().role = FirstRole::Recovery;
        assert_ne!(terms_of(&other), by_default);
        let mut other = configuration("west", "east", "");
        other.group.as_mut().unwrap().member[2].region_address = Some("elsewhere:1".into());
        assert_ne!(terms_of(&other), by_default);
    }

    #[test]
    fn the_terms_of_the_longest_configuration_fit_into_a_hello() {
        let name = |letter: &str| letter.repeat(48);
        let host = "h".repeat(250);
        let mut text = format!(
            "[queue_manager]\ndeadq = \"{}\"\nmaxumsgs = 999999999\nunit_age_max_s = 604800\n\
             unit_bytes_max = {}\n[group]\nname = \"{}\"\ninstance = \"{}\"\nrole = \"recovery\"\n\
             certificate = \"a.pem\"\nprivate_key = \"k.pem\"\nauthorities = \"c.pem\"\n\
             preferred_location = \"{}\"\nheartbeat_interval_ms = 10000\n\
             heartbeat_timeout_ms = 60000\nregion_ciphers = \"TLS_CHACHA20_POLY1305_SHA256\"\n",
            "D".repeat(300),
            i64::MAX,
            name("w"),
            name("a"),
            name("a")
        );
        for instance in ["a", "b", "c"] {
            text += &format!(
                "[[group.member]]\nname = \"{}\"\naddress = \"{instance}:1\"\n\
                 region_address = \"{instance}{host}:2\"\n",
                name(instance)
            );
        }
        text += &format!(
            "[group.recovery]\nname = \"{}\"\naddresses = [\"x{host}:2\", \"y{host}:2\"]\n",
            name("e")
        );
        let bytes = terms_of(&Config::parse(&text).unwrap()).bytes();
        assert!(bytes <= TERMS_BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn a_vote_of_the_process_before_counts_but_for_no_number() {
        let hard_state = HardState { term: 7, vote: Some(MemberId(1)), ..HardState::default() };
        let read = of_process_before(hard_state);
        assert_eq!((read.term, read.vote), (7, Some(MemberId::NONE_OF_THEM)));
        assert_eq!(of_process_before(HardState { vote: None, ..hard_state }).vote, None);
    }
}
