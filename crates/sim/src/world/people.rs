//! The way between clients and instances.

use towline_core::ConnectionId;
use towline_node::Request;

use super::{At, Event, World, tell};
use crate::client::{Answer, Connection};

impl World {
    /// A client has time to do something.
    pub(crate) fn wakes(&mut self, client: usize) {
        let large = self.plan.body_bytes_max > 10_000;
        let tired = large || self.clients[client].acts > self.plan.acts_max;
        let pause = 1 + self.dice.below(self.plan.wake_us);
        self.plan_in(pause * if tired { 8 } else { 1 }, Event::Wakes { client });
        if self.clients[client].is_out_of_patience(self.now) {
            tell!(self, "client {client} goes elsewhere");
            return self.leave(client, true);
        }
        if self.clients[client].connection.is_none() {
            return self.arrive(client);
        }
        let it = &mut self.clients[client];
        let requests = it.act(self.now, &self.plan, &mut self.dice, &mut self.history);
        self.ask(client, requests);
    }

    /// A client connects to an instance that says that it is active.
    fn arrive(&mut self, client: usize) {
        if self.clients[client].stopping {
            return;
        }
        let actives = self.nodes.iter().enumerate().filter_map(|(node, there)| {
            let process = there.process.as_ref().filter(|process| process.is_active())?;
            Some((node, process.number))
        });
        let actives: Vec<(usize, u64)> = actives.collect();
        if actives.is_empty() {
            return;
        }
        let (node, process) = actives[self.dice.index(actives.len())];
        self.connections += 1;
        let id = self.connections;
        let connection = Connection::new(id, node, process, &mut self.dice, &self.plan);
        let get_from = connection.get_from;
        if let Some(process) = self.process(At { node, process }) {
            process.connections.insert(ConnectionId(id), (client, get_from));
        }
        tell!(self, "client {client} connects to {node} ({id})");
        let requests = self.clients[client].open(self.now, connection);
        self.ask(client, requests);
    }

    /// A client goes away without a word, or is cut off.
    pub(crate) fn leave(&mut self, client: usize, lost: bool) {
        if self.clients[client].connection.is_some() {
            self.ask(client, vec![Request::Disconnect { lost }]);
        }
    }

    fn ask(&mut self, client: usize, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let delay = 1 + self.dice.below(self.plan.client_delay_us);
        let leaves = requests.iter().any(|request| matches!(request, Request::Disconnect { .. }));
        let it = &mut self.clients[client];
        let Some(connection) = &mut it.connection else { return };
        connection.requests_at = connection.requests_at.max(self.now + delay);
        let time = connection.requests_at;
        let at = At { node: connection.node, process: connection.process };
        let connection = ConnectionId(connection.id);
        if leaves {
            it.lose(&mut self.history);
        }
        self.plan_at(time, Event::Asks { at, connection, requests });
    }

    /// An answer is on its way to a client, unless it has gone elsewhere.
    pub(crate) fn tell_client(&mut self, client: usize, connection: ConnectionId, answer: Answer) {
        let delay = 1 + self.dice.below(self.plan.client_delay_us);
        let there = self.clients[client].connection.as_mut();
        let Some(there) = there.filter(|there| there.id == connection.0) else { return };
        there.answers_at = there.answers_at.max(self.now + delay);
        let time = there.answers_at;
        self.plan_at(time, Event::Hears { client, connection, answer });
    }

    pub(crate) fn hears(&mut self, client: usize, connection: ConnectionId, answer: Answer) {
        let it = &mut self.clients[client];
        if it.connection.as_ref().is_none_or(|there| there.id != connection.0) {
            return;
        }
        let requests = it.hear(self.now, answer, &mut self.dice, &mut self.history);
        self.ask(client, requests);
    }
}
