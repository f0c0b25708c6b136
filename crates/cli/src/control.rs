//! The control socket of a process, in its data folder: one JSON object a line, back and forth.
//!
//! Every process has one, whatever it is doing: single, an instance of a group, active or standby
//! on a shared folder. It is for the user of the process and root. A connection also shows when the
//! process executes its program again: it ends then.
//!
//! Not here: anything about queues and messages, which is asked for over AMQP (`reach`).

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use towline_admin::status::{GroupStatus, ProcessMode, ProcessPhase, ProcessReport};
use towline_client::path_too_long;
use towline_server::control_sockets;

use crate::failure::Failure;
use crate::patience::Patience;
use crate::process::Process;

/// What can be asked for.
const PROCESS: &str = "process";
const STATUS: &str = "status";
pub(crate) const SWITCH: &str = "switch";
pub(crate) const STOP: &str = "stop";
pub(crate) const RELOAD: &str = "reload";
pub(crate) const RESTART: &str = "restart";

/// A status of a hundred thousand queues has about 30 MB.
const REPLY_BYTES_MAX: u64 = 256 << 20;
/// Of several processes of a data folder, one that does not say what it is within this may stand
/// still.
const PROCESS_ANSWER_MAX: Duration = Duration::from_secs(2);
/// Zero means without end for a socket.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(1);

/// A connection to a process.
pub(crate) struct ControlClient {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
    /// For all answers together.
    patience: Patience,
}

/// What there is at the control sockets of a data folder.
pub(crate) enum ControlReach {
    /// A process that listens.
    Connected(ControlClient),
    /// No process of this machine.
    NotRunning,
    /// A process, or a folder, of another user.
    Denied(Failure),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum AskError {
    /// The process said why.
    Refused(String),
    /// The connection ended: the process ended, or executes its program again.
    Lost {
        /// Where it was asked.
        socket: PathBuf,
    },
    /// It cannot be read, or not in time.
    Io {
        /// Where it was asked.
        socket: PathBuf,
        /// Its process id, where the system knows it.
        pid: Option<u32>,
        /// Why.
        error: io::Error,
    },
    /// It is not understood.
    Strange(String),
}

impl AskError {
    /// Whether the process did not answer in time.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, AskError::Io { error, .. } if is_timeout(error))
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Refused(reason) => out.write_str(reason),
            AskError::Lost { socket } => {
                write!(out, "{}: the process ended before it answered", socket.display())
            }
            AskError::Io { socket, pid: Some(pid), error } if is_timeout(error) => write!(
                out,
                "{}: process {pid} did not answer in time: it is stopped or busy; `kill -CONT {pid}` \
                 lets a stopped one go on",
                socket.display()
            ),
            AskError::Io { socket, error, .. } if is_timeout(error) => {
                write!(out, "{}: no answer in time", socket.display())
            }
            AskError::Io { socket, error, .. } => write!(out, "{}: {error}", socket.display()),
            AskError::Strange(reason) => {
                write!(out, "the reply of the process was not understood: {reason}")
            }
        }
    }
}

