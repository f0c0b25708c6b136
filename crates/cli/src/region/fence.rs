//! `towline region fence` and `towline region unfence`: an administrator has the live group serve
//! nobody, and takes that back.
//!
//! Not here: the order itself; the instances carry it out. Invariant: without `--yes`, nothing is
//! changed before the answer of a person at a terminal.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{Outlook, Step, looked_at, user, with};
use crate::arguments::{RegionChange, RegionFence};
use crate::control::{ControlClient, understood};
use crate::failure::Failure;
use crate::group::question::confirm;
use crate::{progress, show};

/// What came of it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct FenceResult {
    group: String,
    other: String,
    fenced: bool,
    kept_by: Vec<String>,
    not_reached: Vec<String>,
    end_lsn: Option<String>,
    steps: Vec<Step>,
    took_ms: u64,
}

/// Runs `towline region fence`.
pub(super) fn fence(arguments: &RegionFence) -> Result<(), Failure> {
    let order = json!({ "do": "region_fence", "reason": arguments.reason });
    let question = |group: &str| format!("Have group {group} serve nobody until it is unfenced?");
    carry_out(&arguments.change, &order, (question, "fencing"))
}

/// Runs `towline region unfence`.
pub(super) fn unfence(arguments: &RegionChange) -> Result<(), Failure> {
    let order = json!({ "do": "region_unfence" });
    let question = |group: &str| format!("Have group {group} serve clients again?");
    carry_out(arguments, &order, (question, "unfencing"))
}

fn carry_out(
    arguments: &RegionChange,
    order: &Value,
    (question, doing): (impl Fn(&str) -> String, &str),
) -> Result<(), Failure> {
    let Some(outlook) = looked_at(arguments, order, lines)? else { return Ok(()) };
    confirm(arguments.yes, &question(&outlook.group))?;
    let here = &arguments.here;
    let (longest, began) = (Duration::from_secs_f64(here.timeout), Instant::now());
    let timeout_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let mut asking = ControlClient::reach(&here.data, longest)?;
    // The instance says by itself when it takes too long.
    asking.wait_at_most(longest.saturating_add(Duration::from_secs(10)));
    let spinner = progress::spinner(here.json);
    spinner.set_message(doing.to_owned());
    let order = with(order, json!({ "by": user(), "timeout_ms": timeout_ms }));
    let answer = asking.ask(&order);
    spinner.finish_and_clear();
    let mut result: FenceResult = understood(answer?)?;
    result.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if here.json {
        return show::json(&serde_json::to_value(&result).unwrap_or_default());
    }
    for Step { step, ms } in &result.steps {
        show::line(&format!("  {step:<13}{ms:>7} ms"))?;
    }
    show::line(&said(&result))
}

fn lines(outlook: &Outlook) -> Vec<String> {
    let mut lines = vec![format!("Group {}, live beside group {}", outlook.group, outlook.other)];
    lines.extend(outlook.notes.iter().map(|note| format!("  note: {note}")));
    lines.extend(outlook.obstacles.iter().map(|why| format!("  in the way: {why}")));
    lines
}

fn said(result: &FenceResult) -> String {
    let FenceResult { group, kept_by, not_reached, end_lsn, .. } = result;
    let mut text = match (result.fenced, end_lsn) {
        (true, Some(end)) => format!("group {group} serves nobody; its log ends at {end}"),
        (true, None) => format!(
            "group {group} serves nobody; something that it had decided is not committed yet"
        ),
        (false, _) => format!("group {group} is fenced no more"),
    };
    text += &format!("; the order is kept by {}", kept_by.join(", "));
    if !not_reached.is_empty() {
        text += &format!(", and told to {} when they come", not_reached.join(", "));
    }
    text
}
