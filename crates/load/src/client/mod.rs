//! What the clients do, one file for each part; [`Role`] is the closed list.
//!
//! A role is driven by its worker: `open` when the connection is up, `event` for each thing that
//! happened on it, `turn` when something else changed (the phase, the clock), `lost` when the
//! connection is gone (the role is then opened again on a new one). It writes nothing itself.
//!
//! Invariant: a role that is not busy has no put without an outcome and no message half got.

mod asker;
mod consumer;
mod idle;
mod links;
mod producer;
mod requester;
mod responder;
mod transactor;

use towline_amqp::{Connection, event::Event};
use towline_types::Time;

use crate::desk::Desk;
use crate::plan::{Part, Plan, Seat};

use asker::Asker;
use consumer::Consumer;
use idle::Idle;
use producer::Producer;
use requester::Requester;
use responder::Responder;
use transactor::Transactor;

/// One client's behaviour and state.
pub(crate) enum Role {
    Requester(Requester),
    Asker(Asker),
    Responder(Responder),
    Producer(Producer),
    Consumer(Consumer),
    Transactor(Box<Transactor>),
    Idle(Idle),
}

/// Calls the same method of whichever role it is.
macro_rules! each {
    ($self:expr, $role:ident => $call:expr) => {
        match $self {
            Role::Requester($role) => $call,
            Role::Asker($role) => $call,
            Role::Responder($role) => $call,
            Role::Producer($role) => $call,
            Role::Consumer($role) => $call,
            Role::Transactor($role) => $call,
            Role::Idle($role) => $call,
        }
    };
}

impl Role {
    /// The role of a seat.
    pub(crate) fn new(seat: &Seat, plan: &Plan) -> Role {
        match seat.part {
            Part::Requester => Role::Requester(Requester::new(seat, plan)),
            Part::Asker => Role::Asker(Asker::new(seat, plan)),
            Part::Responder => Role::Responder(Responder::new(seat, plan)),
            Part::Producer => Role::Producer(Producer::new(seat, plan)),
            Part::Consumer => Role::Consumer(Consumer::new(seat, plan)),
            Part::Transactor => Role::Transactor(Box::new(Transactor::new(seat, plan))),
            Part::Idle => Role::Idle(Idle::default()),
        }
    }

    /// The connection is open: begins the session and attaches the links.
    pub(crate) fn open(&mut self, connection: &mut Connection, desk: &mut Desk) {
        each!(self, role => role.open(connection, desk));
    }

    /// Something happened on the connection. The opening and the end of it are the worker's.
    pub(crate) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        each!(self, role => role.event(connection, desk, event));
    }

    /// Does whatever can be done now.
    pub(crate) fn turn(&mut self, connection: &mut Connection, desk: &mut Desk) {
        each!(self, role => role.turn(connection, desk));
    }

    /// The connection is gone with all that was under way on it.
    pub(crate) fn lost(&mut self, desk: &mut Desk) {
        each!(self, role => role.lost(desk));
    }

    /// Sets the timetable; called once, when the load begins.
    pub(crate) fn start(&mut self, now: Time, number: u32, drivers: u32) {
        if let Some(pace) = self.pace() {
            pace.start(now, number, drivers);
        }
    }

    /// When it wants a turn because of its timetable.
    pub(crate) fn due(&mut self) -> Option<Time> {
        self.pace().and_then(|pace| pace.due())
    }

    /// Whether it drives and has quota left.
    pub(crate) fn is_unfinished(&mut self) -> bool {
        let busy = self.is_busy();
        self.pace().is_some_and(|pace| busy || !pace.is_exhausted())
    }

    /// Whether all links are up.
    pub(crate) fn is_ready(&self) -> bool {
        each!(self, role => role.is_ready())
    }

    /// Whether an operation is under way.
    pub(crate) fn is_busy(&self) -> bool {
        each!(self, role => role.is_busy())
    }

    fn pace(&mut self) -> Option<&mut crate::pace::Pace> {
        match self {
            Role::Requester(role) => Some(role.pace()),
            Role::Asker(role) => Some(role.pace()),
            Role::Producer(role) => Some(role.pace()),
            Role::Transactor(role) => Some(role.pace()),
            Role::Responder(_) | Role::Consumer(_) | Role::Idle(_) => None,
        }
    }
}
