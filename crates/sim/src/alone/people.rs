//! The clients of a queue manager that is no group.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use towline_node::Request;

use super::{Alone, AloneEvent};
use crate::served::connection::{self, Ends};
use crate::served::people::{ActiveDoor, ClientEvent, Connections, Crowd, People};

impl People for Alone {
    fn crowd(&mut self) -> Crowd<'_> {
        Crowd {
            now: self.now,
            clients: &mut self.clients,
            plan: &self.plan.base,
            dice: &mut self.dice,
            history: &self.ledger.history,
            answers: &self.ledger.answers,
            connections: &mut self.connections,
        }
    }

    fn plan_client(&mut self, time: u64, event: ClientEvent) {
        self.plan_at(time, AloneEvent::Client(event));
    }

    fn actives(&self) -> Vec<ActiveDoor> {
        let actives = self.machines.iter().enumerate().filter_map(|(node, machine)| {
            let live = machine.live.as_ref().filter(|_| !machine.is_paused)?;
            let (door, epoch) = live.board.served.lock().clone()?;
            Some((node, live.process, door, epoch))
        });
        actives.collect()
    }

    fn admit(&mut self, active: ActiveDoor, ends: Ends, requests: UnboundedReceiver<Vec<Request>>) {
        let (_, process, door, _) = active;
        let ledger = Arc::clone(&self.ledger);
        self.world.start(process, "client", move || {
            connection::serve(&door, ends, requests, &*ledger);
        });
    }

    fn connections(&mut self, node: usize, process: u64) -> Option<&mut Connections> {
        let live = self.machines[node].live.as_mut();
        Some(&mut live.filter(|live| live.process.0 == process)?.connections)
    }
}
