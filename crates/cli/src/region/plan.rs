//! `towline region plan`: the forecast as a table or as JSON, and the verdict. It connects to
//! nothing: all it knows are its options.

use serde_json::{Value, json};

use super::sizing::{AtRisk, LinkForecast, LinkSizing, LinkWarning, Shortage};
use crate::arguments::RegionPlan;
use crate::failure::Failure;
use crate::quantity::{shown_bits_per_s, shown_bytes, shown_count, shown_time};
use crate::show;

/// Runs the command.
///
/// # Errors
/// [`Failure::Unfit`] when it does not fit.
pub(super) fn run(arguments: &RegionPlan) -> Result<(), Failure> {
    let sizing = sizing(arguments);
    let forecast = sizing.forecast();
    if arguments.json {
        show::json(&described(&sizing, &forecast))?;
    } else {
        for line in table(&sizing, &forecast) {
            show::line(&line)?;
        }
    }
    if forecast.shortages.is_empty() { Ok(()) } else { Err(Failure::Unfit) }
}

fn sizing(arguments: &RegionPlan) -> LinkSizing {
    LinkSizing {
        rate: arguments.rate,
        size: arguments.size as f64,
        removed: arguments.removed,
        rtt_s: arguments.rtt.as_secs_f64(),
        bits_per_s: arguments.bandwidth,
        outage_s: arguments.outage.as_secs_f64(),
        compress: arguments.compress,
        write_s: arguments.write.as_secs_f64(),
        window_bytes: arguments.window as f64,
        log_space_bytes: arguments.log_space.map(|bytes| bytes as f64),
        data_bytes: arguments.data.map(|bytes| bytes as f64),
    }
}

/// Lines of at most 80 columns.
fn table(sizing: &LinkSizing, forecast: &LinkForecast) -> Vec<String> {
    let mut lines = Vec::new();
    let mut row = |name: &str, text: String| lines.push(format!("{name:<24}{text}"));
    row("log written", format!("{}/s", shown_bytes(forecast.log_bytes_per_s)));
    row(
        "line used",
        format!(
            "{} of {}, {:.0} %",
            shown_bits_per_s(forecast.line_bits_per_s),
            shown_bits_per_s(sizing.bits_per_s),
            forecast.share * 100.0
        ),
    );
    row(
        "window needed",
        format!(
            "{} to fill the line; window_bytes is {}",
            shown_bytes(forecast.window_bytes),
            shown_bytes(sizing.window_bytes)
        ),
    );
    match &forecast.at_risk {
        Some([truly, known]) => {
            row("at risk", at_risk(truly));
            row("RPA as live shows it", at_risk(known));
        }
        None => row("at risk", "grows for ever".to_owned()),
    }
    let outage = shown_time(sizing.outage_s);
    row("at risk after outage", at_risk(&forecast.after_outage));
    row(
        "log space for outage",
        format!("{} for {outage}", shown_bytes(forecast.outage_space_bytes)),
    );
    if let (Some(space), Some(outage_max_s)) = (sizing.log_space_bytes, forecast.outage_max_s) {
        let text = format!("{} lasts {}", shown_bytes(space), shown_time(outage_max_s));
        row("log space given", text);
    }
    let drain = forecast.drain_s.map_or("never".to_owned(), shown_time);
    row("drained after outage", drain);
    if let Some(data) = sizing.data_bytes {
        let text = match &forecast.rebase {
            Some(rebase) => format!(
                "{} for {}; log space {}",
                shown_time(rebase.time_s),
                shown_bytes(data),
                shown_bytes(rebase.log_space_bytes)
            ),
            None => "never ends".to_owned(),
        };
        row("rebase", text);
    }
    for shortage in &forecast.shortages {
        row("DOES NOT FIT", shortage_text(*shortage, forecast));
    }
    for warning in &forecast.warnings {
        row("warning", warning_text(*warning, forecast));
    }
    if forecast.shortages.is_empty() {
        row("verdict", "it fits".to_owned());
    }
    lines
}

fn at_risk(risk: &AtRisk) -> String {
    format!(
        "{}, {}, {} puts, {} removals",
        shown_time(risk.age_s),
        shown_bytes(risk.bytes),
        shown_count(risk.puts),
        shown_count(risk.removals)
    )
}

fn shortage_text(shortage: Shortage, forecast: &LinkForecast) -> String {
    match shortage {
        Shortage::Line => {
            let wanted = shown_bits_per_s(forecast.bits_per_s_wanted());
            format!("the line is too thin: {wanted} would do")
        }
        Shortage::Window => "window_bytes is too small for this rate".to_owned(),
        Shortage::SpaceForOutage => {
            let wanted = shown_bytes(forecast.space_bytes());
            format!("the log space is too small: {wanted} would do")
        }
        Shortage::SpaceForRebase => {
            let wanted = shown_bytes(forecast.space_bytes());
            format!("a rebase would never end: log space {wanted} would do")
        }
    }
}

