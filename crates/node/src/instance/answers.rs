//! Answers that wait for the log, or for the other region, without a run of their own.
//!
//! Not here: replies of runs (`pending`), how far the other region is (`region_replies`).

use towline_admin::status::ReplyWaitsStatus;
use towline_core::{ConnectionId, Durability};
use towline_types::Lsn;

use super::{Instance, Outbound, RoutedResponse, StalledRun};
use crate::journal::Journal;
use crate::region_replies::ParkedReply;
use crate::request::Response;

impl Instance {
    /// Answers when what was decided about objects is durable: what was opened, or shown, stays.
    /// Messages on their way are not waited for: the answer says nothing of them, and their disk
    /// may be slow. Nor is the other region: a client may connect, and an operator look, while it
    /// is away.
    pub(crate) fn answer_defined(
        &mut self,
        connection: ConnectionId,
        response: Response,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let reply = ParkedReply { connection, response, confirms: false };
        if self.rules.has_definitions_on_their_way() {
            return self.answer_behind(reply, journal, out);
        }
        let ParkedReply { response, .. } = reply;
        out.routed.push(RoutedResponse { connection, response });
    }

    /// Answers when everything decided so far is durable: what was confirmed stays.
    pub(crate) fn answer_durable(
        &mut self,
        connection: ConnectionId,
        response: Response,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        let reply = ParkedReply { connection, response, confirms: true };
        self.answer_behind(reply, journal, out);
    }

    fn answer_behind(&mut self, reply: ParkedReply, journal: &dyn Journal, out: &mut Outbound) {
        if self.something_is_on_its_way() {
            let facts = Vec::new();
            let durability = Durability::Memory;
            let reply = Some(reply);
            self.log_run(StalledRun { facts, logged: 0, durability, reply }, journal);
        } else {
            // What it confirms is durable here.
            self.region_replies.route(self.applied, reply, &mut out.routed);
        }
    }

    /// From now on replies wait until the other region has their runs too: so far it has nothing.
    /// What was applied before may have been answered by an earlier process.
    pub fn wait_for_region(&mut self) {
        assert!(!self.something_is_on_its_way(), "a restart decides nothing");
        self.region_replies.release(Lsn::ZERO, self.applied, &mut Vec::new());
    }

    /// Up to where something may have been answered that the other region does not have; `None`:
    /// replies do not wait for it.
    #[must_use]
    pub fn answered_alone_upto(&self) -> Option<Lsn> {
        self.region_replies.alone_upto()
    }

    /// Replies that wait, or waited, for the other region.
    #[must_use]
    pub fn region_waits(&self) -> ReplyWaitsStatus {
        self.region_replies.waits()
    }

    /// Whether what clients add is to wait: the log is behind, or the other region has so many
    /// replies waiting.
    #[must_use]
    pub fn holds_clients_up(&self) -> bool {
        self.waits_for_log() || self.region_replies.is_full()
    }
}
