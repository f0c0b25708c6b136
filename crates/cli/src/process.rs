//! A process on this machine, by a handle that never means another one: numbers are given again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process.
pub(crate) struct Process {
    handle: OwnedFd,
    pid: Pid,
}

impl Process {
    /// The process that listens at the other end of a local socket.
    pub(crate) fn behind(socket: impl AsFd) -> io::Result<Process> {
        Process::open(rustix::net::sockopt::socket_peercred(socket)?.pid)
    }

    /// A process that certainly still has its number, such as a child that was not yet waited for.
    pub(crate) fn open(pid: Pid) -> io::Result<Process> {
        Ok(Process { handle: pidfd_open(pid, PidfdFlags::empty())?, pid })
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.handle, signal) {
            // It ended before.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits until it ended. False: it still runs after `longest`.
    pub(crate) fn wait(&self, longest: Duration) -> io::Result<bool> {
        let longest = Timespec::try_from(longest).map_err(io::Error::other)?;
        let mut handles = [PollFd::new(&self.handle, PollFlags::IN)];
        Ok(poll(&mut handles, Some(&longest))? > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_asked_to_end_and_seen_to_have_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::open(Pid::from_child(&child)).unwrap();
        assert_eq!(process.number(), child.id());
        assert!(!process.wait(Duration::ZERO).unwrap());
        process.signal(Signal::TERM).unwrap();
        assert!(process.wait(Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        process.signal(Signal::TERM).unwrap();
    }

    #[test]
    fn the_process_behind_a_socket_is_the_one_that_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(Process::behind(&stream).unwrap().number(), std::process::id());
    }
}
