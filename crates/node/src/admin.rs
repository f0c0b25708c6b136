//! Administration: MQSC scripts, and the status of the queue manager.

use towline_admin::command as mqsc;
use towline_admin::run_script;
use towline_admin::status::{QueueManagerState, QueueStatus, Status};
use towline_admin::target::{
    ConnectionRow, DefinitionRow, HandleRow, OpenInput, QueueManagerRow, QueueStatusRow, Target,
    Usage,
};
use towline_core::{ConnectionId, Decision, FastMap, MoveCounts, QueueManager, Refusal};
use towline_types::Time;

use crate::damaged::DamagedMessages;
use crate::instance::{Chore, ChoreTicket, ConnectedClient, Instance, Outbound, RoutedResponse};
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
    /// Takes an administration request. Its answer waits until what it changed is durable.
    pub(crate) fn administer(
        &mut self,
        now: Time,
        Asker { connection, token, owner }: Asker,
        kind: &str,
        text: &str,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        if matches!(kind, "image" | "backup") {
            let ticket = ChoreTicket { connection, token };
            let kind = kind.to_owned();
            let text = text.to_owned();
            out.chores.push(Chore { ticket, kind, text, owner });
            return;
        }
        let AdminOutcome { json, changed } = match kind {
            "mqsc" => self.run_script(now, text, journal, out),
            "status" => {
                let mut status = self.status(now, journal.surroundings(now));
                status.queues.sort_by(|left, right| left.name.cmp(&right.name));
                AdminOutcome { json: json(&status), changed: false }
            }
            other => {
                let why = format!("administration request of kind '{other}' is unknown");
                let json = serde_json::json!({ "error": why }).to_string();
                AdminOutcome { json, changed: false }
            }
        };
        let response = Response::Admin(AdminReply { token, json });
        if !changed && self.is_stalled() {
            // Freeing log space may need the operator, and the operator looks at the state first.
            out.routed.push(RoutedResponse { connection, response });
            return;
        }
        self.answer_durable(connection, response, journal, out);
    }

    fn run_script(
        &mut self,
        now: Time,
        text: &str,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> AdminOutcome {
        let mut target = Administered {
            name: &self.name,
            now,
            rules: &mut self.rules,
            connections: &self.connections,
            damaged: &self.damaged,
            decisions: Vec::new(),
            stopped: Vec::new(),
        };
        let reply = run_script(&mut target, text);
        let Administered { decisions, stopped, .. } = target;
        for connection in stopped {
            out.routed.push(RoutedResponse { connection, response: Response::Stopped });
        }
        let changed = !decisions.is_empty();
        for decision in decisions {
            self.carry_out_decision(now, decision, journal, out);
        }
        // What a MOVE left may be away, and another one is not to find it so.
        self.load_first_pages(journal, out);
        AdminOutcome { json: json(&reply), changed }
    }

    /// All that `towline status` shows, the queues in no order. `surroundings`:
    /// [`Journal::surroundings`].
    #[must_use]
    pub fn status(&self, now: Time, surroundings: Status) -> Status {
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
        let paging = self.rules.paging_status();
        status.index.bytes = paging.index_bytes;
        status.index.bytes_max = paging.index_bytes_max;
        for queue in self.rules.queue_statuses() {
            status.queues.push(QueueStatus {
                oldest_message_age_s: queue.oldest_put_at.map(|at| now.since(at).as_secs()),
                depth: queue.depth,
                uncommitted: queue.uncommitted,
                puts: queue.totals.puts,
                gets: queue.totals.gets,
                backouts: queue.totals.backouts,
                expired: queue.totals.expired,
                damaged: self.damaged.in_queue(queue.queue),
                set_aside: self.damaged.moved_from(queue.queue),
                consumers: u64::from(queue.open_input) + u64::from(queue.open_browse),
                producers: u64::from(queue.open_output),
                name: queue.name,
            });
        }
        status
    }
}

/// The rules as the administration language sees them.
struct Administered<'a> {
    name: &'a str,
    now: Time,
    rules: &'a mut QueueManager,
    connections: &'a FastMap<ConnectionId, ConnectedClient>,
    damaged: &'a DamagedMessages,
    /// One for each command that changed something.
    decisions: Vec<Decision>,
    /// Connections to be closed.
    stopped: Vec<ConnectionId>,
}

