//! A process that must not go on as it is begins again: the same program, the same arguments, the same
//! process id, nothing of its memory. So nothing that was decided and never committed can survive.
//!
//! All descriptors are closed on the way (but for standard input and output, and the sockets that
//! listen, see `handed`), the lock on the data folder with them. The floating address stays until the program that begins again takes it away, as the
//! first thing it does: connections are closed before, and their ends still find the way to the clients.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use towline_admin::catalogue::GROUP_CANNOT_BEGIN_AGAIN;

use super::handed::Sockets;
use crate::logging::log as say;

/// Set for the program that begins again: who waited for `ready` has seen it.
const MARK: &str = "TOWLINE_BEGINS_AGAIN";

/// Whether this process began again.
pub(crate) fn is_again() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Begins again, with the sockets that listen. When that fails the process ends, after `last`: whoever watches it starts it.
pub(crate) fn begin_again(sockets: &Sockets, last: impl FnOnce()) -> ! {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let mut next = Command::new(program(called.into()));
    next.args(arguments).env(MARK, "1");
    sockets.hand_over(&mut next);
    let error = next.exec();
    say(&GROUP_CANNOT_BEGIN_AGAIN, &[&error.to_string()]);
    last();
    std::process::exit(crate::EXIT_BEGINS_AGAIN);
}

/// The program's file, which may have been replaced by another version while it ran.
fn program(called: PathBuf) -> PathBuf {
    const REPLACED: &str = " (deleted)";
    let Ok(running) = std::env::current_exe() else { return called };
    match running.to_str().and_then(|path| path.strip_suffix(REPLACED)) {
        Some(path) => PathBuf::from(path),
        None => running,
    }
}
