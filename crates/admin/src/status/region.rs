//! The histories of the log in the status: which group is live, and which changes of roles led
//! there. Only words: the node fills it in.

use serde::{Deserialize, Serialize};

/// One of two regions, as the log of this instance has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionStatus {
    /// What the group of this instance is in the newest history: `live`, `recovery`; `none` when it
    /// is in no group.
    pub role: String,
    /// The newest history.
    pub history: String,
    /// Name of the group that is live in it.
    pub live: String,
    /// Whether this instance refuses all requests, because another group is live or is about to be.
    pub closed: bool,
    /// How many histories the log has had.
    pub histories: u64,
    /// Those of which the log has more than the number, from the oldest to the newest.
    pub chain: Vec<HistoryRow>,
    /// The newest changes of roles, the newest first.
    pub role_changes: Vec<RoleChangeRow>,
}

/// One history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryRow {
    /// Its name, 32 hexadecimal digits.
    pub history: String,
    /// Where it parts from the one before it, `<a:b:c:d>`.
    pub fork: String,
}

/// One change of roles: with it a history began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleChangeRow {
    /// The history that began.
    pub history: String,
    /// Where it parts from the one before it, `<a:b:c:d>`.
    pub fork: String,
    /// Name of the group that was live before; empty: not known any more.
    pub from: String,
    /// Name of the group that is live from then on.
    pub live: String,
    /// What was ordered: `switch`, `failover`, `drill`, `drill_return`; empty: the cause does not
    /// say.
    pub kind: String,
    /// The user that ordered it; empty: the cause does not say.
    pub by: String,
    /// The instance at which it was ordered; empty: the cause does not say.
    pub instance: String,
    /// When, by the clock of the instance that decided it, milliseconds since the Unix epoch.
    pub began_at: u64,
    /// Why.
    pub cause: String,
}