impl Administered<'_> {
    fn damaged_in(&self, name: &str) -> u64 {
        self.rules.damaged_in(name, &|queue| self.damaged.known_in(queue))
    }

    fn change(
        &mut self,
        decide: impl FnOnce(&mut QueueManager, &mut Decision) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut decision = Decision::default();
        decide(self.rules, &mut decision)?;
        self.decisions.push(decision);
        Ok(())
    }
}

impl Target for Administered<'_> {
    fn queue_manager(&self) -> QueueManagerRow {
        let limits = self.rules.limits();
        QueueManagerRow {
            name: self.name.to_owned(),
            description: self.rules.queue_manager_attributes().description,
            dead_letter_queue: limits.dead_letter_queue.clone(),
            message_bytes_max: limits.message_bytes_max,
            unit_messages_max: limits.unit_messages_max,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn definitions(&self, each: &mut dyn FnMut(DefinitionRow<'_>)) {
        for definition in self.rules.definitions() {
            let status = self.rules.queue_status(definition.name());
            each(DefinitionRow {
                definition,
                usage: status.as_ref().map(usage),
                created_at: None,
                altered_at: None,
            });
        }
    }

    fn queue_status(&self, each: &mut dyn FnMut(QueueStatusRow<'_>)) {
        for status in self.rules.queue_statuses() {
            each(QueueStatusRow {
                name: &status.name,
                usage: usage(&status),
                uncommitted: status.uncommitted,
                oldest_message_age_s: status.oldest_put_at.map(|at| self.now.since(at).as_secs()),
                last_put_at: status.last_put_at,
                last_get_at: status.last_get_at,
                puts: status.totals.puts,
                gets: status.totals.gets,
                damaged: self.damaged.in_queue(status.queue),
            });
        }
    }

    fn connections(&self, each: &mut dyn FnMut(ConnectionRow<'_>)) {
        let statuses = self.rules.connections();
        for (id, connected) in self.connections {
            let at = statuses.binary_search_by_key(id, |status| status.connection);
            let status = at.ok().and_then(|at| statuses.get(at));
            // One that opened nothing has no row.
            let count = |of: fn(&towline_core::ConnectionStatus) -> usize| {
                status.map_or(0, |status| of(status) as u64)
            };
            each(ConnectionRow {
                links: count(|status| status.consumers + status.producers),
                units: count(|status| status.units),
                ..connection(*id, connected)
            });
        }
    }

    fn handles(&self, each: &mut dyn FnMut(HandleRow<'_>)) {
        for handle in self.rules.handles() {
            let Some(connected) = self.connections.get(&handle.connection) else { continue };
            each(HandleRow {
                queue: &handle.queue,
                connection: connection(handle.connection, connected),
                input: match (handle.consumers > 0, handle.exclusive) {
                    (false, _) => OpenInput::No,
                    (true, false) => OpenInput::Shared,
                    (true, true) => OpenInput::Exclusive,
                },
                browse: handle.browsers > 0,
                output: handle.producers > 0,
            });
        }
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
        Ok(counts)
    }

    fn stop_connection(&mut self, command: mqsc::StopConnection) -> bool {
        let connection = ConnectionId(command.id);
        let there = self.connections.contains_key(&connection);
        self.stopped.extend(there.then_some(connection));
        there
    }
}

/// What an administration request led to.
struct AdminOutcome {
    /// The reply.
    json: String,
    /// Whether anything was changed.
    changed: bool,
}

/// An answer as JSON; one that cannot be written as that says so.
fn json(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string())
}

/// What is known of a connection without asking what it has open.
fn connection(id: ConnectionId, connected: &ConnectedClient) -> ConnectionRow<'_> {
    ConnectionRow {
        id: id.0,
        user: connected.user.as_deref().unwrap_or_default(),
        container: &connected.container,
        address: &connected.address,
        sessions: 0,
        links: 0,
        units: 0,
    }
}

fn usage(status: &towline_core::QueueStatus) -> Usage {
    Usage {
        depth: status.depth,
        consumers: u64::from(status.open_input) + u64::from(status.open_browse),
        producers: u64::from(status.open_output),
    }
}
