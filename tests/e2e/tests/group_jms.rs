//! Qpid JMS with `failover:(amqp://a,amqp://b,amqp://c)` against a group: each test runs one
//! scenario of tests/e2e/jms while the active instance is killed, or hands over.

use towline_e2e::group::{Group, Instance};
use towline_e2e::program::{self, Program};
use towline_e2e::{Try, require};

/// What happens to the active instance between two lines of the program.
#[derive(Clone, Copy)]
enum Event {
    Kill,
    Switch,
}

/// `first`: at which instance clients are connected first, counted from the active one.
fn goes_on(scenario: &str, line: &str, event: Event, first: Instance) -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let list = [0, 1, 2].map(|at| group.url((active + first + at) % 3)).join(",");
    let mut program = Program::start(program::jms(scenario, &list, &[])?)?;
    program.hear(line)?;
    match event {
        Event::Kill => group.kill(active)?,
        Event::Switch => {
            let next = group.switch(active, None)?;
            require!(next != active, "no switch");
        }
    }
    program.say("go on")?;
    program.end().map_err(|error| group.explained(&error.to_string()))?;
    Ok(())
}

#[test]
fn a_client_that_asks_is_sent_from_a_replica_to_the_active_and_follows() -> Try {
    let group = Group::formed()?;
    let active = group.until_whole()?;
    let list = [1, 2, 0].map(|at| group.url((active + at) % 3)).join(",");
    let there = group.address(active);
    let followed = program::run(program::jms("follows_redirect", &list, &[there])?);
    followed.map_err(|error| group.explained(&error.to_string()))?;
    // A client that does not ask stays with its first instance.
    let replica = group.address((active + 1) % 3);
    let stayed = program::run(program::jms("is_relayed", &list, &[replica])?);
    stayed.map_err(|error| group.explained(&error.to_string()))?;
    Ok(())
}

#[test]
fn fail_over_from_a_killed_active_loses_nothing() -> Try {
    goes_on("reconnect", "before", Event::Kill, 0)
}

#[test]
fn fail_over_behind_a_replica_loses_nothing() -> Try {
    goes_on("reconnect", "before", Event::Kill, 1)
}

#[test]
fn a_planned_switch_loses_nothing() -> Try {
    goes_on("reconnect", "before", Event::Switch, 0)
}

#[test]
fn a_unit_that_was_open_when_the_active_was_killed_does_not_commit() -> Try {
    goes_on("commit_after_restart", "prepared", Event::Kill, 0)
}

#[test]
fn a_unit_that_was_open_at_a_planned_switch_does_not_commit() -> Try {
    goes_on("commit_after_restart", "prepared", Event::Switch, 0)
}
