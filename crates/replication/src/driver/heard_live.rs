//! What a member knows of the live group by its word, as members say it to each other.
//!
//! Not here: where it is kept (`role`, `told_live`).

use serde::{Deserialize, Serialize};

/// Whether the recovery group has all that live answered, as live said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveSync {
    /// It has not, or it is not known: live answers without it.
    #[default]
    Not,
    /// It had. Live goes on alone, after a while, when recovery is away.
    Eventual,
    /// It has. Live answers nothing that recovery lacks.
    Strict,
}

/// What the live group said last of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct HeardLive {
    /// End of what it had committed then; zero: it said nothing to this process.
    pub committed: u64,
    /// Age of that news, milliseconds: at least.
    pub age_ms: u64,
    /// At most: all that it had committed that long ago is before `committed`. `None`: it may have
    /// been on its way for any time.
    #[serde(default)]
    pub age_most_ms: Option<u64>,
    /// It said that it is fenced, and that this is the end of its log.
    pub is_still: bool,
    /// For how long it has said so, milliseconds.
    pub still_ms: u64,
    /// Of what it answered.
    #[serde(default)]
    pub sync: LiveSync,
    /// Age of that, milliseconds, at least; `None`: it was never said to this process.
    #[serde(default)]
    pub sync_age_ms: Option<u64>,
    /// At most; `None`: it may have been on its way for any time.
    #[serde(default)]
    pub sync_age_most_ms: Option<u64>,
}

/// What another instance reported of the live group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ToldLive {
    /// The name of that instance.
    pub by: String,
    /// What it had heard: ages count until now.
    pub live: HeardLive,
}
