//! The other region of an instance of a group: the link from the configuration, and the status.
//!
//! Not here: what goes over the link (`towline_replication::region_part`).

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::{GROUP_FOLLOWS_REGION, GROUP_STARTS_FENCED};
use towline_admin::status::{
    GroupStatus, OtherRegionState, OtherRegionStatus, RegionConditionStatus, RegionFenceStatus,
    RegionSyncStatus,
};
use towline_config::{Config, GroupConfig, RecoveryConfig};
use towline_group::Mode;
use towline_link::{self as link, RegionLinks, RegionSettings, RetryPhase};
use towline_logging::log as say;
use towline_replica::OpenReplica;
use towline_replica::region::ReplicaRegion;
use towline_replication::driver::Driver;
use towline_replication::fence::BY_ITSELF;
use towline_replication::region_condition::HeardCondition;
use towline_replication::region_part::{
    OtherRole, ReceivingView, RecoveryPoint, RegionPart, RegionTerms, RegionView, ShippingView,
    SyncPolicy, SyncState, UNKNOWN_S_MAX,
};
use towline_types::{HistoryId, Lsn, Time};

use super::listener_handover::InheritedSockets;
use crate::process;
use crate::refused::RunError;
use crate::reload::Reload;
use crate::run_args::RunArgs;

/// Takes part in the traffic with the other region, if one is configured.
///
/// # Errors
/// When the link's address or certificates cannot be used, or there is no thread.
pub(super) fn start(
    args: &RunArgs,
    (config, group): (&Config, &GroupConfig),
    opened: &Arc<OpenReplica>,
    sockets: &InheritedSockets,
    reload: &Reload,
) -> Result<Option<Arc<RegionPart>>, RunError> {
    let wrong = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    let (_, own) = group.own().map_err(wrong)?;
    let (Some(recovery), Some(address)) = (&group.recovery, &own.region_address) else {
        return Ok(None);
    };
    let listener = link::bind(address, |addresses| sockets.take(addresses))
        .and_then(|socket| sockets.keep(&socket).map(|()| socket))
        .map_err(|error| RunError::Listen { address: address.clone(), error })?;
    let host = ReplicaRegion::new(Arc::clone(opened), group.name.clone(), config.log.reserve_bytes);
    let terms = RegionTerms {
        queue_manager: args.name.clone(),
        config: config.clone(),
        group: group.clone(),
        recovery: recovery.clone(),
        extent_bytes: opened.extent_bytes,
    };
    let part = RegionPart::new(Arc::clone(&opened.driver), Arc::new(host), terms);
    let part = part.map_err(RunError::System)?;
    let settings = RegionSettings::of(&args.name, group, recovery, Some(listener));
    let links = RegionLinks::start(settings, Arc::clone(&part) as Arc<_>);
    let links = Arc::new(links.map_err(|error| RunError::Tls(error.to_string()))?);
    reload.of_region(&links);
    part.start(links).map_err(RunError::System)?;
    Ok(Some(part))
}

/// Prints that this instance follows the other region, or is fenced, if it is; then it serves no
/// client, and `ready` does not come.
pub(super) fn says_it_follows(
    args: &RunArgs,
    (group, driver): (&GroupConfig, &Driver),
    was_printed: bool,
) -> bool {
    if driver.is_fenced() {
        say(&GROUP_STARTS_FENCED, &[&group.name, &args.name, &driver.fence_why()]);
        // It is printed by what awaits `ready`, as when it is fenced a moment later.
        return true;
    }
    let follows = driver.mode() == Mode::Recovery;
    if let Some(recovery) = group.recovery.as_ref().filter(|_| follows) {
        say(&GROUP_FOLLOWS_REGION, &[&group.name, &args.name, &recovery.name]);
        if !was_printed {
            // It need not be read.
            process::say(&format!(
                "recovery of {}: group {} follows group {}",
                args.name, group.name, recovery.name
            ));
        }
    }
    follows
}

