//! The groups of two regions as text, at most 80 columns wide: a row for each group, then the link
//! and what is at risk.
//!
//! Not here: what the words mean (`region`).

use towline_types::{CivilTime, Time};

use super::{
    GroupStatus, OtherRegionState, OtherRegionStatus, RegionIntervalStatus, RegionSyncStatus,
};
use crate::text::{count, cut, line, printable, row};

/// Characters of a line's text behind its name.
const TEXT: usize = 58;
/// Lines of a text that is longer than one.
const LINES: usize = 8;
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
    if let Some(fence) = &group.fence {
        rows(&mut text, "Fenced", &fence.why);
        to_do(&mut text, &fence.what_to_do);
    }
    if !other.heard_from.is_empty() {
        let (from, seconds) = (printable(&other.heard_from), other.heard_age_ms / 1_000);
        row(&mut text, "As heard", &cut(&format!("from instance {from} {seconds} s ago"), TEXT));
    }
    link(&mut text, other);
    if receives {
        received(&mut text, other);
    } else {
        at_risk(&mut text, other);
    }
    rebase(&mut text, other);
    if !other.reason.is_empty() && group.fence.is_none() {
        rows(&mut text, "Reason", &other.reason);
    }
    for difference in &other.differences {
        rows(&mut text, "Differs", difference);
    }
    if let Some(interval) = &other.interval {
        interval_rows(&mut text, interval);
    }
    role_changes(&mut text, group);
    Some(text)
}

/// The last interval: the rows that IBM MQ's sample shows, in its words and order, with a rate
/// where something was counted.
fn interval_rows(text: &mut String, interval: &RegionIntervalStatus) {
    let us = interval.interval_us.max(1);
    let length = format!("{}.{:03} s", us / 1_000_000, us % 1_000_000 / 1_000);
    line(text, "");
    let ago = count(interval.ended_ms_ago / 1_000, 7);
    line(text, &format!("RECOVERY, interval of {length}, ended {ago} s ago"));
    let each_second = |bytes: u64| {
        let rate = u128::from(bytes) * 1_000_000 / u128::from(us);
        format!("{bytes:>20} {:>15}/s", u64::try_from(rate).unwrap_or(u64::MAX))
    };
    let plain = |value: u64| format!("{value:>20}");
    let trip = interval.round_trip_average_us;
    let rows = [
        ("Log bytes sent", each_second(interval.log_bytes_sent)),
        ("Backlog bytes", plain(interval.backlog_bytes)),
        ("Backlog average bytes", plain(interval.backlog_average_bytes)),
        (
            "Average network round trip time",
            trip.map_or("                   ?".into(), |us| plain(us) + " us"),
        ),
        ("Compressed log bytes sent", each_second(interval.compressed_log_bytes_sent)),
        ("Log data average compression time", plain(interval.compression_average_us) + " us"),
        ("Log bytes decompressed", each_second(interval.log_bytes_decompressed)),
        ("Log data average decompression time", plain(interval.decompression_average_us) + " us"),
        ("Rebase count", plain(interval.rebase_count)),
        ("Recovery LSN", format!("{} {}", interval.recovery_lsn, interval.recovery_lsn_hex)),
    ];
    for (name, value) in rows {
        line(text, &format!("{name:<36} {}", cut(&printable(&value), 43)));
    }
}

/// The newest changes of roles, as the log of this instance has them.
fn role_changes(text: &mut String, group: &GroupStatus) {
    if group.role_changes.is_empty() {
        return;
    }
    line(text, "");
    line(text, "ROLE CHANGE          WHAT          FROM          TO            ORDERED BY");
    for change in &group.role_changes {
        let at = CivilTime::of(Time(change.began_at.saturating_mul(1_000))).to_string();
        // To the second.
        let at = at.get(..19).unwrap_or(&at).replace('T', " ");
        let or = |text: &str, other: &str| match text {
            "" => other.to_owned(),
            text => printable(text),
        };
        let what = or(&change.kind, "?").replace('_', " ");
        let [from, to] = [or(&change.from, "?"), or(&change.live, "?")].map(|it| cut(&it, 13));
        let by = match change.by.as_str() {
            // What this program did not write is shown as it stands there.
            "" => printable(&change.cause),
            by => format!("{} at {}", printable(by), printable(&change.instance)),
        };
        let row = format!("{at}  {what:<12}  {from:<13} {to:<13} {}", cut(&by, 16));
        line(text, row.trim_end());
    }
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
    if other.is_known {
        let age = milliseconds(other.backlog_age_us);
        let bytes = count(other.backlog_bytes, 11);
        row(text, "At risk", &format!("{bytes} bytes, the oldest committed {age} ago"));
        // A message that was put and removed in the backlog is among both.
        let [lost, again] = [other.backlog_puts, other.backlog_removals].map(|it| count(it, 11));
        row(text, "", &format!("{lost} puts of messages, {again} removals"));
    } else {
        row(text, "At risk", "not known before the other group has reported");
    }
    objective(text, other);
    sync(text, other);
    if other.log_let_go {
        row(text, "Log", "what it lacks is kept no longer: it gets a copy");
    }
    if other.is_known {
        row(text, "RCOVLSN", &cut(&printable(&other.recovery_lsn), TEXT));
    }
    let sent = format!(
        "{} bytes of log, {} bytes over the link",
        count(other.log_bytes_sent, 11),
        count(other.wire_bytes_sent, 11)
    );
    row(text, "Sent", &sent);
}

