//! Buffers that begin on a block boundary, as direct I/O demands, without unsafe code.
//!
//! Not here: what is in them.
//!
//! Invariant: `start` is where the content begins in `memory`; as long as the vector was not
//! reallocated, that is a multiple of 4 KiB in memory.

use bytes::Bytes;

use crate::format::BLOCK_BYTES;

/// A vector with a few unused bytes in front, so that the content is aligned.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// An empty buffer with a capacity of `capacity` bytes, padded to whole blocks.
    pub fn with_capacity(capacity: usize) -> Aligned {
        let memory = Vec::with_capacity(capacity.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES);
        Aligned::reuse(memory)
    }

    /// An empty buffer in memory that was used before.
    pub fn reuse(mut memory: Vec<u8>) -> Aligned {
        memory.clear();
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        assert!(start < BLOCK_BYTES, "a byte pointer can always be aligned");
        memory.resize(start, 0);
        Aligned { memory, start }
    }

    /// A buffer of `bytes` zeros.
    pub fn zeroed(bytes: usize) -> Aligned {
        let mut memory = vec![0; bytes + BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        assert!(start < BLOCK_BYTES, "a byte pointer can always be aligned");
        memory.truncate(start + bytes);
        Aligned { memory, start }
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    /// The content.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }

    /// The first `bytes` bytes of the content.
    ///
    /// # Panics
    /// When there are fewer: a read yields at most what it was given memory for.
    pub fn first(&self, bytes: usize) -> &[u8] {
        assert!(bytes <= self.len(), "a piece lies inside its buffer");
        &self.bytes()[..bytes]
    }

    /// The first `bytes` bytes of the content.
    ///
    /// # Panics
    /// As [`Aligned::first`].
    pub fn first_mut(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.len(), "a piece lies inside its buffer");
        &mut self.bytes_mut()[..bytes]
    }

    /// The content from `at` on, none of it behind the end.
    pub fn rest(&self, at: usize) -> &[u8] {
        &self.bytes()[at.min(self.len())..]
    }

    /// Length of the content.
    pub fn len(&self) -> usize {
        self.memory.len() - self.start
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector, to append content to it. Bytes that are there must not be touched.
    pub fn append_to(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Drops content from `bytes` on.
    pub fn truncate(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "truncation does not lengthen");
        self.memory.truncate(self.start + bytes);
    }

    /// Lengthens the content with zeros to whole blocks, and aligns it again if it was moved.
    pub fn pad(&mut self) {
        let bytes = self.len().next_multiple_of(BLOCK_BYTES);
        self.memory.resize(self.start + bytes, 0);
        if !self.memory.as_ptr().addr().wrapping_add(self.start).is_multiple_of(BLOCK_BYTES) {
            let mut moved = Aligned::with_capacity(bytes);
            moved.memory.extend_from_slice(self.bytes());
            *self = moved;
        }
    }

    /// The vector behind it, for [`Aligned::reuse`].
    pub fn into_memory(self) -> Vec<u8> {
        self.memory
    }

    /// The first `bytes` bytes of the content, without a copy.
    pub fn into_bytes(self, bytes: usize) -> Bytes {
        let end = self.start + bytes;
        assert!(end <= self.memory.len(), "a slice lies inside its buffer");
        Bytes::from(self.memory).slice(self.start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_aligned_even_after_the_vector_moved() {
        let mut buffer = Aligned::with_capacity(10);
        for byte in 0..20_000_usize {
            buffer.append_to().push(byte.to_le_bytes()[0]);
        }
        buffer.pad();
        assert_eq!(buffer.len(), 20_480);
        assert_eq!(buffer.bytes().as_ptr().addr() % BLOCK_BYTES, 0);
        assert_eq!(buffer.bytes()[19_999], 19_999_usize.to_le_bytes()[0]);
        assert_eq!(buffer.bytes()[20_000], 0);
    }

    #[test]
    fn memory_is_used_again_without_a_move() {
        let buffer = Aligned::zeroed(BLOCK_BYTES);
        let place = buffer.bytes().as_ptr();
        let mut again = Aligned::reuse(buffer.into_memory());
        assert_eq!(again.len(), 0);
        again.append_to().push(1);
        assert_eq!(again.bytes().as_ptr(), place);
        assert_eq!(again.into_bytes(1), Bytes::from_static(&[1]));
    }
}
