//! A switch in doubt does not come to its end: the link is cut while its last batch is on its way,
//! and the other group is promoted without it. The group that handed over gives that batch up and
//! follows, by itself if it has nothing else of its own; else it lists and exports that first.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, one_log, require, wait};

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

fn depth(regions: &Regions, group: usize) -> Try<u64> {
    let active = regions.until_active(group)?;
    regions.site(group, active).queue_number("Q", "depth")
}

/// West decides its last batch, which east does not get: all of west is in recovery.
fn in_doubt(regions: &Regions, size: usize) -> Try {
    let active = regions.until_active(WEST)?;
    let site = regions.site(WEST, active);
    let dry = ["region", "switch", "--dry-run"];
    wait::until_true("nothing in the way of a switch", LONG, || site.runs(&dry, 0).is_ok())?;
    // What west sends arrives so late that the cut is before it.
    regions.order(EAST, Order::Delay(Ways::There, Duration::from_millis(2_000)));
    let arguments = ["region", "switch", "--yes", "--json", "--timeout", "8"];
    let mut command = site.towline(&arguments)?;
    let mut switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait::until_true("the last batch to be decided", LONG, || {
        site.status().is_ok_and(|status| status["region"]["live"] == "EAST")
    })
    .map_err(|error| regions.explained(&error.to_string()))?;
    regions.order(EAST, Order::Refuse);
    regions.order(WEST, Order::Refuse);
    // Of three, the one that led may lose its followers, which know, before it answers.
    require!(!switch.wait()?.success(), "it came to its end");
    for at in 0..size {
        wait::until_true("all of west to be in recovery", LONG, || is_in_recovery(regions, at))
            .map_err(|error| regions.explained(&error.to_string()))?;
    }
    regions.order(EAST, Order::Delay(Ways::There, Duration::ZERO));
    Ok(())
}

fn is_in_recovery(regions: &Regions, at: usize) -> bool {
    regions
        .group_status(WEST, at)
        .is_ok_and(|status| status["group_role"] == "recovery" && status["serving"] == false)
}

fn heal(regions: &Regions) {
    for group in [WEST, EAST] {
        regions.order(group, Order::Heal(Ways::Both));
    }
}

/// East is promoted without the last batch.
fn promote(regions: &Regions) -> Try {
    let failover = ["region", "failover", "--yes", "--json"];
    let mut refused = String::new();
    let is_possible = || match regions.site(EAST, 0).runs(&["region", "failover", "--dry-run"], 0) {
        Ok(_) => true,
        Err(error) => {
            refused = error.to_string();
            false
        }
    };
    wait::until_true("a fail-over to be possible", LONG, is_possible)
        .map_err(|error| regions.explained(&format!("{error}: {refused}")))?;
    let said = regions.site(EAST, 0).runs(&failover, 0);
    said.map_err(|error| regions.explained(&error.to_string()))?;
    put(regions, EAST, 100, "new")
}

/// West follows east, and all six instances say so.
fn all_is_well(regions: &Regions, size: usize) -> Try {
    regions.until_towed_by(EAST)?;
    for at in 0..size {
        for (group, role) in [(WEST, "recovery"), (EAST, "live")] {
            let mut last = Value::Null;
            let is_well = || {
                last = regions.group_status(group, at).unwrap_or_default();
                let other = &last["other_region"];
                last["group_role"] == role && other["status"] == "normal"
            };
            wait::until_true("each to say that west follows", LONG, is_well)
                .map_err(|error| regions.explained(&format!("{error}: {group}.{at} {last}")))?;
            let site = regions.site(group, at);
            let is_fit = || site.runs(&["region", "check"], 0).is_ok();
            wait::until_true("nothing in the way", LONG, is_fit)?;
        }
    }
    Ok(())
}

fn returns_alone(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 100, "kept")?;
    regions.until_towed()?;
    in_doubt(&regions, size)?;
    promote(&regions)?;
    require!((0..size).all(|at| is_in_recovery(&regions, at)), "it heard nothing");
    heal(&regions);
    all_is_well(&regions, size)?;
    for at in 0..size {
        let kept = regions.site(WEST, at).data.join("region-return");
        require!(kept.exists(), "{at} did not return");
    }
    require!(depth(&regions, EAST)? == 200, "{}", depth(&regions, EAST)?);
    // Roles can be changed as ever.
    let active = regions.until_active(EAST)?;
    let switch = ["region", "switch", "--yes", "--json"];
    let said = regions.site(EAST, active).runs(&switch, 0);
    said.map_err(|error| regions.explained(&error.to_string()))?;
    require!(depth(&regions, WEST)? == 200, "{}", depth(&regions, WEST)?);
    regions.until_towed()?;
    regions.stop_all()?;
    one_log::follows(&regions, WEST, size)
}

