//! `towline-sim`: runs seeds of the simulator, one or many, and repeats one that failed.
//!
//! Not here: what a run does (the library). This is the only part with a clock, threads and output.
//!
//! Exit status: 0 no rule was broken, 1 one was, 2 the command line is wrong, 101 or 134 an
//! assertion of the code under test ended the process (the seed is printed before).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use towline_sim::{
    Report, crash_seed, last_events, run, run_alone, run_cluster, run_crash, run_one_crash,
    run_regions,
};
use towline_types::SeededRandom;

/// Runs simulated queue managers under faults, each run decided by a seed.
#[derive(Debug, Parser)]
#[command(name = "towline-sim", version)]
struct Options {
    /// What is simulated.
    #[arg(long, value_enum, default_value_t = Kind::Cluster)]
    kind: Kind,
    /// Repeat this seed and show what happened.
    #[arg(long, conflicts_with_all = ["seeds", "seconds"])]
    seed: Option<u64>,
    /// Run these seeds, for example 0..10000.
    #[arg(long, value_parser = parse_seeds, conflicts_with = "seconds")]
    seeds: Option<Range<u64>>,
    /// Run new seeds for so long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Threads; each runs seeds of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Lines of the trace that are shown for a seed that failed.
    #[arg(long, default_value_t = 60)]
    lines: usize,
    /// Go on behind a seed that failed.
    #[arg(long)]
    keep_going: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What one run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A group: the real rules, node and consensus over simple disks and connections. The fastest.
    Model,
    /// A group of whole processes: everything below the sockets, on simulated threads and files.
    Cluster,
    /// The same for a queue manager that is no group: one instance, or a shared data folder; with
    /// backups and restores.
    Alone,
    /// A short load of such a queue manager with a crash at one file operation: seed = load *
    /// 1000000 + operation * 8 + way. Operation 0: no crash. Way 0 to 3 before it, 4 to 7 after it;
    /// 0 and 4 a kill, the others a power cut.
    Crash,
    /// As `alone`, for a group of one instance.
    One,
    /// As `crash`, for a group of one instance.
    OneCrash,
    /// Two groups of whole processes in two regions, a link between them, and changes of roles. The
    /// seed modulo 4 says how many instances they have: 1 and 1, 3 and 1, 3 and 3, 1 and 3.
    Regions,
}

/// File operations of the load of a crash, about: of one instance, of a shared folder. A crash at a
/// later one than the last does not come.
const CRASH_OPERATIONS: [u64; 2] = [700, 2_000];
/// Ways of one operation to crash.
const CRASH_WAYS: u64 = 8;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// What all threads found.
#[derive(Default)]
struct Total {
    seeds: u64,
    simulated_us: u64,
    events: u64,
    acknowledged: u64,
    faults: u64,
    activations: u64,
    copies: u64,
    images: u64,
    compared: u64,
    peace_us_max: u64,
    happened: BTreeMap<&'static str, u64>,
    failed: Vec<Report>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    tell_the_seed_of_a_panic(options.lines, options.kind);
    let began = Instant::now();
    let total = match options.seed {
        Some(seed) => repeat(seed, &options),
        None => run_many(&options),
    };
    let seconds = began.elapsed().as_secs_f64();
    if options.json {
        println!("{}", as_json(&total, seconds));
    } else {
        print_total(&total, options.kind, seconds);
    }
    ExitCode::from(u8::from(!total.failed.is_empty()))
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("seeds are given as FROM..TO")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("'{text}': {error}"));
    Ok(number(from)?..number(to)?)
}

/// A broken assertion ends the process: say first what it takes to repeat it.
fn tell_the_seed_of_a_panic(lines: usize, kind: Kind) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        last_events(lines).iter().for_each(|line| eprintln!("{line}"));
        let seed = SEED.get();
        eprintln!("seed {seed} broke an assertion; repeat it: {}", kind.repeat(seed));
        before(panic);
        // As where panics abort: other threads must not go on as though nothing had happened.
        std::process::exit(101);
    }));
}

impl Kind {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The command that repeats a seed.
    fn repeat(self, seed: u64) -> String {
        format!("make sim KIND={} SEED={seed}", self.name())
    }

    fn is_crash(self) -> bool {
        match self {
            Kind::Crash | Kind::OneCrash => true,
            Kind::Model | Kind::Cluster | Kind::Alone | Kind::One | Kind::Regions => false,
        }
    }

    /// The number of the first one of new seeds: others each time, and none of the next minutes.
    fn first_new(self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        if self.is_crash() { now } else { now << 20 }
    }

    /// The new seed of a number. Of a crash: another load each time, and one of its operations.
    fn new_seed(self, number: u64) -> u64 {
        if !self.is_crash() {
            return number;
        }
        let mut dice = SeededRandom::mixed(number);
        let operations = CRASH_OPERATIONS[usize::from(number % 2 == 1)];
        crash_seed(number, 1 + dice.below(operations), dice.below(CRASH_WAYS))
    }
}

fn run_one(seed: u64, traced: bool, options: &Options) -> Report {
    match options.kind {
        Kind::Model => run(seed, traced),
        Kind::Cluster => run_cluster(seed, traced),
        Kind::Alone => run_alone(seed, traced),
        Kind::Crash => run_crash(seed, traced),
        Kind::One => towline_sim::run_one(seed, traced),
        Kind::OneCrash => run_one_crash(seed, traced),
        Kind::Regions => run_regions(seed, traced),
    }
}

