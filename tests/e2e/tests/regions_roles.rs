//! Two regions change their roles: planned, there and back, without loss; by a fail-over, which
//! loses what was not received and no more; and a switch that cannot be finished is taken back.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::Site;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, require, wait};

const SMALL: &str = "[log]\nextent_bytes = 4194304\n";

fn of(size: usize) -> RegionsDesign {
    RegionsDesign { size, config: SMALL.into(), ..RegionsDesign::default() }
}

/// Puts messages at the active instance of a group.
fn put(regions: &Regions, group: usize, count: usize, text: &str) -> Try {
    let active = regions.until_active(group)?;
    let lines: String = (0..count).map(|number| format!("{text} {number}\n")).collect();
    let arguments = ["put", "Q", "--lines", "--transaction", "20"];
    regions.site(group, active).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

/// How many messages the active instance of a group has.
fn depth(regions: &Regions, group: usize) -> Try<u64> {
    let active = regions.until_active(group)?;
    regions.site(group, active).queue_number("Q", "depth")
}

/// Orders a change of roles at an instance, and what it answers.
fn order(regions: &Regions, (group, at): (usize, usize), what: &[&str]) -> Try<Value> {
    let arguments = [&["region"], what, &["--yes", "--json"]].concat();
    let said = regions.site(group, at).runs(&arguments, 0);
    let said = said.map_err(|error| regions.explained(&error.to_string()))?;
    Ok(serde_json::from_str(&said)?)
}

/// The live group hands over to the other one.
fn switch(regions: &Regions, from: usize) -> Try<Value> {
    let active = regions.until_active(from)?;
    // One that has just become active has no report of the other group yet, and refuses.
    let site = regions.site(from, active);
    let is_fit = || site.runs(&["region", "switch", "--dry-run"], 0).is_ok();
    wait::until_true("nothing in the way of a switch", LONG, is_fit)?;
    let done = order(regions, (from, active), &["switch"])?;
    println!("switched: {done}");
    regions.until_active(1 - from)?;
    Ok(done)
}

/// The batches of the log of an instance that has ended, each with its records.
fn batches(regions: &Regions, group: usize, at: usize) -> Try<Vec<String>> {
    let dump = regions.site(group, at).runs(&["log", "dump"], 0)?;
    let mut batches: Vec<String> = Vec::new();
    for line in dump.lines().filter(|line| !line.contains("> image, ")) {
        match batches.last_mut() {
            Some(batch) if line.starts_with(' ') => batch.extend(["\n", line]),
            _ => batches.push(line.to_owned()),
        }
    }
    Ok(batches)
}

/// Of two groups that have ended, each log of the recovery group is the beginning of one of the
/// live group's.
fn logs_are_one(regions: &Regions, live: usize, size: usize) -> Try {
    let mut all = [Vec::new(), Vec::new()];
    for group in [WEST, EAST] {
        for at in 0..size {
            regions.site(group, at).runs(&["log", "verify"], 0)?;
            all[group].push(batches(regions, group, at)?);
        }
    }
    for (at, log) in all[1 - live].iter().enumerate() {
        require!(log.len() > 10, "too little to compare: {log:?}");
        let equal = all[live].iter().map(|of_live| {
            let first = of_live.iter().position(|batch| Some(batch) == log.first());
            let there = first.and_then(|first| of_live.get(first..)).unwrap_or_default();
            log.iter().zip(there).take_while(|(one, other)| one == other).count()
        });
        let equal = equal.max().unwrap_or(0);
        require!(equal == log.len(), "{at} has what no log of live has: {}", log[equal]);
    }
    Ok(())
}

fn there_and_back(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 300, "one")?;
    for round in 0..2 {
        for from in [WEST, EAST] {
            let before = depth(&regions, from)?;
            switch(&regions, from)?;
            require!(depth(&regions, 1 - from)? == before, "messages are lost or doubled");
            regions.until_towed_by(1 - from)?;
            put(&regions, 1 - from, 100, &format!("round {round}"))?;
        }
    }
    regions.until_towed_by(WEST)?;
    require!(depth(&regions, WEST)? == 700, "{}", depth(&regions, WEST)?);
    let active = regions.until_active(WEST)?;
    let status = regions.site(WEST, active).status()?;
    let changes = status["region"]["role_changes"].as_array().cloned().unwrap_or_default();
    require!(changes.len() == 4, "{}", status["region"]);
    let cause = changes[0]["cause"].as_str().unwrap_or_default();
    require!(cause.starts_with("switch, ordered by ") && changes[0]["live"] == "WEST", "{cause}");
    regions.stop_all()?;
    logs_are_one(&regions, WEST, size)
}

