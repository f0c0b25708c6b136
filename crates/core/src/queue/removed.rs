//! What leaves a queue, how long bodies are, and how consumers look at it.

use std::collections::VecDeque;

use towline_types::BodyLocation;

use super::block::{Block, Sheet};
use super::index::KeyIndex;
use super::{Entry, EntryBody, EntryState, Extra};
use crate::message::{Body, Message};
use crate::request::FilterKey;
use crate::{ConnectionId, ConsumerId};

/// Keys of a queue that is gone which are dropped at once: about as long as a block of messages.
const KEYS_AT_ONCE: usize = 256;

/// A message that was taken out of its queue.
#[derive(Debug)]
pub(crate) struct RemovedMessage {
    pub(crate) entry: Entry,
    pub(crate) extra: Extra,
}

impl RemovedMessage {
    pub(crate) fn bytes(&self) -> u64 {
        match (&self.extra.chunks, &self.entry.place) {
            (Some(chunks), _) => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
            (None, EntryBody::Memory(bytes)) => bytes.len() as u64,
            (None, EntryBody::Log { bytes, .. }) => u64::from(*bytes),
        }
    }

    pub(crate) fn body(self) -> Body {
        match (self.extra.chunks, self.entry.place) {
            (Some(chunks), _) => Body::Chunks(chunks),
            (None, EntryBody::Memory(bytes)) => Body::Memory(*bytes),
            (None, EntryBody::Log { bytes, lsn }) => Body::Log(BodyLocation { lsn, bytes }),
        }
    }

    /// The message, as one that stands in lane `order`.
    pub(crate) fn into_message(mut self, order: u8) -> Message {
        let header = self.entry.header(order, Some(&self.extra));
        let backout_count = self.entry.backout_count;
        let dead_letter = self.extra.dead_letter.take();
        Message { header, body: self.body(), backout_count, dead_letter }
    }
}

/// All messages that were in memory, taken out of their queue at once.
#[derive(Debug)]
pub(crate) struct RemovedQueue {
    pub(crate) blocks: VecDeque<RemovedBlock>,
    /// It may be large: it goes bit by bit, behind the last of them.
    pub(super) index: KeyIndex,
}

impl RemovedQueue {
    /// Drops some keys; yields how many. 0: there are none.
    pub(crate) fn give_up_keys(&mut self) -> usize {
        self.index.give_up(KEYS_AT_ONCE)
    }
}

/// Some hundred messages of them.
#[derive(Debug)]
pub(crate) struct RemovedBlock(pub(super) Block);

impl RemovedBlock {
    pub(crate) fn into_messages(self) -> impl Iterator<Item = RemovedMessage> {
        let Sheet { entries, mut extras } = self.0.into_sheet();
        let live = entries.into_iter().filter(|entry| entry.state != EntryState::Gone);
        live.map(move |entry| {
            let extra = extras.remove(entry.sequence).unwrap_or_default();
            RemovedMessage { entry, extra }
        })
    }
}

/// Length of a body.
pub(crate) fn body_bytes(body: &Body) -> u64 {
    match body {
        Body::Incoming(payload) => payload.len() as u64,
        Body::Memory(bytes) => bytes.len() as u64,
        Body::Log(location) => u64::from(location.bytes),
        Body::Chunks(chunks) => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
        Body::Announced { bytes, .. } => *bytes,
    }
}

/// The consumers that a queue knows, by how they look for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// Takes whatever is first.
    Plain,
    /// Looks at each message: a filter without a key, or a browser.
    Scanner,
    /// Looks for one key.
    Keyed(FilterKey),
}

impl Attention {
    /// How a consumer with this mode and filter looks for messages.
    pub(crate) fn of(browses: bool, filter: Option<&crate::request::Filter>) -> Attention {
        match filter {
            Some(crate::request::Filter { key: Some(key), .. }) => Attention::Keyed(*key),
            Some(_) => Attention::Scanner,
            None if browses => Attention::Scanner,
            None => Attention::Plain,
        }
    }
}

/// A consumer as `waiting` sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) connection: ConnectionId,
    pub(crate) consumer: ConsumerId,
    pub(crate) attention: Attention,
    pub(crate) browses: bool,
}
