//! The only module of the harness that draws random bytes: its run number, and nonces for SCRAM.

use std::fmt::Write;
use std::sync::Arc;

/// A number for a run, so that messages of an earlier run are recognised.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn run_number() -> Result<u32, String> {
    getrandom::u32().map_err(|error| format!("random bytes: {error}"))
}

/// Text for one SCRAM exchange (RFC 5802): 128 random bits in hexadecimal.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn nonce() -> Result<Arc<str>, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("random bytes: {error}"))?;
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").map_err(|error| error.to_string())?;
    }
    Ok(text.into())
}
