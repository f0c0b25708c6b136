//! The other region of an instance of a group: the link from the configuration, and the status.
//!
//! Not here: what goes over the link (`towline_replication::region_part`).

use std::sync::Arc;

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
use towline_replication::region_condition::HeardCondition;
use towline_replication::region_part::{
    RegionPart, RegionTerms, RegionView, SyncPolicy, SyncState,
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

/// The other region for the status.
pub(super) fn status(
    part: &RegionPart,
    recovery: &RecoveryConfig,
    (mode, now): (Mode, Time),
) -> OtherRegionStatus {
    let (view, heard) = (part.view(), part.condition());
    let ships = view.shipping.clone().unwrap_or_default();
    let receives = mode == Mode::Recovery;
    let (committed, received) = (&view.receiving.point, &ships.point);
    let point = if receives { committed } else { received };
    let connected = if receives { view.receiving.connected } else { ships.connected };
    let fence = part.fence_why();
    let rebase = view.rebase.unwrap_or_default();
    // What recovery said of itself, on the live side.
    let (promotable, promotable_at) = match receives {
        true => view.promotable,
        false => (*received, None),
    };
    let in_sync = match receives {
        true => connected && point.place.end >= view.receiving.live_committed,
        false => ships.is_known && ships.exposure.bytes == 0,
    };
    let round_trip_us = view.link.link.round_trip_us.unwrap_or(0);
    OtherRegionStatus {
        group_name: recovery.name.clone(),
        // What it said, and not what follows from the part of this group.
        group_role: view.other_role.as_str().to_owned(),
        addresses: match &*view.link.address {
            "" => recovery.addresses.clone(),
            address => vec![address.to_owned()],
        },
        status: match part.is_superseded() {
            true => OtherRegionState::Partitioned,
            false => state_of(&view, connected, in_sync, round_trip_us),
        },
        connected,
        instance: view.link.instance.to_string(),
        retry: view.link.phase.name().to_owned(),
        reason: fence.unwrap_or_else(|| reason(part, &view, heard.as_ref())),
        differences: view.differences.iter().map(ToString::to_string).collect(),
        in_sync,
        is_known: receives || ships.is_known,
        backlog_bytes: match receives {
            true => view.receiving.live_committed.0.saturating_sub(point.place.end.0),
            false => ships.exposure.bytes,
        },
        backlog_puts: ships.exposure.puts,
        backlog_removals: ships.exposure.removals,
        backlog_age_us: ships.exposure.age_us,
        rpo_bytes: recovery.rpo_bytes,
        rpo_s: recovery.rpo_s,
        rto_s: recovery.rto_s,
        misses_rpo: view.misses_rpo,
        log_let_go: ships.log_let_go,
        recovery_lsn: if receives { promotable } else { *point }.place.end.to_string(),
        received_lsn: point.received.to_string(),
        live_lsn: view.receiving.live_committed.to_string(),
        live_at: view.receiving.live_committed_at.as_millis(),
        log_bytes_sent: ships.sent_bytes,
        log_bytes_received: point.bytes,
        wire_bytes_received: point.wire_bytes,
        wire_bytes_sent: view.link.link.sent_wire_bytes,
        round_trip_us,
        rebases: point.rebases.max(promotable.rebases),
        rebase_bytes_done: rebase.done,
        rebase_bytes: rebase.all,
        rebase_bytes_per_second: rebase.bytes_per_second,
        rebase_rest_s: rebase.rest_s,
        promotable_lsn: promotable.place.end.to_string(),
        promotable_at: promotable_at.map_or(0, Time::as_millis),
        sync: sync_status(part),
        there_age_ms: heard.as_ref().map_or(0, |heard| age_ms(heard, now)),
        clock_ahead_us: heard.as_ref().map_or(0, |heard| ahead_us(heard, round_trip_us)),
        there: heard.map(|heard| heard.condition),
        // Filled in with the rows of the instances, and by the listeners.
        ..OtherRegionStatus::default()
    }
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

fn age_ms(heard: &HeardCondition, now: Time) -> u64 {
    u64::try_from(now.since(heard.at).as_millis()).unwrap_or(u64::MAX)
}

/// The time of day was said half a round trip ago.
fn ahead_us(heard: &HeardCondition, round_trip_us: u64) -> i64 {
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
    let sync = group.other_region.as_ref().map(|other| other.sync.clone()).unwrap_or_default();
    RegionConditionStatus {
        instance: group.instance.clone(),
        version: towline_types::program_version().to_owned(),
        configured_count: group.configured_count,
        connected_count: group.instances.iter().filter(|row| row.connected_here).count() as u64,
        in_sync_count: group.in_sync_count,
        certificate_expires_s: part.certificate_expires_s(),
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

/// Why this group serves no client, if it is fenced.
pub(super) fn fence(driver: &Driver) -> Option<RegionFenceStatus> {
    const REJOIN: &str = "list and export what this log has of its own: 'towline region divergence \
                          --export FILE'; then 'towline region rejoin'; to serve here again, 'towline \
                          region switch' at the other group after that";
    const UNFENCE: &str = "'towline region unfence' takes it back; 'towline region failover' at the \
                           other group has that one serve";
    let kept = driver.fence()?;
    let superseded = driver.superseded();
    let what_to_do = if superseded.is_some() { REJOIN } else { UNFENCE };
    let order = kept.order.filter(|order| order.is_on).unwrap_or_default();
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
    round_trip_us: u64,
) -> OtherRegionState {
    /// Beyond this age of what is lacking, something is behind. Reports of an active link come much
    /// more often.
    const BEHIND_US: u64 = 1_000_000;
    let age = view.shipping.as_ref().map_or(0, |ships| ships.exposure.age_us);
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
            "the log of instance '{}' is full ({} bytes) and takes no more: see TWL4410E",
            there.instance, there.log_bytes
        )),
        None if part.lacks_room() => {
            Some("the log here is full and takes no more: see TWL4410E".to_owned())
        }
        None => None,
    }
}

fn reason(part: &RegionPart, view: &RegionView, heard: Option<&HeardCondition>) -> String {
    let ships = view.shipping.as_ref().is_some_and(|shipping| shipping.connected);
    let full = log_full(part, heard.filter(|_| ships));
    let copies = view.rebase_trouble.as_ref();
    let trouble = [view.trouble.as_ref(), Some(&view.link.trouble)];
    let known = [full.as_ref(), view.partition.as_ref(), copies].into_iter().chain(trouble);
    known.flatten().find(|why| !why.is_empty()).cloned().unwrap_or_default()
}
