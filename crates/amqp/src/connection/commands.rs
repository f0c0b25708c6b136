//! The commands of a driver. Each does nothing when its object is gone.

use crate::codec::Value;
use crate::connection::{Connection, LINKS_MAX, name_key};
use crate::event::{
    Allowance, AttachReply, AttachRequest, IncomingId, LinkId, Outgoing, SessionId,
};
use crate::link::{Direction, Link};
use crate::sasl::ScramCredentials;
use crate::session::{Session, UnsettledCount};
use crate::types::{DeliveryState, Error, Role, SaslCode};

impl Connection {
    /// Server: answers a login with `Claim::ScramUser` by the user's stored credentials; none for
    /// an unknown user, which then fails like a wrong password.
    pub fn sasl_credentials(&mut self, credentials: Option<ScramCredentials>) {
        self.login_credentials(credentials);
    }

    /// Server: answers the other claims: `SaslCode::Ok`, `SaslCode::Auth` for a wrong user or
    /// password, `SaslCode::SysTemp` when that could not be found out.
    pub fn sasl_outcome(&mut self, code: SaslCode) {
        self.login_answer(code);
    }

    /// Server: answers `Opened` with our own open frame.
    pub fn accept_open(&mut self) {
        self.write_open();
    }

    /// Server: adds a property to the open frame that answers `Opened`, if the peer takes a frame
    /// as long as that is then. Whether it did; after the answer it has no effect.
    ///
    /// # Panics
    /// When the key is not ASCII.
    pub fn offer_property(&mut self, key: &str, value: Value<'_>) -> bool {
        self.add_to_open(key, value)
    }

    /// Closes the connection. Events that wait are dropped (nothing behind a refused open is seen);
    /// `Closed` follows when the peer has closed too, or after a time-out.
    pub fn close(&mut self, error: Option<Error>) {
        self.begin_close(error);
    }