/// The recovery point objective, if there is one.
fn objective(text: &mut String, other: &OtherRegionStatus) {
    let objectives = [(other.rpo_bytes, "bytes"), (other.rpo_s, "s")];
    let objectives = objectives.iter().filter(|(value, _)| *value > 0);
    let objectives: Vec<String> =
        objectives.map(|(value, unit)| format!("{value} {unit}")).collect();
    if objectives.is_empty() {
        return;
    }
    let met = match (other.misses_rpo, other.is_known) {
        (true, true) => "MISSED",
        (true, false) => "MISSED, as nothing shows that it is met",
        (false, true) => "met",
        (false, false) => "not known yet",
    };
    rows(text, "Objective", &format!("{}: {met}", objectives.join(", ")));
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
    if state == "waiting" && consistency == "strict" {
        to_do(text, REPLIES_TO_DO);
    }
}

/// What there is to do for clients of a strict group that are not answered.
const REPLIES_TO_DO: &str = "puts and commits are not answered; see Link. If the other group does \
                             not come back: 'towline region alone' at the active instance";

fn received(text: &mut String, other: &OtherRegionStatus) {
    if !other.is_known {
        let seconds = other.unheard_ms / 1_000;
        let unheard =
            format!("not known: live's log was not heard of for {} s", count(seconds, 11));
        row(text, "Behind", &unheard);
    } else {
        let age = milliseconds(other.backlog_age_us);
        let bytes = count(other.backlog_bytes, 11);
        rows(text, "Behind", &format!("{bytes} bytes, the oldest {age} old, as live said"));
    }
    objective(text, other);
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

/// A text over as many lines as it needs, up to [`LINES`]: its end says what to do.
fn rows(text: &mut String, name: &str, words: &str) {
    let mut lines = wrapped(&printable(words), TEXT);
    if lines.len() > LINES {
        lines.truncate(LINES - 1);
        lines.push("…".to_owned());
    }
    for (at, line) in lines.iter().enumerate() {
        row(text, if at == 0 { name } else { "" }, line);
    }
}

/// What there is to do about the row above.
fn to_do(text: &mut String, words: &str) {
    for (at, line) in wrapped(&printable(words), TEXT - 3).iter().enumerate() {
        row(text, "", &format!("{} {line}", if at == 0 { "->" } else { "  " }));
    }
}

/// A text in lines of at most so many characters. A word that is longer is cut into lines.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        let fits = |line: &String| line.chars().count() + 1 + letters.len() <= most;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.extend(letters.chunks(most).map(|part| part.iter().collect::<String>())),
        }
    }
    lines
}

