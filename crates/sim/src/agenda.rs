//! What is planned, in the order of its times.
//!
//! Not here: what happens.
//!
//! Invariants: what is planned for one time comes in the order in which it was planned; an event
//! stays where it was put until it comes, because it is much larger than its time, and most of what
//! is planned moves many times in the order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events that are to come.
pub(crate) struct Agenda<E> {
    /// Time, number, and where the event is.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    planned: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn plan(&mut self, time: u64, event: E) {
        self.planned += 1;
        let at = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(at) {
            Some(place) => *place = Some(event),
            None => self.events.push(Some(event)),
        }
        self.order.push(Reverse((time, self.planned, at)));
    }

    /// When the next one comes.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((time, ..))| *time)
    }

    /// The next one, and its time.
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        let Reverse((time, _, at)) = self.order.pop()?;
        self.free.push(at);
        self.events.get_mut(at)?.take().map(|event| (time, event))
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { order: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), planned: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_their_times_and_those_of_one_time_as_they_were_planned() {
        let mut agenda = Agenda::default();
        for (time, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            agenda.plan(time, event);
        }
        assert_eq!((agenda.next_time(), agenda.next()), (Some(3), Some((3, 'a'))));
        // Where the first one was.
        agenda.plan(5, 'e');
        let rest: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
        assert_eq!(rest, [(3, 'b'), (5, 'c'), (5, 'd'), (5, 'e')]);
        assert_eq!(agenda.next_time(), None);
    }
}