fn warning_text(warning: LinkWarning, forecast: &LinkForecast) -> String {
    match warning {
        LinkWarning::Tight => {
            let wanted = shown_bits_per_s(forecast.bits_per_s_wanted());
            format!("the line is tight: {wanted} would be better")
        }
        LinkWarning::WindowBelowLine => "the window does not fill the line".to_owned(),
    }
}

fn described(sizing: &LinkSizing, forecast: &LinkForecast) -> Value {
    let at_risk = |risk: &AtRisk| {
        json!({
            "age_ms": risk.age_s * 1e3,
            "bytes": risk.bytes,
            "puts": risk.puts,
            "removals": risk.removals,
        })
    };
    let shortages: Vec<Value> = forecast
        .shortages
        .iter()
        .map(|shortage| {
            let id = match shortage {
                Shortage::Line => "line",
                Shortage::Window => "window",
                Shortage::SpaceForOutage => "space_for_outage",
                Shortage::SpaceForRebase => "space_for_rebase",
            };
            json!({ "id": id, "text": shortage_text(*shortage, forecast) })
        })
        .collect();
    let warnings: Vec<Value> = forecast
        .warnings
        .iter()
        .map(|warning| {
            let id = match warning {
                LinkWarning::Tight => "tight",
                LinkWarning::WindowBelowLine => "window_below_line",
            };
            json!({ "id": id, "text": warning_text(*warning, forecast) })
        })
        .collect();
    json!({
        "fits": forecast.shortages.is_empty(),
        "shortages": shortages,
        "warnings": warnings,
        "log_bytes_per_s": forecast.log_bytes_per_s,
        "batches_per_s": forecast.batches_per_s,
        "line_bits_per_s": forecast.line_bits_per_s,
        "bandwidth_bits_per_s": sizing.bits_per_s,
        "line_share": forecast.share,
        "log_bytes_per_s_max": forecast.carried_bytes_per_s,
        "window_bytes_needed": forecast.window_bytes,
        "at_risk": forecast.at_risk.as_ref().map(|[truly, _]| at_risk(truly)),
        "rpa": forecast.at_risk.as_ref().map(|[_, known]| at_risk(known)),
        "after_outage": at_risk(&forecast.after_outage),
        "outage_log_space_bytes": forecast.outage_space_bytes,
        "outage_max_s": forecast.outage_max_s,
        "drain_s": forecast.drain_s,
        "rebase": forecast.rebase.map(|rebase| json!({
            "copy_s": rebase.copy_s,
            "time_s": rebase.time_s,
            "log_space_bytes": rebase.log_space_bytes,
        })),
        "log_space_bytes_needed": forecast.space_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_a_terminal_whatever_the_numbers() {
        let small = LinkSizing {
            rate: 0.001,
            size: 1.0,
            removed: 0.0,
            rtt_s: 0.0,
            bits_per_s: 1.0,
            outage_s: 0.0,
            compress: 1.0,
            write_s: 0.0,
            window_bytes: 1.0,
            log_space_bytes: Some(0.0),
            data_bytes: Some(0.0),
        };
        let year_s = 31_536_000.0;
        let large = LinkSizing {
            rate: 1e9,
            size: 100.0 * 1024.0 * 1024.0,
            removed: 1.0,
            rtt_s: year_s,
            bits_per_s: 1e12,
            outage_s: year_s,
            compress: 255.0,
            write_s: year_s,
            window_bytes: 1e18,
            log_space_bytes: Some(1e18),
            data_bytes: Some(1e18),
        };
        let wide = LinkSizing { rate: 1e6, size: 1e3, bits_per_s: 1e12, ..large };
        for sizing in [small, large, wide, LinkSizing { bits_per_s: 1e12, ..small }] {
            for line in table(&sizing, &sizing.forecast()) {
                assert!(line.chars().count() <= 80, "{line}");
                assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_says_what_would_do() {
        let sizing = LinkSizing {
            rate: 1_000.0,
            size: 2_048.0,
            removed: 1.0,
            rtt_s: 0.04,
            bits_per_s: 10e6,
            outage_s: 60.0,
            compress: 1.0,
            write_s: 0.001,
            window_bytes: 16.0 * 1024.0 * 1024.0,
            log_space_bytes: None,
            data_bytes: Some(1e9),
        };
        let lines = table(&sizing, &sizing.forecast());
        let wanted = |start: &str| lines.iter().any(|line| line.starts_with(start));
        assert!(wanted("DOES NOT FIT            the line is too thin: "), "{lines:?}");
        assert!(wanted("at risk                 grows for ever"));
        assert!(wanted("drained after outage    never"));
        assert!(wanted("rebase                  never ends"));
        assert!(!wanted("verdict"));
        let value = described(&sizing, &sizing.forecast());
        assert_eq!(value["fits"], false);
        assert_eq!(value["shortages"][0]["id"], "line");
        // The line that it asks for fits.
        let bits_per_s = sizing.forecast().bits_per_s_wanted();
        let fits = LinkSizing { bits_per_s, ..sizing }.forecast();
        assert!(fits.shortages.is_empty() && fits.warnings.is_empty(), "{fits:?}");
    }
}
