//! What a process has and does in every mode (single, shared folder, instance of a group): control
//! socket, reload, the end that an operator asks for, and what it prints.
//!
//! Not here: start-up in one mode (`run`, `group`).

use std::sync::Arc;

use towline_admin::catalogue::{READY, STDOUT_CLOSED};
use towline_logging::log;
use towline_process::Clock;

use crate::control::ControlSocket;
use crate::hint;
use crate::refused::RunError;
use crate::reload::Reload;
use crate::run_args::RunArgs;
use crate::signals::{LocalEvent, Signals};

/// What a process has in every mode: single, shared folder, instance of a group.
pub(crate) struct Process {
    /// Its control socket.
    pub(crate) control: ControlSocket,
    /// What can change while it runs.
    pub(crate) reload: Arc<Reload>,
    /// Connections that there are file descriptors for.
    pub(crate) clients_max: usize,
}

/// The control socket cannot be used.
pub(crate) fn control_refused(control: &ControlSocket, error: std::io::Error) -> RunError {
    RunError::Listen { address: control.path().display().to_string(), error }
}

/// How the process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    /// In order.
    Stop,
    /// By executing its program again, an instance of a group only.
    Restart,
}

/// Waits until an end is asked for; what can change is read again meanwhile when that is asked for.
pub(crate) async fn until_end(signals: &Signals, reload: &Arc<Reload>) -> LocalEnd {
    loop {
        match signals.next().await {
            LocalEvent::Stop => return LocalEnd::Stop,
            LocalEvent::Restart => return LocalEnd::Restart,
            LocalEvent::Reload => reload.soon(),
        }
    }
}

/// Reports that clients can connect: to the log and the waiting supervisor, then to a terminal.
pub(crate) fn welcome(args: &RunArgs, urls: &[String], clock: Clock, again: bool) {
    let took = clock.now().since(clock.started_at());
    log(&READY, &[&args.name, &took.as_millis().to_string()]);
    if again {
        return;
    }
    let ready: Vec<String> = urls.iter().map(|url| format!("ready {url}")).collect();
    let ready = ready.join("\n");
    if !say(&ready) {
        log(&STDOUT_CLOSED, &[&ready]);
        return;
    }
    let Some(url) = urls.first() else { return };
    // The reader that waited for `ready` may have closed the pipe: that is no error.
    say(&hint::text(&args.program, &args.data, url));
}

/// Writes to standard output. False when its reader is gone.
pub(crate) fn say(text: &str) -> bool {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}