    /// Server: answers `Attached` with our half of the link. Where the peer is the receiver,
    /// `source` must be there, and `target` where it is the sender.
    pub fn accept_attach(&mut self, link: LinkId, reply: AttachReply) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.accept_attach(link, reply, &mut self.output);
            self.touch(link.session);
        }
    }

    /// Server: answers `Attached` with a refusal: an attach without terminus, then a detach with
    /// the reason (AMQP 2.6.3).
    pub fn refuse_attach(&mut self, link: LinkId, error: Error) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.refuse_attach(link, error, &mut self.output, &mut self.unfinished);
            self.forget_name(link);
        }
    }

    /// Our receiving link: the peer may send `credit` more deliveries from here on. Ends a drain.
    /// May be called before the attach is through.
    pub fn set_credit(&mut self, link: LinkId, credit: u32) {
        self.grant(link, credit, false);
    }

    /// Our receiving link: the peer shall use up `credit` at once or give it back; a `Flow` event
    /// with `drain` reports that it did.
    pub fn drain(&mut self, link: LinkId, credit: u32) {
        self.grant(link, credit, true);
    }

    /// Our receiving link: what the peer may still send of the credit given last; a delivery uses
    /// credit up with its first frame, also one that is aborted later. A driver that keeps account
    /// of its own looks here at each `Flow` event of the link. None when the link is gone or is
    /// not one on which we receive.
    #[must_use]
    pub fn link_credit(&self, link: LinkId) -> Option<u32> {
        let session = self.sessions.get(usize::from(link.session))?;
        match &session.link(link)?.direction {
            Direction::Receiving(receiving) => Some(receiving.credit),
            Direction::Sending(_) => None,
        }
    }

    fn grant(&mut self, link: LinkId, credit: u32, drain: bool) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.grant(link, credit, drain);
            self.touch(link.session);
        }
    }

    /// Our sending link: sends one delivery, split over frames that the peer takes. It waits inside
    /// for the session window, not for link credit: sending more than a `Flow` allowed is up to the
    /// driver. `key` comes back with the `Outcome` and must be unique among the unsettled
    /// deliveries of the link.
    pub fn send(&mut self, link: LinkId, key: u64, outgoing: Outgoing) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.send(link, key, outgoing, &mut self.output);
            self.touch(link.session);
        }
    }

    /// Our sending link: what would be on its way at once if it were given to
    /// [`Connection::send`] now. What is not given yet can still be taken back.
    #[must_use]
    pub fn allowance(&self, link: LinkId) -> Allowance {
        let session = self.sessions.get(usize::from(link.session));
        session.map_or_else(Allowance::default, |session| session.allowance(link))
    }

    /// Bytes of deliveries that were begun and wait for the windows of their sessions, of all
    /// sessions together: each of them is in memory as a whole.
    #[must_use]
    pub fn begun_bytes(&self) -> usize {
        self.sessions.iter().map(|(_, session)| session.waiting_bytes()).sum()
    }

    /// Deliveries that were sent and are not settled, of all sessions together.
    #[must_use]
    pub fn unsettled(&self) -> UnsettledCount {
        self.sessions.iter().fold(UnsettledCount::default(), |all, (_, session)| {
            let UnsettledCount { open, holes } = session.unsettled();
            UnsettledCount { open: all.open + open, holes: all.holes + holes }
        })
    }

    /// Transfer frames that a delivery of so many bytes takes, at most.
    #[must_use]
    pub fn frames_max(&self, bytes: usize) -> u32 {
        self.output.frames_max(bytes)
    }

    /// Our sending link: uses up the remaining credit without deliveries, and notifies the peer.
    pub fn drained(&mut self, link: LinkId) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.drained(link);
            self.touch(link.session);
        }
    }

    /// Gives our outcome of a delivery and settles it (with receiver-settle-mode second: the sender
    /// settles it next).
    pub fn settle_incoming(&mut self, delivery: IncomingId, state: DeliveryState) {
        let settled = !self.settles_second(delivery.link);
        self.update_incoming(delivery, Some(state), settled);
    }

    /// Client: sends the state of a delivery, such as a transactional one, settled or not.
    pub fn update_incoming(
        &mut self,
        delivery: IncomingId,
        state: Option<DeliveryState>,
        settled: bool,
    ) {
        if delivery.is_settled() {
            return;
        }
        if let Some(session) = session_of(&mut self.sessions, delivery.link) {
            session.update_incoming(delivery.delivery, state, settled);
            self.touch(delivery.link.session);
        }
    }

    /// Settles a delivery of ours after an unsettled `Outcome`, or one that we give up.
    pub fn settle_outgoing(&mut self, link: LinkId, key: u64, state: Option<DeliveryState>) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.settle_outgoing(link, key, state);
            self.touch(link.session);
        }
    }

    /// The outcome of a delivery of ours that came unsettled came to nothing (its transaction was
    /// rolled back, 4.4.2): the delivery stays open, and its next outcome is reported.
    pub fn reopen_outgoing(&mut self, link: LinkId, key: u64) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            session.reopen_outgoing(link, key);
        }
    }

    /// Detaches a link; `closed` destroys its terminus. `Detached` follows when the peer answers.
    pub fn detach(&mut self, link: LinkId, closed: bool, error: Option<Error>) {
        if let Some(session) = session_of(&mut self.sessions, link) {
            self.events.extend(session.begun_in_unit(link));
            session.detach(link, closed, error, &mut self.output, &mut self.unfinished);
            self.forget_name(link);
        }
    }

    /// Ends a session with all its links. `SessionEnded` follows when the peer answers.
    pub fn end(&mut self, session: SessionId, error: Option<Error>) {
        if let Some(found) = live_session(&mut self.sessions, session) {
            found.end(error, true, &mut self.output);
            self.forget_links(session.index);
        }
    }

    /// Client: begins a session, at once usable for `attach`. None when the peer takes no more.
    pub fn begin(&mut self) -> Option<SessionId> {
        let channel_max = self.local.channel_max.min(self.peer.channel_max);
        let generation = self.next_generation();
        if self.is_closing() {
            return None;
        }
        let entry = self.sessions.vacant_entry();
        let index = u16::try_from(entry.key()).ok().filter(|index| *index <= channel_max)?;
        let session = Session::begin(index, generation, self.local.handle_max, &mut self.output);
        entry.insert(session);
        Some(SessionId { index, generation })
    }

    /// Client: attaches a link, at once usable for `set_credit` and `send`. None when the session
    /// is gone or takes no more links, or when the name is in use in that direction.
    pub fn attach(&mut self, session: SessionId, request: AttachRequest) -> Option<LinkId> {
        let key = name_key(opposite(request.role), &request.name);
        if self.links >= LINKS_MAX || self.names.contains_key(&key) {
            return None;
        }
        let generation = self.next_generation();
        let found = live_session(&mut self.sessions, session)?;
        let link = found.attach(session, generation, request, &mut self.output)?;
        self.names.insert(key, link);
        self.links += 1;
        Some(link)
    }

    fn settles_second(&mut self, link: LinkId) -> bool {
        let session = session_of(&mut self.sessions, link);
        session.and_then(|session| session.link(link)).is_some_and(Link::settles_second)
    }
}

/// The session of a link, when both are up and not on their way out.
fn session_of(sessions: &mut slab::Slab<Session>, link: LinkId) -> Option<&mut Session> {
    let session = sessions.get_mut(usize::from(link.session))?;
    session.link(link).is_some().then_some(session)
}

const fn opposite(role: Role) -> Role {
    match role {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    }
}

fn live_session(sessions: &mut slab::Slab<Session>, id: SessionId) -> Option<&mut Session> {
    let session = sessions.get_mut(usize::from(id.index))?;
    (session.generation == id.generation && session.is_live()).then_some(session)
}
