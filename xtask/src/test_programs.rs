//! Builds the tests of the whole workspace once, and runs several test programs at a time.
//!
//! `cargo test` would build the dependencies of the end-to-end tests a second time, because a
//! smaller choice of packages has other features, and would run one program after the other, though
//! most of their time is waiting. Here too each program runs its own tests in threads.
//!
//! Not here: tests in documentation comments (there are none; a rule of `tidy` keeps it so).
//!
//! Invariant: a program that is built and belongs to the chosen part runs, whatever became of those
//! before it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::tree::project_root;

/// The package of the end-to-end tests.
const E2E: &str = "towline-e2e";
/// Programs at a time: `TOWLINE_TEST_JOBS`, else as many as processors. Each has threads of its
/// own, but most of them wait.
const JOBS_VARIABLE: &str = "TOWLINE_TEST_JOBS";

/// Which tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those of every crate but the end-to-end tests.
    Unit,
    /// The end-to-end tests.
    EndToEnd,
}

/// A test program, as cargo built it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) package: String,
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Folder of its package, in which it runs.
    pub(crate) folder: PathBuf,
}

/// What came of a program.
struct Outcome {
    program: Program,
    status: io::Result<ExitStatus>,
    output: Vec<u8>,
    took: Duration,
}

/// Builds all test programs and runs those of a part. Prints what each wrote when it has ended.
/// True when all succeeded.
///
/// # Errors
/// When cargo cannot be run, or does not build them.
pub(crate) fn run(part: Part) -> io::Result<bool> {
    let mut programs: Vec<Program> =
        built()?.into_iter().filter(|program| part.has(&program.package)).collect();
    programs.sort_by_key(|program| (rank(&program.name), program.name.clone()));
    let count = programs.len();
    let (waiting, (ended, outcomes)) = (Mutex::new(VecDeque::from(programs)), channel());
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..jobs() {
            let (waiting, ended) = (&waiting, ended.clone());
            scope.spawn(move || work(waiting, &ended));
        }
        drop(ended);
        for outcome in outcomes {
            if !show(&outcome) {
                failed.push(outcome.program.name);
            }
        }
    });
    match failed.is_empty() {
        true => println!("\n{count} test programs: ok"),
        false => {
            println!("\n{} of {count} test programs failed: {}", failed.len(), failed.join(", "))
        }
    }
    Ok(failed.is_empty())
}

impl Part {
    fn has(self, package: &str) -> bool {
        (package == E2E) == (self == Part::EndToEnd)
    }
}

/// Programs that take longest begin first, so that none of them is alone at the end.
fn rank(name: &str) -> usize {
    const LONGEST_FIRST: [&str; 2] = ["towline_log", "towline_access"];
    LONGEST_FIRST.iter().position(|long| *long == name).unwrap_or(LONGEST_FIRST.len())
}

fn jobs() -> usize {
    let chosen = std::env::var(JOBS_VARIABLE).ok().and_then(|text| text.parse().ok());
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    chosen.unwrap_or(processors).max(1)
}

/// Has cargo build the tests of all packages; its messages go to standard error.
fn built() -> io::Result<Vec<Program>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--workspace", "--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(project_root())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other("cargo could not build the tests"));
    }
    programs_of(&String::from_utf8_lossy(&output.stdout))
}

/// The test programs that messages of cargo, a line each, are about.
///
/// # Errors
/// When there is none, or one of no package that is known.
pub(crate) fn programs_of(messages: &str) -> io::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Json = serde_json::from_str(line).map_err(io::Error::other)?;
        if message["profile"]["test"] != true || !message["executable"].is_string() {
            continue;
        }
        let unknown = || io::Error::other(format!("a test program of no known package: {line}"));
        programs.push(program_of(&message).ok_or_else(unknown)?);
    }
    match programs.is_empty() {
        true => Err(io::Error::other("cargo built no test program")),
        false => Ok(programs),
    }
}

