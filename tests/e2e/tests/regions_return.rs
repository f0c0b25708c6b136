//! An old live group comes back: it is partitioned, lists and exports what its log has behind the
//! fork, and returns as a recovery group to which only the new log is sent; also when it is killed
//! in the middle of that. One that has nothing behind the fork returns without an order.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::one_log;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, require, wait};

const SMALL: &str = "[log]\nextent_bytes = 4194304\n";
/// Of a message that is put in the new history: so that there is something to be sent.
const NEW_BYTES: usize = 4_000;

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

/// Gets messages at the active instance of a group; their bodies.
fn get(regions: &Regions, group: usize, count: usize) -> Try<Vec<String>> {
    let active = regions.until_active(group)?;
    let got = regions.site(group, active).runs(&["get", "Q", "--count", &count.to_string()], 0)?;
    Ok(got.lines().map(str::to_owned).collect())
}

fn depth(regions: &Regions, group: usize) -> Try<u64> {
    let active = regions.until_active(group)?;
    regions.site(group, active).queue_number("Q", "depth")
}

/// West goes on alone for a moment and is lost, and east is promoted.
fn fail_over(regions: &mut Regions, size: usize, tail: impl Fn(&Regions) -> Try) -> Try {
    put(regions, WEST, 300, "kept")?;
    regions.until_towed()?;
    regions.order(EAST, Order::Cut(Ways::Both));
    tail(regions)?;
    for at in 0..size {
        regions.kill(WEST, at)?;
    }
    promote(regions, size)
}

/// West is lost, and east is promoted.
fn promote(regions: &Regions, size: usize) -> Try {
    // A link that is cut stands until nothing was heard for a while.
    let is_lost = || {
        let dry_run = ["region", "failover", "--dry-run"];
        regions.site(EAST, size - 1).runs(&dry_run, 0).is_ok()
    };
    wait::until_true("the live group is seen to be gone", LONG, is_lost)?;
    let said = regions.site(EAST, size - 1).runs(&["region", "failover", "--yes", "--json"], 0);
    said.map_err(|error| regions.explained(&error.to_string()))?;
    let new = format!("new {}", "x".repeat(NEW_BYTES));
    put(regions, EAST, 400, &new)
}

/// Waits until both know it, and west serves no client; the instance that leads there.
fn until_partitioned(regions: &Regions) -> Try<usize> {
    wait::until_true("both to be partitioned", LONG, || {
        regions.other_as_seen(EAST).is_ok_and(|seen| seen["status"] == "partitioned")
    })
    .map_err(|error| regions.explained(&error.to_string()))?;
    // The first time that they meet, one of them may not have read its histories yet.
    let active = regions.until_fenced(WEST)?;
    let arguments = ["region", "divergence", "--summary", "--json"];
    wait::until_true("west to know the fork", LONG, || {
        regions.site(WEST, active).runs(&arguments, 0).is_ok()
    })
    .map_err(|error| regions.explained(&error.to_string()))?;
    Ok(active)
}

/// What `region divergence` lists, and its summary.
fn divergence(regions: &Regions, at: usize, more: &[&str]) -> Try<(Vec<Value>, Value)> {
    let arguments = [&["region", "divergence", "--json"], more].concat();
    let said = regions.site(WEST, at).runs(&arguments, 0)?;
    let mut rows = said.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let summary = rows.pop().ok_or("nothing was said")?;
    require!(summary["kind"] == "summary", "{summary}");
    Ok((rows, summary))
}

/// Waits until all of west follows east.
fn until_all_follow(regions: &Regions, size: usize) -> Try {
    for at in 0..size {
        wait::until_true("all of west to be in recovery", LONG, || {
            let status = regions.group_status(WEST, at);
            status.is_ok_and(|status| {
                status["group_role"] == "recovery" && status["serving"] == false
            })
        })
        .map_err(|error| regions.explained(&error.to_string()))?;
    }
    regions.until_towed_by(EAST).map(drop)
}

