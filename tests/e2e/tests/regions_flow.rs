//! Recovery never slows or stops live: while the link is cut, live keeps the log that recovery
//! lacks up to the bound, then lets it go and goes on, also when its own log is tight; when the
//! link is healed, recovery takes what was kept, or gets a copy.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::daemon::said;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, one_log, paths, require, wait};

/// Messages of one stream, and their size: 15 MB of log.
const COUNT: &str = "300";
const SIZE: &str = "50000";

/// Small extents and early images: what is not kept is let go at once.
fn of(log: &str, behind: u64) -> RegionsDesign {
    RegionsDesign {
        size: 1,
        config: format!("[queue_manager]\nimglogln = 1\n[log]\nextent_bytes = 4194304\n{log}"),
        recovery: format!("log_bytes_behind_max = {behind}"),
        ..RegionsDesign::default()
    }
}

/// Messages go through a queue of live; how long that took.
fn stream(regions: &Regions) -> Try<Duration> {
    let url = format!("amqp://{}", regions.site(WEST, 0).listen);
    let mut command = Command::new(paths::towline()?);
    command.args(["load", "stream", "--queue", "passes", "--count", COUNT, "--size", SIZE]);
    let began = Instant::now();
    let output = command.args(["--url", &url, "--quiet"]).stdin(Stdio::null()).output()?;
    // A put that is refused, or one that waits for ever, fails it.
    require!(output.status.success(), "{}", regions.explained(&said(&output)));
    Ok(began.elapsed())
}

/// Puts messages that stay.
fn put(regions: &Regions, count: usize, text: &str) -> Try {
    let lines: String = (0..count).map(|number| format!("{text} {number}\n")).collect();
    let arguments = ["put", "STAYS", "--lines", "--transaction", "20"];
    regions.site(WEST, 0).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

fn told(regions: &Regions, group: usize, id: &str) -> usize {
    regions.site(group, 0).log().lines().filter(|line| line.contains(id)).count()
}

fn number(status: &Value, key: &str) -> u64 {
    status[key].as_u64().unwrap_or(0)
}

fn cut(regions: &Regions) -> Try {
    regions.order(EAST, Order::Cut(Ways::Both));
    wait::until_true("the link to be seen down", LONG, || {
        regions.east_as_seen().is_ok_and(|seen| seen["connected"] == false)
    })
}

/// Live goes on beyond what it keeps for recovery, which it looks at twice a second; `most` streams
/// are more than enough for that. Yields the slowest of them.
fn until_let_go(regions: &Regions, most: usize) -> Try<Duration> {
    let before = told(regions, WEST, "TWL4408W");
    let mut slowest = Duration::ZERO;
    for _ in 0..most {
        slowest = slowest.max(stream(regions)?);
        // What the newest two images need is needed anyway.
        for _ in 0..2 {
            regions.site(WEST, 0).runs(&["image"], 0)?;
        }
        if told(regions, WEST, "TWL4408W") > before {
            // And beyond that, with log that is used again.
            return Ok(slowest.max(stream(regions)?));
        }
    }
    Err(regions.explained("the log is kept for ever"))
}

/// The link is healed, and recovery has all, by as many copies.
fn heal(regions: &Regions, copies: usize) -> Try {
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.until_towed()?;
    let made = told(regions, EAST, "TWL4442I");
    require!(made == copies, "{}", regions.explained(&format!("{made} copies, not {copies}")));
    Ok(())
}

/// Both logs are one, also behind the copy.
fn ends_as_one(mut regions: Regions) -> Try {
    let lines: String = (0..60).map(|number| format!("one by one {number}\n")).collect();
    // As units of work: else all of them may stand in one batch, which is too little to compare.
    let one_by_one = ["put", "ENDS", "--lines", "--transaction", "1"];
    regions.site(WEST, 0).runs_with(&one_by_one, lines.as_bytes(), 0)?;
    regions.until_towed()?;
    regions.stop_all()?;
    one_log::follows(&regions, WEST, 1)
}

/// The same figures as before the cut, on a machine that others use too.
fn is_not_slower(before: Duration, after: Duration) -> Try {
    println!("a stream took {before:?} with the link, {after:?} at most without");
    require!(after < before * 4 + Duration::from_secs(2), "{before:?}, then {after:?}");
    Ok(())
}

#[test]
fn what_recovery_lacks_is_kept_up_to_the_bound_and_then_it_gets_a_copy() -> Try {
    let regions = Regions::towed(&of("", 48 << 20))?;
    put(&regions, 100, "one")?;
    let before = stream(&regions)?.max(stream(&regions)?);
    regions.until_towed()?;

    // Below the bound: it is sent what it lacks.
    cut(&regions)?;
    let short = stream(&regions)?.max(stream(&regions)?);
    let seen = regions.east_as_seen()?;
    require!(number(&seen, "backlog_bytes") > 28 << 20, "{seen}");
    require!(seen["log_let_go"] == false, "{seen}");
    require!(told(&regions, WEST, "TWL4408W") == 0, "it was let go below the bound");
    heal(&regions, 0)?;

    // Beyond it: live goes on, says so, and recovery gets a copy.
    put(&regions, 100, "two")?;
    cut(&regions)?;
    let long = until_let_go(&regions, 12)?;
    let west = regions.site(WEST, 0).log();
    let line = west.lines().find(|line| line.contains("TWL4408W")).unwrap_or_default();
    require!(line.contains("more than the 50331648 bytes"), "{line}");
    let seen = regions.east_as_seen()?;
    require!(seen["log_let_go"] == true, "{seen}");
    let table = regions.site(WEST, 0).runs(&["status", "--groups"], 0)?;
    println!("{line}\n{table}");
    require!(table.contains("gets a copy"), "{table}");
    is_not_slower(before, short.max(long))?;
    heal(&regions, 1)?;
    wait::until_true("the log to be kept again", LONG, || {
        regions.east_as_seen().is_ok_and(|seen| seen["log_let_go"] == false)
    })?;
    let depth = regions.site(WEST, 0).queue_number("STAYS", "depth")?;
    require!(depth == 200, "{depth}");
    ends_as_one(regions)
}

/// All that the log may have is less than what would be kept for recovery.
#[test]
fn a_live_log_that_is_tight_goes_first() -> Try {
    // 80 % of it would be kept: more than puts may fill beside the reserve.
    let log = "log_bytes_max = 83886080\nreserve_bytes = 16777216\n";
    let regions = Regions::towed(&of(log, 67_108_800))?;
    put(&regions, 100, "one")?;
    let before = stream(&regions)?;
    regions.until_towed()?;
    cut(&regions)?;
    let after = until_let_go(&regions, 12)?;
    let west = regions.site(WEST, 0).log();
    let line = west.lines().find(|line| line.contains("TWL4408W")).unwrap_or_default();
    println!("{line}");
    require!(line.contains("% full, and goes on"), "{line}");
    require!(regions.active_of(WEST).is_some(), "it stopped");
    is_not_slower(before, after)?;
    heal(&regions, 1)?;
    ends_as_one(regions)
}