impl From<AskError> for Failure {
    fn from(unanswered: AskError) -> Failure {
        Failure::failed(unanswered)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl ControlClient {
    /// Connects to the process with this data folder: to the one with the process id `pid`, else to
    /// the only one of this machine, else to the only one that does not stand by.
    pub(crate) fn find(
        data: &Path,
        pid: Option<u32>,
        timeout: Duration,
    ) -> Result<ControlReach, Failure> {
        let denied = |error: &io::Error| {
            let folder = data.display();
            let text = format!(
                "{folder}: {error}: only the user that runs the queue manager, and root, can control \
                 its process"
            );
            Ok(ControlReach::Denied(Failure::CannotConnect(text)))
        };
        let sockets = match control_sockets(data) {
            // A member of users.local_group may open the folder, and see nothing in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return denied(&error),
            sockets => sockets.map_err(|error| Failure::about(data.display(), error))?,
        };
        let mut found = Vec::new();
        let patience = Patience::of(timeout);
        for socket in sockets {
            if let Some(why) = path_too_long(&socket) {
                return Err(Failure::CannotConnect(format!("{}: {why}", socket.display())));
            }
            match reach_within(&socket, patience.left()) {
                Ok(stream) => {
                    found.push(ControlClient { stream: BufReader::new(stream), socket, patience });
                }
                Err(error) => match error.kind() {
                    // The second: a process that was killed, or one of another machine.
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                    io::ErrorKind::PermissionDenied => return denied(&error),
                    _ => {
                        let shown = socket.display();
                        let text = match is_timeout(&error) {
                            true => format!(
                                "{shown}: its process takes no connection: it is stopped or busy"
                            ),
                            false => format!("{shown}: {error}"),
                        };
                        return Err(Failure::CannotConnect(text));
                    }
                },
            }
        }
        if let Some(pid) = pid {
            let running: Vec<u32> = found.iter().filter_map(ControlClient::pid).collect();
            found.retain(|client| client.pid() == Some(pid));
            if found.is_empty() && !running.is_empty() {
                return Err(no_such_process(data, pid, &running));
            }
        }
        match found.len() {
            0 => Ok(ControlReach::NotRunning),
            1 => Ok(found.pop().map_or(ControlReach::NotRunning, ControlReach::Connected)),
            _ => choose(found, data).map(ControlReach::Connected),
        }
    }

    /// Connects to the process with this data folder, as [`ControlClient::find`] does. `None`: none
    /// runs there.
    pub(crate) fn connect(
        data: &Path,
        timeout: Duration,
    ) -> Result<Option<ControlClient>, Failure> {
        match ControlClient::find(data, None, timeout)? {
            ControlReach::Connected(client) => Ok(Some(client)),
            ControlReach::NotRunning => Ok(None),
            ControlReach::Denied(failure) => Err(failure),
        }
    }

    /// As `connect`, where there must be one.
    pub(crate) fn reach(data: &Path, timeout: Duration) -> Result<ControlClient, Failure> {
        ControlClient::connect(data, timeout)?.ok_or_else(|| not_running(data))
    }

    /// How long it waits for answers from now on, all of them together.
    pub(crate) fn wait_at_most(&mut self, longest: Duration) {
        self.patience = Patience::of(longest);
    }

    /// Bounds what follows on the socket by what is left of the patience.
    fn bound(&self) -> io::Result<()> {
        let left = self.patience.left().max(WAIT_MIN);
        self.stream.get_ref().set_read_timeout(Some(left))?;
        self.stream.get_ref().set_write_timeout(Some(left))
    }

    /// The process.
    pub(crate) fn process(&self) -> Result<Process, Failure> {
        Ok(Process::behind(self.stream.get_ref())?)
    }

    fn pid(&self) -> Option<u32> {
        let peer = socket_peercred(self.stream.get_ref()).ok()?;
        Some(peer.pid.as_raw_pid().unsigned_abs())
    }

    /// Where it is asked.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks, and gives what is under `ok`.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, AskError> {
        self.bound().map_err(|error| self.unanswered(error))?;
        match self.stream.get_ref().write_all(format!("{request}\n").as_bytes()) {
            // A process that refuses to listen says so first.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(self.unanswered(error));
            }
            Ok(()) | Err(_) => {}
        }
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(REPLY_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.unanswered(error))?;
        if line.last() != Some(&b'\n') {
            return Err(AskError::Lost { socket: self.socket.clone() });
        }
        let mut reply: Value =
            serde_json::from_slice(&line).map_err(|error| AskError::Strange(error.to_string()))?;
        if let Some(reason) = reply.get("error").and_then(Value::as_str) {
            return Err(AskError::Refused(reason.to_owned()));
        }
        match reply.get_mut("ok") {
            Some(ok) => Ok(ok.take()),
            None => Err(AskError::Strange("neither ok nor error".into())),
        }
    }

    /// Asks for what the process is doing.
    pub(crate) fn report(&mut self) -> Result<ProcessReport, AskError> {
        understood(self.ask(&json!({ "do": PROCESS }))?)
    }

    /// Asks for the status, as it comes.
    pub(crate) fn status(&mut self) -> Result<ControlStatus, AskError> {
        let mut reply = self.ask(&json!({ "do": STATUS }))?;
        let mut part = |name| reply.get_mut(name).map(Value::take).unwrap_or_default();
        let process = understood(part("process"))?;
        Ok(ControlStatus { process, group: part("group"), status: part("status") })
    }

