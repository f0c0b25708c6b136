//! `towline run` as a process of its own, for tests of its start, its end and its control socket.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A queue manager that ends with its test.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    pub(crate) lines: BufReader<ChildStdout>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The command that runs the queue manager QMT, with its output in pipes.
pub(crate) fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(["run", "QMT", "--data"]).arg(data).args(arguments);
    command.env_remove("TOWLINE_LOG").env_remove("TOWLINE_LOG_FORMAT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Daemon {
    /// Starts it on a free port. Nothing reads its log, so that goes nowhere.
    pub(crate) fn start(data: &Path, more: &[&str]) -> Daemon {
        let mut command = command(data, &["--listen", "127.0.0.1:0"]);
        let mut process = command.args(more).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Daemon { process, lines }
    }

    /// Waits for a line that begins so, and gives it.
    pub(crate) fn says(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended before {beginning}");
        }
        line
    }
}
