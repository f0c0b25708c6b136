//! Administration: MQSC scripts, and the status of the queue manager.

mod lists;

use towline_admin::command as mqsc;
use towline_admin::run_script;
use towline_admin::status::{QueueManagerState, Status};
use towline_admin::target::{
    ConnectionRow, DefinitionRow, HandleRow, QueueManagerRow, QueueStatusRow, Target,
};
use towline_core::{ConnectionId, Decision, MoveCounts, Principal, QueueManager, Refusal};
use towline_types::Time;

pub use self::lists::{ConnectionListRow, DefinitionListRow, HandleListRow, QueueListRow};
use crate::instance::{AnswerWaits, Chore, ChoreTicket, Instance, Outbound, RoutedResponse};
use crate::journal::Journal;
use crate::request::{AdminReply, Response};

/// Where an administration request comes from.
pub(crate) struct Asker {
    pub(crate) connection: ConnectionId,
    /// Comes back with the answer.
    pub(crate) token: u64,
    /// Whether the client has the rights of the process.
    pub(crate) owner: bool,
}

impl Instance {
    /// Takes an administration request. Its answer waits for the log: see [`AnswerWaits`].
    pub(crate) fn administer(
        &mut self,
        now: Time,
        Asker { connection, token, owner }: Asker,
        kind: &str,
        text: &str,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let ticket = ChoreTicket { connection, token };
        let is_chore = match kind {
            "image" | "backup" => true,
            "mqsc" | "status" => self.is_administered_outside,
            _ => false,
        };
        if is_chore {
            let (kind, text) = (kind.to_owned(), text.to_owned());
            let principal = self.rules.principal(connection).clone();
            out.chores.push(Chore { ticket, kind, text, owner, principal });
            return;
        }
        let (json, waits) = match kind {
            "mqsc" => {
                let mut reply = None;
                let run = &mut |target: &mut dyn Target| reply = Some(run_script(target, text));
                let principal = &self.rules.principal(connection).clone();
                let changed = self.administered(now, principal, run, journal, out);
                (in_json(&reply), AnswerWaits::of_script(changed))
            }
            "status" => {
                let status = self.status(now, journal.surroundings(now));
                (in_json(&status), AnswerWaits::Nothing)
            }
            other => {
                let why = format!("administration request of kind '{other}' is unknown");
                (serde_json::json!({ "error": why }).to_string(), AnswerWaits::Nothing)
            }
        };
        self.answer_administrator(ticket, json, waits, journal, out);
    }

    /// From now on scripts and the status are [`Chore`]s: a thread of the surroundings makes them
    /// by [`Input::Administer`](crate::Input) and in looks for a few rows at a time. Without it
    /// each is one step, however long.
    pub fn administer_outside(&mut self) {
        self.is_administered_outside = true;
    }

    /// Answers an administrator when what it must wait for is durable.
    pub(crate) fn answer_administrator(
        &mut self,
        ChoreTicket { connection, token }: ChoreTicket,
        json: String,
        waits: AnswerWaits,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let response = Response::Admin(AdminReply { token, json });
        match waits {
            AnswerWaits::All => self.answer_durable(connection, response, journal, out),
            // Freeing log space may need the operator, and the operator looks at the state first.
            AnswerWaits::Objects if !self.is_stalled() => {
                self.answer_defined(connection, response, journal, out);
            }
            AnswerWaits::Objects | AnswerWaits::Nothing => {
                out.routed.push(RoutedResponse { connection, response });
            }
        }
    }

    /// Lets an administrator act; yields whether something was changed.
    pub(crate) fn administered(
        &mut self,
        now: Time,
        principal: &Principal,
        act: &mut dyn FnMut(&mut dyn Target),
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> bool {
        let (decisions, stopped, emptied) = (Vec::new(), Vec::new(), Vec::new());
        let mut target =
            Administered { instance: self, now, principal, decisions, stopped, emptied };
        act(&mut target);
        let Administered { decisions, stopped, emptied, .. } = target;
        for connection in stopped {
            out.routed.push(RoutedResponse { connection, response: Response::Stopped });
        }
        let changed = !decisions.is_empty();
        for decision in decisions {
            self.carry_out_decision(now, decision, journal, out);
        }
        // What a MOVE left may be away, and another one is not to find it so.
        emptied.iter().for_each(|name| self.load_first_page(name, journal, out));
        changed
    }

    /// All that `towline status` shows. `surroundings`: [`Journal::surroundings`].
    #[must_use]
    pub fn status(&self, now: Time, surroundings: Status) -> Status {
        let status = self.status_without_queues(surroundings);
        Status { queues: self.queue_rows_after(now, None, usize::MAX), ..status }
    }

    /// The same without the queues: see [`Instance::queue_rows_after`].
    #[must_use]
    pub fn status_without_queues(&self, surroundings: Status) -> Status {
        let mut status = surroundings;
        status.name.clone_from(&self.name);
        status.state = if self.is_quiescing() {
            QueueManagerState::Quiescing
        } else {
            QueueManagerState::Running
        };
        status.connections = self.connections.len() as u64;
        status.memory.message_bytes = self.rules.memory_bytes();
        status.memory.message_bytes_max = self.rules.limits().memory_bytes_max;
        status.memory.annotations_forgotten = self.annotated.forgotten();
        status.units = self.units_status();
        status.region = self.region_status();
        let paging = self.rules.paging_status();
        status.index.bytes = paging.index_bytes;
        status.index.bytes_max = paging.index_bytes_max;
        status
    }
}

/// The rules as the administration language sees them.
struct Administered<'a> {
    instance: &'a mut Instance,
    now: Time,
    /// On behalf of which it is decided.
    principal: &'a Principal,
    /// One for each command that changed something.
    decisions: Vec<Decision>,
    /// Connections to be closed.
    stopped: Vec<ConnectionId>,
    /// Queues of which messages were moved to others.
    emptied: Vec<String>,
}

