//! An instance of a group from its data folder to its door: a replica first, active when the group
//! elects it.
//!
//! Reading order: [`open`] (from a folder to a replica; `role_at_start`: in which part),
//! [`replica`] (applies what is committed), [`threads`] (what runs from the start on),
//! `copy_source`, [`region`] and `adapters` (what its part in the group gets from here), [`active`]
//! (the group elected it: it opens its door; `promotion`: one that is marked begins a history
//! first), [`failover`] and [`region_switch`] (what an administrator orders), [`returning`] and
//! `return_at_start` (an old live group follows), [`rehearsal`] (another process reads its log).
//!
//! It knows no socket and no client. Not here: its part in the group (`towline_replication`), the
//! connections between instances (`towline_link`), what a process does when this one cannot go on
//! as it is (the daemon, and the simulator).

#![forbid(unsafe_code)]

pub mod active;
mod adapters;
mod copy_source;
pub mod failover;
pub mod fence_order;
pub mod open;
mod promotion;
pub mod region;
pub mod region_switch;
pub mod rehearsal;
pub mod rehearsal_folder;
pub mod replica;
mod return_at_start;
pub mod returning;
mod role_at_start;
pub mod threads;

pub use open::{OpenReplica, level_of, open};
