//! Two regions with one log: what the live group commits arrives at the recovery group, through
//! kills, cuts and restarts of either side, and the logs of both are one.

use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::one_log::logs_are_one;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, require, wait};

const SMALL: &str = "[log]\nextent_bytes = 4194304\n";

fn of(size: usize) -> RegionsDesign {
    RegionsDesign { size, config: SMALL.into(), ..RegionsDesign::default() }
}

fn lines(count: usize, text: &str) -> Vec<u8> {
    (0..count).map(|number| format!("{text} {number}\n")).collect::<String>().into_bytes()
}

/// Puts messages at an instance of west.
fn put(regions: &Regions, at: usize, count: usize, text: &str) -> Try {
    let site = regions.site(WEST, at);
    let input = lines(count, text);
    site.runs_with(&["put", "Q", "--lines", "--transaction", "20"], &input, 0).map(drop)
}

fn number(status: &Value, key: &str) -> u64 {
    status[key].as_u64().unwrap_or(0)
}

/// Waits until the active instance of west sees east so.
fn until_seen(regions: &Regions, what: &str, is: impl Fn(&Value) -> bool) -> Try<Value> {
    let mut last = String::new();
    let seen = wait::until(what, LONG, || match regions.east_as_seen() {
        Ok(seen) => {
            last = seen.to_string();
            is(&seen).then_some(seen)
        }
        Err(error) => {
            last = error.to_string();
            None
        }
    });
    seen.map_err(|error| format!("{error}: {last}\n{}", regions.site(WEST, 0).log()).into())
}

#[test]
fn a_recovery_instance_follows_and_serves_no_client() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, 0, 300, "one")?;
    let seen = regions.until_towed()?;
    require!(number(&seen, "backlog_bytes") == 0 && seen["status"] == "normal", "{seen}");
    require!(seen["group_role"] == "recovery" && seen["group_name"] == "EAST", "{seen}");
    let east = regions.group_status(EAST, 0)?;
    require!(east["group_role"] == "recovery" && east["role"] == "leader", "{east}");
    require!(east["other_region"]["group_role"] == "live", "{east}");
    require!(east["serving"] == false, "{east}");
    let west = regions.group_status(WEST, 0)?;
    require!(west["group_role"] == "live" && west["serving"] == true, "{west}");
    require!(east["group_lsn"] == west["group_lsn"], "{east} and {west}");

    let begun = Instant::now();
    let url = format!("amqp://{}", regions.site(EAST, 0).listen);
    let refused = regions.site(EAST, 0).towline(&["put", "Q", "no", "--url", &url])?.output()?;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    require!(!refused.status.success() && why.contains("in recovery"), "{why}");
    require!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());

    regions.stop_all()?;
    logs_are_one(&regions, 1)?;
    // Both start again, as what their logs say.
    regions.start(EAST, 0)?;
    regions.start(WEST, 0)?;
    put(&regions, 0, 20, "two")?;
    regions.until_towed()?;
    regions.stop_all()?;
    logs_are_one(&regions, 1)
}

#[test]
fn a_recovery_instance_that_is_killed_goes_on_where_its_log_ends() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    for round in 0..4 {
        put(&regions, 0, 200, "before")?;
        regions.kill(EAST, 0)?;
        put(&regions, 0, 200, "meanwhile")?;
        if round % 2 == 1 {
            regions.kill(WEST, 0)?;
            regions.start(WEST, 0)?;
        }
        regions.start(EAST, 0)?;
        regions.until_towed()?;
    }
    regions.stop_all()?;
    logs_are_one(&regions, 1)
}

#[test]
fn an_alarm_outlasts_the_active_instance_and_recovery_takes_silence_for_no_zero() -> Try {
    let recovery = "rpo_bytes = 100000\nrpo_s = 3".to_owned();
    let mut regions = Regions::towed(&RegionsDesign { recovery, ..of(3) })?;
    let active = regions.until_active(WEST)?;
    put(&regions, active, 20, "before")?;
    regions.until_towed()?;
    // What recovery counted it says up to half a second after it has it.
    until_seen(&regions, "the counts of recovery", |seen| number(seen, "backlog_puts") == 0)?;
    regions.order(EAST, Order::Cut(Ways::Both));
    put(&regions, active, 2_000, &"cut".repeat(200))?;
    let seen = until_seen(&regions, "the alarm", |seen| {
        number(seen, "backlog_puts") == 2_000 && seen["misses_rpo"] == true
    })?;
    let before = number(&seen, "backlog_bytes");
    regions.site(WEST, active).runs(&["switch"], 0)?;
    let next = wait::until("another active instance", LONG, || {
        regions.active_of(WEST).filter(|next| *next != active)
    })?;
    let seen = until_seen(&regions, "the alarm of the next one", |seen| {
        seen["is_known"] == true && seen["misses_rpo"] == true
    })?;
    require!(seen["connected"] == false && number(&seen, "backlog_bytes") >= before, "{seen}");
    require!(number(&seen, "backlog_puts") == 2_000, "{seen}");
    let log = regions.site(WEST, next).log();
    require!(log.contains("TWL4406W") && !log.contains("TWL4407I"), "{log}");

    // Recovery does not know what it lacks, and says so; from rpo_s on that is a miss.
    for at in 0..3 {
        let is_said = wait::until_true("recovery's alarm", LONG, || {
            let Ok(status) = regions.group_status(EAST, at) else { return false };
            let seen = &status["other_region"];
            seen["is_known"] == false && seen["misses_rpo"] == true
        });
        is_said.map_err(|error| regions.explained(&error.to_string()))?;
    }
    let text = regions.site(EAST, 0).runs(&["status", "--groups"], 0)?;
    require!(text.contains("Behind") && text.contains("not known"), "{text}");
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.until_towed()?;
    until_seen(&regions, "the end of the alarm", |seen| seen["misses_rpo"] == false)?;
    regions.stop_all()
}