fn repeat(seed: u64, options: &Options) -> Total {
    SEED.set(seed);
    let report = run_one(seed, true, options);
    if !options.json {
        last_events(options.lines).iter().for_each(|line| println!("{line}"));
    }
    let mut total = Total::default();
    total.add(report);
    total
}

fn run_many(options: &Options) -> Total {
    let deadline = Instant::now() + Duration::from_secs(options.seconds);
    let kind = options.kind;
    let seeds = options.seeds.clone().unwrap_or_else(|| kind.first_new()..u64::MAX);
    if !options.json {
        println!("{}: seeds from {}", kind.name(), seeds.start);
    }
    let bar = progress_bar(options, &seeds);
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Total::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds.end || (options.seeds.is_none() && Instant::now() >= deadline) {
                return;
            }
            let seed = if options.seeds.is_some() { number } else { kind.new_seed(number) };
            SEED.set(seed);
            let report = run_one(seed, false, options);
            if report.failure.is_some() && !options.keep_going {
                stop.store(true, Ordering::Relaxed);
            }
            let mut total = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            total.add(report);
            if options.seeds.is_some() {
                bar.set_position(total.seeds);
            } else {
                let left = deadline.saturating_duration_since(Instant::now()).as_secs();
                bar.set_position(options.seconds.saturating_sub(left));
            }
            bar.set_message(format!("{} seeds, {} failed", total.seeds, total.failed.len()));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let total = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !options.json {
        total.failed.first().into_iter().for_each(|failed| show(failed.seed, options));
    }
    total
}

fn progress_bar(options: &Options, seeds: &Range<u64>) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    let length = match &options.seeds {
        Some(_) => seeds.end.saturating_sub(seeds.start),
        None => options.seconds,
    };
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Runs a seed again, for its trace.
fn show(seed: u64, options: &Options) {
    SEED.set(seed);
    let report = run_one(seed, true, options);
    assert!(report.failure.is_some(), "a seed repeats what it did");
    last_events(options.lines).iter().for_each(|line| println!("{line}"));
}

impl Total {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.simulated_us += report.simulated_us;
        self.events += report.events;
        self.acknowledged += report.acknowledged;
        self.faults += report.faults;
        self.activations += report.activations;
        self.copies += report.copies;
        self.images += report.images;
        self.compared += report.compared;
        self.peace_us_max = self.peace_us_max.max(report.peace_us);
        for (what, count) in &report.happened {
            *self.happened.entry(what).or_default() += count;
        }
        if report.failure.is_some() {
            self.failed.push(report);
        }
    }
}

fn print_total(total: &Total, kind: Kind, seconds: f64) {
    let (copies, images) = match kind {
        Kind::Model => ("copies", "images"),
        Kind::Cluster => ("copies", "batches found synced on a majority"),
        Kind::Regions => ("copies", "batches compared"),
        Kind::Alone | Kind::One => ("restores", "images"),
        Kind::Crash | Kind::OneCrash => ("restores", "file operations"),
    };
    println!(
        "{} seeds in {seconds:.1} s: {} s simulated, {} events, {} faults, {} new actives, \
         {} {copies}, {} {images}, {} promises, {} comparisons; at most {} ms until all served again",
        total.seeds,
        total.simulated_us / 1_000_000,
        total.events,
        total.faults,
        total.activations,
        total.copies,
        total.images,
        total.acknowledged,
        total.compared,
        total.peace_us_max / 1_000,
    );
    if !total.happened.is_empty() {
        let happened = total.happened.iter().map(|(what, count)| format!("{count} {what}"));
        println!("among them: {}", happened.collect::<Vec<_>>().join(", "));
    }
    for failed in &total.failed {
        let what = failed.failure.as_deref().unwrap_or_default();
        println!("seed {} failed: {what}\n  repeat it: {}", failed.seed, kind.repeat(failed.seed));
    }
    if total.failed.is_empty() {
        println!("no rule was broken");
    }
}

fn as_json(total: &Total, seconds: f64) -> serde_json::Value {
    let failed = total.failed.iter();
    let failed: Vec<_> =
        failed.map(|report| json!({ "seed": report.seed, "failure": report.failure })).collect();
    json!({
        "seeds": total.seeds,
        "seconds": seconds,
        "simulated_seconds": total.simulated_us / 1_000_000,
        "events": total.events,
        "faults": total.faults,
        "activations": total.activations,
        "copies": total.copies,
        "images": total.images,
        "acknowledged": total.acknowledged,
        "compared": total.compared,
        "peace_ms_max": total.peace_us_max / 1_000,
        "happened": total.happened,
        "failed": failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_crash_is_at_an_operation_of_its_load_and_the_same_for_the_same_number() {
        for number in [4, 1_795_473_961] {
            let seed = Kind::Crash.new_seed(number);
            let operation = seed % 1_000_000 / CRASH_WAYS;
            assert_eq!((seed / 1_000_000, seed), (number, Kind::Crash.new_seed(number)));
            assert!((1..=CRASH_OPERATIONS[1]).contains(&operation), "{operation}");
        }
        assert_eq!(Kind::Cluster.new_seed(4), 4);
    }

    #[test]
    fn the_command_that_repeats_a_seed_names_its_kind() {
        assert_eq!(Kind::Alone.repeat(7), "make sim KIND=alone SEED=7");
    }
}
