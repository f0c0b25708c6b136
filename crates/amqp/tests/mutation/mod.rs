//! Well-formed bytes with faults put in, for the fuzz targets: pure noise never gets past the first
//! byte of a decoder.

/// How to spoil bytes: which sample, where to cut it, what to overwrite, what to put behind it.
pub(crate) type Mutation = (u8, u16, Vec<(u16, u8)>, Vec<u8>);

/// The sample that the mutation picks, spoiled.
pub(crate) fn spoiled(samples: &[Vec<u8>], mutation: &Mutation) -> Vec<u8> {
    let (pick, cut, edits, tail) = mutation;
    let mut bytes =
        samples.get(usize::from(*pick) % samples.len().max(1)).cloned().unwrap_or_default();
    for (at, byte) in edits.iter().take(usize::from(cut % 4)) {
        let at = usize::from(*at) % bytes.len().max(1);
        if let Some(place) = bytes.get_mut(at) {
            *place = *byte;
        }
    }
    if cut % 7 == 0 {
        bytes.truncate(usize::from(*cut) % (bytes.len() + 1));
    }
    if cut % 11 == 0 {
        bytes.extend_from_slice(tail);
    }
    bytes
}
