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
}

/// What a line says with which a test program reports a failure.
const FAILED: &str = "... FAILED";

/// Runs the killer.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn run_killer(
    workshop: &Workshop,
    killer: &Killer,
    program: &Program,
    limit: Duration,
) -> io::Result<KillerEnd> {
    let arguments = match killer {
        Killer::Unit { test, .. } => vec![test.as_str()],
        Killer::Simulator { seeds } => vec!["--json", "--seeds", seeds],
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
    let ended = wait(child, limit)?;
    workshop.clear_scratch()?;
    Ok(match killer {
        Killer::Unit { .. } => of_tests(&ended, limit),
        Killer::Simulator { .. } => of_simulator(&ended, limit),
    })
}

/// Reads both outputs to their ends; ends the process when that takes too long, or when the first
/// test has failed: what the others say is not asked.
fn wait(mut child: Child, limit: Duration) -> io::Result<Ended> {
    let deadline = Instant::now() + limit;
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
            Ok(line) if line.starts_with("test ") && line.trim_end().ends_with(FAILED) => {
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
    Ok(Ended { status: by_itself.then_some(status), output })
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

fn of_tests(ended: &Ended, limit: Duration) -> KillerEnd {
    let name = |line: &str, end: &str| {
        let name = line.strip_prefix("test ")?.strip_suffix(end)?;
        Some(name.trim_end().to_owned())
    };
    let mut lines = ended.output.lines();
    if let Some(failed) = ended.output.lines().find_map(|line| name(line, FAILED)) {
        return KillerEnd::Red(failed);
    }
    let Some(status) = ended.status else {
        let slow = lines.find_map(|line| name(line, "has been running for over 60 seconds"));
        let what = slow.map_or(String::new(), |test| format!(" in {test}"));
        return KillerEnd::Red(format!("hangs{what} ({} s)", limit.as_secs()));
    };
    if status.success() {
        let ran = lines.any(|line| line.starts_with("test ") && line.ends_with("... ok"));
        return if ran { KillerEnd::Green } else { KillerEnd::Empty };
    }
    KillerEnd::Red(format!("the test program ended: {status}"))
}

fn of_simulator(ended: &Ended, limit: Duration) -> KillerEnd {
    let Some(status) = ended.status else {
        return KillerEnd::Red(format!("the simulator hangs ({} s)", limit.as_secs()));
    };
    if status.success() {
        return KillerEnd::Green;
    }
    let mut lines = ended.output.lines();
    let broke = lines.find_map(|line| {
        let (seed, _) = line.strip_prefix("seed ")?.split_once(" broke an assertion")?;
        Some(format!("seed {seed}: an assertion"))
    });
    let rule = || {
        let report = ended.output.lines().find_map(|line| line.parse::<Json>().ok())?;
        let failed = report["failed"].as_array()?.first()?;
        Some(format!("seed {}: {}", failed["seed"], failed["failure"].as_str()?))
    };
    KillerEnd::Red(broke.or_else(rule).unwrap_or_else(|| format!("the simulator ended: {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(100);

    fn ended(program: &str, limit: Duration) -> Ended {
        let child = Command::new("sh")
            .args(["-c", program])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait(child, limit).unwrap()
    }

    #[test]
    fn the_first_test_that_failed_is_named_and_a_name_of_no_test_is_no_success() {
        let run = |script: &str| of_tests(&ended(script, LIMIT), LIMIT);
        assert_eq!(run("echo 'test a::b ... ok'"), KillerEnd::Green);
        assert_eq!(run("echo 'running 0 tests'"), KillerEnd::Empty);
        let red = "echo 'test a ... ok'; echo 'test c::d ... FAILED'; exec tail -f /dev/null";
        assert_eq!(run(red), KillerEnd::Red("c::d".into()));
        let KillerEnd::Red(by) = run("kill -ABRT $$") else { unreachable!("it ended by a signal") };
        assert!(by.starts_with("the test program ended"), "{by}");
    }

    #[test]
    fn the_simulators_seed_is_named_whether_a_rule_or_an_assertion_broke() {
        let run = |script: &str| of_simulator(&ended(script, LIMIT), LIMIT);
        assert_eq!(run("echo '{\"failed\":[]}'"), KillerEnd::Green);
        let rule = "echo '{\"failed\":[{\"seed\":7,\"failure\":\"lost\"}]}'; exit 1";
        assert_eq!(run(rule), KillerEnd::Red("seed 7: lost".into()));
        let assertion = "echo 'seed 9 broke an assertion; repeat it' >&2; exit 101";
        assert_eq!(run(assertion), KillerEnd::Red("seed 9: an assertion".into()));
    }

    #[test]
    fn what_does_not_end_is_ended_and_counts_as_noticed() {
        let script =
            "echo 'test a::b has been running for over 60 seconds'; exec tail -f /dev/null";
        let limit = Duration::from_secs(1);
        let KillerEnd::Red(by) = of_tests(&ended(script, limit), limit) else {
            unreachable!("it hangs")
        };
        assert_eq!(by, "hangs in a::b (1 s)");
    }
}
