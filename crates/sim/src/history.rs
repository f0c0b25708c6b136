//! What the checker itself knows: which messages were put, by which client, in which unit, what was
//! promised about them, and what was seen of them. Nothing here is asked of the instances.
//!
//! Not here: which client asks which instance, and when.
//!
//! The rules: an acknowledged put is there until it is got; an acknowledged get happens once; what
//! was refused or rolled back is never seen; units take effect whole or not at all; what one
//! producer puts on one queue with one priority is delivered in that order; a message is held by
//! one consumer at a time; in one term only one instance acknowledges.

use std::collections::{BTreeMap, BTreeSet};

mod judge;

/// What became of something that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Asked for, and not answered (perhaps never to be).
    Unknown,
    /// Acknowledged.
    Yes,
    /// Refused, or never asked for in the end.
    No,
}

/// A message that a client put.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) client: usize,
    pub(crate) queue: usize,
    pub(crate) priority: u8,
    pub(crate) persistent: bool,
    pub(crate) unit: Option<usize>,
    /// Of the put itself; in a unit the unit's fate counts.
    pub(crate) fate: Fate,
    pub(crate) delivered: bool,
    pub(crate) gets: Vec<usize>,
    pub(crate) bytes: usize,
}

/// A client accepted a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get {
    pub(crate) message: usize,
    pub(crate) unit: Option<usize>,
    pub(crate) fate: Fate,
    /// In which term it was acknowledged.
    pub(crate) term: u64,
}

/// A unit of work.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) fate: Fate,
    pub(crate) commit_sent: bool,
    pub(crate) puts: Vec<usize>,
    pub(crate) gets: Vec<usize>,
}

/// Which of a producer's messages come in one order.
type Stream = (usize, usize, u8);

/// The newest messages of a stream that the active instance of one term delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    of_any: Option<usize>,
    of_persistent: Option<usize>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) puts: Vec<Put>,
    pub(crate) gets: Vec<Get>,
    pub(crate) units: Vec<Unit>,
    /// Newest message that was delivered, of each stream and in each term.
    newest: BTreeMap<(Stream, u64), Newest>,
    /// The holder of each message: process and connection.
    held: BTreeMap<usize, (u64, u64)>,
    /// Connections that are gone.
    ended: BTreeSet<u64>,
    /// Puts that were answered over one of those, or waited there behind a commit.
    late: BTreeSet<usize>,
    /// Connections that are about to go, each of a process: what was under way to them goes back.
    leaving: BTreeMap<u64, u64>,
    /// Which instance acknowledged in a term.
    terms: BTreeMap<u64, usize>,
    pub(crate) acknowledged: u64,
    /// Deliveries are seen when they leave the process, each connection for itself: those of
    /// different connections have no order.
    orders_by_connection: bool,
}

/// An instance in its term.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speaker {
    pub(crate) node: usize,
    pub(crate) process: u64,
    pub(crate) term: u64,
}

/// The number of a message, at the beginning of its content.
const NUMBER_BYTES: usize = size_of::<u64>();

/// A rule that was broken, in words.
pub(crate) type Violation = String;

impl History {
    /// A history of deliveries that are seen when they leave the process.
    pub(crate) fn by_connection() -> History {
        History { orders_by_connection: true, ..History::default() }
    }

    /// A new message; its number is its identity.
    pub(crate) fn put(&mut self, put: Put) -> usize {
        let number = self.puts.len();
        if let Some(unit) = put.unit.and_then(|unit| self.units.get_mut(unit)) {
            unit.puts.push(number);
        }
        self.puts.push(put);
        number
    }

    /// The content of a message: its number, then bytes that follow from it.
    pub(crate) fn content(number: usize, bytes: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(NUMBER_BYTES + bytes);
        content.extend_from_slice(&(number as u64).to_le_bytes());
        content.resize(NUMBER_BYTES + bytes, History::filling(number));
        content
    }

