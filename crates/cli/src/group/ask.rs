//! The socket of an instance of a group: one JSON object a line, back and forth.
//!
//! It is there on the active and on replicas alike, in the data folder, for the owner only. A
//! connection also shows when the instance executes its program anew: it ends then.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use towline_admin::status::GroupStatus;

use crate::failure::Failure;
use crate::process::Process;

/// Name of the socket in a data folder.
pub(crate) const SOCKET: &str = "towline-group.sock";
/// What can be asked for.
pub(crate) const STATUS: &str = "status";
pub(crate) const SWITCH: &str = "switch";
pub(crate) const STOP: &str = "stop";
pub(crate) const RELOAD: &str = "reload";
pub(crate) const RESTART: &str = "restart";

/// A status of a hundred thousand queues has about 30 MB.
const REPLY_BYTES_MAX: u64 = 256 << 20;

/// A connection to an instance.
pub(crate) struct Asking {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum AskError {
    /// The instance said why.
    Refused(String),
    /// The connection ended: the instance ended, or executes its program anew.
    Lost {
        /// Where it was asked.
        socket: PathBuf,
    },
    /// It cannot be read, or not in time.
    Io {
        /// Where it was asked.
        socket: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not understood.
    Strange(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Refused(reason) => out.write_str(reason),
            AskError::Lost { socket } => {
                write!(out, "{}: the instance ended before it answered", socket.display())
            }
            AskError::Io { socket, error } if is_timeout(error) => {
                write!(out, "{}: no answer in time", socket.display())
            }
            AskError::Io { socket, error } => write!(out, "{}: {error}", socket.display()),
            AskError::Strange(reason) => {
                write!(out, "the instance's reply was not understood: {reason}")
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

impl Asking {
    /// Connects to the instance with this data folder. `None`: no instance of a group runs
    /// there.
    pub(crate) fn connect(data: &Path, timeout: Duration) -> Result<Option<Asking>, Failure> {
        let socket = data.join(SOCKET);
        let stream = match UnixStream::connect(&socket) {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                // The second: what a killed instance left.
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
                kind => {
                    let whose = match kind {
                        io::ErrorKind::PermissionDenied => {
                            ": only the user that runs the instance may use it"
                        }
                        _ => "",
                    };
                    let text = format!("{}: {error}{whose}", socket.display());
                    return Err(Failure::CannotConnect(text));
                }
            },
        };
        let timeout = timeout.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Some(Asking { stream: BufReader::new(stream), socket }))
    }

    /// As `connect`, where there must be one.
    pub(crate) fn reach(data: &Path, timeout: Duration) -> Result<Asking, Failure> {
        Asking::connect(data, timeout)?.ok_or_else(|| {
            let folder = data.display();
            Failure::CannotConnect(format!("no instance of a group is running in {folder}; start it, or name another with --data"))
        })
    }

    /// The process of the instance.
    pub(crate) fn process(&self) -> Result<Process, Failure> {
        Ok(Process::behind(self.stream.get_ref())?)
    }

    /// Asks, and gives what is under `ok`.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, AskError> {
        let io = |error| self.unanswered(error);
        self.stream.get_ref().write_all(format!("{request}\n").as_bytes()).map_err(io)?;
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

    /// Asks for the status, as it comes.
    pub(crate) fn status(&mut self) -> Result<InstanceStatus, AskError> {
        let mut reply = self.ask(&json!({ "do": STATUS }))?;
        let group = reply.get_mut("group").map(Value::take).unwrap_or_default();
        let status = reply.get_mut("status").map(Value::take).unwrap_or_default();
        let process = socket_peercred(self.stream.get_ref()).ok();
        let process = process.map(|peer| peer.pid.as_raw_pid().unsigned_abs());
        Ok(InstanceStatus { group, status, process })
    }

    /// Asks for what it knows of its group.
    pub(crate) fn group(&mut self) -> Result<GroupStatus, AskError> {
        understood(self.status()?.group)
    }

    /// Waits until this connection ends, as it does when the instance executes its program anew.
    /// False: it did not within `longest`.
    pub(crate) fn wait_for_end(&mut self, longest: Duration) -> Result<bool, Failure> {
        let longest = longest.max(Duration::from_millis(1));
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

    fn unanswered(&self, error: io::Error) -> AskError {
        let socket = self.socket.clone();
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AskError::Lost { socket },
            _ => AskError::Io { socket, error },
        }
    }
}

/// What an instance answered.
pub(crate) struct InstanceStatus {
    /// A `GroupStatus`.
    pub(crate) group: Value,
    /// A `Status` when the instance is active, else null.
    pub(crate) status: Value,
    /// The process of the instance.
    pub(crate) process: Option<u32>,
}

/// A part of a reply.
pub(crate) fn understood<T: DeserializeOwned>(value: Value) -> Result<T, AskError> {
    if value.is_null() {
        return Err(AskError::Strange("it says nothing of the group".into()));
    }
    serde_json::from_value(value).map_err(|error| AskError::Strange(error.to_string()))
}
