//! The local socket on which an instance of a group answers whether or not it is active: one JSON
//! object a line in, one a line out. Only who may open the data folder can ask.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use towline_admin::status::GroupStatus;

use super::start::Opened;
use super::switch;
use crate::reload::Reload;
use crate::run::LocalEvent;
use towline_engine::GroupView;
use towline_link::Peer;
use towline_replication::driver::Driver;

const NAME: &str = "towline-group.sock";
/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// The longest line, bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Who says nothing for so long is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
enum Ask {
    Status,
    Switch {
        #[serde(default)]
        to: Option<String>,
    },
    Stop {
        #[serde(default)]
        force: bool,
    },
    Restart,
    Reload,
}

/// Answers on the socket, until the process ends.
pub(crate) struct GroupSocket {
    pub(crate) driver: Arc<Driver>,
    pub(crate) opened: Arc<Opened>,
    pub(crate) view: Arc<dyn GroupView>,
    pub(crate) reload: Arc<Reload>,
    pub(crate) events: UnboundedSender<LocalEvent>,
}

/// Path of the socket in a data folder.
pub(crate) fn path(data: &Path) -> PathBuf {
    data.join(NAME)
}

impl GroupSocket {
    /// Starts to answer.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(crate) fn start(self, data: &Path) -> std::io::Result<()> {
        let path = path(data);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let (this, open) = (Arc::new(self), Arc::new(AtomicUsize::new(0)));
        std::thread::Builder::new().name("group-socket".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                    open.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (this, counted) = (Arc::clone(&this), Arc::clone(&open));
                let served =
                    std::thread::Builder::new().name("group-ask".into()).spawn(move || {
                        let served = this.serve(&stream);
                        tracing::debug!(?served, "who asked on the socket of the group is gone");
                        counted.fetch_sub(1, Ordering::SeqCst);
                    });
                if served.is_err() {
                    open.fetch_sub(1, Ordering::SeqCst);
                }
            }
        })?;
        Ok(())
    }

    fn serve(&self, stream: &UnixStream) -> std::io::Result<()> {
        use std::io::Read;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? > 0 {
            let (answer, event) = self.answer(&line);
            line.clear();
            let mut text = answer.to_string();
            text.push('\n');
            (&mut &*stream).write_all(text.as_bytes())?;
            if let Some(event) = event {
                // It ends with the process.
                self.events.send(event).ok();
            }
        }
        Ok(())
    }

    fn answer(&self, line: &str) -> (Value, Option<LocalEvent>) {
        let refused = |why: String| (json!({ "error": why }), None);
        match serde_json::from_str(line) {
            Err(error) => refused(format!("this is not understood: {error}")),
            Ok(Ask::Status) => {
                // One that lost the active part has a door until it re-executes itself.
                let door = self.opened.door().filter(|_| self.driver.leads());
                let status = door.map(|door| door.status());
                (json!({ "ok": { "group": self.view.group(), "status": status } }), None)
            }
            Ok(Ask::Switch { to }) => {
                let done = switch::switch(&self.driver, self.view.as_ref(), to.as_deref());
                match done {
                    Ok(done) => (json!({ "ok": done }), None),
                    Err(why) => refused(why),
                }
            }
            Ok(Ask::Stop { force }) => match self.would_break_quorum() {
                Some(why) if !force => refused(why),
                _ => (json!({ "ok": {} }), Some(LocalEvent::Stop)),
            },
            Ok(Ask::Reload) => (json!({ "ok": self.reload.now() }), None),
            Ok(Ask::Restart) => (json!({ "ok": {} }), Some(LocalEvent::Restart)),
        }
    }

    fn would_break_quorum(&self) -> Option<String> {
        breaks_quorum(&self.view.group(), self.driver.this())
    }
}

/// Whether the group could not go on without the instance at this position. Positions, not names:
/// the one that stops must not count itself among those that are left.
fn breaks_quorum(group: &GroupStatus, this: Peer) -> Option<String> {
    let others = group.instances.iter().enumerate().filter(|(peer, _)| *peer != this);
    let left = others.filter(|(_, row)| row.connected_here).count();
    let all = group.instances.len();
    if left == 0 {
        return Some(format!(
            "'{}' is connected to no other instance, so it cannot know whether the group goes on \
             without it; --force stops it all the same",
            group.instance
        ));
    }
    (left < all / 2 + 1).then(|| {
        format!(
            "stopping '{}' would leave {left} of {all} instances, and the group would serve \
             nobody; --force stops it all the same",
            group.instance
        )
    })
}

#[cfg(test)]
mod tests {
    use towline_admin::status::InstanceStatus;

    use super::*;

    #[test]
    fn who_stops_does_not_count_itself_among_those_that_are_left() {
        let row = |connected_here| InstanceStatus { connected_here, ..InstanceStatus::default() };
        // Nothing has a name, so that names could tell nothing apart.
        let group = |rows: [bool; 3]| GroupStatus {
            instances: rows.map(row).to_vec(),
            ..GroupStatus::default()
        };
        let why = breaks_quorum(&group([true, true, false]), 0).unwrap();
        assert!(why.contains("would leave 1 of 3"), "{why}");
        assert_eq!(breaks_quorum(&group([true, true, true]), 2), None);
        let why = breaks_quorum(&group([true, false, false]), 0).unwrap();
        assert!(why.contains("cannot know"), "the others may serve without it: {why}");
    }
}
