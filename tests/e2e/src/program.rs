//! Client programs in other languages: how each is started, and a talk with it line by line.
//!
//! A program prints what it has reached (`prepared`, ...), reads a line when it shall go on, and
//! ends with exit code 0 when all was as it should be. One that is dropped is killed.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::daemon::{Site, read_lines};
use crate::{Try, fail, paths, require, wait};

/// No scenario needs this long, not even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A running client program.
pub struct Program {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
    errors: NamedTempFile,
}

/// Qpid JMS: `dev.towline.e2e.Main SCENARIO URL ARGUMENTS...`.
///
/// # Errors
/// When tests/install.sh was not run.
pub fn jms(scenario: &str, url: &str, arguments: &[&str]) -> Try<Command> {
    let folder = paths::installed("jms/lib")?.parent().map(PathBuf::from).unwrap_or_default();
    let classes = format!("{0}/towline-e2e-jms.jar:{0}/lib/*", folder.display());
    let mut command = Command::new("java");
    // A short life: little compiling, one small heap.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx1g"]);
    command.args(["-cp", &classes, "dev.towline.e2e.Main", scenario, url]).args(arguments);
    Ok(command)
}

/// python-qpid-proton: `tests/e2e/proton/SCRIPT SCENARIO URL ARGUMENTS...`.
///
/// # Errors
/// When tests/install.sh was not run.
pub fn proton(script: &str, scenario: &str, url: &str, arguments: &[&str]) -> Try<Command> {
    let mut command = Command::new(paths::installed("venv/bin/python")?);
    command.arg("-B").arg(paths::sources().join("proton").join(script));
    command.args([scenario, url]).args(arguments);
    Ok(command)
}

/// go-amqp: `go-client SCENARIO URL ARGUMENTS...`.
///
/// # Errors
/// When tests/install.sh was not run.
pub fn go(scenario: &str, url: &str, arguments: &[&str]) -> Try<Command> {
    let mut command = Command::new(paths::installed("go-client")?);
    command.args([scenario, url]).args(arguments);
    Ok(command)
}

/// rhea: `node main.js SCENARIO URL ARGUMENTS...`.
#[must_use]
pub fn node(scenario: &str, url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.arg(paths::sources().join("node").join("main.js"));
    command.args([scenario, url]).args(arguments);
    command
}

/// A client library with scenarios of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Qpid JMS.
    Jms,
    /// go-amqp.
    Go,
    /// rhea.
    Node,
}

impl Library {
    /// The command of a scenario.
    ///
    /// # Errors
    /// When tests/install.sh was not run.
    pub fn command(self, scenario: &str, url: &str, arguments: &[&str]) -> Try<Command> {
        match self {
            Library::Jms => jms(scenario, url, arguments),
            Library::Go => go(scenario, url, arguments),
            Library::Node => Ok(node(scenario, url, arguments)),
        }
    }

    /// Runs a scenario against a fresh daemon that defines queues on first use.
    ///
    /// # Errors
    /// What the scenario printed, when it failed.
    pub fn passes(self, scenario: &str, arguments: &[&str]) -> Try {
        let site = Site::open()?;
        let daemon = site.start()?;
        run(self.command(scenario, &daemon.url(), arguments)?)?;
        daemon.stop()
    }

    /// Runs a scenario against a fresh daemon that has only the objects of these commands.
    ///
    /// # Errors
    /// What the scenario printed, when it failed.
    pub fn passes_on(self, mqsc: &str, scenario: &str, arguments: &[&str]) -> Try {
        let site = Site::closed()?;
        let daemon = site.start()?;
        site.mqsc(mqsc)?;
        run(self.command(scenario, &daemon.url(), arguments)?)?;
        daemon.stop()
    }
}

/// One test for each scenario of a [`Library`], named after it.
#[macro_export]
macro_rules! scenarios {
    ($library:expr; $($name:ident)*) => { $(
        #[test]
        fn $name() -> $crate::Try { $library.passes(stringify!($name), &[]) }
    )* };
}

/// Runs a program to its end, which must be exit code 0, and gives back what it printed.
///
/// # Errors
/// What it printed, when it failed or took too long.
pub fn run(command: Command) -> Try<String> {
    Program::start(command)?.end()
}

impl Program {
    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Try<Self> {
        let errors = NamedTempFile::new()?;
        let name = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.reopen()?);
        let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let Some(stdout) = child.stdout.take() else { fail!("no standard output") };
        Ok(Self { child, lines: read_lines(stdout), heard: Vec::new(), errors })
    }

    /// Waits for a line that starts with `start`, and gives back the rest of it.
    ///
    /// # Errors
    /// When the program ends or is silent for too long.
    pub fn hear(&mut self, start: &str) -> Try<String> {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if let Some(rest) = line.strip_prefix(start) {
                        return Ok(rest.trim().to_string());
                    }
                }
                Err(_) => fail!("never said {start:?}:\n{}", self.all_said()),
            }
        }
    }

    /// Says a line to the program's standard input.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn say(&mut self, line: &str) -> Try {
        match self.child.stdin.as_mut() {
            Some(stdin) => Ok(writeln!(stdin, "{line}")?),
            None => fail!("no standard input"),
        }
    }

    /// Waits for the end, which must be exit code 0; gives back what was printed.
    ///
    /// # Errors
    /// What was printed, when it failed or took too long.
    pub fn end(mut self) -> Try<String> {
        let status =
            wait::until("the end of the program", LIMIT, || self.child.try_wait().ok().flatten());
        let status = status.map_err(|error| format!("{error}\n{}", self.all_said()))?;
        let said = self.all_said();
        require!(status.success(), "{status}\n{said}");
        Ok(said)
    }

    /// Ends the program without warning (SIGKILL).
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(mut self) -> Try {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn all_said(&mut self) -> String {
        if self.child.try_wait().ok().flatten().is_some() {
            // The pipe is closed: what is left comes at once, then the channel ends.
            self.heard.extend(self.lines.iter());
        } else {
            self.heard.extend(self.lines.try_iter());
        }
        let errors = fs::read_to_string(self.errors.path()).unwrap_or_default();
        format!("{}\n{errors}", self.heard.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
