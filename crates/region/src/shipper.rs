//! The live side of one link between regions: what to send next, so that a window is in flight and
//! none of it is waited for.
//!
//! The owner reads batches from the log (memory or disk) and writes frames; this value keeps the
//! positions. It lives as long as the link: after any error the link ends, and the next one begins
//! where recovery then says that its log ends, never where this side believes it to be.
//!
//! Not here: when to connect again, reading the log, figures ([`Backlog`](crate::Backlog)).
//!
//! Invariants: only what is committed is sent; batches are sent in order, each once in the life of
//! a link; what was sent and is not received is never more than the window, unless it is one
//! batch; a recovery point that names what was never sent ends the link.

use std::fmt;

use towline_types::{Batch, BatchPlace, Lsn, Time};

use crate::wire::{Batches, RecoveryPoint};

/// Bytes of batches in one frame, unless a single one is longer: many clients share the link, and
/// a report must not wait long for its turn.
const FRAME_PAYLOAD_BYTES_MAX: u64 = 256 * 1024;

/// What to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Batches behind this index.
    pub behind: u64,
    /// Of so many bytes, headers and padding included; one at least.
    pub bytes_max: u64,
}

/// Why a link cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShippingError {
    /// Recovery has what was not sent on this link, nor stood in its log when the link began.
    BeyondSent {
        /// The end of what was sent.
        sent: Lsn,
        /// What recovery claims.
        claimed: Lsn,
    },
    /// A recovery point lies before one that came earlier.
    WentBack {
        /// The earlier one's end.
        from: Lsn,
        /// The later one's.
        to: Lsn,
    },
}

impl fmt::Display for ShippingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShippingError::BeyondSent { sent, claimed } => write!(
                out,
                "the recovery group reports position {claimed}, and was sent no more than {sent}"
            ),
            ShippingError::WentBack { from, to } => {
                write!(out, "the recovery point went back from {from} to {to}")
            }
        }
    }
}

impl std::error::Error for ShippingError {}

/// See the module.
#[derive(Clone, Debug)]
pub struct Shipper {
    window_bytes: u64,
    /// The last batch that was sent on this link, or that recovery had when it began.
    sent: BatchPlace,
    /// The newest that may be sent.
    committed: BatchPlace,
    committed_at: Time,
    /// What recovery said last.
    point: RecoveryPoint,
}

impl Shipper {
    /// A link that begins now: recovery's log ends with `has`, which is a batch of this log too.
    /// `window_bytes`: sent and not received at most.
    ///
    /// # Panics
    /// When the window is 0: nothing would ever be sent.
    #[must_use]
    pub fn begin(window_bytes: u64, has: BatchPlace) -> Shipper {
        assert!(window_bytes > 0, "a window of no bytes");
        let point = RecoveryPoint { received: has.end, ..RecoveryPoint::default() };
        Shipper { window_bytes, sent: has, committed: has, committed_at: Time::ZERO, point }
    }

    /// This batch and all before it are committed; `at`: by the clock of this instance.
    ///
    /// What is committed never goes back, but recovery's log may be longer than what this instance
    /// knows to be committed just after an election.
    pub fn committed(&mut self, place: BatchPlace, at: Time) {
        if place.index > self.committed.index {
            (self.committed, self.committed_at) = (place, at);
        }
    }

    /// Index of the newest batch that may be sent.
    #[must_use]
    pub fn committed_index(&self) -> u64 {
        self.committed.index
    }