    /// Asks for what it knows of its group.
    pub(crate) fn group(&mut self) -> Result<GroupStatus, AskError> {
        let ControlStatus { process, group, .. } = self.status()?;
        if group.is_null() {
            let ProcessReport { queue_manager, pid, mode, phase, .. } = process;
            let phase = phase.as_str();
            return Err(AskError::Refused(match mode {
                ProcessMode::Group => format!("process {pid} is {phase}; it reports no group yet"),
                ProcessMode::Single | ProcessMode::MultiInstance => {
                    format!("queue manager {queue_manager} (process {pid}) is not in a group")
                }
            }));
        }
        understood(group)
    }

    /// Waits until this connection ends, as it does when the process executes its program again.
    /// False: it did not within `longest`.
    pub(crate) fn wait_for_end(&mut self, longest: Duration) -> Result<bool, Failure> {
        let longest = longest.max(WAIT_MIN);
        self.stream.get_ref().set_read_timeout(Some(longest))?;
        let mut rest = [0; 64];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return Ok(true),
                // There was no request; an instance that says more than that is not ours to judge.
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(true),
            }
        }
    }

    /// The connection itself, when all answers that are expected have come.
    pub(crate) fn into_stream(self) -> io::Result<UnixStream> {
        let stream = self.stream.into_inner();
        stream.set_read_timeout(None)?;
        Ok(stream)
    }

    fn unanswered(&self, error: io::Error) -> AskError {
        let socket = self.socket.clone();
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AskError::Lost { socket },
            _ => AskError::Io { socket, pid: self.pid(), error },
        }
    }
}

/// Connects within `longest`: a process that stands still takes no connection from its queue, and
/// when that is full, a connect waits.
pub(crate) fn reach_within(socket: &Path, longest: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let stream = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // It bounds a connect too (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&stream, Timeout::Send, Some(longest.max(WAIT_MIN)))?;
    connect(&stream, &address)?;
    Ok(stream.into())
}

/// No process has its control socket in the folder.
pub(crate) fn not_running(data: &Path) -> Failure {
    Failure::CannotConnect(format!(
        "no queue manager is running in data folder {}; name another with --data",
        data.display()
    ))
}

/// Other processes have control sockets in the folder.
fn no_such_process(data: &Path, pid: u32, running: &[u32]) -> Failure {
    let running: Vec<String> = running.iter().map(u32::to_string).collect();
    Failure::CannotConnect(format!(
        "no process {pid} runs in data folder {}; running there: {}",
        data.display(),
        running.join(", ")
    ))
}

/// Of several processes, the one that does not stand by.
fn choose(found: Vec<ControlClient>, data: &Path) -> Result<ControlClient, Failure> {
    let mut chosen = Vec::new();
    let mut said = Vec::new();
    for mut client in found {
        let patience = client.patience;
        client.wait_at_most(patience.left().min(PROCESS_ANSWER_MAX));
        let (pid, phase) = match client.report() {
            Ok(report) => (report.pid, Some(report.phase)),
            Err(AskError::Lost { .. }) => continue,
            Err(_) => (client.pid().unwrap_or_default(), None),
        };
        client.patience = patience;
        let phase_text = phase.map_or("does not answer", ProcessPhase::as_str);
        said.push(format!("{pid} ({phase_text})"));
        if phase != Some(ProcessPhase::Standby) {
            chosen.push(client);
        }
    }
    let count = chosen.len();
    match (count, chosen.pop()) {
        (1, Some(client)) => Ok(client),
        _ => Err(Failure::Failed(format!(
            "{}: several processes run here: {}; choose one with --pid",
            data.display(),
            said.join(", ")
        ))),
    }
}

/// What a process answered.
pub(crate) struct ControlStatus {
    /// The process.
    pub(crate) process: ProcessReport,
    /// A `GroupStatus` of an instance of a group, else null.
    pub(crate) group: Value,
    /// A `Status` where the queue manager is active, else null.
    pub(crate) status: Value,
}

/// A part of a reply.
pub(crate) fn understood<T: DeserializeOwned>(value: Value) -> Result<T, AskError> {
    if value.is_null() {
        return Err(AskError::Strange("a part of it is missing".into()));
    }
    serde_json::from_value(value).map_err(|error| AskError::Strange(error.to_string()))
}
