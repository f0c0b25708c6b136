//! A bar for runs that take long; nothing without a terminal.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar over bytes, of which it is learned with each step how many there are.
pub(crate) fn byte_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    let template =
        "{bar:30} {binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Runs shorter than this many messages have no bar.
const WORTH_IT: u64 = 1_000;

/// A bar over `total` messages that are got or looked at (`None`: it is not known how many there
/// will be).
pub(crate) fn bar(total: Option<u64>, json: bool) -> ProgressBar {
    // Messages themselves go to standard output: a bar between them would be a mess.
    bar_if(total, !json && (!std::io::stdout().is_terminal() || total.is_some()))
}

/// The same over messages that are put: nothing is written meanwhile.
pub(crate) fn bar_of_puts(total: Option<u64>, json: bool) -> ProgressBar {
    bar_if(total, !json)
}

fn bar_if(total: Option<u64>, wanted: bool) -> ProgressBar {
    let worth_it = total.is_none_or(|total| total >= WORTH_IT);
    if !wanted || !worth_it || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match total {
        Some(_) => "{bar:30} {human_pos}/{human_len} messages, {rate}, {eta} left",
        None => "{spinner} {human_pos} messages, {rate}",
    };
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            // The formatter writes into memory, which does not fail.
            out.write_str(&rate(state.per_sec())).ok();
        }));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Messages in a second, in whole numbers where fractions say nothing.
fn rate(per_second: f64) -> String {
    if per_second < 10.0 {
        return format!("{per_second:.1}/s");
    }
    let whole = format!("{per_second:.0}");
    whole.parse().map_or_else(|_| format!("{whole}/s"), |count| format!("{}/s", HumanCount(count)))
}

/// A message that turns while something is waited for.
pub(crate) fn spinner(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A bar over a few steps, with what is going on beside it.
pub(crate) fn steps(total: usize, json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_no_more_digits_than_it_is_worth() {
        assert_eq!(rate(9_331.567_8), "9,332/s");
        assert_eq!(rate(0.25), "0.2/s");
    }
}
