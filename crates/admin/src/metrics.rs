//! The metrics of two regions as text, in the format of Prometheus (text exposition 0.0.4).
//!
//! One table says name, kind, help and value of each; from it are made what is exported and the
//! reference page. Names begin with `towline_region_`, have base units (bytes, seconds) and end in
//! `_total` where they only grow.
//!
//! Not here: how they are asked for (the daemon). Invariant: what is not known is left out, and
//! never a zero.

use std::fmt::Write as _;

use crate::status::{GroupStatus, OtherRegionStatus};

/// MIME type of the text.
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric is for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            Counter => "counter",
            Gauge => "gauge",
        }
    }
}

/// A value as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MetricValue {
    Whole(u64),
    /// Microseconds, written as seconds.
    Microseconds(u64),
}

/// One metric of the status of an instance.
struct RegionMetric {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    /// `None`: it is not known here.
    value: fn(&GroupStatus, &OtherRegionStatus) -> Option<MetricValue>,
}

use MetricKind::{Counter, Gauge};
use MetricValue::{Microseconds, Whole};

/// Whether its group is the live one. It ships its log also while it is fenced.
fn is_live(group: &GroupStatus) -> bool {
    matches!(group.group_role.as_str(), "live" | "fenced")
}

/// Whether the instance is the one of its group that has the link, or receives over it.
fn knows(group: &GroupStatus, other: &OtherRegionStatus) -> bool {
    other.is_known && (is_live(group) || other.connected)
}

/// The same, of the live group: only that knows what is at risk beyond bytes.
fn judges(group: &GroupStatus, other: &OtherRegionStatus) -> bool {
    is_live(group) && other.is_known
}

/// Whether it can be said that the objectives are met, or that they are missed.
fn is_judged(other: &OtherRegionStatus) -> bool {
    (other.rpo_bytes > 0 || other.rpo_s > 0) && (other.is_known || other.misses_rpo)
}

/// Whether replies wait for the other group, when it is as it should be.
fn awaits(other: &OtherRegionStatus) -> bool {
    !matches!(other.sync.consistency.as_str(), "" | "off")
}

fn yes(is: bool) -> Option<MetricValue> {
    Some(Whole(u64::from(is)))
}