#[test]
fn a_group_that_handed_over_for_nothing_follows_without_an_order() -> Try {
    returns_alone(1)
}

#[test]
fn a_group_of_three_that_handed_over_for_nothing_follows_without_an_order() -> Try {
    returns_alone(3)
}

/// One of three, which is away, has not heard that the last batch is committed, or lacks it.
#[test]
fn one_of_three_that_was_away_follows_when_it_comes() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    put(&regions, WEST, 100, "kept")?;
    regions.until_towed()?;
    let away = (regions.until_active(WEST)? + 1) % 3;
    in_doubt(&regions, 3)?;
    regions.kill(WEST, away)?;
    promote(&regions)?;
    heal(&regions);
    regions.until_towed_by(EAST)?;
    put(&regions, EAST, 50, "later")?;
    regions.start(WEST, away)?;
    all_is_well(&regions, 3)?;
    require!(depth(&regions, EAST)? == 250, "{}", depth(&regions, EAST)?);
    regions.stop_all()?;
    one_log::follows(&regions, EAST, 3)
}

fn copies(from: &Path, to: &Path) -> Try {
    let _none = std::fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").args([from, to]).status()?;
    require!(status.success(), "cp -a {} {}", from.display(), to.display());
    Ok(())
}

/// East lost what it had received, too: its folders are those of a backup. What only west has is
/// messages, so it waits for an order, and all say what is to be done. Not for three: older copies
/// of their folders have no vote, and so no fail-over, until an operator gives it to them.
fn returns_by_order(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, WEST, 100, "kept")?;
    regions.until_towed()?;
    let backup = |regions: &Regions, at: usize| regions.site(EAST, at).scratch().join("backup");
    for at in 0..size {
        regions.stop(EAST, at)?;
        copies(&regions.site(EAST, at).data, &backup(&regions, at))?;
        regions.start(EAST, at)?;
    }
    put(&regions, WEST, 60, "lost")?;
    regions.until_towed()?;
    in_doubt(&regions, size)?;
    for at in 0..size {
        regions.kill(EAST, at)?;
        copies(&backup(&regions, at), &regions.site(EAST, at).data.clone())?;
    }
    for at in 0..size {
        regions.start(EAST, at)?;
    }
    promote(&regions)?;
    heal(&regions);

    for at in 0..size {
        for group in [WEST, EAST] {
            let mut last = Value::Null;
            let is_said = || {
                last = regions.group_status(group, at).unwrap_or_default();
                let other = &last["other_region"];
                let reason = other["reason"].as_str().unwrap_or_default();
                other["status"] == "partitioned" && reason.contains("the logs part at")
            };
            wait::until_true("each to know that the logs part", LONG, is_said)
                .map_err(|error| regions.explained(&format!("{error}: {group}.{at} {last}")))?;
        }
        let site = regions.site(WEST, at);
        let check = site.runs(&["region", "check", "--json"], 3)?;
        require!(check.contains("region rejoin"), "{check}");
        let check = regions.site(EAST, at).runs(&["region", "check", "--json"], 3)?;
        require!(check.contains("at the instances of group 'WEST'"), "{check}");
        let refused = regions.site(EAST, at).runs(&["region", "rejoin", "--yes"], 1)?;
        require!(refused.contains("no other group has said"), "{refused}");
        let refused = site.runs(&["region", "rejoin", "--yes"], 1)?;
        require!(refused.contains("was not exported"), "{refused}");
    }
    require!((0..size).all(|at| is_in_recovery(&regions, at)), "it returned");

    let site = regions.site(WEST, 0);
    let file = site.scratch().join("exported");
    let file = file.to_str().ok_or("a path that is no text")?;
    let summary = ["region", "divergence", "--summary", "--json", "--export", file];
    let summary: Value = serde_json::from_str(&site.runs(&summary, 0)?)?;
    require!(summary["exported"] == 60, "{summary}");
    let done = site.runs(&["region", "rejoin", "--yes", "--json"], 0);
    done.map_err(|error| regions.explained(&error.to_string()))?;
    all_is_well(&regions, size)?;
    require!(depth(&regions, EAST)? == 200, "{}", depth(&regions, EAST)?);
    let east = regions.until_active(EAST)?;
    regions.site(EAST, east).runs(&["region", "put-again", file, "--json"], 0)?;
    require!(depth(&regions, EAST)? == 260, "{}", depth(&regions, EAST)?);
    regions.until_towed_by(EAST)?;
    regions.stop_all()?;
    one_log::follows(&regions, EAST, size)
}

#[test]
fn one_with_messages_of_its_own_says_what_to_do_and_returns_by_order() -> Try {
    returns_by_order(1)
}
