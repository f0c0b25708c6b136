//! A shared data folder in the status. Only words: the server fills it in.

use serde::{Deserialize, Serialize};

/// Multi-instance mode, as the instance that answers sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedStatus {
    /// What it is.
    pub role: InstanceRole,
    /// Its number: each takeover makes a higher one.
    pub epoch: u64,
    /// How long its lease lasts after a renewal, milliseconds.
    pub lease_ms: u64,
    /// How old its lease is, milliseconds: it ends itself when this reaches `lease_ms`.
    pub lease_age_ms: u64,
    /// Processes that stand by, as host:pid.
    pub standbys: Vec<String>,
}

/// What a process with a shared data folder is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceRole {
    /// Waits.
    #[default]
    Standby,
    /// Serves clients.
    Active,
}