const METRICS: &[RegionMetric] = &[
    RegionMetric {
        name: "connected",
        kind: Gauge,
        help: "Whether a link stands on which the log is sent, or received.",
        value: |_, other| yes(other.connected),
    },
    RegionMetric {
        name: "in_sync",
        kind: Gauge,
        help: "Whether the recovery group has all that is committed.",
        value: |group, other| knows(group, other).then_some(Whole(u64::from(other.in_sync))),
    },
    RegionMetric {
        name: "backlog_bytes",
        kind: Gauge,
        help: "Recovery point actual: bytes of log that the recovery group lacks.",
        value: |group, other| knows(group, other).then_some(Whole(other.backlog_bytes)),
    },
    RegionMetric {
        name: "backlog_put_messages",
        kind: Gauge,
        help: "Puts of persistent messages that the recovery group lacks: at most so many would be \
               lost; one that was removed in the backlog too counts here and among the removals.",
        value: |group, other| judges(group, other).then_some(Whole(other.backlog_puts)),
    },
    RegionMetric {
        name: "backlog_removed_messages",
        kind: Gauge,
        help: "Removals of persistent messages that the recovery group lacks: at most so many would \
               come again.",
        value: |group, other| judges(group, other).then_some(Whole(other.backlog_removals)),
    },
    RegionMetric {
        name: "backlog_age_seconds",
        kind: Gauge,
        help: "Age of the oldest commit that the recovery group lacks. On the live side, before that \
               has reported to this instance: the time since it became active; in recovery: as live \
               said it.",
        value: |group, other| {
            let is_unknown = is_live(group) && other.backlog_age_us > 0;
            (is_unknown || knows(group, other)).then_some(Microseconds(other.backlog_age_us))
        },
    },
    RegionMetric {
        name: "live_unheard_seconds",
        kind: Gauge,
        help: "For how long the live group has not said how far it is, in a recovery group that does \
               not know it: what live commits meanwhile is not known.",
        value: |group, other| {
            let is_unheard = group.group_role == "recovery" && !other.is_known;
            is_unheard.then_some(Microseconds(other.unheard_ms.saturating_mul(1_000)))
        },
    },
    RegionMetric {
        name: "rpo_bytes",
        kind: Gauge,
        help: "Recovery point objective in bytes of log; absent: none.",
        value: |_, other| Some(Whole(other.rpo_bytes)).filter(|_| other.rpo_bytes > 0),
    },
    RegionMetric {
        name: "rpo_seconds",
        kind: Gauge,
        help: "Recovery point objective as age of the oldest commit; absent: none.",
        value: |_, other| Some(Whole(other.rpo_s)).filter(|_| other.rpo_s > 0),
    },
    RegionMetric {
        name: "rto_seconds",
        kind: Gauge,
        help: "Recovery time objective; absent: none.",
        value: |_, other| Some(Whole(other.rto_s)).filter(|_| other.rto_s > 0),
    },
    RegionMetric {
        name: "rpo_missed",
        kind: Gauge,
        help: "Whether more is at risk than the objectives allow (TWL4406W), or what is has not been \
               known for longer than they allow (TWL4410W); absent: no objective, or not known yet.",
        value: |_, other| is_judged(other).then_some(Whole(u64::from(other.misses_rpo))),
    },
    RegionMetric {
        name: "sync_in_step",
        kind: Gauge,
        help: "Whether the recovery group has all that was acknowledged, and replies wait for it; \
               absent: sync_replication is off.",
        value: |_, other| awaits(other).then_some(Whole(u64::from(other.sync.state == "in step"))),
    },
    RegionMetric {
        name: "sync_alone",
        kind: Gauge,
        help: "Whether replies do not wait for the recovery group (TWL4423W, TWL4424W): a fail-over \
               would lose what is acknowledged.",
        value: |_, other| awaits(other).then_some(Whole(u64::from(other.sync.state == "alone"))),
    },
    RegionMetric {
        name: "sync_withheld_seconds",
        kind: Gauge,
        help: "For how long clients have not been answered, because the recovery group is away or \
               behind (TWL4422W); 0: they are.",
        value: |_, other| {
            let is_withheld = other.sync.state == "waiting";
            let ms = if is_withheld { other.sync.state_ms } else { 0 };
            awaits(other).then_some(Microseconds(ms.saturating_mul(1_000)))
        },
    },
    RegionMetric {
        name: "sync_waiting_replies",
        kind: Gauge,
        help: "Replies to clients that wait for the recovery group now.",
        value: |_, other| awaits(other).then_some(Whole(other.sync.replies.waiting)),
    },
    RegionMetric {
        name: "log_sent_bytes_total",
        kind: Counter,
        help: "Bytes of log sent since this instance became active, before compression.",
        value: |group, other| Some(Whole(other.log_bytes_sent)).filter(|_| is_live(group)),
    },
    RegionMetric {
        name: "link_sent_bytes_total",
        kind: Counter,
        help: "Bytes that went over the link from here since the process started, compressed.",
        value: |_, other| Some(Whole(other.wire_bytes_sent)),
    },
    RegionMetric {
        name: "log_received_bytes_total",
        kind: Counter,
        help: "Bytes of log that the recovery group received, as it reports, before compression.",
        value: |group, other| knows(group, other).then_some(Whole(other.log_bytes_received)),
    },
    RegionMetric {
        name: "link_received_bytes_total",
        kind: Counter,
        help: "The same as they came over the link.",
        value: |group, other| knows(group, other).then_some(Whole(other.wire_bytes_received)),
    },
    RegionMetric {
        name: "round_trip_seconds",
        kind: Gauge,
        help: "Round trip of the link; absent: not known.",
        value: |_, other| {
            Some(Microseconds(other.round_trip_us)).filter(|_| other.round_trip_us > 0)
        },
    },
    RegionMetric {
        name: "rebases_total",
        kind: Counter,
        help: "Copies of the log that the recovery group has begun.",
        value: |group, other| knows(group, other).then_some(Whole(other.rebases)),
    },
    RegionMetric {
        name: "rebase_done_bytes",
        kind: Gauge,
        help: "Bytes of the copy on its way that are on the disk of the one that gets it.",
        value: |_, other| Some(Whole(other.rebase_bytes_done)).filter(|_| other.rebase_bytes > 0),
    },
    RegionMetric {
        name: "rebase_bytes",
        kind: Gauge,
        help: "Bytes of the copy on its way; absent: none is.",
        value: |_, other| Some(Whole(other.rebase_bytes)).filter(|_| other.rebase_bytes > 0),
    },
    RegionMetric {
        name: "role_changes_total",
        kind: Counter,
        help: "Changes of roles in the log of this instance, from the first history on.",
        value: |_, other| Some(Whole(other.role_changes)),
    },
    RegionMetric {
        name: "redirects_total",
        kind: Counter,
        help: "Clients that this instance sent to the live group since the process started.",
        value: |_, other| Some(Whole(other.redirects)),
    },
    RegionMetric {
        name: "turned_away_total",
        kind: Counter,
        help: "Clients that this instance of a recovery group closed with a reason, without an \
               address, since the process started.",
        value: |_, other| Some(Whole(other.turned_away)),
    },
];

