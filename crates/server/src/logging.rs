//! Structured logs on standard error. Each event that an operator may have to act on has an `id`
//! from the catalogue (docs/reference/messages.md).

use tracing_subscriber::EnvFilter;

/// Starts logging: text, or JSON with `TOWLINE_LOG_FORMAT=json`; level from `TOWLINE_LOG`
/// (default `info`). A second call changes nothing.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("TOWLINE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let json = std::env::var("TOWLINE_LOG_FORMAT").is_ok_and(|format| format == "json");
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let started = if json { builder.json().try_init() } else { builder.try_init() };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