/// What the other region said of itself counts for so long. It says it twice a second.
const SAID_MS_MAX: u64 = 5_000;

/// The other region for the status. `unheard_ms`: for how long this group, if it is in recovery,
/// has not heard the live one.
pub(super) fn status(
    part: &RegionPart,
    recovery: &RecoveryConfig,
    (mode, now, unheard_ms): (Mode, Time, u64),
) -> OtherRegionStatus {
    let (view, heard) = (part.view(), part.condition());
    let said = heard.as_ref().filter(|heard| age_ms(heard, now) <= SAID_MS_MAX);
    let said = said.map(|heard| &heard.condition);
    let ships = view.shipping.clone().unwrap_or_default();
    let receives = mode == Mode::Recovery;
    let (committed, received) = (&view.receiving.point, &ships.point);
    let point = if receives { committed } else { received };
    let connected = if receives { view.receiving.connected } else { ships.connected };
    let fence = part.fence_why();
    let full = log_full(part, heard.as_ref().filter(|_| ships.connected));
    // What recovery said of itself, on the live side.
    let (promotable, promotable_at) = match receives {
        true => view.promotable,
        false => (*received, None),
    };
    let is_known = is_known_there(&view.receiving, heard.as_ref(), now);
    let in_sync = match receives {
        true => is_known && point.place.end >= view.receiving.live_committed,
        // What is at risk was counted by positions, as if both logs were one.
        false => ships.is_known && ships.exposure.bytes == 0 && view.partition.is_none(),
    };
    let round_trip_us = view.link.link.round_trip_us.unwrap_or(0);
    let known = (is_known, unheard_ms);
    let risk = match receives {
        true => risk_there(&view, recovery, (said, in_sync), known),
        false => risk_here(&ships, view.misses_rpo),
    };
    let fork = part.known_fork();
    OtherRegionStatus {
        group_name: recovery.name.clone(),
        // What it said, and not what follows from the part of this group.
        group_role: role_of(&view, said).to_owned(),
        addresses: match &*view.link.address {
            "" => recovery.addresses.clone(),
            address => vec![address.to_owned()],
        },
        status: match part.is_superseded() {
            true => OtherRegionState::Partitioned,
            false => state_of(&view, connected, in_sync, (risk.age_us, round_trip_us)),
        },
        connected,
        instance: view.link.instance.to_string(),
        retry: view.link.phase.name().to_owned(),
        reason: fence.unwrap_or_else(|| reason(&view, full, connected)),
        fork_lsn: fork.as_ref().map(|it| Lsn(it.fork).to_string()).unwrap_or_default(),
        needs_copy: fork.as_ref().is_some_and(|it| it.is_compared && it.common.is_empty()),
        differences: view.differences.iter().map(ToString::to_string).collect(),
        in_sync,
        is_known: risk.is_known,
        backlog_bytes: risk.bytes,
        backlog_puts: ships.exposure.puts,
        backlog_removals: ships.exposure.removals,
        backlog_age_us: risk.age_us,
        unheard_ms: risk.unheard_ms,
        rpo_bytes: recovery.rpo_bytes,
        rpo_s: recovery.rpo_s,
        rto_s: recovery.rto_s,
        misses_rpo: risk.misses_rpo,
        recovery_lsn: if receives { promotable } else { *point }.place.end.to_string(),
        received_lsn: point.received.to_string(),
        live_lsn: view.receiving.live_committed.to_string(),
        live_at: view.receiving.live_committed_at.as_millis(),
        recovery_puts: point.counts.put,
        recovery_removals: point.counts.removed,
        round_trip_us,
        promotable_lsn: promotable.place.end.to_string(),
        promotable_at: promotable_at.map_or(0, Time::as_millis),
        sync: sync_status(part),
        there_age_ms: heard.as_ref().map_or(0, |heard| age_ms(heard, now)),
        clock_ahead_us: heard.as_ref().map_or(0, |heard| ahead_us(heard, round_trip_us)),
        there: heard.map(|heard| heard.condition),
        // Others are filled in with the rows of the instances, and by the listeners.
        ..traffic(&view, point, promotable.rebases)
    }
}

