//! What an operator does with the instances of a recovery group one after the other: a rolling
//! restart (and so an upgrade), and the replacement of a lost log, with and without a link to the
//! live group.

use serde_json::Value;
use towline_e2e::one_log::logs_are_one;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, require, wait};

fn of(size: usize) -> RegionsDesign {
    let config = "[log]\nextent_bytes = 4194304\n".into();
    RegionsDesign { size, config, ..RegionsDesign::default() }
}

fn put(regions: &Regions, at: usize) -> Try {
    let lines: String = (0..200).map(|number| format!("message {number}\n")).collect();
    let words = ["put", "Q", "--lines", "--transaction", "20"];
    regions.site(WEST, at).runs_with(&words, lines.as_bytes(), 0).map(drop)
}

/// `rolling-restart` of all of east, as one command.
fn rolls(regions: &Regions, size: usize) -> Try<Value> {
    let folders: Vec<String> =
        (0..size).map(|at| regions.site(EAST, at).data.display().to_string()).collect();
    let mut words = vec!["rolling-restart", "--json", "--timeout", "60"];
    for folder in folders.iter().skip(1) {
        words.extend(["--data", folder]);
    }
    // The first one is added by `runs`.
    let said = regions.site(EAST, 0).runs(&words, 0)?;
    Ok(serde_json::from_str(&said)?)
}

/// Waits until each instance of east sees each as in sync, and none as blank.
fn until_east_is_normal(regions: &Regions, size: usize) -> Try {
    let mut seen = Vec::new();
    let normal = wait::until_true("all of east to be normal", LONG, || {
        seen = (0..size).map(|at| regions.group_status(EAST, at).unwrap_or_default()).collect();
        seen.iter().all(|status: &Value| {
            let rows = status["instances"].as_array().cloned().unwrap_or_default();
            rows.len() == size && rows.iter().all(|row| row["status"] == "normal")
        })
    });
    normal.map_err(|error| format!("{error}: {seen:?}").into())
}

fn restarts_with_and_without_a_link(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    let active = wait::until("an active instance", LONG, || regions.active())?;
    put(&regions, active)?;
    regions.until_towed()?;
    until_east_is_normal(&regions, size)?;
    for at in 0..size {
        regions.site(EAST, at).runs(&["rolling-restart", "--this-one", "--timeout", "60"], 0)?;
        until_east_is_normal(&regions, size)?;
    }
    let relay = wait::until("a relay", LONG, || regions.relay())?;
    let rolled = rolls(&regions, size)?;
    let order = rolled["restarted"].as_array().cloned().unwrap_or_default();
    require!(order.len() == size && rolled["role"] == "recovery", "{rolled}");
    let last = order.last().map(|row| row["instance"].clone());
    let relay = regions.group_status(EAST, relay)?["instance"].clone();
    require!(last == Some(relay.clone()), "{relay} was shipped to: {rolled}");
    put(&regions, active)?;
    regions.until_towed()?;
    until_east_is_normal(&regions, size)?;
    // The live group is away: then what a majority has counts.
    regions.order(EAST, Order::Cut(Ways::Both));
    wait::until_true("the cut", LONG, || {
        (0..size).all(|at| {
            let status = regions.group_status(EAST, at).unwrap_or_default();
            status["other_region"]["connected"] == false
        })
    })?;
    let rolled = rolls(&regions, size)?;
    require!(rolled["leader"] == Value::Null, "{rolled}");
    for at in 0..size {
        regions.site(EAST, at).runs(&["rolling-restart", "--this-one", "--timeout", "60"], 0)?;
    }
    put(&regions, active)?;
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.until_towed()?;
    regions.stop_all()?;
    logs_are_one(&regions, size)
}

#[test]
fn a_recovery_group_of_three_is_restarted_one_after_the_other() -> Try {
    restarts_with_and_without_a_link(3)
}

#[test]
fn a_recovery_group_of_one_is_restarted() -> Try {
    restarts_with_and_without_a_link(1)
}

#[test]
fn a_lost_log_of_a_recovery_group_is_replaced_with_and_without_a_link() -> Try {
    let mut regions = Regions::towed(&of(3))?;
    let active = wait::until("an active instance", LONG, || regions.active())?;
    put(&regions, active)?;
    regions.until_towed()?;
    until_east_is_normal(&regions, 3)?;
    for is_cut in [false, true] {
        let relay = wait::until("a relay", LONG, || regions.relay())?;
        let lost = (relay + 1) % 3;
        if is_cut {
            regions.order(EAST, Order::Cut(Ways::Both));
        }
        regions.stop(EAST, lost)?;
        let site = regions.site(EAST, lost);
        let file = site.scratch().join("towline.toml").display().to_string();
        let mut words = vec!["instance", "replace", "--config", &file, "--name", &site.name];
        words.extend(["--yes", "--timeout", "60"]);
        site.runs(&words, 0)?;
        regions.start(EAST, lost)?;
        regions.order(EAST, Order::Heal(Ways::Both));
        put(&regions, active)?;
        regions.until_towed()?;
        // It counts again, and no one says that it does not.
        until_east_is_normal(&regions, 3)?;
    }
    regions.stop_all()?;
    logs_are_one(&regions, 3)
}
