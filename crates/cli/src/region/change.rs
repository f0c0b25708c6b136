//! `towline region switch` and `towline region failover`: shows what is to be expected, asks, and
//! has the instance in the data folder carry it out.
//!
//! Not here: the change itself; the instances decide. Invariant: without `--yes`, nothing is
//! changed before the answer of a person at a terminal.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towline_admin::region_report::{FigureBound, RegionReport, ReportStep, ReportWay};
use towline_admin::status::GroupStatus;

use super::report::{self, KeptReport};
use crate::arguments::{Here, RegionChange, RegionFailover};
use crate::control::{AskError, ControlClient, understood};
use crate::failure::Failure;
use crate::group::question::{can_ask, confirm};
use crate::patience::Patience;
use crate::quantity::shown_bytes;
use crate::{progress, show};

/// What the instance answers to a dry run.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Outlook {
    pub(super) group: String,
    pub(super) other: String,
    instance: String,
    pub(super) obstacles: Vec<String>,
    pub(super) notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) non_persistent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<Loss>,
}

/// What a fail-over loses, as far as this side knows.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Loss {
    is_known: bool,
    live_lsn: String,
    kept_lsn: String,
    bytes: u64,
    heard_ms: u64,
    /// Live said so at most so long ago; otherwise it is at least that.
    heard_is_bound: bool,
    live_is_still: bool,
}

/// What came of it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ChangeResult {
    group: String,
    other: String,
    history: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    active: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_doubt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_ms: Option<u64>,
    steps: Vec<Step>,
    took_ms: u64,
    /// As the instance kept it.
    #[serde(skip_serializing)]
    pub(super) report: Option<RegionReport>,
    #[serde(flatten)]
    kept: KeptReport,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Step {
    pub(super) step: String,
    pub(super) ms: u64,
}

/// Runs `towline region failover`.
pub(super) fn failover(arguments: &RegionFailover) -> Result<(), Failure> {
    let order = json!({ "do": "region_failover", "force": arguments.force });
    let arguments = &arguments.change;
    let Some(outlook) = looked_at(arguments, &order, failover_lines)? else {
        return Ok(());
    };
    let Outlook { group, other, .. } = &outlook;
    confirm(
        arguments.yes,
        &format!("Promote group {group}, and give up what only group {other} has?"),
    )?;
    let (_, result) = carried_out::<ChangeResult>(&arguments.here, &order, "promoting")?;
    let mut result = result?;
    if let Some(report) = &mut result.report {
        report.took_ms = result.took_ms;
        result.kept = report::complete(&arguments.here.data, report).or_else(result.kept);
    }
    shown(arguments, &result, || {
        format!("group {group} is live: instance {} serves, {} ms", result.active, result.took_ms)
    })
}

/// Runs `towline region switch`.
pub(super) fn switch(arguments: &RegionChange) -> Result<(), Failure> {
    let order = json!({ "do": "region_switch" });
    let Some(outlook) = looked_at(arguments, &order, switch_lines)? else {
        return Ok(());
    };
    let dropped = match outlook.non_persistent {
        Some(count) if count > 0 => format!(" {count} non-persistent messages are dropped."),
        _ => String::new(),
    };
    let Outlook { group, other, .. } = &outlook;
    let question = format!("Switch from group {group} to group {other}?{dropped}");
    confirm(arguments.yes, &question)?;
    let (patience, result) = carried_out::<ChangeResult>(&arguments.here, &order, "switching")?;
    // One that steps down re-executes itself, maybe before its answer is out.
    let mut result = match result {
        Err(AskError::Lost { .. }) => {
            ChangeResult { group: group.clone(), other: other.clone(), ..ChangeResult::default() }
        }
        answered => answered?,
    };
    if let Some(why) = &result.in_doubt {
        return Err(Failure::Failed(in_doubt(other, why, &result.kept)));
    }
    let began = Instant::now();
    if !until_followed(arguments, patience) {
        return Err(Failure::Failed(not_followed(other, &result)));
    }
    let ms = |began: Instant| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    result.took_ms = result.took_ms.saturating_add(ms(began));
    let followed = Step { step: "followed".into(), ms: result.took_ms };
    result.steps.push(followed);
    if let Some(report) = &mut result.report {
        report.took_ms = result.took_ms;
        report.ways.iter_mut().for_each(|way| served_at(way, result.took_ms));
        result.kept = report::complete(&arguments.here.data, report).or_else(result.kept);
    }
    shown(arguments, &result, || {
        format!(
            "group {other} is live, and group {group} follows it, {} ms; clients were let go {} ms \
             before {other} had all",
            result.took_ms,
            result.closed_ms.unwrap_or(0)
        )
    })
}

