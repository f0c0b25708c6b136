//! Does what administrators ask for and the instance cannot do alone, one after the other on a
//! thread of its own: each waits for the disk. A backup has a thread of its own again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde_json::json;
use towline_admin::catalogue::{BACKUP_FAILED, BACKUP_MADE, BACKUP_WITH_DAMAGE, IMAGE_TAKEN};
use towline_node::Chore;

use crate::backup::{self, BackupRequest, Folders};
use crate::door::Door;
use crate::images::Images;
use crate::reload::Reload;
use towline_logging::log;

/// Chores that may wait; each connection waits for the answer to its own.
const CHORES_MAX: usize = 1_024;

/// The node's end of the thread.
pub(crate) struct Clerk {
    sender: SyncSender<Chore>,
}

impl Clerk {
    pub(crate) fn new() -> (Clerk, Receiver<Chore>) {
        let (sender, receiver) = sync_channel(CHORES_MAX);
        (Clerk { sender }, receiver)
    }

    /// Hands one over. One that finds no room is never answered; who asked times out.
    pub(crate) fn send(&self, chore: Chore) {
        if let Err(error) = self.sender.try_send(chore) {
            tracing::warn!(%error, "an administration request is not carried out");
        }
    }
}

/// Starts the thread; it ends with the process.
pub(crate) fn start(
    name: &str,
    receiver: Receiver<Chore>,
    door: &Arc<Door>,
    (images, reload): (&Arc<Images>, &Arc<Reload>),
) -> std::io::Result<JoinHandle<()>> {
    let (name, door, images) = (name.to_owned(), Arc::clone(door), Arc::clone(images));
    let reload = Arc::clone(reload);
    std::thread::Builder::new().name("clerk".into()).spawn(move || {
        for chore in receiver {
            let json = match chore.kind.as_str() {
                "image" => image(&door, &images),
                "reload" => serde_json::to_string(&reload.now()).unwrap_or_default(),
                "backup" => {
                    let (ticket, text) = (chore.ticket, chore.text);
                    let restricted = (!chore.owner).then(|| Arc::clone(&reload.folders));
                    let (name, for_it) = (name.clone(), (Arc::clone(&door), Arc::clone(&images)));
                    // It takes long, and images are wanted meanwhile.
                    let started =
                        std::thread::Builder::new().name("backup".into()).spawn(move || {
                            let (door, images) = for_it;
                            let asked = (text.as_str(), restricted.as_deref());
                            let json = back_up(&name, asked, &door, &images);
                            door.chore_done(ticket, json);
                        });
                    match started {
                        Ok(_) => continue,
                        Err(error) => json!({ "error": error.to_string() }).to_string(),
                    }
                }
                other => json!({ "error": format!("'{other}' cannot be done") }).to_string(),
            };
            door.chore_done(chore.ticket, json);
        }
    })
}

fn back_up(
    name: &str,
    (text, restricted): (&str, Option<&Folders>),
    door: &Door,
    images: &Images,
) -> String {
    let request: BackupRequest = match serde_json::from_str(text) {
        Ok(request) => request,
        Err(error) => return json!({ "error": error.to_string() }).to_string(),
    };
    let folder = request.to.display().to_string();
    match backup::running(name, door, images, (&request, restricted)) {
        Ok(reply) => {
            let (bytes, took) = (reply.bytes.to_string(), reply.took_ms.to_string());
            log(&BACKUP_MADE, &[&folder, &reply.lsn, &bytes, &took]);
            if let Some(first) = reply.damaged.first() {
                let count = reply.damaged.len().to_string();
                log(&BACKUP_WITH_DAMAGE, &[&folder, &count, &first.text]);
            }
            serde_json::to_string(&reply).unwrap_or_default()
        }
        Err(why) => {
            log(&BACKUP_FAILED, &[&folder, &why]);
            json!({ "error": why }).to_string()
        }
    }
}

fn image(door: &Door, images: &Images) -> String {
    match images.take(door) {
        Ok(Some(taken)) => {
            let (at, took) = (taken.at.to_string(), taken.took.as_millis());
            let (bytes, pages) = (taken.bytes.to_string(), taken.pages.to_string());
            log(&IMAGE_TAKEN, &[&at, &bytes, &pages, &took.to_string()]);
            let took_ms = u64::try_from(took).unwrap_or(u64::MAX);
            json!({ "lsn": at, "bytes": taken.bytes, "pages": taken.pages, "took_ms": took_ms })
                .to_string()
        }
        Ok(None) => json!({ "error": "the log moves too fast; try again" }).to_string(),
        Err(error) => json!({ "error": error.to_string() }).to_string(),
    }
}
