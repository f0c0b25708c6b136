//! Texts in a hello and its terms: one byte of length, then UTF-8.
//!
//! Not here: what they mean. Invariant: a text that is too long is cut between two characters.

use bytes::{Buf, BufMut};
use towline_types::fitting;

/// One byte of length, then as much of the text as fits.
pub(super) fn put_text(body: &mut Vec<u8>, text: &str) {
    let text = beginning(text, usize::from(u8::MAX));
    body.put_u8(fitting(text.len()));
    body.put_slice(text.as_bytes());
}

/// Reads one; `None` when the bytes end early or are no UTF-8.
pub(super) fn text(body: &mut &[u8]) -> Option<String> {
    let length = usize::from(body.try_get_u8().ok()?);
    let text = String::from_utf8(body.get(..length)?.to_vec()).ok()?;
    body.advance(length);
    Some(text)
}

/// As many whole characters as fit into `bytes`.
pub(super) fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=text.len().min(bytes)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}
