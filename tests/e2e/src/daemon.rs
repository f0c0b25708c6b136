//! The daemon as a child process: start it, wait for `ready`, ask it, kill it, start it again.
//!
//! A [`Daemon`] that is dropped is killed. Its standard error goes to `daemon.log` in the test's
//! scratch folder and is shown when something fails. Not here: any AMQP.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Try, fail, group, paths, require, wait};

/// Far above what a start takes; a start that takes longer is hung.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Far above what an orderly stop takes.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A scratch folder and how to start a daemon in it; keeps the data from start to start.
pub struct Site {
    /// Name of the queue manager.
    pub name: String,
    /// Its data folder.
    pub data: PathBuf,
    /// Text of the configuration file; none when empty.
    pub config: String,
    /// Where to listen: a free port unless a test sets what an earlier start got.
    pub listen: String,
    /// Further arguments of `towline run`.
    pub arguments: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Its program; `None`: the one that [`paths::towline`] finds.
    pub program: Option<PathBuf>,
    scratch: TempDir,
}

impl Site {
    /// A fresh site with a daemon that defines queues of any name on first use.
    ///
    /// # Errors
    /// When the scratch folder cannot be made.
    pub fn open() -> Try<Self> {
        let mut site = Self::closed()?;
        site.arguments = vec!["--auto-define".into(), "*".into()];
        Ok(site)
    }

    /// A fresh site with a daemon that knows only the queues that are defined.
    ///
    /// # Errors
    /// When the scratch folder cannot be made.
    pub fn closed() -> Try<Self> {
        let below = paths::target_folder()?.join("e2e").join("scratch");
        fs::create_dir_all(&below)?;
        let scratch = tempfile::Builder::new().prefix("site-").tempdir_in(below)?;
        let data = scratch.path().join("data");
        let (config, arguments, environment) = (String::new(), Vec::new(), Vec::new());
        let (name, listen, program) = ("QM1".into(), "127.0.0.1:0".into(), None);
        Ok(Self { name, data, config, listen, arguments, environment, program, scratch })
    }

    /// The same, with a configuration file.
    #[must_use]
    pub fn with_config(mut self, text: &str) -> Self {
        self.config = text.into();
        self
    }

    /// The same, with an allocator that gives freed memory back to the system at once, for tests
    /// that measure what the queue manager holds. Without it the allocator keeps freed memory for a
    /// second, and on from there until something is allocated.
    #[must_use]
    pub fn giving_freed_memory_back(mut self) -> Self {
        self.environment.push(("MIMALLOC_PURGE_DELAY".into(), "0".into()));
        self
    }

    /// The scratch folder: for files that the test makes, gone with the site.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Leaves the scratch folder behind for people to look at; where it is.
    pub fn keep(&mut self) -> PathBuf {
        self.scratch.disable_cleanup(true);
        self.scratch.path().to_path_buf()
    }

