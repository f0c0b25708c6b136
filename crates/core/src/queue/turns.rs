//! The turns of the consumers that wait at a queue: connections in turn, and within a connection
//! its consumers in turn. A connection with a thousand consumers gets no more than one
//! with a single one.
//!
//! Invariants: a connection that has a consumer here is the current one, or stands once in the
//! order and in `lines`; there is a current one unless none is here; a consumer is here at most
//! once; `consumers` counts them.

use std::collections::VecDeque;

use crate::hash::FastMap;
use crate::{ConnectionId, ConsumerId};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Before all others, whichever connection they are of.
    urgent: VecDeque<ConsumerId>,
    /// The connection that has its turn, apart from the others: as long as it is alone, as at most
    /// queues, a message costs no search for it.
    current: Option<Line>,
    /// The others; the first one is next.
    order: VecDeque<ConnectionId>,
    lines: FastMap<ConnectionId, Line>,
    /// Of all of them: asked at each consumer that closes, beside thousands of connections.
    consumers: usize,
}

/// The consumers of one connection. Most connections have one: it needs no allocation.
#[derive(Debug)]
struct Line {
    connection: ConnectionId,
    first: ConsumerId,
    others: VecDeque<ConsumerId>,
}

impl Turns {
    /// The next one.
    pub(crate) fn front(&self) -> Option<ConsumerId> {
        let urgent = self.urgent.front().copied();
        urgent.or_else(|| self.current.as_ref().map(|line| line.first))
    }

    /// Takes out the next one. Its connection goes behind the others, if it has another consumer
    /// here.
    pub(crate) fn take_front(&mut self) {
        if !self.take_urgent() && self.remove_first() {
            self.next_connection();
        }
    }

    /// Takes out the next one, which wants nothing: that was no turn of its connection.
    pub(crate) fn skip_front(&mut self) {
        if !self.take_urgent() {
            self.remove_first();
        }
    }

    /// The next one had its turn, and stays: behind the other consumers of its connection, which
    /// goes behind the other connections. Not for an urgent one.
    pub(crate) fn pass_front(&mut self) {
        assert!(self.urgent.is_empty(), "an urgent consumer is taken out");
        let Some(line) = &mut self.current else { return };
        if let Some(next) = line.others.pop_front() {
            line.others.push_back(std::mem::replace(&mut line.first, next));
        }
        self.next_connection();
    }

    /// Adds one that is not here, behind the others of its connection.
    pub(crate) fn push_back(&mut self, connection: ConnectionId, id: ConsumerId) {
        self.consumers += 1;
        if let Some(line) = self.line_of(connection) {
            line.others.push_back(id);
            return;
        }
        let line = Line { connection, first: id, others: VecDeque::new() };
        if self.current.is_none() {
            self.current = Some(line);
        } else {
            self.add(line);
        }
    }

    /// Adds one that is not here, before all others.
    pub(crate) fn push_front(&mut self, id: ConsumerId) {
        self.consumers += 1;
        self.urgent.push_front(id);
    }

    /// Takes out all others.
    pub(crate) fn retain(&mut self, stays: impl Fn(ConsumerId) -> bool) {
        self.urgent.retain(|id| stays(*id));
        self.lines.retain(|_, line| line.retain(&stays));
        self.order.retain(|connection| self.lines.contains_key(connection));
        if self.current.as_mut().is_some_and(|line| !line.retain(&stays)) {
            self.current = None;
            self.fill_current();
        }
        self.consumers = self.count();
    }

