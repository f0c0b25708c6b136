//! `towline region check`: what stands in the way of a change of roles, from the status of one
//! instance. It changes nothing and connects to no other region: what that is like, the instance
//! has heard over its link.
//!
//! Not here: the judgement (`towline_admin::status::region_findings`).

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use towline_admin::status::{self, GroupStatus, RegionFinding};

use crate::arguments::Reach;
use crate::control::{ControlClient, ControlReach, understood};
use crate::failure::Failure;
use crate::{mqsc, show};

/// Runs the command.
///
/// # Errors
/// [`Failure::Unfit`] when something stands in the way.
pub(super) fn run(reach: &Reach) -> Result<(), Failure> {
    let group = match reach.folder()? {
        Some(folder) => of_folder(&folder, reach)?,
        None => of_active(reach)?,
    };
    let Some(group) = group else { return Err(none()) };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let Some(found) = status::region_findings(&group, now_ms) else { return Err(none()) };
    match reach.json {
        true => show::json(&described(&group, &found, now_ms))?,
        false => show::lines(status::region_findings_table(&found).trim_end())?,
    }
    if status::nothing_stands(&found) { Ok(()) } else { Err(Failure::Unfit) }
}

fn none() -> Failure {
    Failure::failed("it is in no group that has one in another region")
}

/// The group as the instance in a folder sees it; where only the active instance knows the other
/// region, as that does.
fn of_folder(folder: &Path, reach: &Reach) -> Result<Option<GroupStatus>, Failure> {
    let timeout = Duration::from_secs_f64(reach.timeout);
    let own = match ControlClient::find(folder, None, timeout)? {
        ControlReach::Connected(mut client) => client.status()?.group,
        ControlReach::NotRunning => return Err(crate::control::not_running(folder)),
        ControlReach::Denied(failure) => return Err(failure),
    };
    let own: Option<GroupStatus> = if own.is_null() { None } else { Some(understood(own)?) };
    let leads_elsewhere = own.as_ref().is_some_and(|group| {
        group.serving && group.active != group.instance && !group.active.is_empty()
    });
    if leads_elsewhere {
        // The socket for clients of a replica leads to the active instance.
        if let Ok(Some(group)) = of_active(reach) {
            return Ok(Some(group));
        }
    }
    Ok(own)
}

fn of_active(reach: &Reach) -> Result<Option<GroupStatus>, Failure> {
    let mut client = reach.connector()?.connect()?;
    let body = client.ask_admin("status", "")?.body;
    client.close()?;
    let status: status::Status = mqsc::understood(&body)?;
    Ok(status.group)
}

fn described(group: &GroupStatus, found: &[RegionFinding], now_ms: u64) -> Value {
    let other = group.other_region.as_ref();
    json!({
        "group_name": group.group_name,
        "group_role": group.group_role,
        "instance": group.instance,
        "other_group_name": other.map(|other| other.group_name.as_str()),
        "checked_at": now_ms,
        "fine": status::nothing_stands(found),
        "findings": found,
    })
}
