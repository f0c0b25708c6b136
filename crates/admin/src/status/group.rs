//! The group in the status: fields as `dspmq -o nativeha -x` has them, with their MQ names. Only
//! words: the server fills it in. The rows are exact on the active instance; a replica reports what
//! it last heard.

use serde::{Deserialize, Serialize};

use super::region::{OtherRegionStatus, RegionFenceStatus, RoleChangeRow};

/// Native HA: this instance, and its group as it sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// INSTANCE: the name of this one.
    pub instance: String,
    /// ROLE of this one.
    pub role: GroupRole,
    /// INSYNC: whether it could take over without loss.
    pub in_sync: bool,
    /// Instances in sync, this one included (the first number of QUORUM).
    pub in_sync_count: u64,
    /// Instances configured (the second number of QUORUM).
    pub configured_count: u64,
    /// GRPLSN: up to where a majority has the log, `<a:b:c:d>`.
    pub group_lsn: String,
    /// The position from which this instance can catch another one up without a copy, `<a:b:c:d>`.
    pub catch_up_lsn: String,
    /// GRPNAME.
    pub group_name: String,
    /// GRPROLE: `live`, `recovery`; `pending_live`: it is being promoted; `fenced`: it was live, and
    /// serves nobody.
    pub group_role: String,
    /// Name of the active instance, empty when none is known.
    pub active: String,
    /// The term of consensus: goes up with each election.
    pub term: u64,
    /// Whether clients are served now, here or through the active.
    pub serving: bool,
    /// For so long the disk of this instance has not answered, milliseconds; 0: it does. It says so
    /// when that is longer than HeartbeatTimeout.
    pub sync_overdue_ms: u64,
    /// The file that waits for it.
    pub sync_overdue_file: String,
    /// Damaged batches of this instance's log that were repaired with what another instance had,
    /// since the process started.
    pub repaired_batches: u64,
    /// How often a damaged batch was asked for, and no other instance had it.
    pub unrepaired_batches: u64,
    /// The address that follows the active instance, with the bits of its network; empty: none is
    /// configured.
    pub floating_address: String,
    /// The format level of this instance's log; 0: not known.
    pub format_level: u64,
    /// Instances that are not connected, or did not say then that they read a later one: until they
    /// do, it stays.
    pub format_level_waits_for: Vec<String>,
    /// One row for each instance, in the order of the configuration.
    pub instances: Vec<InstanceStatus>,
    /// Why it serves nobody, if it is fenced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<RegionFenceStatus>,
    /// The group of the other region, when one is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_region: Option<OtherRegionStatus>,
    /// The newest history of the log of this instance, 32 hexadecimal digits; empty: it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub history: String,
    /// The newest changes of roles in the log of this instance, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub role_changes: Vec<RoleChangeRow>,
}

/// What an instance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupRole {
    /// Not known yet, or not reached.
    #[default]
    Unknown,
    /// Serves clients.
    Active,
    /// In a recovery group: the live group ships to it, and it relays to the others.
    Leader,
    /// Follows.
    Replica,
}

/// One instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceStatus {
    /// INSTANCE.
    pub instance: String,
    /// ROLE.
    pub role: GroupRole,
    /// REPLADDR: where its links come in.
    pub replication_address: String,
    /// CONNACTV: whether it is connected with the active (on a replica: with this one).
    pub connected: bool,
    /// INSYNC.
    pub in_sync: bool,
    /// BACKLOG: kilobytes of log that it has not acknowledged.
    pub backlog_kb: u64,
    /// Bytes of the active's log that are kept only for it: from a copy, or from where it lags,
    /// until it is in sync.
    pub held_back_bytes: u64,
    /// CONNINST: whether this one is connected with it.
    pub connected_here: bool,
    /// ACKLSN: up to where it acknowledged the log.
    pub ack_lsn: String,
    /// HASTATUS.
    pub status: InstanceState,
    /// SYNCTIME: when it was last in sync, milliseconds since the Unix epoch; 0: never seen so.
    pub sync_time: u64,
    /// Round trip to it, microseconds; 0: not known.
    pub round_trip_us: u64,
    /// Whether its log has no free space for puts.
    pub log_full: bool,
    /// For so long its disk has not answered, milliseconds; 0: it does.
    pub sync_overdue_ms: u64,
    /// Whether it cannot hold the floating address: its process lacks CAP_NET_ADMIN, or its machine
    /// the interface.
    pub address_refused: bool,
    /// Version of its program; empty: not known.
    pub version: String,
    /// Bytes sent to it over the link, and what they were before compression.
    pub sent_bytes: u64,
    /// See `sent_bytes`.
    pub sent_bytes_uncompressed: u64,
    /// Why this one has no connection to it, or, of this one, why it takes part in nothing; empty:
    /// neither, or not known.
    pub reason: String,
}

/// HASTATUS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Not known.
    #[default]
    Unknown,
    /// In sync.
    Normal,
    /// It is being found out where its log ends.
    Checking,
    /// It catches up from the log.
    Synchronizing,
    /// It gets a copy, or catches up after one.
    Rebasing,
    /// No connection.
    Disconnected,
    /// It lost its log, and does not vote before it has caught up.
    Blank,
    /// Its disk has not answered for longer than HeartbeatTimeout.
    SyncOverdue,
    /// Its log has no free space for puts.
    LogFull,
}

impl GroupRole {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GroupRole::Unknown => "unknown",
            GroupRole::Active => "active",
            GroupRole::Leader => "leader",
            GroupRole::Replica => "replica",
        }
    }
}

impl InstanceState {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            InstanceState::Unknown => "unknown",
            InstanceState::Normal => "normal",
            InstanceState::Checking => "checking",
            InstanceState::Synchronizing => "synchronizing",
            InstanceState::Rebasing => "rebasing",
            InstanceState::Disconnected => "disconnected",
            InstanceState::Blank => "blank",
            InstanceState::SyncOverdue => "sync overdue",
            InstanceState::LogFull => "log full",
        }
    }
}

impl GroupStatus {
    /// QUORUM, as MQ shows it: `3/3`.
    #[must_use]
    pub fn quorum(&self) -> String {
        format!("{}/{}", self.in_sync_count, self.configured_count)
    }
}
