//! Listening sockets that outlive a process that re-executes itself: a client that connects
//! meanwhile is not refused, but waits in the backlog until the re-executed program accepts.
//!
//! The process keeps a second descriptor of each socket on which it listens. Before it executes
//! itself it lets these pass (no `FD_CLOEXEC`) and names their numbers in an environment variable.
//! The next program copies them by their numbers (pidfd_getfd(2), which needs no unsafe code),
//! closes the numbers, and takes a copy for each address that it is to listen on. Where the system
//! does not allow that call (some containers) nothing is handed over, and addresses refuse until
//! they are bound anew.
//!
//! Not here: connections, which end with the process. Invariant: what is taken listens at the very
//! address that it is taken for; what is not taken is closed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::SockRef;

/// Process id, then a number for each socket: `4711 8 9`. The id stays when a program is executed,
/// and is another one in a child that inherited the variable and not the sockets.
const NUMBERS: &str = "TOWLINE_LISTENING_SOCKETS";
/// More sockets than any configuration has.
const SOCKETS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets {
    came: Arc<Mutex<Vec<TcpListener>>>,
    kept: Mutex<Vec<TcpListener>>,
}

impl InheritedSockets {
    /// Those that the program before this one left, if it did.
    pub(crate) fn of_process() -> InheritedSockets {
        InheritedSockets::of(&std::env::var(NUMBERS).unwrap_or_default())
    }

    fn of(text: &str) -> InheritedSockets {
        let mut words = text.split(' ').map(str::parse::<RawFd>);
        let this = getpid().as_raw_nonzero().get();
        if words.next() != Some(Ok(this)) {
            return InheritedSockets::default();
        }
        let mut came = Vec::new();
        for number in words.take(SOCKETS_MAX).flatten() {
            match copy(number) {
                Ok(socket) => {
                    // It was let pass for us alone.
                    nix::unistd::close(number).ok();
                    came.extend(listening(socket));
                }
                // Not ours, whatever it is.
                Err(error) => {
                    tracing::warn!(%error, number, "a listening socket was not handed over")
                }
            }
        }
        InheritedSockets { came: Arc::new(Mutex::new(came)), kept: Mutex::default() }
    }

    /// The socket that listens at one of these addresses, if it came. Port 0 is any port.
    pub(crate) fn take(&self, addresses: &[SocketAddr]) -> Option<TcpListener> {
        let mut came = self.came.lock();
        let fits = |socket: &TcpListener| {
            let Ok(bound) = socket.local_addr() else { return false };
            let same = |asked: &SocketAddr| {
                asked.ip() == bound.ip() && (asked.port() == bound.port() || asked.port() == 0)
            };
            addresses.iter().any(same)
        };
        let at = came.iter().position(fits)?;
        Some(came.swap_remove(at))
    }

    /// Closes those that were not taken: their addresses are not listened on any more.
    pub(crate) fn close_others(&self) {
        self.came.lock().clear();
    }

    /// Closes those that are not taken after this time, without waiting for it here: a start that
    /// hangs, or reads a long log, must not hold clients that could go elsewhere.
    pub(crate) fn close_unless_settled(&self, time: Duration) {
        if self.came.lock().is_empty() {
            return;
        }
        let came = Arc::clone(&self.came);
        let started = std::thread::Builder::new().name("start-watch".into()).spawn(move || {
            let (_stop, never) = std::sync::mpsc::channel::<()>();
            never.recv_timeout(time).ok();
            came.lock().clear();
        });
        if let Err(error) = started {
            tracing::debug!(%error, "sockets that came are not watched");
        }
    }

