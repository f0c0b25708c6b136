//! `towline backup`: asks a running queue manager for a copy of itself, or makes one of a queue
//! manager that does not run; `towline backup verify` checks one. The copying is done in the crates
//! below.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};
use towline_backup::{BackupError, DamagedBatch, read_progress};
use towline_client::{Address, Client, Options};
use towline_log::LogError;
use towline_server::backup::{
    BackupReply, BackupRequest, DamagedReply, back_up_at_rest, check_backup,
};

use crate::arguments::{Backup, BackupCommand};
use crate::failure::Failure;
use crate::{mqsc, progress, reach, show};

/// A copy takes as long as it takes; the server says when it fails.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How often it is looked how far the server is.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command.
pub(crate) fn run(arguments: &Backup) -> Result<(), Failure> {
    match (&arguments.command, &arguments.to) {
        (Some(BackupCommand::Verify { folder }), _) => verify(folder, arguments.json),
        (None, Some(to)) => back_up(arguments, to),
        (None, None) => Err(Failure::Usage("--to FOLDER is needed".into())),
    }
}

fn back_up(arguments: &Backup, to: &Path) -> Result<(), Failure> {
    // The server may have another working folder.
    let to = std::path::absolute(to)?;
    let keep_images = usize::from(arguments.keep_images);
    let request = BackupRequest { to, full: arguments.full, keep_images };
    let address = Address::Local(arguments.data.join(reach::SOCKET));
    let options = Options { container: "towline".into(), timeout: PATIENCE, ..Options::default() };
    let reply = match Client::connect(&address, &options) {
        Ok(client) => of_running(client, &request, arguments.json)?,
        Err(towline_client::Error::CannotConnect { .. }) => at_rest(arguments, &request)?,
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        show::json(&serde_json::to_value(&reply).unwrap_or_default())?;
    } else {
        as_text(&reply)?;
    }
    if reply.damaged.is_empty() { Ok(()) } else { Err(Failure::Silent) }
}

fn as_text(reply: &BackupReply) -> Result<(), Failure> {
    let BackupReply { lsn, files, bytes, bytes_held, took_ms, damaged, .. } = reply;
    let kind = if reply.full { "full" } else { "incremental" };
    show::line(&format!(
        "{kind} backup up to {lsn}: {files} files, {bytes} bytes written, {bytes_held} bytes in \
         all, {took_ms} ms"
    ))?;
    for damaged in damaged {
        show::line(&format!("! {}", damaged.text))?;
    }
    if damaged.is_empty() {
        return Ok(());
    }
    show::line(&format!(
        "The backup is complete except for these {} damaged batches, which are damaged in the log too. See docs/guides/damaged-log.md.",
        damaged.len()
    ))
}

/// Asks, and shows how far it is until the answer comes.
fn of_running(
    mut client: Client,
    request: &BackupRequest,
    json: bool,
) -> Result<BackupReply, Failure> {
    let text = serde_json::to_string(request).map_err(Failure::failed)?;
    let (answered, answer) = channel();
    let bar = progress::byte_bar(json);
    let reply = std::thread::scope(|scope| {
        scope.spawn(move || {
            let reply = client.ask_admin("backup", &text).and_then(|reply| {
                client.close()?;
                Ok(reply)
            });
            // The caller waits for it.
            answered.send(reply).ok();
        });
        loop {
            match answer.recv_timeout(LOOK_INTERVAL) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::failed("the request ended without an answer"));
                }
            }
            if let Some(now) = read_progress(&request.to) {
                bar.set_length(now.all);
                bar.set_position(now.done);
            }
        }
    });
    bar.finish_and_clear();
    mqsc::understood(&reply??.body)
}

fn at_rest(arguments: &Backup, request: &BackupRequest) -> Result<BackupReply, Failure> {
    let bar = progress::byte_bar(arguments.json);
    let reply = back_up_at_rest(&arguments.data, request, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    reply.map_err(|error| match error {
        BackupError::Log(LogError::Locked { .. }) => Failure::Failed(format!(
            "{error}, which does not answer on {}",
            arguments.data.join(reach::SOCKET).display()
        )),
        other => Failure::failed(other),
    })
}

fn verify(folder: &Path, json: bool) -> Result<(), Failure> {
    let bar = progress::byte_bar(json);
    let report = check_backup(folder, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.map_err(Failure::failed)?;
    let sound = report.is_sound();
    let (first, last) = (report.first.map(|l| l.to_string()), report.last.map(|l| l.to_string()));
    if json {
        show::json(&json!({
            "sound": sound,
            "files": report.files,
            "bytes": report.bytes,
            "batches": report.batches,
            "images": report.images,
            "pages": report.pages,
            "first_lsn": first,
            "last_lsn": last,
            "findings": report.findings,
            "damaged": damaged(&report.damaged),
        }))?;
    } else {
        for finding in &report.findings {
            show::line(&format!("! {finding}"))?;
        }
        show::line(&format!(
            "{} files, {} bytes, {} batches, {} images, {} pages; restores from {} to {}",
            report.files,
            report.bytes,
            report.batches,
            report.images,
            report.pages,
            first.unwrap_or_default(),
            last.unwrap_or_default(),
        ))?;
        for damaged in &report.damaged {
            show::line(&format!("! {damaged}, since before the backup was made"))?;
        }
        show::line(match (sound, report.damaged.is_empty()) {
            (true, true) => "The backup is sound.",
            (true, false) => {
                "The backup is what was written. Its log was damaged before: all but the messages \
                 in these batches can be restored."
            }
            (false, _) => "The backup is damaged.",
        })?;
    }
    if sound && report.damaged.is_empty() { Ok(()) } else { Err(Failure::Silent) }
}

/// Damaged batches for programs.
pub(crate) fn damaged(batches: &[DamagedBatch]) -> Value {
    let replies = batches.iter().map(DamagedReply::from);
    replies.map(|reply| serde_json::to_value(reply).unwrap_or_default()).collect()
}
