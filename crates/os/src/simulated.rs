//! Coroutines of one thread, with virtual time and a seed.
//!
//! Reading order: [`World`] (what a test holds), `schedule` (which coroutine goes on, and when),
//! `coroutine` (their stacks), [`sync`], [`channel`], [`thread`], [`time`] and [`process`] (the
//! names of the product, by means of it), [`fs`], [`crash`] (a crash at each operation).
//!
//! A process that is killed takes its coroutines with it: each of them unwinds at its next wait, so
//! that what it holds is given back. What a destructor does meanwhile reaches no file and no
//! network any more.

pub mod channel;
mod coroutine;
pub mod crash;
pub mod fs;
pub mod process;
mod schedule;
pub mod sync;
#[cfg(feature = "tasks")]
pub mod task;
pub mod thread;
pub mod time;
mod world;

#[cfg(test)]
mod tests;

pub(crate) use schedule::fill_from_seed;
pub use schedule::{Process, ProcessEnd};
pub use world::World;
