//! `towline region check`: from any instance of either region, what stands in the way of a switch.

use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, fail, require, wait};

fn of(size: usize) -> RegionsDesign {
    let config = "[log]\nextent_bytes = 4194304\n".into();
    RegionsDesign { size, config, has_clients: true, ..RegionsDesign::default() }
}

/// Runs the command, which must end with this exit code.
fn check(regions: &Regions, group: usize, at: usize, code: i32) -> Try<Value> {
    let text = regions.site(group, at).runs(&["region", "check", "--json"], code)?;
    let told: Value = serde_json::from_str(&text)?;
    require!(told["fine"] == (code == 0), "exit code {code} and {told}");
    Ok(told)
}

/// Waits until it ends with this exit code, and gives the answer.
fn until(regions: &Regions, (group, at): (usize, usize), code: i32) -> Try<Value> {
    let mut last = String::new();
    let told = wait::until("the findings", LONG, || {
        check(regions, group, at, code).map_err(|error| last = error.to_string()).ok()
    });
    told.map_err(|error| format!("{error}: {last}").into())
}

/// The finding about this.
fn finding<'a>(told: &'a Value, what: &str) -> Try<&'a Value> {
    let found = told["findings"].as_array().into_iter().flatten();
    match found.into_iter().find(|one| one["check"] == what) {
        Some(one) => Ok(one),
        None => fail!("nothing of {what} in {told}"),
    }
}

/// Waits until it finds that there is no link. That nothing is heard over it is found before.
fn until_without_link(regions: &Regions, (group, at): (usize, usize)) -> Try<Value> {
    wait::until("the end of the link", LONG, || {
        let told = check(regions, group, at, 3).ok()?;
        let link = finding(&told, "link").ok()?;
        (link["weight"] == "stands").then(|| told.clone())
    })
}

#[test]
fn both_regions_say_that_nothing_stands_in_the_way_and_then_that_the_link_does() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    for group in [WEST, EAST] {
        let told = until(&regions, (group, 0), 0)?;
        for one in told["findings"].as_array().into_iter().flatten() {
            // The proxies are other names of the addresses where the link comes in.
            let expected = if one["check"] == "configuration" { "warning" } else { "fine" };
            require!(one["weight"] == expected, "{one}");
        }
        let text = regions.site(group, 0).runs(&["region", "check"], 0)?;
        require!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        require!(text.contains("Nothing stands in the way"), "{text}");
        // The fastest of some: what the machine does beside it is not meant.
        let times = (0..5).map(|_| {
            let begun = Instant::now();
            check(&regions, group, 0, 0).map(|_| begun.elapsed())
        });
        let fastest = times.collect::<Try<Vec<_>>>()?.into_iter().min().unwrap_or_default();
        println!("the fastest answer took {fastest:?}");
        require!(fastest < Duration::from_secs(1), "{fastest:?}");
    }
    regions.order(EAST, Order::Cut(Ways::Both));
    for group in [WEST, EAST] {
        until_without_link(&regions, (group, 0))?;
    }
    regions.order(EAST, Order::Heal(Ways::Both));
    for group in [WEST, EAST] {
        until(&regions, (group, 0), 0)?;
    }
    // What one of them said is no answer any more once it is gone.
    regions.kill(EAST, 0)?;
    until_without_link(&regions, (WEST, 0))?;
    let alone = regions.site(EAST, 0).runs(&["region", "check", "--json"], 4)?;
    require!(alone.contains("exit_code"), "{alone}");
    regions.stop_all()
}

#[test]
fn missing_instances_of_either_region_and_other_configurations_are_found() -> Try {
    let mut regions = Regions::plan(&of(3))?;
    for at in 0..3 {
        regions.site_mut(EAST, at).config += "rpo_s = 5\n";
    }
    for group in [EAST, WEST] {
        for at in 0..3 {
            regions.start(group, at)?;
        }
    }
    regions.until_towed()?;
    let active = wait::until("an active instance", LONG, || regions.active())?;
    let relay = wait::until("a relay", LONG, || regions.relay())?;
    // A replica of the live group asks the active instance.
    for at in 0..3 {
        let told = until(&regions, (WEST, at), 0)?;
        let all = told["findings"].as_array().into_iter().flatten();
        let mut differences = all.filter(|one| one["check"] == "configuration");
        let of_rpo = differences.find(|one| one["text"].to_string().contains("rpo_s"));
        require!(of_rpo.is_some_and(|one| one["weight"] == "warning"), "{told}");
    }
    until(&regions, (EAST, relay), 0)?;
    // One without the link says what the relay told it.
    let other = (relay + 1) % 3;
    let told = until(&regions, (EAST, other), 0)?;
    let name = ["a", "b", "c"][relay];
    let link = finding(&told, "link")?["text"].to_string();
    require!(link.contains(&format!("as heard from instance '{name}'")), "{told}");

    regions.kill(EAST, other)?;
    let quorum = |told: &Value, weight: &str| {
        finding(told, "quorum EAST").is_ok_and(|one| one["weight"] == weight)
    };
    wait::until("the missing instance", LONG, || {
        check(&regions, WEST, active, 0).ok().filter(|told| quorum(told, "warning"))
    })?;
    regions.kill(EAST, (relay + 2) % 3)?;
    wait::until("the missing majority", LONG, || {
        check(&regions, WEST, active, 3).ok().filter(|told| quorum(told, "stands"))
    })?;
    regions.stop_all()
}
