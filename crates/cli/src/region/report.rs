//! `towline region report`: the reports of changes of roles that an instance of this machine keeps;
//! and how the other commands complete the report of what they ordered.
//!
//! Not here: what is in a report (`towline_admin::region_report`) and its folder
//! (`towline_server::region_reports`).

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towline_admin::region_report::{RegionReport, page, report_lines};
use towline_server::region_reports;

use crate::arguments::RegionReportShow;
use crate::control::{ControlClient, understood};
use crate::failure::Failure;
use crate::{private_file, show};

/// Names the newest one.
const LAST: &str = "LAST";
/// A report is completed within this, or stays as the instance made it.
const COMPLETE_MAX: Duration = Duration::from_secs(10);

/// Where the report of an order is.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct KeptReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) report_file: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) report_trouble: Option<String>,
}

impl KeptReport {
    /// This, unless it was not kept; then what was kept before.
    pub(super) fn or_else(self, before: KeptReport) -> KeptReport {
        if self.report_file.is_some() || before.report_file.is_none() { self } else { before }
    }

    /// Behind a reason, on one line.
    pub(super) fn in_brackets(&self) -> String {
        self.report_file.as_ref().map_or(String::new(), |file| format!(" (report: {file})"))
    }

    /// Says it.
    pub(super) fn show(&self) -> Result<(), Failure> {
        match (&self.report_file, &self.report_trouble) {
            (Some(file), _) => show::line(&format!("report: {file}")),
            (None, Some(why)) => show::line(&format!("no report was kept: {why}")),
            (None, None) => Ok(()),
        }
    }
}

/// Has the instance that carried an order out keep the report of it with what the command saw.
pub(super) fn complete(data: &Path, report: &RegionReport) -> KeptReport {
    let kept = || -> Result<KeptReport, Failure> {
        let mut asking = ControlClient::reach(data, COMPLETE_MAX)?;
        let order = json!({ "do": "region_report", "report": report });
        Ok(asking.ask(&order).and_then(understood::<KeptReport>)?)
    };
    kept().unwrap_or_else(|failure| KeptReport {
        report_file: None,
        report_trouble: Some(failure.reason().to_owned()),
    })
}

/// Runs the command.
pub(super) fn run(arguments: &RegionReportShow) -> Result<(), Failure> {
    let (data, is_json) = (&arguments.place.data, arguments.place.json);
    let names =
        region_reports::list(data).map_err(|error| Failure::about(data.display(), error))?;
    if arguments.list {
        return listed(data, &names, is_json);
    }
    let name = match arguments.name.as_str() {
        LAST => names.first().ok_or_else(|| {
            Failure::Failed(format!("{}: no change of roles was reported here", data.display()))
        })?,
        name => name.strip_suffix(".json").unwrap_or(name),
    };
    let report = region_reports::read(data, name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Failed(format!(
            "there is no report {name} in {}: `towline region report --list` names all",
            data.display()
        )),
        _ => Failure::about(name, error),
    })?;
    if let Some(file) = &arguments.html {
        private_file::write(file, &page(&report))
            .map_err(|error| Failure::about(file.display(), error))?;
        if !is_json {
            return show::line(&format!("{}", file.display()));
        }
    }
    match is_json {
        true => show::json(&serde_json::to_value(&report).unwrap_or_default()),
        false => show::lines(report_lines(&report).trim_end()),
    }
}

fn listed(data: &Path, names: &[String], is_json: bool) -> Result<(), Failure> {
    let rows = names.iter().map(|name| (name, region_reports::read(data, name)));
    if is_json {
        let described = |(name, read): (&String, std::io::Result<RegionReport>)| match read {
            Ok(report) => json!({
                "name": name,
                "kind": report.kind,
                "began_at": report.began_at,
                "by": report.by,
                "outcome": report.outcome,
                "verdict": report.verdict,
            }),
            Err(error) => json!({ "name": name, "error": error.to_string() }),
        };
        return show::json(&Value::Array(rows.map(described).collect()));
    }
    for (name, read) in rows {
        let text = match read {
            Ok(report) => {
                format!("{}, objectives {}", report.outcome.words(), report.verdict.words())
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        show::line(&format!("{name:<40} {text}"))?;
    }
    Ok(())
}
