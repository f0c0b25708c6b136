//! The log of this instance as it is shipped to another region.
//!
//! Not here: what is shipped when (`region_shipping`).

use towline_types::{Batch, BatchPlace};

use super::Driver;
use crate::applicable::CommittedBatches;
use crate::region_position::ShippedLog;
use crate::repair;

impl ShippedLog for Driver {
    fn term(&self) -> u64 {
        self.look(|core| core.member.progress().term)
    }

    fn committed(&self) -> BatchPlace {
        self.look(|core| core.member.committed_place())
    }

    fn place(&self, index: u64) -> Option<BatchPlace> {
        self.look(|core| core.member.place(index))
    }

    fn known_behind(&self) -> u64 {
        self.look(|core| core.member.progress().base.index)
    }

    fn behind(&self, index: u64, bytes_max: u64) -> Result<Vec<Batch>, String> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match self.committed_behind(index, bytes_max) {
            CommittedBatches::Batches(batches) => Ok(batches),
            CommittedBatches::Places(places) if places.is_empty() => Ok(Vec::new()),
            CommittedBatches::Places(places) => {
                repair::read_batches(self, &places, bytes_max).map_err(|error| error.to_string())
            }
        }
    }

    fn sum(&self, place: BatchPlace) -> Option<u32> {
        self.sum_of(place)
    }
}