    /// Bytes that were sent, or stood in the log before, and that recovery has not received.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.sent.end.0.saturating_sub(self.point.received.0)
    }

    /// What to send now; `None` until more is committed, or more was received.
    #[must_use]
    pub fn due(&self) -> Option<Send> {
        let room = self.window_bytes.saturating_sub(self.in_flight_bytes());
        if self.sent.index >= self.committed.index || room == 0 {
            return None;
        }
        let bytes_max = room.min(FRAME_PAYLOAD_BYTES_MAX);
        Some(Send { behind: self.sent.index, bytes_max })
    }

    /// The first frame of a link. It carries no batch: it says behind which one the others come,
    /// and the other region answers with how far it is. `term`: of live's leader.
    #[must_use]
    pub fn first(&self, term: u64) -> Batches {
        let (committed, committed_at) = (self.committed.end, self.committed_at);
        Batches { term, previous: self.sent, committed, committed_at, batches: Vec::new() }
    }

    /// The frame that carries these batches, which [`Shipper::due`] asked for: they count as sent.
    /// `term`: of live's leader.
    ///
    /// # Panics
    /// When there is none, they do not follow what was sent, one of them is not committed, or is of
    /// a later term.
    pub fn send(&mut self, term: u64, batches: Vec<Batch>) -> Batches {
        let previous = self.sent;
        for batch in &batches {
            assert_eq!(batch.index, self.sent.index + 1, "batches are sent without a gap");
            assert!(batch.index <= self.committed.index, "what is sent is committed");
            assert!(batch.term >= self.sent.term, "terms of a log never go back");
            self.sent = batch.place();
        }
        assert!(self.sent.index > previous.index, "a frame carries batches");
        assert!(self.sent.term <= term, "a leader's log has no later term than its own");
        let (committed, committed_at) = (self.committed.end, self.committed_at);
        Batches { term, previous, committed, committed_at, batches }
    }

    /// Recovery said how far it is.
    ///
    /// # Errors
    /// What it says cannot be; the link must end.
    pub fn point(&mut self, point: RecoveryPoint) -> Result<(), ShippingError> {
        let claimed = point.received.max(point.place.end);
        if claimed > self.sent.end || point.place.index > self.sent.index {
            return Err(ShippingError::BeyondSent { sent: self.sent.end, claimed });
        }
        let before = &self.point;
        if point.place.index < before.place.index || point.received < before.received {
            let ends = |point: &RecoveryPoint| point.received.max(point.place.end);
            return Err(ShippingError::WentBack { from: ends(before), to: ends(&point) });
        }
        self.point = point;
        Ok(())
    }

    /// What recovery said last on this link: nothing at its beginning.
    #[must_use]
    pub fn newest_point(&self) -> RecoveryPoint {
        self.point
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use towline_types::SeededRandom;

    use super::*;

    /// A log of batches, each of some bytes and padded to 4 KiB.
    fn log(lengths: &[usize]) -> Vec<Batch> {
        let mut lsn = 4_096;
        let batch = |(number, bytes): (usize, &usize)| {
            let payload = Bytes::from(vec![7; *bytes]);
            let batch = Batch { index: number as u64 + 1, term: 1, lsn: Lsn(lsn), payload };
            lsn = batch.end().0.next_multiple_of(4_096);
            batch
        };
        lengths.iter().enumerate().map(batch).collect()
    }

    fn received(shipper: &Shipper, upto: BatchPlace) -> RecoveryPoint {
        RecoveryPoint { place: upto, received: upto.end, ..shipper.newest_point() }
    }

    #[test]
    fn a_window_is_in_flight_and_none_of_it_is_waited_for() {
        let log = log(&[60_000; 40]);
        let mut shipper = Shipper::begin(1_000_000, BatchPlace::default());
        assert_eq!(shipper.due(), None, "nothing is committed");
        shipper.committed(log[39].place(), Time(9));
        let mut frames = 0;
        while let Some(Send { behind, .. }) = shipper.due() {
            let frame = shipper.send(1, vec![log[usize::try_from(behind).unwrap()].clone()]);
            assert_eq!((frame.previous.index, frame.committed), (behind, log[39].end()));
            frames += 1;
        }
        assert_eq!(frames, 17, "61,440 bytes each: the last one passes the window");
        assert!(shipper.in_flight_bytes() >= 1_000_000);
        shipper.point(received(&shipper, log[0].place())).unwrap();
        assert_eq!(shipper.due().unwrap().behind, 17, "as much more as was received");
    }

    #[test]
    fn the_first_frame_says_behind_which_batch_the_others_come() {
        let log = log(&[100; 5]);
        let shipper = Shipper::begin(1 << 20, log[2].place());
        let first = shipper.first(4);
        assert_eq!((first.term, first.previous), (4, log[2].place()));
        let (head, payloads) = first.encode();
        assert!(payloads.is_empty());
        assert_eq!(Batches::decode(&Bytes::from(head)), Ok(first));
    }

    #[test]
    fn only_what_is_committed_is_sent() {
        let log = log(&[100; 5]);
        let mut shipper = Shipper::begin(1 << 20, log[0].place());
        shipper.committed(log[2].place(), Time(1));
        assert_eq!(shipper.due().unwrap().behind, 1);
        shipper.send(1, log[1..3].to_vec());
        assert_eq!(shipper.due(), None);
        shipper.committed(log[1].place(), Time(2));
        assert_eq!(shipper.due(), None, "what is committed does not go back");
    }

    #[test]
    #[should_panic(expected = "what is sent is committed")]
    fn a_batch_that_is_not_committed_stops_the_instance() {
        let log = log(&[100; 5]);
        let mut shipper = Shipper::begin(1 << 20, log[0].place());
        shipper.committed(log[2].place(), Time(1));
        shipper.send(1, log[1..4].to_vec());
    }

    #[test]
    #[should_panic(expected = "without a gap")]
    fn a_gap_stops_the_instance() {
        let log = log(&[100; 5]);
        let mut shipper = Shipper::begin(1 << 20, log[0].place());
        shipper.committed(log[4].place(), Time(1));
        shipper.send(1, vec![log[1].clone(), log[3].clone()]);
    }

    #[test]
    fn a_point_that_cannot_be_ends_the_link() {
        let log = log(&[100; 5]);
        let mut shipper = Shipper::begin(1 << 20, log[0].place());
        shipper.committed(log[4].place(), Time(1));
        shipper.send(1, log[1..3].to_vec());
        let beyond = received(&shipper, log[3].place());
        assert!(matches!(shipper.point(beyond), Err(ShippingError::BeyondSent { .. })));
        shipper.point(received(&shipper, log[2].place())).unwrap();
        let back = received(&shipper, log[1].place());
        assert!(matches!(shipper.point(back), Err(ShippingError::WentBack { .. })));
        assert_eq!(shipper.newest_point().place, log[2].place());
    }

    #[test]
    fn a_relay_may_have_more_than_its_group() {
        let log = log(&[100; 5]);
        let mut shipper = Shipper::begin(1 << 20, log[2].place());
        let first = RecoveryPoint {
            place: log[1].place(),
            received: log[2].end(),
            ..RecoveryPoint::default()
        };
        shipper.point(first).unwrap();
        assert_eq!(shipper.newest_point().place, log[1].place());
        assert_eq!(shipper.in_flight_bytes(), 0);
    }

    /// A number below `bound`.
    fn drawn(random: &mut SeededRandom, bound: usize) -> usize {
        usize::try_from(random.below(bound as u64)).unwrap()
    }

    #[test]
    fn whatever_the_sizes_all_is_sent_once_in_order_within_the_window() {
        for seed in 0..200 {
            println!("seed {seed}");
            let mut random = SeededRandom::new(seed);
            let lengths: Vec<usize> = (0..60).map(|_| drawn(&mut random, 300_000)).collect();
            let log = log(&lengths);
            let window = 1 + random.below(2_000_000);
            let mut shipper = Shipper::begin(window, BatchPlace::default());
            let (mut sent, mut have) = (0, 0);
            while have < log.len() {
                match random.below(3) {
                    0 => {
                        let upto = drawn(&mut random, log.len());
                        shipper.committed(log[upto].place(), Time(1));
                    }
                    1 => {
                        let Some(Send { behind, bytes_max }) = shipper.due() else { continue };
                        assert_eq!(behind, sent as u64);
                        let before = shipper.in_flight_bytes();
                        let mut some = vec![log[sent].clone()];
                        let from = if sent == 0 { 0 } else { log[sent - 1].end().0 };
                        while let Some(next) = log.get(sent + some.len())
                            && next.index <= shipper.committed.index
                            && next.end().0 - from <= bytes_max
                        {
                            some.push(next.clone());
                        }
                        sent += some.len();
                        let single = some.len() == 1;
                        shipper.send(1, some);
                        assert!(shipper.in_flight_bytes() <= window || single, "{before}");
                    }
                    _ if sent > have => {
                        have += 1 + drawn(&mut random, sent - have);
                        shipper.point(received(&shipper, log[have - 1].place())).unwrap();
                    }
                    _ => shipper.committed(log[log.len() - 1].place(), Time(1)),
                }
            }
        }
    }
}
