//! Memory for frames that are being read.
//!
//! Not here: sockets. Invariant: a peer that announces a frame gets no more memory for it than a
//! bound, or twice what it has sent.

use bytes::BytesMut;

use super::frame;

/// The least that is reserved for reading frames, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Free bytes for each read, at least: a record of TLS.
const RECORD_BYTES: usize = 16 * 1024;
/// Bytes reserved for a frame on the word of its header; beyond it, never more than twice what
/// has come.
const BELIEVED_BYTES: usize = 256 * 1024;

/// For the rest of a frame at once: to grow step by step would copy what has come each time.
pub(super) fn reserve_for_next_read(input: &mut BytesMut) {
    let believed = input.len().max(BELIEVED_BYTES);
    let wanted = frame::missing(input).min(believed).max(RECORD_BYTES);
    if input.capacity() - input.len() < wanted {
        input.reserve((wanted + RECORD_BYTES).max(READ_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a frame with `sent` bytes in its header.
    fn begun(sent: u32, came: usize) -> BytesMut {
        let mut input = BytesMut::with_capacity(came);
        input.extend_from_slice(&sent.to_le_bytes());
        input.resize(came, 0);
        input
    }

    fn room(input: &BytesMut) -> usize {
        input.capacity() - input.len()
    }

    #[test]
    fn a_frame_gets_capacity_for_all_of_it_at_once() {
        let mut input = begun(90_000, 16_000);
        reserve_for_next_read(&mut input);
        let missing = frame::missing(&input);
        assert!(missing > 74_000 && room(&input) >= missing);
        let (place, had) = (input.as_ptr(), input.capacity());
        input.resize(16_000 + missing, 0);
        assert_eq!((input.as_ptr(), input.capacity()), (place, had), "it does not move meanwhile");
    }

    #[test]
    fn a_header_is_believed_up_to_a_bound_and_then_up_to_twice_what_has_come() {
        let mut input = begun(u32::MAX, 100);
        reserve_for_next_read(&mut input);
        assert!(room(&input) <= 2 * (BELIEVED_BYTES + RECORD_BYTES));
        let mut input = begun(u32::MAX, 4 * BELIEVED_BYTES);
        reserve_for_next_read(&mut input);
        assert!(room(&input) >= 4 * BELIEVED_BYTES && room(&input) <= 8 * BELIEVED_BYTES);
    }

    #[test]
    fn where_no_frame_has_begun_there_is_capacity_for_a_record() {
        let mut input = BytesMut::new();
        reserve_for_next_read(&mut input);
        assert!(room(&input) >= READ_BYTES);
        let mut input = BytesMut::with_capacity(RECORD_BYTES + 1);
        let had = input.capacity();
        reserve_for_next_read(&mut input);
        assert_eq!(input.capacity(), had);
    }
}
