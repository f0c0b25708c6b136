//! What differs between the configurations of two groups that are connected, and what it would lead
//! to.
//!
//! A difference that makes one log in two regions impossible is a reason to refuse the connection.
//! All others are warnings: they can be mended on one instance after the other, and most of them
//! show only after a switch, when it is too late to think about them.
//!
//! Not here: what is compared (`region_agreement`), histories and roles. Invariant: both groups
//! come to the same list, in the same words.

use std::cmp::Ordering;
use std::fmt;

use towline_config::{is_same_address, split, wildcard_port};

use crate::agreement::LISTENER_SCHEMES;
use crate::region_agreement::RegionAgreement;

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceWeight {
    /// The groups cannot work together.
    Refuses,
    /// They work together.
    Warning,
}

/// One difference, in words: both values, what it leads to, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionDifference {
    /// How much it matters.
    pub weight: DifferenceWeight,
    /// For people.
    pub text: String,
}

impl fmt::Display for RegionDifference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// What to know of a value that should be equal, by its key; for other keys the last one holds.
const CONSEQUENCES: &[(&str, &str)] = &[
    (
        "group.recovery.sync_replication",
        "while the group with 'false' is live, a failover can lose what was acknowledged",
    ),
    (
        "group.recovery.sync_consistency",
        "while the other region is away, only one of them goes on alone",
    ),
    (
        "group.recovery.status_interval_ms",
        "after a switch the backlog is known as exactly as the other value allows",
    ),
    (
        "group.recovery.status_commit_threshold_bytes",
        "after a switch the backlog is known as exactly as the other value allows",
    ),
    ("group.recovery.rpo_bytes", "after a switch the alarm comes at the other value"),
    ("group.recovery.rpo_s", "after a switch the alarm comes at the other value"),
    ("group.recovery.rto_s", "a switch is judged by the other value, depending on its direction"),
    (
        "group.recovery.log_bytes_behind_max",
        "after a switch an outage of the link that recovery rides out now may need a rebase",
    ),
    ("queue_manager.maxmsgl", "after a switch messages may be refused that were taken before"),
    ("queue_manager.deadq", "after a switch undeliverable messages go to the other queue"),
    ("the number of listeners", "after a switch clients find other listeners"),
    (LISTENER_SCHEMES, "after a switch clients with TLS find a listener without it, or none"),
    ("", "after a switch the other value holds"),
];

impl RegionAgreement {
    /// What differs between this group and the other one; nothing: they fit. What refuses comes
    /// first.
    #[must_use]
    pub fn differences(&self, other: &RegionAgreement) -> Vec<RegionDifference> {
        let [one, other] = if self.group <= other.group { [self, other] } else { [other, self] };
        let mut found = DifferencesFound(Vec::new());
        found.names(one, other);
        found.logs(one, other);
        found.programs(one, other);
        found.link(one, other);
        found.values(one, other);
        for [live, recovery] in [[one, other], [other, one]] {
            found.way_of(live, recovery);
        }
        found.0.sort_by_key(|difference| difference.weight);
        found.0
    }
}

