//! Runs one killer on the tree as it stands: a test program with the tests that were asked for, or
//! the simulator with its seeds.
//!
//! Invariant: it ends within the time limit. What hangs was noticed; that is said in words.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::list::Killer;
use super::workshop::Workshop;
use crate::test_programs::Program;

/// Virtual memory of a killer in KiB: a bug that allocates without end must not take the machine.
const MEMORY_KIB_MAX: &str = "8388608";

/// What a killer found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KillerEnd {
    /// Nothing.
    Green,
    /// A failure: of which test, or of which seed.
    Red(String),
    /// No test has the name that was asked for.
    Empty,
}

/// How a process ended, and what it wrote.
struct Ended {
    /// `None`: it was ended, because it took too long or because a test had failed.
    status: Option<ExitStatus>,
    output: String,
    took: Duration,
}

/// What a line says with which a test program reports a failure.
const FAILED: &str = "... FAILED";
/// And with which it reports a test that does not end.
const RUNS_ON: &str = "has been running for over 60 seconds";
/// A killer that ends within this has no test that takes 60 s, also on a machine with other work.
const SHORT: Duration = Duration::from_secs(10);

/// How long a killer may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// As long as a killer may run at all.
    pub(crate) limit: Duration,
    /// A test that runs for 60 s hangs.
    pub(crate) is_short: bool,
}

impl Patience {
    /// A killer that takes so long without a bug hangs when it takes five times as long, and not
    /// before a minute is over: a machine with other work is slow.
    pub(crate) fn with(green: Duration) -> Patience {
        const MINUTE: Duration = Duration::from_secs(60);
        Patience { limit: (green * 5).max(MINUTE), is_short: green < SHORT }
    }

    fn ends_with(self, line: &str) -> bool {
        let line = line.trim_end();
        line.starts_with("test ")
            && (line.ends_with(FAILED) || (self.is_short && line.ends_with(RUNS_ON)))
    }
}

