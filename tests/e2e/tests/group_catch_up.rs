//! Instances of a group that were away: they catch up from the others' logs, or by a copy, and one
//! that lost its disk has no say before it has what the others have.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use towline_e2e::daemon::said;
use towline_e2e::group::{Design, Group, Instance, NAMES, WHOLE_MAX};
use towline_e2e::peer::Peer;
use towline_e2e::program::Program;
use towline_e2e::wait;
use towline_e2e::{Try, paths, require};

/// The settings of a group that must hold no election: several times what an election takes.
const NO_ELECTION: Duration = Duration::from_secs(4);

fn others(instance: Instance) -> [Instance; 2] {
    [(instance + 1) % 3, (instance + 2) % 3]
}

/// `towline load` against an instance, which must pass.
fn load(group: &Group, at: Instance, arguments: &[&str]) -> Try {
    let mut command = Command::new(paths::towline()?);
    command.arg("load").args(arguments).args(["--url", &group.url(at), "--quiet"]);
    let output = command.output()?;
    require!(output.status.success(), "load {arguments:?}: {}", group.explained(&said(&output)));
    Ok(())
}

/// Messages in a queue as an instance has them once it is active. The elected instance answers only
/// when its door is open, and on a busy machine it may lose the election again before it was asked.
fn depth_at(group: &Group, at: Instance, queue: &str) -> Try<u64> {
    group.until_whole()?;
    let depth = wait::until("the instance is active", WHOLE_MAX, || {
        let active = group.active()?;
        if active != at {
            // It may be on its way already, or not in sync at this moment.
            drop(group.switch(active, Some(at)));
            return None;
        }
        group.site(at).queue_number(queue, "depth").ok()
    });
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
    require!(Peer::begun(group.address(stale)).is_err(), "no instance serves a client");
    group.start(active)?;
    group.until_whole()?;
    let depth = depth_at(&group, lost, "load")?;
    require!(depth == 500, "{depth} of 500 messages are there");
    Ok(())
}

/// A log with extents that are used again after a few seconds.
fn small_log() -> Design {
    let config = "[queue_manager]\nimglogln = 1\n[log]\nextent_bytes = 4194304\n";
    Design { config: config.into(), ..Design::default() }
}

/// How often an instance said a message.
fn times_said(group: &Group, at: Instance, id: &str) -> usize {
    group.site(at).log().matches(id).count()
}

/// The number behind `<a:b:c:d>`.
fn lsn(shown: &Value) -> Try<u64> {
    let shown = shown.as_str().unwrap_or_default();
    let parts = shown.trim_matches(['<', '>']).split(':').map(str::parse::<u64>);
    let parts = parts.collect::<Result<Vec<u64>, _>>()?;
    require!(parts.len() == 4, "{shown:?} is no position");
    Ok(parts.iter().fold(0, |number, part| number << 16 | part))
}

/// Fills the log until an instance that ends where the group is now needs a copy, and yields which
/// instance is active then: another one, for the one that missed it holds the log for it.
fn leave_behind(group: &Group, active: Instance) -> Try<Instance> {
    let there = lsn(&group.status(active)?["group_lsn"])?;
    let stream = ["stream", "--count", "600", "--size", "50000", "--seconds", "60"];
    for _ in 0..2 {
        load(group, active, &stream)?;
        // The older of two images counts.
        group.site(active).runs(&["image"], 0)?;
    }
    group.until_in_sync(2)?;
    let next = group.switch(active, None)?;
    let is_behind = || {
        let status = group.status(next).ok();
        status.is_some_and(|status| lsn(&status["catch_up_lsn"]).is_ok_and(|from| from > there))
    };
    // What it has, it retains for a minute for one that has not acknowledged anything to it.
    wait::until_true("places forgotten", 2 * WHOLE_MAX, is_behind)
        .map_err(|error| group.explained(&error.to_string()))?;
    group.until_in_sync(2)
}

/// A group with a small log and 60 MB of messages in `kept`, with one instance down and so far
/// behind that it needs a copy: the group, the active instance, and the one that is down.
fn with_one_too_far_behind() -> Try<(Group, Instance, Instance)> {
    let mut group = Group::formed_as(&small_log())?;
    let active = group.until_whole()?;
    let away = others(active)[0];
    let kept = ["put", "--count", "3000", "--size", "20000", "--queue", "kept", "--seconds", "60"];
    load(&group, active, &kept)?;
    group.until_whole()?;
    group.kill(away)?;
    let active = leave_behind(&group, active)?;
    Ok((group, active, away))
}

/// Starts an instance and waits until a copy is on its way to it.
fn start_until_copying(group: &mut Group, at: Instance) -> Try {
    group.start(at)?;
    let coming = group.site(at).data.join("copy/log/restoring");
    wait::until_true("a copy on its way", WHOLE_MAX, || coming.exists())
        .map_err(|error| group.explained(&error.to_string()).into())
}

fn require_all_kept(group: &Group, at: Instance) -> Try {
    let depth = depth_at(group, at, "kept")?;
    require!(depth == 3_000, "{depth} of 3,000 messages are there: {}", group.explained(""));
    Ok(())
}