/// What goes on at west behind the fork: 60 messages are put, of which three are named, 40 of the
/// older ones are got, and one of those that are named.
fn tail(regions: &Regions) -> Try {
    put(regions, WEST, 57, "lost")?;
    let active = regions.until_active(WEST)?;
    let site = regions.site(WEST, active);
    for number in 0..3 {
        let (id, other) = (format!("lost-{number}"), format!("c-{number}"));
        site.runs(&["put", "Q", &id, "--message-id", &id, "--correlation-id", &other], 0)?;
    }
    require!(get(regions, WEST, 40)?.iter().all(|body| body.starts_with("kept ")), "not in order");
    let one = ["get", "Q", "--correlation-id", "c-0"];
    require!(site.runs(&one, 0)?.contains("lost-0"), "another message");
    Ok(())
}

/// Where east went on without west.
fn fork(regions: &Regions) -> Try<String> {
    let east = regions.until_active(EAST)?;
    let status = regions.site(EAST, east).status()?;
    let fork = status["region"]["role_changes"][0]["fork"].as_str();
    Ok(fork.ok_or("no fork is known")?.to_owned())
}

fn returns(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    fail_over(&mut regions, size, tail)?;
    regions.order(WEST, Order::Cut(Ways::Both));
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    // Before it hears, what it has is saved, and it goes on.
    let active = regions.until_active(WEST)?;
    let fork = fork(&regions)?;
    let early = regions.site(WEST, active).scratch().join("early");
    let early = early.to_str().ok_or("a path that is no text")?;
    if size > 1 {
        let arguments = ["--summary", "--fork", &fork, "--export", early];
        let (_, summary) = divergence(&regions, active, &arguments)?;
        require!(summary["exported"] == 59, "{summary}");
    }
    put(&regions, WEST, 1, "late")?;
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.order(WEST, Order::Heal(Ways::Both));
    let active = until_partitioned(&regions)?;

    let (rows, summary) = divergence(&regions, active, &[])?;
    let of = |change: &str| -> Vec<Value> {
        rows.iter().filter(|row| row["change"] == change).cloned().collect()
    };
    let counts = ["added", "added_and_removed", "removed", "moved"].map(|it| of(it).len());
    require!(counts == [60, 1, 40, 0], "{counts:?}: {summary}");
    let added = of("added");
    let ids: BTreeSet<&str> = added.iter().filter_map(|row| row["message_id"].as_str()).collect();
    let expected = ["lost-1", "lost-2"].map(|id| format!("ID:AMQP_NO_PREFIX:{id}"));
    require!(expected.iter().all(|id| ids.contains(id.as_str())), "{ids:?}");
    let again = of("added_and_removed");
    let again = again.first().ok_or("none")?;
    let is_first = again["message_id"].as_str().is_some_and(|id| id.ends_with(":lost-0"));
    require!(is_first && again["correlation_id"] == "c-0", "{again}");
    require!(
        of("removed").iter().all(|row| row["how"] == "got" && row["queue"] == "Q"),
        "{summary}"
    );

    let refused = regions.site(WEST, active).runs(&["region", "rejoin", "--yes", "--json"], 1)?;
    // What was put later is not in that file.
    let why = if size > 1 { "export it again" } else { "was not exported" };
    require!(refused.contains(why), "{refused}");
    let dry = ["region", "rejoin", "--dry-run", "--discard-divergence", "--json"];
    let outlook: Value = serde_json::from_str(&regions.site(WEST, active).runs(&dry, 0)?)?;
    require!(outlook["fork_lsn"] == summary["fork_lsn"], "{outlook}");

    let file = regions.site(WEST, active).scratch().join("exported");
    let file = file.to_str().ok_or("a path that is no text")?;
    let (_, summary) = divergence(&regions, active, &["--summary", "--export", file])?;
    require!(summary["exported"] == 60, "{summary}");

    let done = regions.site(WEST, active).runs(&["region", "rejoin", "--yes", "--json"], 0);
    println!("returned: {}", done.map_err(|error| regions.explained(&error.to_string()))?.trim());
    until_all_follow(&regions, size)?;
    sent_little(&regions, &summary)?;

    require!(depth(&regions, EAST)? == 700, "{}", depth(&regions, EAST)?);
    let east = regions.until_active(EAST)?;
    let said = regions.site(EAST, east).runs(&["region", "put-again", file, "--json"], 0)?;
    let put: Value = serde_json::from_str(&said)?;
    require!(put["put"] == 60, "{put}");
    require!(depth(&regions, EAST)? == 760, "{}", depth(&regions, EAST)?);
    let one = ["get", "Q", "--correlation-id", "c-1", "--json"];
    let got: Value = serde_json::from_str(&regions.site(EAST, east).runs(&one, 0)?)?;
    require!(got.to_string().contains("lost-1") && got.to_string().contains("c-1"), "{got}");
    regions.until_towed_by(EAST)?;
    regions.stop_all()?;
    one_log::follows(&regions, EAST, size)
}