/// The other region's group, as this instance knows it, and the link to it. What only the live
/// group's active instance knows, or only the recovery instance that is shipped to, is zero
/// elsewhere. Words in capitals are those of IBM MQ's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherRegionStatus {
    /// GRPNAME.
    pub group_name: String,
    /// GRPROLE: `live`, `recovery`, `pending_live`, `fenced` (live, and serves no client),
    /// `unknown`.
    pub group_role: String,
    /// GRPADDR: where it is connected, or where it is looked for.
    pub addresses: Vec<String>,
    /// GRSTATUS.
    pub status: OtherRegionState,
    /// CONNGRP: whether a link stands on which the log is sent.
    pub connected: bool,
    /// The instance of it to which the link stands.
    pub instance: String,
    /// Which timer determines when it is dialled again: `connected`, `short`, `long`, `idle`.
    pub retry: String,
    /// Why nothing is sent, in words; empty: there is no reason.
    pub reason: String,
    /// Where the log of this instance and that of the other group part, if that one went on without
    /// this one, so that this group can return to it; empty: not so, or not known here.
    pub fork_lsn: String,
    /// Both logs were compared, and no batch is left that both have: this group cannot return to
    /// the fork, and gets a copy.
    pub needs_copy: bool,
    /// What differs between the configurations, as of the last connection, in words.
    pub differences: Vec<String>,
    /// INSYNC: whether it has all that is committed.
    pub in_sync: bool,
    /// Whether the backlog is known. Live: recovery has reported how far it is, to this instance or
    /// to the one that was active a moment before. Recovery: live said how far it is within the
    /// last seconds.
    pub is_known: bool,
    /// BACKLOG, in bytes of log: committed here, and not on the disks of a majority there. Live,
    /// while that is not known: all of the log.
    pub backlog_bytes: u64,
    /// Puts of persistent messages that recovery lacks: at most so many messages would be lost. One
    /// that was also removed in the backlog counts here and among the removals.
    pub backlog_puts: u64,
    /// Removals of persistent messages that recovery lacks: at most so many would come again.
    pub backlog_removals: u64,
    /// Age of the oldest commit that it lacks, microseconds. Live, while that is not known: for how
    /// long it has not been. Recovery: as live said it a moment ago.
    pub backlog_age_us: u64,
    /// Recovery, while that is not known: for how long live has not said it, milliseconds. What it
    /// commits meanwhile is not known here.
    pub unheard_ms: u64,
    /// Objective: bytes that may be at risk; 0: none.
    pub rpo_bytes: u64,
    /// Objective: seconds; 0: none.
    pub rpo_s: u64,
    /// Recovery time objective: seconds; 0: none.
    pub rto_s: u64,
    /// Whether more is at risk than the objectives allow. What is not known for longer than they
    /// allow counts as more.
    pub misses_rpo: bool,
    /// Whether log that it lacks is kept no longer, because it is more than the bound, or the log
    /// here is tight: it gets a copy when it is connected.
    pub log_let_go: bool,
    /// RCOVLSN: up to where a majority of the recovery group has the log, `<a:b:c:d>`.
    pub recovery_lsn: String,
    /// Up to where the recovery instance that is shipped to has it on its own disk.
    pub received_lsn: String,
    /// Up to where the live group had committed it when it said so last.
    pub live_lsn: String,
    /// LIVETIME: when it had committed the newest of it that came, by its clock, milliseconds since
    /// the Unix epoch.
    pub live_at: u64,
    /// Persistent messages that recovery has counted as put, ever.
    pub recovery_puts: u64,
    /// Persistent messages that recovery has counted as removed, ever.
    pub recovery_removals: u64,
    /// Bytes of log sent since this instance became active, before compression.
    pub log_bytes_sent: u64,
    /// Bytes of log received since the process started, before compression.
    pub log_bytes_received: u64,
    /// The same as they came over the link.
    pub wire_bytes_received: u64,
    /// Bytes that went over the link from here, compressed.
    pub wire_bytes_sent: u64,
    /// Round trip of the link, microseconds; 0: not known.
    pub round_trip_us: u64,
    /// Copies that the recovery group has begun.
    pub rebases: u64,
    /// A copy that is on its way: bytes that are on the disk of the one that gets it.
    pub rebase_bytes_done: u64,
    /// Bytes of that copy; 0: none is on its way.
    pub rebase_bytes: u64,
    /// Bytes of it that come in a second; 0: not known.
    pub rebase_bytes_per_second: u64,
    /// Seconds until it is there, at that rate; 0: not known.
    pub rebase_rest_s: u64,
    /// What the recovery group can be promoted with now, `<a:b:c:d>`: while a copy comes, that is
    /// the log before it.
    pub promotable_lsn: String,
    /// When the log was that long, milliseconds since the Unix epoch; 0: not known.
    pub promotable_at: u64,
    /// Replies that wait for it, on the live group's active instance.
    pub sync: RegionSyncStatus,
    /// How the group of this instance is, as it reports to the other one.
    pub here: RegionConditionStatus,
    /// How the other group is, as it said last; none: it has not said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub there: Option<RegionConditionStatus>,
    /// How long ago that was, milliseconds: at most, where that is known.
    pub there_age_ms: u64,
    /// By how many microseconds the time of day there was ahead of the one here when it said so, as
    /// far as half a round trip can be known.
    pub clock_ahead_us: i64,
    /// Addresses of the first listener that clients are given, in order; empty: none are.
    pub advertised: Vec<String>,
    /// All of this is as this instance of the own group reported it, which has the link; empty: as
    /// this one knows it.
    pub heard_from: String,
    /// How long ago that was, milliseconds.
    pub heard_age_ms: u64,
    /// Changes of roles in the log of this instance.
    pub role_changes: u64,
    /// Clients that this instance, in recovery, sent to the live group since the process started.
    pub redirects: u64,
    /// Clients that it closed with a reason and no address, since the process started.
    pub turned_away: u64,
    /// What was sent in the last whole interval; none: this instance does not ship, or not for so
    /// long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<RegionIntervalStatus>,
}

/// What the live group's active instance sent in an interval of about ten seconds: the elements
/// that IBM MQ publishes for a recovery group (NHAREPLICA, RECOVERY), in its order, after the real
/// length. Averages of states are over time; those of work are for each frame of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionIntervalStatus {
    /// The real length of the interval, microseconds.
    pub interval_us: u64,
    /// Log bytes sent.
    pub log_bytes_sent: u64,
    /// Backlog bytes, at its end.
    pub backlog_bytes: u64,
    /// Backlog average bytes.
    pub backlog_average_bytes: u64,
    /// Average network round trip time, microseconds; none: not known.
    pub round_trip_average_us: Option<u64>,
    /// Compressed log bytes sent: all frames that went over the link as they went, also those with
    /// no log in which the groups say twice a second how they are; without what TLS adds.
    pub compressed_log_bytes_sent: u64,
    /// Log data average compression time, microseconds.
    pub compression_average_us: u64,
    /// Log bytes decompressed, by the recovery group as it reports.
    pub log_bytes_decompressed: u64,
    /// Log data average decompression time, microseconds.
    pub decompression_average_us: u64,
    /// Rebase count.
    pub rebase_count: u64,
    /// Recovery LSN, `<a:b:c:d>`.
    pub recovery_lsn: String,
    /// The same, hexadecimal.
    pub recovery_lsn_hex: String,
    /// How long ago the interval ended, milliseconds.
    pub ended_ms_ago: u64,
}

