//! What a step of the instance takes and what it yields.
//!
//! Not here: the step itself ([`Instance::step`](super::Instance::step)).

use std::fmt;

use towline_admin::target::Target;
use towline_core::{
    Body, ConnectionId, MessageSequence, PageRequest, Principal, QueueId, RecordError, SetAside,
    Unreadable,
};
use towline_types::{Lsn, Payload};

use crate::damaged::DamagedMessage;
use crate::request::{Farewell, Request, Response};
use crate::selection::FetchTicket;

/// Everything that can wake an instance.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection asks; all are taken.
    Requests {
        /// Which.
        connection: ConnectionId,
        /// For what, in order.
        requests: &'a mut Vec<Request>,
    },
    /// The log is durable up to here.
    Durable(Lsn),
    /// The other region has the log up to here, or is not waited for ([`u64::MAX`]): see
    /// [`Instance::wait_for_region`](super::Instance::wait_for_region).
    RegionHas(Lsn),
    /// A [`Fetch`] was carried out; `None`: the body cannot be read.
    Content {
        /// From the fetch.
        ticket: FetchTicket,
        /// What was read.
        content: Option<Payload>,
    },
    /// A message cannot be read; [`Outbound::aside`] says what became of it.
    Unreadable(Unreadable),
    /// The content of an [`OldBody`] was read: log it again.
    Relocate {
        /// The queue of the message.
        queue: QueueId,
        /// Which.
        sequence: MessageSequence,
        /// What was read.
        content: Payload,
    },
    /// Time passed.
    Tick,
    /// Do a slice of what takes longer than a step may ([`Outbound::is_unfinished`]).
    Work {
        /// About as many looks at messages; what it cost is taken off.
        units: &'a mut u32,
    },
    /// The log has no free space for new messages, or has some again.
    LogFull(bool),
    /// The log took no run because it was [behind](crate::NotAppended), and is not any more.
    LogCaughtUp,
    /// A page was read. One that is not what it should be is reported in [`Outbound::damage`].
    Page {
        /// What was asked for.
        request: PageRequest,
        /// What was read.
        content: &'a [u8],
    },
    /// A [`Chore`] was done.
    ChoreDone {
        /// From the chore.
        ticket: ChoreTicket,
        /// The answer, JSON.
        json: String,
        /// What must be durable before.
        waits: AnswerWaits,
    },
    /// A command of an administrator, from a [`Chore`].
    Administer(Administration<'a>),
    /// The clock of the instance was set, by so many microseconds: the next `now` is after that.
    ClockStepped(i64),
    /// The log is nearly full, in percent: the unit of work that holds its oldest position must go.
    LogPressed(u64),
    /// The queue manager ends: no new units of work, no new links.
    Quiesce,
    /// Ask all connections to close, and why.
    End(Farewell),
}

/// A command of an administrator: it acts on the instance within one step.
pub struct Administration<'a> {
    /// On behalf of which it is decided.
    pub principal: &'a Principal,
    /// What it does.
    pub act: &'a mut dyn FnMut(&mut dyn Target),
}

impl fmt::Debug for Administration<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Administration")
    }
}

/// What an administrator asked for and the instance cannot do alone: do it, then step the instance
/// with [`Input::ChoreDone`].
#[derive(Clone, Debug)]
pub struct Chore {
    /// Comes back.
    pub ticket: ChoreTicket,
    /// What: `image`, `backup`; `mqsc`, `status` too if `Instance::administer_outside` was called.
    pub kind: String,
    /// What more there is to say, as JSON; may be empty.
    pub text: String,
    /// Whether the client has the rights of the process: if not, files may be written only where
    /// the configuration allows it.
    pub owner: bool,
    /// On behalf of which it is done.
    pub principal: Principal,
}

/// What must be durable before an administrator is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerWaits {
    /// All that is decided: the answer confirms a part of it.
    All,
    /// What is decided about objects: the answer shows them.
    Objects,
    /// Nothing: figures of a moment, or of what the surroundings made durable.
    Nothing,
}

impl AnswerWaits {
    /// The answer to a script.
    #[must_use]
    pub fn of_script(changed: bool) -> AnswerWaits {
        if changed { AnswerWaits::All } else { AnswerWaits::Objects }
    }
}

/// The request that waits for a chore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoreTicket {
    pub(crate) connection: ConnectionId,
    pub(crate) token: u64,
}

/// A body that a selector needs: read it, then step the instance with [`Input::Content`].
#[derive(Debug)]
pub struct Fetch {
    /// Comes back.
    pub ticket: FetchTicket,
    /// Where it is.
    pub body: Body,
}

/// A response and the connection that it is for.
#[derive(Debug)]
pub struct RoutedResponse {
    /// The connection that it is for.
    pub connection: ConnectionId,
    /// What.
    pub response: Response,
}

/// What one step yields. The caller owns, empties and reuses it.
#[derive(Debug, Default)]
pub struct Outbound {
    /// For connections, in order.
    pub routed: Vec<RoutedResponse>,
    /// Bodies to be read.
    pub fetches: Vec<Fetch>,
    /// Pages to be read: step the instance with [`Input::Page`].
    pub pages: Vec<PageRequest>,
    /// What administrators asked for and the surroundings must do.
    pub chores: Vec<Chore>,
    /// What became of a message that cannot be read.
    pub aside: Option<SetAside>,
    /// Messages that cannot be read, when that is news for the operator.
    pub damaged: Vec<DamagedMessage>,
    /// A page says something else than it should: the queue manager must not go on with it.
    pub damage: Option<RecordError>,
    /// Clients whose requests wait no more: see
    /// [`Instance::has_enough_of`](super::Instance::has_enough_of).
    pub caught_up: Vec<ConnectionId>,
    /// There is work that takes longer than a step may: [`Input::Work`] should come soon, and again
    /// until this is false.
    pub is_unfinished: bool,
}
