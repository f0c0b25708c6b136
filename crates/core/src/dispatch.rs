//! Gives available messages to consumers that have credit.
//!
//! Plain consumers stand in a ring and take what is first, in turn. A consumer with a filter looks
//! from its own cursor on, a consumer with a key asks the index; both look only when something may
//! have changed for them. Every other client waits for a call, so one call spends a small budget.
//! What is left of a queue is work ([`work`](crate::work)). Nothing here is logged: a message for a
//! consumer that settles in advance is held like any other, until its connection settles it.

use towline_types::{Time, limits};

use crate::effect::{Delivery, Effect, Outputs};
use crate::hash::FastMap;
use crate::log_wait::LogWait;
use crate::queue::{
    Attention, BLOCKS_AHEAD, EntryState, KeySearch, PagedBlock, Queue, Search, Spot, StoredMessage,
    WokenConsumer,
};
use crate::request::{Candidate, Filter, Match, Selection};
use crate::sessions::{Consumer, Cursor, HeldMessage};
use crate::{ConsumerId, MessageSequence, QueueId, QueueManager};

/// How many messages to read ahead of a scan that waits for content.
const FETCH_AHEAD: usize = 32;
/// Places of messages that came back which a scanner notes in the time of one look.
const NOTES_PER_LOOK: usize = 16;

/// What may still be spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Plain consumers asked.
    pub(crate) deliveries: i64,
    /// Messages examined. One with long properties counts as many, so the last one may overdraw it.
    pub(crate) looks: i64,
}

impl Budget {
    pub(crate) fn new(deliveries: u32, looks: u32) -> Budget {
        Budget { deliveries: i64::from(deliveries), looks: i64::from(looks) }
    }

    /// False: it is spent.
    pub(crate) fn spend_look(&mut self) -> bool {
        let some = self.looks > 0;
        self.looks -= i64::from(some);
        some
    }

    fn spend_delivery(&mut self) -> bool {
        let some = self.deliveries > 0;
        self.deliveries -= i64::from(some);
        some
    }
}

impl QueueManager {
    /// Serves the queues that changed, as far as one step may. True: the rest is for
    /// [`QueueManager::work`].
    pub fn dispatch(
        &mut self,
        now: Time,
        selection: &mut dyn Selection,
        outputs: &mut Outputs,
    ) -> bool {
        self.flush_effects(outputs);
        if !self.serves() {
            // No outcome of what is delivered now could be kept.
            return self.has_work();
        }
        let mut budget = Budget::new(limits::DELIVERIES_PER_STEP, limits::LOOKS_PER_STEP);
        while budget.deliveries > 0 {
            let Some(id) = self.changed.pop_front() else { break };
            budget.deliveries -= 1;
            self.serve(now, id, &mut budget, selection, outputs);
        }
        self.has_work()
    }

    pub(crate) fn serve(
        &mut self,
        now: Time,
        id: QueueId,
        budget: &mut Budget,
        selection: &mut dyn Selection,
        outputs: &mut Outputs,
    ) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.changed = false;
        if queue.clearing > 0 || queue.returning > 0 || queue.arriving > 0 {
            return; // It is looked at again when it is cleared, or when all is there.
        }
        let mut service = Service {
            now,
            id,
            queue,
            consumers: &mut self.consumers,
            known_from: self.known_from,
            log_wait: &mut self.log_wait,
            selection,
            outputs,
            budget,
            expired: Vec::new(),
        };
        service.wake();
        let is_finished = service.run();
        service.drain();
        for spot in service.expired {
            self.expire(now, id, spot, outputs);
        }
        if !is_finished {
            self.mark_unserved(id);
        }
    }
}

/// One queue being served.
struct Service<'a> {
    now: Time,
    id: QueueId,
    queue: &'a mut Queue,
    consumers: &'a mut FastMap<ConsumerId, Consumer>,
    known_from: u64,
    log_wait: &'a mut LogWait,
    selection: &'a mut dyn Selection,
    outputs: &'a mut Outputs,
    budget: &'a mut Budget,
    /// Found expired; hidden already.
    expired: Vec<Spot>,
}

/// How one turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Served,
    Nothing,
    OutOfBudget,
}

