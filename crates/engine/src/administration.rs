//! Administration beside the clients: scripts and the status are made on threads of their own,
//! which look at the instance for a few rows at a time and format outside of its lock. A script
//! does not hold up the status, nor an image either of them.
//!
//! Not here: what a command means (`towline_admin`, `towline_node`); images and backups
//! ([`admin_jobs`](crate::admin_jobs)).
//!
//! Invariants: each command that changes something is one step of the instance; a list is exact
//! row by row and not of one moment: what is defined, deleted or connected while it is made may be
//! in it or not, and nothing else is missing.

use std::sync::Arc;
use towline_os::sync::mpsc::Receiver;
use towline_os::thread::JoinHandle;

use serde_json::json;
use towline_admin::command as mqsc;
use towline_admin::run_script;
use towline_admin::target::{
    ConnectionRow, DefinitionRow, HandleRow, QueueManagerRow, QueueStatusRow, Target,
};
use towline_core::{MoveCounts, Principal, Refusal};
use towline_node::{AnswerWaits, Chore, ConnectionListRow, DefinitionListRow, QueueListRow};
use towline_types::limits;

use crate::door::Door;
use crate::list_pieces::in_pieces;

/// Starts the thread that runs scripts; it ends with the process.
pub(crate) fn start_scripts(
    receiver: Receiver<Chore>,
    door: &Arc<Door>,
) -> std::io::Result<JoinHandle<()>> {
    let door = Arc::clone(door);
    towline_os::thread::Builder::new().name("admin-scripts".into()).spawn(move || {
        receiver.into_iter().for_each(|chore| run_for(&door, chore));
    })
}

/// Starts the thread that answers what the status is; it ends with the process.
pub(crate) fn start_status(
    receiver: Receiver<Chore>,
    door: &Arc<Door>,
) -> std::io::Result<JoinHandle<()>> {
    let door = Arc::clone(door);
    towline_os::thread::Builder::new().name("admin-status".into()).spawn(move || {
        receiver.into_iter().for_each(|chore| answer_status(&door, chore));
    })
}

/// Runs a script and answers it.
pub(crate) fn run_for(door: &Door, chore: Chore) {
    let mut target = AdministeredDoor { door, principal: &chore.principal, changed: false };
    let reply = run_script(&mut target, &chore.text);
    let waits = AnswerWaits::of_script(target.changed);
    door.chore_done(chore.ticket, in_json(&reply), waits);
}

/// Answers what the status is, as the control socket does: the disk may be slow.
pub(crate) fn answer_status(door: &Door, chore: Chore) {
    door.chore_done(chore.ticket, in_json(&door.status()), AnswerWaits::Nothing);
}

/// An answer as JSON; one that cannot be written as that says so.
fn in_json(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer)
        .unwrap_or_else(|error| json!({ "error": error.to_string() }).to_string())
}

/// The instance behind its door, as the administration language sees it.
struct AdministeredDoor<'a> {
    door: &'a Door,
    /// On behalf of which commands are decided.
    principal: &'a Principal,
    /// A command changed something.
    changed: bool,
}

impl AdministeredDoor<'_> {
    /// Carries out a command as one step.
    fn change<R>(
        &mut self,
        act: impl FnOnce(&mut dyn Target) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let result = self.door.administer(self.principal, act);
        self.changed |= result.is_ok();
        result
    }
}

