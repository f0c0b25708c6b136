//! `towline region fence` and `towline region unfence`: an administrator has the live group serve
//! no client, and takes that back.
//!
//! Not here: the order itself; the instances carry it out. Invariant: without `--yes`, nothing is
//! changed before the answer of a person at a terminal.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{Outlook, Step, carried_out, looked_at};
use crate::arguments::{RegionChange, RegionFence};
use crate::failure::Failure;
use crate::group::question::confirm;
use crate::show;

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
    let question =
        |group: &str| format!("Have group {group} serve no client until it is unfenced?");
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
    let (_, result) = carried_out::<FenceResult>(here, order, doing)?;
    let result = result?;
    if here.json {
        return show::json(&serde_json::to_value(&result).unwrap_or_default());
    }
    for Step { step, ms } in &result.steps {
        show::line(&format!("  {step:<13}{ms:>7} ms"))?;
    }
    show::line(&said(&result))
}

fn lines(outlook: &Outlook) -> Vec<String> {
    let mut lines = vec![format!("Group {}, beside group {}", outlook.group, outlook.other)];
    lines.extend(outlook.notes.iter().map(|note| format!("  note: {note}")));
    lines.extend(outlook.obstacles.iter().map(|why| format!("  in the way: {why}")));
    lines
}

fn said(result: &FenceResult) -> String {
    let FenceResult { group, kept_by, not_reached, end_lsn, .. } = result;
    let mut text = match (result.fenced, end_lsn) {
        (true, Some(end)) => format!("group {group} serves no client; its log ends at {end}"),
        (true, None) => format!(
            "group {group} serves no client; something that it had decided is not committed yet"
        ),
        (false, _) => format!("group {group} is fenced no more"),
    };
    text += &format!("; the order is kept by {}", kept_by.join(", "));
    if !not_reached.is_empty() {
        text += &format!(", and told to {} when they come", not_reached.join(", "));
    }
    text
}
