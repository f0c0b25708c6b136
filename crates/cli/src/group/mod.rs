//! `towline group`: what a group of instances needs before it runs. Talks to no queue manager.

mod certificates;
mod check;

use crate::arguments::Group;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn run(command: &Group) -> Result<(), Failure> {
    match command {
        Group::Certificates(arguments) => certificates::run(arguments),
        Group::Check { config, name, instance } => check::run(config, name, instance.as_deref()),
    }
}
