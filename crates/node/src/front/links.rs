//! The links of one connection: what each is for, found by AMQP id, by token, by consumer and by
//! session.
//!
//! Not here: who has its turn (`link_schedule`).
//!
//! Invariant: `by_id` and `by_session` have the same links. A client may have 15,000 of them, and
//! end another session as often as it can send frames: that must not look at all of them.

use std::collections::BTreeSet;

use slab::Slab;
use towline_amqp::{LinkFlow, LinkId, PeerAttach, SessionId};
use towline_core::{ConsumerId, FastMap};
use towline_types::fitting;

use super::link_schedule::{Lines, Standing, TargetLine};
use super::outbound::{Settling, Supply};
use crate::request::{LinkToken, ProducerId};

/// What a link is for.
#[derive(Debug)]
pub(super) enum LinkUse {
    /// Asked for; the instance has not answered yet. Keeps what the answer needs.
    Opening(Box<Opening>),
    /// Asked for, and detached before the instance answered.
    Abandoned,
    /// Messages arrive for one queue.
    Producer {
        /// The instance's name for it.
        producer: ProducerId,
        /// Deliveries that the peer may still send.
        credit: u32,
        /// The peer understands that a message is rejected.
        rejects: bool,
        /// The queue that limits the length of messages; `None`: the queue manager does.
        limit_of: Option<Box<str>>,
    },
    /// Messages arrive that name their queue themselves.
    AnonymousProducer {
        /// Deliveries that the peer may still send.
        credit: u32,
        /// The peer understands that a message is rejected.
        rejects: bool,
    },
    /// Messages leave.
    Consumer {
        /// The instance's name for it.
        consumer: ConsumerId,
        /// How its deliveries end.
        settling: Settling,
        /// What the peer lets us send, and what waits for it.
        supply: Supply,
    },
    /// Units of work are declared and discharged.
    Coordinator {
        /// Deliveries that the peer may still send.
        credit: u32,
        /// The source of the link knows the outcome `rejected`.
        rejects: bool,
    },
    /// Administration requests arrive.
    AdminRequests {
        /// Deliveries that the peer may still send.
        credit: u32,
    },
    /// Their answers leave.
    AdminReplies {
        /// Deliveries that we may still send.
        credit: u32,
    },
}

impl LinkUse {
    /// Deliveries that the peer may still send.
    pub(super) fn credit(&self) -> u32 {
        match self {
            LinkUse::Producer { credit, .. }
            | LinkUse::AnonymousProducer { credit, .. }
            | LinkUse::Coordinator { credit, .. }
            | LinkUse::AdminRequests { credit } => *credit,
            LinkUse::Opening(_)
            | LinkUse::Abandoned
            | LinkUse::Consumer { .. }
            | LinkUse::AdminReplies { .. } => 0,
        }
    }
}

/// A link that the instance was asked about.
#[derive(Debug)]
pub(super) struct Opening {
    /// What the peer asked for.
    pub(super) attached: PeerAttach,
    /// Credit that the peer gave behind its attach, without waiting for our answer.
    pub(super) flow: Option<LinkFlow>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) used_for: LinkUse,
    /// The last message that arrived on it was persistent.
    pub(super) logs: bool,
    /// Memory that is counted for it.
    bytes: u64,
    token: LinkToken,
}

/// The link of a consumer, to look at.
pub(super) struct ConsumerLink<'a> {
    pub(super) id: LinkId,
    pub(super) settling: Settling,
    pub(super) supply: &'a Supply,
}

/// All links of a connection.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Slab<Link>,
    /// How many there were: a part of their tokens.
    opened: u32,
    by_id: FastMap<LinkId, LinkToken>,
    by_consumer: FastMap<ConsumerId, LinkToken>,
    /// By number of a session.
    by_session: Vec<BTreeSet<LinkId>>,
    /// By number of a session: frames of its window that are kept for what is leaving.
    reserved: Vec<u32>,
    /// Bytes of what is leaving, of all links together.
    leaving_bytes: usize,
    /// Responses that are held, of all links together.
    held: usize,
    /// Memory that is counted for all links.
    bytes: u64,
    /// The links that have something to send and are to be looked at.
    pub(super) lines: Lines,
}

impl Links {
    /// Adds a link for which so many bytes of memory are counted.
    pub(super) fn insert(&mut self, id: LinkId, used_for: LinkUse, bytes: u64) -> LinkToken {
        let vacant = self.links.vacant_entry();
        self.opened = self.opened.wrapping_add(1);
        let token = token_of(vacant.key(), self.opened);
        vacant.insert(Link { id, used_for, logs: false, bytes, token });
        self.bytes += bytes;
        self.by_id.insert(id, token);
        let session = usize::from(id.session());
        if self.by_session.len() <= session {
            self.by_session.resize_with(session + 1, BTreeSet::new);
        }
        if let Some(links) = self.by_session.get_mut(session) {
            links.insert(id);
        }
        token
    }

