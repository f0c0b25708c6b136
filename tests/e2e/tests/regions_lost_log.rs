//! A live group that lost a part of its log, or all of it, and serves again: what it acknowledged
//! since is not given up unseen, and no message advises to empty the only copy.

use std::fs;

use serde_json::Value;
use towline_e2e::one_log;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, require, wait};

fn put(regions: &Regions, group: usize, count: usize, text: &str) -> Try {
    let active = regions.until_active(group)?;
    let lines: String = (0..count).map(|number| format!("{text} {number}\n")).collect();
    // Each is a batch of its own.
    let arguments = ["put", "Q", "--lines", "--transaction", "1"];
    regions.site(group, active).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

fn depth(regions: &Regions, group: usize) -> Try<u64> {
    let active = regions.until_active(group)?;
    regions.site(group, active).queue_number("Q", "depth")
}

fn until(regions: &Regions, what: &str, is_so: impl FnMut() -> bool) -> Try {
    wait::until_true(what, LONG, is_so).map_err(|error| regions.explained(&error.to_string()))
}

/// East is promoted; the link is cut, and west does not run.
fn promote(regions: &Regions) -> Try {
    let is_lost = || regions.site(EAST, 0).runs(&["region", "failover", "--dry-run"], 0).is_ok();
    until(regions, "the live group is seen to be gone", is_lost)?;
    let said = regions.site(EAST, 0).runs(&["region", "failover", "--yes", "--json"], 0);
    said.map(drop).map_err(|error| regions.explained(&error.to_string()))
}

/// West's disk is lost. A backup is put back, of before `late` messages that east has, and it
/// serves again without the other region: `since` messages are acknowledged.
fn goes_on_from_a_backup(late: usize, since: usize) -> Try {
    let mut regions = Regions::towed(&RegionsDesign { size: 1, ..RegionsDesign::default() })?;
    put(&regions, WEST, 50, "kept")?;
    let backup = regions.site(WEST, 0).scratch().join("backup").display().to_string();
    regions.site(WEST, 0).runs(&["backup", "--to", &backup], 0)?;
    put(&regions, WEST, late, "late")?;
    regions.until_towed()?;
    regions.kill(WEST, 0)?;
    promote(&regions)?;
    put(&regions, EAST, 10, "new")?;

    regions.order(EAST, Order::Cut(Ways::Both));
    regions.order(WEST, Order::Cut(Ways::Both));
    fs::remove_dir_all(&regions.site(WEST, 0).data)?;
    regions.site(WEST, 0).runs(&["restore", "--from", &backup], 0)?;
    regions.start(WEST, 0)?;
    put(&regions, WEST, since, "since")?;
    regions.order(EAST, Order::Heal(Ways::Both));
    regions.order(WEST, Order::Heal(Ways::Both));
    regions.until_fenced(WEST)?;

    let site = regions.site(WEST, 0);
    let list = ["region", "divergence", "--json"];
    until(&regions, "both logs to be compared", || site.runs(&list, 0).is_ok())?;
    let said = site.runs(&list, 0)?;
    let rows = said.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let added = rows.iter().filter(|row| row["change"] == "added").count();
    require!(added == since && rows.len() == since + 1, "{said}");
    let status = regions.group_status(WEST, 0)?;
    require!(status["group_role"] == "fenced", "it gave up what was acknowledged: {status}");
    let refused = site.runs(&["region", "rejoin", "--yes", "--json"], 1)?;
    require!(refused.contains("was not exported"), "{refused}");

    let file = site.scratch().join("exported").display().to_string();
    site.runs(&["region", "divergence", "--summary", "--export", &file], 0)?;
    let done = site.runs(&["region", "rejoin", "--yes", "--json"], 0);
    done.map_err(|error| regions.explained(&error.to_string()))?;
    until(&regions, "west to follow", || {
        regions.group_status(WEST, 0).is_ok_and(|status| status["group_role"] == "recovery")
    })?;
    regions.until_towed_by(EAST)?;
    let all = (50 + late + 10) as u64;
    require!(depth(&regions, EAST)? == all, "{}", depth(&regions, EAST)?);
    regions.site(EAST, 0).runs(&["region", "put-again", &file], 0)?;
    require!(depth(&regions, EAST)? == all + since as u64, "{}", depth(&regions, EAST)?);
    regions.until_towed_by(EAST)?;
    regions.stop_all()?;
    one_log::follows(&regions, EAST, 1)
}

#[test]
fn a_restored_live_group_whose_log_ends_before_the_fork_gives_up_nothing_unseen() -> Try {
    goes_on_from_a_backup(200, 3)
}

#[test]
fn a_restored_live_group_whose_log_went_past_the_fork_lists_all_that_it_put() -> Try {
    goes_on_from_a_backup(20, 60)
}

/// Whether west serves no client, and says that east's log is not to be emptied.
fn knows_that_it_is_lost(regions: &Regions) -> Try {
    let leader = regions.until_fenced(WEST)?;
    let said = regions.group_status(WEST, leader)?.to_string();
    require!(said.contains("do not empty the other group"), "{said}");
    let mut puts = regions.site(WEST, leader).towline(&["put", "Q", "to a log that is lost"])?;
    let puts = puts.output()?;
    require!(!puts.status.success(), "it was acknowledged");
    let check = regions.site(EAST, 0).runs(&["region", "check"], 3)?;
    let check: String = check.split_whitespace().collect::<Vec<_>>().join(" ");
    require!(!check.contains("begins with empty folders"), "{check}");
    Ok(())
}

#[test]
fn a_live_group_with_an_empty_disk_serves_no_client_and_the_other_one_is_kept() -> Try {
    let mut regions = Regions::towed(&RegionsDesign { size: 1, ..RegionsDesign::default() })?;
    put(&regions, WEST, 50, "kept")?;
    regions.until_towed()?;
    regions.kill(WEST, 0)?;
    let data = regions.site(WEST, 0).data.clone();
    let away = data.with_extension("not-mounted");
    fs::rename(&data, &away)?;
    regions.start(WEST, 0)?;
    knows_that_it_is_lost(&regions)?;
    let check = regions.site(EAST, 0).runs(&["region", "check"], 3)?;
    let check: String = check.split_whitespace().collect::<Vec<_>>().join(" ");
    require!(check.contains("do not empty 'EAST'"), "{check}");

    // It is mounted again: it serves as before.
    regions.kill(WEST, 0)?;
    fs::remove_dir_all(&data)?;
    fs::rename(&away, &data)?;
    regions.start(WEST, 0)?;
    regions.until_towed()?;
    require!(depth(&regions, WEST)? == 50, "{}", depth(&regions, WEST)?);
    regions.stop_all()
}

fn starts_empty_with_its_old_role(size: usize) -> Try {
    let mut regions = Regions::towed(&RegionsDesign { size, ..RegionsDesign::default() })?;
    put(&regions, WEST, 50, "kept")?;
    regions.until_towed()?;
    for at in 0..size {
        regions.kill(WEST, at)?;
    }
    promote(&regions)?;
    put(&regions, EAST, 10, "new")?;
    for at in 0..size {
        fs::remove_dir_all(&regions.site(WEST, at).data)?;
        regions.start(WEST, at)?;
    }
    knows_that_it_is_lost(&regions)?;

    // As the status says.
    for at in 0..size {
        regions.kill(WEST, at)?;
        fs::remove_dir_all(&regions.site(WEST, at).data)?;
        let site = regions.site_mut(WEST, at);
        site.config = site.config.replace("role = \"live\"", "role = \"recovery\"");
    }
    for at in 0..size {
        regions.start(WEST, at)?;
    }
    regions.until_towed_by(EAST)?;
    require!(depth(&regions, EAST)? == 60, "{}", depth(&regions, EAST)?);
    regions.stop_all()
}

#[test]
fn a_site_that_starts_empty_with_its_old_role_is_no_second_live_group() -> Try {
    starts_empty_with_its_old_role(1)
}

#[test]
fn a_site_of_three_that_starts_empty_with_its_old_role_is_no_second_live_group() -> Try {
    starts_empty_with_its_old_role(3)
}

/// A first installation: the live group is there before the other one.
#[test]
fn a_live_group_that_is_installed_first_serves_without_the_other_one() -> Try {
    let mut regions = Regions::plan(&RegionsDesign { size: 1, ..RegionsDesign::default() })?;
    regions.start(WEST, 0)?;
    put(&regions, WEST, 5, "early")?;
    regions.start(EAST, 0)?;
    regions.until_towed()?;
    require!(depth(&regions, WEST)? == 5, "{}", depth(&regions, WEST)?);
    regions.stop_all()
}
