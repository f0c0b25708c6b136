//! The clients of a cluster.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use towline_node::Request;

use super::connection::{self, Ends};
use super::{Cluster, ClusterEvent};
use crate::served::people::{ActiveDoor, ClientEvent, Connections, Crowd, People};

impl People for Cluster {
    fn crowd(&mut self) -> Crowd<'_> {
        Crowd {
            now: self.now,
            clients: &mut self.clients,
            plan: &self.plan,
            dice: &mut self.dice,
            history: &self.shared.history,
            answers: &self.shared.answers,
            connections: &mut self.connections,
        }
    }

    fn plan_client(&mut self, time: u64, event: ClientEvent) {
        self.plan_at(time, ClusterEvent::Client(event));
    }

    fn actives(&self) -> Vec<ActiveDoor> {
        let actives = self.machines.iter().enumerate().filter_map(|(node, machine)| {
            let live = machine.live.as_ref().filter(|_| !machine.is_paused)?;
            let (door, term) = live.board.served.lock().clone()?;
            Some((node, live.process, door, term))
        });
        actives.collect()
    }

    fn admit(&mut self, active: ActiveDoor, ends: Ends, requests: UnboundedReceiver<Vec<Request>>) {
        let (_, process, door, _) = active;
        let shared = Arc::clone(&self.shared);
        self.world.start(process, "client", move || {
            connection::serve(&door, ends, requests, &*shared);
        });
    }

    fn connections(&mut self, node: usize, process: u64) -> Option<&mut Connections> {
        let live = self.machines[node].live.as_mut();
        Some(&mut live.filter(|live| live.process.0 == process)?.connections)
    }
}
