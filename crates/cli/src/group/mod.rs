//! Commands for a group of instances: they ask, wait and show. What a switch or a restart is, the
//! instances decide.
//!
//! Reading order: `switch`, `rolling`, `recovery` (a group that serves no client), `question`,
//! `stopped` (an instance that does not run), `replace`, `force`; `certificates`, `check` and
//! `address`, which talk to no instance; `demo` with `plan` (its files).

mod address;
mod certificates;
mod check;
mod demo;
mod force;
mod plan;
pub(crate) mod question;
mod recovery;
mod replace;
mod rolling;
mod stopped;
mod switch;

pub(crate) use rolling::rolling;
pub(crate) use switch::switch;

use address::Removal;

use crate::arguments::{Group, Instance};
use crate::failure::Failure;

/// Runs `towline instance`.
pub(crate) fn instance(command: &Instance) -> Result<(), Failure> {
    match command {
        Instance::Replace(arguments) => replace::run(arguments),
        Instance::ForceVote(arguments) => force::run(arguments),
    }
}

/// Runs `towline group`.
pub(crate) fn run(command: &Group) -> Result<(), Failure> {
    match command {
        Group::Certificates(arguments) => certificates::run(arguments),
        Group::Check { config, name, instance, json } => {
            check::run(config, name, instance.as_deref(), *json)
        }
        Group::Address { config, drop, yes, json } => {
            address::run(config, drop.then_some(Removal { yes: *yes }), *json)
        }
        Group::Demo(arguments) => demo::run(arguments),
    }
}
