//! What puts need of the log's free space.
//!
//! Not here: how much there is (the surroundings say so).

/// Most bytes that the log takes for a put beside its body: records, checks, and its part of the
/// head and the padding of a batch.
const LOG_BYTES_BESIDE_A_BODY: u64 = 512;

/// Bytes of log that a run needs for so many puts, or chunks, with bodies of `bytes` bytes. What
/// does not fit at the end of an extent is left free there, and the next extent begins with it: a
/// run takes less than twice its length.
pub(crate) fn log_room_of(bytes: u64, puts: u64) -> u64 {
    bytes.saturating_add(puts.saturating_mul(LOG_BYTES_BESIDE_A_BODY)).saturating_mul(2)
}
