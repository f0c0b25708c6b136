//! Texts in a hello and its terms: one byte of length, then UTF-8; and texts of a peer, or about
//! it, as they stand in messages.
//!
//! Not here: what they mean. Invariant: a text that is too long is cut between two characters.

use std::io;

use bytes::{Buf, BufMut};
use towline_tls::reason;
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

/// What a peer says, as it may stand in a line of a log; quotes in it stay what they are.
pub(super) fn printable(said: &str) -> String {
    let mut text = String::with_capacity(said.len());
    for letter in said.chars() {
        match letter {
            ' '..='~' => text.push(letter),
            _ => text.extend(letter.escape_default()),
        }
    }
    text
}

/// The error with a text that says which certificate is at fault, if one is.
pub(super) fn in_words(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), reason(&error))
}