#[test]
fn a_switch_there_and_back_loses_nothing_and_both_logs_are_one() -> Try {
    there_and_back(1)
}

#[test]
fn groups_of_three_switch_there_and_back_and_lose_nothing() -> Try {
    there_and_back(3)
}

#[test]
fn roles_stay_when_all_instances_start_again() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, WEST, 100, "one")?;
    switch(&regions, WEST)?;
    put(&regions, EAST, 100, "two")?;
    regions.until_towed_by(EAST)?;
    regions.stop_all()?;
    for group in [WEST, EAST] {
        regions.start(group, 0)?;
    }
    regions.until_towed_by(EAST)?;
    require!(depth(&regions, EAST)? == 200, "{}", depth(&regions, EAST)?);
    let west = regions.group_status(WEST, 0)?;
    require!(west["group_role"] == "recovery" && west["serving"] == false, "{west}");
    for group in [EAST, WEST] {
        regions.kill(group, 0)?;
        regions.start(group, 0)?;
    }
    put(&regions, EAST, 100, "three")?;
    regions.until_towed_by(EAST)?;
    regions.stop_all()?;
    logs_are_one(&regions, EAST, 1)
}

fn live_is_lost(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 300, "kept")?;
    regions.until_towed()?;
    let refused = regions.site(WEST, 0).runs(&["region", "failover", "--yes", "--json"], 1)?;
    require!(refused.contains("is live"), "{refused}");
    let asked = size - 1;
    let site = regions.site(EAST, asked);
    let beside = site.runs(&["region", "failover", "--yes"], 1)?;
    require!(beside.contains("the live group is connected with instance"), "{beside}");
    regions.order(EAST, Order::Cut(Ways::Both));
    put(&regions, WEST, 60, "lost")?;
    for at in 0..size {
        regions.kill(WEST, at)?;
    }
    let site = regions.site(EAST, asked);
    let is_lost = || site.runs(&["region", "failover", "--dry-run"], 0).is_ok();
    wait::until_true("the live group is seen to be gone", LONG, is_lost)?;
    let said = regions.site(EAST, asked).runs(&["region", "failover", "--dry-run", "--json"], 0)?;
    let outlook: Value = serde_json::from_str(&said)?;
    require!(outlook["loss"]["is_known"] == true, "{outlook}");
    require!(outlook["loss"]["bytes"] == 0, "nothing of it was heard of: {outlook}");
    let done = order(&regions, (EAST, asked), &["failover"])?;
    println!("failed over: {done}");
    require!(depth(&regions, EAST)? == 300, "{}", depth(&regions, EAST)?);
    put(&regions, EAST, 50, "new")?;

    // The old live group comes back, and serves until it hears; neither takes the log of the other.
    regions.order(WEST, Order::Cut(Ways::Both));
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    require!(depth(&regions, WEST)? == 360, "{}", depth(&regions, WEST)?);
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.order(WEST, Order::Heal(Ways::Both));
    let old = regions.until_fenced(WEST)?;
    let seen = regions.group_status(WEST, old)?;
    require!(seen["other_region"]["status"] == "partitioned", "{seen}");
    wait::until_true("both to be partitioned", LONG, || {
        regions.other_as_seen(EAST).is_ok_and(|seen| seen["status"] == "partitioned")
    })
    .map_err(|error| regions.explained(&error.to_string()))?;
    let active = regions.until_active(EAST)?;
    let status = regions.site(EAST, active).status()?;
    let change = &status["region"]["role_changes"][0];
    let cause = change["cause"].as_str().unwrap_or_default();
    require!(cause.starts_with("fail-over, ordered by ") && change["live"] == "EAST", "{change}");
    regions.stop_all()
}

