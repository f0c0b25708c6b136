//! The turns of the consumers that wait at a queue: connections in turn, and within a connection
//! its consumers in turn. A connection with a thousand consumers gets no more than one
//! with a single one.
//!
//! Invariants: each connection stands once in the order, and exactly those that have a consumer
//! here; a consumer is here at most once.

use std::collections::VecDeque;

use crate::hash::FastMap;
use crate::{ConnectionId, ConsumerId};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Before all others, whichever connection they are of.
    urgent: VecDeque<ConsumerId>,
    /// The first one has its turn.
    connections: VecDeque<ConnectionId>,
    lines: FastMap<ConnectionId, Line>,
}

/// The consumers of one connection. Most connections have one: it needs no allocation.
#[derive(Debug)]
struct Line {
    first: ConsumerId,
    others: VecDeque<ConsumerId>,
}

impl Turns {
    /// The next one.
    pub(crate) fn front(&self) -> Option<ConsumerId> {
        if let Some(id) = self.urgent.front() {
            return Some(*id);
        }
        let connection = self.connections.front()?;
        let line = self.lines.get(connection);
        assert!(line.is_some(), "a connection that has a turn has a consumer");
        line.map(|line| line.first)
    }

    /// Takes out the next one. Its connection goes behind the others, if it has another
    /// consumer here.
    pub(crate) fn take_front(&mut self) {
        if self.urgent.pop_front().is_none() && self.remove_first() {
            self.connections.rotate_left(1);
        }
    }

    /// Takes out the next one, which wants nothing: that was no turn of its connection.
    pub(crate) fn skip_front(&mut self) {
        if self.urgent.pop_front().is_none() {
            self.remove_first();
        }
    }

    /// The next one had its turn, and stays: behind the other consumers of its connection,
    /// which goes behind the other connections. Not for an urgent one.
    pub(crate) fn pass_front(&mut self) {
        assert!(self.urgent.is_empty(), "an urgent consumer is taken out");
        let connection = self.connections.front();
        let Some(line) = connection.and_then(|first| self.lines.get_mut(first)) else { return };
        if let Some(next) = line.others.pop_front() {
            line.others.push_back(std::mem::replace(&mut line.first, next));
        }
        if self.connections.len() > 1 {
            self.connections.rotate_left(1);
        }
    }

    /// Adds one that is not here, behind the others of its connection.
    pub(crate) fn push_back(&mut self, connection: ConnectionId, id: ConsumerId) {
        if let Some(line) = self.lines.get_mut(&connection) {
            line.others.push_back(id);
            return;
        }
        self.lines.insert(connection, Line { first: id, others: VecDeque::new() });
        self.connections.push_back(connection);
    }

    /// Adds one that is not here, before all others.
    pub(crate) fn push_front(&mut self, id: ConsumerId) {
        self.urgent.push_front(id);
    }

    /// Takes out all others.
    pub(crate) fn retain(&mut self, stays: impl Fn(ConsumerId) -> bool) {
        self.urgent.retain(|id| stays(*id));
        self.lines.retain(|_, line| line.retain(&stays));
        self.connections.retain(|connection| self.lines.contains_key(connection));
    }

    /// Takes out one consumer of this connection, if it is here.
    pub(crate) fn remove(&mut self, connection: ConnectionId, id: ConsumerId) {
        self.urgent.retain(|other| *other != id);
        let Some(line) = self.lines.get_mut(&connection) else { return };
        if !line.retain(|other| other != id) {
            self.lines.remove(&connection);
            self.connections.retain(|other| *other != connection);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.connections.is_empty()
    }

    /// How many consumers are here. It walks through the connections.
    pub(crate) fn len(&self) -> usize {
        self.urgent.len() + self.lines.values().map(|line| 1 + line.others.len()).sum::<usize>()
    }

    /// All that are here, in no order.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = ConsumerId> {
        let of = |line: &Line| std::iter::once(line.first).chain(line.others.clone());
        self.urgent.iter().copied().chain(self.lines.values().flat_map(of))
    }

    /// Removes the first consumer of the first connection, and that with its last one: false.
    fn remove_first(&mut self) -> bool {
        let Some(connection) = self.connections.front().copied() else { return false };
        let Some(line) = self.lines.get_mut(&connection) else { return false };
        let next = line.others.pop_front();
        if let Some(next) = next {
            line.first = next;
        } else {
            self.lines.remove(&connection);
            self.connections.pop_front();
        }
        next.is_some()
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        let mut all: Vec<_> = self.consumers().collect();
        all.sort_unstable();
        assert!(all.is_sorted_by(|one, next| one < next), "a consumer waits once");
        assert_eq!(self.connections.len(), self.lines.len(), "a connection has one turn");
        for connection in &self.connections {
            assert!(self.lines.contains_key(connection), "a turn is of one that has consumers");
        }
    }
}

impl Line {
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
        assert_eq!(turns.consumers().map(|id| id.0).collect::<Vec<_>>(), [8, 2]);
    }
}
