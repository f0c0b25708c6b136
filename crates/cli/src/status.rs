//! `towline status`: asks, and prints the table or the JSON as it came, once or again and again.
//! Counts nothing itself.
//!
//! In a data folder the process is asked on its control socket, for it answers whatever it is
//! doing; otherwise, and with an address, the queue manager over AMQP.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use towline_admin::status::{self, GroupStatus, ProcessPhase, ProcessReport};
use towline_types::{printable_json, printable_lines};

use crate::arguments::{Reach, Status};
use crate::control::{ControlClient, ControlReach, ControlStatus, not_running, understood};
use crate::failure::Failure;
use crate::reach::Connector;
use crate::watch::{self, View};
use crate::{mqsc, show};

/// Runs the command.
pub(crate) fn run(arguments: &Status) -> Result<(), Failure> {
    let reach = arguments.reach.clone();
    let json = reach.json;
    let about = StatusWish { pid: arguments.pid, groups: arguments.groups };
    // A password is asked for once.
    let mut connector = None;
    let mut look = move || {
        let text = look(&reach, about, &mut connector)?;
        Ok(if json { printable_json(&text) } else { printable_lines(&text) })
    };
    match arguments.watch {
        None => show::lines(&look()?),
        Some(seconds) => {
            watch::run(View { interval: Duration::from_secs_f64(seconds), json }, look)
        }
    }
}

/// What is wanted of a status.
#[derive(Clone, Copy)]
struct StatusWish {
    pid: Option<u32>,
    /// Only the groups of both regions.
    groups: bool,
}

fn look(
    reach: &Reach,
    StatusWish { pid, groups }: StatusWish,
    connector: &mut Option<Connector>,
) -> Result<String, Failure> {
    let folder = reach.folder()?;
    let asked = match &folder {
        Some(folder) => of_process(folder, pid, reach.timeout),
        None => Ok(ControlAnswer::NotRunning),
    };
    let denied = match (asked, &folder) {
        (Ok(ControlAnswer::Status(told)), _) if groups => return of_groups(told.group, reach.json),
        (Ok(ControlAnswer::Status(told)), _) => return shown(*told, reach.json),
        (Ok(ControlAnswer::NotRunning), Some(folder)) if pid.is_some() => {
            return Err(not_running(folder));
        }
        (Ok(ControlAnswer::NotRunning), _) => None,
        (Ok(ControlAnswer::Denied(failure)), _) => Some(failure),
        (Err(failure), _) => return Err(failure),
    };
    let way = match connector {
        Some(way) => way,
        None => connector.insert(reach.connector()?),
    };
    // Other users may use the socket for clients; if not, it explains which ones may.
    let mut client = way.connect()?;
    let json = client.ask_admin("status", "")?.body;
    client.close()?;
    let status: status::Status = mqsc::understood(&json)?;
    if let (Some(folder), Some(group)) = (folder, &status.group) {
        return Err(denied.unwrap_or_else(|| another(&folder, &group.instance)));
    }
    if groups {
        let group: Value = mqsc::understood(&json)?;
        return of_groups(group.get("group").cloned().unwrap_or_default(), reach.json);
    }
    if reach.json {
        return Ok(json);
    }
    Ok(status::table(&status).trim_end().to_owned())
}

/// The groups of both regions. As JSON: an array, a group each.
fn of_groups(group: Value, json: bool) -> Result<String, Failure> {
    let none = || Failure::failed("it is in no group that has one in another region");
    if group.is_null() {
        return Err(none());
    }
    let group: GroupStatus = understood(group)?;
    let Some(other) = &group.other_region else { return Err(none()) };
    if json {
        let own = json!({
            "group_name": group.group_name,
            "group_role": group.group_role,
            "instance": group.instance,
            "history": group.history,
            "role_changes": group.role_changes,
        });
        return Ok(json!([own, other]).to_string());
    }
    Ok(status::regions_table(&group).unwrap_or_default().trim_end().to_owned())
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

/// What came of asking on the control socket.
enum ControlAnswer {
    Status(Box<ControlStatus>),
    NotRunning,
    Denied(Failure),
}

fn of_process(folder: &Path, pid: Option<u32>, timeout: f64) -> Result<ControlAnswer, Failure> {
    Ok(match ControlClient::find(folder, pid, Duration::from_secs_f64(timeout))? {
        ControlReach::Connected(mut client) => ControlAnswer::Status(Box::new(client.status()?)),
        ControlReach::NotRunning => ControlAnswer::NotRunning,
        ControlReach::Denied(failure) => ControlAnswer::Denied(failure),
    })
}

/// What a process reported, as a table or as JSON: the status of the queue manager where it is
/// active, with process and group in it, else an object that has only these.
fn shown(told: ControlStatus, json: bool) -> Result<String, Failure> {
    let ControlStatus { process, group, status } = told;
    if group.is_null() && status.is_null() && process.phase != ProcessPhase::Standby {
        // It serves no client: a script that waits for that must not go on.
        let ProcessReport { queue_manager, pid, uptime_s, phase, .. } = process;
        let phase = phase.as_str();
        return Err(Failure::CannotConnect(format!(
            "queue manager {queue_manager} is {phase}: process {pid}, started {uptime_s} s ago"
        )));
    }
    if json {
        let mut all = match status {
            Value::Object(status) => Value::Object(status),
            _ => json!({ "pid": process.pid }),
        };
        if let Value::Object(all) = &mut all {
            all.insert("process".into(), json!(process));
            if !group.is_null() {
                all.insert("group".into(), group);
            }
        }
        return Ok(all.to_string());
    }
    let group: Option<GroupStatus> = if group.is_null() { None } else { Some(understood(group)?) };
    let text = match (status.is_null(), group) {
        (false, group) => {
            let status: status::Status = understood(status)?;
            status::table(&status::Status { group, ..status })
        }
        (true, Some(group)) => status::group_table(&group, Some(process.pid), now_ms()),
        (true, None) => status::process_table(&process),
    };
    Ok(text.trim_end().to_owned())
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
