//! What stands in the way of a change of roles between two regions, judged from the status of one
//! instance: `towline region check`.
//!
//! Each finding says what there is, and what to do about it if it is not fine. What is not known
//! here is not fine: an operator wants to know that before it is too late.
//!
//! Not here: the measurements (`RegionConditionStatus`, `OtherRegionStatus`) and the change itself.
//! Invariants: the clock is an argument; no text of another instance comes unescaped to a terminal.

use serde::{Deserialize, Serialize};

use super::{GroupRole, GroupStatus, OtherRegionState, OtherRegionStatus, RegionConditionStatus};
use crate::text::{line, printable};
use wrapping::wrapped;

/// What the other region said of itself holds for so long. It says it twice a second.
const HEARD_MS_MAX: u64 = 5_000;
/// A certificate that expires within so many seconds is to be replaced: 30 days, as the instances
/// log it.
const CERTIFICATE_S_MIN: u64 = 30 * 86_400;
/// Clocks that differ by so much are worth a look; expiry is judged by the clock of the region that
/// serves.
const CLOCK_WARNING_US: u64 = 500_000;
/// Clocks that differ by more change what expires after a switch.
const CLOCK_MAX_US: u64 = 5_000_000;
/// The first word of what is said of the instances of a group.
const QUORUM: &str = "quorum";
/// Characters of a line.
const COLUMNS: usize = 80;
/// Characters before the text.
const MARGIN: usize = 23;

/// What to do about a link that does not stand.
const LINK_IS_DOWN: &str = "see that the live group runs, that its group.recovery.addresses lead \
                            here, and that no firewall or certificate is in between";

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingWeight {
    /// As it should be.
    Fine,
    /// To be mended, and does not stand in the way.
    Warning,
    /// It stands in the way.
    Stands,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionFinding {
    /// What was looked at: one or two words.
    pub check: String,
    /// How much it matters.
    pub weight: FindingWeight,
    /// What there is.
    pub text: String,
    /// What to do; empty: nothing.
    pub what_to_do: String,
}

impl RegionFinding {
    /// Whether no switch is begun with it: a group that it names cannot write, or is not heard, so
    /// the last batch of a switch would be acknowledged by none. With the rest that stands in the
    /// way a switch comes to its end, and the operator may have a reason.
    #[must_use]
    pub fn forbids_switch(&self) -> bool {
        self.weight == FindingWeight::Stands && self.check.starts_with(QUORUM)
    }

    /// In a line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}: {}", self.check, self.text)
    }
}

/// All that was looked at, in the order in which to mend it. `group` is as an instance of either
/// group reports it, at `now_ms`, milliseconds since the Unix epoch. `None`: no other region is
/// configured.
#[must_use]
pub fn region_findings(group: &GroupStatus, now_ms: u64) -> Option<Vec<RegionFinding>> {
    let other = group.other_region.as_ref()?;
    let mut found = RegionFindings(Vec::new());
    found.fence(group);
    found.link(group, other);
    found.logs(group, other);
    found.lag(group, other);
    found.sync(group, other);
    let sides = [(&group.group_name, Some(&other.here)), (&other.group_name, heard(other))];
    for (name, condition) in sides {
        found.quorum(name, condition);
    }
    for (name, condition) in sides {
        found.certificate(name, condition, now_ms / 1_000);
    }
    found.clocks(other);
    found.space(group, other);
    found.versions(group, other);
    found.configuration(other);
    found.clients(other);
    Some(found.0)
}

/// Whether nothing stands in the way.
#[must_use]
pub fn nothing_stands(findings: &[RegionFinding]) -> bool {
    findings.iter().all(|finding| finding.weight != FindingWeight::Stands)
}

/// The findings for a terminal, at most 80 columns wide, each line ended.
#[must_use]
pub fn region_findings_table(findings: &[RegionFinding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let weight = match finding.weight {
            FindingWeight::Fine => "ok",
            FindingWeight::Warning => "look",
            FindingWeight::Stands => "NO",
        };
        let head = format!("{weight:<5} {:<16} ", finding.check);
        wrapped(&mut text, &head, &printable(&finding.text));
        if !finding.what_to_do.is_empty() {
            wrapped(
                &mut text,
                &" ".repeat(MARGIN),
                &format!("-> {}", printable(&finding.what_to_do)),
            );
        }
    }
    let stands = findings.iter().filter(|finding| finding.weight == FindingWeight::Stands).count();
    line(&mut text, "");
    match stands {
        0 => line(&mut text, "Nothing stands in the way of a switch."),
        1 => line(&mut text, "1 thing stands in the way of a switch."),
        many => line(&mut text, &format!("{many} things stand in the way of a switch.")),
    }
    text
}