/// What a consumer with a cursor found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Found(Spot),
    Nothing,
    /// The content of this message must be fetched first.
    Fetch(Spot),
    /// The end of this message must be logged first.
    Ends(Spot),
    /// The page of this block must be read first.
    Page(PagedBlock),
    OutOfLooks,
}

impl Service<'_> {
    /// Puts woken consumers into the ring, and the cursors of keyed ones back to what came before
    /// them.
    fn wake(&mut self) {
        let mut before_others = Vec::new();
        for WokenConsumer { consumer: id, rank, first } in self.queue.waiting.take_woken() {
            let Some(consumer) = self.consumers.get_mut(&id) else { continue };
            let browses = consumer.browses();
            match (&mut consumer.cursor, rank) {
                (Cursor::Key(cursor), Some(rank)) => cursor.available(rank, browses),
                (Cursor::None | Cursor::Key(_) | Cursor::Lanes(_), _) => {}
            }
            if consumer.wants() && !consumer.waiting {
                consumer.waiting = true;
                if first {
                    before_others.push(id);
                } else {
                    self.queue.waiting.ring.push_back(consumer.connection, id);
                }
            }
        }
        for id in before_others.into_iter().rev() {
            self.queue.waiting.ring.push_front(id);
        }
    }

    /// Serves both rings in turn until neither gets anything. False: one of them would, had the
    /// budget more in it. Neither waits for the other: a long search delays no plain consumer.
    fn run(&mut self) -> bool {
        let mut looking = Turn::Served;
        loop {
            if looking != Turn::OutOfBudget {
                looking = self.serve_one_that_looks();
            }
            let plain = self.serve_one_plain();
            match (looking, plain) {
                (Turn::Served, _) | (_, Turn::Served) => {}
                (Turn::Nothing, Turn::Nothing) => return true,
                (Turn::OutOfBudget, _) | (_, Turn::OutOfBudget) => return false,
            }
        }
    }

    fn serve_one_plain(&mut self) -> Turn {
        while self.queue.available > 0 {
            let Some(id) = self.queue.waiting.plain.front() else { return Turn::Nothing };
            if !self.budget.spend_delivery() {
                return Turn::OutOfBudget;
            }
            let Some(consumer) = self.consumers.get_mut(&id).filter(|found| found.wants()) else {
                self.queue.waiting.plain.skip_front();
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    consumer.waiting = false;
                }
                continue;
            };
            assert_eq!(consumer.attention, Attention::Plain, "one that looks is in the other ring");
            let spot = match self.queue.first_available() {
                Search::Found(spot) => spot,
                Search::OnPage(away) => {
                    // It stays first in its ring, and is served when the page is there.
                    self.ask_from(Attention::Plain, away);
                    return Turn::Nothing;
                }
                Search::Nothing => return Turn::Nothing,
            };
            if self.queue.is_expired(spot, self.now) {
                if self.end_waits(spot) {
                    return Turn::Nothing;
                }
                self.queue.set_state(spot, EntryState::Leaving);
                self.expired.push(spot);
                self.budget.deliveries -= i64::from(limits::LOOKS_PER_EXPIRED - 1);
                continue;
            }
            consumer.waiting = consumer.credit > 1;
            if consumer.waiting {
                self.queue.waiting.plain.pass_front();
            } else {
                self.queue.waiting.plain.take_front();
            }
            self.ask_ahead(spot);
            self.deliver(id, spot);
            return Turn::Served;
        }
        Turn::Nothing
    }

    /// Whether the end of this message is to be logged, and that waits.
    fn end_waits(&mut self, spot: Spot) -> bool {
        let entry = self.queue.entry(spot);
        entry.is_some_and(|entry| self.log_wait.holds_up(self.id, spot.sequence, entry))
    }

    /// Asks for the page of a block that is away.
    fn ask(&mut self, away: PagedBlock) {
        let asked = self.queue.ask(away);
        self.outputs.effects.extend(asked.map(|request| Effect::LoadPage { request }));
    }

    /// Asks for the page of a block that is away, and for those behind it that will be wanted next.
    fn ask_from(&mut self, attention: Attention, away: PagedBlock) {
        match attention {
            Attention::Keyed(key) => {
                let mut asked = Vec::new();
                self.queue.ask_for_key(away, key, &mut asked);
                let requests = asked.into_iter().map(|request| Effect::LoadPage { request });
                self.outputs.effects.extend(requests);
            }
            Attention::Plain | Attention::Scanner => {
                for block in away.block..=away.block + BLOCKS_AHEAD {
                    self.ask(PagedBlock { block, ..away });
                }
            }
        }
    }

    /// Asks for the pages behind this message: they will be wanted soon.
    fn ask_ahead(&mut self, spot: Spot) {
        let mut asked = Vec::new();
        self.queue.ask_ahead(spot, &mut asked);
        let requests = asked.into_iter().map(|request| Effect::LoadPage { request });
        self.outputs.effects.extend(requests);
    }

    fn serve_one_that_looks(&mut self) -> Turn {
        while !self.queue.waiting.ring.is_empty() {
            if self.budget.looks <= 0 {
                return Turn::OutOfBudget;
            }
            let Some(id) = self.queue.waiting.ring.front() else { break };
            let Some(consumer) = self.consumers.get_mut(&id).filter(|found| found.wants()) else {
                self.queue.waiting.ring.skip_front();
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    consumer.waiting = false;
                }
                continue;
            };
            consumer.waiting = false;
            self.queue.waiting.ring.take_front();
            // Taken out while it looks, so that the queue and the other consumers stay reachable.
            let mut cursor = std::mem::replace(&mut consumer.cursor, Cursor::None);
            let look = self.look(id, &mut cursor);
            if let Cursor::Lanes(cursor) = &cursor {
                self.queue.waiting.returned.passed(id, cursor);
            }
            let Some(consumer) = self.consumers.get_mut(&id) else { continue };
            consumer.cursor = cursor;
            match look {
                Look::Nothing => {
                    // Ten thousand may have been woken by one message.
                    self.budget.looks -= 1;
                    let visitor = consumer.visitor();
                    self.queue.waiting.rest(visitor);
                }
                Look::Fetch(spot) | Look::Ends(spot) => {
                    consumer.fetching = Some(spot.sequence);
                    self.queue.waiting.fetch(spot.sequence, Some(id));
                }
                Look::Page(away) => {
                    consumer.fetching = Some(0);
                    let attention = consumer.attention;
                    if let (Cursor::Key(cursor), Some(rank)) =
                        (&mut consumer.cursor, self.queue.rank_of(away))
                    {
                        // What is before this page was searched. Pages that were read for it may be
                        // gone again when this one comes: they are not asked for twice.
                        cursor.search_on(rank);
                    }
                    self.queue.wait_for_page(away, id);
                    self.ask_from(attention, away);
                }
                Look::OutOfLooks => {
                    // Behind the others: they need not wait until it has looked at everything.
                    consumer.waiting = true;
                    self.queue.waiting.ring.push_back(consumer.connection, id);
                    return Turn::OutOfBudget;
                }
                Look::Found(spot) => {
                    consumer.waiting = consumer.credit > 1;
                    if consumer.waiting {
                        self.queue.waiting.ring.push_back(consumer.connection, id);
                    }
                    self.deliver(id, spot);
                    return Turn::Served;
                }
            }
        }
        Turn::Nothing
    }

    /// The next message for a consumer with a cursor, which moves past all that was examined.
    fn look(&mut self, id: ConsumerId, cursor: &mut Cursor) -> Look {
        let Some(consumer) = self.consumers.get(&id) else { return Look::Nothing };
        let attention = consumer.attention;
        let filter = consumer.filter.clone();
        let refuses_some = !consumer.refused.is_empty();
        if !self.take_note(id, cursor) {
            return Look::OutOfLooks;
        }
        loop {
            // A search may use up all looks to index a block. What it found there is looked at all
            // the same: the block may have left when this consumer has its next turn.
            let may_search = self.budget.looks > 0;
            let Some(search) = self.search(attention, cursor) else { return Look::OutOfLooks };
            let spot = match search {
                Search::Found(spot) => spot,
                Search::OnPage(away) => return Look::Page(away),
                Search::Nothing => return Look::Nothing,
            };
            if !self.budget.spend_look() && !may_search {
                return Look::OutOfLooks;
            }
            if self.queue.is_expired(spot, self.now) {
                if self.end_waits(spot) {
                    return Look::Ends(spot);
                }
                self.queue.set_state(spot, EntryState::Leaving);
                self.expired.push(spot);
                self.budget.looks -= i64::from(limits::LOOKS_PER_EXPIRED - 1);
                continue;
            }
            if refuses_some && self.is_refused(id, spot) {
                pass(cursor, spot);
                continue;
            }
            let answer = filter.as_ref().map_or(Match::Yes, |filter| self.matches(filter, spot));
            match (answer, &filter) {
                (Match::Yes, _) => {
                    pass(cursor, spot);
                    if attention == Attention::Scanner {
                        self.ask_ahead(spot);
                    }
                    return Look::Found(spot);
                }
                (Match::NeedContent, Some(filter)) => {
                    self.fetch(spot);
                    self.fetch_ahead(attention, cursor, spot, filter);
                    return Look::Fetch(spot);
                }
                (Match::No | Match::NeedContent, _) => pass(cursor, spot),
            }
        }
    }

    /// A scanner notes what came back behind it. False: out of looks.
    fn take_note(&mut self, id: ConsumerId, cursor: &mut Cursor) -> bool {
        let Cursor::Lanes(cursor) = cursor else { return true };
        while !self.queue.waiting.returned.take_note(id, cursor, NOTES_PER_LOOK) {
            if !self.budget.spend_look() {
                return false;
            }
        }
        true
    }

    /// Whether this consumer does not get this message again.
    fn is_refused(&self, id: ConsumerId, spot: Spot) -> bool {
        self.consumers.get(&id).is_some_and(|found| found.refused.contains(&spot.sequence))
    }

    /// The next available message at the cursor. `None`: out of looks.
    fn search(&mut self, attention: Attention, cursor: &mut Cursor) -> Option<Search> {
        let (Cursor::Key(cursor), Attention::Keyed(key)) = (&mut *cursor, attention) else {
            return Some(self.peek(attention, cursor));
        };
        loop {
            match self.queue.next_of_key(key, cursor.searched()) {
                KeySearch::Found(spot) => return Some(Search::Found(spot)),
                KeySearch::OnPage(away) => return Some(Search::OnPage(away)),
                KeySearch::Nothing => return Some(Search::Nothing),
                KeySearch::Further(_) | KeySearch::ToIndex(_) if self.budget.looks <= 0 => {
                    return None;
                }
                KeySearch::Further(rank) => {
                    cursor.search_on(rank);
                    self.budget.looks -= 1;
                }
                KeySearch::ToIndex(block) => {
                    let begins = self.queue.rank_of(block);
                    begins.into_iter().for_each(|rank| cursor.search_on(rank));
                    self.budget.looks -= self.queue.index_block(block);
                }
            }
        }
    }

    /// The same as far as it is at hand.
    fn peek(&self, attention: Attention, cursor: &mut Cursor) -> Search {
        match (cursor, attention) {
            (Cursor::Lanes(cursor), _) => self.queue.next_for(cursor),
            (Cursor::Key(cursor), Attention::Keyed(key)) => {
                match self.queue.next_of_key(key, cursor.searched()) {
                    KeySearch::Found(spot) => Search::Found(spot),
                    KeySearch::OnPage(away) => Search::OnPage(away),
                    KeySearch::ToIndex(_) | KeySearch::Further(_) | KeySearch::Nothing => {
                        Search::Nothing
                    }
                }
            }
            (Cursor::Key(_) | Cursor::None, _) => Search::Nothing,
        }
    }

    fn matches(&mut self, filter: &Filter, spot: Spot) -> Match {
        let Some(message) = self.queue.stored(spot) else { return Match::No };
        let StoredMessage { entry, extra } = message;
        let body = message.body();
        let candidate = Candidate {
            queue: self.id,
            sequence: MessageSequence(spot.sequence),
            header: entry.header(spot.lane, extra),
            body: &body,
            backout_count: entry.backout_count,
            dead_letter: extra.and_then(|extra| extra.dead_letter.as_deref()),
        };
        let answer = self.selection.matches(filter, &candidate);
        self.budget.looks -= i64::from(self.selection.further_looks());
        answer
    }

    /// Asks for the content of a message, once.
    fn fetch(&mut self, spot: Spot) {
        let Some(body) = self.queue.body(spot) else { return };
        if self.queue.waiting.fetch(spot.sequence, None) {
            let sequence = MessageSequence(spot.sequence);
            self.outputs.effects.push(Effect::Fetch { queue: self.id, sequence, body });
        }
    }

    /// A scan that waits for one message will soon wait for the next ones: ask for them together.
    fn fetch_ahead(
        &mut self,
        attention: Attention,
        cursor: &Cursor,
        mut spot: Spot,
        filter: &Filter,
    ) {
        let mut ahead = match cursor {
            Cursor::None => return,
            Cursor::Lanes(cursor) => Cursor::Lanes(Box::new(cursor.ahead(FETCH_AHEAD + 1))),
            Cursor::Key(cursor) => Cursor::Key(*cursor),
        };
        for _ in 0..FETCH_AHEAD {
            pass(&mut ahead, spot);
            spot = match self.peek(attention, &mut ahead) {
                Search::Found(next) if self.budget.spend_look() => next,
                Search::Found(_) | Search::Nothing => return,
                Search::OnPage(away) => {
                    match attention {
                        Attention::Keyed(_) => self.ask_from(attention, away),
                        Attention::Plain | Attention::Scanner => self.ask(away),
                    }
                    return;
                }
            };
            match self.matches(filter, spot) {
                Match::Yes => return,
                Match::No => {}
                Match::NeedContent => self.fetch(spot),
            }
        }
    }

    /// Sends a message to a consumer, which has credit for it.
    fn deliver(&mut self, id: ConsumerId, spot: Spot) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let Some(message) = self.queue.stored(spot) else { return };
        let StoredMessage { entry, extra } = message;
        assert!(consumer.credit > 0, "a delivery needs credit");
        assert_eq!(entry.state, EntryState::Available, "a delivery needs an available message");
        consumer.credit -= 1;
        let sequence = MessageSequence(spot.sequence);
        let delivery = Delivery {
            connection: consumer.connection,
            consumer: id,
            queue: self.id,
            sequence,
            body: message.body(),
            persistent: entry.persistent,
            priority: entry.priority,
            expires_at: entry.expires().then_some(entry.expires_at),
            backout_count: entry.backout_count,
            first_acquirer: spot.sequence >= self.known_from && !entry.marks.was_acquired(),
            annotations: None,
            dead_letter: extra.and_then(|extra| extra.dead_letter.clone()),
        };
        if !consumer.browses() {
            self.queue.set_state(spot, EntryState::Held);
            let holding = HeldMessage { lane: spot.lane, failed: false };
            consumer.held.insert(spot.sequence, holding);
        }
        self.outputs.effects.push(Effect::Deliver(delivery));
    }

    /// Notifies the draining consumers that there is nothing more for them.
    fn drain(&mut self) {
        if self.queue.waiting.draining.is_empty() {
            return;
        }
        let mut draining = std::mem::take(&mut self.queue.waiting.draining);
        draining.retain(|id| {
            let Some(consumer) = self.consumers.get_mut(id).filter(|found| !found.closing) else {
                return false;
            };
            let waits = match consumer.attention {
                // Beside an available message it waits for a page, or for the rest of this work.
                Attention::Plain => self.queue.available > 0,
                Attention::Scanner | Attention::Keyed(_) => consumer.waiting,
            };
            if consumer.credit > 0 && (waits || consumer.fetching.is_some()) {
                return true;
            }
            consumer.credit = 0;
            consumer.drain = false;
            let connection = consumer.connection;
            self.outputs.effects.push(Effect::Drained { connection, consumer: *id });
            false
        });
        self.queue.waiting.draining = draining;
    }
}

/// Moves a cursor past a message.
fn pass(cursor: &mut Cursor, spot: Spot) {
    match cursor {
        Cursor::None => {}
        Cursor::Lanes(cursor) => cursor.pass(spot),
        Cursor::Key(cursor) => cursor.pass(spot),
    }
}
