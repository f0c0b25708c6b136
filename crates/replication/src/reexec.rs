//! Re-exec: a process that must not go on as it is executes its program again, with the same
//! arguments and the same process id. Its memory is gone, so nothing that was decided and never
//! committed survives.
//!
//! The system closes all descriptors, the lock on the data folder included, except standard input
//! and output and the listening sockets that the caller hands over. The floating address stays
//! until the re-executed program removes it, which is its first action: connections are closed
//! before, and the packets that close them still reach the clients.
//!
//! A SIGTERM that arrives meanwhile is not lost: the thread that takes signals has ended before,
//! signal mask and pending signals outlive the execution of a program, and the next program takes
//! it.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::execvpe;
use towline_admin::catalogue::GROUP_REEXEC_FAILED;
use towline_group::Start;

use towline_logging::log as say;

/// Set for the re-executed program: `ready` was printed already.
const MARK: &str = "TOWLINE_READY_TOLD";
/// The start of the process before.
const START: &str = "TOWLINE_START";
/// How many copies could not be had.
const COPIES_FAILED: &str = "TOWLINE_COPIES_FAILED";

/// What the re-executed program is given.
#[derive(Clone, Copy, Debug)]
pub struct ReexecContext {
    /// Copies that could not be had, one after the other.
    pub copies_failed: u32,
    /// Those that wait for `ready` have seen it.
    pub ready_printed: bool,
    /// The start of this process: its folder is the same as long as this is the newest one in it.
    pub start: Start,
}

/// Whether the program that re-executed itself as this one had printed that it was ready.
pub fn ready_was_printed() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The nonce of the start of the process that re-executed itself as this one, if one did.
///
/// A nonce that cannot be read is none: this process then meets the other instances first.
pub fn start_before() -> Option<u64> {
    std::env::var(START).ok()?.parse().ok()
}

/// How many copies of the log could not be had, one after the other, before this process began.
pub fn copies_failed() -> u32 {
    // Not set in a process that was started. It lengthens a pause, and nothing else.
    let failed = std::env::var(COPIES_FAILED).ok();
    failed.and_then(|failed| failed.parse().ok()).unwrap_or(0)
}

/// How long to wait after so many copies that could not be had: from 1 to 30 seconds.
pub fn copy_pause(failed: u32) -> Duration {
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    match failed.checked_sub(1) {
        None => Duration::ZERO,
        Some(doubled) => Duration::from_secs(1 << doubled.min(5)).min(PAUSE_MAX),
    }
}

/// Re-executes the program, which then knows what `context` says; `hand_over` adds what else it
/// gets. When that fails the process ends with `failed_status`, after `last`, and its supervisor
/// has to start it.
pub fn reexecute(
    context: ReexecContext,
    hand_over: impl FnOnce(&mut Command),
    last: impl FnOnce(),
    failed_status: i32,
) -> ! {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let mut next = Command::new(program(called.into()));
    next.args(arguments).env(COPIES_FAILED, context.copies_failed.to_string());
    match context.ready_printed {
        true => next.env(MARK, "1"),
        false => next.env_remove(MARK),
    };
    next.env(START, context.start.nonce.to_string());
    hand_over(&mut next);
    let error = execute(&next);
    say(&GROUP_REEXEC_FAILED, &[&error.to_string()]);
    last();
    towline_os::process::exit(failed_status);
}

/// Executes a program in this process; returns only if that is refused.
///
/// The standard library's `exec` gives SIGPIPE its default action first: until the system has ended
/// the other threads, one that writes to a closed connection kills the process, without a word.
/// Here signals stay as they are, ignored ones for the next program too.
fn execute(program: &Command) -> Errno {
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => environment.insert(name.to_owned(), value.to_owned()),
            None => environment.remove(name),
        };
    }
    let assignments = environment.into_iter().map(|(name, value)| {
        let mut assignment = name.into_vec();
        assignment.push(b'=');
        assignment.extend_from_slice(value.as_bytes());
        CString::new(assignment)
    });
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    let words: Result<Vec<CString>, _> = words.map(OsStr::as_bytes).map(CString::new).collect();
    let assignments: Result<Vec<CString>, _> = assignments.collect();
    match (words.as_deref(), assignments) {
        (Ok(words @ [path, ..]), Ok(assignments)) => match execvpe(path, words, &assignments) {
            Ok(never) => match never {},
            Err(error) => error,
        },
        // A zero byte: neither arguments nor environment of a process can have one.
        _ => Errno::EINVAL,
    }
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
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// In the process that is to execute a program: what it executes.
    const EXECUTES: &str = "TOWLINE_TEST_EXECUTES";

    /// Ends nothing unless it runs in a process of its own.
    #[test]
    fn writes_to_closed_pipes_while_it_executes_a_program() {
        let Some(script) = std::env::var_os(EXECUTES) else { return };
        for _ in 0..4 {
            std::thread::spawn(|| {
                let (reader, mut writer) = std::io::pipe().unwrap();
                drop(reader);
                loop {
                    writer.write_all(b"x").unwrap_err();
                }
            });
        }
        let mut program = Command::new("sh");
        program.arg("-c").arg(script).env("ADDED", "a = b").env_remove(EXECUTES);
        panic!("{}", execute(&program));
    }

    #[test]
    fn threads_that_write_to_closed_connections_do_not_kill_a_process_that_executes_a_program() {
        let test = "reexec::tests::writes_to_closed_pipes_while_it_executes_a_program";
        let script = r#"test "$ADDED" = "a = b" && test -z "$TOWLINE_TEST_EXECUTES" && exit 7"#;
        for round in 0..20 {
            let mut process = Command::new(std::env::current_exe().unwrap());
            process.args(["--exact", test, "--nocapture"]).env(EXECUTES, script);
            let ended = process.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            let signal = ended.status.signal();
            assert_eq!((ended.status.code(), signal), (Some(7), None), "{round}: {said}");
        }
    }

    #[test]
    fn the_pause_before_the_next_copy_grows_from_one_to_thirty_seconds() {
        let pauses: Vec<u64> = (0..9).map(|failed| copy_pause(failed).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(copy_pause(u32::MAX).as_secs(), 30);
    }
}
