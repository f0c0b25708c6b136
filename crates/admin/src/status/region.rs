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
    /// Name of the group that is live from then on.
    pub live: String,
    /// When, by the clock of the instance that decided it, milliseconds since the Unix epoch.
    pub began_at: u64,
    /// Why.
    pub cause: String,
}
