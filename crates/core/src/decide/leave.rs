//! The end of a connection, and of the queues that go with it.

use towline_types::Time;

use crate::object::QueueKind;
use crate::queue::{EntryState, Spot};
use crate::request::Decision;
use crate::{ConnectionId, QueueId, QueueManager, Refusal, UnitId};

impl QueueManager {
    /// Ends all that a connection has open: units of work are rolled back, consumers closed
    /// (`lost`: with backouts counted for what they did not settle), temporary queues deleted.
    pub fn disconnect(
        &mut self,
        now: Time,
        connection: ConnectionId,
        lost: bool,
        out: &mut Decision,
    ) {
        self.begin_unasked(out);
        let Some(opened) = self.connections.get(&connection) else { return };
        let units: Vec<UnitId> = opened.units.iter().copied().collect();
        let consumers: Vec<_> = opened.consumers.iter().copied().collect();
        for id in units {
            self.forget_ended(now, id, out);
            if let Some(unit) = self.units.remove(&id) {
                self.roll_back(now, unit, out);
            }
        }
        for consumer in consumers {
            self.end_consumer(now, consumer, lost, out);
        }
        let Some(opened) = self.connections.remove(&connection) else { return };
        for (queue, count) in opened.outputs {
            if let Some(queue) = self.queues.get_mut(&queue) {
                queue.open_output -= count;
            }
        }
        for queue in opened.temporary {
            self.delete_temporary(queue);
        }
    }

    /// Deletes a temporary dynamic queue, whose link is closed (AMQP lifetime policy
    /// delete-on-close): at once, with its messages, by its own connection only. A permanent one
    /// stays until it is deleted by DELETE, whatever becomes of the link that it was made for (IBM
    /// MQ, DEFTYPE): it holds persistent messages, and a link is gone with each lost connection.
    ///
    /// # Errors
    /// Not such a queue, or not this connection's.
    pub fn delete_dynamic(
        &mut self,
        connection: ConnectionId,
        queue: QueueId,
    ) -> Result<(), Refusal> {
        let unknown = || Refusal::UnknownQueue(format!("dynamic queue {}", queue.0));
        let found = self.queues.get(&queue).filter(|queue| !queue.deleting).ok_or_else(unknown)?;
        let name = found.definition.name.clone();
        match found.definition.kind {
            QueueKind::TemporaryDynamic if found.owner == Some(connection) => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.temporary.remove(&queue);
                }
                self.delete_temporary(queue);
                Ok(())
            }
            QueueKind::TemporaryDynamic => {
                Err(Refusal::NotAuthorized(format!("'{name}' belongs to another connection")))
            }
            QueueKind::PermanentDynamic | QueueKind::Predefined => {
                Err(Refusal::WrongType { name, expected: "temporary dynamic queue" })
            }
        }
    }

    /// Its name is free and its messages go now; the queue itself goes when no consumer holds a
    /// message of it and no put to it is on its way.
    pub(super) fn delete_temporary(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        assert_eq!(queue.definition.kind, QueueKind::TemporaryDynamic, "others go by a fact");
        queue.deleting = true;
        let name = queue.definition.name.clone();
        let available: Vec<Spot> = queue
            .iter()
            .filter(|(_, entry)| entry.state == EntryState::Available)
            .map(|(lane, entry)| Spot { lane, sequence: entry.sequence })
            .collect();
        for spot in available {
            self.drop_message(id, spot);
        }
        self.catalogue.apply(&name, None);
        self.dismiss_consumers(id, &Refusal::Deleted(name));
        self.reap(id);
    }
}
