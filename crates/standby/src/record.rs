//! What an instance writes into the file of its epoch: its name, and that it lives. Only bytes.
//!
//! ```text
//! epoch-<16 hex digits>: 512 bytes, one sector, overwritten; numbers are little-endian
//!   0    8  "TWLLEASE"
//!   8    1  version, 1
//!   9    1  1 held, 2 given up
//!   10   2  zero
//!   12   4  how long the lease lasts, milliseconds
//!   16   8  epoch
//!   24   8  counter: grows with each renewal
//!   32   8  how far apart the holder's writes to the log can be, bytes
//!   40   2  length of the holder's name, at most 400
//!   42   n  the holder's name, host:pid, UTF-8; zeros behind it
//!   508  4  crc32c of bytes 0..508
//! ```
//!
//! Invariant: a record that is returned was whole.

/// Bytes of the file.
pub(crate) const RECORD_BYTES: usize = 512;
const SUMMED_BYTES: usize = RECORD_BYTES - 4;
const MAGIC: [u8; 8] = *b"TWLLEASE";
const VERSION: u8 = 1;
const HELD: u8 = 1;
const GIVEN_UP: u8 = 2;
const NAME_AT: usize = 42;
/// Longest name, bytes; the end of a longer one is left out.
const NAME_BYTES_MAX: usize = 400;

const _: () = assert!(NAME_AT + NAME_BYTES_MAX <= SUMMED_BYTES);

/// The content of an epoch's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    /// The holder has ended, and said so.
    pub(crate) given_up: bool,
    pub(crate) lease_ms: u32,
    pub(crate) epoch: u64,
    pub(crate) counter: u64,
    pub(crate) window_bytes: u64,
    pub(crate) holder: String,
}

impl LeaseRecord {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut end = self.holder.len().min(NAME_BYTES_MAX);
        while !self.holder.is_char_boundary(end) {
            end -= 1;
        }
        let name = self.holder.as_bytes().get(..end).unwrap_or(&[]);
        let Ok(length) = u16::try_from(name.len()) else {
            unreachable!("a name was cut to {NAME_BYTES_MAX} bytes")
        };
        let state = if self.given_up { GIVEN_UP } else { HELD };
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &[VERSION, state, 0, 0]);
        put(&mut bytes, 12, &self.lease_ms.to_le_bytes());
        put(&mut bytes, 16, &self.epoch.to_le_bytes());
        put(&mut bytes, 24, &self.counter.to_le_bytes());
        put(&mut bytes, 32, &self.window_bytes.to_le_bytes());
        put(&mut bytes, 40, &length.to_le_bytes());
        put(&mut bytes, NAME_AT, name);
        let sum = crc32c::crc32c(bytes.get(..SUMMED_BYTES).unwrap_or(&[]));
        put(&mut bytes, SUMMED_BYTES, &sum.to_le_bytes());
        bytes
    }

    /// `None`: half written, of a later version, or none at all.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LeaseRecord> {
        let sum = u32::from_le_bytes(take(bytes, SUMMED_BYTES)?);
        let [version, state, _, _] = take(bytes, 8)?;
        let is_ours = take(bytes, 0)? == MAGIC && version == VERSION;
        let is_state = state == HELD || state == GIVEN_UP;
        if !is_ours || !is_state || crc32c::crc32c(bytes.get(..SUMMED_BYTES)?) != sum {
            return None;
        }
        let length = usize::from(u16::from_le_bytes(take(bytes, 40)?)).min(NAME_BYTES_MAX);
        let name = bytes.get(NAME_AT..NAME_AT.checked_add(length)?)?;
        Some(LeaseRecord {
            given_up: state == GIVEN_UP,
            lease_ms: u32::from_le_bytes(take(bytes, 12)?),
            epoch: u64::from_le_bytes(take(bytes, 16)?),
            counter: u64::from_le_bytes(take(bytes, 24)?),
            window_bytes: u64::from_le_bytes(take(bytes, 32)?),
            holder: String::from_utf8_lossy(name).into_owned(),
        })
    }
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    let slot = at.checked_add(part.len()).and_then(|end| bytes.get_mut(at..end));
    if let Some(slot) = slot {
        slot.copy_from_slice(part);
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LeaseRecord {
        LeaseRecord {
            given_up: false,
            lease_ms: 2_000,
            epoch: 7,
            counter: 41,
            window_bytes: 8 << 20,
            holder: "häuser:12".into(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        assert_eq!(LeaseRecord::decode(&record().encode()), Some(record()));
        let given_up = LeaseRecord { given_up: true, ..record() };
        assert_eq!(LeaseRecord::decode(&given_up.encode()), Some(given_up));
    }

    #[test]
    fn half_a_record_and_a_changed_one_are_none() {
        let whole = record().encode();
        for length in 0..RECORD_BYTES {
            assert_eq!(LeaseRecord::decode(&whole[..length]), None, "{length}");
        }
        for at in 0..RECORD_BYTES {
            let mut bytes = whole;
            bytes[at] ^= 0x40;
            assert_eq!(LeaseRecord::decode(&bytes), None, "{at}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_between_characters() {
        let long = LeaseRecord { holder: "ä".repeat(400) + "x", ..record() };
        let back = LeaseRecord::decode(&long.encode()).unwrap();
        assert_eq!(back.holder, "ä".repeat(200));
    }
}