/// What the other region said of itself, if that is recent.
fn heard(other: &OtherRegionStatus) -> Option<&RegionConditionStatus> {
    other.there.as_ref().filter(|_| other.there_age_ms <= HEARD_MS_MAX)
}

/// The recovery point objective in words.
fn objective(other: &OtherRegionStatus) -> String {
    let both = [("rpo_bytes", other.rpo_bytes), ("rpo_s", other.rpo_s)];
    let set = both.iter().filter(|(_, value)| *value > 0);
    set.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Whether recovery has all that was acknowledged, in words.
fn covered(covers: bool) -> &'static str {
    match covers {
        true => "recovery has all that was acknowledged",
        false => "recovery is not known to have all that was acknowledged",
    }
}

/// Whether the group of this instance is the one that receives.
fn receives(group: &GroupStatus) -> bool {
    group.group_role == "recovery"
}

/// What an operator can do about two logs that are not one, as far as this instance knows.
fn what_to_do_about_logs(group: &GroupStatus, other: &OtherRegionStatus) -> String {
    const RETURN: &str = "list and export what this log has of its own: 'towline region divergence \
                          --export FILE'; then 'towline region rejoin'";
    const COPY: &str = "list and export what this log has of its own: 'towline region divergence \
                        --export FILE'. No batch is left that both logs have, so 'towline region \
                        rejoin' cannot be carried out: then stop this group, empty its data folders, \
                        and start it with role = \"recovery\": it gets a copy";
    const DECIDE: &str = "decide which group's log is to be kept; at the other group: 'towline \
                          region divergence --export FILE', then 'towline region rejoin'";
    let (name, knows_fork) = (&other.group_name, !other.fork_lsn.is_empty());
    match (group.group_role.as_str(), other.group_role.as_str()) {
        ("recovery" | "fenced", _) if other.needs_copy => COPY.to_owned(),
        ("recovery" | "fenced", _) if knows_fork => RETURN.to_owned(),
        // Its log is new, and the other group has the one that it should have.
        ("fenced", _) if group.fence.is_some() => {
            group.fence.as_ref().map(|fence| fence.what_to_do.clone()).unwrap_or_default()
        }
        ("recovery", _) => format!(
            "if the log of group '{name}' is not a new one, and that group is to be live: have this \
             group begin again, with empty data folders and role = \"recovery\"; else 'towline \
             region failover' here"
        ),
        (_, "live") => DECIDE.to_owned(),
        (_, _) => format!(
            "'towline region check' at the instances of group '{name}' says what to do there"
        ),
    }
}

struct RegionFindings(Vec<RegionFinding>);

impl RegionFindings {
    fn fine(&mut self, check: &str, text: String) {
        self.add(check, FindingWeight::Fine, text, "");
    }

    fn warns(&mut self, check: &str, text: String, what_to_do: &str) {
        self.add(check, FindingWeight::Warning, text, what_to_do);
    }

    fn stands(&mut self, check: &str, text: String, what_to_do: &str) {
        self.add(check, FindingWeight::Stands, text, what_to_do);
    }

    fn add(&mut self, check: &str, weight: FindingWeight, text: String, what_to_do: &str) {
        let (check, what_to_do) = (check.to_owned(), what_to_do.to_owned());
        self.0.push(RegionFinding { check, weight, text, what_to_do });
    }

    fn fence(&mut self, group: &GroupStatus) {
        if let Some(fence) = &group.fence {
            self.stands("fence", fence.why.clone(), &fence.what_to_do);
        }
        let other = group.other_region.as_ref();
        if let Some(other) = other.filter(|it| receives(group) && it.group_role == "fenced") {
            self.stands(
                "fence",
                format!("live group '{}' serves no client: it is fenced", other.group_name),
                "'towline region unfence' there takes it back; 'towline region failover' here has this \
                 group serve",
            );
        }
    }