/// What east sent since is hardly more than its log since the fork.
fn sent_little(regions: &Regions, summary: &Value) -> Try {
    let seen = regions.other_as_seen(EAST)?;
    let sent = seen["log_bytes_sent"].as_u64().ok_or("no count")?;
    let wire = seen["wire_bytes_sent"].as_u64().ok_or("no count")?;
    let east = regions.until_active(EAST)?;
    let status = regions.site(EAST, east).status()?;
    println!("{sent} bytes of log, {wire} on the link, of {} ({summary})", status["region"]);
    require!(seen["rebase_bytes"] == 0, "a copy was made: {seen}");
    // Of 400 messages of 4 KB, which are all that is new.
    let new = 400 * (NEW_BYTES as u64 + 200);
    let most = new + new / 10 + (1 << 20);
    require!(sent <= most && wire <= most, "{sent} and {wire} bytes, more than {most}");
    Ok(())
}

#[test]
fn an_old_live_group_lists_its_tail_and_returns() -> Try {
    returns(1)
}

#[test]
fn an_old_live_group_of_three_returns_by_one_order() -> Try {
    returns(3)
}

/// Without a message in its tail: it follows by itself.
fn returns_alone(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    fail_over(&mut regions, size, |_| Ok(()))?;
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    regions.order(EAST, Order::Heal(Ways::Both));
    until_all_follow(&regions, size)?;
    require!(depth(&regions, EAST)? == 700, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    one_log::follows(&regions, EAST, size)
}

#[test]
fn an_old_live_group_without_a_tail_follows_without_an_order() -> Try {
    returns_alone(1)
}

#[test]
fn an_old_live_group_of_three_without_a_tail_follows_without_an_order() -> Try {
    returns_alone(3)
}

/// One of three is away when the return is ordered: it hears of it when it comes.
#[test]
fn an_instance_that_was_away_returns_when_it_comes() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    fail_over(&mut regions, 3, tail)?;
    for at in 0..3 {
        regions.start(WEST, at)?;
    }
    regions.order(EAST, Order::Heal(Ways::Both));
    let active = until_partitioned(&regions)?;
    let away = (active + 1) % 3;
    regions.kill(WEST, away)?;
    let arguments = ["region", "rejoin", "--yes", "--discard-divergence", "--json"];
    let said = regions.site(WEST, active).runs(&arguments, 0);
    said.map_err(|error| regions.explained(&error.to_string()))?;
    regions.until_towed_by(EAST)?;
    put(&regions, EAST, 50, "later")?;
    regions.start(WEST, away)?;
    until_all_follow(&regions, 3)?;
    require!(depth(&regions, EAST)? == 750, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    one_log::follows(&regions, EAST, 3)
}

/// Whether an instance of west has an order to return.
fn returns_at(regions: &Regions, at: usize) -> bool {
    regions.site(WEST, at).data.join("region-return").exists()
}

/// The one that led went on alone: what it has of that was never acknowledged, and neither holds up
/// the two that lost nothing nor is in their way.
#[test]
fn one_of_three_with_a_tail_that_nobody_else_has_follows_without_an_order() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    put(&regions, WEST, 300, "kept")?;
    regions.until_towed()?;
    regions.order(EAST, Order::Cut(Ways::Both));
    let last = regions.until_active(WEST)?;
    let status = regions.group_status(WEST, last)?;
    let end = status["instances"][last]["ack_lsn"].as_str().ok_or("no ack_lsn")?.to_owned();
    let others = [(last + 1) % 3, (last + 2) % 3];
    for at in others {
        regions.kill(WEST, at)?;
    }
    let mut command = regions.site(WEST, last).towline(&["put", "Q", "not confirmed"])?;
    let mut puts = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let arguments = ["--fork", &end];
    let is_there = || divergence(&regions, last, &arguments).is_ok_and(|(rows, _)| rows.len() == 1);
    wait::until_true("a batch that no majority has", LONG, is_there)?;
    require!(puts.try_wait()?.is_none(), "it was confirmed");
    regions.kill(WEST, last)?;
    puts.kill().ok();
    puts.wait()?;
    promote(&regions, 3)?;

    for at in others {
        regions.start(WEST, at)?;
    }
    let is_ordered = || others.iter().all(|at| returns_at(&regions, *at));
    wait::until_true("two of west to hear of east", LONG, is_ordered)
        .map_err(|error| regions.explained(&error.to_string()))?;
    // Before they are back, so that they have nothing of east that they could relay.
    regions.order(WEST, Order::Cut(Ways::Both));
    let follows = |regions: &Regions, at: usize| {
        let status = regions.group_status(WEST, at);
        status.is_ok_and(|status| status["group_role"] == "recovery")
    };
    let both = || others.iter().all(|at| follows(&regions, *at));
    wait::until_true("two of west to have returned", LONG, both)
        .map_err(|error| regions.explained(&error.to_string()))?;
    regions.start(WEST, last)?;
    wait::until_true("the third one to have returned", LONG, || follows(&regions, last))
        .map_err(|error| regions.explained(&error.to_string()))?;
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.order(WEST, Order::Heal(Ways::Both));
    until_all_follow(&regions, 3)?;
    require!(depth(&regions, EAST)? == 700, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    one_log::follows(&regions, EAST, 3)
}

/// An instance is killed at random moments of the return, and it is gone on with.
fn killed_while_it_returns(test: &str, size: usize, kills: usize) -> Try {
    let mut chance = Chance::announced(test);
    let mut regions = Regions::towed(&of(size))?;
    fail_over(&mut regions, size, tail)?;
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    regions.order(EAST, Order::Heal(Ways::Both));
    let active = until_partitioned(&regions)?;
    let arguments = ["region", "rejoin", "--yes", "--discard-divergence", "--json"];
    let mut command = regions.site(WEST, active).towline(&arguments)?;
    let mut rejoin = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    for _ in 0..kills {
        wait::pause(Duration::from_micros(chance.within(0, 400_000)));
        let at = chance.index(size);
        regions.kill(WEST, at)?;
        regions.start(WEST, at)?;
    }
    rejoin.kill().ok();
    rejoin.wait()?;
    let is_back = |regions: &Regions| {
        let status = regions.group_status(WEST, active);
        status.is_ok_and(|status| status["group_role"] == "recovery")
    };
    if !is_back(&regions) {
        // It was killed before the order was kept.
        let at = regions.until_fenced(WEST)?;
        let said = regions.site(WEST, at).runs(&arguments, 0);
        said.map_err(|error| regions.explained(&error.to_string()))?;
    }
    until_all_follow(&regions, size)?;
    require!(depth(&regions, EAST)? == 700, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    one_log::follows(&regions, EAST, size)
}

#[test]
fn a_return_is_gone_on_with_when_it_is_killed() -> Try {
    killed_while_it_returns("killed_while_it_returns", 1, 5)
}

#[test]
fn a_return_of_three_is_gone_on_with_when_they_are_killed() -> Try {
    killed_while_it_returns("killed_while_three_return", 3, 6)
}
