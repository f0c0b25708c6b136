//! `towline reload`: has a process read again what can change while it runs, and prints the result.
//! Which process is asked depends on the folder: each one reads for itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::arguments::Reload;
use crate::control::{ControlClient, ControlReach, RELOAD, not_running, understood};
use crate::failure::Failure;
use crate::show;

#[derive(Deserialize, Serialize)]
struct Reloaded {
    changed: Vec<String>,
    warnings: Vec<String>,
    failed: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Reload) -> Result<(), Failure> {
    let timeout = Duration::from_secs_f64(arguments.timeout);
    let mut client = match ControlClient::find(&arguments.data, arguments.pid, timeout)? {
        ControlReach::Connected(client) => client,
        ControlReach::NotRunning => return Err(not_running(&arguments.data)),
        ControlReach::Denied(failure) => return Err(failure),
    };
    let reloaded: Reloaded = understood(client.ask(&json!({ "do": RELOAD }))?)?;
    if arguments.json {
        show::json(&serde_json::to_value(&reloaded).unwrap_or_default())?;
    } else {
        as_text(&reloaded)?;
    }
    if reloaded.failed.is_empty() { Ok(()) } else { Err(Failure::Silent) }
}

fn as_text(reloaded: &Reloaded) -> Result<(), Failure> {
    for what in &reloaded.changed {
        show::line(&format!("reloaded: {what}"))?;
    }
    for warning in &reloaded.warnings {
        show::line(warning)?;
    }
    for why in &reloaded.failed {
        show::line(&format!("! reload failed, old values stay: {why}"))?;
    }
    if reloaded.changed.is_empty() && reloaded.failed.is_empty() {
        show::line("nothing has changed")?;
    }
    Ok(())
}