impl Administered<'_> {
    fn damaged_in(&self, name: &str) -> u64 {
        let Instance { rules, damaged, .. } = &*self.instance;
        rules.damaged_in(name, &|queue| damaged.known_in(queue))
    }

    fn change(
        &mut self,
        decide: impl FnOnce(&mut QueueManager, &mut Decision) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut decision = Decision::on_behalf_of(self.principal.clone());
        decide(&mut self.instance.rules, &mut decision)?;
        self.decisions.push(decision);
        Ok(())
    }
}

impl Target for Administered<'_> {
    fn queue_manager(&self) -> QueueManagerRow {
        self.instance.queue_manager_row()
    }

    fn definitions(&self, each: &mut dyn FnMut(DefinitionRow<'_>)) {
        let rows = self.instance.definitions_after(None, usize::MAX);
        rows.iter().for_each(|row| each(row.row()));
    }

    fn queue_status(&self, each: &mut dyn FnMut(QueueStatusRow<'_>)) {
        let rows = self.instance.queue_statuses_after(None, usize::MAX);
        rows.iter().for_each(|row| each(row.row(self.now)));
    }

    fn connections(&self, each: &mut dyn FnMut(ConnectionRow<'_>)) {
        let rows = self.instance.connections_after(None, usize::MAX);
        rows.iter().for_each(|row| each(row.row()));
    }

    fn handles(&self, each: &mut dyn FnMut(HandleRow<'_>)) {
        let rows = self.instance.handles_after(None, usize::MAX).0;
        rows.iter().for_each(|row| each(row.row()));
    }

    fn define_local(&mut self, command: mqsc::DefineLocal) -> Result<(), Refusal> {
        let now = self.now;
        self.change(|rules, out| rules.define_local(now, &command, out))
    }

    fn define_alias(&mut self, command: mqsc::DefineAlias) -> Result<(), Refusal> {
        let now = self.now;
        self.change(|rules, out| rules.define_alias(now, &command, out))
    }

    fn define_model(&mut self, command: mqsc::DefineModel) -> Result<(), Refusal> {
        let now = self.now;
        self.change(|rules, out| rules.define_model(now, &command, out))
    }

    fn alter_local(&mut self, command: mqsc::AlterLocal) -> Result<(), Refusal> {
        let now = self.now;
        let mqsc::AlterLocal { name, changes } = command;
        self.change(|rules, out| rules.alter_local(now, &name, &changes, out))
    }

    fn alter_alias(&mut self, command: mqsc::AlterAlias) -> Result<(), Refusal> {
        let now = self.now;
        let mqsc::AlterAlias { name, changes } = command;
        self.change(|rules, out| rules.alter_alias(now, &name, &changes, out))
    }

    fn alter_model(&mut self, command: mqsc::AlterModel) -> Result<(), Refusal> {
        let now = self.now;
        let mqsc::AlterModel { name, changes, kind } = command;
        self.change(|rules, out| rules.alter_model(now, &name, &changes, kind, out))
    }

    fn alter_queue_manager(&mut self, changes: mqsc::QueueManagerChanges) -> Result<(), Refusal> {
        self.change(|rules, out| rules.alter_queue_manager(&changes, out))
    }

    fn delete(&mut self, command: mqsc::Delete) -> Result<u64, Refusal> {
        let now = self.now;
        let mqsc::Delete { name, object, purge } = command;
        let damaged = if purge { self.damaged_in(&name) } else { 0 };
        self.change(|rules, out| rules.delete(now, &name, object, purge, out))?;
        Ok(damaged)
    }

    fn clear(&mut self, command: mqsc::Clear) -> Result<u64, Refusal> {
        let now = self.now;
        let damaged = self.damaged_in(&command.name);
        self.change(|rules, out| rules.clear(now, &command.name, out))?;
        Ok(damaged)
    }

    fn move_messages(&mut self, command: mqsc::Move) -> Result<MoveCounts, Refusal> {
        let now = self.now;
        let mqsc::Move { name, to, add } = command;
        let mut counts = MoveCounts::default();
        self.change(|rules, out| {
            counts = rules.move_messages(now, &name, &to, add, out)?;
            Ok(())
        })?;
        self.emptied.push(name);
        Ok(counts)
    }

    fn stop_connection(&mut self, command: mqsc::StopConnection) -> bool {
        let connection = ConnectionId(command.id);
        let there = self.instance.connections.contains_key(&connection);
        self.stopped.extend(there.then_some(connection));
        there
    }
}

/// An answer as JSON; one that cannot be written as that says so.
fn in_json(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string())
}