    fn filling(number: usize) -> u8 {
        number.wrapping_mul(31).to_le_bytes()[0]
    }

    /// Whether this is what [`History::content`] makes. It is asked for each delivery.
    fn is_content(content: &[u8], number: usize, bytes: usize) -> bool {
        let Some((begins, rest)) = content.split_first_chunk() else { return false };
        let filling = History::filling(number);
        // Without a branch for each byte.
        let differs = rest.iter().fold(0, |differs, byte| differs | (byte ^ filling));
        *begins == (number as u64).to_le_bytes() && rest.len() == bytes && differs == 0
    }

    /// Which message this is.
    pub(crate) fn identify(&self, content: &[u8]) -> Result<usize, Violation> {
        let number = content.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let number = number.and_then(|number| usize::try_from(number).ok());
        let put = number.and_then(|number| Some((number, self.puts.get(number)?)));
        match put {
            Some((number, put)) if History::is_content(content, number, put.bytes) => Ok(number),
            _ => Err(format!("unexpected content of {} bytes: {content:?}", content.len())),
        }
    }

    pub(crate) fn declare(&mut self) -> usize {
        let puts = Vec::new();
        let gets = Vec::new();
        self.units.push(Unit { fate: Fate::Unknown, commit_sent: false, puts, gets });
        self.units.len() - 1
    }

    /// A client accepts a delivery.
    pub(crate) fn get(&mut self, message: usize, unit: Option<usize>) -> usize {
        let number = self.gets.len();
        self.gets.push(Get { message, unit, fate: Fate::Unknown, term: 0 });
        self.puts[message].gets.push(number);
        if let Some(unit) = unit {
            self.units[unit].gets.push(number);
        } else {
            self.held.remove(&message);
        }
        number
    }

    /// A client gives a delivery back.
    pub(crate) fn give_back(&mut self, message: usize) {
        self.held.remove(&message);
    }

    /// A client ends a unit, or loses it (`commit` is false then).
    pub(crate) fn discharge(&mut self, unit: usize, commit: bool) {
        let ended = &mut self.units[unit];
        if commit {
            ended.commit_sent = true;
        } else {
            ended.fate = Fate::No;
        }
        let gets = ended.gets.clone();
        for get in gets {
            self.held.remove(&self.gets[get].message);
        }
    }

    /// A connection is gone, with all that it held.
    pub(crate) fn connection_ended(&mut self, connection: u64) {
        self.ended.insert(connection);
        self.held.retain(|_, (_, holder)| *holder != connection);
    }

    /// A connection ended behind a put without an answer that was asked for behind a commit: a
    /// commit in parts goes on without its client, and so does what waits behind it.
    pub(crate) fn lost_behind_commit(&mut self, put: usize, unit: usize) {
        if self.units[unit].fate == Fate::Unknown && self.puts[put].fate == Fate::Unknown {
            self.late.insert(put);
        }
    }

    /// An instance ends a connection: what that held may come to others before its client knows.
    pub(crate) fn leaves(&mut self, connection: u64, speaker: Speaker) {
        self.held.retain(|_, (_, holder)| *holder != connection);
        self.leaving.insert(connection, speaker.process);
    }

    /// It was on its way to a connection that has ended: it may come late to another one.
    pub(crate) fn was_under_way(&mut self, content: &[u8]) {
        if let Ok(number) = self.identify(content) {
            self.puts[number].delivered = true;
        }
    }

    /// All is known that was under way to it.
    pub(crate) fn left(&mut self, connection: u64) {
        self.leaving.remove(&connection);
    }

    fn acknowledges(&mut self, speaker: Speaker) -> Result<(), Violation> {
        self.acknowledged += 1;
        let first = *self.terms.entry(speaker.term).or_insert(speaker.node);
        if first == speaker.node {
            return Ok(());
        }
        let term = speaker.term;
        let node = speaker.node;
        Err(format!("instances {first} and {node} both acknowledge in term {term}"))
    }