/// What one group says of itself to the other region: the instance that has the link says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionConditionStatus {
    /// Its name.
    pub instance: String,
    /// Version of its program.
    pub version: String,
    /// Instances configured.
    pub configured_count: u64,
    /// Of them connected with it, itself included.
    pub connected_count: u64,
    /// Of them in sync.
    pub in_sync_count: u64,
    /// What its group is: `live`, `recovery`, `pending_live`, `fenced`; empty: of a version before.
    pub role: String,
    /// Live: age of the oldest commit that the other group lacks, microseconds; 0: it has all.
    pub backlog_age_us: u64,
    /// Live: whether more is at risk than its objectives allow.
    pub misses_rpo: bool,
    /// When the certificate for the link between regions expires, of the instance of which it
    /// expires first, seconds since the Unix epoch; 0: not known.
    pub certificate_expires_s: u64,
    /// That instance; empty: itself.
    pub certificate_of: String,
    /// When the certificate begins to be valid of the instance of which it begins last; 0: not
    /// known.
    pub certificate_begins_s: u64,
    /// That instance.
    pub certificate_begins_of: String,
    /// Bytes that its log takes.
    pub log_bytes: u64,
    /// Bytes that are free in the file system of its log.
    pub free_bytes: u64,
    /// The limit of its log (log_bytes_max); 0: the file system, or not known.
    pub log_bytes_max: u64,
    /// In recovery: its log has no space for what live sends, and takes no more until it has.
    pub log_full: bool,
    /// Up to where it has committed, `<a:b:c:d>`.
    pub committed_lsn: String,
    /// It is fenced, and all that it decided is committed: its log goes on no further.
    pub is_still: bool,
    /// Whether its replies wait for the other region: see [`RegionSyncStatus`]. A recovery group
    /// says `off`.
    pub sync_consistency: String,
    /// The same.
    pub sync_state: String,
    /// The same.
    pub sync_covers: bool,
}

/// A live group that serves no client: it was superseded, or an operator fenced it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionFenceStatus {
    /// Why, in words.
    pub why: String,
    /// What to do about it.
    pub what_to_do: String,
    /// The group that took over; empty: none is known to have.
    pub superseded_by: String,
    /// The first history of that group that this log does not have.
    pub history: String,
    /// Where both logs part, `<a:b:c:d>`.
    pub fork: String,
    /// The user that ordered it; empty: it is not ordered.
    pub ordered_by: String,
    /// Why, as that user said.
    pub reason: String,
    /// Since when, milliseconds since the Unix epoch, as the instance that found out or was asked
    /// had it.
    pub since: u64,
    /// Whether all that was decided before it is committed.
    pub is_still: bool,
}

/// SyncReplication: replies that wait for the other region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionSyncStatus {
    /// SyncConsistency: `off`, `strict`, `eventual`; empty: not known, or of a version before.
    pub consistency: String,
    /// `off`, `in step`, `waiting` (replies wait, and the other region is away or behind, or is not
    /// known to have all that was answered), `alone` (replies do not wait for it).
    pub state: String,
    /// For how long it has been waiting, or alone, milliseconds; otherwise 0.
    pub state_ms: u64,
    /// Whether the other region has all that was answered: a fail-over would lose none of it.
    pub covers: bool,
    /// How often this instance went on alone since it became active.
    pub times_alone: u64,
    /// The replies.
    pub replies: ReplyWaitsStatus,
}

/// Replies that waited for the other region since this instance became active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplyWaitsStatus {
    /// Those that wait now.
    pub waiting: u64,
    /// Those that waited, and went.
    pub answered: u64,
    /// How long all of them waited together, microseconds.
    pub waited_us: u64,
    /// How long the one waited that waited longest, microseconds.
    pub waited_us_max: u64,
}

/// What is the matter with the other region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherRegionState {
    /// Not known here.
    #[default]
    Unknown,
    /// The log is sent, and what is committed arrives as it comes.
    Normal,
    /// It catches up.
    Synchronizing,
    /// There is no link.
    Disconnected,
    /// The logs are not one: an operator must decide.
    Partitioned,
    /// It lacks log that is not there any more: it needs a copy.
    NeedsCopy,
    /// It gets a copy.
    Rebasing,
}

impl OtherRegionState {
    /// As the table shows it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OtherRegionState::Unknown => "unknown",
            OtherRegionState::Normal => "normal",
            OtherRegionState::Synchronizing => "synchronizing",
            OtherRegionState::Disconnected => "disconnected",
            OtherRegionState::Partitioned => "partitioned",
            OtherRegionState::NeedsCopy => "needs a copy",
            OtherRegionState::Rebasing => "rebasing",
        }
    }
}
