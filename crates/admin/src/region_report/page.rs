//! A report as one page of HTML: no script, no file beside it, readable in print.
//!
//! Not here: where it is written. Invariant: no byte of the report reaches the page but through
//! [`escaped`], so that a name is never markup.

use std::fmt::Write as _;

use towline_types::{CivilTime, Time, is_unprintable};

use super::lines::{risk_words, rto_words};
use super::{RegionReport, ReportVerdict, ReportWay};

/// Width of the chart's bars, in the units of the picture.
const CHART_WIDTH: u64 = 620;
/// Height of one step in it.
const STEP_HEIGHT: u64 = 24;
/// Where bars begin: names are left of it.
const BARS_AT: u64 = 150;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;color:#1b1f24;max-width:52rem;margin:2rem auto;\
padding:0 1rem}h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .6rem .25rem 0;\
border-bottom:1px solid #d8dee4;vertical-align:top}th{width:11rem;font-weight:600}\
.verdict{display:inline-block;padding:.15rem .7rem;border:2px solid;font-weight:700}\
.met{color:#116329}.missed{color:#a40e26}.open{color:#57606a}\
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#1b1f24}\
@media print{body{margin:0;max-width:none}h2,svg,tr{break-inside:avoid}\
svg rect{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

/// The page.
#[must_use]
pub fn page(report: &RegionReport) -> String {
    let mut out = String::new();
    let title = format!("{}: {}", report.kind.title(), report.queue_manager);
    let title = escaped(&title);
    put(
        &mut out,
        &format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        ),
    );
    let class = match report.verdict {
        ReportVerdict::Met => "met",
        ReportVerdict::Missed => "missed",
        ReportVerdict::NotJudged => "open",
    };
    let verdict = escaped(report.verdict.words());
    put(
        &mut out,
        &format!("<p>Objectives: <span class=\"verdict {class}\">{verdict}</span></p>\n"),
    );
    head(&mut out, report);
    for way in &report.ways {
        way_of(&mut out, way);
    }
    if let Some(probe) = &report.probe {
        put(&mut out, "<h2>What a client saw</h2>\n<table>");
        cells(&mut out, "Queue", &probe.queue);
        cells(&mut out, "Puts confirmed", &probe.confirmed.to_string());
        cells(&mut out, "Puts not confirmed", &probe.unconfirmed.to_string());
        let or = |count: Option<u64>| count.map_or("not looked for".into(), |it| it.to_string());
        cells(&mut out, "Confirmed, not there at the end", &or(probe.missing));
        let lost = match (probe.lost, probe.missing) {
            (None, Some(_)) => "not known: others may have got them".to_owned(),
            (lost, _) => or(lost),
        };
        cells(&mut out, "Confirmed and lost", &lost);
        cells(&mut out, "Found twice", &or(probe.doubled));
        put(&mut out, "</table>\n");
    }
    put(&mut out, "<h2>Against the objectives</h2>\n<ul>");
    for finding in &report.findings {
        put(&mut out, &format!("<li>{}</li>", escaped(finding)));
    }
    put(&mut out, "</ul>\n</body></html>\n");
    out
}

fn head(out: &mut String, report: &RegionReport) {
    put(out, "<table>");
    cells(out, "Ordered by", &report.by);
    let at = CivilTime::of(Time(report.began_at.saturating_mul(1_000)));
    cells(out, "At", &at.to_string());
    let RegionReport { instance, group, version, .. } = report;
    cells(out, "Carried out by", &format!("instance {instance} of group {group}, {version}"));
    cells(out, "Outcome", report.outcome.words());
    if !report.reason.is_empty() {
        cells(out, "Reason", &report.reason);
    }
    cells(out, "Took", &format!("{} ms", report.took_ms));
    let objectives = [
        (report.rpo_bytes, "RPO: bytes"),
        (report.rpo_s, "RPO: seconds"),
        (report.rto_s, "RTO: seconds"),
    ];
    for (objective, name) in objectives {
        let value = match objective {
            0 => "none".to_owned(),
            value => value.to_string(),
        };
        cells(out, name, &value);
    }
    cells(out, "Report", &report.name);
    put(out, "</table>\n");
}

fn way_of(out: &mut String, way: &ReportWay) {
    let ways = format!("From group {} to group {}", way.from, way.to);
    put(out, &format!("<h2>{}</h2>\n", escaped(&ways)));
    chart(out, way);
    put(out, "<table>");
    for step in &way.steps {
        cells(out, &step.step, &format!("{} ms", step.ms));
    }
    if !way.history.is_empty() {
        cells(out, "History", &way.history);
    }
    if !way.active.is_empty() {
        cells(out, "Serves then", &way.active);
    }
    if let Some(risk) = &way.at_risk {
        cells(out, "At risk before (RPA)", &risk_words(risk));
    }
    if let Some(loss) = &way.loss {
        cells(out, "Lost", &risk_words(loss));
    }
    if let Some(ms) = way.rto_ms {
        cells(
            out,
            "No client served (RTO)",
            &format!("{}{ms} ms, measured by: {}", way.rto_is.words(), rto_words(&way.rto_by)),
        );
    }
    if let Some(clients) = way.clients {
        cells(out, "Clients let go", &clients.to_string());
    }
    if let Some(dropped) = way.non_persistent {
        cells(out, "Non-persistent dropped", &dropped.to_string());
    }
    put(out, "</table>\n");
}

/// A bar for each step: from the end of the one before to its own.
fn chart(out: &mut String, way: &ReportWay) {
    let all = way.steps.iter().map(|step| step.ms).max().unwrap_or(0).max(1);
    let (width, count) = (BARS_AT + CHART_WIDTH + 90, way.steps.len() as u64);
    let height = (count * STEP_HEIGHT).max(1);
    put(
        out,
        &format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Steps\">\n"),
    );
    let scaled = |ms: u64| {
        let x = u128::from(ms) * u128::from(CHART_WIDTH) / u128::from(all);
        u64::try_from(x).unwrap_or(CHART_WIDTH)
    };
    let (mut before, mut top) = (0, 0);
    for step in &way.steps {
        let (left, right) = (scaled(before.min(step.ms)), scaled(step.ms));
        let (x, y) = (BARS_AT + left, top + 4);
        let bar = (right - left).max(2);
        let (label_x, text_y) = (BARS_AT + right + 6, top + 17);
        let (name, height) = (escaped(&step.step), STEP_HEIGHT - 8);
        let ms = step.ms;
        put(
            out,
            &format!(
                "<text x=\"0\" y=\"{text_y}\">{name}</text>\
                 <rect x=\"{x}\" y=\"{y}\" width=\"{bar}\" height=\"{height}\" fill=\"#2f6f9f\"/>\
                 <text x=\"{label_x}\" y=\"{text_y}\">{ms} ms</text>\n"
            ),
        );
        (before, top) = (step.ms, top + STEP_HEIGHT);
    }
    put(out, "</svg>\n");
}

fn cells(out: &mut String, name: &str, value: &str) {
    put(out, &format!("<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value)));
}

fn put(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    out.write_str(text).ok();
}

/// Text as HTML shows it, also within quotes of an attribute; control characters become U+FFFD.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for each in text.chars() {
        match each {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            each if is_unprintable(each) => out.push('\u{fffd}'),
            each => out.push(each),
        }
    }
    out
}