    /// Bytes of messages that are in memory only, and may be there.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        let live = |put: &&Put| !put.persistent && put.fate != Fate::No && put.gets.is_empty();
        self.puts.iter().filter(live).map(|put| put.bytes as u64).sum()
    }

    pub(crate) fn put_answered(
        &mut self,
        speaker: Speaker,
        number: usize,
        accepted: bool,
    ) -> Result<(), Violation> {
        let put = &mut self.puts[number];
        match (put.unit, accepted) {
            (None, true) => {
                put.fate = Fate::Yes;
                let persistent = put.persistent;
                // Nothing is promised of a message that lives in memory only.
                if persistent { self.acknowledges(speaker) } else { Ok(()) }
            }
            (None | Some(_), false) => {
                put.fate = Fate::No;
                Ok(())
            }
            (Some(_), true) => Ok(()),
        }
    }

    pub(crate) fn get_answered(
        &mut self,
        speaker: Speaker,
        number: usize,
        accepted: bool,
    ) -> Result<(), Violation> {
        if self.gets[number].unit.is_some() {
            return Ok(());
        }
        if !accepted {
            self.gets[number].fate = Fate::No;
            return Ok(());
        }
        self.got(speaker, number)?;
        if self.puts[self.gets[number].message].persistent {
            self.acknowledges(speaker)?;
        }
        Ok(())
    }

    fn got(&mut self, speaker: Speaker, number: usize) -> Result<(), Violation> {
        let message = self.gets[number].message;
        let others = self.puts[message].gets.iter().map(|get| self.gets[*get]);
        let before = others.filter(|get| get.fate == Fate::Yes).count();
        if before > 0 && self.puts[message].persistent {
            return Err(format!("message {message} was got twice"));
        }
        (self.gets[number].fate, self.gets[number].term) = (Fate::Yes, speaker.term);
        Ok(())
    }

    pub(crate) fn discharge_answered(
        &mut self,
        speaker: Speaker,
        unit: usize,
        committed: bool,
    ) -> Result<(), Violation> {
        if self.units[unit].fate == Fate::No {
            return Ok(());
        }
        if !committed {
            self.units[unit].fate = Fate::No;
            return Ok(());
        }
        self.units[unit].fate = Fate::Yes;
        for get in self.units[unit].gets.clone() {
            self.got(speaker, get)?;
        }
        self.acknowledges(speaker)
    }

    /// An instance sends a message to a consumer of this queue.
    pub(crate) fn delivered(
        &mut self,
        speaker: Speaker,
        connection: u64,
        queue: usize,
        content: &[u8],
    ) -> Result<usize, Violation> {
        let number = self.identify(content)?;
        let put = &self.puts[number];
        if put.queue != queue {
            return Err(format!("message {number} of queue {} came from {queue}", put.queue));
        }
        self.may_be_there(number)?;
        for get in put.gets.iter().map(|get| self.gets[*get]) {
            if get.fate == Fate::Yes && speaker.term >= get.term {
                return Err(format!("message {number} was delivered after it was got"));
            }
        }
        let order = if self.orders_by_connection { connection } else { speaker.term };
        let followed = self.follows_in_order(order, number);
        if !self.leaving.values().any(|process| *process == speaker.process) {
            followed?;
        }
        self.puts[number].delivered = true;
        if self.ended.contains(&connection) {
            return Ok(number);
        }
        let holder = (speaker.process, connection);
        match self.held.insert(number, holder) {
            Some((process, other))
                if process == speaker.process
                    && other != connection
                    && !self.is_in_open_unit(number) =>
            {
                Err(format!("message {number} is held by connections {other} and {connection}"))
            }
            _ => Ok(number),
        }
    }

    /// Whether a unit of work that was not committed got it. An instance whose log is full rolls
    /// such a unit back, and another consumer may hear of the message before its client hears that.
    fn is_in_open_unit(&self, number: usize) -> bool {
        let gets = self.puts[number].gets.iter().map(|get| self.gets[*get]);
        let mut units = gets.filter_map(|get| get.unit).map(|unit| &self.units[unit]);
        units.any(|unit| unit.fate == Fate::Unknown && !unit.commit_sent)
    }

    /// A message that was not delivered before comes behind all of its stream that were put
    /// earlier.
    ///
    /// Compared are the deliveries of one term, and persistent messages with those of earlier
    /// terms: a deposed active instance may still deliver what only it has, a non-persistent
    /// message, while its successor is ahead, and the successor knows nothing of that message.
    fn follows_in_order(&mut self, term: u64, number: usize) -> Result<(), Violation> {
        let put = &self.puts[number];
        let stream = (put.client, put.queue, put.priority);
        let first = if self.orders_by_connection { term } else { 0 };
        let until_now = self.newest.range((stream, first)..=(stream, term));
        let before =
            until_now.filter_map(
                |((_, at), newest)| {
                    if *at == term { newest.of_any } else { newest.of_persistent }
                },
            );
        match before.max() {
            Some(newest) if !put.delivered && number < newest && self.is_ordered(number) => {
                let (first, second) = (&self.puts[number], &self.puts[newest]);
                return Err(format!(
                    "message {number} was delivered behind {newest}, put later: {first:?}, \
                     {second:?}"
                ));
            }
            _ => {}
        }
        let newest = self.newest.entry((stream, term)).or_default();
        newest.of_any = newest.of_any.max(Some(number));
        if put.persistent {
            newest.of_persistent = newest.of_persistent.max(Some(number));
        }
        Ok(())
    }

    /// What was refused, rolled back or not yet committed must not be seen.
    fn may_be_there(&self, number: usize) -> Result<(), Violation> {
        let put = &self.puts[number];
        let unit = put.unit.map(|unit| &self.units[unit]);
        let fate = unit.map_or(put.fate, |unit| unit.fate);
        let asked = unit.is_none_or(|unit| unit.commit_sent);
        if fate == Fate::No || put.fate == Fate::No || !asked {
            return Err(format!("message {number} is seen, but was never committed: {put:?}"));
        }
        Ok(())
    }

    /// Whether a message stands before those that its client put later. One that was not answered,
    /// or after its client had left, may have been under way on a connection that its client had
    /// given up, and have arrived after what the client put over the next one. Where a connection
    /// has nothing under way when it ends, that is so of a unit of work, since a commit in parts
    /// goes on without its client, and of what the client had asked for behind one.
    fn is_ordered(&self, number: usize) -> bool {
        let put = &self.puts[number];
        let fate = put.unit.map_or(put.fate, |unit| self.units[unit].fate);
        let may_come_late = self.orders_by_connection || put.unit.is_some();
        !self.late.contains(&number) && (fate == Fate::Yes || !may_come_late)
    }

    /// Puts of a client are answered, one of them or those of a unit, over a connection that the
    /// client may have given up meanwhile.
    pub(crate) fn answers(&mut self, connection: u64, put: Option<usize>, unit: Option<usize>) {
        if self.ended.contains(&connection) {
            let of_unit = unit.into_iter().flat_map(|unit| &self.units[unit].puts);
            self.late.extend(of_unit.copied().chain(put));
        }
    }

    /// What a queue holds, as a browser saw it, in its order.
    pub(crate) fn check_order(&self, browsed: &[usize]) -> Result<(), Violation> {
        let mut newest: BTreeMap<Stream, usize> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for number in browsed {
            let put = &self.puts[*number];
            if !seen.insert(*number) {
                return Err(format!("message {number} is there twice"));
            }
            if !self.is_ordered(*number) {
                continue;
            }
            let newest = newest.entry((put.client, put.queue, put.priority)).or_insert(*number);
            if *newest > *number {
                let (put, later) = (&self.puts[*number], &self.puts[*newest]);
                return Err(format!(
                    "message {number} stands behind {newest}, put later: {put:?}, {later:?}"
                ));
            }
            *newest = *number;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