#[test]
fn a_fail_over_keeps_what_was_received_and_the_old_live_group_is_partitioned() -> Try {
    live_is_lost(1)
}

#[test]
fn a_fail_over_of_three_keeps_what_was_received() -> Try {
    live_is_lost(3)
}

#[test]
fn a_switch_that_does_not_come_to_its_end_is_taken_back_with_the_reason() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, WEST, 300, "one")?;
    regions.until_towed()?;
    let east = regions.site(EAST, 0).runs(&["region", "switch", "--dry-run", "--json"], 3)?;
    require!(east.contains("is not live"), "{east}");
    // No order without time to carry it out.
    let none = ["region", "switch", "--yes", "--timeout", "0"];
    regions.site(WEST, 0).runs(&none, 2)?;
    regions.until_east_says_that_it_is_in_sync()?;
    // What is sent arrives, and no report comes back.
    regions.order(EAST, Order::Stall(Ways::Back));
    put(&regions, WEST, 20, "two")?;
    let arguments = ["region", "switch", "--yes", "--json", "--timeout", "1"];
    let refused = regions.site(WEST, 0).runs(&arguments, 1)?;
    require!(refused.contains("it was taken back"), "{refused}");
    put(&regions, WEST, 20, "three")?;
    require!(depth(&regions, WEST)? == 340, "{}", depth(&regions, WEST)?);
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.until_towed()?;
    regions.order(EAST, Order::Cut(Ways::Both));
    wait::until_true("the link to be seen down", LONG, || {
        regions.east_as_seen().is_ok_and(|seen| seen["connected"] == false)
    })?;
    let why = regions.site(WEST, 0).runs(&["region", "switch", "--dry-run"], 3)?;
    require!(why.contains("in the way: the other group is not connected"), "{why}");
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.until_towed()?;
    switch(&regions, WEST)?;
    require!(depth(&regions, EAST)? == 340, "{}", depth(&regions, EAST)?);
    regions.until_towed_by(EAST)?;
    regions.stop_all()?;
    logs_are_one(&regions, EAST, 1)
}

/// Puts whole units of 20 messages at an instance until one is refused: how many were acknowledged.
fn put_until_refused(site: &Site, input: &Path, ends: &AtomicBool) -> Try<u64> {
    let mut acknowledged = 0;
    loop {
        require!(!ends.load(Ordering::SeqCst), "the test has failed");
        let mut command = site.towline(&["put", "Q", "--lines", "--transaction", "20"])?;
        command.stdin(File::open(input)?).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status()?.success() {
            return Ok(acknowledged);
        }
        acknowledged += 20;
    }
}

