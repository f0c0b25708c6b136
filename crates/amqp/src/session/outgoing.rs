//! Deliveries that we send: queued in order, cut into frames, held back by the peer's window only.

use crate::event::{Allowance, LinkId, Outgoing};
use crate::link::Direction;
use crate::output::{Body, Output};
use crate::session::Session;
use crate::session::unsettled::Entry;
use crate::types::{DeliveryState, DeliveryTag, Role, Transfer};

/// A delivery of which no frame, or not the last one, is written.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Index of the link.
    pub(super) link: u16,
    key: u64,
    started: bool,
    transfer: Transfer,
    body: Body,
    /// Of the content as a whole: it stays in memory until its last frame is written.
    pub(super) bytes: usize,
}

impl Session {
    /// See [`Connection::send`](crate::Connection::send).
    pub(crate) fn send(&mut self, id: LinkId, key: u64, outgoing: Outgoing, output: &mut Output) {
        let Some(link) = self.link_mut(id) else { return };
        let Some(sending) = link.sending_mut() else { return };
        sending.queued += 1;
        sending.sends += 1;
        if sending.to_coordinator {
            // The work that a discharge ends must have been sent before.
            self.settlements.write(self.index, output);
        }
        let tag = outgoing.tag.unwrap_or_else(|| DeliveryTag::from_number(key));
        let transfer = Transfer {
            handle: u32::from(id.index),
            delivery_tag: Some(tag),
            message_format: Some(outgoing.message_format),
            settled: Some(outgoing.settled),
            state: outgoing.state,
            ..Transfer::default()
        };
        let body = Body::new(outgoing.prefix, outgoing.content);
        let bytes = body.remaining();
        self.waiting_bytes += bytes;
        let link = id.index;
        self.waiting.push_back(Waiting { link, key, started: false, transfer, body, bytes });
        self.pump(output);
    }

    /// See [`Connection::allowance`](crate::Connection::allowance).
    pub(crate) fn allowance(&self, id: LinkId) -> Allowance {
        let frames = if self.waiting.is_empty() { self.window.outgoing() } else { 0 };
        match self.link(id).map(|link| &link.direction) {
            Some(Direction::Sending(sending)) => Allowance { credit: sending.credit(), frames },
            Some(Direction::Receiving(_)) | None => Allowance::default(),
        }
    }

    /// Writes what waits, as far as the peer's window allows.
    pub(super) fn pump(&mut self, output: &mut Output) {
        while self.window.is_open()
            && let Some(waiting) = self.waiting.front_mut()
        {
            if !waiting.started {
                waiting.started = true;
                let entry = Entry { link: waiting.link, key: waiting.key, reported: false };
                let settled = waiting.transfer.settled == Some(true);
                let delivery = self.unsettled.push((!settled).then_some(entry));
                waiting.transfer.delivery_id = Some(delivery);
                let link = self.links.get_mut(usize::from(waiting.link));
                if let Some(Direction::Sending(sending)) = link.map(|link| &mut link.direction) {
                    sending.queued = sending.queued.saturating_sub(1);
                    sending.delivery_count = sending.delivery_count.wrapping_add(1);
                }
            }
            output.transfer(self.index, &mut waiting.transfer, &mut waiting.body);
            self.window.went_out();
            if waiting.transfer.more {
                // Only the first frame names the delivery.
                waiting.transfer =
                    Transfer { handle: waiting.transfer.handle, ..Transfer::default() };
                continue;
            }
            let link = waiting.link;
            self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting.bytes);
            self.waiting.pop_front();
            self.finish_drain(link);
        }
    }

    /// See [`Connection::drained`](crate::Connection::drained).
    pub(crate) fn drained(&mut self, id: LinkId) {
        if let Some(sending) = self.link_mut(id).and_then(|link| link.sending_mut())
            && sending.drain
        {
            sending.give_back = true;
            self.finish_drain(id.index);
        }
    }

    /// Gives back credit when the driver said so and nothing of the link waits any more.
    fn finish_drain(&mut self, index: u16) {
        let link = self.links.get_mut(usize::from(index));
        let Some(sending) = link.and_then(|link| link.sending_mut()) else { return };
        if sending.give_back && !self.waiting.iter().any(|waiting| waiting.link == index) {
            sending.give_back = false;
            sending.delivery_count = sending.delivery_count.wrapping_add(sending.unused());
            self.owe_flow(index);
        }
    }

    /// See [`Connection::reopen_outgoing`](crate::Connection::reopen_outgoing).
    pub(crate) fn reopen_outgoing(&mut self, id: LinkId, key: u64) {
        self.unsettled.reopen(id.index, key);
    }

    /// See [`Connection::settle_outgoing`](crate::Connection::settle_outgoing).
    pub(crate) fn settle_outgoing(&mut self, id: LinkId, key: u64, state: Option<DeliveryState>) {
        if let Some(delivery) = self.unsettled.settle(id.index, key) {
            self.settlements.push(Role::Sender, delivery, true, state);
        }
    }
}
