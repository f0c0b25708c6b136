//! A progress bar over the time of a run, on standard error, and only in a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often it moves: it must not slow the writes that it counts.
const STEP: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Show {
    bar: ProgressBar,
    began: Instant,
    next: Duration,
}

impl Show {
    /// A bar that is full after `time`.
    pub(crate) fn new(began: Instant, time: Duration) -> Show {
        let bar = ProgressBar::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        bar.set_draw_target(if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        });
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Show { bar, began, next: Duration::ZERO }
    }

    /// What is being done now.
    pub(crate) fn phase(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Called often: moves to where the clock is.
    pub(crate) fn tick(&mut self) {
        let since = self.began.elapsed();
        if since >= self.next {
            self.next = since + STEP;
            self.bar.set_position(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Takes it away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
