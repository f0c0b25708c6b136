//! The active instance of a group is killed, stopped, cut off or left alone while clients work in
//! transactions: nothing that was acknowledged is lost, nothing is there twice, no unit is half
//! done.

use std::time::Duration;

use serde_json::json;
use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::group::{Group, Instance, THREE};
use towline_e2e::peer::Peer;
use towline_e2e::require;
use towline_e2e::wait;
use towline_e2e::workload::Workload;

/// Longer than clients need to go on elsewhere.
const GO_ON_MAX: Duration = Duration::from_secs(40);
/// Longer than HeartbeatTimeout of these groups, and an election.
const MISSED: Duration = Duration::from_millis(3_500);

/// Waits until so many further units are committed.
fn until_committed(load: &Workload, more: usize) -> Try {
    let wanted = load.units_committed() + more;
    wait::until_true("commits", GO_ON_MAX, || load.units_committed() >= wanted)
}

/// The other instances.
fn others(instance: Instance) -> [Instance; 2] {
    [(instance + 1) % 3, (instance + 2) % 3]
}

#[test]
fn after_kill_of_each_active_nothing_acknowledged_is_lost_and_nothing_is_there_twice() -> Try {
    let mut chance = Chance::announced("kill -9 of the active");
    let mut group = Group::formed()?;
    let mut killed = Vec::new();
    for round in 0..3 {
        // Each of them once.
        let active = group.until_whole()?;
        let wanted = THREE.into_iter().find(|at| !killed.contains(at)).unwrap_or(active);
        group.make_active(wanted)?;
        let load = Workload::start_returning(group.urls(), round, &mut chance);
        until_committed(&load, 10)?;
        wait::pause(Duration::from_millis(chance.within(1, 300)));
        group.kill(wanted)?;
        killed.push(wanted);
        let next = group.until_active(None)?;
        until_committed(&load, 10).map_err(|error| group.explained(&error.to_string()))?;
        group.judge(next, &load.finish()?)?;
        group.start(wanted)?;
    }
    group.until_whole()?;
    Ok(())
}

#[test]
fn an_active_that_stood_still_acknowledges_nothing_and_begins_again() -> Try {
    let mut chance = Chance::announced("SIGSTOP of the active");
    let mut group = Group::formed()?;
    let stopped = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&load, 10)?;
    // A client of the stopped one; its put comes in while the instance stands still.
    let mut peer = Peer::begun(group.address(stopped))?;
    peer.attach_sender(0, "LATE")?;
    group.pause(stopped)?;
    let next = group.until_active(Some(stopped))?;
    peer.put_unanswered(0, 0, b"late")?;
    until_committed(&load, 10).map_err(|error| group.explained(&error.to_string()))?;
    group.resume(stopped)?;
    require!(peer.await_accepted(1).is_err(), "a put that came too late was accepted");
    require!(group.until_whole()? == next, "the old one took over again");
    require!(group.status(stopped)?["role"] == "replica", "it is not a replica again");
    group.judge(next, &load.finish()?)?;
    Ok(())
}

#[test]
fn an_active_that_is_cut_off_is_replaced_and_acknowledges_nothing_meanwhile() -> Try {
    let mut chance = Chance::announced("isolation of the active");
    let group = Group::formed_on_net()?;
    let isolated = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&load, 10)?;
    let mut peer = Peer::begun(group.address(isolated))?;
    peer.attach_sender(0, "LATE")?;
    group.net()?.isolate(isolated);
    peer.put_unanswered(0, 0, b"late")?;
    let next = group.until_active(Some(isolated))?;
    require!(peer.await_accepted(1).is_err(), "a put was accepted by one of three");
    until_committed(&load, 10).map_err(|error| group.explained(&error.to_string()))?;
    group.net()?.heal_all();
    require!(group.until_whole()? == next, "the old one took over again");
    group.judge(next, &load.finish()?)?;
    Ok(())
}

