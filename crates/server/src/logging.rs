//! Structured logs on standard error. Each event that an operator may have to act on is a message of
//! the catalogue (docs/reference/messages.md), with its `id`; others are for developers only.

use std::io::IsTerminal;

use towline_admin::catalogue::{Entry, Severity};
use tracing_subscriber::EnvFilter;

/// Starts logging: text, or JSON with `TOWLINE_LOG_FORMAT=json`; level from `TOWLINE_LOG`
/// (default `info`). A second call changes nothing.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("TOWLINE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let json = std::env::var("TOWLINE_LOG_FORMAT").is_ok_and(|format| format == "json");
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Files and pipes get plain text: escapes there are only in the way of whoever searches.
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let started = if json { builder.json().try_init() } else { builder.try_init() };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}

/// Logs a message of the catalogue with its places filled in, at the level of its severity.
///
/// # Panics
/// When there are more or fewer values than places.
pub(crate) fn log(entry: &Entry, values: &[&str]) {
    let (id, text) = (entry.id, entry.text(values));
    match entry.severity() {
        Severity::Information => tracing::info!(id, "{text}"),
        Severity::Warning => tracing::warn!(id, "{text}"),
        Severity::Error => tracing::error!(id, "{text}"),
    }
}
