//! A bar for runs that take long; nothing when nobody looks.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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

/// A bar over `total` messages (`None`: it is not known how many there will be).
pub(crate) fn bar(total: Option<u64>, json: bool) -> ProgressBar {
    let worth_it = total.is_none_or(|total| total >= WORTH_IT);
    // Messages themselves go to standard output: a bar between them would be a mess.
    let alone = !std::io::stdout().is_terminal() || total.is_some();
    if json || !worth_it || !alone || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match total {
        Some(_) => "{bar:30} {human_pos}/{human_len} messages, {per_sec}, {eta} left",
        None => "{spinner} {human_pos} messages, {per_sec}",
    };
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
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
