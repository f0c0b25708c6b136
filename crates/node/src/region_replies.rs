//! Replies of runs that are durable in this group, and wait for the other region as well
//! (SyncReplication).
//!
//! What is durable here is applied at once, whatever the client that asked for it gets to know:
//! only the reply waits. So a queue serves what stands in this group, and a client that was
//! answered has it in both regions.
//!
//! Not here: up to where the other region has the log, and what is done when it is away
//! (`towline_region::SyncGate`).
//!
//! Invariants: without the other region nothing waits, and nothing is kept; replies go in the order
//! of the log; a reply goes when its run is in the other region, or when replies do not wait any
//! more, never before; nothing is kept of a connection that has ended.

use std::collections::VecDeque;

use towline_admin::status::ReplyWaitsStatus;
use towline_core::{ConnectionId, FastMap};
use towline_types::{Lsn, Time, limits};

use crate::instance::RoutedResponse;
use crate::request::Response;

/// Entries that are not worth to be swept.
const SWEPT_MIN: usize = 1_024;

/// A reply that waits for the log.
#[derive(Debug)]
pub(crate) struct ParkedReply {
    pub(crate) connection: ConnectionId,
    pub(crate) response: Response,
    /// It confirms what must not be lost with this region: it waits for the other one too, if
    /// replies do. Others say how something stands here: that a link is open, or a list of objects.
    pub(crate) confirms: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RegionReplies {
    /// Replies of runs that end here or before may go.
    released: Lsn,
    /// Beyond this position nothing was answered without the other region, since replies wait.
    alone_upto: Lsn,
    /// In the order of the log.
    waiting: VecDeque<WaitingReply>,
    /// How many of those that wait are of each connection that is there.
    counts: FastMap<ConnectionId, usize>,
    /// Those among them that have no connection any more.
    orphans: usize,
    /// So many wait that nothing more is to be taken from clients.
    is_full: bool,
    /// The time of this step.
    now: Time,
    /// Those that waited and went.
    waits: ReplyWaitsStatus,
}

#[derive(Debug)]
struct WaitingReply {
    end: Lsn,
    since: Time,
    connection: ConnectionId,
    response: Response,
}

impl Default for RegionReplies {
    /// There is no other region, or none that is waited for.
    fn default() -> RegionReplies {
        RegionReplies {
            released: Lsn(u64::MAX),
            alone_upto: Lsn::ZERO,
            waiting: VecDeque::new(),
            counts: FastMap::default(),
            orphans: 0,
            is_full: false,
            now: Time::ZERO,
            waits: ReplyWaitsStatus::default(),
        }
    }
}

impl RegionReplies {
    /// A step begins.
    pub(crate) fn step_begins(&mut self, now: Time) {
        self.now = now;
    }

    /// Sends a reply to a run that ends at `end`, or keeps it.
    pub(crate) fn route(&mut self, end: Lsn, reply: ParkedReply, routed: &mut Vec<RoutedResponse>) {
        let ParkedReply { connection, response, confirms } = reply;
        // Behind one that waits there is none that may go: the log is released in its order.
        if !confirms || end <= self.released {
            routed.push(RoutedResponse { connection, response });
            return;
        }
        let end = self.waiting.back().map_or(end, |last| last.end.max(end));
        *self.counts.entry(connection).or_insert(0) += 1;
        self.waiting.push_back(WaitingReply { end, since: self.now, connection, response });
        self.is_full |= self.waiting.len() >= limits::REGION_REPLIES_WAITING_MAX;
    }

    /// Replies of runs up to `upto` may go; [`u64::MAX`]: all. Everything up to `durable` may have
    /// been answered before.
    pub(crate) fn release(&mut self, upto: Lsn, durable: Lsn, routed: &mut Vec<RoutedResponse>) {
        if upto < self.released {
            self.alone_upto = self.alone_upto.max(durable);
        }
        self.released = upto;
        while self.waiting.front().is_some_and(|reply| reply.end <= upto)
            && let Some(reply) = self.waiting.pop_front()
        {
            let WaitingReply { since, connection, response, .. } = reply;
            let Some(count) = self.counts.get_mut(&connection) else {
                self.orphans -= 1;
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&connection);
            }
            let us = self.now.0.saturating_sub(since.0);
            self.waits.answered += 1;
            self.waits.waited_us = self.waits.waited_us.saturating_add(us);
            self.waits.waited_us_max = self.waits.waited_us_max.max(us);
            routed.push(RoutedResponse { connection, response });
        }
        self.look_whether_full();
    }

