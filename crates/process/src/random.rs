//! Random bytes of the operating system, for nonces, seeds and secrets.

use std::fmt::Write;
use std::sync::Arc;

/// Fills an array from the operating system.
///
/// # Panics
/// When the operating system has no random bytes: nothing that follows would be safe.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = towline_os::random::fill(&mut bytes);
    assert!(filled.is_ok(), "the operating system gives no random bytes: {filled:?}");
    bytes
}

/// Printable text with 144 random bits.
#[must_use]
pub fn nonce() -> Arc<str> {
    let mut text = String::with_capacity(36);
    for byte in bytes::<18>() {
        let written = write!(text, "{byte:02x}");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    Arc::from(text)
}
