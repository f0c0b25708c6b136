//! Clients with requests that wait for a request of theirs that takes longer than one step: a large
//! body goes to the log in pieces, and the commit of a large unit of work in parts, with the turns
//! of others between them.
//!
//! Not here: how such a request is decided (`towline_core`); what else is done in slices (its
//! `work`).
//!
//! Invariants: what a client asks for is decided in the order in which it asked; a client is in
//! `turns` or `postponed` once, as long as it has work; what waits is bounded, because nothing more
//! is taken from a client with enough of it ([`Instance::has_enough_of`]). A commit that has begun
//! goes on to its end, also when its client is gone.

use std::collections::VecDeque;

use towline_core::{CommitId, ConnectionId, Decision, Fact, FastMap, LargePutId, UnitId};
use towline_types::{Lsn, Time, limits};

use super::pieces_ahead::PiecesAhead;
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
    /// Clients that wait with a commit until an image is taken.
    postponed: Vec<ConnectionId>,
    ahead: PiecesAhead,
}

#[derive(Debug, Default)]
struct BusyClient {
    doing: Option<LongRequest>,
    /// What it asked for behind that, in order.
    waiting: VecDeque<Request>,
}

/// A request that takes longer than a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum LongRequest {
    Put(PutInPieces),
    Commit(RunningCommit),
}

/// A put that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutInPieces {
    pub(super) id: LargePutId,
    pub(super) unit: Option<UnitId>,
    /// The token of the client that waits for it.
    pub(super) reply: Option<u64>,
}

/// The commit of a large unit of work that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningCommit {
    pub(super) id: CommitId,
    pub(super) unit: UnitId,
    /// The token of the client that waits for it.
    pub(super) token: u64,
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
    /// How many clients have some, those among them that wait for an image.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// A long request of this client has begun.
    pub(super) fn begin(&mut self, connection: ConnectionId, request: LongRequest) {
        let client = self.clients.entry(connection).or_insert_with(|| {
            self.turns.push_back(connection);
            BusyClient::default()
        });
        let before = client.doing.replace(request);
        assert!(before.is_none(), "a client does one thing after the other");
    }

    /// A commit that is on its way, taken out of its turn; and whose it is.
    pub(super) fn take_commit(&mut self) -> Option<(ConnectionId, RunningCommit)> {
        self.clients.iter_mut().find_map(|(connection, client)| match client.doing {
            Some(LongRequest::Commit(commit)) => {
                client.doing = None;
                Some((*connection, commit))
            }
            Some(LongRequest::Put(_)) | None => None,
        })
    }

    /// This request of a client is decided when an image is taken, and before all that waits.
    pub(super) fn postpone(&mut self, connection: ConnectionId, request: Request) {
        self.clients.entry(connection).or_default().waiting.push_front(request);
        self.turns.retain(|known| *known != connection);
        self.postponed.push(connection);
    }

    /// Whether one of them can go on, as far as they know.
    pub(super) fn can_go_on(&self) -> bool {
        !self.turns.is_empty() && !self.ahead.are_enough()
    }

    /// The log is durable up to here.
    pub(super) fn durable(&mut self, upto: Lsn) {
        self.ahead.are_durable(upto);
    }

    /// What was postponed has its turn.
    pub(super) fn resume_postponed(&mut self) {
        self.turns.extend(self.postponed.drain(..));
    }

    fn end(&mut self, connection: ConnectionId) -> Option<BusyClient> {
        let client = self.clients.remove(&connection)?;
        self.turns.retain(|known| *known != connection);
        self.postponed.retain(|known| *known != connection);
        Some(client)
    }
}

