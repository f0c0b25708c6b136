//! The group as text, at most 80 columns wide: what this instance is, then a row for each instance.
//!
//! Not here: what the words mean (`group`). Columns are as wide as what stands in them; when that
//! is too much, names and positions are cut in the middle, numbers and states never.

use super::{GroupRole, GroupStatus, InstanceStatus, OtherRegionStatus};
use crate::text::{count, cut, line, printable, row};

/// Columns of a terminal.
const WIDTH: usize = 80;
/// A name, or a position in the log, is not cut below this.
const CUT_MIN: usize = 8;
/// Characters of a name in a line of its own.
const NAME: usize = 20;
/// Names of columns, as MQ has them; the backlog is in kilobytes.
const HEAD: [&str; 8] =
    ["INSTANCE", "ROLE", "INSYNC", "CONN", "BACKLOG", "ACKLSN", "STATUS", "SYNCTIME"];
/// The column of names.
const INSTANCE: usize = 0;
/// The one that stands on the right.
const BACKLOG: usize = 4;
/// The column of positions.
const ACKLSN: usize = 5;

/// The group for a terminal, each line ended, as an instance of it reported at `now` (milliseconds
/// since the Unix epoch); the process of that instance, where it is to be shown.
#[must_use]
pub fn group_table(group: &GroupStatus, process: Option<u32>, now: u64) -> String {
    let mut text = String::new();
    if let Some(process) = process {
        row(&mut text, "State", &format!("running, process {process}"));
    }
    rows(&mut text, group);
    table(&mut text, group, now);
    text
}

/// What this instance is, and the group as a whole.
pub(super) fn rows(text: &mut String, group: &GroupStatus) {
    let name = |name: &str| cut(&printable(name), NAME);
    let sync = if group.in_sync { "in sync" } else { "not in sync" };
    row(text, "Instance", &format!("{}, {}, {sync}", name(&group.instance), group.role.as_str()));
    let role = match group.group_role.as_str() {
        "" | "live" => String::new(),
        other => format!(", {}", cut(&printable(other), 10)),
    };
    row(text, "Group", &format!("{}{role}, term {}", name(&group.group_name), group.term));
    let served = if group.serving { "clients are served" } else { "clients are NOT served" };
    let active = match group.active.as_str() {
        "" => "none".to_owned(),
        active => name(active),
    };
    row(text, "Active", &format!("{active}, {served}"));
    if group.sync_overdue_ms > 0 {
        let file = cut(&printable(&group.sync_overdue_file), 30);
        row(text, "Disk", &format!("sync overdue since {} ms: {file}", group.sync_overdue_ms));
    }
    if (group.repaired_batches, group.unrepaired_batches) != (0, 0) {
        let [done, left] = [group.repaired_batches, group.unrepaired_batches];
        let what = format!("{done} batches from other instances, {left} times none had it");
        row(text, "Repaired", &what);
    }
    if !group.floating_address.is_empty() {
        row(text, "Floating address", &floating(group));
    }
    if !group.format_level_waits_for.is_empty() {
        let names = group.format_level_waits_for.iter().map(|name| cut(&printable(name), NAME));
        let names: Vec<String> = names.collect();
        let level = group.format_level;
        let waits = format!("{level}, until {} can read a later one", names.join(", "));
        row(text, "Format level", &cut(&waits, 58));
    }
    if let Some(other) = &group.other_region {
        row(text, "Other region", &cut(&region(other), 58));
    }
    row(text, "QUORUM", &group.quorum());
    row(text, "GRPLSN", &cut(&printable(&group.group_lsn), 58));
}

/// The group of the other region in one line; `towline status --groups` has more.
fn region(other: &OtherRegionStatus) -> String {
    let name = cut(&printable(&other.group_name), NAME);
    let role = cut(&printable(&other.group_role), 10);
    let behind = match (other.is_known, other.in_sync) {
        (false, _) => "not known how far",
        (true, true) => "all is there",
        (true, false) => "behind",
    };
    let kilobytes = count(other.backlog_bytes.div_ceil(1024), 9);
    let backlog = if behind == "behind" { format!(" {kilobytes} KB") } else { String::new() };
    format!("{name}, {role}, {}: {behind}{backlog}", other.status.as_str())
}

/// The floating address, and which instances cannot hold it.
fn floating(group: &GroupStatus) -> String {
    let address = printable(&group.floating_address);
    let refused = group.instances.iter().filter(|instance| instance.address_refused);
    let names: Vec<String> = refused.map(|row| cut(&printable(&row.instance), NAME)).collect();
    match names.is_empty() {
        true => cut(&address, 58),
        false => cut(&format!("{address}, TWL4304E at {}", names.join(", ")), 58),
    }
}

