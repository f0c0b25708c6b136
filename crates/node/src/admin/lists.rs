//! Rows of lists for administrators, so many at a time: who makes a list goes on behind the last
//! row that it got, and lets go of the instance in between.
//!
//! Not here: how they are shown, and which of them (`towline_admin`).

use towline_admin::status::QueueStatus as QueueStatusReport;
use towline_admin::target::{
    ConnectionRow, DefinitionRow, HandleRow, OpenInput, QueueManagerRow, QueueStatusRow, Usage,
};
use towline_core::object::Definition;
use towline_core::{ConnectionId, ConnectionStatus, HandleStatus, QueueStatus};
use towline_types::Time;

use crate::instance::{ConnectedClient, Instance};

/// An object.
#[derive(Clone, Debug)]
pub struct DefinitionListRow {
    definition: Definition,
    usage: Option<Usage>,
}

impl DefinitionListRow {
    /// Its name, behind which the list goes on.
    #[must_use]
    pub fn name(&self) -> &str {
        self.definition.name()
    }

    /// To be shown.
    #[must_use]
    pub fn row(&self) -> DefinitionRow<'_> {
        let DefinitionListRow { definition, usage } = self;
        DefinitionRow { definition, usage: *usage, created_at: None, altered_at: None }
    }
}

/// A local queue.
#[derive(Clone, Debug)]
pub struct QueueListRow {
    status: QueueStatus,
    damaged: u64,
}

impl QueueListRow {
    /// Its name, behind which the list goes on.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.status.name
    }

    /// To be shown; ages are counted up to `now`.
    #[must_use]
    pub fn row(&self, now: Time) -> QueueStatusRow<'_> {
        let QueueListRow { status, damaged } = self;
        QueueStatusRow {
            name: &status.name,
            usage: usage(status),
            uncommitted: status.uncommitted,
            oldest_message_age_s: status.oldest_put_at.map(|at| now.since(at).as_secs()),
            last_put_at: status.last_put_at,
            last_get_at: status.last_get_at,
            puts: status.totals.puts,
            gets: status.totals.gets,
            damaged: *damaged,
        }
    }
}

/// A connection.
#[derive(Clone, Debug)]
pub struct ConnectionListRow {
    id: ConnectionId,
    client: ConnectedClient,
    /// `None`: it opened nothing yet.
    status: Option<ConnectionStatus>,
}

impl ConnectionListRow {
    /// Its id, behind which the list goes on.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// To be shown.
    #[must_use]
    pub fn row(&self) -> ConnectionRow<'_> {
        let count = |of: fn(&ConnectionStatus) -> usize| {
            self.status.as_ref().map_or(0, |status| of(status) as u64)
        };
        ConnectionRow {
            links: count(|status| status.consumers + status.producers),
            units: count(|status| status.units),
            ..connection(self.id, &self.client)
        }
    }
}

/// A queue that a connection has open.
#[derive(Clone, Debug)]
pub struct HandleListRow {
    handle: HandleStatus,
    client: ConnectedClient,
}

impl HandleListRow {
    /// To be shown.
    #[must_use]
    pub fn row(&self) -> HandleRow<'_> {
        let HandleListRow { handle, client } = self;
        HandleRow {
            queue: &handle.queue,
            connection: connection(handle.connection, client),
            input: match (handle.consumers > 0, handle.exclusive) {
                (false, _) => OpenInput::No,
                (true, false) => OpenInput::Shared,
                (true, true) => OpenInput::Exclusive,
            },
            browse: handle.browsers > 0,
            output: handle.producers > 0,
        }
    }
}

impl Instance {
    /// What there is to say of the queue manager itself.
    #[must_use]
    pub fn queue_manager_row(&self) -> QueueManagerRow {
        let limits = self.rules.limits();
        QueueManagerRow {
            name: self.name.clone(),
            description: self.rules.queue_manager_attributes().description,
            dead_letter_queue: limits.dead_letter_queue.clone(),
            message_bytes_max: limits.message_bytes_max,
            unit_messages_max: limits.unit_messages_max,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Objects behind a name, by name: so many at most.
    #[must_use]
    pub fn definitions_after(&self, name: Option<&str>, most: usize) -> Vec<DefinitionListRow> {
        let row = |definition: &Definition| DefinitionListRow {
            definition: definition.clone(),
            usage: self.rules.queue_status(definition.name()).as_ref().map(usage),
        };
        self.rules.definitions_after(name).take(most).map(row).collect()
    }

    /// Local queues behind a name, by name: so many at most.
    #[must_use]
    pub fn queue_statuses_after(&self, name: Option<&str>, most: usize) -> Vec<QueueListRow> {
        let row = |status: QueueStatus| QueueListRow {
            damaged: self.damaged.in_queue(status.queue),
            status,
        };
        self.rules.queue_statuses_after(name).take(most).map(row).collect()
    }

    /// The same for a status.
    #[must_use]
    pub fn queue_rows_after(
        &self,
        now: Time,
        name: Option<&str>,
        most: usize,
    ) -> Vec<QueueStatusReport> {
        let row = |queue: QueueStatus| QueueStatusReport {
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
        };
        self.rules.queue_statuses_after(name).take(most).map(row).collect()
    }

    /// Connections behind one, in order: so many at most.
    #[must_use]
    pub fn connections_after(
        &self,
        id: Option<ConnectionId>,
        most: usize,
    ) -> Vec<ConnectionListRow> {
        let row = |(id, client): (&ConnectionId, &ConnectedClient)| ConnectionListRow {
            id: *id,
            client: client.clone(),
            status: self.rules.connection_status(*id),
        };
        self.behind(id).take(most).map(row).collect()
    }

    /// What the connections behind one have open: of so many of them at most. Yields the last one
    /// too; `None`: there are no more.
    #[must_use]
    pub fn handles_after(
        &self,
        id: Option<ConnectionId>,
        most: usize,
    ) -> (Vec<HandleListRow>, Option<ConnectionId>) {
        let (mut rows, mut last) = (Vec::new(), None);
        for (id, client) in self.behind(id).take(most) {
            let handles = self.rules.handles_of(*id).into_iter();
            rows.extend(handles.map(|handle| HandleListRow { handle, client: client.clone() }));
            last = Some(*id);
        }
        (rows, last)
    }

    fn behind(
        &self,
        id: Option<ConnectionId>,
    ) -> impl Iterator<Item = (&ConnectionId, &ConnectedClient)> {
        // Ids are given out from 1 on.
        let from = ConnectionId(id.map_or(0, |id| id.0.saturating_add(1)));
        self.connections.range(from..)
    }
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

fn usage(status: &QueueStatus) -> Usage {
    Usage {
        depth: status.depth,
        consumers: u64::from(status.open_input) + u64::from(status.open_browse),
        producers: u64::from(status.open_output),
    }
}
