//! Clients between two regions: which addresses they get with the open frame, and where a recovery
//! instance sends them. With go-amqp, which shows what it was sent, and Qpid JMS, which follows it.

use std::time::{Duration, Instant};

use towline_e2e::program::{self, Program};
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, papers, require, wait};

const REDIRECT: &str = "amqp:connection:redirect";
const FORCED: &str = "amqp:connection:forced";

fn of(size: usize) -> RegionsDesign {
    let config = "[log]\nextent_bytes = 4194304\n".into();
    RegionsDesign { size, config, has_clients: true, ..RegionsDesign::default() }
}

fn address(regions: &Regions, group: usize, at: usize) -> &str {
    &regions.site(group, at).listen
}

fn url(regions: &Regions, group: usize, at: usize) -> String {
    format!("amqp://{}", address(regions, group, at))
}

/// Whether go-amqp is closed so at an instance of east.
fn is_turned_away(regions: &Regions, at: usize, how: &[&str]) -> Try {
    let begun = Instant::now();
    program::run(program::go("turned_away", &url(regions, EAST, at), how)?)?;
    let took = begun.elapsed();
    require!(took < Duration::from_secs(5), "it had no answer before {took:?}");
    Ok(())
}

/// Waits until it is.
fn until_turned_away(regions: &Regions, at: usize, how: &[&str]) -> Try {
    let mut last = String::new();
    let told = wait::until("the answer", LONG, || {
        is_turned_away(regions, at, how).map_err(|error| last = error.to_string()).ok()
    });
    told.map_err(|error| format!("{error}: {last}\n{}", regions.site(EAST, at).log()).into())
}

#[test]
fn a_recovery_instance_sends_its_clients_to_the_live_group_and_jms_follows() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    let [west, east] = [WEST, EAST].map(|group| address(&regions, group, 0).to_owned());
    is_turned_away(
        &regions,
        0,
        &[REDIRECT, "group 'EAST' is in recovery; group 'WEST' is live", &west],
    )?;
    let followed = program::jms("is_relayed", &url(&regions, EAST, 0), &[&west])?;
    program::run(followed).map_err(|error| format!("{error}\n{}", regions.site(EAST, 0).log()))?;
    program::run(program::go("server_list", &url(&regions, WEST, 0), &[&west, &east])?)?;

    // While it does not hear of the live group it does not say where that is.
    let forced = [FORCED, "group 'EAST' is in recovery and serves no client"];
    regions.order(EAST, Order::Cut(Ways::Both));
    until_turned_away(&regions, 0, &forced)?;
    regions.order(EAST, Order::Heal(Ways::Both));
    until_turned_away(&regions, 0, &[REDIRECT, "", &west])?;
    regions.kill(WEST, 0)?;
    until_turned_away(&regions, 0, &forced)?;
    // What it heard is not kept over a start; the live group says it again.
    regions.stop(EAST, 0)?;
    regions.start(EAST, 0)?;
    until_turned_away(&regions, 0, &forced)?;
    regions.start(WEST, 0)?;
    until_turned_away(&regions, 0, &[REDIRECT, "", &west])?;
    regions.stop_all()
}

#[test]
fn without_addresses_there_is_no_list_and_no_redirect() -> Try {
    let mut regions = Regions::towed(&RegionsDesign { has_clients: false, ..of(1) })?;
    program::run(program::go("server_list", &url(&regions, WEST, 0), &[])?)?;
    is_turned_away(&regions, 0, &[FORCED, "group.recovery.clients"])?;
    regions.stop_all()
}

#[test]
fn any_recovery_instance_knows_the_active_one_and_jms_learns_all_addresses_from_one() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    let active = wait::until("an active instance", LONG, || regions.active())?;
    let there = address(&regions, WEST, active).to_owned();
    for at in 0..3 {
        until_turned_away(&regions, at, &[REDIRECT, "", &there])?;
    }
    let others = [0, 1, 2].into_iter().filter(|at| *at != active);
    let mut list: Vec<&str> = vec![&there];
    list.extend(others.map(|at| address(&regions, WEST, at)));
    list.extend((0..3).map(|at| address(&regions, EAST, at)));
    // The same whichever instance the client came to.
    for at in 0..3 {
        program::run(program::go("server_list", &url(&regions, WEST, at), &list)?)?;
    }
    // It is configured with one address; when that is gone it knows others.
    let only = url(&regions, WEST, active);
    let mut program = Program::start(program::jms("reconnect", &only, &[])?)?;
    program.hear("before")?;
    regions.kill(WEST, active)?;
    program.say("go on")?;
    program.end().map_err(|error| format!("{error}\n{}", regions.site(WEST, active).log()))?;
    let next = wait::until("the next active instance", LONG, || regions.active())?;
    require!(next != active, "it is the same");
    for at in 0..3 {
        until_turned_away(&regions, at, &[REDIRECT, "", address(&regions, WEST, next)])?;
    }
    regions.stop_all()
}

#[test]
fn logins_count_at_a_recovery_instance_as_anywhere() -> Try {
    let mut regions = Regions::plan(&of(1))?;
    let users = papers::users(regions.site(EAST, 0).scratch(), &[("alice", "right")])?;
    for group in [WEST, EAST] {
        let config = &mut regions.site_mut(group, 0).config;
        *config = format!("[users]\nfile = {users:?}\n{config}");
        regions.start(group, 0)?;
    }
    regions.until_towed()?;
    let refused = program::go("login_refused", &url(&regions, EAST, 0), &["alice", "wrong"])?;
    let said = program::run(refused)?;
    require!(!said.contains(REDIRECT), "{said}");
    let right = program::go("login_refused", &url(&regions, EAST, 0), &["alice", "right"])?;
    let said = program::run(right)?;
    require!(said.contains(REDIRECT), "{said}");
    regions.stop_all()
}
