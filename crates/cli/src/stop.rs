//! `towline stop`: asks a queue manager for an orderly shutdown, and waits until its process is
//! gone. An instance of a group is asked, and may refuse; a single instance is sent SIGTERM.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::arguments::Stop;
use crate::failure::Failure;
use crate::group::ask::{Asking, STOP};
use crate::process::Process;
use crate::{reach, show};

/// Runs the command.
pub(crate) fn run(arguments: &Stop) -> Result<(), Failure> {
    let here = &arguments.here;
    let began = Instant::now();
    let timeout = Duration::from_secs_f64(here.timeout);
    let process = match Asking::connect(&here.data, timeout)? {
        Some(mut asking) => {
            let process = asking.process()?;
            asking.ask(&json!({ "do": STOP, "force": arguments.force }))?;
            process
        }
        None => single(arguments)?,
    };
    if !process.wait(timeout.saturating_sub(began.elapsed()))? {
        let pid = process.number();
        return Err(Failure::Failed(format!("process {pid} has not ended in {} s", here.timeout)));
    }
    let (pid, took_ms) = (process.number(), began.elapsed().as_millis());
    if here.json {
        let took_ms = u64::try_from(took_ms).unwrap_or(u64::MAX);
        return show::json(&json!({ "pid": pid, "took_ms": took_ms }));
    }
    show::line(&format!("process {pid} ended, {took_ms} ms"))
}

/// Sends the signal.
fn single(arguments: &Stop) -> Result<Process, Failure> {
    let data = &arguments.here.data;
    let socket = data.join(reach::SOCKET);
    let stream = UnixStream::connect(&socket).map_err(|error| {
        Failure::CannotConnect(match error.kind() {
            // The second: what a killed one left.
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                "no queue manager is running in data folder {}; name another with --data",
                data.display()
            ),
            _ => format!("{}: {error}", socket.display()),
        })
    })?;
    let process = Process::behind(&stream)?;
    process.signal(Signal::TERM)?;
    Ok(process)
}
