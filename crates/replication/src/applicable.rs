//! What may be applied next, as the driver gives it out: batches from memory, or positions to be
//! read.
//!
//! Not here: reading and applying (`replica`).

use towline_group::Member;
use towline_types::{Batch, BatchPlace};

/// Positions given out at once.
const PLACES_AT_ONCE: u64 = 1_024;

/// What may be applied behind a batch.
pub enum CommittedBatches {
    /// In memory.
    Batches(Vec<Batch>),
    /// To be read. Empty: there is nothing.
    Places(Vec<BatchPlace>),
}

impl CommittedBatches {
    pub(crate) fn of(member: &Member, index: u64, bytes_max: usize) -> CommittedBatches {
        let mut batches = Vec::new();
        let mut bytes = 0;
        for next in index + 1..=member.committed() {
            let Some(batch) = member.batch(next) else { break };
            bytes += batch.payload.len() + 64;
            batches.push(batch);
            if bytes >= bytes_max {
                break;
            }
        }
        if !batches.is_empty() {
            return CommittedBatches::Batches(batches);
        }
        let until = member.committed().min(index + PLACES_AT_ONCE);
        CommittedBatches::Places((index + 1..=until).map_while(|next| member.place(next)).collect())
    }
}