    fn link(&mut self, group: &GroupStatus, other: &OtherRegionStatus) {
        if other.connected {
            let round_trip = match other.round_trip_us {
                0 => String::new(),
                us => format!(", round trip {}.{} ms", us / 1_000, us % 1_000 / 100),
            };
            let heard = match other.heard_from.as_str() {
                "" => String::new(),
                from => {
                    format!(
                        ", as heard from instance '{from}' {} s ago",
                        other.heard_age_ms / 1_000
                    )
                }
            };
            let text = format!(
                "connected with instance '{}' of group '{}'{round_trip}{heard}",
                other.instance, other.group_name
            );
            return self.fine("link", text);
        }
        let leads = |role| group.instances.iter().find(|row| row.role == role);
        let has_it = leads(GroupRole::Active).or_else(|| leads(GroupRole::Leader));
        match has_it.filter(|row| row.instance != group.instance) {
            Some(row) => self.stands(
                "link",
                format!("instance '{}' has it, if any has", row.instance),
                &format!("run this command for instance '{}'", row.instance),
            ),
            None => self.stands(
                "link",
                match other.reason.as_str() {
                    "" => format!("none to group '{}'", other.group_name),
                    why => format!("none to group '{}': {why}", other.group_name),
                },
                // The other group was reached: that is no matter of the network.
                match other.status {
                    OtherRegionState::Partitioned => "see the logs",
                    _ => LINK_IS_DOWN,
                },
            ),
        }
    }

    fn logs(&mut self, group: &GroupStatus, other: &OtherRegionStatus) {
        match other.status {
            OtherRegionState::Partitioned => {
                let text = format!("they are not one: {}", other.reason);
                self.stands("logs", text, &what_to_do_about_logs(group, other));
            }
            OtherRegionState::NeedsCopy => self.stands(
                "logs",
                "recovery lacks log that live does not have any more".to_owned(),
                "it needs a copy (rebase)",
            ),
            OtherRegionState::Rebasing => self.stands(
                "logs",
                "a copy of live's log is on its way".to_owned(),
                "wait until it has arrived: `towline status --groups` shows how far it is",
            ),
            OtherRegionState::Unknown
            | OtherRegionState::Normal
            | OtherRegionState::Synchronizing
            | OtherRegionState::Disconnected => {
                let of = if receives(group) { "that of live" } else { "that of recovery" };
                self.fine("logs", format!("nothing says that this log and {of} are not one"));
            }
        }
    }

    fn lag(&mut self, group: &GroupStatus, other: &OtherRegionStatus) {
        if !other.is_known {
            let what = match receives(group) {
                true => format!(
                    "not known: live's log was not heard of for {} s, and what it commits since is \
                     not here",
                    other.unheard_ms / 1_000
                ),
                false => "recovery has not reported since live became active".to_owned(),
            };
            let missed = match other.misses_rpo {
                true => format!(": the objective ({}) counts as missed", objective(other)),
                false => String::new(),
            };
            let what_to_do = "wait for the first report; see the link";
            return self.stands("lag", format!("{what}{missed}"), what_to_do);
        }
        let age_ms = other.backlog_age_us / 1_000;
        let text = format!("{} bytes of log, the oldest {age_ms} ms old", other.backlog_bytes);
        let recovery = if receives(group) { Some(&other.here) } else { heard(other) };
        if recovery.is_some_and(|it| it.log_full) {
            let text = format!("{text}: recovery takes no more, its log is full");
            return self.stands("lag", text, "see the log of recovery, below");
        }
        let is_over = other.rpo_bytes > 0 && other.backlog_bytes > other.rpo_bytes;
        if other.misses_rpo || is_over {
            return self.stands(
                "lag",
                format!("{text}: more than the objective allows ({})", objective(other)),
                "wait until recovery has caught up; see `towline region plan` for the link that the \
                 load needs",
            );
        }
        match other.status {
            OtherRegionState::Synchronizing => {
                self.warns("lag", text, "a switch waits until recovery has caught up");
            }
            _ if other.rpo_bytes == 0 && other.rpo_s == 0 => {
                self.fine("lag", format!("{text}; no objective (rpo_bytes, rpo_s) is configured"));
            }
            _ => self.fine("lag", format!("{text}, within the objective")),
        }
    }

