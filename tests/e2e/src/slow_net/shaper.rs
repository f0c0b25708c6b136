//! The queueing rule of one way of a line: how many bytes may be taken now, and when they arrive.
//!
//! Time is an argument, counted from any beginning; a test simulates it. The bandwidth belongs to
//! the way: all connections share it, first come, first served. What does not fit on the line
//! waits at its sender, not here: no more is taken than the line sends in [`QUEUE`].
//!
//! Not here: sockets; what is on the way between its departure and its arrival.

use std::time::Duration;

/// Bytes that are taken at once where no bandwidth is set.
pub(super) const PIECE_BYTES: usize = 256 * 1024;
/// The least that is taken at once: what a TCP segment carries on Ethernet (1,500 less headers).
const SEGMENT_BYTES: u64 = 1_448;
/// Time on a narrow line that is taken at once: what is sent arrives as evenly as this.
const PIECE: Duration = Duration::from_millis(1);
/// Time on the line that may be taken ahead: what waits in the router before it.
const QUEUE: Duration = Duration::from_millis(5);
/// Time on the line that may be made up for when the proxy itself was late: a busy machine does not
/// make a narrower line.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Bytes of one connection and way that are in the proxy at most: 6.7 Gbit/s for 20 ms. Beyond it
/// nothing is read, so that the sender's TCP stops it.
pub(super) const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The narrowest line: one segment in 0.2 s. A narrower one would keep a new bandwidth waiting for
/// what was taken before.
pub const BITS_PER_S_MIN: u64 = 64_000;

const _: () = assert!(HELD_BYTES_MAX >= 2 * PIECE_BYTES);

/// How one way is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Added to each byte's way.
    pub delay: Duration,
    /// Bits a second of all connections together; 0: no bound.
    pub bits_per_s: u64,
    /// Nothing passes, and new connections do not reach the target.
    pub cut: bool,
    /// Nothing passes, but new connections reach the target.
    pub stalled: bool,
}

impl Line {
    /// Whether bytes are taken and given.
    pub(super) fn passes(&self) -> bool {
        !self.cut && !self.stalled
    }

    /// Bytes of one connection that may be in the proxy: what is on a line of this bandwidth and
    /// delay, twice, so that a late thread does not stop it, and at most [`HELD_BYTES_MAX`].
    pub(super) fn held_bytes_max(&self) -> usize {
        if self.bits_per_s == 0 {
            return HELD_BYTES_MAX;
        }
        let on_the_line = self.bytes_in(self.delay + QUEUE);
        usize::try_from(2 * on_the_line)
            .unwrap_or(HELD_BYTES_MAX)
            .clamp(2 * self.piece_bytes(), HELD_BYTES_MAX)
    }

    /// Bytes that are taken at once.
    pub(super) fn piece_bytes(&self) -> usize {
        if self.bits_per_s == 0 {
            return PIECE_BYTES;
        }
        let piece = self.bytes_in(PIECE).max(SEGMENT_BYTES);
        usize::try_from(piece).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)
    }

    /// Bytes that the line sends in a time; a bandwidth is set.
    fn bytes_in(&self, time: Duration) -> u64 {
        let bits = u128::from(self.bits_per_s).saturating_mul(time.as_nanos()) / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
    }

    /// Time that bytes take to be sent.
    fn time_of(&self, bytes: usize) -> Duration {
        if self.bits_per_s == 0 {
            return Duration::ZERO;
        }
        let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(self.bits_per_s);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Whether bytes may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// So many at most, now.
    Bytes(usize),
    /// None before this time.
    From(Duration),
}

/// One way of a line, with what was taken for it.
#[derive(Debug, Default)]
pub(super) struct Shaper {
    /// When the last byte that was taken has been sent.
    free_at: Duration,
}

impl Shaper {
    /// What may be taken at a time.
    pub(super) fn admit(&self, now: Duration, line: &Line) -> Admission {
        let ahead = self.free_at.saturating_sub(now);
        if line.bits_per_s > 0 && ahead > QUEUE {
            return Admission::From(self.free_at.saturating_sub(QUEUE));
        }
        Admission::Bytes(line.piece_bytes())
    }

    /// Takes bytes that have waited for nothing but the line since a time; when their last one
    /// arrives. The delay begins when they are taken.
    pub(super) fn take(
        &mut self,
        now: Duration,
        since: Duration,
        bytes: usize,
        line: &Line,
    ) -> Duration {
        let since = since.clamp(now.saturating_sub(CATCH_UP), now);
        self.free_at = self.free_at.max(since) + line.time_of(bytes);
        self.free_at.max(now) + line.delay
    }