/// What was sent and received, and the copy that is on its way.
fn traffic(view: &RegionView, point: &RecoveryPoint, rebases: u64) -> OtherRegionStatus {
    let rebase = view.rebase.unwrap_or_default();
    let ships = view.shipping.as_ref();
    OtherRegionStatus {
        log_let_go: ships.is_some_and(|ships| ships.log_let_go),
        log_bytes_sent: ships.map_or(0, |ships| ships.sent_bytes),
        log_bytes_received: point.bytes,
        wire_bytes_received: point.wire_bytes,
        wire_bytes_sent: view.link.link.sent_wire_bytes,
        rebases: point.rebases.max(rebases),
        rebase_bytes_done: rebase.done,
        rebase_bytes: rebase.all,
        rebase_bytes_per_second: rebase.bytes_per_second,
        rebase_rest_s: rebase.rest_s,
        ..OtherRegionStatus::default()
    }
}

/// What the other group is: as it said when it was connected, and since then if it is fenced.
fn role_of(view: &RegionView, said: Option<&RegionConditionStatus>) -> &'static str {
    match said.map(|said| said.role.as_str()) {
        Some("fenced") if view.other_role == OtherRole::Live => "fenced",
        Some(_) | None => view.other_role.as_str(),
    }
}

/// What is at risk, as one of both sides knows it.
struct RegionRisk {
    is_known: bool,
    bytes: u64,
    age_us: u64,
    unheard_ms: u64,
    misses_rpo: bool,
}

/// As live knows it.
fn risk_here(ships: &ShippingView, misses_rpo: bool) -> RegionRisk {
    let age_us = ships.unknown.map_or(ships.exposure.age_us, |unknown| unknown.age_us);
    let bytes = ships.exposure.bytes;
    RegionRisk { is_known: ships.is_known, bytes, age_us, unheard_ms: 0, misses_rpo }
}

/// Whether recovery knows how far live is: live is connected, and said it a moment ago. What is not
/// known to be that young (of a version before stamps, or before both ends have heard each other)
/// may have waited, while log comes.
fn is_known_there(receiving: &ReceivingView, heard: Option<&HeardCondition>, now: Time) -> bool {
    /// Longest time that anything waits for a line that carries something.
    const WAITING_MAX: Duration = Duration::from_secs(60);
    let Some(heard) = heard.filter(|heard| age_ms(heard, now) <= SAID_MS_MAX) else { return false };
    let came_at = receiving.log_came_at;
    let may_have_waited =
        heard.said.earliest.is_none() && came_at.is_some_and(|at| now.since(at) < WAITING_MAX);
    receiving.connected && receiving.live_committed > Lsn::ZERO && !may_have_waited
}

/// As recovery knows it: what live commits while it is not heard, it does not.
fn risk_there(
    view: &RegionView,
    recovery: &RecoveryConfig,
    (said, in_sync): (Option<&RegionConditionStatus>, bool),
    (is_known, unheard_ms): (bool, u64),
) -> RegionRisk {
    let ReceivingView { live_committed, point, .. } = view.receiving;
    let bytes = live_committed.0.saturating_sub(point.place.end.0);
    if !is_known {
        let misses_rpo = misses_there(recovery, None, unheard_ms.saturating_mul(1_000));
        return RegionRisk { is_known, bytes, age_us: 0, unheard_ms, misses_rpo };
    }
    let said_us = said.map_or(0, |live| live.backlog_age_us);
    let age_us = if in_sync { 0 } else { said_us };
    let misses_rpo = misses_there(recovery, Some(bytes), age_us);
    RegionRisk { is_known, bytes, age_us, unheard_ms: 0, misses_rpo }
}