/// The other group was seen to serve when it shipped to this one, so many milliseconds after the
/// order: no client was served for at most as long as since the last step before they were let go.
fn served_at(way: &mut ReportWay, ms: u64) {
    let shipped = way.steps.iter().find(|step| step.step == "shipped").map(|step| step.ms);
    if let Some(shipped) = shipped.filter(|_| way.rto_ms.is_some()) {
        (way.rto_ms, way.rto_is) = (Some(ms.saturating_sub(shipped)), FigureBound::AtMost);
        "command".clone_into(&mut way.rto_by);
    }
    way.steps.push(ReportStep { step: "followed".into(), ms });
}

/// What there is to say of a switch without an acknowledgement of its last batch.
pub(super) fn in_doubt(other: &str, why: &str, kept: &KeptReport) -> String {
    format!(
        "the switch to group {other} is in doubt: {why}. Its last batch is decided: group {other} \
         serves as soon as it has that. To serve before the link stands, see that this group is in \
         recovery, and order `towline region failover` in group {other}, or here if its region is \
         lost; not in both{}",
        kept.in_brackets()
    )
}

fn not_followed(other: &str, result: &ChangeResult) -> String {
    let why = match result.history.is_empty() {
        true => format!(
            "the process ended before it answered, and group {other} was not seen to serve in time: \
             see the status of both groups"
        ),
        false => format!(
            "group {other} has all of the log and is live, but was not seen to serve in time: see \
             its status"
        ),
    };
    format!("{why}{}", result.kept.in_brackets())
}

/// Shows what is to be expected. `None`: that was all that was asked for.
pub(super) fn looked_at(
    arguments: &RegionChange,
    order: &Value,
    lines: impl Fn(&Outlook) -> Vec<String>,
) -> Result<Option<Outlook>, Failure> {
    let here = &arguments.here;
    if here.timeout <= 0.0 {
        return Err(Failure::Usage("--timeout 0 leaves no time to carry anything out".into()));
    }
    if !arguments.dry_run {
        can_ask(arguments.yes)?;
    }
    let patience = Patience::of(Duration::from_secs_f64(here.timeout));
    let mut asking = ControlClient::reach(&here.data, patience.left())?;
    let outlook: Outlook = understood(asking.ask(&with(order, json!({ "dry_run": true })))?)?;
    if arguments.dry_run && here.json {
        show::json(&serde_json::to_value(&outlook).unwrap_or_default())?;
    } else if !here.json {
        for line in lines(&outlook) {
            show::line(&line)?;
        }
    }
    match (outlook.obstacles.is_empty(), arguments.dry_run) {
        (true, true) => Ok(None),
        (true, false) => Ok(Some(outlook)),
        (false, true) => Err(Failure::Unfit),
        (false, false) => Err(Failure::Failed(outlook.obstacles.join("; "))),
    }
}

fn failover_lines(outlook: &Outlook) -> Vec<String> {
    let mut lines =
        vec![format!("Fail-over to group {} from group {}", outlook.group, outlook.other)];
    let loss = outlook.loss.as_ref();
    lines.push(match loss.filter(|loss| loss.is_known) {
        None => {
            "  lost: not known: no instance that answered has heard of live since its start"
                .into()
        }
        Some(Loss { bytes: 0, live_is_still: true, live_lsn, heard_ms, .. }) => format!(
            "  lost: nothing: live is fenced, its log ends at {live_lsn}, and that is here; it said so \
             {} s ago",
            heard_ms / 1_000
        ),
        Some(loss) => format!(
            "  lost: {} of log that live was known to have ({}), and what it committed {}",
            shown_bytes(loss.bytes as f64),
            loss.live_lsn,
            match loss.heard_is_bound {
                true => format!("in the last {} s", loss.heard_ms.div_ceil(1_000)),
                false => "since it said so, which may have been long ago".to_owned(),
            }
        ),
    });
    if let Some(loss) = loss {
        lines.push(format!("  kept: the log up to {}", loss.kept_lsn));
    }
    if let Some(history) = &outlook.under_way {
        lines.push(format!("  under way: the promotion to history {history} is gone on with"));
    }
    lines.extend(outlook.notes.iter().map(|note| format!("  note: {note}")));
    lines.extend(outlook.obstacles.iter().map(|why| format!("  in the way: {why}")));
    lines
}