#[test]
fn an_instance_that_lost_its_disk_gets_in_sync_by_one_copy_while_a_load_goes_on() -> Try {
    let mut group = Group::formed_as(&small_log())?;
    let active = group.until_whole()?;
    let lost = others(active)[0];
    let kept = ["put", "--count", "3000", "--size", "20000", "--queue", "kept", "--seconds", "60"];
    load(&group, active, &kept)?;
    let mut command = Command::new(paths::towline()?);
    // Not at full rate: on two processors that others use too it would only catch up when they
    // rest.
    command.args(["load", "stream", "--seconds", "300", "--size", "4096", "--quiet"]);
    command.args(["--rate", "3000"]);
    command.args(["--url", &group.url(active)]);
    let _load = Program::start(command)?;
    let puts = || group.site(active).queue_number("load", "puts").unwrap_or(0);
    wait::until_true("the load", WHOLE_MAX, || puts() > 1_000)?;
    // A busy machine may have outrun an instance before.
    let said = |group: &Group| ["TWL4212I", "TWL4217W"].map(|id| times_said(group, active, id));
    let before = said(&group);
    group.kill(lost)?;
    group.lose_disk(lost)?;
    group.start(lost)?;
    wait::until_true("a copy", WHOLE_MAX, || said(&group)[0] > before[0])
        .map_err(|error| group.explained(&error.to_string()))?;
    group.until_whole()?;
    let puts = || group.site(active).queue_number("load", "puts").unwrap_or(0);
    let there = puts();
    wait::until_true("the load goes on", WHOLE_MAX, || puts() > there)
        .map_err(|error| group.explained(&error.to_string()))?;
    let told = said(&group);
    let wanted = [before[0] + 1, before[1]];
    require!(told == wanted, "{told:?}: {}", group.explained("one copy, and log held for it"));
    Ok(())
}

#[test]
fn a_copy_whose_taker_is_killed_leaves_its_log_as_it_was_and_the_next_one_succeeds() -> Try {
    let (mut group, _, away) = with_one_too_far_behind()?;
    start_until_copying(&mut group, away)?;
    group.kill(away)?;
    require!(times_said(&group, away, "TWL4213I") == 0, "it was too late to break the copy");
    group.site(away).runs(&["log", "verify"], 0)?;
    group.start(away)?;
    group.until_whole()?;
    require_all_kept(&group, away)
}

#[test]
fn a_copy_whose_giver_is_killed_leaves_the_log_as_it_was_and_another_one_gives_it() -> Try {
    let (mut group, active, away) = with_one_too_far_behind()?;
    start_until_copying(&mut group, away)?;
    group.kill(active)?;
    // It votes with the log that it has, for the one that has everything.
    let next = group.until_in_sync(2)?;
    require!(next != away && next != active, "{}", group.explained("who is active?"));
    require!(times_said(&group, away, "TWL4214W") > 0, "{}", group.explained("no broken copy"));
    group.start(active)?;
    group.until_whole()?;
    require_all_kept(&group, away)
}

#[test]
fn a_replica_that_is_too_far_behind_gets_a_copy() -> Try {
    let mut group = Group::formed_as(&small_log())?;
    let active = group.until_whole()?;
    let away = others(active)[0];
    load(&group, active, &["put", "--count", "300", "--size", "1000", "--queue", "kept"])?;
    group.kill(away)?;
    require!(times_said(&group, active, "TWL4212I") == 0, "a copy before anybody needed one");
    leave_behind(&group, active)?;
    group.start(away)?;
    wait::until_true("a copy", WHOLE_MAX, || group.site(away).log().contains("TWL4213I"))
        .map_err(|error| group.explained(&error.to_string()))?;
    group.until_whole()?;
    let depth = depth_at(&group, away, "kept")?;
    require!(depth == 300, "{depth} of 300 messages are there");
    load(&group, away, &["get", "--count", "300", "--seconds", "20", "--queue", "kept"])?;
    Ok(())
}

/// A load that goes on through all instances until it is dropped.
fn steady_load(group: &Group, rate: &str) -> Try<Program> {
    let mut command = Command::new(paths::towline()?);
    command.args(["load", "stream", "--seconds", "300", "--size", "12000", "--quiet"]);
    command.args(["--reconnect", "--rate", rate]);
    for url in group.urls() {
        command.args(["--url", &url]);
    }
    Program::start(command)
}

#[test]
fn an_active_that_is_killed_under_load_and_is_back_soon_is_sent_what_it_missed_and_no_copy() -> Try
{
    let mut group = Group::formed_as(&small_log())?;
    group.until_whole()?;
    let _load = steady_load(&group, "400")?;
    for _ in 0..2 {
        let killed = group.until_whole()?;
        let there = lsn(&group.status(killed)?["group_lsn"])?;
        group.kill(killed)?;
        let active = group.until_active(Some(killed))?;
        // Far more than the images of the new active instance need.
        let missed = || {
            let status = group.status(active).ok();
            let end = status.and_then(|status| lsn(&status["group_lsn"]).ok());
            end.is_some_and(|end| end > there + (24 << 20))
        };
        wait::until_true("the load goes on", WHOLE_MAX, missed)
            .map_err(|error| group.explained(&error.to_string()))?;
        group.start(killed)?;
        group.until_whole()?;
        let copies = times_said(&group, killed, "TWL4213I");
        require!(copies == 0, "{}", group.explained("it was only a moment behind"));
    }
    Ok(())
}

#[test]
fn an_instance_that_was_just_brought_a_copy_elects_when_the_one_that_gave_it_loses_its_log() -> Try
{
    let (mut group, active, away) = with_one_too_far_behind()?;
    let _load = steady_load(&group, "200")?;
    group.start(away)?;
    wait::until_true("a copy", WHOLE_MAX, || times_said(&group, away, "TWL4213I") > 0)
        .map_err(|error| group.explained(&error.to_string()))?;
    // It has not caught up with what came behind its copy.
    group.kill(active)?;
    group.lose_disk(active)?;
    group.start(active)?;
    let next = group.until_whole()?;
    require!(next != active, "{}", group.explained("it had lost everything"));
    require_all_kept(&group, away)
}
