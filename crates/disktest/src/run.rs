//! The phases of a run: look at the folder, make the file, measure, predict, judge, test the locks,
//! report. Not here: how any of them is done.
//!
//! Invariant: a run ends within its time, and a stall of the disk, because each phase takes its
//! share of what is left.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::args::{DiskArgs, DiskMode};
use super::chart;
use super::cut::{self, CutPlan};
use super::file::{TestFile, Way, is_refusal};
use super::guard::Itself;
use super::honesty::judge;
use super::location::FolderLocation;
use super::locks;
use super::measure;
use super::plan::Plan;
use super::predict::{CLIENTS, Load, predict};
use super::probe::probe;
use super::report::{Block, Report, SkippedMode};
use super::show::Show;
use super::table::size;

/// Shares of the time, in hundredths: looking for lies, and measuring batches of the prediction.
/// The blocks have the rest.
const JUDGE_PERCENT: u32 = 8;
const PREDICT_PERCENT: u32 = 12;
/// Less would judge by a handful of writes, more does not make it better.
const JUDGE_MIN: Duration = Duration::from_millis(150);
const JUDGE_MAX: Duration = Duration::from_secs(5);
/// A slice is at least this long, also where making the file took all the time.
const SLICE_MIN: Duration = Duration::from_millis(50);

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The options do not fit together.
    Usage(String),
    /// Something in or about a folder or file went wrong.
    Io(PathBuf, io::Error),
    /// No way of writing is possible here.
    NothingPossible(Vec<SkippedMode>),
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Io(..) | Failure::NothingPossible(_) => 1,
        }
    }

    fn at(path: &Path) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::Io(path.to_owned(), error)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(what) => f.write_str(what),
            Failure::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Failure::NothingPossible(skipped) => {
                let named: Vec<String> =
                    skipped.iter().map(|s| format!("{} ({})", s.mode, s.reason)).collect();
                write!(f, "the file system takes none of: {}", named.join(", "))
            }
        }
    }
}

/// Runs; false when the disk is not fit.
///
/// # Errors
/// [`Failure`].
pub(crate) fn run(args: &DiskArgs, itself: Itself<'_>) -> Result<bool, Failure> {
    let plan = Plan::new(args).map_err(Failure::Usage)?;
    if let Some(words) = &args.power_cut_check {
        return power_cut_check(args, &plan, words);
    }
    let began = Instant::now();
    let place = FolderLocation::of(&plan.folder).map_err(Failure::at(&plan.folder))?;
    let mut show = Show::new(began, plan.time);
    let mut report = Report::of(place);
    if plan.measures || plan.judges {
        let mut bench = Bench::new(&plan, began, itself, &mut show)?;
        bench.measure_all(&mut report)?;
    }
    if plan.tests_locks {
        show.phase("locks".into());
        let tests = locks::run(&plan.folder, plan.is_quick, itself, &mut |_, _| show.tick());
        report.locks = Some(tests.map_err(Failure::at(&plan.folder))?);
    }
    show.finish();
    report.conclude(began.elapsed().as_secs_f64());
    tell(args, &report)?;
    Ok(report.fit)
}

fn tell(args: &DiskArgs, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &args.chart {
        let svg = chart::svg(report);
        let drawn = svg.and_then(|svg| fs::write(path, svg));
        drawn.map_err(Failure::at(path))?;
    }
    tell_as(args, report, &report.to_string())
}

/// A result as JSON where that was asked for, and in words on standard output unless the JSON is
/// there.
fn tell_as(args: &DiskArgs, result: &impl serde::Serialize, words: &str) -> Result<(), Failure> {
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(result).map_err(io::Error::from);
        let json = json.map_err(Failure::at(path))? + "\n";
        let told = if to_stdout { print(&json) } else { fs::write(path, json) };
        told.map_err(Failure::at(path))?;
    }
    if to_stdout {
        return Ok(());
    }
    print(&format!("{words}\n")).map_err(Failure::at(Path::new("standard output")))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn power_cut_check(
    args: &DiskArgs,
    plan: &Plan,
    words: &[std::ffi::OsString],
) -> Result<bool, Failure> {
    let [action, path] = words else {
        return Err(Failure::Usage("--power-cut-check: write|verify and FILE expected".into()));
    };
    let path = Path::new(path);
    match action.to_str() {
        Some("write") if args.acked.is_some() || args.json.is_some() => {
            Err(Failure::Usage("--acked and --json are for --power-cut-check verify".into()))
        }
        Some("write") => {
            let way = match args.mode {
                DiskMode::Both => Way::DirectSync,
                DiskMode::DirectDsync => Way::DirectDsync,
                DiskMode::BufferedSync => Way::BufferedSync,
            };
            let cut = CutPlan { way, file_bytes: plan.file_bytes, records: args.records };
            let written = cut::write(path, cut, &mut io::stdout().lock());
            written.map_err(Failure::at(path))?;
            Ok(true)
        }
        Some("verify") if args.records.is_some() => {
            Err(Failure::Usage("--records is for --power-cut-check write".into()))
        }
        Some("verify") => {
            let found = cut::verify(path, args.acked).map_err(|error| {
                let hint = "if it was there before the power went, the disk lost it, and lies";
                let kind = error.kind();
                let told = match kind {
                    io::ErrorKind::NotFound => io::Error::new(kind, format!("{error}: {hint}")),
                    _ => error,
                };
                Failure::Io(path.to_owned(), told)
            })?;
            tell_as(args, &found, &found.to_string())?;
            Ok(found.complete)
        }
        Some(_) | None => {
            let what = action.to_string_lossy();
            Err(Failure::Usage(format!("--power-cut-check {what}: write or verify expected")))
        }
    }
}