    /// Takes out one consumer of this connection, if it is here.
    pub(crate) fn remove(&mut self, connection: ConnectionId, id: ConsumerId) {
        let urgent = self.urgent.len();
        self.urgent.retain(|other| *other != id);
        self.consumers -= urgent - self.urgent.len();
        let Some(line) = self.line_of(connection) else { return };
        let before = line.len();
        let stays = line.retain(|other| other != id);
        let gone = if stays { before - line.len() } else { before };
        self.consumers -= gone;
        if stays {
            return;
        }
        if self.lines.remove(&connection).is_some() {
            self.order.retain(|other| *other != connection);
        } else {
            self.current = None;
            self.fill_current();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.current.is_none()
    }

    /// How many consumers are here.
    pub(crate) fn len(&self) -> usize {
        self.consumers
    }

    /// The same, by a walk through the connections.
    fn count(&self) -> usize {
        let all = self.current.iter().chain(self.lines.values());
        self.urgent.len() + all.map(Line::len).sum::<usize>()
    }

    /// False: there is no urgent one.
    fn take_urgent(&mut self) -> bool {
        let is_there = self.urgent.pop_front().is_some();
        self.consumers -= usize::from(is_there);
        is_there
    }

    fn line_of(&mut self, connection: ConnectionId) -> Option<&mut Line> {
        let current = self.current.as_mut().filter(|line| line.connection == connection);
        if current.is_some() || self.order.is_empty() {
            return current;
        }
        self.lines.get_mut(&connection)
    }

    /// Adds a line behind the others.
    fn add(&mut self, line: Line) {
        self.order.push_back(line.connection);
        let before = self.lines.insert(line.connection, line);
        assert!(before.is_none(), "a connection has one turn");
    }

    /// The current connection goes behind the others.
    fn next_connection(&mut self) {
        if let Some(next) = self.take_next()
            && let Some(had) = self.current.replace(next)
        {
            self.add(had);
        }
    }

    fn take_next(&mut self) -> Option<Line> {
        let next = self.order.pop_front()?;
        let line = self.lines.remove(&next);
        assert!(line.is_some(), "a connection that is next has a consumer");
        line
    }

    fn fill_current(&mut self) {
        if self.current.is_none() {
            self.current = self.take_next();
        }
    }

    /// Removes the first consumer of the current connection, and that with its last one: false.
    fn remove_first(&mut self) -> bool {
        let Some(line) = &mut self.current else { return false };
        self.consumers -= 1;
        if let Some(next) = line.others.pop_front() {
            line.first = next;
            return true;
        }
        self.current = None;
        self.fill_current();
        false
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        let lines = || self.current.iter().chain(self.lines.values());
        let of = |line: &Line| std::iter::once(line.first).chain(line.others.clone());
        let mut all: Vec<_> = lines().flat_map(of).chain(self.urgent.clone()).collect();
        all.sort_unstable();
        assert!(all.is_sorted_by(|one, next| one < next), "a consumer waits once");
        assert_eq!(all.len(), self.consumers, "consumers are counted");
        assert_eq!(self.order.len(), self.lines.len(), "a connection has one turn");
        assert!(self.current.is_some() || self.lines.is_empty(), "one of those here is current");
        for connection in &self.order {
            let line = self.lines.get(connection);
            assert!(line.is_some_and(|line| line.connection == *connection), "its own line");
            let current = self.current.as_ref().map(|line| line.connection);
            assert_ne!(current, Some(*connection), "the current one is not in the order");
        }
    }
}

impl Line {
    fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// Removes all others. False: none is left.
    fn retain(&mut self, stays: impl Fn(ConsumerId) -> bool) -> bool {
        self.others.retain(|id| stays(*id));
        if stays(self.first) {
            return true;
        }
        let next = self.others.pop_front();
        if let Some(next) = next {
            self.first = next;
        }
        next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes turns until each of so many was had, as a queue with so many messages does.
    fn served(turns: &mut Turns, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let id = turns.front().unwrap();
                turns.pass_front();
                turns.audit();
                id.0
            })
            .collect()
    }

    fn three_and_one() -> Turns {
        let mut turns = Turns::default();
        for id in [1, 2, 3] {
            turns.push_back(ConnectionId(1), ConsumerId(id));
        }
        turns.push_back(ConnectionId(2), ConsumerId(9));
        turns
    }

    #[test]
    fn connections_have_turns_and_their_consumers_have_turns_within() {
        let mut turns = three_and_one();
        assert_eq!(served(&mut turns, 8), [1, 9, 2, 9, 3, 9, 1, 9]);
        turns.remove(ConnectionId(2), ConsumerId(9));
        assert_eq!(served(&mut turns, 4), [2, 3, 1, 2]);
    }

    #[test]
    fn one_that_is_taken_out_and_comes_back_does_not_go_before_other_connections() {
        let mut turns = three_and_one();
        let mut order = Vec::new();
        for _ in 0..6 {
            let id = turns.front().unwrap();
            turns.take_front();
            turns.push_back(ConnectionId(if id.0 == 9 { 2 } else { 1 }), id);
            turns.audit();
            order.push(id.0);
        }
        assert_eq!(order, [1, 9, 2, 9, 3, 9]);
    }

    #[test]
    fn one_that_wants_nothing_does_not_take_the_turn_of_its_connection() {
        let mut turns = three_and_one();
        turns.skip_front();
        assert_eq!(served(&mut turns, 3), [2, 9, 3]);
        while turns.front().is_some() {
            turns.skip_front();
            turns.audit();
        }
        assert!(turns.is_empty());
        assert_eq!(turns.len(), 0);
    }

    #[test]
    fn a_connection_that_had_none_comes_behind_the_others() {
        let mut turns = three_and_one();
        turns.push_back(ConnectionId(3), ConsumerId(20));
        turns.remove(ConnectionId(1), ConsumerId(1));
        turns.remove(ConnectionId(2), ConsumerId(9));
        turns.push_back(ConnectionId(2), ConsumerId(9));
        turns.audit();
        assert_eq!(served(&mut turns, 4), [2, 20, 9, 3]);
    }

    #[test]
    fn an_urgent_one_goes_before_all() {
        let mut turns = three_and_one();
        turns.push_front(ConsumerId(7));
        assert_eq!((turns.front(), turns.len()), (Some(ConsumerId(7)), 5));
        turns.take_front();
        assert_eq!(served(&mut turns, 2), [1, 9]);
    }

    #[test]
    fn what_does_not_stay_is_in_no_line() {
        let mut turns = three_and_one();
        turns.push_front(ConsumerId(8));
        turns.retain(|id| id.0 % 2 == 0);
        turns.audit();
        assert_eq!(turns.len(), 2);
        assert_eq!(turns.front(), Some(ConsumerId(8)));
        turns.take_front();
        assert_eq!(served(&mut turns, 2), [2, 2]);
    }
}
