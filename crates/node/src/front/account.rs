//! What one connection makes this process hold, in bytes by kind, and when that is too much.
//!
//! The first answer to too much is back-pressure: the instance is granted no further deliveries
//! ([`Front::dispatched_ahead`]), so that messages stay in their queues, and is granted them again
//! when the client has settled or read enough. Where nothing can be held back the client gets
//! `amqp:resource-limit-exceeded`: for a link that is one too many, on the link; for parts of
//! messages without an end, on the connection.
//!
//! Not here: bounds that are reached long before (what waits for the socket, puts that are not
//! durable), which the driver keeps; what all connections together hold of large messages
//! (`towline_engine`).
//!
//! Invariant: a consumer that was not granted what it wants because the account was full is granted
//! it when the account is not full any more.

use towline_amqp::types::{Error, condition};
use towline_types::limits;

use super::Front;
use super::links::LinkUse;
use crate::request::Request;

/// An account that was full is not any more when this part of it (one in so many) is free: a
/// client that settles one message at a time does not have all its consumers looked at each time.
const FREE_SHARE: u64 = 8;

/// Bytes that one connection holds, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionAccount {
    /// Parts of messages whose last frame has not come, and one that is being checked.
    pub arriving: u64,
    /// Messages that were put and have no answer yet.
    pub unanswered: u64,
    /// Links: their names, their selectors, and what is kept of each.
    pub links: u64,
    /// Deliveries without their bodies: those that wait here, and those that the client has.
    pub deliveries: u64,
    /// Outcomes in open units of work, with their message annotations.
    pub units: u64,
    /// Bodies that were begun, and frames that wait for the socket.
    pub departing: u64,
    /// Answers to administration that wait for credit.
    pub replies: u64,
}

impl ConnectionAccount {
    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arriving + self.unanswered + self.of_dispatch()
    }

    /// What grows by what is sent to the client, and what leaves less of the bound for it.
    fn of_dispatch(&self) -> u64 {
        self.links + self.deliveries + self.units + self.departing + self.replies
    }
}

impl Front {
    /// What the connection holds now, as far as it is known here.
    #[must_use]
    pub fn account(&self) -> ConnectionAccount {
        let held = self.links.held() as u64 * limits::HELD_DELIVERY_BYTES;
        let unsettled = self.machine.unsettled();
        let open = unsettled.open as u64 * limits::UNSETTLED_DELIVERY_BYTES;
        let holes = unsettled.holes as u64 * limits::SETTLED_DELIVERY_BYTES;
        let bodies = self.machine.begun_bytes() + self.links.leaving_bytes();
        ConnectionAccount {
            arriving: self.unfinished_bytes(),
            unanswered: self.incoming_bytes as u64,
            links: self.links.bytes(),
            deliveries: held + open + holes,
            units: self.units.bytes(),
            departing: (bodies + self.machine.output_bytes()) as u64,
            replies: self.admin_replies_bytes as u64,
        }
    }

    /// What the connection may hold when there is enough for all.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The account is full at so many bytes for the time being.
    pub fn set_full_at(&mut self, bytes: u64) {
        self.full_at = bytes;
    }

    /// By how many deliveries the instance may be ahead of each consumer of this connection; by
    /// none while the account is full.
    pub(super) fn dispatched_ahead(&mut self) -> u64 {
        if self.account().of_dispatch() >= self.full_at {
            self.is_full = true;
            return 0;
        }
        let share =
            limits::DISPATCHED_AHEAD_OF_CONNECTION_MAX / self.links.consumers().max(1) as u64;
        share.clamp(limits::DISPATCHED_AHEAD_MIN, limits::DISPATCHED_AHEAD_MAX)
    }

    /// The account is full only because of what others hold: it goes on, with nothing from its
    /// client, when it is full at so many bytes.
    #[must_use]
    pub fn goes_on_at(&self) -> Option<u64> {
        let bytes = self.is_full.then(|| self.is_enough())?;
        (self.full_at < bytes && bytes <= self.bytes_max).then_some(bytes)
    }

    /// The least [`Front::set_full_at`] with which an account that was full is not any more.
    fn is_enough(&self) -> u64 {
        let held = self.account().of_dispatch();
        // The inverse of what `go_on_if_free` asks for, rounded up.
        held + held / (FREE_SHARE - 1) + 2
    }

    /// Lets the instance go on when there is enough free space: the client, or others, have given
    /// some back.
    pub(super) fn go_on_if_free(&mut self, requests: &mut Vec<Request>) {
        let enough = self.full_at - self.full_at / FREE_SHARE;
        let held = self.account().of_dispatch();
        if held >= enough {
            // The client of one that is woken by others would wait for ever.
            assert!(self.is_enough() > self.full_at, "there is enough already");
            return;
        }
        self.is_full = false;
        let ahead = self.dispatched_ahead();
        for link in self.links.all_mut() {
            if let LinkUse::Consumer { consumer, supply, .. } = &mut link.used_for
                && supply.wants_more()
                && supply.is_low(ahead)
            {
                requests.push(supply.word(*consumer, ahead));
            }
        }
    }

    /// Whether one more link of so many bytes fits.
    ///
    /// # Errors
    /// `amqp:resource-limit-exceeded` when it does not.
    pub(super) fn check_link(&self, bytes: u64) -> Result<(), Error> {
        if self.links.bytes() + bytes <= self.full_at / limits::LINKS_SHARE {
            return Ok(());
        }
        let text = "the links of this connection, with their names and selectors, take too much \
                    memory (limits.connection_memory_bytes_max): use another connection";
        Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text))
    }

    /// Ends the connection when parts of messages take more than it may have beside one message of
    /// the largest length: not to read would keep all of them from their ends.
    pub(super) fn check_arriving(&mut self) {
        let most = limits::TRANSFER_BYTES_MAX.saturating_add(self.bytes_max);
        if self.machine.unfinished_bytes() > most {
            let text = "messages that were begun and not ended take too much memory \
                        (limits.connection_memory_bytes_max)";
            self.machine.abort(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
            self.ending.get_or_insert(super::Ending::Lost);
        }
    }
}

/// Memory that is counted for a link with this name on which messages arrive.
pub(super) fn producer_bytes(name: &str) -> u64 {
    limits::PRODUCER_LINK_BYTES + name.len() as u64
}

/// Memory that is counted for a link with this name on which messages leave.
pub(super) fn consumer_bytes(name: &str) -> u64 {
    limits::CONSUMER_LINK_BYTES + name.len() as u64
}
