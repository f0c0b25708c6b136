//! Carries out the administration requests that the instance cannot carry out alone, one after the
//! other on a thread of its own: each waits for the disk. A backup has a further thread.
//!
//! Not here: which users may request them (`towline_node`).

use std::sync::Arc;
use towline_os::sync::mpsc::Receiver;
use towline_os::thread::JoinHandle;

use serde_json::json;
use towline_admin::catalogue::{BACKUP_FAILED, BACKUP_MADE, BACKUP_WITH_DAMAGE, IMAGE_TAKEN};
use towline_logging::log;
use towline_node::{AnswerWaits, Chore};

use crate::backup::{self, BackupRequest};
use crate::backup_folders::BackupFolders;
use crate::door::Door;
use crate::images::Images;

/// What the jobs need from the process.
#[derive(Clone)]
pub struct AdminJobs {
    /// The queue manager.
    pub name: String,
    /// Where backups may be written for other users than that of this process.
    pub backup_folders: Arc<BackupFolders>,
}

/// Starts the thread; it ends with the process.
pub(crate) fn start(
    receiver: Receiver<Chore>,
    door: &Arc<Door>,
    images: &Arc<Images>,
    jobs: AdminJobs,
) -> std::io::Result<JoinHandle<()>> {
    let door = Arc::clone(door);
    let images = Arc::clone(images);
    towline_os::thread::Builder::new().name("admin-jobs".into()).spawn(move || {
        for chore in receiver {
            let json = match chore.kind.as_str() {
                "image" => image(&door, &images),
                "backup" => {
                    let ticket = chore.ticket;
                    match start_backup(chore, &door, &images, &jobs) {
                        // The thread answers when it is done.
                        Ok(()) => continue,
                        Err(error) => {
                            let json = json!({ "error": error.to_string() }).to_string();
                            door.chore_done(ticket, json, AnswerWaits::Nothing);
                            continue;
                        }
                    }
                }
                other => json!({ "error": format!("'{other}' cannot be done") }).to_string(),
            };
            door.chore_done(chore.ticket, json, AnswerWaits::Nothing);
        }
    })
}

/// A backup takes long, and images are needed meanwhile: it has a thread of its own.
fn start_backup(
    chore: Chore,
    door: &Arc<Door>,
    images: &Arc<Images>,
    jobs: &AdminJobs,
) -> std::io::Result<()> {
    let door = Arc::clone(door);
    let images = Arc::clone(images);
    let jobs = jobs.clone();
    let thread = towline_os::thread::Builder::new().name("backup".into());
    thread.spawn(move || {
        let restricted = (!chore.owner).then_some(&*jobs.backup_folders);
        let json = back_up(&jobs.name, &chore.text, restricted, &door, &images);
        door.chore_done(chore.ticket, json, AnswerWaits::Nothing);
    })?;
    Ok(())
}

fn back_up(
    name: &str,
    request: &str,
    restricted: Option<&BackupFolders>,
    door: &Door,
    images: &Images,
) -> String {
    let request: BackupRequest = match serde_json::from_str(request) {
        Ok(request) => request,
        Err(error) => return json!({ "error": error.to_string() }).to_string(),
    };
    let folder = request.to.display().to_string();
    match backup::back_up_running(name, door, images, &request, restricted) {
        Ok(reply) => {
            let (bytes, took) = (reply.bytes.to_string(), reply.took_ms.to_string());
            log(&BACKUP_MADE, &[&folder, &reply.lsn, &bytes, &took]);
            if let Some(first) = reply.damaged.first() {
                let count = reply.damaged.len().to_string();
                log(&BACKUP_WITH_DAMAGE, &[&folder, &count, &first.text]);
            }
            json!(reply).to_string()
        }
        Err(why) => {
            log(&BACKUP_FAILED, &[&folder, &why]);
            json!({ "error": why }).to_string()
        }
    }
}

fn image(door: &Door, images: &Images) -> String {
    match images.take(door) {
        Ok(Some(image)) => {
            let (at, took) = (image.at.to_string(), image.took.as_millis());
            let (bytes, pages) = (image.bytes.to_string(), image.pages.to_string());
            log(&IMAGE_TAKEN, &[&at, &bytes, &pages, &took.to_string()]);
            let took_ms = u64::try_from(took).unwrap_or(u64::MAX);
            json!({ "lsn": at, "bytes": image.bytes, "pages": image.pages, "took_ms": took_ms })
                .to_string()
        }
        Ok(None) => json!({ "error": "the log moves too fast; try again" }).to_string(),
        Err(error) => json!({ "error": error.to_string() }).to_string(),
    }
}