/// Whether more is at risk than the objectives allow, as a recovery group knows: by the bytes that
/// live had committed (`None`: it is not connected), and by the age that it said, or the time since
/// it was heard.
fn misses_there(recovery: &RecoveryConfig, bytes: Option<u64>, age_us: u64) -> bool {
    let (rpo_bytes, rpo_s) = (recovery.rpo_bytes, recovery.rpo_s);
    let rpo_s = match bytes {
        None if rpo_s == 0 && rpo_bytes > 0 => UNKNOWN_S_MAX,
        None | Some(_) => rpo_s,
    };
    (rpo_bytes > 0 && bytes.is_some_and(|bytes| bytes > rpo_bytes))
        || (rpo_s > 0 && age_us > rpo_s.saturating_mul(1_000_000))
}

/// Replies that wait for the other region.
pub(super) fn sync_status(part: &RegionPart) -> RegionSyncStatus {
    let off = || RegionSyncStatus {
        consistency: "off".into(),
        state: "off".into(),
        ..RegionSyncStatus::default()
    };
    let Some((view, now)) = part.sync_view() else { return off() };
    let ms = |since: Time| u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
    let (state, state_ms) = match view.state {
        SyncState::InStep => ("in step", 0),
        SyncState::Waiting { since } => ("waiting", ms(since)),
        SyncState::Alone { since } => ("alone", ms(since)),
    };
    RegionSyncStatus {
        consistency: match view.policy {
            SyncPolicy::Strict => "strict".into(),
            SyncPolicy::Eventual => "eventual".into(),
        },
        state: state.to_owned(),
        state_ms,
        covers: view.covers,
        times_alone: view.times_alone,
        replies: part.reply_waits(),
    }
}

/// How old what was said is: at most, where that is known.
fn age_ms(heard: &HeardCondition, now: Time) -> u64 {
    u64::try_from(now.since(heard.said.oldest()).as_millis()).unwrap_or(u64::MAX)
}

/// Where it is not known when the time of day was said, that was half a round trip before it came.
fn ahead_us(heard: &HeardCondition, round_trip_us: u64) -> i64 {
    if heard.said.earliest.is_some() {
        return heard.clock_ahead_us;
    }
    let way_us = i64::try_from(round_trip_us / 2).unwrap_or(i64::MAX);
    heard.clock_ahead_us.saturating_add(way_us)
}

/// How this group is, with the instances that `group` has: what is reported to the other region.
pub(super) fn condition(
    part: &RegionPart,
    driver: &Driver,
    group: &GroupStatus,
) -> RegionConditionStatus {
    let stats = driver.log().stats();
    // Only the active instance knows that nothing waits. Before the position: that is the end then.
    let is_still = driver.leads() && driver.is_still();
    let other = group.other_region.as_ref();
    let sync = other.map(|other| other.sync.clone()).unwrap_or_default();
    let ships = other.filter(|_| driver.mode() == Mode::Voting);
    let (certificate_expires_s, certificate_of) = first_to_expire(part, driver);
    let (certificate_begins_s, certificate_begins_of) = last_to_begin(part, driver);
    RegionConditionStatus {
        role: group.group_role.clone(),
        backlog_age_us: ships.map_or(0, |other| other.backlog_age_us),
        misses_rpo: ships.is_some_and(|other| other.misses_rpo),
        certificate_of,
        instance: group.instance.clone(),
        version: towline_types::program_version().to_owned(),
        configured_count: group.configured_count,
        connected_count: group.instances.iter().filter(|row| row.connected_here).count() as u64,
        in_sync_count: group.in_sync_count,
        certificate_expires_s,
        certificate_begins_s,
        certificate_begins_of,
        log_bytes: stats.bytes_in_use,
        log_bytes_max: if stats.bytes_max == u64::MAX { 0 } else { stats.bytes_max },
        log_full: driver.lacks_room_for_shipped(),
        free_bytes: stats.file_system_bytes_max.saturating_sub(stats.file_system_bytes_in_use),
        committed_lsn: driver.committed_end().to_string(),
        is_still,
        sync_consistency: sync.consistency,
        sync_state: sync.state,
        sync_covers: sync.covers,
    }
}