#[test]
fn a_switch_under_load_keeps_what_was_acknowledged_and_no_half_unit() -> Try {
    const CLIENTS: usize = 3;
    let mut regions = Regions::towed(&of(1))?;
    let mut live = WEST;
    let mut before = 0;
    for _ in 0..4 {
        let site = regions.site(live, 0);
        let input = site.scratch().join("twenty");
        fs::write(&input, "a line\n".repeat(20))?;
        let ends = AtomicBool::new(false);
        let acknowledged = thread::scope(|scope| -> Try<u64> {
            let put = || put_until_refused(site, &input, &ends).map_err(|error| error.to_string());
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(put)).collect();
            let has_some =
                || site.queue_number("Q", "depth").is_ok_and(|depth| depth >= before + 200);
            let switched = wait::until_true("some messages", LONG, has_some)
                .and_then(|()| switch(&regions, live));
            ends.store(switched.is_err(), Ordering::SeqCst);
            switched?;
            let mut sum = 0;
            for client in clients {
                sum += client.join().map_err(|_| "a client panicked")??;
            }
            Ok(sum)
        })?;
        live = 1 - live;
        let after = depth(&regions, live)?;
        let most = before + acknowledged + 20 * CLIENTS as u64;
        require!(
            (before + acknowledged..=most).contains(&after) && after % 20 == 0,
            "{before} were there, {acknowledged} acknowledged, {after} are there"
        );
        before = after;
    }
    regions.until_towed_by(live)?;
    regions.stop_all()?;
    logs_are_one(&regions, live, 1)
}

/// The group that is live, once the other one follows it and has all.
fn until_one_is_live(regions: &Regions) -> Try<usize> {
    let is_live = |group: usize| {
        let follows = |seen: Value| seen["in_sync"] == true && seen["connected"] == true;
        regions.active_of(1 - group).is_none() && regions.other_as_seen(group).is_ok_and(follows)
    };
    wait::until("one group to be live", LONG, || [WEST, EAST].into_iter().find(|at| is_live(*at)))
        .map_err(|error| regions.explained(&error.to_string()))
}

/// A process of either group is killed at a random moment of each switch.
fn killed_in_switches(test: &str, size: usize, rounds: usize) -> Try {
    let mut chance = Chance::announced(test);
    let mut regions = Regions::towed(&of(size))?;
    // A switch takes a few round trips, so that its middle is hit.
    for group in [WEST, EAST] {
        regions.order(group, Order::Delay(Ways::Both, Duration::from_millis(25)));
    }
    let (mut live, mut count) = (WEST, 0);
    for round in 0..rounds {
        put(&regions, live, 50, &format!("round {round}"))?;
        count += 50;
        let active = regions.until_active(live)?;
        let arguments = ["region", "switch", "--yes", "--json", "--timeout", "5"];
        let mut command = regions.site(live, active).towline(&arguments)?;
        let mut switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        wait::pause(Duration::from_micros(chance.within(0, 200_000)));
        let group = chance.index(2);
        let at = match group == live {
            true => active,
            false => regions.relay_of(group).unwrap_or_else(|| chance.index(size)),
        };
        regions.kill(group, at)?;
        regions.start(group, at)?;
        switch.wait()?;
        let next = until_one_is_live(&regions)?;
        println!("round {round}: killed {group}.{at}, {live} was live, {next} is");
        live = next;
        require!(depth(&regions, live)? == count, "{}, not {count}", depth(&regions, live)?);
    }
    regions.stop_all()?;
    logs_are_one(&regions, live, size)
}

#[test]
fn a_process_that_is_killed_in_a_switch_loses_nothing_and_leaves_one_live_group() -> Try {
    killed_in_switches("killed_in_a_switch", 1, 6)
}

#[test]
fn an_instance_of_three_that_is_killed_in_a_switch_loses_nothing() -> Try {
    killed_in_switches("killed_in_a_switch_of_three", 3, 4)
}