/// Why two groups with these differences cannot work together; `None`: they can.
#[must_use]
pub fn refusal(differences: &[RegionDifference]) -> Option<String> {
    let refuses = |it: &&RegionDifference| it.weight == DifferenceWeight::Refuses;
    let texts: Vec<&str> =
        differences.iter().filter(refuses).map(|difference| difference.text.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

struct DifferencesFound(Vec<RegionDifference>);

impl DifferencesFound {
    fn refuses(&mut self, text: String) {
        self.0.push(RegionDifference { weight: DifferenceWeight::Refuses, text });
    }

    fn warning(&mut self, text: String) {
        self.0.push(RegionDifference { weight: DifferenceWeight::Warning, text });
    }

    /// That they mean each other.
    fn names(&mut self, one: &RegionAgreement, other: &RegionAgreement) {
        let [a, b] = [quoted(&one.group), quoted(&other.group)];
        if one.queue_manager != other.queue_manager {
            let [of_a, of_b] = [quoted(&one.queue_manager), quoted(&other.queue_manager)];
            self.refuses(format!(
                "the queue manager is {of_a} in group {a} and {of_b} in group {b}: one log is of one \
                 queue manager; start both with the same --name"
            ));
        }
        if one.group == other.group {
            self.refuses(format!(
                "both groups are named {a}: histories and certificates would not tell them apart; \
                 give one of them another [group] name"
            ));
            return;
        }
        for [this, that] in [[one, other], [other, one]] {
            if this.other_group != that.group {
                self.refuses(format!(
                    "group {} has {} as the other group, and is connected with {}: correct \
                     group.recovery.name or the addresses",
                    quoted(&this.group),
                    quoted(&this.other_group),
                    quoted(&that.group)
                ));
            }
        }
    }

    /// What one log in two regions needs.
    fn logs(&mut self, one: &RegionAgreement, other: &RegionAgreement) {
        let [a, b] = [quoted(&one.group), quoted(&other.group)];
        if one.extent_bytes != other.extent_bytes {
            self.refuses(format!(
                "log.extent_bytes is {} in group {a} and {} in group {b}: a position of the log would \
                 not be the same in both; empty the data folders of the group that has nothing that \
                 the other lacks, and start it with the other value",
                one.extent_bytes, other.extent_bytes
            ));
        }
        for [log, reader] in [[one, other], [other, one]] {
            let (in_force, read) = (log.levels.in_force, reader.levels.read);
            if in_force > read {
                self.refuses(format!(
                    "the log of group {} has format level {in_force}, and version {} of group {} \
                     reads up to {read}: upgrade that group",
                    quoted(&log.group),
                    shown(&reader.version),
                    quoted(&reader.group)
                ));
            }
        }
        // 0 is as much as the disk has.
        let bound = |it: &RegionAgreement| it.log_bytes_max.wrapping_sub(1);
        let (small, large) = match bound(one).cmp(&bound(other)) {
            Ordering::Equal => return,
            Ordering::Less => (one, other),
            Ordering::Greater => (other, one),
        };
        let of_large = match large.log_bytes_max {
            0 => "0 (the disk)".to_owned(),
            bytes => bytes.to_string(),
        };
        self.warning(format!(
            "log.log_bytes_max is {} in group {} and {of_large} in group {}: what {} retains may not \
             fit into the log of {}, which then stops receiving it; make them equal",
            small.log_bytes_max,
            quoted(&small.group),
            quoted(&large.group),
            quoted(&large.group),
            quoted(&small.group)
        ));
    }

    /// Recovery must not be older than live.
    fn programs(&mut self, one: &RegionAgreement, other: &RegionAgreement) {
        let (old, new) = match numbers(&one.version).cmp(&numbers(&other.version)) {
            Ordering::Equal => return,
            Ordering::Less => (one, other),
            Ordering::Greater => (other, one),
        };
        let what = match (old.is_live, new.is_live) {
            (Some(true), _) | (_, Some(false)) => format!(
                "recovery is the newer one, as it must be; upgrade {} before you switch",
                quoted(&old.group)
            ),
            (Some(false), _) | (_, Some(true)) => format!(
                "recovery must not be older than live, whose log it may fail to read: upgrade {}",
                quoted(&old.group)
            ),
            (None, None) => "upgrade the group that is recovery first".to_owned(),
        };
        self.warning(format!(
            "group {} runs version {} and group {} version {}: {what}",
            quoted(&old.group),
            shown(&old.version),
            quoted(&new.group),
            shown(&new.version)
        ));
    }

    /// What the link needs, and what a group without a log does.
    fn link(&mut self, one: &RegionAgreement, other: &RegionAgreement) {
        let [a, b] = [quoted(&one.group), quoted(&other.group)];
        if one.ciphers != other.ciphers && one.ciphers != ANY && other.ciphers != ANY {
            self.refuses(format!(
                "group.region_ciphers is {} in group {a} and {} in group {b}: they have no cipher \
                 suite in common and cannot connect again; make them equal, or one of them '{ANY}'",
                quoted(&one.ciphers),
                quoted(&other.ciphers)
            ));
        }
        if one.first_role == other.first_role {
            let role = quoted(&one.first_role);
            self.warning(format!(
                "group.role is {role} in group {a} and in group {b}: if neither has a log, both \
                 begin so; give it 'live' in one of them and 'recovery' in the other"
            ));
        }
        for disabled in [one, other].into_iter().filter(|it| !it.enabled) {
            self.warning(format!(
                "group.recovery.enabled is false in group {}: while that group is live, it sends no \
                 log; set it to true",
                quoted(&disabled.group)
            ));
        }
    }

    /// Values that should be equal. What only one of both says is left out: a later version may
    /// have more.
    fn values(&mut self, one: &RegionAgreement, other: &RegionAgreement) {
        for (key, value) in &one.values {
            let same_key = other.values.iter().find(|(other, _)| other == key);
            let Some((_, other_value)) = same_key.filter(|(_, other)| other != value) else {
                continue;
            };
            let known = CONSEQUENCES.iter().find(|(of, _)| of == key || of.is_empty());
            let (_, consequence) = known.copied().unwrap_or_default();
            self.warning(format!(
                "{} is {} in group {} and {} in group {}: {consequence}; make them equal",
                shown(key),
                quoted(value),
                quoted(&one.group),
                quoted(other_value),
                quoted(&other.group)
            ));
        }
    }

    /// Whether `live` would find `recovery`, and send clients there.
    fn way_of(&mut self, live: &RegionAgreement, recovery: &RegionAgreement) {
        let [l, r] = [quoted(&live.group), quoted(&recovery.group)];
        let own = &recovery.region_addresses;
        let missing: Vec<&str> =
            own.iter().filter(|own| !is_listed(own, &live.addresses)).map(String::as_str).collect();
        if !missing.is_empty() && missing.len() == own.len() {
            self.warning(format!(
                "group {l} looks for group {r} at {}, and {r} takes links at {}: while {l} is live, \
                 it may not reach {r}; if these are not other names of the same, correct \
                 group.recovery.addresses of {l}",
                joined(&live.addresses),
                joined(own)
            ));
        } else if !missing.is_empty() {
            self.warning(format!(
                "group.recovery.addresses of group {l} lacks {}: while {l} is live, it does not \
                 reach {r} through the instance there; add it",
                shown(&missing.join(", "))
            ));
        }
        let given: Vec<&String> =
            recovery.own_clients.iter().flatten().filter(|address| !address.is_empty()).collect();
        let advertised = live.clients.iter().flatten().filter(|address| !address.is_empty());
        let strange: Vec<&str> = advertised
            .filter(|address| !given.iter().any(|given| is_same_address(given, address)))
            .map(String::as_str)
            .collect();
        if !given.is_empty() && !strange.is_empty() {
            self.warning(format!(
                "group.recovery.clients of group {l} has {}, which is in no group.member.clients of \
                 group {r}: clients of {l} may be sent where {r} does not serve them; correct one \
                 of both",
                shown(&strange.join(", "))
            ));
        }
    }
}

/// Any cipher suite.
const ANY: &str = "any";

/// Whether an address where links come in is among those that are looked for. One with a wildcard
/// has any host: its port counts.
fn is_listed(own: &str, listed: &[String]) -> bool {
    listed.iter().any(|address| match wildcard_port(own) {
        Some(port) => split(address).is_some_and(|(_, other)| other == port),
        None => is_same_address(own, address),
    })
}

/// The numbers of a version, as they are compared: `0.10.2` is newer than `0.9.11`.
fn numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

/// What the other group said goes to logs and screens: no control characters.
fn shown(text: &str) -> String {
    text.escape_default().to_string()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.escape_default())
}

fn joined(addresses: &[String]) -> String {
    shown(&addresses.join(", "))
}

#[cfg(test)]
mod tests;