/// Of the certificates that the instances of this group show to the other region: when the first
/// one expires, and whose it is. Of an instance that is not connected it is not known.
fn first_to_expire(part: &RegionPart, driver: &Driver) -> (u64, String) {
    let of = |peer| match peer == driver.this() {
        true => part.certificate_expires_s(),
        false => driver.conditions().of(peer).unwrap_or_default().region_certificate_s,
    };
    let known = (0..driver.names().len()).map(|peer| (of(peer), peer)).filter(|(at, _)| *at > 0);
    known.min().map_or_else(Default::default, |(at, peer)| (at, driver.name(peer).to_owned()))
}

/// Of the same certificates: when the last one begins to be valid, and its owner.
fn last_to_begin(part: &RegionPart, driver: &Driver) -> (u64, String) {
    let of = |peer| match peer == driver.this() {
        true => part.certificate_begins_s(),
        false => driver.conditions().of(peer).unwrap_or_default().region_certificate_begins_s,
    };
    let known = (0..driver.names().len()).map(|peer| (of(peer), peer)).filter(|(at, _)| *at > 0);
    known.max().map_or_else(Default::default, |(at, peer)| (at, driver.name(peer).to_owned()))
}

/// Why this group serves no client, if it is fenced.
pub(super) fn fence(driver: &Driver) -> Option<RegionFenceStatus> {
    const REJOIN: &str = "list and export what this log has of its own: 'towline region divergence \
                          --export FILE'; then 'towline region rejoin'; to serve here again, 'towline \
                          region switch' at the other group after that";
    const UNFENCE: &str = "'towline region unfence' takes it back; 'towline region failover' at the \
                           other group has that one serve";
    const LOST: &str = "do not empty the other group: it has all that there is. If the disk of this \
                        one is there, stop it, mount the disk, start it; else have the other group \
                        serve ('towline region failover' there, if it is not live), and start this \
                        one with role = \"recovery\" and empty folders";
    let kept = driver.fence()?;
    let superseded = driver.superseded();
    let order = kept.order.filter(|order| order.is_on).unwrap_or_default();
    let what_to_do = match &superseded {
        Some(_) => REJOIN,
        None if order.by == BY_ITSELF => LOST,
        None => UNFENCE,
    };
    let since = superseded.as_ref().map_or(order.at_ms, |it| it.at_ms);
    let fork = superseded.map(|it| it.fork);
    Some(RegionFenceStatus {
        why: driver.fence_why(),
        what_to_do: what_to_do.to_owned(),
        superseded_by: fork.as_ref().map(|fork| fork.other.clone()).unwrap_or_default(),
        history: fork.as_ref().map(|it| HistoryId(it.history).to_string()).unwrap_or_default(),
        fork: fork.map(|fork| Lsn(fork.fork).to_string()).unwrap_or_default(),
        ordered_by: order.by,
        reason: order.reason,
        since,
        is_still: driver.is_still(),
    })
}

/// What was committed in the last round trip is on its way, which is normal.
fn state_of(
    view: &RegionView,
    connected: bool,
    in_sync: bool,
    (age, round_trip_us): (u64, u64),
) -> OtherRegionState {
    /// Beyond this age of what is lacking, something is behind. Reports of an active link come much
    /// more often.
    const BEHIND_US: u64 = 1_000_000;
    match connected {
        _ if view.partition.is_some() => OtherRegionState::Partitioned,
        _ if view.rebase.is_some() || view.awaits_rebased && !connected => {
            OtherRegionState::Rebasing
        }
        _ if view.needs_copy => OtherRegionState::NeedsCopy,
        true if in_sync || age < BEHIND_US.max(4 * round_trip_us) => OtherRegionState::Normal,
        true => OtherRegionState::Synchronizing,
        false if view.link.phase == RetryPhase::Off && view.shipping.is_none() => {
            OtherRegionState::Unknown
        }
        false => OtherRegionState::Disconnected,
    }
}

