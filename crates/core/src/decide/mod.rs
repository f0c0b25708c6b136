//! Requests that may be refused. Each call checks first, then reserves and yields facts: a refused
//! call changes nothing.
//!
//! Facts must reach the log, and then `apply`, in the order in which the calls yielded them.

pub(crate) mod damaged;
mod dead_letter;
pub(crate) mod define;
mod enter;
mod get;
pub(crate) mod history;
mod large;
mod leave;
mod level;
mod move_messages;
mod open;
pub(crate) mod parts;
pub(crate) mod put;
mod settle;
mod spill;
mod unit;

use crate::Outputs;
use crate::fact::{Durability, Fact};
use crate::request::Decision;

/// Where facts go that no client waits for: those of a request, and those that the queue manager
/// found necessary by itself.
pub(crate) trait LazyFacts {
    /// Adds a fact for the log.
    fn push_lazy(&mut self, fact: Fact);
}

impl LazyFacts for Decision {
    fn push_lazy(&mut self, fact: Fact) {
        // Of a closed log it is left: no client waits for it.
        if !self.is_closed() {
            self.push_logged(fact, Durability::Lazy);
        }
    }
}

impl LazyFacts for Outputs {
    fn push_lazy(&mut self, fact: Fact) {
        self.facts.push(fact);
    }
}