fn killed_in_a_fail_over(size: usize) -> Try {
    let mut chance = Chance::announced("killed_in_a_fail_over");
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 100, "kept")?;
    regions.until_towed()?;
    for at in 0..size {
        regions.kill(WEST, at)?;
    }
    for _ in 0..3 {
        let (asked, killed) = (chance.index(size), chance.index(size));
        let arguments = ["region", "failover", "--yes", "--json", "--timeout", "5"];
        let mut command = regions.site(EAST, asked).towline(&arguments)?;
        let mut failover = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        wait::pause(Duration::from_micros(chance.within(20_000, 150_000)));
        regions.kill(EAST, killed)?;
        regions.start(EAST, killed)?;
        failover.wait()?;
    }
    if regions.active_of(EAST).is_none() {
        // No majority was marked: it is ordered again, and goes on with what was.
        let arguments = ["region", "failover", "--yes", "--json"];
        let mut command = regions.site(EAST, 0).towline(&arguments)?;
        command.stdout(Stdio::null()).status()?;
    }
    require!(depth(&regions, EAST)? == 100, "{}", depth(&regions, EAST)?);
    for at in 0..size {
        wait::until_true("each instance to be of a live group", LONG, || {
            let status = regions.group_status(EAST, at);
            status.is_ok_and(|status| status["group_role"] == "live")
        })
        .map_err(|error| regions.explained(&error.to_string()))?;
    }
    put(&regions, EAST, 10, "new")?;
    regions.stop_all()
}

#[test]
fn a_fail_over_goes_on_whichever_instance_is_killed() -> Try {
    killed_in_a_fail_over(3)
}

#[test]
fn a_fail_over_of_one_goes_on_when_it_is_killed() -> Try {
    killed_in_a_fail_over(1)
}

/// The last batch is decided, and the link breaks before the other region has it: neither serves
/// until it stands again, or one is promoted.
#[test]
fn a_switch_in_doubt_ends_when_the_link_stands_again() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, WEST, 100, "one")?;
    regions.until_towed()?;
    regions.until_east_says_that_it_is_in_sync()?;
    // Reports arrive late enough for the process to be killed behind its last batch.
    regions.order(EAST, Order::Delay(Ways::There, Duration::from_millis(1_000)));
    // The command waits so long for the other group to serve.
    let arguments = ["region", "switch", "--yes", "--json", "--timeout", "15"];
    let mut command = regions.site(WEST, 0).towline(&arguments)?;
    let mut switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait::until_true("the last batch to be decided", LONG, || {
        let status = regions.site(WEST, 0).status();
        status.is_ok_and(|status| status["region"]["live"] == "EAST")
    })?;
    regions.kill(WEST, 0)?;
    regions.order(EAST, Order::Refuse);
    switch.wait()?;
    regions.start(WEST, 0)?;
    let west = regions.group_status(WEST, 0)?;
    require!(west["group_role"] == "recovery" && west["serving"] == false, "{west}");
    regions.order(EAST, Order::Delay(Ways::There, Duration::ZERO));
    regions.order(EAST, Order::Heal(Ways::Both));
    require!(until_one_is_live(&regions)? == EAST, "west is live");
    require!(depth(&regions, EAST)? == 100, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    logs_are_one(&regions, EAST, 1)
}

/// All that was written is acknowledged, and that is of before: the other group writes no more.
fn answers_no_more(size: usize, stops: impl Fn(&mut Regions) -> Try) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 50, "before")?;
    regions.until_towed()?;
    let active = regions.until_active(WEST)?;
    stops(&mut regions)?;
    let arguments = ["region", "switch", "--yes", "--json", "--timeout", "3"];
    let refused = regions.site(WEST, active).runs(&arguments, 1)?;
    println!("{refused}");
    require!(!refused.contains("in doubt"), "{refused}");
    put(&regions, WEST, 50, "behind")?;
    require!(regions.until_active(WEST)? == active, "it was live all the time");
    require!(depth(&regions, WEST)? == 100, "{}", depth(&regions, WEST)?);
    regions.stop_all()
}

#[test]
fn no_group_hands_over_to_one_of_which_nothing_is_heard_since() -> Try {
    answers_no_more(1, |regions| {
        regions.order(EAST, Order::Stall(Ways::Back));
        Ok(())
    })
}

#[test]
fn no_group_hands_over_to_one_that_has_just_lost_its_majority() -> Try {
    answers_no_more(3, |regions| {
        let relay = regions.relay_of(EAST).ok_or("nothing is shipped")?;
        (0..3).filter(|at| *at != relay).try_for_each(|at| regions.kill(EAST, at))
    })
}