/// Runs the killer.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn run_killer(
    workshop: &Workshop,
    killer: &Killer,
    program: &Program,
    patience: Patience,
) -> io::Result<KillerEnd> {
    let arguments = match killer {
        Killer::Unit { test, .. } => vec![test.as_str()],
        Killer::Simulator { kind, seeds } => vec!["--json", "--kind", kind, "--seeds", seeds],
    };
    let limited = format!("ulimit -v {MEMORY_KIB_MAX}; exec \"$0\" \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &limited])
        .arg(&program.executable)
        .args(arguments)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("TMPDIR", workshop.scratch())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let ended = wait(child, patience)?;
    workshop.clear_scratch()?;
    Ok(match killer {
        Killer::Unit { .. } => of_tests(&ended),
        Killer::Simulator { kind, .. } => of_simulator(kind, &ended),
    })
}

/// Reads both outputs to their ends; ends the process when that takes too long, or when the first
/// test has failed: what the others say is not asked.
fn wait(mut child: Child, patience: Patience) -> io::Result<Ended> {
    let began = Instant::now();
    let deadline = began + patience.limit;
    let (lines, read) = channel();
    let outputs = [
        child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>),
        child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>),
    ];
    for output in outputs.into_iter().flatten() {
        let lines = lines.clone();
        std::thread::spawn(move || pass_on(output, &lines));
    }
    drop(lines);
    let mut output = String::new();
    let by_itself = loop {
        match read.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if patience.ends_with(&line) => {
                output.push_str(&line);
                break false;
            }
            Ok(line) => output.push_str(&line),
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    if !by_itself {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(Ended { status: by_itself.then_some(status), output, took: began.elapsed() })
}

fn pass_on(output: Box<dyn Read + Send>, lines: &Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = output.read_until(b'\n', &mut line) {
        if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
        line.clear();
    }
}

fn of_tests(ended: &Ended) -> KillerEnd {
    let name = |line: &str, end: &str| {
        let name = line.strip_prefix("test ")?.strip_suffix(end)?;
        Some(name.trim_end().to_owned())
    };
    let mut lines = ended.output.lines();
    if let Some(failed) = ended.output.lines().find_map(|line| name(line, FAILED)) {
        return KillerEnd::Red(failed);
    }
    let Some(status) = ended.status else {
        let slow = lines.find_map(|line| name(line, RUNS_ON));
        let what = slow.map_or(String::new(), |test| format!(" in {test}"));
        return KillerEnd::Red(format!("hangs{what} ({} s)", ended.took.as_secs()));
    };
    if status.success() {
        let ran = lines.any(|line| line.starts_with("test ") && line.ends_with("... ok"));
        return if ran { KillerEnd::Green } else { KillerEnd::Empty };
    }
    KillerEnd::Red(format!("the test program ended: {status}"))
}

fn of_simulator(kind: &str, ended: &Ended) -> KillerEnd {
    let Some(status) = ended.status else {
        return KillerEnd::Red(format!("the simulator hangs ({} s)", ended.took.as_secs()));
    };
    if status.success() {
        return KillerEnd::Green;
    }
    let mut lines = ended.output.lines();
    let broke = lines.find_map(|line| {
        let (seed, _) = line.strip_prefix("seed ")?.split_once(" broke an assertion")?;
        Some(format!("{kind}, seed {seed}: an assertion"))
    });
    let rule = || {
        let report = ended.output.lines().find_map(|line| line.parse::<Json>().ok())?;
        let failed = report["failed"].as_array()?.first()?;
        Some(format!("{kind}, seed {}: {}", failed["seed"], failed["failure"].as_str()?))
    };
    KillerEnd::Red(broke.or_else(rule).unwrap_or_else(|| format!("the simulator ended: {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { limit: Duration::from_secs(100), is_short: true };

    fn ended(program: &str, patience: Patience) -> Ended {
        let child = Command::new("sh")
            .args(["-c", program])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait(child, patience).unwrap()
    }

    #[test]
    fn the_first_test_that_failed_is_named_and_a_name_of_no_test_is_no_success() {
        let run = |script: &str| of_tests(&ended(script, PATIENCE));
        assert_eq!(run("echo 'test a::b ... ok'"), KillerEnd::Green);
        assert_eq!(run("echo 'running 0 tests'"), KillerEnd::Empty);
        let red = "echo 'test a ... ok'; echo 'test c::d ... FAILED'; exec tail -f /dev/null";
        assert_eq!(run(red), KillerEnd::Red("c::d".into()));
        let KillerEnd::Red(by) = run("kill -ABRT $$") else { unreachable!("it ended by a signal") };
        assert!(by.starts_with("the test program ended"), "{by}");
    }

    #[test]
    fn the_simulators_seed_is_named_whether_a_rule_or_an_assertion_broke() {
        let run = |script: &str| of_simulator("model", &ended(script, PATIENCE));
        assert_eq!(run("echo '{\"failed\":[]}'"), KillerEnd::Green);
        let rule = "echo '{\"failed\":[{\"seed\":7,\"failure\":\"lost\"}]}'; exit 1";
        assert_eq!(run(rule), KillerEnd::Red("model, seed 7: lost".into()));
        let assertion = "echo 'seed 9 broke an assertion; repeat it' >&2; exit 101";
        assert_eq!(run(assertion), KillerEnd::Red("model, seed 9: an assertion".into()));
    }

    #[test]
    fn what_does_not_end_is_ended_and_counts_as_noticed() {
        let script = format!("echo 'test a::b {RUNS_ON}'; exec tail -f /dev/null");
        let hangs = |patience| {
            let KillerEnd::Red(by) = of_tests(&ended(&script, patience)) else {
                unreachable!("it hangs")
            };
            by
        };
        assert_eq!(hangs(PATIENCE), "hangs in a::b (0 s)", "no test of it takes that long");
        let long = Patience { limit: Duration::from_secs(1), is_short: false };
        assert_eq!(hangs(long), "hangs in a::b (1 s)");
    }

    #[test]
    fn five_times_as_long_is_a_hang_and_a_minute_is_none() {
        let seconds = |green| Patience::with(Duration::from_secs(green)).limit.as_secs();
        assert_eq!((seconds(1), seconds(48)), (60, 240));
    }
}
