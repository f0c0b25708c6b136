//! What puts need of the log's free space.
//!
//! Not here: how much there is (the surroundings say so).

/// Most bytes that the log takes for a put beside its body: records, checks, and its part of the
/// head and the padding of a batch.
const LOG_BYTES_BESIDE_A_BODY: u64 = 512;

/// Most bytes that the log takes for a get in a part of a commit: its record (17 at most, with its
/// prefix), and its part of the records of the part and of the head and the padding (a block) of a
/// batch that holds nothing else. What is decided instead of a get of which the outcome is another
/// takes no more in the long run of the completion.
const LOG_BYTES_OF_A_GET: u64 = 64;

/// Bytes of log that so many gets of a commit in parts need.
pub(crate) fn log_room_of_gets(gets: u64) -> u64 {
    gets.saturating_mul(LOG_BYTES_OF_A_GET).saturating_mul(2)
}

/// Bytes of log that a run needs for so many puts, or chunks, with bodies of `bytes` bytes. What
/// does not fit at the end of an extent is left free there, and the next extent begins with it: a
/// run takes less than twice its length.
pub(crate) fn log_room_of(bytes: u64, puts: u64) -> u64 {
    bytes.saturating_add(puts.saturating_mul(LOG_BYTES_BESIDE_A_BODY)).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use towline_types::limits;

    use super::*;
    use crate::{CommitId, Fact, MessageSequence, QueueId, record};

    fn bytes(fact: &Fact) -> u64 {
        let mut bytes = Vec::new();
        record::encode(fact, false, &mut bytes);
        let prefix = if bytes.len() < 32 { 1 } else { 2 };
        (prefix + bytes.len()) as u64
    }

    #[test]
    fn a_part_of_gets_alone_takes_no_more_than_is_counted_for_it() {
        const BLOCK_AND_HEAD: u64 = 4_096 + 40;
        let sequence = MessageSequence(crate::queue::SEQUENCE_END);
        let got = bytes(&Fact::Got { queue: QueueId(u32::MAX), sequence });
        let part = bytes(&Fact::Part { commit: CommitId(u64::MAX), operations: u32::MAX });
        let gets = limits::OPERATIONS_PER_PART as u64;
        assert!(gets * got + 2 * part + BLOCK_AND_HEAD <= gets * LOG_BYTES_OF_A_GET);
    }
}
