//! A report for a terminal.

use towline_types::{CivilTime, Time};

use super::{FigureBound, RegionReport, ReportRisk, ReportWay};
use crate::text::{line, printable, row};

/// The report as text, each line ended.
#[must_use]
pub fn report_lines(report: &RegionReport) -> String {
    let mut text = String::new();
    let at = CivilTime::of(Time(report.began_at.saturating_mul(1_000)));
    row(&mut text, "Report", &printable(&report.name));
    row(&mut text, "What", report.kind.title());
    let by = format!("{} at instance {}", printable(&report.by), printable(&report.instance));
    row(&mut text, "Ordered by", &format!("{by}, {at}"));
    row(&mut text, "Outcome", &format!("{}, {} ms", report.outcome.words(), report.took_ms));
    if !report.reason.is_empty() {
        row(&mut text, "Reason", &printable(&report.reason));
    }
    for way in &report.ways {
        way_lines(&mut text, way);
    }
    if let Some(probe) = &report.probe {
        let of = format!("{} confirmed, {} not", probe.confirmed, probe.unconfirmed);
        row(&mut text, "Probe", &format!("queue {}: {of}", printable(&probe.queue)));
    }
    row(&mut text, "Objectives", report.verdict.words());
    for finding in &report.findings {
        line(&mut text, &format!("  {}", printable(finding)));
    }
    text
}

fn way_lines(text: &mut String, way: &ReportWay) {
    let (from, to) = (printable(&way.from), printable(&way.to));
    line(text, &format!("From {from} to {to}"));
    for step in &way.steps {
        line(text, &format!("  {:<16}{:>9} ms", printable(&step.step), step.ms));
    }
    let risks = [("at risk", &way.at_risk), ("lost", &way.loss)];
    for (name, risk) in risks.iter().filter_map(|(name, risk)| Some((name, risk.as_ref()?))) {
        line(text, &format!("  {name:<16}{}", printable(&risk_words(risk))));
    }
    if let Some(ms) = way.rto_ms {
        let figure = format!("{}{ms}", way.rto_is.words());
        let by = printable(rto_words(&way.rto_by));
        line(text, &format!("  no put for     {figure:>10} ms ({by})"));
    }
}

/// What measured for how long no client was served, or since when it counts.
pub(super) fn rto_words(by: &str) -> &str {
    match by {
        "last_heard" => "since the live group was last heard",
        "fence" => "since the live group said that it is fenced",
        by => by,
    }
}

/// What is at risk, or lost, in words.
pub(super) fn risk_words(risk: &ReportRisk) -> String {
    let mut parts = Vec::new();
    let exact = FigureBound::Exact;
    let counts = [
        (risk.bytes, risk.bytes_are, "bytes of log"),
        (risk.puts, exact, "puts"),
        (risk.removals, exact, "removals"),
    ];
    for (count, bound, what) in counts {
        if let Some(count) = count {
            parts.push(format!("{}{count} {what}", bound.words()));
        }
    }
    if let Some(us) = risk.age_us.filter(|us| *us > 0 || risk.bytes != Some(0)) {
        parts.push(format!("the oldest {}{} ms old", risk.age_is.words(), us / 1_000));
    }
    if !risk.note.is_empty() {
        parts.push(risk.note.clone());
    }
    match parts.is_empty() {
        true => "not known".to_owned(),
        false => parts.join(", "),
    }
}
