//! `towline reload`: has a running queue manager read again what can change while it runs, and
//! prints the result. Which instance of a group is asked depends on the folder alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use towline_client::{Address, Client, Options};

use crate::arguments::Reload;
use crate::failure::Failure;
use crate::group::ask::{Asking, RELOAD};
use crate::{mqsc, reach, show};

#[derive(Deserialize, Serialize)]
struct Reloaded {
    changed: Vec<String>,
    warnings: Vec<String>,
    failed: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Reload) -> Result<(), Failure> {
    let timeout = Duration::from_secs_f64(arguments.timeout);
    let reloaded: Reloaded = match Asking::connect(&arguments.data, timeout)? {
        Some(mut asking) => {
            let answer = asking.ask(&json!({ "do": RELOAD }))?;
            serde_json::from_value(answer).map_err(Failure::failed)?
        }
        None => {
            let address = Address::Local(arguments.data.join(reach::SOCKET));
            let options = Options { container: "towline".into(), timeout, ..Options::default() };
            let mut client = Client::connect(&address, &options)?;
            let json = client.ask_admin(RELOAD, "")?.body;
            client.close()?;
            mqsc::understood(&json)?
        }
    };
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
