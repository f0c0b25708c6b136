//! What a live group ships to a recovery member, and what that one answers.
//!
//! Not here: how it travels between regions, and how fast; what a member does with it
//! (`member::recovery`).

use towline_types::{Batch, BatchPlace};

/// Committed batches of a live group, in order and without gap. Any number of them may be on their
/// way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shipment {
    /// The term of the live group's leader, not less than that of any batch: it says which timeline
    /// the log is of that these batches are of.
    pub term: u64,
    /// The batch before the first one of these; all zero at the beginning of the log.
    pub previous: BatchPlace,
    /// None: the live group only wants to hear how far this group is.
    pub batches: Vec<Batch>,
}

/// How far a recovery group is, as the member knows that the live group ships to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShippedAnswer {
    /// Up to here this member has received the live group's log, without gap. All zero before the
    /// first shipment that fits.
    pub received: BatchPlace,
    /// Up to here it has that on its own disk.
    pub durable: BatchPlace,
    /// Up to here a majority of the recovery group has it durably: the recovery point. A promotion
    /// never loses any of this.
    pub recovery_point: BatchPlace,
    /// The newest batch of it that a majority acknowledged to this member since it is shipped to.
    /// Less than the recovery point while the others have not answered; a member whose log was
    /// replaced by a copy knows nothing better.
    pub majority: BatchPlace,
    /// Why the newest shipment was not taken; nothing of it was.
    pub refused: Option<ShipmentRefusal>,
}

/// Why a shipment was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShipmentRefusal {
    /// It begins behind a gap, or before what is known here.
    SendFrom {
        /// Index of the batch to send next.
        index: u64,
        /// Index of the batch before those that were refused: several shipments that were on their
        /// way are refused for one gap.
        refused: u64,
    },
    /// This member starts, and does not take part yet; or its group has to enter the timeline of
    /// what is shipped first. The same again with the next answer, or a little later.
    NotYet,
    /// It votes, or takes no more of this history: it is promoted, or another region is live.
    Promoted,
    /// The logs have different batches at one position: this group has a tail of its own, or the
    /// histories were not compared.
    Diverged {
        /// Index of that position.
        index: u64,
    },
}