    /// Whether replies wait for recovery, as they are to.
    fn sync(&mut self, group: &GroupStatus, other: &OtherRegionStatus) {
        let live = if receives(group) { heard(other) } else { Some(&other.here) };
        let Some(live) = live else { return };
        let RegionConditionStatus { sync_consistency, sync_state, sync_covers, .. } = live;
        let text = match sync_consistency.as_str() {
            // Also of a version that knows no other.
            "" | "off" => return self.fine("replies", "they wait for no other region".to_owned()),
            how => format!("{how}: {sync_state}"),
        };
        match sync_state.as_str() {
            "in step" => self.fine("replies", text),
            // No switch is refused for it, and clients may not wait for that.
            "waiting" if sync_consistency == "strict" => self.warns(
                "replies",
                format!("{text}; clients are not answered; {}", covered(*sync_covers)),
                "see the link and the lag; if recovery does not come back: `towline region alone` at \
                 live's active instance has it answer without",
            ),
            "waiting" => self.warns(
                "replies",
                format!("{text}; {}", covered(*sync_covers)),
                "see the link and the lag: clients are not answered until sync_wait_ms is over",
            ),
            _ => self.warns(
                "replies",
                format!("{text}; some that was acknowledged is not in recovery"),
                "wait until recovery has caught up: a fail-over would lose it, a switch does not",
            ),
        }
    }

    fn quorum(&mut self, name: &str, condition: Option<&RegionConditionStatus>) {
        let check = format!("{QUORUM} {name}");
        let check = short(&check);
        let Some(it) = condition else { return self.not_heard(&check, name) };
        let (all, there, in_sync) = (it.configured_count, it.connected_count, it.in_sync_count);
        let text = format!("{there} of {all} instances connected, {in_sync} in sync");
        if there < all / 2 + 1 {
            self.stands(&check, text, "start the instances that are missing");
        } else if in_sync < all / 2 + 1 && it.log_full {
            self.stands(&check, text, "its log is full: see below");
        } else if in_sync < all / 2 + 1 {
            self.stands(&check, text, "wait until a majority is in sync");
        } else if in_sync < all {
            let text = format!("{text}: one more failure may leave it without a quorum");
            self.warns(
                &check,
                text,
                "start those that are missing, or wait until they are in sync",
            );
        } else {
            self.fine(&check, text);
        }
    }

    fn certificate(&mut self, name: &str, condition: Option<&RegionConditionStatus>, now_s: u64) {
        let check = short(&format!("certificate {name}"));
        let Some(it) = condition else { return self.not_heard(&check, name) };
        let left = it.certificate_expires_s.saturating_sub(now_s);
        // Any of its instances may have the link after a change of roles.
        let instance = match it.certificate_of.as_str() {
            "" => &it.instance,
            first => first,
        };
        let valid = match left / 86_400 {
            0 => format!("{} hours", left / 3_600),
            days => format!("{days} days"),
        };
        let text = format!(
            "that of instance '{instance}' for the link, the first to expire, is valid for {valid}"
        );
        let what_to_do = "put new certificate files in place; they are used without a restart";
        match left {
            // The other region says only that it has expired: TLS has one word for both.
            _ if it.certificate_begins_s > now_s => self.stands(
                &check,
                format!(
                    "that of instance '{}' for the link is not valid yet, by the clock here: it \
                     will be in {} s",
                    it.certificate_begins_of,
                    it.certificate_begins_s - now_s
                ),
                "issue it again, or set the clock of this machine, if that is wrong",
            ),
            _ if it.certificate_expires_s == 0 => {
                self.warns(&check, format!("instance '{instance}' does not say"), "");
            }
            0 => self.stands(
                &check,
                format!("that of instance '{instance}' for the link has expired"),
                what_to_do,
            ),
            _ if left < CERTIFICATE_S_MIN => self.warns(&check, text, what_to_do),
            _ => self.fine(&check, text),
        }
    }

    fn clocks(&mut self, other: &OtherRegionStatus) {
        let Some(it) = heard(other) else { return self.not_heard("clocks", &other.group_name) };
        let (ahead, apart) = (other.clock_ahead_us, other.clock_ahead_us.unsigned_abs());
        let way = if ahead < 0 { "behind" } else { "ahead of" };
        let text = format!(
            "that of instance '{}' is {}.{:03} s {way} the one here, to half a round trip",
            it.instance,
            apart / 1_000_000,
            apart / 1_000 % 1_000
        );
        let what_to_do =
            "set both by NTP: what expires, and when, is judged by the region that serves";
        // The difference is not known better than that.
        let known = apart.saturating_sub(other.round_trip_us / 2);
        if known > CLOCK_MAX_US {
            self.stands("clocks", text, what_to_do);
        } else if known > CLOCK_WARNING_US {
            self.warns("clocks", text, what_to_do);
        } else {
            self.fine("clocks", text);
        }
    }