/// The file, and the time that there is for it.
struct Bench<'a> {
    plan: &'a Plan,
    file: TestFile,
    deadline: Instant,
    show: &'a mut Show,
}

impl<'a> Bench<'a> {
    fn new(
        plan: &'a Plan,
        began: Instant,
        itself: Itself<'_>,
        show: &'a mut Show,
    ) -> Result<Bench<'a>, Failure> {
        show.phase(format!("filling {} with zeros", size(plan.file_bytes)));
        let made = TestFile::make(&plan.folder, plan.file_bytes, itself, &mut |_| show.tick());
        let file = made.map_err(Failure::at(&plan.folder))?;
        Ok(Bench { plan, file, deadline: began + plan.time, show })
    }

    fn measure_all(&mut self, report: &mut Report) -> Result<(), Failure> {
        report.file_bytes = Some(self.file.bytes());
        let left = self.deadline.saturating_duration_since(Instant::now());
        let judging = if self.plan.judges {
            let part = if self.plan.measures { left * JUDGE_PERCENT / 100 } else { left };
            part.clamp(JUDGE_MIN, JUDGE_MAX)
        } else {
            Duration::ZERO
        };
        if self.plan.measures {
            let (began, waited) = (Instant::now(), measure::processor_wait());
            let predicting = left * PREDICT_PERCENT / 100;
            self.blocks(left.saturating_sub(judging + predicting), report)?;
            self.predictions(predicting, report)?;
            let waited = measure::processor_wait().zip(waited).map(|(now, then)| now - then);
            let part = |waited: Duration| waited.as_secs_f64() / began.elapsed().as_secs_f64();
            report.processor_wait_percent =
                waited.map(|waited| (part(waited) * 1e3).round() / 10.0);
        }
        if self.plan.judges {
            self.show.phase("looking for lies".into());
            let show = &mut *self.show;
            let found = probe(&self.file, judging, &mut |_| show.tick());
            let found = found.map_err(Failure::at(&self.plan.folder))?;
            report.sync = Some(judge(&report.place, found));
        }
        Ok(())
    }

    /// One slice for each way and size.
    fn blocks(&mut self, time: Duration, report: &mut Report) -> Result<(), Failure> {
        let count = self.plan.ways.len() * self.plan.block_bytes.len();
        let part = time / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        for way in self.plan.ways {
            for block_bytes in &self.plan.block_bytes {
                self.show.phase(format!("{}, {}", way.name(), size(*block_bytes)));
                match self.slice(*way, *block_bytes, part) {
                    Ok(slice) => report.blocks.push(Block::from(&slice)),
                    Err(error) if is_refusal(&error) && is_direct(*way) => {
                        let reason = error.to_string();
                        report.skipped.push(SkippedMode { mode: way.name(), reason });
                        break;
                    }
                    Err(error) => return Err(Failure::Io(self.plan.folder.clone(), error)),
                }
            }
        }
        if report.blocks.is_empty() {
            return Err(Failure::NothingPossible(std::mem::take(&mut report.skipped)));
        }
        Ok(())
    }

    /// Batches as the log would write them, in the way in which it writes here.
    fn predictions(&mut self, time: Duration, report: &mut Report) -> Result<(), Failure> {
        let part = time / u32::try_from(CLIENTS.len()).unwrap_or(u32::MAX);
        let mut way = Way::DirectSync;
        for clients in CLIENTS {
            let load = Load::of(clients);
            self.show.phase(format!("batches of {clients} clients"));
            let bytes = load.batch_bytes();
            let slice = match self.slice(way, bytes, part) {
                Err(error) if is_refusal(&error) && way == Way::DirectSync => {
                    way = Way::BufferedSync;
                    self.slice(way, bytes, part)
                }
                other => other,
            };
            let slice = slice.map_err(Failure::at(&self.plan.folder))?;
            let latency = Duration::from_secs_f64(slice.latency.avg.max(0.0) / 1e6);
            report.predictions.push(predict(load, latency));
        }
        report.prediction_mode = Some(way.name());
        Ok(())
    }

    fn slice(&mut self, way: Way, bytes: u64, time: Duration) -> io::Result<measure::Slice> {
        let show = &mut *self.show;
        measure::slice(&self.file, way, bytes, time.max(SLICE_MIN), &mut |_| show.tick())
    }
}

fn is_direct(way: Way) -> bool {
    match way {
        Way::DirectDsync | Way::DirectSync | Way::Direct => true,
        Way::BufferedSync | Way::Buffered => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_what_it_is_about_and_has_its_code() {
        let reason = "Invalid argument".into();
        let skipped = vec![SkippedMode { mode: Way::DirectDsync.name(), reason }];
        let failures = [
            (Failure::Usage("--size 1: too small".into()), 2, "--size"),
            (Failure::Io("/data".into(), io::ErrorKind::StorageFull.into()), 1, "/data"),
            (Failure::NothingPossible(skipped), 1, "direct-dsync (Invalid argument)"),
        ];
        for (failure, code, named) in failures {
            assert_eq!(failure.code(), code);
            assert!(failure.to_string().contains(named), "{failure}");
        }
    }
}