fn milliseconds(us: u64) -> String {
    format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{RegionFenceStatus, ReplyWaitsStatus};

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

    /// On one line.
    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
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
    fn changes_of_roles_are_shown_with_what_was_ordered_by_whom_and_from_where_to_where() {
        use crate::status::RoleChangeRow;

        let mut group = live();
        assert!(!regions_table(&group).unwrap().contains("ROLE CHANGE"));
        let known = RoleChangeRow {
            from: "EAST".into(),
            live: "WEST".into(),
            kind: "drill_return".into(),
            by: "root".into(),
            instance: "a".into(),
            began_at: 1_795_792_800_999,
            ..RoleChangeRow::default()
        };
        let other =
            RoleChangeRow { live: "W".repeat(48), cause: "\u{1b}[2Jx".into(), ..known.clone() };
        let other =
            RoleChangeRow { kind: String::new(), by: String::new(), from: String::new(), ..other };
        group.role_changes = vec![known, other];
        let text = regions_table(&group).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let row = "2026-11-27 15:20:00  drill return  EAST          WEST          root at a";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("  ?             ?             WWWWWW…WWWWWW")
                && !text.contains('\u{1b}')
        );
    }

    #[test]
    fn the_last_interval_has_the_rows_of_ibm_mq_in_its_order_after_its_real_length() {
        let mut group = live();
        group.other_region.as_mut().unwrap().interval = Some(RegionIntervalStatus {
            interval_us: 10_000_400,
            log_bytes_sent: 620_335_104,
            backlog_bytes: 462_823_424,
            backlog_average_bytes: 211_347_208,
            round_trip_average_us: Some(40_000),
            compressed_log_bytes_sent: 15_062_664,
            recovery_lsn: "<0:1157:41026:59250>".into(),
            recovery_lsn_hex: "0x00000485a042e772".into(),
            ..RegionIntervalStatus::default()
        });
        let text = regions_table(&group).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("RECOVERY, interval of 10.000 s"), "{text}");
        let names = [
            "\nLog bytes sent                                  620335104        62031029/s",
            "\nBacklog bytes ",
            "\nBacklog average bytes ",
            "\nAverage network round trip time ",
            "\nCompressed log bytes sent ",
            "\nLog data average compression time ",
            "\nLog bytes decompressed ",
            "\nLog data average decompression time ",
            "\nRebase count ",
            "\nRecovery LSN                         <0:1157:41026:59250> 0x00000485a042e772\n",
        ];
        let places: Vec<_> = names.iter().map(|name| text.find(name)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {text}");
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
        assert!(text.contains("Objective           1000000 bytes: MISSED, as nothing"), "{text}");
        let other = group.other_region.as_mut().unwrap();
        other.misses_rpo = false;
        assert!(regions_table(&group).unwrap().contains("1000000 bytes: not known yet"));
    }

    #[test]
    fn replies_that_wait_are_shown_with_what_to_do_also_while_nothing_was_reported() {
        let mut group = live();
        let other = group.other_region.as_mut().unwrap();
        (other.is_known, other.connected) = (false, false);
        other.sync = RegionSyncStatus {
            consistency: "strict".into(),
            state: "waiting".into(),
            state_ms: 4_100,
            ..RegionSyncStatus::default()
        };
        let text = regions_table(&group).unwrap();
        assert!(text.contains("strict, waiting for 4 s; NOT ALL acknowledged is there"), "{text}");
        assert!(flat(&text).contains("'towline region alone' at the active"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let sync = &mut group.other_region.as_mut().unwrap().sync;
        sync.consistency = "eventual".into();
        assert!(!regions_table(&group).unwrap().contains("region alone"), "it goes on by itself");
    }

    #[test]
    fn what_recovery_cannot_know_is_not_shown_as_nothing() {
        let mut group = live();
        group.group_role = "recovery".into();
        let other = group.other_region.as_mut().unwrap();
        (other.is_known, other.connected, other.unheard_ms) = (false, false, 8_900);
        let text = regions_table(&group).unwrap();
        assert!(text.contains("WEST                 recovery  no       ?             ?"), "{text}");
        assert!(text.contains("not known: live's log was not heard of for 8 s"), "{text}");
        assert!(text.contains("MISSED, as nothing shows that it is met"), "{text}");
    }

    #[test]
    fn what_there_is_to_do_is_at_the_end_of_a_text_and_not_cut_off() {
        let mut group = live();
        let other = group.other_region.as_mut().unwrap();
        other.reason = format!("{} decide which one is kept", "the logs are not one; ".repeat(7));
        other.differences = vec![format!("{} make them equal", "x".repeat(130))];
        let text = regions_table(&group).unwrap();
        let words = flat(&text);
        assert!(words.contains("which one is kept") && words.contains("make them equal"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        group.other_region.as_mut().unwrap().reason = "word ".repeat(5_000);
        assert!(regions_table(&group).unwrap().lines().count() < 40, "and it has an end");
    }

    #[test]
    fn a_fenced_group_shows_why_and_what_to_do_and_who_told_it_of_the_other_one() {
        let mut group = live();
        let why = "this group serves no client: an operator fenced it";
        let what_to_do = "'towline region unfence' takes it back; 'towline region failover' at the \
                          other group has that one serve";
        let fence = RegionFenceStatus {
            why: why.into(),
            what_to_do: what_to_do.into(),
            ..RegionFenceStatus::default()
        };
        (group.group_role, group.fence) = ("fenced".into(), Some(fence));
        let other = group.other_region.as_mut().unwrap();
        (other.heard_from, other.heard_age_ms) = ("b".into(), 900);
        let text = regions_table(&group).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [why, "-> 'towline region unfence' takes it back;", "from instance b 0 s ago"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(text.contains("WEST                 fenced    yes"), "{text}");
    }
}