    /// Whether each group could take a copy of the other one's log beside its own.
    fn space(&mut self, group: &GroupStatus, other: &OtherRegionStatus) {
        let Some(there) = heard(other) else {
            return self.not_heard("space for rebase", &other.group_name);
        };
        let here = &other.here;
        // The one that receives now first: the other one needs it after a switch.
        let ways = [(&other.group_name, there, here), (&group.group_name, here, there)];
        let mut ways = ways.to_vec();
        if receives(group) {
            ways.reverse();
        }
        for (name, receiver, sender) in ways {
            if receiver.log_full {
                self.full(name, receiver, sender);
            }
            let check = short(&format!("space in {name}"));
            let text = format!(
                "{} bytes free at instance '{}', a copy takes {}",
                receiver.free_bytes, receiver.instance, sender.log_bytes
            );
            if receiver.free_bytes == 0 && receiver.log_bytes == 0 {
                self.warns(&check, format!("instance '{}' does not say", receiver.instance), "");
            } else if receiver.free_bytes < sender.log_bytes {
                let what_to_do = "a rebase needs space for two copies: make the file system larger";
                self.stands(&check, text, what_to_do);
            } else {
                self.fine(&check, text);
            }
        }
    }

    /// The log of recovery takes no more of what live sends.
    fn full(
        &mut self,
        name: &str,
        receiver: &RegionConditionStatus,
        sender: &RegionConditionStatus,
    ) {
        let limit = match receiver.log_bytes_max {
            0 => "its file system has no space left".to_owned(),
            max => format!("its limit (log_bytes_max) is {max}"),
        };
        let text = format!(
            "that of instance '{}' is full, with {} bytes: {limit}; live's log has {}",
            receiver.instance, receiver.log_bytes, sender.log_bytes
        );
        self.stands(
            &short(&format!("log of {name}")),
            text,
            "raise log_bytes_max there to that of live and restart it, or enlarge its file system; or \
             get messages at live and take an image (`towline image`): when live's log is short \
             enough, recovery gets a copy of it",
        );
    }

    fn versions(&mut self, group: &GroupStatus, other: &OtherRegionStatus) {
        let Some(there) = heard(other) else {
            return self.not_heard("versions", &other.group_name);
        };
        let here = &other.here;
        let (own, others) = ((&group.group_name, here), (&other.group_name, there));
        let (live, recovery) = if receives(group) { (others, own) } else { (own, others) };
        let text = format!(
            "live group '{}' has {}, recovery group '{}' has {}",
            live.0, live.1.version, recovery.0, recovery.1.version
        );
        match numbers(&recovery.1.version).cmp(&numbers(&live.1.version)) {
            std::cmp::Ordering::Equal => self.fine("versions", text),
            std::cmp::Ordering::Less => self.stands(
                "versions",
                text,
                "recovery must not be older than live, whose log it may fail to read: upgrade recovery",
            ),
            std::cmp::Ordering::Greater => self.stands(
                "versions",
                text,
                "after a switch recovery would be the older one: upgrade live first",
            ),
        }
    }

    fn configuration(&mut self, other: &OtherRegionStatus) {
        if other.differences.is_empty() {
            return match other.there {
                Some(_) => self
                    .fine("configuration", "both groups agree, also on their addresses".to_owned()),
                None => self.not_heard("configuration", &other.group_name),
            };
        }
        for difference in &other.differences {
            self.warns("configuration", difference.clone(), "");
        }
    }

    fn clients(&mut self, other: &OtherRegionStatus) {
        if other.advertised.is_empty() {
            return self.warns(
                "clients",
                "they are given no list of addresses: it would not be whole".to_owned(),
                "give each [[group.member]] of both groups its `clients`, one for each [[listener]]",
            );
        }
        self.fine("clients", format!("they are given {}", other.advertised.join(", ")));
    }

    fn not_heard(&mut self, check: &str, name: &str) {
        let text = format!("group '{name}' has not said it within the last seconds");
        self.stands(check, text, "see the link");
    }
}

/// A name of a check that leaves the columns as they are.
fn short(check: &str) -> String {
    crate::text::cut(&printable(check), MARGIN - 7)
}

/// The numbers of a version, as they are compared: `0.10.2` is newer than `0.9.11`.
fn numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

mod wrapping;

#[cfg(test)]
mod tests;