#[test]
fn while_the_link_is_cut_the_live_group_goes_on_and_the_backlog_is_shown_and_goes_away() -> Try {
    let recovery = "rpo_bytes = 100000".to_owned();
    let regions = Regions::towed(&RegionsDesign { recovery, ..of(1) })?;
    regions.order(EAST, Order::Cut(Ways::Both));
    let begun = Instant::now();
    put(&regions, 0, 5_000, &"cut".repeat(200))?;
    require!(begun.elapsed() < Duration::from_secs(20), "live waited: {:?}", begun.elapsed());
    let seen = until_seen(&regions, "the backlog", |seen| {
        number(seen, "backlog_bytes") > 1_000_000 && seen["misses_rpo"] == true
    })?;
    require!(seen["in_sync"] == false && number(&seen, "backlog_age_us") > 0, "{seen}");
    let seen =
        until_seen(&regions, "the messages at risk", |seen| number(seen, "backlog_puts") == 5_000)?;
    require!(number(&seen, "backlog_removals") == 0, "{seen}");
    until_seen(&regions, "the cut", |seen| seen["status"] == "disconnected")?;
    regions.order(EAST, Order::Heal(Ways::Both));
    let seen = regions.until_towed()?;
    require!(number(&seen, "backlog_bytes") == 0, "{seen}");
    until_seen(&regions, "the end of the alarm", |seen| seen["misses_rpo"] == false)?;
    let log = regions.site(WEST, 0).log();
    for id in ["TWL4401I", "TWL4402W", "TWL4406W", "TWL4407I"] {
        require!(log.contains(id), "no {id} in\n{log}");
    }
    let mut regions = regions;
    regions.stop_all()?;
    logs_are_one(&regions, 1)
}

#[test]
fn a_queue_manager_that_was_in_no_group_is_followed_with_all_that_it_has() -> Try {
    let mut regions = Regions::plan(&of(1))?;
    let config = std::mem::replace(&mut regions.site_mut(WEST, 0).config, SMALL.into());
    regions.start(WEST, 0)?;
    put(&regions, 0, 100, "alone")?;
    regions.stop(WEST, 0)?;
    regions.site_mut(WEST, 0).config = config;
    regions.start(EAST, 0)?;
    regions.start(WEST, 0)?;
    put(&regions, 0, 100, "followed")?;
    regions.until_towed()?;
    let said = regions.site(WEST, 0).runs(&["status", "--groups"], 0)?;
    require!(said.contains("EAST                 recovery  yes      yes"), "{said}");
    let seen = regions.east_as_seen()?;
    require!(number(&seen, "backlog_puts") == 0 && number(&seen, "rebases") == 0, "{seen}");
    regions.stop_all()?;
    logs_are_one(&regions, 1)
}

#[test]
fn three_follow_three_through_kills_of_the_relay_and_of_the_active_instance() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    regions.order(EAST, Order::Delay(Ways::Both, Duration::from_millis(20)));
    for round in 0..3 {
        let active = wait::until("an active instance", LONG, || regions.active())?;
        put(&regions, active, 300, "a")?;
        let relay = wait::until("a relay", LONG, || regions.relay())?;
        regions.kill(EAST, relay)?;
        put(&regions, active, 300, "b")?;
        if round > 0 {
            regions.kill(WEST, active)?;
            let next = wait::until("another active instance", LONG, || regions.active())?;
            put(&regions, next, 300, "c")?;
            regions.start(WEST, active)?;
        }
        regions.until_towed()?;
        regions.start(EAST, relay)?;
        regions.until_towed()?;
    }
    until_east_is_whole(&regions)?;
    regions.stop_all()?;
    logs_are_one(&regions, 3)
}

fn until_east_is_whole(regions: &Regions) -> Try {
    let mut seen = Vec::new();
    let whole = wait::until_true("all of east to be in sync", LONG, || {
        seen = (0..3).map(|at| regions.group_status(EAST, at).unwrap_or_default()).collect();
        seen.iter().all(|status| status["in_sync"] == true)
    });
    whole.map_err(|error| format!("{error}: {seen:?}").into())
}

#[test]
fn a_recovery_instance_that_lost_its_disk_gets_the_log_of_its_group() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    let active = wait::until("an active instance", LONG, || regions.active())?;
    put(&regions, active, 200, "before")?;
    regions.until_towed()?;
    for is_relay in [false, true] {
        let relay = wait::until("a relay", LONG, || regions.relay())?;
        let lost = if is_relay { relay } else { (relay + 1) % 3 };
        regions.kill(EAST, lost)?;
        std::fs::remove_dir_all(&regions.site(EAST, lost).data)?;
        put(&regions, active, 200, "meanwhile")?;
        regions.start(EAST, lost)?;
        regions.until_towed()?;
        until_east_is_whole(&regions)?;
    }
    regions.stop_all()?;
    logs_are_one(&regions, 3)
}