impl Target for AdministeredDoor<'_> {
    fn queue_manager(&self) -> QueueManagerRow {
        self.door.look(|instance| instance.queue_manager_row())
    }

    fn definitions(&self, each: &mut dyn FnMut(DefinitionRow<'_>)) {
        let behind = |last: Option<&DefinitionListRow>, most| {
            let last = last.map(DefinitionListRow::name);
            self.door.look(|instance| instance.definitions_after(last, most))
        };
        in_pieces(behind, |row| each(row.row()));
    }

    fn queue_status(&self, each: &mut dyn FnMut(QueueStatusRow<'_>)) {
        let now = self.door.clock().wall();
        let behind = |last: Option<&QueueListRow>, most| {
            let last = last.map(QueueListRow::name);
            self.door.look(|instance| instance.queue_statuses_after(last, most))
        };
        in_pieces(behind, |row| each(row.row(now)));
    }

    fn connections(&self, each: &mut dyn FnMut(ConnectionRow<'_>)) {
        let behind = |last: Option<&ConnectionListRow>, most| {
            let last = last.map(ConnectionListRow::id);
            self.door.look(|instance| instance.connections_after(last, most))
        };
        in_pieces(behind, |row| each(row.row()));
    }

    fn handles(&self, each: &mut dyn FnMut(HandleRow<'_>)) {
        let (mut behind, most) = (None, limits::ADMIN_ROWS_AT_ONCE_MAX);
        loop {
            let (rows, last) = self.door.look(|instance| instance.handles_after(behind, most));
            rows.iter().for_each(|row| each(row.row()));
            match last {
                Some(last) => behind = Some(last),
                None => return,
            }
        }
    }

    fn define_local(&mut self, command: mqsc::DefineLocal) -> Result<(), Refusal> {
        self.change(|target| target.define_local(command))
    }

    fn define_alias(&mut self, command: mqsc::DefineAlias) -> Result<(), Refusal> {
        self.change(|target| target.define_alias(command))
    }

    fn define_model(&mut self, command: mqsc::DefineModel) -> Result<(), Refusal> {
        self.change(|target| target.define_model(command))
    }

    fn alter_local(&mut self, command: mqsc::AlterLocal) -> Result<(), Refusal> {
        self.change(|target| target.alter_local(command))
    }

    fn alter_alias(&mut self, command: mqsc::AlterAlias) -> Result<(), Refusal> {
        self.change(|target| target.alter_alias(command))
    }

    fn alter_model(&mut self, command: mqsc::AlterModel) -> Result<(), Refusal> {
        self.change(|target| target.alter_model(command))
    }

    fn alter_queue_manager(&mut self, changes: mqsc::QueueManagerChanges) -> Result<(), Refusal> {
        self.change(|target| target.alter_queue_manager(changes))
    }

    fn delete(&mut self, command: mqsc::Delete) -> Result<u64, Refusal> {
        self.change(|target| target.delete(command))
    }

    fn clear(&mut self, command: mqsc::Clear) -> Result<u64, Refusal> {
        self.change(|target| target.clear(command))
    }

    fn move_messages(&mut self, command: mqsc::Move) -> Result<MoveCounts, Refusal> {
        self.change(|target| target.move_messages(command))
    }

    fn stop_connection(&mut self, command: mqsc::StopConnection) -> bool {
        self.door.administer(self.principal, |target| target.stop_connection(command))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use towline_config::Config;
    use towline_node::Request;
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;
    use towline_process::Clock;
    use towline_standby::Home;

    use super::*;
    use crate::replay::StartOptions;
    use crate::running::OpenInstance;

    const MOST: usize = limits::ADMIN_ROWS_AT_ONCE_MAX;

    #[test]
    fn a_script_beside_the_clients_shows_and_changes_all_that_it_says() {
        const MANY: usize = 2 * MOST + 1;
        let files = FileSystem::new();
        assert!(files.make_folder("/data"));
        let act = || {
            let (config, home) = (Config::default(), Home::single(Path::new("/data")));
            let options = StartOptions::default();
            let open = OpenInstance::open("QM1", &home, &config, options, Clock::start()).unwrap();
            let door = open.door();
            for number in 0..MANY {
                let (id, _outbox) = door.connect();
                let connected = Request::Connected {
                    container: format!("client {number}"),
                    user: None,
                    address: "here".into(),
                    sole: false,
                };
                door.step(door.clock().now(), id, &mut vec![connected]);
            }
            let principal = &Principal::Internal;
            let mut target = AdministeredDoor { door, principal, changed: false };
            let rows = |target: &mut AdministeredDoor<'_>, command: &str| {
                let replies = run_script(target, command).replies;
                replies.iter().map(|reply| reply.rows.len()).collect::<Vec<usize>>()
            };
            assert_eq!(rows(&mut target, "DISPLAY CONN(*) ALL"), [MANY]);
            assert!(!target.changed);
            let define: String =
                (0..MANY).map(|number| format!("DEFINE QLOCAL(Q{number})\n")).collect();
            assert_eq!(run_script(&mut target, &define).failed, 0);
            assert!(target.changed, "the answer waits for the log");
            assert_eq!(rows(&mut target, "DISPLAY QLOCAL(*)\nDISPLAY QUEUE(Q7)"), [MANY, 1]);
            while door.status().queues.len() < MANY {
                towline_os::thread::park_timeout(std::time::Duration::from_millis(1));
            }
            assert_eq!(rows(&mut target, "DISPLAY QSTATUS(*)"), [MANY]);
            let names: Vec<String> =
                door.status().queues.into_iter().map(|queue| queue.name).collect();
            assert!(names.is_sorted() && names.len() == MANY);
        };
        crash::in_process(&files, 1, act).unwrap();
    }
}
