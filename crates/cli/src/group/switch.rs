//! `towline switch`: has another instance become the active one, and prints how long it took.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use towline_admin::status::GroupStatus;

use super::patience::Patience;
use crate::arguments::Switch;
use crate::control::{AskError, ControlClient, SWITCH, understood};
use crate::failure::Failure;
use crate::{progress, show};

/// A switch that happened.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SwitchResult {
    /// The instance that was active; the same as `to` when there was nothing to do.
    pub(crate) from: String,
    /// The one that is active now.
    pub(crate) to: String,
    /// From the question to the first moment at which the new one served, as the asked instance saw
    /// it.
    pub(crate) took_ms: u64,
}

/// Runs the command.
pub(crate) fn switch(arguments: &Switch) -> Result<(), Failure> {
    let here = &arguments.here;
    let longest = Duration::from_secs_f64(here.timeout);
    let patience = Patience::of(longest);
    let spinner = progress::spinner(here.json);
    spinner.set_message(match &arguments.to {
        Some(to) => format!("switching to {to}"),
        None => "switching".to_owned(),
    });
    let switched = hand_over(&here.data, arguments.to.as_deref(), patience);
    spinner.finish_and_clear();
    let switched = switched?;
    if here.json {
        return show::json(&serde_json::to_value(&switched).unwrap_or_default());
    }
    let SwitchResult { from, to, took_ms } = &switched;
    if from == to {
        return show::line(&format!("{to} is active already"));
    }
    show::line(&format!("{to} is active instead of {from}, {took_ms} ms"))
}

/// Has the active instance hand over, asked through the instance in `data`, whichever that is.
pub(crate) fn hand_over(
    data: &Path,
    to: Option<&str>,
    patience: Patience,
) -> Result<SwitchResult, Failure> {
    let mut asking = ControlClient::reach(data, patience.left())?;
    let before = asking.group()?;
    if let Some(to) = to.filter(|to| *to == before.active) {
        return Ok(SwitchResult { from: to.to_owned(), to: to.to_owned(), took_ms: 0 });
    }
    let began = Instant::now();
    match asking.ask(&json!({ "do": SWITCH, "to": to })) {
        Ok(reply) => Ok(understood(reply)?),
        // An active instance that hands over re-executes, maybe before its answer is out: then it
        // shows which one is active now.
        Err(AskError::Lost { .. }) => {
            let after = until(data, patience, |group| {
                // The same one may be elected again: then there is nothing more to wait for.
                let is_settled = group.active != before.active || group.term > before.term;
                group.serving && !group.active.is_empty() && is_settled
            });
            let after = after?.ok_or_else(|| {
                Failure::failed("the instance ended before it answered, and no other became active")
            })?;
            if after.active == before.active {
                let again = format!("{} stepped down and was elected again", after.active);
                return Err(Failure::Failed(again));
            }
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            Ok(SwitchResult { from: before.active, to: after.active, took_ms })
        }
        Err(unanswered) => Err(unanswered.into()),
    }
}

/// Looks at what the instance in `data` knows of the group until it is as wanted; an instance that
/// begins anew does not answer for a moment. `None`: it did not come about in time.
fn until(
    data: &Path,
    patience: Patience,
    wanted: impl Fn(&GroupStatus) -> bool,
) -> Result<Option<GroupStatus>, Failure> {
    loop {
        if let Some(mut asking) = ControlClient::connect(data, patience.left())?
            && let Ok(group) = asking.group()
            && wanted(&group)
        {
            return Ok(Some(group));
        }
        if !patience.pause() {
            return Ok(None);
        }
    }
}