    /// The bandwidth changed: what was taken keeps its time, what comes now does not wait for it.
    pub(super) fn restart(&mut self, now: Duration) {
        self.free_at = self.free_at.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(bits_per_s: u64, delay: Duration) -> Line {
        Line { bits_per_s, delay, ..Line::default() }
    }

    /// Takes for so long all that may be taken; bytes, and the arrival of the last one.
    fn greedy(
        shaper: &mut Shaper,
        line: &Line,
        from: Duration,
        until: Duration,
    ) -> (u64, Duration) {
        let (mut now, mut taken, mut last) = (from, 0, Duration::ZERO);
        while now < until {
            match shaper.admit(now, line) {
                Admission::Bytes(bytes) => {
                    let arrival = shaper.take(now, now, bytes, line);
                    assert!(arrival >= last, "bytes of one way never overtake each other");
                    (taken, last) = (taken + bytes as u64, arrival);
                }
                Admission::From(at) => {
                    assert!(at > now, "{at:?} is to be waited for at {now:?}");
                    now = at;
                }
            }
        }
        (taken, last)
    }

    #[test]
    fn a_wide_line_only_delays() {
        let (mut shaper, line) = (Shaper::default(), line(0, 20 * MS));
        for now in [0, 1, 1, 7] {
            assert_eq!(shaper.admit(now * MS, &line), Admission::Bytes(PIECE_BYTES));
            assert_eq!(shaper.take(now * MS, now * MS, PIECE_BYTES, &line), (now + 20) * MS);
        }
    }

    #[test]
    fn a_narrow_line_sends_its_bandwidth_and_no_more() {
        for bits_per_s in [BITS_PER_S_MIN, 1_000_000, 50_000_000, 1_000_000_000, 40_000_000_000] {
            let (mut shaper, line) = (Shaper::default(), line(bits_per_s, 20 * MS));
            let (taken, last) = greedy(&mut shaper, &line, Duration::ZERO, 10_000 * MS);
            let on_the_line = (last - line.delay).as_secs_f64();
            let bits = taken as f64 * 8.0 / on_the_line;
            assert!((bits / bits_per_s as f64 - 1.0).abs() < 0.001, "{bits} of {bits_per_s}");
            let ahead = last - line.delay - 10_000 * MS;
            assert!(ahead <= QUEUE + line.time_of(line.piece_bytes()), "{ahead:?} taken ahead");
        }
    }

    #[test]
    fn a_line_that_was_idle_owes_nothing() {
        let (mut shaper, line) = (Shaper::default(), line(8_000_000, 20 * MS));
        // 1,000 bytes take a millisecond, whatever the time before.
        assert_eq!(shaper.take(Duration::ZERO, Duration::ZERO, 1_000, &line), 21 * MS);
        assert_eq!(shaper.take(Duration::ZERO, Duration::ZERO, 1_000, &line), 22 * MS);
        assert_eq!(shaper.take(5_000 * MS, 5_000 * MS, 1_000, &line), 5_021 * MS);
        assert_eq!(shaper.take(5_000 * MS, 5_000 * MS, 1_000, &line), 5_022 * MS);
    }

    #[test]
    fn connections_share_the_line() {
        let (mut shaper, line) = (Shaper::default(), line(8_000_000, Duration::ZERO));
        let arrivals = [(); 4].map(|()| shaper.take(3 * MS, 3 * MS, 500, &line));
        assert_eq!(arrivals, [7, 8, 9, 10].map(|halves| halves * MS / 2));
    }

    #[test]
    fn a_late_proxy_does_not_make_a_narrower_line() {
        for (late, least) in [(3, 49_000_000), (30, 49_000_000), (300, 0)] {
            let (mut shaper, line) = (Shaper::default(), line(50_000_000, 20 * MS));
            let (mut now, mut taken) = (Duration::ZERO, 0);
            while now < 3_000 * MS {
                match shaper.admit(now, &line) {
                    Admission::Bytes(bytes) => {
                        taken += bytes as u64;
                        // There was always something to take; the delay is kept all the same.
                        let arrival = shaper.take(now, Duration::ZERO, bytes, &line);
                        assert!(arrival >= now + line.delay);
                    }
                    Admission::From(at) => now = at + late * MS,
                }
            }
            let bits = taken * 8 / 3;
            assert!(bits >= least && bits <= 50_000_000 * 102 / 100, "{bits} a second, {late} ms");
        }
    }

    #[test]
    fn a_new_bandwidth_does_not_wait_for_what_was_taken_before() {
        let mut shaper = Shaper::default();
        shaper.take(Duration::ZERO, Duration::ZERO, 1_448, &line(BITS_PER_S_MIN, Duration::ZERO));
        let wide = line(8_000_000, Duration::ZERO);
        assert!(matches!(shaper.admit(MS, &wide), Admission::From(_)));
        shaper.restart(MS);
        assert_eq!(shaper.take(MS, MS, 1_000, &wide), 2 * MS);
    }

    #[test]
    fn what_is_held_is_what_is_on_the_line_and_bounded() {
        assert_eq!(line(0, 20 * MS).held_bytes_max(), HELD_BYTES_MAX);
        // 6,250 bytes a millisecond, 20 + 5 ms, twice.
        assert_eq!(line(50_000_000, 20 * MS).held_bytes_max(), 312_500);
        assert_eq!(line(BITS_PER_S_MIN, Duration::ZERO).held_bytes_max(), 2 * 1_448);
        assert_eq!(line(u64::MAX, Duration::MAX / 2).held_bytes_max(), HELD_BYTES_MAX);
    }
}