    /// Keeps a socket for the next program.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(crate) fn keep(&self, socket: &TcpListener) -> io::Result<()> {
        self.kept.lock().push(socket.try_clone()?);
        Ok(())
    }

    /// Lets the sockets pass to a program that is about to be executed by this process.
    pub(crate) fn hand_over(&self, program: &mut Command) {
        program.env_remove(NUMBERS);
        let kept = self.kept.lock();
        let mut text = getpid().as_raw_nonzero().to_string();
        for socket in kept.iter() {
            // What the next program cannot take it could not close either.
            let passes = copy(socket.as_raw_fd())
                .and_then(|_| Ok(fcntl_setfd(socket.as_fd(), FdFlags::empty())?));
            match passes {
                Ok(()) => text.push_str(&format!(" {}", socket.as_raw_fd())),
                Err(error) => tracing::debug!(%error, "a listening socket is not handed over"),
            }
        }
        program.env(NUMBERS, text);
    }
}

/// A descriptor of what stands under this number; closed when a program is executed.
fn copy(number: RawFd) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, number, PidfdGetfdFlags::empty())?)
}

/// The same as a socket, if it is one that listens.
fn listening(socket: OwnedFd) -> Option<TcpListener> {
    let listens = SockRef::from(&socket).is_listener().unwrap_or(false);
    let socket = TcpListener::from(socket);
    let ready = listens && socket.local_addr().is_ok() && socket.set_nonblocking(true).is_ok();
    ready.then_some(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::IntoRawFd;

    use super::*;

    fn passed(numbers: &[RawFd]) -> InheritedSockets {
        let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
        InheritedSockets::of(&format!("{}{numbers}", std::process::id()))
    }

    #[test]
    fn a_socket_that_came_is_taken_for_its_own_address_and_its_queue_came_with_it() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let waiting = TcpStream::connect(address).unwrap();
        let sockets = passed(&[socket.into_raw_fd()]);
        let other = SocketAddr::new(address.ip(), address.port() ^ 1);
        assert!(sockets.take(&[other, "127.0.0.2:0".parse().unwrap()]).is_none());
        let taken = sockets.take(&[other, address]).unwrap();
        assert!(sockets.take(&[address]).is_none(), "taken once");
        assert_eq!(taken.accept().unwrap().1, waiting.local_addr().unwrap());
        drop(taken);
        assert!(TcpStream::connect(address).is_err(), "nothing else holds it");
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets = passed(&[socket.into_raw_fd()]);
        assert!(sockets.take(&["127.0.0.1:0".parse().unwrap()]).is_some(), "any port");
    }

    #[test]
    fn what_nobody_takes_is_closed() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        passed(&[socket.into_raw_fd()]).close_others();
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn what_is_not_taken_in_time_is_closed_so_that_clients_go_elsewhere() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let sockets = passed(&[socket.into_raw_fd()]);
        assert!(TcpStream::connect(address).is_ok());
        sockets.close_unless_settled(Duration::ZERO);
        while !sockets.came.lock().is_empty() {
            std::thread::yield_now();
        }
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn what_does_not_listen_or_is_of_another_process_is_not_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let file = tempfile::tempfile().unwrap();
        let sockets = passed(&[stream.into_raw_fd(), file.into_raw_fd(), 1_000_000]);
        assert_eq!(sockets.came.lock().len(), 0);
        let number = listener.as_raw_fd();
        let this = std::process::id();
        for text in [format!("{} {number}", this + 1), format!("{number}"), "x 3".into(), "".into()]
        {
            assert_eq!(InheritedSockets::of(&text).came.lock().len(), 0, "{text}");
        }
        assert!(listener.local_addr().is_ok(), "left alone");
    }

    #[test]
    fn a_program_is_told_the_numbers_of_what_is_kept_and_nothing_from_before() {
        let sockets = InheritedSockets::default();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        sockets.keep(&socket).unwrap();
        let mut program = Command::new("true");
        sockets.hand_over(&mut program);
        let kept = sockets.kept.lock().pop().unwrap();
        let flags = rustix::io::fcntl_getfd(&kept).unwrap();
        let told: Vec<_> = program.get_envs().collect();
        let text = format!("{} {}", std::process::id(), kept.as_raw_fd());
        assert_eq!(told, [(NUMBERS.as_ref(), Some(text.as_ref()))]);
        assert!(!flags.contains(FdFlags::CLOEXEC));
    }
}
