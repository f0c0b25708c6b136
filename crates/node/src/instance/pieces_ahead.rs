//! How much of large messages, and of commits in parts, the log has and its disk does not: what
//! others log stands behind it and waits as long as that is being written. So it is bounded, by far
//! less than what others may have on its way there.
//!
//! Not here: when a piece has its turn (`client_work`). What others have on its way does not count:
//! producers that never stop would have a commit wait for ever.

use std::collections::VecDeque;

use towline_types::{Lsn, limits};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct PiecesAhead {
    bytes: u64,
    /// Where each run of pieces ends, and its length, in order.
    runs: VecDeque<(Lsn, u64)>,
}

impl PiecesAhead {
    /// Whether the next piece waits until some are durable.
    pub(super) fn are_enough(&self) -> bool {
        self.bytes >= limits::PIECES_AHEAD_BYTES
    }

    /// A run of pieces went to the log.
    pub(super) fn went(&mut self, end: Lsn, bytes: u64) {
        self.bytes += bytes;
        self.runs.push_back((end, bytes));
    }

    /// The log is durable up to here.
    pub(super) fn are_durable(&mut self, upto: Lsn) {
        while let Some((_, bytes)) = self.runs.pop_front_if(|(end, _)| *end <= upto) {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_enough_at_their_bound_and_until_the_oldest_is_durable() {
        const PIECE: u64 = limits::PIECES_AHEAD_BYTES / 2;
        let mut ahead = PiecesAhead::default();
        ahead.went(Lsn(10), PIECE - 1);
        ahead.went(Lsn(20), PIECE);
        assert!(!ahead.are_enough());
        ahead.went(Lsn(30), 1);
        assert!(ahead.are_enough());
        ahead.are_durable(Lsn(9));
        assert!(ahead.are_enough(), "none of them is");
        ahead.are_durable(Lsn(10));
        assert!(!ahead.are_enough());
        ahead.are_durable(Lsn(30));
        assert_eq!((ahead.bytes, ahead.runs.len()), (0, 0));
    }
}
