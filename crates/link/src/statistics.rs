//! What is counted of the link to one peer. Only numbers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::frame::FrameCost;

/// The link to one peer, as status and metrics want it. Counts are since the start of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Our connection to it stands: frames can be sent.
    pub connected_out: bool,
    /// Its connection to us stands: frames can arrive.
    pub connected_in: bool,
    /// Bytes of frames that wait to be written.
    pub queued_bytes: usize,
    /// The last ping's way there and back; `None` when there was none since it connected.
    pub round_trip_us: Option<u64>,
    /// Times that we connected.
    pub connects: u64,
    /// Frames written.
    pub sent_frames: u64,
    /// Bytes of those frames before compression.
    pub sent_bytes: u64,
    /// Bytes of those frames as they went out, without what TLS adds.
    pub sent_wire_bytes: u64,
    /// Time spent on compression.
    pub compression_us: u64,
    /// Frames that were not taken because too much waited, or there was no connection.
    pub dropped_frames: u64,
    /// Frames read.
    pub received_frames: u64,
    /// Bytes of those frames, unpacked.
    pub received_bytes: u64,
    /// Bytes of those frames as they came in, without what TLS adds.
    pub received_wire_bytes: u64,
    /// Time spent on decompression.
    pub decompression_us: u64,
}

/// The counters behind it.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    out: AtomicBool,
    incoming: AtomicBool,
    /// Microseconds and one; 0: unknown.
    round_trip: AtomicU64,
    connects: AtomicU64,
    sent: Flow,
    received: Flow,
    compression_ns: AtomicU64,
    decompression_ns: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Flow {
    frames: AtomicU64,
    bytes: AtomicU64,
    wire_bytes: AtomicU64,
}

impl Flow {
    fn add(&self, frames: usize, bytes: usize, wire_bytes: usize) {
        self.frames.fetch_add(frames as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.wire_bytes.fetch_add(wire_bytes as u64, Ordering::Relaxed);
    }
}

impl LinkCounters {
    pub(super) fn connected_out(&self, connected: bool) {
        self.out.store(connected, Ordering::Relaxed);
        self.forget_round_trip();
        self.connects.fetch_add(u64::from(connected), Ordering::Relaxed);
    }

    /// The last round trip was of a connection that ended.
    pub(super) fn forget_round_trip(&self) {
        self.round_trip.store(0, Ordering::Relaxed);
    }

    pub(super) fn connected_in(&self, connected: bool) {
        self.incoming.store(connected, Ordering::Relaxed);
    }

    pub(super) fn round_trip(&self, took: Duration) {
        self.round_trip.store(microseconds(took).saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn sent(&self, frames: usize, bytes: usize, wire_bytes: usize) {
        self.sent.add(frames, bytes, wire_bytes);
    }

    /// A frame whose body has so many bytes.
    pub(super) fn received(&self, bytes: usize, cost: FrameCost) {
        self.received.add(1, bytes, cost.wire_bytes);
        self.decompression_ns.fetch_add(nanoseconds(cost.decompression), Ordering::Relaxed);
    }

    pub(super) fn compressed(&self, took: Duration) {
        self.compression_ns.fetch_add(nanoseconds(took), Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn state(&self, queued_bytes: usize) -> LinkState {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkState {
            connected_out: self.out.load(Ordering::Relaxed),
            connected_in: self.incoming.load(Ordering::Relaxed),
            queued_bytes,
            round_trip_us: of(&self.round_trip).checked_sub(1),
            connects: of(&self.connects),
            sent_frames: of(&self.sent.frames),
            sent_bytes: of(&self.sent.bytes),
            sent_wire_bytes: of(&self.sent.wire_bytes),
            compression_us: of(&self.compression_ns) / 1_000,
            dropped_frames: of(&self.dropped),
            received_frames: of(&self.received.frames),
            received_bytes: of(&self.received.bytes),
            received_wire_bytes: of(&self.received.wire_bytes),
            decompression_us: of(&self.decompression_ns) / 1_000,
        }
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
