//! What a run shows while it runs: a progress bar in a terminal, and one CSV line for each second.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use towline_types::Time;

use crate::board::Counts;
use crate::plan::Plan;

const SECOND: Duration = Duration::from_secs(1);
/// First line of the CSV file.
const CSV_HEAD: &str = "second,puts,gets,pairs,commits,refused,reconnects,connected";

/// Whether anything is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    pub(crate) is_quiet: bool,
}

impl Show {
    /// What shows one run.
    ///
    /// # Errors
    /// When the CSV file cannot be made.
    pub(crate) fn samples(self, csv: Option<&Path>, plan: &Plan) -> Result<Samples, String> {
        let bar = ProgressBar::new(u64::try_from(plan.seconds.as_millis()).unwrap_or(u64::MAX));
        // Hidden by itself where standard error is no terminal.
        bar.set_draw_target(if self.is_quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(5)
        });
        if let Ok(style) = ProgressStyle::with_template("{msg}  {wide_bar}") {
            bar.set_style(style);
        }
        let csv = csv.map(Csv::create).transpose()?;
        Ok(Samples { bar, csv, start: Time::ZERO, next: Time::NEVER, last: Counts::default() })
    }
}

/// Counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) counts: Counts,
    /// Clients with their links up.
    pub(crate) connected: u32,
}

/// See the module.
pub(crate) struct Samples {
    bar: ProgressBar,
    csv: Option<Csv>,
    start: Time,
    next: Time,
    last: Counts,
}

impl Samples {
    /// While clients connect.
    pub(crate) fn connecting(&self, ready: u32, wanted: u32) {
        self.bar.set_message(format!("{ready} of {wanted} clients connected"));
    }

    /// Measuring begins.
    pub(crate) fn start(&mut self, now: Time) {
        self.start = now;
        self.next = now + SECOND;
    }

    /// Called often; does something once a second.
    pub(crate) fn sample(&mut self, now: Time, row: Row) {
        let elapsed = now.since(self.start);
        self.bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        if now < self.next {
            return;
        }
        self.next = self.next + SECOND;
        let rate = row.counts.since(self.last);
        self.last = row.counts;
        let connected = row.connected;
        self.bar.set_message(message(elapsed.as_secs(), rate, connected));
        if let Some(csv) = &mut self.csv {
            csv.line(elapsed.as_secs(), rate, connected);
        }
    }

    /// Measuring is over.
    pub(crate) fn finish(mut self) {
        self.bar.finish_and_clear();
        if let Some(csv) = &mut self.csv {
            csv.flush();
        }
    }
}

/// What is done in this mode, in a terminal's width.
fn message(seconds: u64, rate: Counts, connected: u32) -> String {
    let Counts { puts, gets, pairs, commits, replies, .. } = rate;
    let done = [(puts, "put"), (gets, "got"), (pairs, "pairs"), (commits, "commits")];
    let mut text = format!("{seconds:>3} s");
    for (count, name) in done.into_iter().chain([(replies, "replies")]) {
        if count > 0 {
            text.push_str(&format!("  {count} {name}/s"));
        }
    }
    text.push_str(&format!("  {connected} clients"));
    text
}

struct Csv {
    out: BufWriter<File>,
    path: String,
}

impl Csv {
    fn create(path: &Path) -> Result<Csv, String> {
        let shown = path.display().to_string();
        let file = File::create(path).map_err(|error| format!("{shown}: {error}"))?;
        let mut csv = Csv { out: BufWriter::new(file), path: shown };
        csv.write(CSV_HEAD);
        Ok(csv)
    }

    fn line(&mut self, second: u64, rate: Counts, connected: u32) {
        let Counts { puts, gets, pairs, commits, refused, reconnects, .. } = rate;
        self.write(&format!(
            "{second},{puts},{gets},{pairs},{commits},{refused},{reconnects},{connected}"
        ));
    }

    fn write(&mut self, line: &str) {
        if let Err(error) = writeln!(self.out, "{line}") {
            eprintln!("{}: {error}", self.path);
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            eprintln!("{}: {error}", self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_fast_run_fits_eighty_columns_and_names_only_what_is_done() {
        let rate = Counts { puts: 199_999, gets: 199_999, commits: 99_999, ..Counts::default() };
        let line = message(9_999, rate, 10_000);
        assert!(line.chars().count() < 80, "{line}");
        let rate = Counts { puts: 5, ..Counts::default() };
        assert_eq!(message(1, rate, 4), "  1 s  5 put/s  4 clients");
    }
}
