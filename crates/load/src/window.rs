//! The puts of one producer that have no outcome yet, by sequence number.
//!
//! Invariant: `first` is the oldest without an outcome, or the next to be put. Outcomes may come
//! out of order; a slot leaves when all before it have.

use std::collections::VecDeque;

use towline_types::Time;

/// When each unsettled put was made.
#[derive(Debug, Default)]
pub(crate) struct Window {
    first: u64,
    /// `None`: has its outcome, and waits for older ones.
    slots: VecDeque<Option<Time>>,
    unsettled: u32,
}

impl Window {
    /// The number that the next put gets.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Puts from the oldest without an outcome to the newest.
    pub(crate) fn span(&self) -> usize {
        self.slots.len()
    }

    /// Puts without an outcome.
    pub(crate) fn unsettled(&self) -> u32 {
        self.unsettled
    }

    /// A put was made; returns its number.
    pub(crate) fn push(&mut self, at: Time) -> u64 {
        let number = self.next();
        self.slots.push_back(Some(at));
        self.unsettled += 1;
        number
    }

    /// An outcome came; returns when its put was made, `None` for one that is not waited for.
    pub(crate) fn settle(&mut self, number: u64) -> Option<Time> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let at = self.slots.get_mut(index)?.take()?;
        self.unsettled -= 1;
        while self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(at)
    }

    /// Forgets all that wait, and returns their numbers: the connection is lost.
    pub(crate) fn abandon(&mut self) -> Vec<u64> {
        let first = self.first;
        self.first = self.next();
        self.unsettled = 0;
        let slots = std::mem::take(&mut self.slots);
        slots.iter().zip(first..).filter(|(slot, _)| slot.is_some()).map(|(_, n)| n).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_out_of_order_find_their_puts() {
        let mut window = Window::default();
        for at in 0..4 {
            assert_eq!(window.push(Time(at)), at);
        }
        assert_eq!(window.settle(2), Some(Time(2)));
        assert_eq!((window.span(), window.unsettled()), (4, 3));
        assert_eq!(window.settle(2), None);
        assert_eq!(window.settle(0), Some(Time(0)));
        assert_eq!(window.settle(1), Some(Time(1)));
        assert_eq!((window.span(), window.unsettled(), window.next()), (1, 1, 4));
    }

    #[test]
    fn a_lost_connection_leaves_only_those_without_an_outcome_in_doubt() {
        let mut window = Window::default();
        (0..4).for_each(|at| assert_eq!(window.push(Time(at)), at));
        window.settle(1);
        assert_eq!(window.abandon(), [0, 2, 3]);
        assert_eq!((window.next(), window.unsettled()), (4, 0));
        assert_eq!(window.settle(2), None);
    }
}
