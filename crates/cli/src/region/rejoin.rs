//! `towline region rejoin`: an old live group gives up what it has behind the fork, and follows the
//! group that was promoted.
//!
//! Not here: the return itself; the instances decide. Invariant: without `--yes`, nothing is
//! changed before the answer of a person at a terminal.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use towline_admin::region_report::{RegionReport, ReportOutcome, ReportStep};
use towline_server::return_order::{self, ReturnStage};

use super::change::{follows, user};
use super::report::{self, KeptReport};
use crate::arguments::RegionRejoin;
use crate::control::{AskError, ControlClient, understood};
use crate::failure::Failure;
use crate::group::question::{can_ask, confirm};
use crate::patience::Patience;
use crate::quantity::shown_bytes;
use crate::{progress, show};

/// What the instance answers to a dry run.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct RejoinOutlook {
    group: String,
    other: String,
    instance: String,
    obstacles: Vec<String>,
    fork_lsn: Option<String>,
    end_lsn: String,
    tail_bytes: u64,
    exported_lsn: Option<String>,
    exported_file: Option<String>,
}

/// What came of it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct RejoinResult {
    group: String,
    other: String,
    order: String,
    fork_lsn: String,
    took_ms: u64,
    /// As the instance kept it.
    #[serde(skip_serializing)]
    report: Option<RegionReport>,
    #[serde(flatten)]
    kept: KeptReport,
}

/// Runs the command.
pub(super) fn run(arguments: &RegionRejoin) -> Result<(), Failure> {
    let change = &arguments.change;
    let here = &change.here;
    if !change.dry_run {
        can_ask(change.yes)?;
    }
    let longest = Duration::from_secs_f64(here.timeout);
    let (began, patience) = (Instant::now(), Patience::of(longest));
    let discard = arguments.discard_divergence;
    let order = json!({ "do": "region_rejoin", "dry_run": true, "discard": discard });
    let mut asking = ControlClient::reach(&here.data, patience.left())?;
    let outlook: RejoinOutlook = understood(asking.ask(&order)?)?;
    if change.dry_run && here.json {
        show::json(&serde_json::to_value(&outlook).unwrap_or_default())?;
    } else if !here.json {
        shown(&outlook)?;
    }
    match (outlook.obstacles.is_empty(), change.dry_run) {
        (true, true) => return Ok(()),
        (true, false) => {}
        (false, true) => return Err(Failure::Unfit),
        (false, false) => return Err(Failure::Failed(outlook.obstacles.join("; "))),
    }
    let RejoinOutlook { group, other, tail_bytes, .. } = &outlook;
    let tail = shown_bytes(*tail_bytes as f64);
    confirm(
        change.yes,
        &format!("Have group {group} give up {tail} of its log and follow group {other}?"),
    )?;
    let order = json!({ "do": "region_rejoin", "by": user(), "discard": discard });
    let mut asking = ControlClient::reach(&here.data, patience.left())?;
    let spinner = progress::spinner(here.json);
    spinner.set_message("returning");
    let ordered = match asking.ask(&order).and_then(understood::<RejoinResult>) {
        // It may execute its program again before its answer is out.
        Err(AskError::Lost { .. }) => RejoinResult::default(),
        answered => answered?,
    };
    let ended = until_followed(&here.data, &patience);
    spinner.finish_and_clear();
    if let Err(failure) = ended {
        if let Some(mut report) = ordered.report {
            failure.reason().clone_into(&mut report.reason);
            report::complete(&here.data, &report);
        }
        return Err(failure);
    }
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (group, other) = (group.clone(), other.clone());
    let mut result = RejoinResult { group, other, took_ms, ..ordered };
    if let Some(report) = &mut result.report {
        (report.took_ms, report.outcome) = (took_ms, ReportOutcome::Done);
        let step = ReportStep { step: "followed".into(), ms: took_ms };
        report.ways.iter_mut().for_each(|way| way.steps.push(step.clone()));
        result.kept = report::complete(&here.data, report).or_else(result.kept);
    }
    if here.json {
        return show::json(&serde_json::to_value(&result).unwrap_or_default());
    }
    show::line(&format!("group {} follows group {}, {took_ms} ms", result.group, result.other))?;
    result.kept.show()
}

fn shown(outlook: &RejoinOutlook) -> Result<(), Failure> {
    let RejoinOutlook { group, other, end_lsn, tail_bytes, .. } = outlook;
    show::line(&format!("Return of group {group} behind group {other}"))?;
    if let Some(fork) = &outlook.fork_lsn {
        let tail = shown_bytes(*tail_bytes as f64);
        show::line(&format!("  given up: {tail} of log, from {fork} to {end_lsn}"))?;
    }
    match (&outlook.exported_lsn, &outlook.exported_file) {
        (Some(lsn), Some(file)) => {
            show::line(&format!("  exported: up to {lsn}, to {file}"))?;
        }
        (Some(_) | None, _) => show::line("  exported: no")?,
    }
    for why in &outlook.obstacles {
        show::line(&format!("  in the way: {why}"))?;
    }
    Ok(())
}

/// Waits until the order is carried out and the live group ships to this one.
fn until_followed(data: &Path, patience: &Patience) -> Result<(), Failure> {
    loop {
        let kept = return_order::kept(data)?;
        match kept.map(|kept| kept.stage) {
            Some(ReturnStage::Refused(why)) => {
                return Err(Failure::Failed(format!("it was not carried out: {why}")));
            }
            Some(ReturnStage::Done) if follows(data, patience) => return Ok(()),
            Some(ReturnStage::Ordered | ReturnStage::Cutting | ReturnStage::Done) | None => {}
        }
        if !patience.pause() {
            return Err(Failure::Failed(
                "this instance returns, but was not seen to follow in time: see the status of both \
                 groups; of a group of three, more than one must run"
                    .to_owned(),
            ));
        }
    }
}