impl Instance {
    /// A client asks: behind its long request, if one is on its way.
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
                if !self.end_client_work(now, connection, *lost, journal, out) {
                    return;
                }
            }
            (Some(client), _) => return client.waits(request),
        }
        self.look_at_free_space(journal);
        self.request(now, connection, request, journal, out);
    }

    /// Whether [`Instance::do_client_work`] has anything to do now: not while the log is behind, or
    /// has enough of it that is not written.
    pub(super) fn has_client_work(&self, journal: &dyn Journal) -> bool {
        self.has_work_for_log() && !journal.is_behind()
    }

    /// Whether clients have work that waits until the log has caught up. Behind runs that wait for
    /// the log it waits for them, and behind enough pieces until some are durable.
    #[must_use]
    pub fn has_work_for_log(&self) -> bool {
        self.client_work.can_go_on() && !self.is_stalled()
    }

    /// Whether clients wait with their commits for an image: [`super::Input::Tick`] must come.
    pub(super) fn has_postponed(&self) -> bool {
        !self.client_work.postponed.is_empty()
    }

    /// Whether a commit of this size waits because an image is due.
    pub(super) fn image_goes_first(&mut self, now: Time) -> bool {
        self.waiting_image.goes_first(now)
    }

    /// Commits that waited for an image go on once it is taken, or when it is their turn.
    pub(super) fn look_at_postponed(&mut self, now: Time) {
        if self.has_postponed() && !self.image_goes_first(now) {
            self.client_work.resume_postponed();
        }
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

    /// A slice of all that takes longer than a step may; what it cost is taken off `units`. The
    /// rules have half of it, and clients the other half: searches through deep queues, or what is
    /// left of a cleared one, take any number of slices, and a commit would not go on before their
    /// end. What one half leaves the other one has.
    pub(super) fn do_work(
        &mut self,
        now: Time,
        units: &mut u32,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let kept = if self.has_client_work(journal) { *units / 2 } else { 0 };
        *units -= kept;
        self.do_own_work(now, units, journal, out);
        *units += kept;
        self.do_client_work(now, units, journal, out);
        self.do_own_work(now, units, journal, out);
    }

    fn do_own_work(
        &mut self,
        now: Time,
        units: &mut u32,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let mut selection = self.contents.selection(journal);
        self.rules.work(now, units, &mut selection, &mut self.outputs);
        self.take_outputs(journal, out);
    }

    fn do_client_work(
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
            let own = self.decides_for(connection);
            let cost = self.client_turn(now, connection, journal, out);
            self.decision.principal = own;
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
        if let Some(request) = client.doing {
            let goes_on = match request {
                LongRequest::Put(put) => self.rules.next_piece(put.id, &mut self.decision),
                LongRequest::Commit(commit) => self.rules.next_part(commit.id, &mut self.decision),
            };
            if goes_on {
                let bytes = bytes_to_log(&self.decision);
                self.carry_out(now, None, journal, out);
                if let Some(end) = self.pending.end().filter(|_| bytes > 0 && !self.is_stalled()) {
                    self.client_work.ahead.went(end, bytes);
                }
                return UNITS_PER_PIECE;
            }
            client.doing = None;
            match request {
                LongRequest::Put(put) => self.finish_put(now, connection, put, journal, out),
                LongRequest::Commit(commit) => {
                    self.finish_commit(now, connection, commit, journal, out);
                }
            }
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

    pub(super) fn finish_commit(
        &mut self,
        now: Time,
        connection: ConnectionId,
        commit: RunningCommit,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let RunningCommit { id, unit, token } = commit;
        self.rules.finish_commit(now, id, &mut self.decision);
        let response = Response::Discharged { token, unit, fail: false, result: Ok(()) };
        self.carry_out(now, Some((connection, response)), journal, out);
    }

    /// The client goes: what it asked for before is decided at once. Messages that it puts come
    /// whole or not at all: if it was lost none of the large ones. A commit in parts that has begun
    /// goes on. False: so it does, and the end of the client waits behind that.
    fn end_client_work(
        &mut self,
        now: Time,
        connection: ConnectionId,
        lost: bool,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> bool {
        let Some(BusyClient { mut doing, mut waiting }) = self.client_work.end(connection) else {
            return true;
        };
        loop {
            match doing.take() {
                None => {}
                Some(LongRequest::Put(put)) => {
                    self.end_put(now, connection, put, lost, journal, out);
                }
                Some(commit @ LongRequest::Commit(_)) => {
                    self.client_work.begin(connection, commit);
                    return self.end_behind_commit(now, connection, waiting, lost, journal, out);
                }
            }
            let Some(request) = waiting.pop_front() else { return true };
            self.look_at_free_space(journal);
            self.request(now, connection, request, journal, out);
            match self.client_work.clients.get(&connection) {
                None => {}
                Some(client) if client.doing.is_none() => {
                    // Its commit waits for an image.
                    return self.end_behind_commit(now, connection, waiting, lost, journal, out);
                }
                Some(_) => {
                    doing = self.client_work.end(connection).and_then(|client| client.doing);
                }
            }
        }
    }

    /// The client goes while its commit is on its way, or waits for an image. True: at once. It was
    /// lost, and what it asked for behind the commit is as if it had not arrived, but for the
    /// outcomes of deliveries, which need not come behind; so is a commit that has not begun. Of a
    /// client that ends in order all of that counts.
    fn end_behind_commit(
        &mut self,
        now: Time,
        connection: ConnectionId,
        waiting: VecDeque<Request>,
        lost: bool,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> bool {
        let Some(client) = self.client_work.clients.get_mut(&connection) else {
            unreachable!("{connection:?} has a commit on its way, and no work")
        };
        if !lost {
            let wanted = |request: &Request| !matches!(request, Request::Credit { .. });
            client.waiting.extend(waiting.into_iter().filter(wanted));
            client.waiting.push_back(Request::Disconnect { lost });
            for consumer in self.holdings.consumers.of(connection) {
                self.rules.set_credit(consumer, 0, false);
            }
            // It may come back at once, and be the only one of its id.
            self.leave_container(connection);
            return false;
        }
        if client.doing.is_none() {
            self.client_work.end(connection);
        }
        for request in waiting {
            if matches!(request, Request::Settle { unit: None, .. }) {
                self.request(now, connection, request, journal, out);
            }
        }
        true
    }

    /// A large put of a client that goes.
    fn end_put(
        &mut self,
        now: Time,
        connection: ConnectionId,
        put: PutInPieces,
        lost: bool,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        if !lost {
            while self.rules.next_piece(put.id, &mut self.decision) {
                self.carry_out(now, None, journal, out);
            }
            return self.finish_put(now, connection, put, journal, out);
        }
        self.rules.abandon_large(put.id, &mut self.decision);
        self.carry_out(now, None, journal, out);
        // Its commit may be among what waits.
        if let Some(unit) = put.unit
            && self.rules.has_unit(connection, unit)
        {
            self.holdings.doomed.insert(connection, unit);
        }
    }
}

/// Bytes that the log takes of a decision, about.
fn bytes_to_log(decision: &Decision) -> u64 {
    let logged = decision.facts.iter().take(decision.logged);
    logged.map(Fact::log_room).sum::<u64>() / 2
}