/// Roles of a group, in the order in which they are exported.
const ROLES: [&str; 4] = ["live", "recovery", "pending_live", "fenced"];

/// The metrics of an instance as text, each line ended; empty: it has no other region.
#[must_use]
pub fn region_metrics(queue_manager: &str, group: &GroupStatus) -> String {
    let Some(other) = &group.other_region else { return String::new() };
    let labels = [
        ("qmgr", queue_manager),
        ("group", &group.group_name),
        ("instance", &group.instance),
        ("other_group", &other.group_name),
    ];
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels = labels.join(",");
    let mut text = String::new();
    head(&mut text, "role", Gauge, ROLE_HELP);
    for role in ROLES {
        let is = u64::from(group.group_role == role);
        line(&mut text, &format!("towline_region_role{{{labels},role=\"{role}\"}} {is}"));
    }
    for metric in METRICS {
        let Some(value) = (metric.value)(group, other) else { continue };
        head(&mut text, metric.name, metric.kind, metric.help);
        let value = match value {
            Whole(value) => value.to_string(),
            Microseconds(us) => format!("{}.{:06}", us / 1_000_000, us % 1_000_000),
        };
        line(&mut text, &format!("towline_region_{}{{{labels}}} {value}", metric.name));
    }
    text
}

const ROLE_HELP: &str = "1 for the role that the group of this instance has, else 0. A group that is \
                         fenced is live, and serves no client.";

/// The reference of all metrics, Markdown.
#[must_use]
pub fn metrics_reference() -> String {
    let mut text = String::from("| Metric | Kind | Meaning |\n| --- | --- | --- |\n");
    let role = ("role", Gauge, ROLE_HELP);
    let all = METRICS.iter().map(|metric| (metric.name, metric.kind, metric.help));
    for (name, kind, help) in std::iter::once(role).chain(all) {
        line(&mut text, &format!("| towline_region_{name} | {} | {help} |", kind.name()));
    }
    text
}

fn head(text: &mut String, name: &str, kind: MetricKind, help: &str) {
    line(text, &format!("# HELP towline_region_{name} {help}"));
    line(text, &format!("# TYPE towline_region_{name} {}", kind.name()));
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(text, "{line}").ok();
}

