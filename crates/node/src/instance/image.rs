//! Images: what must be known to read the log without its oldest extents.

use towline_core::{Body, CarryCursor, MessageSequence, QueueId};
use towline_types::Lsn;

use super::Instance;

/// A live body in an old extent: read it, then step the instance with [`super::Input::Carry`].
#[derive(Debug)]
pub struct OldBody {
    /// Whose.
    pub queue: QueueId,
    /// Which.
    pub sequence: MessageSequence,
    /// Where it is.
    pub body: Body,
}

/// What to write, and what can go once it is written.
#[derive(Debug)]
pub struct ImagePlan {
    /// The image, for [`crate::Restart::begin`]: the position up to which it speaks (8 bytes, little
    /// endian), then the rules' snapshot.
    pub bytes: Vec<u8>,
    /// Start of the oldest extent that holds a live body. Restart reads the log from here on; the
    /// extents before it can go.
    pub keep_from: Lsn,
}

impl Instance {
    /// Start of the oldest extent that must stay, as things are now.
    #[must_use]
    pub fn keep_from(&self) -> Lsn {
        // The extent that holds the last applied byte stays in any case.
        let applied = self.live.extent_start(Lsn(self.applied.0.saturating_sub(1)));
        self.live.oldest().map_or(applied, |oldest| oldest.min(applied))
    }

    /// An image of what is applied now.
    #[must_use]
    pub fn plan_image(&self) -> ImagePlan {
        let mut bytes = self.applied.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.rules.snapshot());
        ImagePlan { bytes, keep_from: self.keep_from() }
    }

    /// Bytes of live bodies in the log.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live.bytes()
    }

    /// Looks for live bodies before `before`, a bounded number of messages at a time. True: all
    /// messages have been looked at.
    pub fn find_old(
        &self,
        before: Lsn,
        cursor: &mut CarryCursor,
        found: &mut Vec<OldBody>,
    ) -> bool {
        const LOOKS_MAX: usize = 1_000;
        let mut messages = Vec::new();
        let done = self.rules.find_old(before, cursor, LOOKS_MAX, &mut messages);
        let old = messages.into_iter();
        found.extend(old.map(|(queue, sequence, body)| OldBody { queue, sequence, body }));
        done
    }
}
