//! Where one frame of AMQP ends and the next one begins in what a client was given, so that a relay
//! that must let it go can say why in a frame of its own.
//!
//! It looks at sizes only (AMQP 2.3.1) and at protocol headers (2.2); TLS cannot be looked into,
//! and is not given to it. Not here: what the frames mean. Invariant: when in doubt there is no
//! boundary.

/// Bytes by which a frame is distinguished from a protocol header, and its size is known.
const SIZE_BYTES: usize = 4;
const HEADER: &[u8; SIZE_BYTES] = b"AMQP";
/// Bytes of a protocol header, and the least of a frame.
const LEAST: usize = 8;
/// Protocol id of AMQP itself in a header; others are SASL and TLS.
const PLAIN: u8 = 0;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    /// The beginning of what comes now.
    begun: Vec<u8>,
    /// Bytes of a frame that are still to come.
    missing: usize,
    /// The last protocol header was that of AMQP itself.
    is_amqp: bool,
    /// A whole frame came since: the open frame.
    is_open: bool,
    /// These bytes are no AMQP.
    lost: bool,
}

impl Boundary {
    /// The client was given these bytes.
    pub(super) fn passed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            if self.missing > 0 {
                let taken = self.missing.min(bytes.len());
                bytes = bytes.get(taken..).unwrap_or_default();
                self.missing -= taken;
                self.is_open |= self.missing == 0 && self.is_amqp;
                continue;
            }
            let taken = (LEAST - self.begun.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(taken);
            self.begun.extend_from_slice(head);
            bytes = rest;
            if self.begun.len() == LEAST {
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        let Some(size) = begun.first_chunk::<SIZE_BYTES>() else { return };
        if size == HEADER {
            self.is_amqp = begun.get(SIZE_BYTES) == Some(&PLAIN);
            return;
        }
        let size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
        match size.checked_sub(LEAST) {
            Some(missing) => {
                self.missing = missing;
                self.is_open |= missing == 0 && self.is_amqp;
            }
            None => self.lost = true,
        }
    }

    /// Whether a frame may follow, in a connection that was opened.
    pub(super) fn takes_a_frame(&self) -> bool {
        !self.lost && self.is_open && self.missing == 0 && self.begun.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";
    const AMQP: &[u8] = b"AMQP\x00\x01\x00\x00";

    fn frame(bytes: usize) -> Vec<u8> {
        let size = u32::try_from(bytes).unwrap().to_be_bytes();
        [&size[..], &[2, 0, 0, 0], &vec![0; bytes - 8]].concat()
    }

    #[test]
    fn a_frame_may_follow_at_the_end_of_each_frame_of_an_open_connection_however_the_bytes_come() {
        let opened = [SASL, &frame(30), &frame(26), AMQP, &frame(100)].concat();
        let stream = [&opened[..], &frame(8), &frame(9)].concat();
        let ends = [opened.len(), opened.len() + 8, opened.len() + 17];
        for piece in [1, 3, 7, 100, 1_000] {
            let mut boundary = Boundary::default();
            let mut at = 0;
            for bytes in stream.chunks(piece) {
                boundary.passed(bytes);
                at += bytes.len();
                assert_eq!(boundary.takes_a_frame(), ends.contains(&at), "{piece} {at}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_amqp_have_no_boundary() {
        let mut boundary = Boundary::default();
        boundary.passed(&[AMQP, &frame(20), &[0, 0, 0, 7, 0, 0, 0, 0], &frame(20)].concat());
        assert!(!boundary.takes_a_frame());
    }
}
