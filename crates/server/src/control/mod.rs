//! The control socket of this process: what it is doing, stop, reload, and in a group switch and
//! re-exec. One JSON object a line in, one a line out. It is the same in every mode (single, an
//! instance of a group, active or standby on a shared folder), and answers from before the log is
//! read until the log is closed, whether or not a queue manager is active here.
//!
//! Not here: anything about queues and messages, which is administered over AMQP (`$admin`);
//! signals, which end in the same events (`signals`).
//!
//! Invariants: only the user of this process and root are answered. A client that is silent, or
//! does not read, keeps no other client from its answer. An answer is written before what it
//! promises ends the process.
//!
//! Reading order: `names` (where the sockets are), [`requests`] (what is answered), `socket_file`,
//! `connections` (which one makes way), `conversation` (bytes).

mod connections;
mod conversation;
pub(crate) mod names;
pub(crate) mod requests;
mod socket_file;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;
use towline_admin::catalogue::LOCAL_REFUSED;
use towline_logging::log_seldom;
use towline_types::limits;

use crate::net::{LocalAccess, LocalRight};
use connections::Connections;
use conversation::{Lines, RequestLine, write_line};
use requests::AfterAnswer;
pub(crate) use requests::{
    Afterwards, Beside, ControlDesk, ControlledInstance, InstanceReport, RegionOrder,
    RehearsalOrder,
};
use socket_file::SocketFile;

/// Before a connection is accepted again, when the system refused one.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// What clients of the control socket may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    connections: usize,
    request_bytes: usize,
    idle: Duration,
    answer: Duration,
    stalled: Duration,
}

const BOUNDS: Bounds = Bounds {
    connections: limits::CONTROL_CONNECTIONS_MAX,
    request_bytes: limits::CONTROL_REQUEST_BYTES_MAX,
    idle: limits::CONTROL_IDLE_MAX,
    answer: limits::CONTROL_ANSWER_MAX,
    stalled: limits::CONTROL_ANSWER_STALLED,
};

/// The control socket: answers until the process ends. Its file is removed when this is dropped.
pub(crate) struct ControlSocket {
    path: PathBuf,
    desk: Arc<ControlDesk>,
    file: Arc<Mutex<Option<SocketFile>>>,
}

impl ControlSocket {
    /// That of a process in the data folder, which does not answer yet.
    pub(crate) fn of(data: &Path, desk: Arc<ControlDesk>) -> ControlSocket {
        let path = match desk.shared_name() {
            Some(name) => names::of_process(data, name),
            None => names::of_folder(data),
        };
        ControlSocket { path, desk, file: Arc::default() }
    }

    /// Answers in the data folder from now on, unless another process does: whether that one runs
    /// the queue manager is decided by the lock of the log.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(crate) fn start(&self, data: &Path) -> io::Result<()> {
        self.clean_up();
        match SocketFile::bind(data, &self.path)? {
            Some((file, listener)) => self.listen(file, listener),
            None => {
                tracing::debug!(path = %self.path.display(), "another process answers there");
                Ok(())
            }
        }
    }

    /// The lock of the log belongs to this process: if another process answered when this one
    /// started, it is on its way out.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(crate) fn insist(&self) -> io::Result<()> {
        self.clean_up();
        if self.file.lock().is_some() || self.desk.shared_name().is_some() {
            return Ok(());
        }
        let (file, listener) = SocketFile::replace(&self.path)?;
        self.listen(file, listener)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it answers from.
    pub(crate) fn desk(&self) -> &Arc<ControlDesk> {
        &self.desk
    }

    /// Removes its file, before the log is closed: the next process may start then. Open
    /// connections are answered until the process ends.
    pub(crate) fn remove(&self) {
        self.clean_up();
        drop(self.file.lock().take());
    }

    /// On a shared folder, removes what killed processes of this machine left. A process that lost
    /// its lease leaves its file too: it must not wait for a file system that is away.
    fn clean_up(&self) {
        let (Some(name), Some(data)) = (self.desk.shared_name(), self.path.parent()) else {
            return;
        };
        match names::of_same_host(data, name) {
            Ok(mut paths) => {
                paths.retain(|path| *path != self.path);
                socket_file::remove_dead(&paths);
            }
            Err(error) => tracing::debug!(%error, "the shared folder cannot be listed"),
        }
    }

    /// Does the same, where this process ends at once.
    pub(crate) fn remover(&self) -> Box<dyn Fn() + Send> {
        let file = Arc::clone(&self.file);
        Box::new(move || drop(file.lock().take()))
    }

    fn listen(&self, file: SocketFile, listener: UnixListener) -> io::Result<()> {
        serve(listener, &self.desk, BOUNDS)?;
        *self.file.lock() = Some(file);
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Answers on a thread of its own, with one more for each connection. Yields these.
fn serve(
    listener: UnixListener,
    desk: &Arc<ControlDesk>,
    bounds: Bounds,
) -> io::Result<Arc<Connections>> {
    let access = LocalAccess::of_process(None).map_err(io::Error::other)?;
    let connections = Arc::new(Connections::new(bounds.connections, bounds.stalled));
    let (desk, admitted) = (Arc::clone(desk), Arc::clone(&connections));
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming() {
            let accepted =
                stream.and_then(|stream| accept(stream, access, bounds, (&desk, &connections)));
            if let Err(error) = accepted {
                tracing::debug!(%error, "a connection of the control socket is not served");
                std::thread::park_timeout(REFUSED_PAUSE);
            }
        }
    })?;
    Ok(admitted)
}

