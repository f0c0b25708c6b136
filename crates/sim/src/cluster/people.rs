//! The way between clients and instances.

use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;
use towline_node::Request;

use super::connection::{self, Ends};
use super::{Cluster, Event};
use crate::client::{Answer, Connection};
use crate::history::Speaker;

impl Cluster {
    /// A client has time to do something.
    pub(super) fn wakes(&mut self, client: usize) {
        let tired = self.clients[client].acts > self.plan.acts_max;
        let pause = 1 + self.dice.below(self.plan.wake_us);
        self.plan_in(pause * if tired { 8 } else { 1 }, Event::Wakes { client });
        if self.clients[client].is_out_of_patience(self.now) {
            self.tell(format_args!("client {client} goes elsewhere"));
            return self.leave(client, true);
        }
        if self.clients[client].connection.is_none() {
            return self.arrive(client);
        }
        let Cluster { clients, plan, dice, shared, now, .. } = self;
        let requests = clients[client].act(*now, plan, dice, &mut shared.history.lock());
        self.ask(client, requests);
    }

    /// A client connects to an instance that says that it is active.
    fn arrive(&mut self, client: usize) {
        if self.clients[client].stopping {
            return;
        }
        let actives = self.machines.iter().enumerate().filter_map(|(node, machine)| {
            let live = machine.live.as_ref().filter(|_| !machine.is_paused)?;
            let (door, term) = live.board.served.lock().clone()?;
            Some((node, live.process, door, term))
        });
        let actives: Vec<_> = actives.collect();
        if actives.is_empty() {
            return;
        }
        let (node, process, door, term) = actives[self.dice.index(actives.len())].clone();
        self.connections += 1;
        let number = self.connections;
        let connection = Connection::new(number, node, process.0, &mut self.dice, &self.plan);
        let speaker = Speaker { node, process: process.0, term };
        let ends = Ends { client, speaker, number, get_from: connection.get_from };
        let (sender, receiver) = unbounded_channel();
        let shared = Arc::clone(&self.shared);
        self.world.start(process, "client", move || {
            connection::serve(&door, ends, receiver, &shared);
        });
        if let Some(live) = &mut self.machines[node].live {
            live.connections.insert(number, sender);
        }
        self.tell(format_args!("client {client} connects to {node} ({number})"));
        let requests = self.clients[client].open(self.now, connection);
        self.ask(client, requests);
    }

    /// A client goes away without a word, or is cut off.
    pub(super) fn leave(&mut self, client: usize, lost: bool) {
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
        let (time, number) = (connection.requests_at, connection.id);
        let (node, process) = (connection.node, connection.process);
        if leaves {
            it.lose(&mut self.shared.history.lock());
        }
        self.plan_at(time, Event::Asks { node, process, connection: number, requests });
    }

    /// Requests of a connection arrive.
    pub(super) fn asks(
        &mut self,
        node: usize,
        process: u64,
        connection: u64,
        requests: Vec<Request>,
    ) {
        let leaves = requests.iter().any(|request| matches!(request, Request::Disconnect { .. }));
        let live = self.machines[node].live.as_mut();
        let Some(live) = live.filter(|live| live.process.0 == process) else { return };
        if let Some(sender) = live.connections.get(&connection) {
            // A process that is gone has lost it.
            sender.send(requests).ok();
        }
        if leaves {
            live.connections.remove(&connection);
        }
    }

    /// Takes over what the instances answered. Whether there was any.
    pub(super) fn take_answers(&mut self) -> bool {
        let answers = std::mem::take(&mut *self.shared.answers.lock());
        let any = !answers.is_empty();
        for (client, connection, answer) in answers {
            let delay = 1 + self.dice.below(self.plan.client_delay_us);
            let there = self.clients[client].connection.as_mut();
            let Some(there) = there.filter(|there| there.id == connection) else { continue };
            there.answers_at = there.answers_at.max(self.now + delay);
            let time = there.answers_at;
            self.plan_at(time, Event::Hears { client, connection, answer });
        }
        any
    }

    pub(super) fn hears(&mut self, client: usize, connection: u64, answer: Answer) {
        let Cluster { clients, dice, shared, now, .. } = self;
        let it = &mut clients[client];
        if it.connection.as_ref().is_none_or(|there| there.id != connection) {
            return;
        }
        let requests = it.hear(*now, answer, dice, &mut shared.history.lock());
        self.ask(client, requests);
    }
}
