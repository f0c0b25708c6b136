//! `towline stop`: asks a process for an orderly shutdown on its control socket, and waits until it
//! has ended. An instance of a group may refuse. A process that does not answer gets SIGTERM.
//!
//! Invariant: the signal goes to the process that listens on a socket of this data folder, by a
//! handle that never means another one.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::arguments::Stop;
use crate::control::{AskError, ControlClient, ControlReach, STOP, not_running};
use crate::failure::Failure;
use crate::process::Process;
use crate::{reach, show};

/// A process that does not answer within this stands still, or is too busy to be asked.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// A process that ends right after it was asked may end before its answer is read.
const LOST_ANSWER_MAX: Duration = Duration::from_secs(1);

/// A process that was asked to end, and how if it did not answer.
struct Stopping {
    process: Process,
    signal: Option<&'static str>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Stop) -> Result<(), Failure> {
    let here = &arguments.here;
    let began = Instant::now();
    let timeout = Duration::from_secs_f64(here.timeout);
    let Stopping { process, signal } =
        match ControlClient::find(&here.data, arguments.pid, timeout)? {
            ControlReach::Connected(client) => ask(client, arguments, timeout)?,
            ControlReach::NotRunning => by_socket_of_clients(arguments)?,
            ControlReach::Denied(failure) => return Err(failure),
        };
    if !process.wait(timeout.saturating_sub(began.elapsed()))? {
        let pid = process.number();
        return Err(Failure::Failed(format!("process {pid} has not ended in {} s", here.timeout)));
    }
    let (pid, took_ms) = (process.number(), began.elapsed().as_millis());
    if here.json {
        let took_ms = u64::try_from(took_ms).unwrap_or(u64::MAX);
        return show::json(&json!({ "pid": pid, "took_ms": took_ms, "signal": signal }));
    }
    show::line(&format!("process {pid} ended, {took_ms} ms"))
}

fn ask(
    mut client: ControlClient,
    arguments: &Stop,
    timeout: Duration,
) -> Result<Stopping, Failure> {
    let process = client.process()?;
    let answer_max = timeout.min(ANSWER_MAX);
    client.wait_at_most(answer_max);
    match client.ask(&json!({ "do": STOP, "force": arguments.force })) {
        Ok(_) => Ok(Stopping { process, signal: None }),
        Err(lost @ AskError::Lost { .. }) => match process.wait(LOST_ANSWER_MAX.min(timeout))? {
            true => Ok(Stopping { process, signal: None }),
            false => Err(lost.into()),
        },
        Err(unanswered) if unanswered.is_timeout() => {
            let seconds = answer_max.as_secs_f64();
            let why = format!("did not answer within {seconds} s on {}", client.socket().display());
            terminate(process, &why, arguments)
        }
        Err(unanswered) => Err(unanswered.into()),
    }
}

/// There is no control socket, although clients of this machine may be served: it was removed.
fn by_socket_of_clients(arguments: &Stop) -> Result<Stopping, Failure> {
    let data = &arguments.here.data;
    let socket = data.join(reach::SOCKET);
    let stream = UnixStream::connect(&socket).map_err(|error| match error.kind() {
        // The second: what a killed process left.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => not_running(data),
        _ => Failure::CannotConnect(format!("{}: {error}", socket.display())),
    })?;
    let process = Process::behind(&stream)?;
    if arguments.pid.is_some_and(|pid| pid != process.number()) {
        return Err(not_running(data));
    }
    terminate(process, "has no control socket", arguments)
}

/// Sends SIGTERM, which asks nothing of the others of a group.
fn terminate(process: Process, why: &str, arguments: &Stop) -> Result<Stopping, Failure> {
    let pid = process.number();
    if !arguments.force && is_of_group(&arguments.here.data) {
        return Err(Failure::Failed(format!(
            "process {pid} {why}, so it is not known whether its group has a quorum without it; \
             --force sends it SIGTERM"
        )));
    }
    process.signal(Signal::TERM)?;
    eprintln!("towline: process {pid} {why}; it was sent SIGTERM");
    Ok(Stopping { process, signal: Some("SIGTERM") })
}

/// Whether it is the folder of an instance of a group; one that cannot be looked into counts as
/// one.
fn is_of_group(data: &Path) -> bool {
    towline_server::is_folder_of_group(data).unwrap_or(true)
}
