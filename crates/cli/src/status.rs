//! `towline status`: asks, and prints the table or the JSON as it came, once or again and again.
//! Counts nothing itself.
//!
//! In a data folder an instance of a group is asked first, for it answers also while it is a
//! replica.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use towline_admin::status::{self, GroupStatus};

use crate::arguments::{Reach, Status};
use crate::failure::Failure;
use crate::group::ask::{Asking, InstanceStatus, understood};
use crate::reach::Connector;
use crate::watch::{self, View};
use crate::{mqsc, show};

/// Runs the command.
pub(crate) fn run(arguments: &Status) -> Result<(), Failure> {
    let reach = arguments.reach.clone();
    let json = reach.json;
    // A password is asked for once.
    let mut connector = None;
    let mut look = move || look(&reach, &mut connector);
    match arguments.watch {
        None => show::line(&look()?),
        Some(seconds) => {
            watch::run(View { interval: Duration::from_secs_f64(seconds), json }, look)
        }
    }
}

fn look(reach: &Reach, connector: &mut Option<Connector>) -> Result<String, Failure> {
    let told = match reach.folder()? {
        Some(folder) => of_instance(&folder, reach.timeout),
        None => Ok(None),
    };
    if let Ok(Some(told)) = told {
        return shown(told, reach.json);
    }
    let way = match connector {
        Some(way) => way,
        None => connector.insert(reach.connector()?),
    };
    if let Err(failure) = told {
        // Another user gets to neither socket: the one for clients explains which users may.
        way.connect()?.close()?;
        return Err(failure);
    }
    let mut client = way.connect()?;
    let json = client.ask_admin("status", "")?.body;
    client.close()?;
    let status: status::Status = mqsc::understood(&json)?;
    if let (Some(folder), Some(group)) = (reach.folder()?, &status.group) {
        return Err(another(&folder, &group.instance));
    }
    if reach.json {
        return Ok(json);
    }
    Ok(status::table(&status).trim_end().to_owned())
}

/// The socket for clients of a replica leads to the active one, so what answered there is not the
/// instance with this folder.
fn another(folder: &Path, answered: &str) -> Failure {
    Failure::CannotConnect(format!(
        "the instance in {} does not report its status (yet); the active instance '{answered}' did: \
         try again, or use --url for the active one",
        folder.display()
    ))
}

fn of_instance(folder: &Path, timeout: f64) -> Result<Option<InstanceStatus>, Failure> {
    match Asking::connect(folder, Duration::from_secs_f64(timeout))? {
        Some(mut asking) => Ok(Some(asking.status()?)),
        None => Ok(None),
    }
}

/// What an instance of a group reported, as a table or as JSON: the status with the group in it
/// when it is active, else an object that has only the process and the group.
fn shown(told: InstanceStatus, json: bool) -> Result<String, Failure> {
    if json {
        return Ok(match told.status {
            Value::Object(mut status) => {
                status.insert("group".into(), told.group);
                Value::Object(status).to_string()
            }
            _ => json!({ "pid": told.process, "group": told.group }).to_string(),
        });
    }
    let group: GroupStatus = understood(told.group)?;
    let text = if told.status.is_null() {
        status::group_table(&group, told.process, now_ms())
    } else {
        let status: status::Status = understood(told.status)?;
        status::table(&status::Status { group: Some(group), ..status })
    };
    Ok(text.trim_end().to_owned())
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
