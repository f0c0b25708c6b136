//! What administrators and ordinary clients do with a group: use any instance, switch, restart one
//! after the other, stop, renew certificates.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use towline_e2e::chance::Chance;
use towline_e2e::daemon::said;
use towline_e2e::group::{Design, Group, Instance, NAMES, THREE, WHOLE_MAX};
use towline_e2e::peer::Peer;
use towline_e2e::wait;
use towline_e2e::workload::Workload;
use towline_e2e::{Try, paths, require};

/// Longer than clients need to go on elsewhere.
const GO_ON_MAX: Duration = Duration::from_secs(40);
/// Far less than a switch may take, and more than four commands that wait for nothing.
const AT_ONCE: Duration = Duration::from_secs(12);
/// Exit code of a command that was refused.
const REFUSED: i32 = 1;

fn until_committed(group: &Group, load: &Workload, more: usize) -> Try {
    let wanted = load.units_committed() + more;
    let waited = wait::until_true("commits", GO_ON_MAX, || load.units_committed() >= wanted);
    waited.map_err(|error| group.explained(&error.to_string()).into())
}

fn others(instance: Instance) -> [Instance; 2] {
    [(instance + 1) % 3, (instance + 2) % 3]
}

/// How often an instance logged something.
fn told(group: &Group, instance: Instance, id: &str) -> usize {
    group.site(instance).log().matches(id).count()
}

#[test]
fn any_instance_takes_clients_and_all_see_the_same_queues() -> Try {
    let group = Group::formed()?;
    for instance in THREE {
        let mut peer = Peer::begun(group.address(instance))?;
        peer.attach_sender(0, "SHARED")?;
        peer.put(0, 0, NAMES[instance].as_bytes())?;
    }
    for instance in THREE {
        let mut peer = Peer::begun(group.address(instance))?;
        peer.attach_receiver(0, "SHARED", 1)?;
        let got = peer.get()?;
        let text = NAMES[instance].as_bytes();
        require!(got.ends_with(text), "{instance}: {got:?} instead of {text:?}");
    }
    let active = group.until_whole()?;
    let roles = THREE.map(|at| group.status(at).map(|told| told["role"].to_string()));
    for (at, role) in THREE.into_iter().zip(roles) {
        let wanted = if at == active { "\"active\"" } else { "\"replica\"" };
        require!(role? == wanted, "{at} should be {wanted}");
    }
    Ok(())
}

#[test]
fn a_client_with_one_address_of_a_replica_goes_on_after_the_active_was_killed() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let replica = others(active)[0];
    let mut command = Command::new(paths::towline()?);
    command.args(["load", "requester", "--clients", "4", "--rate", "200", "--seconds", "6"]);
    command.args(["--size", "100", "--reconnect", "--quiet", "--json", "-", "--verify-drain"]);
    command.args(["--url", &group.url(replica)]);
    let output = std::thread::scope(|scope| {
        let load = scope.spawn(|| command.output());
        let begun = wait::until_true("pairs", GO_ON_MAX, || {
            group.site(active).queue_number("load", "gets").is_ok_and(|gets| gets > 100)
        });
        let killed = begun.and_then(|()| group.kill(active));
        (load.join(), killed)
    });
    output.1?;
    let output = output.0.map_err(|_| "the load panicked")??;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let explained = || group.explained(&said(&output));
    require!(report["verdict"]["lost"] == 0, "lost: {}", explained());
    require!(report["reconnects"].as_u64() >= Some(1), "nobody was cut off: {}", explained());
    require!(report["unfinished"] == 0, "not back: {}", explained());
    Ok(())
}

#[test]
fn clients_go_on_through_planned_switches_and_lose_nothing() -> Try {
    let mut chance = Chance::announced("planned switches");
    let group = Group::formed()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    let mut active = group.until_whole()?;
    for through in THREE {
        until_committed(&group, &load, 5)?;
        group.until_whole()?;
        let next = group.switch(through, None)?;
        require!(next != active, "a switch to the one that was active");
        active = next;
    }
    let wanted = others(active)[1];
    group.until_whole()?;
    require!(group.switch(active, Some(wanted))? == wanted, "not to the one asked for");
    until_committed(&group, &load, 5)?;
    let at = group.until_whole()?;
    group.judge(at, &load.finish()?)?;
    Ok(())
}

#[test]
fn a_rolling_restart_begins_each_instance_anew_and_loses_nothing() -> Try {
    let mut chance = Chance::announced("rolling restart");
    let group = Group::formed()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&group, &load, 5)?;
    let starts = THREE.map(|at| told(&group, at, "TWL1001I"));
    let mut command = Command::new(paths::towline()?);
    command.args(["rolling-restart", "--json", "--data"]);
    command.args(THREE.map(|at| group.site(at).data.clone()));
    let output = command.output()?;
    require!(output.status.success(), "{}", group.explained(&said(&output)));
    for at in THREE {
        require!(told(&group, at, "TWL1001I") > starts[at], "{} did not begin anew", NAMES[at]);
    }
    until_committed(&group, &load, 5)?;
    let at = group.until_whole()?;
    group.judge(at, &load.finish()?)?;
    Ok(())
}

#[test]
fn a_stop_that_would_break_the_quorum_is_refused_unless_forced() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let [first, second] = others(active);
    group.site(first).runs(&["stop"], 0)?;
    group.await_end(first)?;
    group.until_in_sync(2)?;
    group.site(second).runs(&["stop"], REFUSED)?;
    group.site(active).runs(&["stop"], REFUSED)?;
    require!(group.until_in_sync(2)? == active, "it changed");
    group.site(second).runs(&["stop", "--force"], 0)?;
    group.await_end(second)?;
    group.start(first)?;
    group.start(second)?;
    group.until_whole()?;
    Ok(())
}

