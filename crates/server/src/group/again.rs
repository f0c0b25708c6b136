//! A process that must not go on as it is begins again: the same program, the same arguments, the same
//! process id, nothing of its memory. So nothing that was decided and never committed can survive.
//!
//! All descriptors are closed on the way (but for standard input and output, and the sockets that
//! listen, see `handed`), the lock on the data folder with them. The floating address stays until the program that begins again takes it away, as the
//! first thing it does: connections are closed before, and their ends still find the way to the clients.
//!
//! Who wants an end meanwhile gets one in order: the thread that takes signals has ended before (see
//! `signals`), the mask and what comes under it outlive the execution of a program, and the next one
//! takes it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use towline_admin::catalogue::GROUP_CANNOT_BEGIN_AGAIN;

use super::handed::Sockets;
use super::run::Next;
use crate::logging::log as say;

/// Set for the program that begins again: who waited for `ready` has seen it.
const MARK: &str = "TOWLINE_READY_TOLD";
/// The start of the process before.
const START: &str = "TOWLINE_START";
/// How many copies could not be had.
const COPIES_FAILED: &str = "TOWLINE_COPIES_FAILED";

/// Whether the program that began again as this one had told that it was ready.
pub(crate) fn ready_was_told() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The nonce of the start of the process that re-executed itself as this one, if one did.
pub(crate) fn start_before() -> Option<u64> {
    std::env::var(START).ok()?.parse().ok()
}

/// How many copies of the log could not be had, one after the other, before this process began.
pub(crate) fn copies_failed() -> u32 {
    let failed = std::env::var(COPIES_FAILED).ok();
    failed.and_then(|failed| failed.parse().ok()).unwrap_or(0)
}

/// How long to wait after so many copies that could not be had: from 1 to 30 seconds.
pub(crate) fn copy_pause(failed: u32) -> Duration {
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    match failed.checked_sub(1) {
        None => Duration::ZERO,
        Some(doubled) => Duration::from_secs(1 << doubled.min(5)).min(PAUSE_MAX),
    }
}

/// Re-executes the program, with the sockets that listen; what `about` says is known then. When that
/// fails the process ends, after `last`: whoever watches it starts it.
pub(crate) fn begin_again(sockets: &Sockets, about: Next, last: impl FnOnce()) -> ! {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let mut next = Command::new(program(called.into()));
    next.args(arguments).env(COPIES_FAILED, about.copies_failed.to_string());
    match about.ready_told {
        true => next.env(MARK, "1"),
        false => next.env_remove(MARK),
    };
    next.env(START, about.start.nonce.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_before_the_next_copy_grows_from_one_to_thirty_seconds() {
        let pauses: Vec<u64> = (0..9).map(|failed| copy_pause(failed).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(copy_pause(u32::MAX).as_secs(), 30);
    }
}
