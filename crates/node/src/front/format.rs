//! The message-format of a transfer (AMQP 2.8.11), kept with the content of its message.
//!
//! Nearly all messages have format 0 and carry nothing for it. Another format stands in front of
//! the content, as the only entry of a delivery-annotations section, so that every reader of the
//! content still reads sections:
//!
//! ```text
//!  0   3  00 53 71    delivery annotations (AMQP 3.2.2)
//!  3   3  c1 1c 02    map8, 28 bytes, one name and one value
//!  6  22  a3 14 ..    the symbol `x-opt-message-format`
//! 28   5  70 ..       the format, big endian
//! ```
//!
//! It does not judge formats: content that is not made of AMQP sections was refused before.
//!
//! Invariant: content that came from a client begins with no delivery annotations (they are for one
//! hop, and taken off), so what stands there is ours.

use bytes::{BufMut, BytesMut};
use towline_types::Payload;

/// All but the format itself.
const MARK: &[u8; 29] = b"\x00\x53\x71\xc1\x1c\x02\xa3\x14x-opt-message-format\x70";
/// Bytes of the format.
const FORMAT_BYTES: usize = 4;

/// The content with its format.
pub(super) fn with_format(content: Payload, format: u32) -> Payload {
    if format == 0 {
        return content;
    }
    let mut mark = BytesMut::with_capacity(MARK.len() + FORMAT_BYTES);
    mark.put_slice(MARK);
    mark.put_u32(format);
    let mut marked = Payload::from(mark.freeze());
    content.pieces().iter().for_each(|piece| marked.push(piece.clone()));
    marked
}

/// How much longer the content is with its format.
pub(super) const fn mark_bytes(format: u32) -> usize {
    if format == 0 { 0 } else { MARK.len() + FORMAT_BYTES }
}

/// The format, and the content as it came.
pub(super) fn without_format(mut content: Payload) -> (u32, Payload) {
    let format = content
        .pieces()
        .first()
        .and_then(|first| first.strip_prefix(MARK))
        .and_then(|rest| rest.first_chunk::<FORMAT_BYTES>());
    let Some(format) = format.copied().map(u32::from_be_bytes) else { return (0, content) };
    content.advance(MARK.len() + FORMAT_BYTES);
    (format, content)
}

#[cfg(test)]
mod tests {
    use towline_amqp::codec::Value;
    use towline_amqp::sections::{MessageBuilder, Sections};

    use super::*;

    fn content() -> Payload {
        Payload::from(MessageBuilder::new().value(Value::String("body")))
    }

    #[test]
    fn a_format_comes_back_with_the_content_as_it_was() {
        for format in [1, 0x8001_3700, u32::MAX] {
            // As it comes from the log: in one piece.
            let stored = Payload::from(with_format(content(), format).to_owned_bytes());
            assert_eq!(without_format(stored), (format, content()));
        }
    }

    #[test]
    fn format_0_costs_no_byte() {
        let stored = with_format(content(), 0);
        assert_eq!(stored, content());
        assert_eq!(without_format(stored), (0, content()));
    }

    #[test]
    fn content_with_a_format_is_still_made_of_sections() {
        let stored = with_format(content(), 7).to_contiguous();
        let sections = Sections::scan_checked(&stored).unwrap();
        assert_eq!(sections.value(&stored), Some(Value::String("body")));
        let marked = sections.delivery_annotations.unwrap();
        let map =
            Value::decode(&mut towline_amqp::codec::Reader::new(&stored[marked.value_range()]));
        let Ok(Value::Map(map)) = map else { panic!("not a map: {map:?}") };
        assert_eq!(map.get("x-opt-message-format"), Some(Value::Uint(7)));
    }

    #[test]
    fn a_mark_that_is_cut_short_is_content() {
        for bytes in 0..MARK.len() + FORMAT_BYTES {
            let cut = with_format(content(), 7).to_contiguous().slice(..bytes);
            assert_eq!(without_format(Payload::from(cut.clone())), (0, Payload::from(cut)));
        }
    }
}