/// A label's value, as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{RegionSyncStatus, ReplyWaitsStatus};

    /// Each field has a value of its own, so that no two can be mixed up.
    fn live() -> GroupStatus {
        let other = OtherRegionStatus {
            group_name: "EAST".into(),
            connected: true,
            is_known: true,
            in_sync: false,
            backlog_bytes: 101,
            backlog_puts: 102,
            backlog_removals: 103,
            backlog_age_us: 1_000_104,
            rpo_bytes: 105,
            rpo_s: 106,
            rto_s: 107,
            misses_rpo: true,
            log_bytes_sent: 108,
            wire_bytes_sent: 109,
            log_bytes_received: 110,
            wire_bytes_received: 111,
            round_trip_us: 40_112,
            rebases: 113,
            rebase_bytes_done: 114,
            rebase_bytes: 115,
            role_changes: 116,
            redirects: 117,
            turned_away: 118,
            sync: RegionSyncStatus {
                consistency: "strict".into(),
                state: "waiting".into(),
                state_ms: 4_119,
                replies: ReplyWaitsStatus { waiting: 120, ..ReplyWaitsStatus::default() },
                ..RegionSyncStatus::default()
            },
            ..OtherRegionStatus::default()
        };
        GroupStatus {
            group_name: "WEST".into(),
            group_role: "live".into(),
            instance: "a".into(),
            other_region: Some(other),
            ..GroupStatus::default()
        }
    }

    fn value(text: &str, name: &str) -> Option<String> {
        let start = format!("towline_region_{name}{{");
        let line = text.lines().find(|line| line.starts_with(&start))?;
        line.rsplit_once(' ').map(|(_, value)| value.to_owned())
    }

    #[test]
    fn each_metric_is_exported_with_the_value_of_the_status() {
        let text = region_metrics("QM1", &live());
        let wanted = [
            ("connected", "1"),
            ("in_sync", "0"),
            ("backlog_bytes", "101"),
            ("backlog_put_messages", "102"),
            ("backlog_removed_messages", "103"),
            ("backlog_age_seconds", "1.000104"),
            ("rpo_bytes", "105"),
            ("rpo_seconds", "106"),
            ("rto_seconds", "107"),
            ("rpo_missed", "1"),
            ("sync_in_step", "0"),
            ("sync_alone", "0"),
            ("sync_withheld_seconds", "4.119000"),
            ("sync_waiting_replies", "120"),
            ("log_sent_bytes_total", "108"),
            ("link_sent_bytes_total", "109"),
            ("log_received_bytes_total", "110"),
            ("link_received_bytes_total", "111"),
            ("round_trip_seconds", "0.040112"),
            ("rebases_total", "113"),
            ("rebase_done_bytes", "114"),
            ("rebase_bytes", "115"),
            ("role_changes_total", "116"),
            ("redirects_total", "117"),
            ("turned_away_total", "118"),
        ];
        // One is of a recovery group that is not connected.
        assert_eq!(wanted.len() + 1, METRICS.len(), "each of them is looked at");
        for (name, wanted) in wanted {
            assert_eq!(value(&text, name).as_deref(), Some(wanted), "{name}");
        }
        let labels = "qmgr=\"QM1\",group=\"WEST\",instance=\"a\",other_group=\"EAST\"";
        assert!(text.contains(&format!("towline_region_role{{{labels},role=\"live\"}} 1\n")));
        assert!(text.contains(&format!("towline_region_role{{{labels},role=\"recovery\"}} 0\n")));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut group = live();
        group.other_region = Some(OtherRegionStatus::default());
        let text = region_metrics("QM1", &group);
        for name in ["backlog_bytes", "rpo_missed", "rpo_bytes", "round_trip_seconds", "in_sync"] {
            assert_eq!(value(&text, name), None, "{name}");
        }
        assert_eq!(value(&text, "connected").as_deref(), Some("0"));
        group.other_region = None;
        assert_eq!(region_metrics("QM1", &group), "");
        // A recovery instance knows bytes, and no messages.
        let mut recovery = live();
        recovery.group_role = "recovery".into();
        let text = region_metrics("QM1", &recovery);
        assert!(value(&text, "backlog_bytes").is_some());
        assert_eq!(value(&text, "backlog_put_messages"), None);
    }

    #[test]
    fn an_alarm_stays_while_it_is_not_known_whether_the_objective_is_met() {
        let mut group = live();
        let other = group.other_region.as_mut().unwrap();
        (other.is_known, other.connected) = (false, false);
        let text = region_metrics("QM1", &group);
        assert_eq!(value(&text, "rpo_missed").as_deref(), Some("1"));
        assert_eq!(value(&text, "backlog_age_seconds").as_deref(), Some("1.000104"));
        assert_eq!(value(&text, "backlog_bytes"), None);
        assert_eq!(value(&text, "live_unheard_seconds"), None);
        group.other_region.as_mut().unwrap().misses_rpo = false;
        assert_eq!(value(&region_metrics("QM1", &group), "rpo_missed"), None, "not a zero");
    }

    #[test]
    fn a_recovery_group_that_hears_nothing_says_so_and_no_zero() {
        let mut group = live();
        group.group_role = "recovery".into();
        let other = group.other_region.as_mut().unwrap();
        (other.is_known, other.connected, other.unheard_ms) = (false, false, 8_900);
        let text = region_metrics("QM1", &group);
        assert_eq!(value(&text, "live_unheard_seconds").as_deref(), Some("8.900000"));
        assert_eq!(value(&text, "rpo_missed").as_deref(), Some("1"));
        for name in ["backlog_bytes", "backlog_age_seconds", "in_sync"] {
            assert_eq!(value(&text, name), None, "{name}");
        }
    }

    #[test]
    fn a_fenced_group_has_a_role() {
        let mut group = live();
        group.group_role = "fenced".into();
        let text = region_metrics("QM1", &group);
        let of = |role: &str| {
            let line = text.lines().find(|line| line.contains(&format!("role=\"{role}\"")));
            line.and_then(|line| line.chars().last())
        };
        assert_eq!(["live", "fenced"].map(of), [Some('0'), Some('1')]);
        assert_eq!(value(&text, "backlog_bytes").as_deref(), Some("101"), "it ships all the same");
    }

    #[test]
    fn names_follow_one_scheme_and_no_label_ends_early() {
        for RegionMetric { name, kind, .. } in METRICS {
            assert_eq!(*kind == Counter, name.ends_with("_total"), "{name}");
            assert!(name.chars().all(|it| it.is_ascii_lowercase() || it == '_'), "{name}");
        }
        let mut group = live();
        group.group_name = "a\"} 1\n".into();
        let text = region_metrics("QM1", &group);
        assert!(text.contains("group=\"a\\\"} 1\\n\""), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("towline_")));
    }
}