fn accept(
    stream: UnixStream,
    access: LocalAccess,
    bounds: Bounds,
    (desk, connections): (&Arc<ControlDesk>, &Arc<Connections>),
) -> io::Result<()> {
    let uid = socket_peercred(&stream)?.uid.as_raw();
    if access.right_of(uid) != LocalRight::Owner {
        log_seldom(&LOCAL_REFUSED, &[&uid.to_string()]);
        return refuse(
            &stream,
            "only the user that runs the queue manager, and root, may ask this",
            bounds,
        );
    }
    let Some(id) = connections.admit(&stream)? else {
        let why = format!(
            "all {} connections of the control socket wait for an answer; try again",
            bounds.connections
        );
        return refuse(&stream, &why, bounds);
    };
    let desk = Arc::clone(desk);
    let connections_of_thread = Arc::clone(connections);
    let spawned = std::thread::Builder::new().name("control-ask".into()).spawn(move || {
        let served = converse(&stream, id, bounds, (&desk, &connections_of_thread));
        tracing::debug!(?served, "a connection of the control socket has ended");
        connections_of_thread.remove(id);
    });
    if let Err(error) = spawned {
        connections.remove(id);
        return Err(error);
    }
    Ok(())
}

/// Answers a client that is not served; the thread that accepts must not wait for it.
fn refuse(stream: &UnixStream, why: &str, bounds: Bounds) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    // It fits into the buffer of a new socket; if not, the client sees only that it is closed.
    write_line(stream, &requests::refusal(why).to_string(), bounds.stalled).ok();
    Ok(())
}

/// Says to a client why its connection ends; one that does not read it sees the end alone.
pub(crate) fn last_word(stream: &UnixStream, word: &serde_json::Value, longest: Duration) {
    let told = write_line(stream, &word.to_string(), longest);
    tracing::debug!(?told, "a connection of the control socket ends");
}

/// Serves a connection until it ends.
fn converse(
    stream: &UnixStream,
    id: u64,
    bounds: Bounds,
    (desk, connections): (&ControlDesk, &Connections),
) -> io::Result<()> {
    let mut lines = Lines::of(stream);
    loop {
        let line = match lines.next(bounds.request_bytes, bounds.idle)? {
            RequestLine::Line(line) => line,
            RequestLine::TooLong => {
                let why = format!("a request has at most {} bytes", bounds.request_bytes);
                return write_line(stream, &requests::refusal(&why).to_string(), bounds.answer);
            }
            RequestLine::End => return Ok(()),
        };
        connections.works(id);
        let (answer, promise) = desk.answer(&line);
        connections.answers(id);
        let written = write_line(stream, &answer.to_string(), bounds.answer);
        match promise {
            Some(AfterAnswer::Afterwards(act)) => {
                act();
                written?;
                connections.is_idle(id);
            }
            Some(AfterAnswer::Promise(promise)) => {
                written?;
                connections.is_idle(id);
                desk.ends();
                promise.keep();
            }
            Some(AfterAnswer::Beside(goes_on)) => {
                written?;
                // It has a client that waits, and does not make way.
                connections.works(id);
                goes_on(stream);
                return Ok(());
            }
            None => {
                written?;
                connections.is_idle(id);
            }
        }
    }
}