fn switch_lines(outlook: &Outlook) -> Vec<String> {
    let mut lines = vec![format!("Switch from group {} to group {}", outlook.group, outlook.other)];
    let backlog = outlook.backlog_bytes.unwrap_or(0);
    lines.push(format!("  backlog: {}, shipped first", shown_bytes(backlog as f64)));
    let dropped = outlook.non_persistent.unwrap_or(0);
    lines.push(format!("  dropped: {dropped} non-persistent messages"));
    lines.extend(outlook.notes.iter().map(|note| format!("  differs: {note}")));
    lines.extend(outlook.obstacles.iter().map(|why| format!("  in the way: {why}")));
    lines
}

pub(super) fn with(order: &Value, more: Value) -> Value {
    let mut all = order.clone();
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}

/// Has it done; what is left of the time-out, and what came of it, with the time that it took as
/// `took_ms`.
pub(super) fn carried_out<T: DeserializeOwned>(
    here: &Here,
    order: &Value,
    doing: &str,
) -> Result<(Patience, Result<T, AskError>), Failure> {
    let longest = Duration::from_secs_f64(here.timeout);
    let began = Instant::now();
    let timeout_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let mut asking = ControlClient::reach(&here.data, longest)?;
    // The instance says by itself when it takes too long.
    asking.wait_at_most(longest.saturating_add(Duration::from_secs(10)));
    let spinner = progress::spinner(here.json);
    spinner.set_message(doing.to_owned());
    let order = with(order, json!({ "by": user(), "timeout_ms": timeout_ms }));
    let answer: Result<Value, _> = asking.ask(&order);
    spinner.finish_and_clear();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let timed = |answer: Value| understood(with(&answer, json!({ "took_ms": took_ms })));
    let result = answer.and_then(timed);
    Ok((Patience::of(longest.saturating_sub(began.elapsed())), result))
}

/// Waits until the other group, which is live now, ships to the instance that was asked.
fn until_followed(arguments: &RegionChange, patience: Patience) -> bool {
    loop {
        if follows(&arguments.here.data, &patience) {
            return true;
        }
        if !patience.pause() {
            return false;
        }
    }
}

/// Whether the instance in this folder is one of a recovery group to which is shipped.
pub(super) fn follows(data: &Path, patience: &Patience) -> bool {
    let group = || -> Option<GroupStatus> {
        let longest = patience.left().min(Duration::from_secs(2));
        ControlClient::connect(data, longest).ok()??.group().ok()
    };
    group().is_some_and(|group| {
        let other = group.other_region.as_ref();
        // Of three instances the other group ships to one.
        let hears = other.is_some_and(|other| other.connected || group.in_sync);
        group.group_role == "recovery" && hears
    })
}

fn shown(
    arguments: &RegionChange,
    result: &ChangeResult,
    line: impl Fn() -> String,
) -> Result<(), Failure> {
    if arguments.here.json {
        return show::json(&serde_json::to_value(result).unwrap_or_default());
    }
    for Step { step, ms } in &result.steps {
        show::line(&format!("  {step:<13}{ms:>7} ms"))?;
    }
    show::line(&line())?;
    result.kept.show()
}

/// The user that runs the command.
pub(super) fn user() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    named.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_without_a_live_group_at_most_until_the_other_one_ships_to_this_one() {
        let step = |step: &str, ms| ReportStep { step: step.into(), ms };
        let (rto_ms, rto_is) = (Some(4), FigureBound::AtLeast);
        let steps = vec![step("shipped", 10), step("acknowledged", 14)];
        let mut way = ReportWay { rto_ms, rto_is, steps, ..ReportWay::default() };
        served_at(&mut way, 7_100);
        assert_eq!((way.rto_ms, way.rto_is), (Some(7_090), FigureBound::AtMost));
        assert_eq!(way.rto_by, "command");
        assert_eq!(way.steps.last(), Some(&step("followed", 7_100)));
        let mut unknown = ReportWay::default();
        served_at(&mut unknown, 7_100);
        assert_eq!(unknown.rto_ms, None, "clients were not let go, or it is not known");
    }
}