/// The test program that a message of cargo is about.
fn program_of(message: &Json) -> Option<Program> {
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    // path+file:///folder/of/crate#name@version, and without a name where the folder has it.
    let id = message["package_id"].as_str()?;
    let (url, version) = id.rsplit_once('#')?;
    let package =
        version.split_once('@').map(|(name, _)| name).or_else(|| url.rsplit('/').next())?;
    Some(Program {
        package: package.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        executable: message["executable"].as_str()?.into(),
        folder: manifest.parent()?.to_owned(),
    })
}

/// Runs one program after the other until none is left.
fn work(waiting: &Mutex<VecDeque<Program>>, ended: &Sender<Outcome>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(program) = next else { return };
        let began = Instant::now();
        let ran = Command::new(&program.executable)
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .stdin(Stdio::null())
            .output();
        let (status, output) = match ran {
            Ok(output) => (Ok(output.status), [output.stdout, output.stderr].concat()),
            Err(error) => (Err(error), Vec::new()),
        };
        let outcome = Outcome { program, status, output, took: began.elapsed() };
        if ended.send(outcome).is_err() {
            return;
        }
    }
}

/// Prints what a program wrote. True when it succeeded.
fn show(outcome: &Outcome) -> bool {
    let Outcome { program, status, output, took } = outcome;
    println!(
        "\n     Running {} of {} ({:.1} s)",
        program.name,
        program.package,
        took.as_secs_f64()
    );
    print!("{}", String::from_utf8_lossy(output));
    match status {
        Ok(status) if status.success() => return true,
        Ok(status) => println!("{}: {status}", program.executable.display()),
        Err(error) => println!("{}: {error}", program.executable.display()),
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(id: &str, test: bool) -> Json {
        json!({
            "reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/tests/e2e/Cargo.toml",
            "profile": { "test": test }, "target": { "name": "kill" }, "executable": "/t/kill-1",
        })
    }

    #[test]
    fn a_test_program_is_known_with_its_package_and_folder() {
        let found =
            program_of(&message("path+file:///w/tests/e2e#towline-e2e@0.1.0", true)).unwrap();
        let expected = Program {
            package: "towline-e2e".into(),
            name: "kill".into(),
            executable: "/t/kill-1".into(),
            folder: "/w/tests/e2e".into(),
        };
        assert_eq!(found, expected);
        let named_as_folder = program_of(&message("path+file:///w/xtask#0.1.0", true)).unwrap();
        assert_eq!(named_as_folder.package, "xtask");
    }

    #[test]
    fn no_test_program_is_passed_over() {
        let id = "path+file:///w/xtask#0.1.0";
        let mut library = message(id, true);
        library["executable"] = Json::Null;
        let others = [message(id, false), library, json!({ "reason": "build-finished" })];
        let lines =
            |messages: &[Json]| messages.iter().map(|it| format!("{it}\n")).collect::<String>();
        let why = programs_of(&lines(&others)).unwrap_err().to_string();
        assert_eq!(why, "cargo built no test program");
        let found = programs_of(&lines(&[others.as_slice(), &[message(id, true)]].concat()));
        assert_eq!(found.unwrap().len(), 1);
        let of_another_form = message("xtask 0.1.0 (path+file:///w/xtask)", true);
        let why = programs_of(&lines(&[of_another_form])).unwrap_err().to_string();
        assert!(why.contains("of no known package"), "{why}");
    }

    #[test]
    fn every_package_is_in_one_part() {
        for package in [E2E, "towline-log", "xtask"] {
            assert_ne!(Part::Unit.has(package), Part::EndToEnd.has(package), "{package}");
        }
        assert!(Part::EndToEnd.has(E2E));
    }

    #[test]
    fn a_program_that_fails_is_a_failure_whatever_it_wrote() {
        let program = |name: &str| Program {
            package: "p".into(),
            name: name.into(),
            executable: format!("/bin/{name}").into(),
            folder: "/".into(),
        };
        for (name, succeeds) in [("true", true), ("false", false), ("no-such-program", false)] {
            let (waiting, (ended, outcomes)) = (Mutex::new([program(name)].into()), channel());
            work(&waiting, &ended);
            assert_eq!(show(&outcomes.recv().unwrap()), succeeds, "{name}");
        }
    }
}
