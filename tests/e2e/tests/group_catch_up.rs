//! Instances of a group that were away: they catch up from the others' logs, or by a copy, and one that
//! lost its disk has no say before it has what the others have.

use std::process::Command;
use std::time::Duration;

use towline_e2e::daemon::said;
use towline_e2e::group::{Design, Group, Instance, NAMES, WHOLE_MAX};
use towline_e2e::peer::Peer;
use towline_e2e::wait;
use towline_e2e::{Try, place, require};

/// What a group that must not elect anybody is given for it: several times what an election takes.
const NO_ELECTION: Duration = Duration::from_secs(4);

fn others(instance: Instance) -> [Instance; 2] {
    [(instance + 1) % 3, (instance + 2) % 3]
}

/// `towline load` against an instance, which must pass.
fn load(group: &Group, at: Instance, arguments: &[&str]) -> Try {
    let mut command = Command::new(place::towline()?);
    command.arg("load").args(arguments).args(["--url", &group.url(at), "--quiet"]);
    let output = command.output()?;
    require!(output.status.success(), "load {arguments:?}: {}", group.explained(&said(&output)));
    Ok(())
}

/// Messages in a queue as an instance has them once it is active.
fn depth_at(group: &Group, at: Instance, queue: &str) -> Try<u64> {
    let active = group.until_whole()?;
    if active != at {
        group.switch(active, Some(at))?;
        group.until_whole()?;
    }
    let depth = group.site(at).queue_number(queue, "depth");
    depth.map_err(|error| group.explained(&error.to_string()).into())
}

#[test]
fn a_replica_that_missed_thirty_thousand_messages_catches_up() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let away = others(active)[0];
    group.kill(away)?;
    load(&group, active, &["put", "--count", "30000", "--seconds", "60", "--size", "100"])?;
    group.start(away)?;
    group.until_whole()?;
    let depth = depth_at(&group, away, "load")?;
    require!(depth == 30_000, "{depth} of 30,000 messages: {}", group.explained(""));
    load(&group, away, &["get", "--count", "30000", "--seconds", "60"])?;
    Ok(())
}

#[test]
fn an_instance_that_lost_its_disk_is_rebuilt_and_is_as_good_as_the_others() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let [lost, other] = others(active);
    load(&group, active, &["put", "--count", "2000", "--size", "1000"])?;
    group.kill(lost)?;
    group.lose_disk(lost)?;
    group.start(lost)?;
    group.until_whole()?;
    // It and another one can go on without the one that had everything first.
    group.kill(active)?;
    let next = group.until_in_sync(2)?;
    require!(next == lost || next == other, "who is it?");
    if next != lost {
        group.switch(next, Some(lost))?;
        group.until_in_sync(2)?;
    }
    let depth = group.site(lost).queue_number("load", "depth")?;
    require!(depth == 2_000, "{depth} of 2,000 messages are there");
    Ok(())
}

#[test]
fn an_instance_that_lost_its_disk_does_not_help_to_elect_one_that_lacks_messages() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let [lost, stale] = others(active);
    group.kill(stale)?;
    // Acknowledged by the active one and the one that will lose its disk.
    load(&group, active, &["put", "--count", "500", "--size", "1000"])?;
    group.kill(active)?;
    group.kill(lost)?;
    group.lose_disk(lost)?;
    group.start(lost)?;
    group.start(stale)?;
    let end = std::time::Instant::now() + NO_ELECTION;
    while std::time::Instant::now() < end {
        let elected = group.active().map(|at| NAMES[at]);
        require!(elected.is_none(), "{}", group.explained(&format!("{elected:?} is active")));
        wait::pause(Duration::from_millis(100));
    }
    let mut peer = Peer::connect(group.address(stale))?;
    require!(peer.authenticate().is_err(), "a client is served by nobody");
    group.start(active)?;
    group.until_whole()?;
    let depth = depth_at(&group, lost, "load")?;
    require!(depth == 500, "{depth} of 500 messages are there");
    Ok(())
}

#[test]
fn a_replica_that_is_too_far_behind_gets_a_copy() -> Try {
    let config = "[queue_manager]\nimglogln = 1\n[log]\nextent_bytes = 4194304\n";
    let mut group = Group::formed_as(&Design { config: config.into(), ..Design::default() })?;
    let active = group.until_whole()?;
    let away = others(active)[0];
    load(&group, active, &["put", "--count", "300", "--size", "1000", "--queue", "kept"])?;
    group.kill(away)?;
    // Several extents are filled and not needed any more.
    let copied = || group.site(active).log().contains("TWL4212I");
    require!(!copied(), "a copy before anybody needed one");
    let stream = ["stream", "--count", "600", "--size", "50000", "--seconds", "60"];
    for _ in 0..2 {
        load(&group, active, &stream)?;
    }
    group.start(away)?;
    wait::until_true("a copy", WHOLE_MAX, || group.site(away).log().contains("TWL4213I"))
        .map_err(|error| group.explained(&error.to_string()))?;
    group.until_whole()?;
    let depth = depth_at(&group, away, "kept")?;
    require!(depth == 300, "{depth} of 300 messages are there");
    load(&group, away, &["get", "--count", "300", "--seconds", "20", "--queue", "kept"])?;
    Ok(())
}
