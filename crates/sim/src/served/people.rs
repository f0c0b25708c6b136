//! Clients: they come, ask, hear and go, over connections that take a while.
//!
//! Not here: what a client wants (`client`), how an instance answers (`connection`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use towline_engine::Door;
use towline_node::Request;
use towline_os::simulated::Process;
use towline_types::SeededRandom;

use super::connection::Ends;
use crate::client::{Answer, Client, Connection};
use crate::history::{History, Speaker};
use crate::plan::Plan;

/// Of each connection of a client to a process, where its requests go.
pub(crate) type Connections = BTreeMap<u64, UnboundedSender<Vec<Request>>>;

/// What happens between clients and instances.
pub(crate) enum ClientEvent {
    Wakes { client: usize },
    Asks { node: usize, process: u64, connection: u64, requests: Vec<Request> },
    Hears { client: usize, connection: u64, answer: Answer },
}

/// The clients of a run, and what they draw from.
pub(crate) struct Crowd<'a> {
    pub(crate) now: u64,
    pub(crate) clients: &'a mut Vec<Client>,
    pub(crate) plan: &'a Plan,
    pub(crate) dice: &'a mut SeededRandom,
    pub(crate) history: &'a Mutex<History>,
    pub(crate) answers: &'a Mutex<VecDeque<(usize, u64, Answer)>>,
    /// Connections made.
    pub(crate) connections: &'a mut u64,
}

/// A process that takes clients: machine, process, door, term.
pub(crate) type ActiveDoor = (usize, Process, Arc<Door>, u64);

/// A run with clients.
pub(crate) trait People {
    fn crowd(&mut self) -> Crowd<'_>;
    fn plan_client(&mut self, time: u64, event: ClientEvent);
    /// Those that a client finds.
    fn actives(&self) -> Vec<ActiveDoor>;
    /// A client reaches a process.
    fn admit(&mut self, active: ActiveDoor, ends: Ends, requests: UnboundedReceiver<Vec<Request>>);
    /// The connections of a process, if that is the one that runs there.
    fn connections(&mut self, node: usize, process: u64) -> Option<&mut Connections>;

    fn client_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Wakes { client } => self.wakes(client),
            ClientEvent::Asks { node, process, connection, requests } => {
                self.asks(node, process, connection, requests);
            }
            ClientEvent::Hears { client, connection, answer } => {
                self.hears(client, connection, answer);
            }
        }
    }

    /// A client has time to do something.
    fn wakes(&mut self, client: usize) {
        let crowd = self.crowd();
        let tired = crowd.clients[client].acts > crowd.plan.acts_max;
        let pause = 1 + crowd.dice.below(crowd.plan.wake_us);
        let next = crowd.now + pause * if tired { 8 } else { 1 };
        self.plan_client(next, ClientEvent::Wakes { client });
        let Crowd { now, clients, plan, dice, history, .. } = self.crowd();
        if clients[client].is_out_of_patience(now) {
            crate::trace::write(now, format_args!("client {client} goes elsewhere"));
            return self.leave(client, true);
        }
        if clients[client].connection.is_none() {
            return self.arrive(client);
        }
        let requests = clients[client].act(now, plan, dice, &mut history.lock());
        self.ask(client, requests);
    }

    /// A client connects to an instance that says that it is active.
    fn arrive(&mut self, client: usize) {
        let actives = self.actives();
        let Crowd { now, clients, plan, dice, connections, .. } = self.crowd();
        if clients[client].stopping || actives.is_empty() {
            return;
        }
        let active = actives[dice.index(actives.len())].clone();
        let (node, process, _, term) = &active;
        let (node, process, term) = (*node, *process, *term);
        *connections += 1;
        let number = *connections;
        let connection = Connection::new(number, node, process.0, dice, plan);
        let speaker = Speaker { node, process: process.0, term };
        let ends = Ends { client, speaker, number, get_from: connection.get_from };
        let (sender, receiver) = unbounded_channel();
        crate::trace::write(now, format_args!("client {client} connects to {node} ({number})"));
        let requests = clients[client].open(now, connection);
        self.admit(active, ends, receiver);
        if let Some(connections) = self.connections(node, process.0) {
            connections.insert(number, sender);
        }
        self.ask(client, requests);
    }

    /// A client goes away without a word, or is cut off.
    fn leave(&mut self, client: usize, lost: bool) {
        if self.crowd().clients[client].connection.is_some() {
            self.ask(client, vec![Request::Disconnect { lost }]);
        }
    }

    fn ask(&mut self, client: usize, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let Crowd { now, clients, plan, dice, history, .. } = self.crowd();
        let delay = 1 + dice.below(plan.client_delay_us);
        let leaves = requests.iter().any(|request| matches!(request, Request::Disconnect { .. }));
        let it = &mut clients[client];
        let Some(connection) = &mut it.connection else { return };
        connection.requests_at = connection.requests_at.max(now + delay);
        let (time, number) = (connection.requests_at, connection.id);
        let (node, process) = (connection.node, connection.process);
        if leaves {
            it.lose(&mut history.lock());
        }
        let asks = ClientEvent::Asks { node, process, connection: number, requests };
        self.plan_client(time, asks);
    }

    /// Requests of a connection arrive.
    fn asks(&mut self, node: usize, process: u64, connection: u64, requests: Vec<Request>) {
        let leaves = requests.iter().any(|request| matches!(request, Request::Disconnect { .. }));
        let Some(connections) = self.connections(node, process) else { return };
        if let Some(sender) = connections.get(&connection) {
            // A process that is gone has lost it.
            sender.send(requests).ok();
        }
        if leaves {
            connections.remove(&connection);
        }
    }

    /// Takes over what the instances answered. Whether there was any.
    fn take_answers(&mut self) -> bool {
        let answers = std::mem::take(&mut *self.crowd().answers.lock());
        let any = !answers.is_empty();
        for (client, connection, answer) in answers {
            let Crowd { now, clients, plan, dice, .. } = self.crowd();
            let delay = 1 + dice.below(plan.client_delay_us);
            let there = clients[client].connection.as_mut();
            let Some(there) = there.filter(|there| there.id == connection) else { continue };
            there.answers_at = there.answers_at.max(now + delay);
            let time = there.answers_at;
            self.plan_client(time, ClientEvent::Hears { client, connection, answer });
        }
        any
    }

    fn hears(&mut self, client: usize, connection: u64, answer: Answer) {
        let Crowd { now, clients, dice, history, .. } = self.crowd();
        let it = &mut clients[client];
        if it.connection.as_ref().is_none_or(|there| there.id != connection) {
            return;
        }
        let requests = it.hear(now, answer, dice, &mut history.lock());
        self.ask(client, requests);
    }
}