    /// The id means no link any more.
    fn forget_id(&mut self, id: LinkId) -> Option<LinkToken> {
        let token = self.by_id.remove(&id)?;
        let links = self.by_session.get_mut(usize::from(id.session()));
        let was_there = links.is_some_and(|links| links.remove(&id));
        assert!(was_there, "a link that its session does not know would stay for ever");
        Some(token)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(slot_of(*self.by_id.get(&id)?))
    }

    /// The link that the instance was asked about with `token`, as long as it is there.
    pub(super) fn by_token(&mut self, token: LinkToken) -> Option<&mut Link> {
        self.links.get_mut(slot_of(token)).filter(|link| link.token == token)
    }

    /// A consumer's link, to look at.
    pub(super) fn consumer(&self, token: LinkToken) -> Option<ConsumerLink<'_>> {
        match self.links.get(slot_of(token)).filter(|link| link.token == token)? {
            Link { id, used_for: LinkUse::Consumer { settling, supply, .. }, .. } => {
                Some(ConsumerLink { id: *id, settling: *settling, supply })
            }
            _ => None,
        }
    }

    /// Its supply.
    pub(super) fn supply(&self, token: LinkToken) -> Option<(LinkId, &Supply)> {
        self.consumer(token).map(|link| (link.id, link.supply))
    }

    /// The supply of a consumer's link, to change.
    pub(super) fn supply_mut(&mut self, token: LinkToken) -> Option<&mut Supply> {
        match &mut self.by_token(token)?.used_for {
            LinkUse::Consumer { supply, .. } => Some(supply),
            _ => None,
        }
    }

    pub(super) fn token(&self, id: LinkId) -> Option<LinkToken> {
        self.by_id.get(&id).copied()
    }

    /// The link of a consumer, as long as it is attached. Its token stays valid as long.
    pub(super) fn of_consumer(&self, consumer: ConsumerId) -> Option<LinkToken> {
        self.by_consumer.get(&consumer).copied()
    }

    /// How many consumers there are.
    pub(super) fn consumers(&self) -> usize {
        self.by_consumer.len()
    }

    /// How many links are no consumer's: messages arrive on nearly all of them.
    pub(super) fn producers(&self) -> usize {
        self.links.len() - self.by_consumer.len()
    }

    /// The last message that arrived on this link was persistent, or was not.
    pub(super) fn logs(&mut self, id: LinkId, persistent: bool) {
        if let Some(link) = self.get_mut(id) {
            link.logs = persistent;
        }
    }

    /// Frames of the window of this link's session that are kept for deliveries of its links.
    pub(super) fn reserved(&self, id: LinkId) -> u32 {
        self.reserved.get(usize::from(id.session())).copied().unwrap_or(0)
    }

    /// Keeps `frames` for the deliveries of this link from now on.
    pub(super) fn keep(&mut self, token: LinkToken, frames: u32) {
        let Some(supply) = self.supply_mut(token) else { return };
        let before = std::mem::replace(&mut supply.leaving.kept, frames);
        let Some((id, _)) = self.supply(token) else { return };
        self.move_reserved(id, before, frames);
    }

    fn move_reserved(&mut self, id: LinkId, before: u32, after: u32) {
        let session = usize::from(id.session());
        if self.reserved.len() <= session {
            self.reserved.resize(session + 1, 0);
        }
        if let Some(reserved) = self.reserved.get_mut(session) {
            // The other links of the session would wait for frames that no link has.
            assert!(*reserved >= before, "frames are given back that were not kept");
            *reserved = (*reserved - before).saturating_add(after);
        }
        if after < before {
            self.lines.window_moved(id.session());
        }
    }

    /// Bytes of what is leaving, of all links together.
    pub(super) fn leaving_bytes(&self) -> usize {
        self.leaving_bytes
    }

    /// Responses that are held, of all links together.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// So many more are held.
    pub(super) fn now_held(&mut self, count: usize) {
        self.held += count;
    }

    /// So many are not held any more.
    pub(super) fn held_no_more(&mut self, count: usize) {
        // The bound on what the connection holds counts on it.
        assert!(self.held >= count, "a response was held that was not counted");
        self.held -= count;
    }

    /// Memory that is counted for all links.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of them, to change.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut().map(|(_, link)| link)
    }

    fn take(&mut self, token: LinkToken) -> Option<Link> {
        self.by_token(token)?;
        let link = self.links.try_remove(slot_of(token))?;
        assert!(self.bytes >= link.bytes, "a link that was not counted");
        self.bytes -= link.bytes;
        Some(link)
    }

    /// A body begins to leave.
    pub(super) fn leaves(&mut self, bytes: usize) {
        self.leaving_bytes += bytes;
    }

    /// It has left.
    pub(super) fn left(&mut self, bytes: usize) {
        // The bound on bodies in memory counts on it.
        assert!(self.leaving_bytes >= bytes, "a body left that was not counted");
        self.leaving_bytes -= bytes;
    }

    /// Moves a consumer's link to this line.
    pub(super) fn stand(&mut self, token: LinkToken, place: TargetLine) {
        let link = self.links.get_mut(slot_of(token)).filter(|link| link.token == token);
        let Some(Link { id, used_for: LinkUse::Consumer { supply, .. }, .. }) = link else {
            return;
        };
        self.lines.leave(id.session(), supply.standing);
        supply.standing = self.lines.enter(id.session(), token, place);
    }

    /// Something happened that this link may wait for: it is to be looked at.
    pub(super) fn wake(&mut self, token: LinkToken) {
        let Some((id, supply)) = self.supply(token) else { return };
        match supply.standing {
            Standing::Nowhere | Standing::Large(_) => self.stand(token, TargetLine::Ready),
            Standing::Window(_) => self.lines.window_moved(id.session()),
            Standing::Ready(_) => {}
        }
    }

    /// The instance answered: the link is a consumer's from now on.
    pub(super) fn set_consumer(
        &mut self,
        token: LinkToken,
        consumer: ConsumerId,
        settling: Settling,
    ) {
        if let Some(link) = self.by_token(token) {
            let supply = Supply::default();
            link.used_for = LinkUse::Consumer { consumer, settling, supply };
            let before = self.by_consumer.insert(consumer, token);
            assert!(before.is_none(), "a consumer has one link");
        }
    }

    /// Forgets a link. One that still waits for its answer stays, as abandoned.
    pub(super) fn remove(&mut self, id: LinkId) -> Option<LinkUse> {
        let token = self.forget_id(id)?;
        let link = self.by_token(token)?;
        if matches!(link.used_for, LinkUse::Opening(_)) {
            return Some(std::mem::replace(&mut link.used_for, LinkUse::Abandoned));
        }
        let link = self.take(token)?;
        if let LinkUse::Consumer { consumer, supply, .. } = &link.used_for {
            self.by_consumer.remove(consumer);
            self.held_no_more(supply.held.len());
            self.lines.leave(id.session(), supply.standing);
            self.left(supply.leaving.bytes());
            self.move_reserved(id, supply.leaving.kept, 0);
            // What of it waited inside is gone as well.
            self.lines.window_moved(id.session());
        }
        Some(link.used_for)
    }

    /// Forgets an abandoned link for good.
    pub(super) fn forget(&mut self, token: LinkToken) {
        if let Some(link) = self.take(token) {
            self.forget_id(link.id);
        }
    }

    /// Whether messages arrive on the link.
    pub(super) fn is_producer(&self, id: LinkId) -> bool {
        let link = self.by_id.get(&id).and_then(|token| self.links.get(slot_of(*token)));
        link.is_some_and(|link| {
            matches!(link.used_for, LinkUse::Producer { .. } | LinkUse::AnonymousProducer { .. })
        })
    }

    /// The links of a session. What others have costs nothing.
    pub(super) fn of_session(&self, session: SessionId) -> impl Iterator<Item = LinkId> {
        let links = self.by_session.get(usize::from(session.number()));
        links.into_iter().flatten().copied()
    }

    /// The links on which administration requests arrive.
    pub(super) fn admin_requests(&self) -> Vec<LinkId> {
        let links = self.links.iter().map(|(_, link)| link);
        let found = links.filter(|link| matches!(link.used_for, LinkUse::AdminRequests { .. }));
        found.map(|link| link.id).collect()
    }

    /// The link on which answers to administration requests leave.
    pub(super) fn admin_replies(&mut self) -> Option<&mut Link> {
        let mut links = self.links.iter_mut().map(|(_, link)| link);
        links.find(|link| matches!(link.used_for, LinkUse::AdminReplies { .. }))
    }
}

/// The slot of a link in the low half, and the number of the link in the high one: a slot is used
/// again, and the answer to what a link asked for may come when it is gone.
fn token_of(slot: usize, number: u32) -> LinkToken {
    let slot: u32 = fitting(slot as u64);
    LinkToken(u64::from(number) << u32::BITS | u64::from(slot))
}

/// The slot of a token, which is one of [`Links::insert`].
fn slot_of(token: LinkToken) -> usize {
    fitting(token.0 & u64::from(u32::MAX))
}
