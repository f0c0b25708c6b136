//! What the process of a former leader does while its disk does not answer.
//!
//! It cannot re-execute itself: a program is executed only when all other threads are gone, and
//! those that wait for the disk do not go; and a start would wait for the disk as well. So it stays
//! until the disk answers: its clients are disconnected, and new ones are relayed to the instance
//! that is active then.
//!
//! Not here: how that is noticed (`driver`).

use std::io::Write;
use std::path::Path;

use towline_admin::catalogue::SYSTEM_REFUSED;
use towline_log::format::BLOCK_BYTES;
use towline_logging::log as say;
use towline_os::fs::{self, File};

/// Written, synced and removed, where the log is and beside it.
const PROBE: &str = "disk-probe";

/// Calls `close_clients`, waits until the disk answers, and calls `answers`; returns at once.
pub fn wait_for_disk(
    data: &Path,
    close_clients: impl FnOnce() + Send + 'static,
    answers: impl FnOnce() + Send + 'static,
) {
    let folders = [data.join("log"), data.to_owned()];
    let goodbye = towline_os::thread::Builder::new().name("goodbye".into()).spawn(move || {
        // Its holder leaves when the log was given up.
        close_clients();
    });
    let probe = towline_os::thread::Builder::new().name("disk-probe".into()).spawn(move || {
        for folder in folders {
            // A refusal is an answer too: what it means the next start finds out.
            if let Err(error) = probe(&folder.join(PROBE)) {
                tracing::warn!(%error, "the disk answers, and refuses");
            }
        }
        answers();
    });
    for error in [goodbye.err(), probe.err()].into_iter().flatten() {
        say(&SYSTEM_REFUSED, &[&error.to_string()]);
    }
}

fn probe(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    // As much as the log writes at least: an answer to it is one to the log.
    file.write_all(&[0; BLOCK_BYTES])?;
    file.sync_all()?;
    fs::remove_file(path)
}