/// What is said when the log of recovery is full, here or there.
fn log_full(part: &RegionPart, heard: Option<&HeardCondition>) -> Option<String> {
    let there = heard.map(|heard| &heard.condition).filter(|there| there.log_full);
    match there {
        Some(there) => Some(format!(
            "the log of instance '{}' is full ({} bytes) and takes no more: see TWL4413E",
            there.instance, there.log_bytes
        )),
        None if part.lacks_room() => {
            Some("the log here is full and takes no more: see TWL4413E".to_owned())
        }
        None => None,
    }
}

/// Why nothing is sent, or received. Of a link that stands only what is the matter with the logs:
/// why another one was refused before is no reason any more.
fn reason(view: &RegionView, full: Option<String>, connected: bool) -> String {
    let copies = view.rebase_trouble.as_ref();
    let [links, dialler] =
        [view.trouble.as_ref(), Some(&view.link.trouble)].map(|why| why.filter(|_| !connected));
    let known = [full.as_ref(), view.partition.as_ref(), copies, links, dialler];
    known.into_iter().flatten().find(|why| !why.is_empty()).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use towline_replication::said_times::SaidTime;

    use super::*;

    #[test]
    fn recovery_judges_by_what_live_says_and_while_it_is_silent_by_the_time_since() {
        let misses = |rpo_bytes, rpo_s, bytes, age_us| {
            let recovery = RecoveryConfig { rpo_bytes, rpo_s, ..RecoveryConfig::default() };
            misses_there(&recovery, bytes, age_us)
        };
        assert!(misses(10, 0, Some(11), 0) && !misses(10, 0, Some(10), u64::MAX));
        assert!(misses(0, 2, Some(0), 2_000_001) && !misses(0, 2, Some(u64::MAX), 2_000_000));
        assert!(misses(0, 2, None, 2_000_001), "not heard for longer than may be lost");
        assert!(misses(10, 0, None, 10_000_001) && !misses(10, 0, None, 10_000_000));
        assert!(!misses(0, 0, None, u64::MAX), "no objective");
    }

    /// For 24 s behind a slow line recovery called itself in sync, and knew of nothing that it
    /// lacked: by the end that came with the log, which had waited for 18 s.
    #[test]
    fn recovery_is_in_sync_only_by_a_word_of_live_that_is_known_to_be_young() {
        let now = Time(100_000_000);
        let ago = |ms: u64| Time(now.0 - ms * 1_000);
        let receiving = ReceivingView {
            connected: true,
            live_committed: Lsn(9_000),
            log_came_at: Some(ago(10)),
            ..ReceivingView::default()
        };
        let known = |receiving: &ReceivingView, latest, earliest| {
            let condition = RegionConditionStatus::default();
            let said = SaidTime { latest, earliest };
            let heard = HeardCondition { condition, said, clock_ahead_us: 0 };
            is_known_there(receiving, Some(&heard), now)
        };
        assert!(known(&receiving, ago(400), Some(ago(450))));
        assert!(!known(&receiving, ago(18_000), Some(ago(18_100))), "it waited");
        assert!(!known(&receiving, ago(0), None), "it may have waited behind the log");
        let idle = ReceivingView { log_came_at: Some(ago(60_000)), ..receiving };
        assert!(known(&idle, ago(0), None), "of a version before, with nothing before it");
        assert!(!is_known_there(&idle, None, now));
        let silent = ReceivingView { live_committed: Lsn::ZERO, ..receiving };
        let away = ReceivingView { connected: false, ..receiving };
        assert!([silent, away].iter().all(|it| !known(it, ago(0), Some(ago(0)))));
    }

    #[test]
    fn a_link_that_stands_has_no_reason_why_another_one_was_refused() {
        let why = || Some("group 'WEST' has taken over".to_owned());
        let view = RegionView { trouble: why(), ..RegionView::default() };
        assert_eq!(reason(&view, None, false), why().unwrap());
        assert_eq!(reason(&view, None, true), "");
        let parted = RegionView { partition: why(), ..RegionView::default() };
        assert_eq!(reason(&parted, None, true), why().unwrap());
    }
}
