//! Start of the log of an instance of a group.
//!
//! Not here: what the group decided. The log of such an instance may go on with the term it has: its
//! leader wrote on while it was away. What recovery cuts off is erased, so nothing of it can pass for
//! what comes instead.

use std::sync::Arc;

use towline_types::BatchPlace;

use super::{Recovery, repair};
use crate::error::LogError;
use crate::log::{Listener, Log};
use crate::member::{Known, Replicator};

impl Recovery {
    /// Has replay remember the batches that it reads, 48 bytes for each: for [`Recovery::places`] and
    /// [`Recovery::start_following`]. To be called before replay.
    ///
    /// # Panics
    /// When replay went well already.
    pub fn keep_places(&mut self) {
        assert!(self.tail.is_none(), "places are kept from the beginning of replay on");
        self.keeps_places = true;
    }

    /// Places of the batches that replay read, in order, and the batch behind which it began: with
    /// index and term 0 and no place at the beginning of a log. When what is before the first batch
    /// is not known (reading began at the oldest extent, or with an image of format version 1), that
    /// one is the base.
    ///
    /// # Panics
    /// Before replay, or without [`Recovery::keep_places`].
    #[must_use]
    pub fn places(&self) -> (BatchPlace, Vec<BatchPlace>) {
        assert!(self.tail.is_some(), "places are known after replay");
        assert!(self.keeps_places, "places are known when they were asked for");
        let mut places = self.known.iter().map(Known::place);
        (places.next().unwrap_or_default(), places.collect())
    }

    /// Starts the log *following*: it takes batches by [`Log::receive`] alone, until [`Log::lead`].
    /// `replicator` hears of what it writes from then on. Replays into nothing when that was not done.
    ///
    /// # Errors
    /// [`LogError`].
    ///
    /// # Panics
    /// When replay was done without [`Recovery::keep_places`].
    pub fn start_following(
        mut self,
        listener: Arc<dyn Listener>,
        replicator: Arc<dyn Replicator>,
    ) -> Result<Log, LogError> {
        if self.tail.is_none() {
            self.keep_places();
        }
        self.replay_into_nothing()?;
        assert!(self.keeps_places, "a member's log knows its batches");
        let begins = repair::Begins::Following(replicator);
        Log::run(Arc::new(self.into_shared(listener, begins)?))
    }
}
