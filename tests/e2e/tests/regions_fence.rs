//! A group that another one took over from serves no client, as soon as it hears of that and from
//! then on; an operator has a live group stop, and go on; and what all six instances say of both
//! regions.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::Site;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, one_log, require, wait};

/// Clients are let go so long after a group hears that another one took over.
const LET_GO_MAX: Duration = Duration::from_secs(2);

fn of(size: usize) -> RegionsDesign {
    let config = "[log]\nextent_bytes = 4194304\n".into();
    RegionsDesign { size, config, has_clients: true, ..RegionsDesign::default() }
}

fn put(regions: &Regions, group: usize, count: usize, text: &str) -> Try {
    let active = regions.until_active(group)?;
    let lines: String = (0..count).map(|number| format!("{text} {number}\n")).collect();
    let arguments = ["put", "Q", "--lines", "--transaction", "20"];
    regions.site(group, active).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

fn depth(regions: &Regions, group: usize) -> Try<u64> {
    let active = regions.until_active(group)?;
    regions.site(group, active).queue_number("Q", "depth")
}

/// Runs `towline region ...` at an instance, to this exit code; what it says.
fn order(regions: &Regions, (group, at): (usize, usize), what: &[&str], code: i32) -> Try<String> {
    let arguments = [&["region"], what].concat();
    let said = regions.site(group, at).runs(&arguments, code);
    said.map_err(|error| regions.explained(&error.to_string()))
}

/// No instance of a group puts anything, and each says why.
fn serves_nobody(regions: &Regions, group: usize, size: usize, why: &str) -> Try {
    for at in 0..size {
        let mut command = regions.site(group, at).towline(&["put", "Q", "x", "--timeout", "5"])?;
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        require!(!output.status.success(), "{at} took a message");
        require!(said.contains(why), "{at} says {said}");
    }
    Ok(())
}

/// Puts whole units of 20 messages again and again until one is refused: how many were
/// acknowledged.
fn put_until_refused(site: &Site, ends: &AtomicBool) -> Try<u64> {
    let input = site.scratch().join("twenty");
    fs::write(&input, "a line\n".repeat(20))?;
    let mut acknowledged = 0;
    while !ends.load(Ordering::SeqCst) {
        let mut command = site.towline(&["put", "Q", "--lines", "--transaction", "20"])?;
        command.stdin(fs::File::open(&input)?).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status()?.success() {
            return Ok(acknowledged);
        }
        acknowledged += 20;
    }
    Err("nothing was refused".into())
}

/// One connection that puts a message every few milliseconds until it is let go: what it says.
fn put_until_let_go(site: &Site, ends: &AtomicBool) -> Try<String> {
    let mut command = site.towline(&["put", "Q", "--lines"])?;
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = command.spawn()?;
    let mut input = client.stdin.take().ok_or("no input")?;
    while client.try_wait()?.is_none() && !ends.load(Ordering::SeqCst) {
        // It may have gone.
        input.write_all(b"a line\n").ok();
        wait::pause(Duration::from_millis(5));
    }
    drop(input);
    let output = client.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What the log of west has behind the fork: messages added, and its end.
fn tail(regions: &Regions, at: usize) -> Try<(u64, String)> {
    let arguments = ["region", "divergence", "--summary", "--json"];
    let mut last = String::new();
    let said = wait::until("the tail", LONG, || {
        let said = regions.site(WEST, at).runs(&arguments, 0);
        said.map_err(|error| last = error.to_string()).ok()
    });
    let said = said.map_err(|error| regions.explained(&format!("{error}: {last}")))?;
    let summary: Value = serde_json::from_str(said.lines().last().ok_or("nothing was said")?)?;
    Ok((summary["added"]["messages"].as_u64().ok_or("no count")?, summary["end_lsn"].to_string()))
}

/// Once there are some messages, connects both regions: how long after that, and after it heard,
/// no client was connected any more.
fn lets_go(regions: &Regions, site: &Site) -> Try<(Duration, Duration)> {
    let has_some = || site.queue_number("Q", "depth").is_ok_and(|depth| depth > 400);
    wait::until_true("some messages", LONG, has_some)?;
    let healed = Instant::now();
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.order(WEST, Order::Heal(Ways::Both));
    // When the next try to connect comes is a matter of its timer.
    wait::until_true("it to hear", LONG, || site.log().contains("TWL4471E"))?;
    let heard = Instant::now();
    let is_empty = || site.status().is_ok_and(|status| status["connections"] == 0);
    wait::until_true("no client to be connected", LONG, is_empty)?;
    Ok((healed.elapsed(), heard.elapsed()))
}

/// The other group was promoted while west went on, and then both hear of each other.
fn old_live_is_stopped(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 300, "kept")?;
    regions.until_towed()?;
    regions.order(EAST, Order::Cut(Ways::Both));
    regions.order(WEST, Order::Cut(Ways::Both));
    let asked = (EAST, size - 1);
    let is_lost = || order(&regions, asked, &["failover", "--dry-run"], 0).is_ok();
    wait::until_true("the live group is seen to be gone", LONG, is_lost)?;
    order(&regions, asked, &["failover", "--yes", "--json"], 0)?;
    put(&regions, EAST, 50, "new")?;

    let active = regions.until_active(WEST)?;
    let site = regions.site(WEST, active);
    let ends = AtomicBool::new(false);
    let (acknowledged, said) = thread::scope(|scope| -> Try<_> {
        let counts = scope.spawn(|| put_until_refused(site, &ends).map_err(|it| it.to_string()));
        let holds = scope.spawn(|| put_until_let_go(site, &ends).map_err(|it| it.to_string()));
        let let_go = lets_go(&regions, site);
        ends.store(let_go.is_err(), Ordering::SeqCst);
        let (since_link, took) = let_go?;
        println!("let go {took:?} after it heard, {since_link:?} after the link was there");
        require!(took <= LET_GO_MAX, "{took:?}");
        regions.until_fenced(WEST)?;
        let acknowledged = counts.join().map_err(|_| "a client panicked")??;
        Ok((acknowledged, holds.join().map_err(|_| "a client panicked")??))
    })?;
    require!(said.contains("group 'EAST' of another region took over"), "{said}");
    // Where it is, too: each instance of east has an address.
    require!(said.contains(&regions.site(EAST, 0).listen), "{said}");
    serves_nobody(&regions, WEST, size, "took over")?;
    let before = tail(&regions, active)?;
    require!(before.0 >= acknowledged, "{acknowledged} were acknowledged, and {before:?} is there");
    stays_so(&mut regions, size)?;
    let after = tail(&regions, active)?;
    require!(after.0 == before.0, "{before:?} was there, and {after:?} is");

    let leads = regions.until_fenced(WEST)?;
    let rejoin = ["rejoin", "--yes", "--discard-divergence", "--json"];
    order(&regions, (WEST, leads), &rejoin, 0)?;
    for at in 0..size {
        wait::until_true("all of west to be in recovery", LONG, || {
            let status = regions.group_status(WEST, at);
            status.is_ok_and(|it| it["group_role"] == "recovery" && it["fence"].is_null())
        })
        .map_err(|error| regions.explained(&error.to_string()))?;
    }
    regions.until_towed_by(EAST)?;
    require!(depth(&regions, EAST)? == 350, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    one_log::follows(&regions, EAST, size)
}

/// All of west starts again without the other region, and is what it was.
fn stays_so(regions: &mut Regions, size: usize) -> Try {
    regions.order(EAST, Order::Cut(Ways::Both));
    regions.order(WEST, Order::Cut(Ways::Both));
    for at in 0..size {
        regions.kill(WEST, at)?;
    }
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    let leads = regions.until_fenced(WEST)?;
    serves_nobody(regions, WEST, size, "took over")?;
    let status = regions.group_status(WEST, leads)?;
    require!(status["other_region"]["status"] == "partitioned", "{status}");
    require!(status["fence"]["superseded_by"] == "EAST", "{status}");
    let shown = regions.site(WEST, leads).runs(&["status", "--groups"], 0)?;
    require!(shown.contains("fenced") && shown.contains("rejoin'"), "{shown}");
    let found = order(regions, (WEST, leads), &["check", "--json"], 3)?;
    let found: Value = serde_json::from_str(&found)?;
    let first = &found["findings"][0];
    require!(first["check"] == "fence" && first["weight"] == "stands", "{found}");
    let refused = order(regions, (WEST, leads), &["unfence", "--yes", "--json"], 1)?;
    require!(refused.contains("took over") && refused.contains("rejoin"), "{refused}");
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.order(WEST, Order::Heal(Ways::Both));
    Ok(())
}

#[test]
fn an_old_live_group_lets_its_clients_go_when_it_hears_and_stays_so() -> Try {
    old_live_is_stopped(1)
}

#[test]
fn an_old_live_group_of_three_lets_its_clients_go_when_it_hears() -> Try {
    old_live_is_stopped(3)
}

/// A fence, a fail-over that loses nothing, and the same back.
fn fenced_and_failed_over(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 300, "kept")?;
    let active = regions.until_active(WEST)?;
    let asked = (WEST, (active + 1) % size);
    order(&regions, asked, &["fence", "--dry-run"], 0)?;
    put(&regions, WEST, 20, "still")?;
    let fence = ["fence", "--yes", "--json", "--reason", "a test"];
    let done: Value = serde_json::from_str(&order(&regions, asked, &fence, 0)?)?;
    println!("fenced: {done}");
    require!(done["kept_by"].as_array().is_some_and(|it| it.len() == size), "{done}");
    serves_nobody(&regions, WEST, size, "a test")?;
    let again = order(&regions, asked, &fence, 1)?;
    require!(again.contains("fenced already"), "{again}");
    for at in 0..size {
        regions.kill(WEST, at)?;
    }
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    let leads = regions.until_fenced(WEST)?;
    serves_nobody(&regions, WEST, size, "a test")?;
    order(&regions, (WEST, (leads + 2) % size), &["unfence", "--yes", "--json"], 0)?;
    require!(depth(&regions, WEST)? == 320, "{}", depth(&regions, WEST)?);
    put(&regions, WEST, 20, "again")?;

    let (mut live, mut count) = (WEST, 340);
    for _ in 0..2 {
        regions.until_towed_by(live)?;
        let active = regions.until_active(live)?;
        order(&regions, (live, active), &fence, 0)?;
        let other = 1 - live;
        let asked = (other, size - 1);
        let knows = || -> Try<Value> {
            let said = order(&regions, asked, &["failover", "--dry-run", "--json"], 0)?;
            Ok(serde_json::from_str(&said)?)
        };
        let outlook = wait::until("recovery to hear of it", LONG, || {
            knows().ok().filter(|outlook| outlook["loss"]["live_is_still"] == true)
        })
        .map_err(|error| regions.explained(&error.to_string()))?;
        require!(outlook["loss"]["bytes"] == 0, "{outlook}");
        let text = order(&regions, asked, &["failover", "--dry-run"], 0)?;
        require!(text.contains("lost: nothing"), "{text}");
        // The link stands, and --force is not needed.
        order(&regions, asked, &["failover", "--yes", "--json"], 0)?;
        require!(depth(&regions, other)? == count, "{}", depth(&regions, other)?);
        put(&regions, other, 20, "there")?;
        count += 20;
        // The one that was fenced has nothing to lose, and follows.
        regions.until_towed_by(other)?;
        let refused = order(&regions, (live, 0), &["unfence", "--yes", "--json"], 1)?;
        require!(refused.contains("is not live"), "{refused}");
        live = other;
    }
    regions.stop_all()?;
    one_log::follows(&regions, live, size)
}

#[test]
fn a_fail_over_after_a_fence_loses_nothing_and_says_so() -> Try {
    fenced_and_failed_over(1)
}

#[test]
fn a_fail_over_of_three_after_a_fence_loses_nothing() -> Try {
    fenced_and_failed_over(3)
}

/// An instance is killed at a random moment of an order.
#[test]
fn a_fence_holds_or_was_not_whichever_instance_is_killed() -> Try {
    const SIZE: usize = 3;
    let mut chance = Chance::announced("killed_in_a_fence");
    let mut regions = Regions::towed(&of(SIZE))?;
    let mut count = 0;
    for round in 0..4 {
        put(&regions, WEST, 20, &format!("round {round}"))?;
        count += 20;
        for what in ["fence", "unfence"] {
            let (asked, killed) = (chance.index(SIZE), chance.index(SIZE));
            let arguments = ["region", what, "--yes", "--json", "--timeout", "20"];
            let mut command = regions.site(WEST, asked).towline(&arguments)?;
            let mut under_way = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            wait::pause(Duration::from_micros(chance.within(0, 60_000)));
            regions.kill(WEST, killed)?;
            regions.start(WEST, killed)?;
            under_way.wait()?;
            let is_fenced =
                |at| regions.group_status(WEST, at).is_ok_and(|it| it["group_role"] == "fenced");
            // None may have kept the order; then it is given again.
            let wanted = what == "fence";
            let all = || (0..SIZE).all(|at| is_fenced(at) == wanted);
            wait::until_true("the order to hold everywhere", LONG, || {
                all() || {
                    let mut again = regions.site(WEST, asked).towline(&arguments).ok();
                    let again = again.as_mut().map(|it| it.stdout(Stdio::null()));
                    again.is_some_and(|it| it.stderr(Stdio::null()).status().is_ok()) && all()
                }
            })
            .map_err(|error| regions.explained(&error.to_string()))?;
            match wanted {
                true => serves_nobody(&regions, WEST, SIZE, "an operator fenced it")?,
                false => {
                    require!(depth(&regions, WEST)? == count, "{}", depth(&regions, WEST)?);
                }
            }
        }
    }
    regions.stop_all()
}

/// What each of six instances says of both groups.
fn all_say(regions: &Regions, live: usize, what: &str) -> Try {
    let [live_name, other_name] = if live == WEST { ["WEST", "EAST"] } else { ["EAST", "WEST"] };
    for group in [WEST, EAST] {
        for at in 0..3 {
            let mut last = Value::Null;
            let (role, other) = match group == live {
                true => ("live", ("recovery", other_name)),
                false => ("recovery", ("live", live_name)),
            };
            let said = wait::until_true(what, LONG, || {
                let Ok(status) = regions.group_status(group, at) else { return false };
                let seen = &status["other_region"];
                last = status.clone();
                status["group_role"] == role
                    && seen["group_role"] == other.0
                    && seen["group_name"] == other.1
                    && seen["connected"] == true
                    && seen["status"] == "normal"
                    && seen["in_sync"] == true
                    && status["in_sync_count"] == 3
            });
            said.map_err(|error| format!("{error}: {group}.{at} says {last}"))?;
            let mut last = String::new();
            let is_fit = wait::until_true("nothing in the way", LONG, || {
                let said = regions.site(group, at).runs(&["region", "check"], 0);
                said.map_err(|error| last = error.to_string()).is_ok()
            });
            is_fit.map_err(|error| format!("{error}: {group}.{at} says {last}"))?;
            let shown = regions.site(group, at).runs(&["status", "--groups"], 0)?;
            let heard = last_heard(regions, group, at)?;
            require!(heard.is_empty() || shown.contains("As heard"), "{shown}");
        }
        let heard: Vec<String> =
            (0..3).map(|at| last_heard(regions, group, at)).collect::<Try<_>>()?;
        require!(heard.iter().filter(|it| it.is_empty()).count() == 1, "{group}: {heard:?}");
    }
    Ok(())
}

fn last_heard(regions: &Regions, group: usize, at: usize) -> Try<String> {
    let status = regions.group_status(group, at)?;
    Ok(status["other_region"]["heard_from"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn each_of_six_instances_says_what_is_true_healthy_switched_and_failed_over() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    put(&regions, WEST, 100, "one")?;
    all_say(&regions, WEST, "healthy")?;
    let active = regions.until_active(WEST)?;
    order(&regions, (WEST, active), &["switch", "--yes", "--json"], 0)?;
    all_say(&regions, EAST, "switched")?;
    put(&regions, EAST, 100, "two")?;
    regions.until_towed_by(EAST)?;
    for at in 0..3 {
        regions.kill(EAST, at)?;
    }
    let is_lost = || order(&regions, (WEST, 1), &["failover", "--dry-run"], 0).is_ok();
    wait::until_true("the live group is seen to be gone", LONG, is_lost)?;
    order(&regions, (WEST, 1), &["failover", "--yes", "--json"], 0)?;
    put(&regions, WEST, 100, "three")?;
    for at in 0..3 {
        wait::until_true("each to be live, and alone", LONG, || {
            let Ok(status) = regions.group_status(WEST, at) else { return false };
            let seen = &status["other_region"];
            let is_gone = seen["connected"] == false && seen["in_sync"] == false;
            status["group_role"] == "live" && is_gone
        })
        .map_err(|error| regions.explained(&error.to_string()))?;
        order(&regions, (WEST, at), &["check"], 3)?;
    }
    for at in 0..3 {
        regions.start(EAST, at)?;
    }
    // It lost nothing, and follows by itself.
    regions.until_towed_by(WEST)?;
    all_say(&regions, WEST, "failed over")?;
    regions.stop_all()
}