    /// The connection has ended: what waits for it is of no use.
    pub(crate) fn leave(&mut self, connection: ConnectionId) {
        let Some(count) = self.counts.remove(&connection) else { return };
        self.orphans += count;
        // Each sweep removes at least half of what it looks at.
        if self.orphans > SWEPT_MIN && self.orphans * 2 > self.waiting.len() {
            self.sweep();
        }
    }

    /// Removes replies of connections that have ended. A run may become durable after its client is
    /// gone: such a connection counts as one that is there, with all that waits for it.
    fn sweep(&mut self) {
        let known = std::mem::take(&mut self.counts);
        self.waiting.retain(|reply| known.contains_key(&reply.connection));
        for reply in &self.waiting {
            *self.counts.entry(reply.connection).or_insert(0) += 1;
        }
        self.orphans = 0;
        self.look_whether_full();
    }

    /// So many wait that nothing more is to be taken from clients, until half of them are gone.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Number of replies that wait for a connection that is there.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() - self.orphans
    }

    /// For the status.
    pub(crate) fn waits(&self) -> ReplyWaitsStatus {
        ReplyWaitsStatus { waiting: self.len() as u64, ..self.waits }
    }

    /// Up to where something may have been answered without the other region; `None`: it is still.
    pub(crate) fn alone_upto(&self) -> Option<Lsn> {
        (self.released < Lsn(u64::MAX)).then_some(self.alone_upto)
    }

    fn look_whether_full(&mut self) {
        self.is_full &= self.waiting.len() > limits::REGION_REPLIES_WAITING_MAX / 2;
        // Each that waits is of a connection that is there, or is not.
        assert!(self.orphans <= self.waiting.len(), "replies of ended connections are miscounted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(connection: u64, token: u64) -> ParkedReply {
        let response = Response::Put { token, unit: None, result: Ok(()) };
        ParkedReply { connection: ConnectionId(connection), response, confirms: true }
    }

    /// Which puts are answered, in order.
    fn tokens(routed: &mut Vec<RoutedResponse>) -> Vec<u64> {
        let token = |routed: RoutedResponse| match routed.response {
            Response::Put { token, .. } => token,
            other => panic!("not parked: {other:?}"),
        };
        routed.drain(..).map(token).collect()
    }

    /// Replies that wait for the other region, which has nothing.
    fn waiting() -> RegionReplies {
        let mut replies = RegionReplies::default();
        replies.release(Lsn(50), Lsn(50), &mut Vec::new());
        replies
    }

    #[test]
    fn without_the_other_region_no_reply_waits_and_none_is_kept() {
        let (mut replies, mut routed) = (RegionReplies::default(), Vec::new());
        replies.route(Lsn(100), reply(1, 1), &mut routed);
        assert_eq!(tokens(&mut routed), [1]);
        assert_eq!(replies.waits(), ReplyWaitsStatus::default());
        assert_eq!(replies.alone_upto(), None);
    }

    #[test]
    fn a_reply_goes_when_its_run_is_in_the_other_region_and_in_the_order_of_the_log() {
        let (mut replies, mut routed) = (waiting(), Vec::new());
        replies.step_begins(Time(1_000));
        replies.route(Lsn(50), reply(1, 0), &mut routed);
        assert_eq!(tokens(&mut routed), [0], "it is there already");
        for (end, token) in [(100, 1), (200, 2), (300, 3)] {
            replies.route(Lsn(end), reply(token % 2, token), &mut routed);
        }
        replies.release(Lsn(99), Lsn(300), &mut routed);
        assert!(tokens(&mut routed).is_empty());
        replies.step_begins(Time(1_500));
        replies.release(Lsn(200), Lsn(300), &mut routed);
        assert_eq!(tokens(&mut routed), [1, 2]);
        let waits =
            ReplyWaitsStatus { waiting: 1, answered: 2, waited_us: 1_000, waited_us_max: 500 };
        assert_eq!(replies.waits(), waits);
        replies.release(Lsn(u64::MAX), Lsn(300), &mut routed);
        assert_eq!(tokens(&mut routed), [3], "it is not waited for any more");
        assert_eq!(replies.len(), 0);
    }

    #[test]
    fn what_confirms_nothing_does_not_wait() {
        let (mut replies, mut routed) = (waiting(), Vec::new());
        let list = ParkedReply { confirms: false, ..reply(1, 7) };
        replies.route(Lsn(100), list, &mut routed);
        assert_eq!(tokens(&mut routed), [7]);
    }

    #[test]
    fn what_was_answered_alone_ends_where_the_log_was_durable_when_replies_began_to_wait() {
        let (mut replies, mut routed) = (waiting(), Vec::new());
        assert_eq!(replies.alone_upto(), Some(Lsn(50)));
        replies.release(Lsn(80), Lsn(90), &mut routed);
        assert_eq!(replies.alone_upto(), Some(Lsn(50)), "it went on in step");
        replies.release(Lsn(u64::MAX), Lsn(100), &mut routed);
        assert_eq!(replies.alone_upto(), None, "it is alone");
        replies.release(Lsn(80), Lsn(400), &mut routed);
        assert_eq!(replies.alone_upto(), Some(Lsn(400)));
    }

    #[test]
    fn a_connection_that_ends_leaves_nothing_behind() {
        let (mut replies, mut routed) = (waiting(), Vec::new());
        for round in 0..100 {
            for token in 0..SWEPT_MIN as u64 {
                replies.route(Lsn(100), reply(2 + round, token), &mut routed);
            }
            replies.route(Lsn(100), reply(1, round), &mut routed);
            replies.leave(ConnectionId(2 + round));
            assert!(replies.waiting.len() <= 4 * SWEPT_MIN, "{}", replies.waiting.len());
            assert_eq!(replies.len() as u64, round + 1);
        }
        replies.release(Lsn(100), Lsn(100), &mut routed);
        assert_eq!(tokens(&mut routed), (0..100).collect::<Vec<u64>>());
        assert_eq!((replies.waiting.len(), replies.orphans), (0, 0));
    }

    #[test]
    fn a_run_that_is_durable_after_its_client_is_gone_is_counted() {
        let (mut replies, mut routed) = (waiting(), Vec::new());
        for is_swept in [false, true] {
            for connection in [1, 2] {
                for token in 0..2 * SWEPT_MIN as u64 {
                    replies.route(Lsn(100), reply(connection, token), &mut routed);
                }
            }
            replies.leave(ConnectionId(1));
            replies.route(Lsn(100), reply(1, 9), &mut routed);
            if is_swept {
                replies.leave(ConnectionId(2));
            }
            replies.release(Lsn(100), Lsn(100), &mut routed);
            assert_eq!((replies.waiting.len(), replies.orphans, replies.counts.len()), (0, 0, 0));
            replies.release(Lsn(50), Lsn(100), &mut routed);
        }
    }

    #[test]
    fn with_as_many_as_may_wait_it_is_full_until_half_of_them_are_gone() {
        let (mut replies, mut routed) = (waiting(), Vec::new());
        let most = limits::REGION_REPLIES_WAITING_MAX as u64;
        for number in 1..most {
            replies.route(Lsn(100 + number), reply(1, number), &mut routed);
        }
        assert!(!replies.is_full());
        replies.route(Lsn(100 + most), reply(1, most), &mut routed);
        assert!(replies.is_full());
        replies.release(Lsn(100 + most / 2 - 1), Lsn(100 + most), &mut routed);
        assert!(replies.is_full(), "more than half wait still");
        replies.release(Lsn(100 + most / 2), Lsn(100 + most), &mut routed);
        assert!(!replies.is_full());
    }
}