/// A row for each instance.
pub(super) fn table(text: &mut String, group: &GroupStatus, now: u64) {
    let cells: Vec<[String; 8]> =
        group.instances.iter().map(|instance| cells(instance, now)).collect();
    let mut widths = HEAD.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for column in [INSTANCE, ACKLSN] {
        let all: usize = widths.iter().sum::<usize>() + widths.len() - 1;
        if let Some(width) = widths.get_mut(column) {
            *width = width.saturating_sub(all.saturating_sub(WIDTH)).max(CUT_MIN.min(*width));
        }
    }
    line(text, "");
    line(text, &one(&HEAD.map(str::to_owned), &widths));
    for row in &cells {
        line(text, &one(row, &widths));
    }
    let troubled = group.instances.iter().filter(|instance| !instance.reason.is_empty());
    for (at, instance) in troubled.enumerate() {
        if at == 0 {
            line(text, "");
        }
        let name = cut(&printable(&instance.instance), NAME);
        wrapped(text, &format!("{name}: {}", printable(&instance.reason)));
    }
}

/// Lines of a sentence that may be long, broken between words where that is possible.
fn wrapped(text: &mut String, sentence: &str) {
    let mut current = String::new();
    for word in sentence.split(' ') {
        if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > WIDTH {
            line(text, &current);
            // What follows stands under the reason, not under the name.
            current = " ".to_owned();
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(&cut(word, WIDTH - 2));
    }
    line(text, &current);
}

fn cells(instance: &InstanceStatus, now: u64) -> [String; 8] {
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    // The active is where the others are connected.
    let connected = instance.connected || instance.role == GroupRole::Active;
    let position = if instance.ack_lsn.is_empty() { "-" } else { &instance.ack_lsn };
    [
        printable(&instance.instance),
        instance.role.as_str().to_owned(),
        yes(instance.in_sync),
        yes(connected),
        count(instance.backlog_kb, 7),
        printable(position),
        instance.status.as_str().to_owned(),
        since(instance.sync_time, now),
    ]
}

fn one(cells: &[String; 8], widths: &[usize; 8]) -> String {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(column, (cell, &width))| {
            let cell = cut(cell, width);
            if column == BACKLOG { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        })
        .collect();
    padded.join(" ").trim_end().to_owned()
}

/// How long ago, in at most eight characters; both are milliseconds since the Unix epoch.
fn since(time: u64, now: u64) -> String {
    if time == 0 {
        return "never".to_owned();
    }
    let seconds = now.saturating_sub(time) / 1_000;
    match (seconds / 86_400, seconds / 3_600, seconds / 60) {
        (0, 0, 0) if seconds < 2 => "now".to_owned(),
        (0, 0, 0) => format!("{seconds}s ago"),
        (0, 0, minutes) => format!("{minutes}m ago"),
        (0, hours, _) => format!("{hours}h ago"),
        (days, _, _) => format!("{}d ago", count(days, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{InstanceState, Status, table};
    use super::*;

    const NOW: u64 = 1_795_309_200_000;

    fn instance(name: &str, role: GroupRole) -> InstanceStatus {
        InstanceStatus {
            instance: name.into(),
            role,
            connected: true,
            in_sync: true,
            ack_lsn: "<0:0:2:31232>".into(),
            status: InstanceState::Normal,
            sync_time: NOW - 300,
            ..InstanceStatus::default()
        }
    }

    fn group() -> GroupStatus {
        let lost = InstanceStatus {
            connected: false,
            in_sync: false,
            backlog_kb: 12_345_678,
            status: InstanceState::Disconnected,
            sync_time: NOW - 7_200_000,
            ..instance("c", GroupRole::Unknown)
        };
        GroupStatus {
            instance: "b".into(),
            role: GroupRole::Replica,
            in_sync: true,
            in_sync_count: 2,
            configured_count: 3,
            group_lsn: "<0:0:2:31232>".into(),
            catch_up_lsn: "<0:0:0:4096>".into(),
            group_name: "QM1".into(),
            group_role: "live".into(),
            active: "a".into(),
            term: 7,
            serving: true,
            sync_overdue_ms: 0,
            sync_overdue_file: String::new(),
            repaired_batches: 0,
            unrepaired_batches: 0,
            floating_address: String::new(),
            format_level: 2,
            format_level_waits_for: Vec::new(),
            other_region: None,
            fence: None,
            history: String::new(),
            role_changes: Vec::new(),
            instances: vec![
                InstanceStatus { connected: false, ..instance("a", GroupRole::Active) },
                instance("b", GroupRole::Replica),
                lost,
            ],
        }
    }

    #[test]
    fn a_replica_shows_itself_and_all_instances() {
        let expected = "\
Instance            b, replica, in sync
Group               QM1, term 7
Active              a, clients are served
QUORUM              2/3
GRPLSN              <0:0:2:31232>

INSTANCE ROLE    INSYNC CONN BACKLOG ACKLSN        STATUS       SYNCTIME
a        active  yes    yes        0 <0:0:2:31232> normal       now
b        replica yes    yes        0 <0:0:2:31232> normal       now
c        unknown no     no    12345k <0:0:2:31232> disconnected 2h ago
";
        assert_eq!(group_table(&group(), None, NOW), expected);
        let state = "State               running, process 4711\n";
        assert_eq!(group_table(&group(), Some(4711), NOW), format!("{state}{expected}"));
    }

    #[test]
    fn why_an_instance_is_not_connected_stands_below_the_table() {
        let mut group = group();
        let c = &mut group.instances[2];
        c.reason = "it refused: log.extent_bytes is '67108864' at 'b' and '8388608' at 'c'".into();
        let text = group_table(&group, None, NOW);
        let (_, below) = text.split_once("2h ago\n").unwrap();
        let expected = "
c: it refused: log.extent_bytes is '67108864' at 'b' and '8388608' at 'c'
";
        assert_eq!(below, expected);
    }

    #[test]
    fn the_instances_that_cannot_hold_the_floating_address_stand_beside_it() {
        let mut group = group();
        group.floating_address = "10.0.0.50/24".into();
        let text = group_table(&group, None, NOW);
        assert!(text.contains("\nFloating address    10.0.0.50/24\n"), "{text}");
        group.instances[1].address_refused = true;
        group.instances[2].address_refused = true;
        let text = group_table(&group, None, NOW);
        assert!(text.contains("\nFloating address    10.0.0.50/24, TWL4304E at b, c\n"), "{text}");
    }

    #[test]
    fn the_active_shows_the_group_within_its_status() {
        let text = table(&Status {
            name: "QM1".into(),
            group: Some(group()),
            started_at: NOW - 60_000,
            uptime_s: 60,
            ..Status::default()
        });
        assert!(text.contains("\nQUORUM              2/3\n"), "{text}");
        assert!(text.contains("\na        active  yes    yes  "), "{text}");
        assert!(text.contains(" disconnected 2h ago\n"), "{text}");
    }

    #[test]
    fn nothing_known_is_shown_as_such() {
        let group = GroupStatus {
            instance: "a".into(),
            configured_count: 3,
            instances: vec![InstanceStatus { instance: "a".into(), ..InstanceStatus::default() }],
            ..GroupStatus::default()
        };
        let text = group_table(&group, None, NOW);
        assert!(text.contains("Active              none, clients are NOT served\n"), "{text}");
        assert!(text.contains("QUORUM              0/3\n"), "{text}");
        assert!(text.contains("\na        unknown no     no         0 -      unknown never\n"));
    }

    #[test]
    fn the_group_fits_eighty_columns_whatever_is_in_it() {
        let mut group = group();
        group.instance = "i\u{1b}[2J".repeat(40);
        group.group_name = "g".repeat(300);
        group.group_role = "pending\nrecovery".repeat(9);
        group.active = "x".repeat(99);
        group.term = u64::MAX;
        group.group_lsn = "<65535:65535:65535:65535>".into();
        group.floating_address = "a".repeat(99);
        for row in &mut group.instances {
            row.address_refused = true;
            row.instance = "i\u{1b}[2J".repeat(40);
            row.ack_lsn = "<65535:65535:65535:65535>".into();
            row.backlog_kb = u64::MAX;
            row.status = InstanceState::Synchronizing;
            row.sync_time = 1;
            row.reason = format!("{} {}", "r\u{1b}[2J".repeat(40), "words of it ".repeat(40));
        }
        let text = group_table(&group, None, u64::MAX);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        }
        assert!(text.contains("synchronizing"), "{text}");
    }

    #[test]
    fn ages_are_short() {
        for (ms, shown) in [
            (0, "now"),
            (2_000, "2s ago"),
            (59_999, "59s ago"),
            (60_000, "1m ago"),
            (86_399_999, "23h ago"),
            (86_400_000, "1d ago"),
        ] {
            assert_eq!(since(NOW - ms, NOW), shown);
        }
        assert_eq!(since(0, NOW), "never");
        assert_eq!(since(NOW + 5_000, NOW), "now");
        assert!(since(1, u64::MAX).chars().count() <= 10);
    }

    #[test]
    fn a_disk_that_hangs_and_a_log_that_is_full_are_seen_at_once() {
        let mut hangs = group();
        hangs.sync_overdue_ms = 2_310;
        hangs.sync_overdue_file = "extent-0000000000000038".into();
        hangs.instances[0].status = InstanceState::SyncOverdue;
        hangs.instances[1].status = InstanceState::LogFull;
        let text = group_table(&hangs, None, NOW);
        assert!(text.contains("sync overdue since 2310 ms: extent-0000000000000038"), "{text}");
        assert!(text.contains(" sync overdue ") && text.contains(" log full "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn what_was_repaired_from_other_instances_is_shown_when_there_is_any() {
        let mut repaired = group();
        assert!(!group_table(&repaired, None, NOW).contains("Repaired"));
        (repaired.repaired_batches, repaired.unrepaired_batches) = (1_000_000, 2);
        let text = group_table(&repaired, None, NOW);
        assert!(text.contains("batches from other instances, 2 times none had it"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn an_instance_that_keeps_the_format_level_down_is_named() {
        let shown = |waits_for: &[&str]| {
            let names = waits_for.iter().map(|name| (*name).to_owned()).collect();
            let level = GroupStatus { format_level: 1, format_level_waits_for: names, ..group() };
            group_table(&level, None, NOW)
        };
        assert!(!shown(&[]).contains("Format level"));
        let text = shown(&["b", "c"]);
        assert!(
            text.contains("\nFormat level        1, until b, c can read a later one\n"),
            "{text}"
        );
    }
}