    /// The command that starts the daemon, not yet started.
    ///
    /// # Errors
    /// When the binary is missing or the configuration cannot be written.
    pub fn command(&self) -> Try<Command> {
        let program = self.program.clone().map_or_else(paths::towline, Ok)?;
        let mut command = Command::new(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("run").arg(&self.name).arg("--data").arg(&self.data);
        if !self.config.contains("[[listener]]") {
            command.args(["--listen", &self.listen]);
        }
        command.args(&self.arguments);
        if !self.config.is_empty() {
            let path = self.scratch().join("towline.toml");
            fs::write(&path, &self.config)?;
            command.arg("--config").arg(path);
        }
        command.stdin(Stdio::null()).env_remove("RUST_LOG");
        Ok(command)
    }

    /// Starts the daemon and waits until it accepts clients; an instance of a group, which may have
    /// to wait for the others, until it says so.
    ///
    /// # Errors
    /// When it ends or stays silent; the text has the end of its log.
    pub fn start(&self) -> Try<Daemon> {
        let begun = Instant::now();
        let mut daemon = self.spawn()?;
        if self.config.contains("[group]") {
            daemon.await_begun()?;
        } else {
            daemon.await_active()?;
        }
        daemon.started_in = begun.elapsed();
        Ok(daemon)
    }

    /// Starts the daemon and waits until it stands by, behind another one on the same data folder.
    ///
    /// # Errors
    /// When it ends, gets active or stays silent; the text has the end of its log.
    pub fn start_standby(&self) -> Try<Daemon> {
        let daemon = self.spawn()?;
        let line = daemon.lines.recv_timeout(START_LIMIT);
        let line = line.map_err(|_| format!("no standby:\n{}", daemon.log_end()))?;
        require!(line.starts_with("standby "), "not a standby: {line}");
        Ok(daemon)
    }

    fn spawn(&self) -> Try<Daemon> {
        let path = self.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut command = self.command()?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
        let Some(stdout) = child.stdout.take() else { fail!("no standard output") };
        let lines = read_lines(stdout);
        let (url, started_in) = (String::new(), Duration::ZERO);
        Ok(Daemon { child, url, lines, log: path, started_in })
    }

    /// Starts a daemon that is expected to refuse, and waits for its end.
    ///
    /// # Errors
    /// When it is still running after the limit.
    pub fn start_refused(&self) -> Try<Output> {
        let mut command = self.command()?;
        let out = self.scratch().join("refused.out");
        let err = self.scratch().join("refused.err");
        let mut child = command.stdout(File::create(&out)?).stderr(File::create(&err)?).spawn()?;
        let ended = wait_for_end(&mut child, START_LIMIT);
        drop(child.kill());
        drop(child.wait());
        let status = ended.map_err(|_| "the daemon started although it should refuse")?;
        Ok(Output { status, stdout: fs::read(out)?, stderr: fs::read(err)? })
    }

    /// What the daemon wrote to standard error, over all starts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A `towline` command on this site's data folder, unless it says `--url`.
    ///
    /// # Errors
    /// When the binary is missing.
    pub fn towline(&self, arguments: &[&str]) -> Try<Command> {
        let mut command = Command::new(paths::towline()?);
        command.args(arguments).stdin(Stdio::null());
        command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL");
        let of_no_site =
            arguments.contains(&"--url") || arguments.starts_with(&["backup", "verify"]);
        if !of_no_site {
            command.arg("--data").arg(&self.data);
        }
        Ok(command)
    }

    /// Runs a `towline` command that must end with this exit code, and gives back its standard
    /// output.
    ///
    /// # Errors
    /// The output, when the exit code is another.
    pub fn runs(&self, arguments: &[&str], code: i32) -> Try<String> {
        self.runs_with(arguments, b"", code)
    }

    /// The same with bytes on standard input.
    ///
    /// # Errors
    /// The output, when the exit code is another.
    pub fn runs_with(&self, arguments: &[&str], input: &[u8], code: i32) -> Try<String> {
        let path = self.scratch().join("input");
        fs::write(&path, input)?;
        let output = self.towline(arguments)?.stdin(File::open(path)?).output()?;
        let words = said(&output);
        let right = output.status.code() == Some(code);
        require!(right, "{arguments:?} gave {}, not {code}: {words}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs MQSC commands; every one must succeed.
    ///
    /// # Errors
    /// The output, when the exit code is not 0.
    pub fn mqsc(&self, text: &str) -> Try<String> {
        let path = self.scratch().join("commands.mqsc");
        fs::write(&path, text)?;
        let path = path.to_string_lossy().into_owned();
        let output = self.towline(&["mqsc", "-f", &path])?.output()?;
        let said = said(&output);
        require!(output.status.success(), "mqsc {text:?} gave {}: {said}", output.status);
        Ok(said)
    }

    /// `towline status --json`.
    ///
    /// # Errors
    /// When the command fails or its output is not JSON.
    pub fn status(&self) -> Try<Value> {
        let output = self.towline(&["status", "--json"])?.output()?;
        let said = said(&output);
        require!(output.status.success(), "status gave {}: {said}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until `gets` messages of a queue were got for good: a settlement that owes no answer
    /// is durable a moment after it was sent, and a get is counted when it is durable.
    ///
    /// # Errors
    /// When it does not come about.
    pub fn until_got(&self, queue: &str, gets: u64) -> Try {
        wait::until_true("the gets are durable", Duration::from_secs(10), || {
            self.queue_number(queue, "gets").is_ok_and(|got| got >= gets)
        })
    }

    /// A whole number of a queue's status, such as `depth`.
    ///
    /// # Errors
    /// When there is no such queue or number.
    pub fn queue_number(&self, queue: &str, key: &str) -> Try<u64> {
        let status = self.status()?;
        let rows = status["queues"].as_array().ok_or("no queues in the status")?;
        let row = rows.iter().find(|row| row["name"] == queue);
        let number = row.and_then(|row| row[key].as_u64());
        number.ok_or_else(|| format!("no {key} of {queue} in {status}").into())
    }

    fn log_path(&self) -> PathBuf {
        self.scratch().join("daemon.log")
    }
}

/// Standard output and standard error of a command that has ended, as text.
#[must_use]
pub fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// A running daemon.
pub struct Daemon {
    child: Child,
    url: String,
    lines: Receiver<String>,
    log: PathBuf,
    started_in: Duration,
}

impl Daemon {
    /// `127.0.0.1:PORT`, of the first listener.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.split_once("://").map_or("", |(_, address)| address)
    }

    /// `amqp://127.0.0.1:PORT`, or `amqps`, of the first listener.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of memory that the daemon occupies (VmRSS).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resident_bytes(&self) -> Try<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
        Ok(kib.parse::<u64>()? * 1024)
    }

    /// Time of all cores that the daemon has used.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn cpu_time(&self) -> Try<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let ticks = ticks(11).zip(ticks(12)).ok_or("no times")?;
        Ok(Duration::from_millis((ticks.0 + ticks.1) * 10))
    }

    /// Open file descriptors.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn descriptors(&self) -> Try<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    /// How long the start took, from fork to `ready`.
    #[must_use]
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Ends the process without warning (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When it had ended before, by itself.
    pub fn kill(mut self) -> Try {
        if let Some(status) = self.child.try_wait()? {
            fail!("the daemon had ended by itself: {status}\n{}", self.log_end());
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn terminate(&self) -> Try {
        self.signal(Signal::TERM)
    }

    /// Stops the process where it is (SIGSTOP), and waits until it stands still: the signal is sent
    /// before the thread that takes it has a processor, and the others go on until then.
    ///
    /// # Errors
    /// When the process is gone, or goes on.
    pub fn pause(&self) -> Try {
        self.signal(Signal::STOP)?;
        wait::until_true("a stopped process", STOP_LIMIT, || stands_still(self.child.id()))
    }

    /// Has it read again what can be read again (SIGHUP).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn reload(&self) -> Try {
        self.signal(Signal::HUP)
    }

    /// Lets a stopped process go on (SIGCONT).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn wake(&self) -> Try {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Try {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until it accepts clients: a standby when it has taken over.
    ///
    /// # Errors
    /// When it ends or stays silent; the text has the end of its log.
    pub fn await_active(&mut self) -> Try {
        self.url = self.await_ready()?;
        Ok(())
    }

    /// The lines that it has printed since the last look.
    #[must_use]
    pub fn printed(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub fn await_end(&mut self, limit: Duration) -> Try<ExitStatus> {
        wait_for_end(&mut self.child, limit)
    }

    /// SIGTERM, then waits for an end with exit code 0.
    ///
    /// # Errors
    /// When it does not end, or not with 0.
    pub fn stop(mut self) -> Try {
        self.terminate()?;
        let status = self.await_end(STOP_LIMIT)?;
        require!(status.success(), "stopped with {status}\n{}", self.log_end());
        Ok(())
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Exit status or signal of a process that has ended, and the end of its log.
    pub fn ended(&mut self) -> Option<String> {
        let how = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => format!("not known: {error}"),
        };
        Some(format!("{how}\n{}", self.log_end()))
    }

    /// Waits until an instance of a group said what it waits for, or that it is ready: its sockets
    /// are there.
    fn await_begun(&mut self) -> Try {
        let line = self.lines.recv_timeout(START_LIMIT);
        let line = line.map_err(|_| format!("it does not begin:\n{}", self.log_end()))?;
        let begun = ["waiting for ", "ready ", "recovery of ", "fenced "];
        let right = begun.iter().any(|begun| line.starts_with(begun));
        require!(right, "not an instance of a group: {line}");
        if let Some(url) = line.strip_prefix("ready ") {
            self.url = url.trim().to_string();
        }
        Ok(())
    }

    fn await_ready(&mut self) -> Try<String> {
        let end = Instant::now() + START_LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(url) = line.strip_prefix("ready ") {
                        return Ok(url.trim().to_string());
                    }
                }
                Err(_) => fail!("the daemon did not get ready:\n{}", self.log_end()),
            }
        }
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.split_at(lines.len().saturating_sub(30)).1.join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        group::clock::forget(self.pid());
        if thread::panicking() {
            eprintln!("--- end of the daemon's log\n{}\n---", self.log_end());
        }
    }
}

/// Whether no thread of a process runs code of its own: it is stopped, or waits for a disk inside
/// the kernel, and is stopped when that returns.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        // "4711 (name) T ...": a name may hold blanks and brackets.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, None | Some('T' | 't' | 'D' | 'Z' | 'X'))
    })
}

fn wait_for_end(child: &mut Child, limit: Duration) -> Try<ExitStatus> {
    wait::until("the end of the daemon", limit, || child.try_wait().ok().flatten())
}

/// Lines of a pipe, read on a thread of its own so that the pipe never fills.
pub(crate) fn read_lines(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                // The test has ended; go on reading, or the writer would block.
            }
        }
    });
    receiver
}