#[test]
fn after_a_planned_stop_of_all_three_under_load_none_needs_a_copy_whatever_the_order() -> Try {
    let mut chance = Chance::announced("a planned stop of a whole group");
    let mut group = Group::formed()?;
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        group.until_whole()?;
        let load = Workload::start_returning(group.urls(), 0, &mut chance);
        until_committed(&group, &load, 10)?;
        group.stop(order[0])?;
        until_committed(&group, &load, 10)?;
        group.stop(order[1])?;
        group.stop(order[2])?;
        // The last one to end was alone: what it has is what the others have.
        drop(load.finish());
        for instance in order {
            group.start(instance)?;
        }
        group.until_whole()?;
    }
    for instance in THREE {
        let copies = told(&group, instance, "TWL4213I") + told(&group, instance, "TWL4216I");
        let text = group.site(instance).log();
        require!(copies == 0, "{} was brought a copy:\n{text}", NAMES[instance]);
    }
    Ok(())
}

#[test]
fn an_instance_with_papers_of_another_authority_or_name_is_not_let_in() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let [stranger, other] = others(active);
    group.kill(stranger)?;
    group.until_in_sync(2)?;
    let right = group.site(stranger).config.clone();
    // The name of another instance, and the right authority: it is notified itself.
    let name = |at: Instance| format!("{}.pem", NAMES[at]);
    let key = |at: Instance| format!("{}-key.pem", NAMES[at]);
    let renamed = right.replace(&name(stranger), &name(other));
    group.site_mut(stranger).config = renamed.replace(&key(stranger), &key(other));
    let refused = said(&group.site(stranger).start_refused()?);
    require!(refused.contains("TWL1013E"), "not because of its certificate: {refused}");
    // Its own name, and the authority of another group.
    let foreign = Group::plan(&Design::default())?;
    let (own, theirs) = (group.papers().display(), foreign.papers().display());
    let foreign_papers = right.replace(&own.to_string(), &theirs.to_string());
    let before = told(&group, active, "TWL4104W");
    group.site_mut(stranger).config = foreign_papers;
    group.start(stranger)?;
    wait::until_true("a refusal", WHOLE_MAX, || told(&group, active, "TWL4104W") > before)
        .map_err(|error| group.explained(&error.to_string()))?;
    require!(group.until_in_sync(2)? == active, "it changed");
    group.kill(stranger)?;
    group.site_mut(stranger).config = right;
    group.start(stranger)?;
    group.until_whole()?;
    Ok(())
}

#[test]
fn new_certificates_count_without_a_restart() -> Try {
    let mut chance = Chance::announced("certificates are renewed");
    let group = Group::formed_on_net()?;
    let active = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&group, &load, 5)?;
    let starts = THREE.map(|at| told(&group, at, "TWL1001I"));
    let before = fs::read(group.papers().join("a.pem"))?;
    group.issue_papers()?;
    require!(fs::read(group.papers().join("a.pem"))? != before, "they are the same");
    wait::until_true("all read the new certificates", WHOLE_MAX, || {
        THREE.into_iter().all(|at| told(&group, at, "TWL4105I") > 0)
    })?;
    // Connections that stand keep the old ones; those that come now do not.
    let came = told(&group, active, "TWL4207I");
    let [one, _] = others(active);
    group.net()?.reset(active, one);
    wait::until_true("a new link", WHOLE_MAX, || told(&group, active, "TWL4207I") > came)
        .map_err(|error| group.explained(&error.to_string()))?;
    until_committed(&group, &load, 5)?;
    let at = group.until_whole()?;
    group.judge(at, &load.finish()?)?;
    for at in THREE {
        let again = told(&group, at, "TWL1001I") - starts[at];
        require!(again == 0, "{} began again", NAMES[at]);
    }
    Ok(())
}

#[test]
fn a_switch_that_is_done_already_or_that_cannot_be_done_is_answered_at_once() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let (asked, gone) = ((active + 1) % 3, (active + 2) % 3);
    for through in [active, asked] {
        let already = ["switch", "--to", NAMES[active]];
        let told = group.site(through).runs(&already, 0)?;
        require!(told == format!("{} is active already\n", NAMES[active]), "{told:?}");
    }
    group.kill(gone)?;
    group.until_in_sync(2)?;
    let began = Instant::now();
    let away = ["switch", "--to", NAMES[gone]];
    for through in [active, asked] {
        let output = group.site(through).towline(&away)?.output()?;
        let told = said(&output);
        require!(output.status.code() == Some(REFUSED), "{told}");
        let why = format!("'{}' is not in sync", NAMES[gone]);
        require!(told.contains(&why), "{told:?}");
    }
    require!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
    require!(group.active() == Some(active), "{}", group.explained("nothing was to happen"));
    group.start(gone)?;
    group.until_whole()?;
    // A new group needs all, and one of a group that is not new does not.
    let awaited = |count| format!("waits until {count} of 3 instances");
    let is_new = (0..3).any(|node| group.site(node).log().contains(&awaited(3)));
    require!(is_new, "{}", group.explained("the first one of a new group waits for all"));
    let log = group.site(gone).log();
    let again = log.rsplit_once("is starting").map(|(_, again)| again);
    require!(again.is_some_and(|again| again.contains(&awaited(2))), "{log}");
    Ok(())
}
