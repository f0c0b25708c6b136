//! `towline region alone`: the live group answers its clients without the other region until that
//! has caught up.
//!
//! Not here: what follows (`towline_replication`). Invariant: without `--yes`, nothing is changed
//! before the answer of a person at a terminal.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use towline_admin::status::RegionSyncStatus;

use super::change::user;
use crate::arguments::RegionChange;
use crate::control::{ControlClient, understood};
use crate::failure::Failure;
use crate::group::question::{can_ask, confirm};
use crate::show;

/// What the instance answers.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct AloneResult {
    group: String,
    other: String,
    /// Why it would be refused.
    obstacles: Vec<String>,
    /// As it was before the order.
    before: RegionSyncStatus,
}

/// Runs the command.
pub(super) fn run(arguments: &RegionChange) -> Result<(), Failure> {
    let here = &arguments.here;
    if !arguments.dry_run {
        can_ask(arguments.yes)?;
    }
    let longest = Duration::from_secs_f64(here.timeout);
    let ask = |is_dry: bool| -> Result<AloneResult, Failure> {
        let order = json!({ "do": "region_alone", "dry_run": is_dry, "by": user() });
        Ok(understood(ControlClient::reach(&here.data, longest)?.ask(&order)?)?)
    };
    let outlook = ask(true)?;
    let AloneResult { group, other, obstacles, before } = &outlook;
    if !here.json {
        show::line(&format!("Replies of group {group} without group {other}"))?;
        show::line(&format!("  now: {}, {}", before.consistency, before.state))?;
        show::line(&format!("  {} replies wait", before.replies.waiting))?;
        for why in obstacles {
            show::line(&format!("  in the way: {why}"))?;
        }
    }
    if arguments.dry_run {
        if here.json {
            show::json(&serde_json::to_value(&outlook).unwrap_or_default())?;
        }
        return if obstacles.is_empty() { Ok(()) } else { Err(Failure::Unfit) };
    }
    if !obstacles.is_empty() {
        return Err(Failure::Failed(obstacles.join("; ")));
    }
    confirm(
        arguments.yes,
        &format!(
            "Answer clients of group {group} without group {other}? A fail-over loses what is \
             acknowledged from then on, until it has caught up."
        ),
    )?;
    let result = ask(false)?;
    if here.json {
        return show::json(&serde_json::to_value(&result).unwrap_or_default());
    }
    show::line(&format!("group {group} answers alone until group {other} has caught up"))
}
