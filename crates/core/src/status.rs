//! What operators may ask about.
use crate::{ConnectionId, QueueId};
use towline_types::Time;

/// One queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "first commit")]
pub struct QueueStatus {
    pub name: String,
    pub queue: QueueId,
    pub depth: u64,
    pub uncommitted: u64,
    pub open_input: u32,
    pub open_output: u32,
    pub puts: u64,
    pub gets: u64,
    pub backouts: u64,
    pub expired: u64,
    pub moved: u64,
    pub oldest_put_at: Option<Time>,
    pub last_put_at: Option<Time>,
    pub last_get_at: Option<Time>,
    pub bytes: u64,
}

/// One connection at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "first commit")]
pub struct ConnectionStatus {
    pub connection: ConnectionId,
    pub units: usize,
    pub consumers: usize,
    pub producers: usize,
}