#[test]
fn a_judgement_goes_on_at_the_new_active_instance() -> Try {
    let mut chance = Chance::announced("a judgement over a switch");
    let group = Group::formed()?;
    let active = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&load, 10)?;
    let history = load.finish()?;
    let mut messages = 0;
    let tally = group.judge_while(active, &history, &mut |_, _| {
        messages += 1;
        if messages == 2 { group.switch(active, None).map(drop) } else { Ok(()) }
    })?;
    require!(messages > tally.messages, "{messages} looked at of {}", tally.messages);
    Ok(())
}

#[test]
fn an_instance_that_is_told_to_end_while_it_begins_again_ends_in_order() -> Try {
    let mut chance = Chance::announced("SIGTERM while it begins again");
    let mut group = Group::formed_on_net()?;
    for _ in 0..3 {
        let isolated = group.until_whole()?;
        let lost = || group.site(isolated).log().matches("TWL4204W").count();
        let before = lost();
        group.net()?.isolate(isolated);
        // It says so, lets its clients go, and re-executes itself: for a moment nothing waits for
        // signals.
        wait::until_true("the end of its time", GO_ON_MAX, || lost() > before)?;
        wait::pause(Duration::from_millis(chance.within(0, 200)));
        group.daemon(isolated)?.terminate()?;
        group.await_end(isolated)?;
        group.net()?.heal_all();
        group.until_in_sync(2)?;
        group.start(isolated)?;
    }
    group.until_whole()?;
    Ok(())
}

#[test]
fn no_sigterm_is_lost_whenever_it_comes_while_a_process_executes_itself() -> Try {
    const ROUNDS: u32 = 60;
    let mut chance = Chance::announced("SIGTERM around the execution");
    let mut group = Group::formed()?;
    let one = group.until_whole()?;
    // Alone, so that it neither hands over nor follows: what is left is the way through execve(2).
    for other in others(one) {
        group.kill(other)?;
    }
    for round in 0..ROUNDS {
        group.ask(one, &json!({ "do": "restart" }))?;
        // Half of them early, where the old program ends; the rest over the whole of the next
        // start.
        let longest = if round % 2 == 0 { 20_000 } else { 200_000 };
        wait::pause(Duration::from_micros(chance.within(0, longest)));
        group.daemon(one)?.terminate()?;
        group.await_end(one).map_err(|error| format!("round {round}: {error}"))?;
        group.start(one)?;
    }
    Ok(())
}

#[test]
fn an_active_that_hears_nobody_or_is_heard_by_nobody_is_replaced() -> Try {
    let mut chance = Chance::announced("one-way cuts");
    let group = Group::formed_on_net()?;
    for (round, deaf) in [(0, true), (1, false)] {
        let active = group.until_whole()?;
        let load = Workload::start_returning(group.urls(), round, &mut chance);
        until_committed(&load, 10)?;
        for other in others(active) {
            if deaf {
                group.net()?.cut(other, active);
            } else {
                group.net()?.cut(active, other);
            }
        }
        let next = group.until_active(Some(active))?;
        until_committed(&load, 10).map_err(|error| group.explained(&error.to_string()))?;
        group.net()?.heal_all();
        group.until_whole()?;
        let history = load.finish()?;
        group.judge(next, &history)?;
    }
    Ok(())
}

#[test]
fn without_a_quorum_nothing_is_acknowledged_until_one_returns() -> Try {
    let mut chance = Chance::announced("quorum lost");
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&load, 10)?;
    for other in others(active) {
        group.kill(other)?;
    }
    // What two of three had was acknowledged; what is put from now on is not.
    let mut late = Peer::begun(group.address(active));
    if let Ok(peer) = &mut late {
        let put = peer.attach_sender(0, "LATE").and_then(|()| peer.put(0, 0, b"late"));
        require!(put.is_err(), "a put was accepted by one of three");
    }
    let before = load.units_committed();
    wait::pause(MISSED);
    let meanwhile = load.units_committed() - before;
    require!(meanwhile == 0, "{meanwhile} units were committed by one of three");
    group.start(others(active)[0])?;
    let next = group.until_in_sync(2)?;
    until_committed(&load, 10).map_err(|error| group.explained(&error.to_string()))?;
    group.judge(next, &load.finish()?)?;
    Ok(())
}
