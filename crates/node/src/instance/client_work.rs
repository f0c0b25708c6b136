//! Clients with requests that wait for a put of theirs that takes longer than one step: a large
//! body goes to the log in pieces, with the turns of others between them.
//!
//! Not here: how such a put is decided (`towline_core`); what else is done in slices (its `work`).
//!
//! Invariants: what a client asks for is decided in the order in which it asked; a client is in
//! `turns` once, as long as it has work; what waits is bounded, because nothing more is taken from
//! a client with enough of it ([`Instance::has_enough_of`]).

use std::collections::VecDeque;

use towline_core::{ConnectionId, FastMap, LargePutId, UnitId};
use towline_types::{Time, limits};

use super::{Instance, Outbound};
use crate::journal::Journal;
use crate::request::{Request, Response};

/// What a piece costs of a slice: it is copied under the lock.
const UNITS_PER_PIECE: u32 = 128;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ClientWork {
    clients: FastMap<ConnectionId, BusyClient>,
    turns: VecDeque<ConnectionId>,
}

#[derive(Debug, Default)]
struct BusyClient {
    put: Option<PutInPieces>,
    /// What it asked for behind the put, in order.
    waiting: VecDeque<Request>,
}

/// A put that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutInPieces {
    pub(super) id: LargePutId,
    pub(super) unit: Option<UnitId>,
    /// The token of the client that waits for it.
    pub(super) reply: Option<u64>,
}

impl BusyClient {
    /// Of the credit of a consumer the newest counts: one that sends it again and again takes no
    /// more memory.
    fn waits(&mut self, request: Request) {
        if let Request::Credit { consumer: newest, drain: false, .. } = &request
            && let Some(last) = self.waiting.back_mut()
            && matches!(last, Request::Credit { consumer, drain: false, .. } if consumer == newest)
        {
            *last = request;
        } else {
            self.waiting.push_back(request);
        }
    }
}

impl ClientWork {
    /// Whether no client has any.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// How many clients have some.
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    /// A put of this client has begun.
    pub(super) fn begin(&mut self, connection: ConnectionId, put: PutInPieces) {
        let client = self.clients.entry(connection).or_insert_with(|| {
            self.turns.push_back(connection);
            BusyClient::default()
        });
        let before = client.put.replace(put);
        assert!(before.is_none(), "a client puts one message after the other");
    }

    fn end(&mut self, connection: ConnectionId) -> Option<BusyClient> {
        let client = self.clients.remove(&connection)?;
        self.turns.retain(|known| *known != connection);
        Some(client)
    }
}

impl Instance {
    /// A client asks: behind its put, if one is on its way.
    pub(super) fn asked(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: Request,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        match (self.client_work.clients.get_mut(&connection), &request) {
            (None, _) => {}
            (Some(_), Request::Disconnect { lost }) => {
                self.end_client_work(now, connection, *lost, journal, out);
            }
            (Some(client), _) => return client.waits(request),
        }
        self.look_at_free_space(journal);
        self.request(now, connection, request, journal, out);
    }

    /// Whether [`Instance::do_client_work`] has anything to do now: not while the log is behind.
    pub(super) fn has_client_work(&self, journal: &dyn Journal) -> bool {
        !self.client_work.is_empty() && !self.is_stalled() && !journal.is_behind()
    }

    /// Whether clients have work that waits until the log has caught up. Behind runs that wait for
    /// the log it waits for them.
    #[must_use]
    pub fn has_work_for_log(&self) -> bool {
        !self.client_work.is_empty() && !self.is_stalled()
    }

    /// How many requests of a client wait behind its put.
    #[must_use]
    pub fn requests_waiting(&self, connection: ConnectionId) -> usize {
        self.client_work.clients.get(&connection).map_or(0, |client| client.waiting.len())
    }

    /// Whether so much of what a client asked for waits behind its put that nothing more is to be
    /// taken from it. [`Outbound::caught_up`] says when that is over.
    #[must_use]
    pub fn has_enough_of(&self, connection: ConnectionId) -> bool {
        self.requests_waiting(connection) >= limits::REQUESTS_WAITING_MAX
    }

    /// A slice of it; what it cost is taken off `units`.
    pub(super) fn do_client_work(
        &mut self,
        now: Time,
        units: &mut u32,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        while *units > 0 && self.has_client_work(journal) {
            // It stands behind the others before it has its turn: it may end in it.
            self.client_work.turns.rotate_left(1);
            let Some(connection) = self.client_work.turns.back().copied() else { return };
            let cost = self.client_turn(now, connection, journal, out);
            *units = units.saturating_sub(cost);
        }
    }

    /// The next thing of one client; what it cost.
    fn client_turn(
        &mut self,
        now: Time,
        connection: ConnectionId,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> u32 {
        let Some(client) = self.client_work.clients.get_mut(&connection) else {
            unreachable!("{connection:?} has its turn and no work")
        };
        if let Some(put) = client.put {
            if self.rules.next_piece(put.id, &mut self.decision) {
                self.carry_out(now, None, journal, out);
                return UNITS_PER_PIECE;
            }
            client.put = None;
            self.finish_put(now, connection, put, journal, out);
        } else if let Some(request) = client.waiting.pop_front() {
            self.look_at_free_space(journal);
            self.request(now, connection, request, journal, out);
        } else {
            self.client_work.end(connection);
            out.caught_up.push(connection);
        }
        1
    }

    fn finish_put(
        &mut self,
        now: Time,
        connection: ConnectionId,
        put: PutInPieces,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let PutInPieces { id, unit, reply } = put;
        let result = self.rules.finish_large(id, &mut self.decision);
        self.doom(connection, unit, result.as_ref().err());
        let response = reply.map(|token| (connection, Response::Put { token, unit, result }));
        self.carry_out(now, response, journal, out);
    }

    /// The client goes: what it asked for before is decided at once. Messages that it puts come
    /// whole or not at all: if it was lost none of the large ones.
    fn end_client_work(
        &mut self,
        now: Time,
        connection: ConnectionId,
        lost: bool,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let Some(BusyClient { mut put, mut waiting }) = self.client_work.end(connection) else {
            return;
        };
        loop {
            if let Some(put) = put.take() {
                if lost {
                    self.rules.abandon_large(put.id, &mut self.decision);
                    self.carry_out(now, None, journal, out);
                    // Its commit may be among what waits.
                    if let Some(unit) = put.unit
                        && self.rules.has_unit(connection, unit)
                    {
                        self.holdings.doomed.insert(connection, unit);
                    }
                } else {
                    while self.rules.next_piece(put.id, &mut self.decision) {
                        self.carry_out(now, None, journal, out);
                    }
                    self.finish_put(now, connection, put, journal, out);
                }
            }
            let Some(request) = waiting.pop_front() else { return };
            self.look_at_free_space(journal);
            self.request(now, connection, request, journal, out);
            put = self.client_work.end(connection).and_then(|client| client.put);
        }
    }
}
