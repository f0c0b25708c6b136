//! Recovery lacks log that live does not have any more: it gets a copy, beside its own log, which
//! it keeps until the copy is whole; through kills, cuts and a disk with too little space.

use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;
use towline_e2e::chaos::disk::ChaosDisk;
use towline_e2e::daemon::said;
use towline_e2e::one_log::logs_are_one;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::{Try, fail, paths, require, wait};

/// Extents, and so what is kept for recovery, that are used again soon.
const SMALL: &str = "[queue_manager]\nimglogln = 1\n[log]\nextent_bytes = 4194304\n";
/// What stays in the queues, and so in a copy: so much of 50 KB each.
const DEPTH: &str = "600";
/// Bits a second at which a copy takes some ten seconds.
const SLOW: u64 = 24_000_000;
/// Of a copy, when something is done to it.
const MIDDLE: u64 = 8_000_000;

fn of(size: usize) -> RegionsDesign {
    let recovery = "log_bytes_behind_max = 4194304".into();
    RegionsDesign { size, config: SMALL.into(), recovery, ..RegionsDesign::default() }
}

/// `towline load` against an instance of west, which runs.
fn loading(regions: &Regions, at: usize, arguments: &[&str]) -> Try<Child> {
    let url = format!("amqp://{}", regions.site(WEST, at).listen);
    let mut command = Command::new(paths::towline()?);
    command.arg("load").args(arguments).args(["--url", &url, "--quiet"]);
    Ok(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()?)
}

fn load(regions: &Regions, at: usize, arguments: &[&str]) -> Try {
    let output = loading(regions, at, arguments)?.wait_with_output()?;
    require!(output.status.success(), "load {arguments:?}: {}", said(&output));
    Ok(())
}

fn active(regions: &Regions) -> Try<usize> {
    wait::until("an active instance", LONG, || regions.active())
}

/// Live's log goes on so far that what recovery lacks is gone, and queues are left with what a
/// copy has to bring.
fn leave_behind(regions: &Regions) -> Try {
    let at = active(regions)?;
    for _ in 0..2 {
        let stream = ["stream", "--queue", "passes", "--count", "600", "--size", "50000"];
        load(regions, at, &stream)?;
        regions.site(WEST, at).runs(&["image"], 0)?;
    }
    let put = ["put", "--queue", "stays", "--count", DEPTH, "--size", "50000"];
    load(regions, at, &put)?;
    regions.site(WEST, at).runs(&["image"], 0).map(drop)
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
    seen.map_err(|error| {
        let logs = [WEST, EAST].map(|group| regions.site(group, 0).log());
        format!("{error}: {last}\n--- west\n{}\n--- east\n{}", logs[0], logs[1]).into()
    })
}

/// Waits until a copy is in its middle.
fn until_middle(regions: &Regions) -> Try<Value> {
    until_seen(regions, "the middle of a copy", |seen| {
        seen["status"] == "rebasing" && number(seen, "rebase_bytes_done") >= MIDDLE
    })
}

/// The bytes of each copy that began or went on at an instance of east, and how much of it was
/// there.
fn copies(regions: &Regions, at: usize) -> Try<Vec<[u64; 2]>> {
    let log = regions.site(EAST, at).log();
    let mut copies = Vec::new();
    for line in log.lines().filter(|line| line.contains("TWL4442I")) {
        let Some((_, said)) = line.split_once(" comes: ") else { fail!("{line}") };
        let numbers = said.split(|letter: char| !letter.is_ascii_digit());
        let numbers: Vec<u64> = numbers.filter_map(|digits| digits.parse().ok()).collect();
        let [all, has, ..] = numbers[..] else { fail!("{line}") };
        copies.push([all, has]);
    }
    Ok(copies)
}

/// East ran behind while it was stopped, and runs again with a line on which a copy takes a while.
fn behind(size: usize) -> Try<(Regions, Value)> {
    let mut regions = Regions::towed(&of(size))?;
    let at = active(&regions)?;
    load(&regions, at, &["put", "--queue", "old", "--count", "20", "--size", "1000"])?;
    regions.until_towed()?;
    let before = regions.group_status(EAST, 0)?;
    for at in 0..size {
        regions.stop(EAST, at)?;
    }
    leave_behind(&regions)?;
    regions.order(EAST, Order::Bandwidth(Ways::There, SLOW));
    for at in 0..size {
        regions.start(EAST, at)?;
    }
    Ok((regions, before))
}

fn ends_as_one(mut regions: Regions, size: usize) -> Try {
    regions.order(EAST, Order::Bandwidth(Ways::Both, 0));
    regions.until_towed()?;
    if size > 1 {
        until_east_is_whole(&regions)?;
    }
    regions.stop_all()?;
    logs_are_one(&regions, size)
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
fn a_blank_recovery_group_of_one_gets_a_copy_when_the_beginning_of_the_log_is_gone() -> Try {
    let mut regions = Regions::plan(&of(1))?;
    regions.start(WEST, 0)?;
    leave_behind(&regions)?;
    regions.start(EAST, 0)?;
    let seen = regions.until_towed()?;
    require!(number(&seen, "rebases") == 1, "{seen}");
    require!(number(&seen, "backlog_puts") == 0, "{seen}");
    let west = regions.site(WEST, 0).log();
    for id in ["TWL4441I", "TWL4444I"] {
        require!(west.contains(id), "no {id} in\n{west}");
    }
    let east = regions.site(EAST, 0).log();
    for id in ["TWL4442I", "TWL4445I"] {
        require!(east.contains(id), "no {id} in\n{east}");
    }
    // It follows from there on, also after a restart.
    load(&regions, 0, &["put", "--queue", "new", "--count", "50", "--size", "1000"])?;
    regions.until_towed()?;
    regions.kill(EAST, 0)?;
    regions.start(EAST, 0)?;
    ends_as_one(regions, 1)
}

#[test]
fn a_group_of_one_that_is_far_behind_keeps_its_log_until_the_copy_is_whole() -> Try {
    let (regions, before) = behind(1)?;
    let seen = until_middle(&regions)?;
    require!(seen["promotable_lsn"] == before["group_lsn"], "{seen} and {before}");
    // 600 messages lack; of those that passed none is left.
    require!(number(&seen, "backlog_puts") >= 600 && seen["in_sync"] == false, "{seen}");
    require!(number(&seen, "rebase_bytes_per_second") > 0, "{seen}");
    require!(number(&seen, "rebase_rest_s") > 0, "{seen}");
    let east = regions.group_status(EAST, 0)?;
    let other = &east["other_region"];
    require!(other["status"] == "rebasing" && number(other, "rebase_bytes") > MIDDLE, "{east}");
    require!(other["promotable_lsn"] == before["group_lsn"], "{east} and {before}");
    require!(east["group_lsn"] == before["group_lsn"], "{east} and {before}");
    let shown = regions.site(WEST, 0).runs(&["status", "--groups"], 0)?;
    require!(shown.contains("rebasing") && shown.contains("Promotable"), "{shown}");
    // Live goes on meanwhile.
    load(&regions, 0, &["stream", "--queue", "passes", "--count", "200", "--size", "50000"])?;
    ends_as_one(regions, 1)
}

#[test]
fn a_copy_goes_on_where_it_was_when_the_relay_is_killed_or_the_link_breaks() -> Try {
    let (mut regions, _) = behind(1)?;
    until_middle(&regions)?;
    regions.kill(EAST, 0)?;
    // What it had is whole, and is what it starts with.
    regions.site(EAST, 0).runs(&["log", "verify"], 0)?;
    regions.start(EAST, 0)?;
    let seen = until_middle(&regions)?;
    let had = number(&seen, "rebase_bytes_done");
    regions.order(EAST, Order::Reset);
    until_seen(&regions, "more of the copy", |seen| number(seen, "rebase_bytes_done") > had)?;
    let seen = until_seen(&regions, "the end of the copy", |seen| seen["in_sync"] == true)?;
    require!(number(&seen, "rebases") == 1, "{seen}");
    let copies = copies(&regions, 0)?;
    require!(copies.len() >= 3 && copies[0][1] == 0, "{copies:?}");
    let again = copies.iter().skip(1).all(|[all, has]| *has >= MIDDLE / 2 && *all == copies[0][0]);
    require!(again, "{copies:?}");
    ends_as_one(regions, 1)
}

#[test]
fn live_is_killed_in_the_middle_of_a_copy_and_the_old_one_is_there_whole() -> Try {
    let (mut regions, before) = behind(1)?;
    until_middle(&regions)?;
    regions.kill(WEST, 0)?;
    let east = regions.group_status(EAST, 0)?;
    require!(east["other_region"]["promotable_lsn"] == before["group_lsn"], "{east}");
    regions.stop(EAST, 0)?;
    regions.site(EAST, 0).runs(&["log", "verify"], 0)?;
    regions.start(EAST, 0)?;
    let east = regions.group_status(EAST, 0)?;
    require!(east["group_lsn"] == before["group_lsn"], "{east} and {before}");
    // The image is not that of the live process before: the copy begins anew.
    regions.start(WEST, 0)?;
    ends_as_one(regions, 1)
}

#[test]
fn three_that_are_far_behind_get_one_copy_under_load_and_share_it() -> Try {
    let (regions, _) = behind(3)?;
    let at = active(&regions)?;
    let stream = ["stream", "--queue", "passes", "--seconds", "20", "--rate", "200", "--size"];
    let load = loading(&regions, at, &[&stream[..], &["2000"]].concat())?;
    until_middle(&regions)?;
    regions.order(EAST, Order::Bandwidth(Ways::Both, 0));
    let seen = until_seen(&regions, "the copy", |seen| seen["status"] == "normal")?;
    require!(number(&seen, "rebases") == 1, "{seen}");
    let output = load.wait_with_output()?;
    require!(output.status.success(), "{}", said(&output));
    let began: usize = (0..3).map(|at| copies(&regions, at).map_or(0, |all| all.len())).sum();
    require!(began == 1, "{began} copies came over the link");
    ends_as_one(regions, 3)
}

#[test]
fn a_relay_of_three_that_is_killed_in_the_middle_of_a_copy_takes_nothing_from_its_group() -> Try {
    let (mut regions, before) = behind(3)?;
    until_middle(&regions)?;
    let relay = (0..3).find(|at| copies(&regions, *at).is_ok_and(|all| !all.is_empty()));
    let Some(relay) = relay else { fail!("no copy began") };
    regions.kill(EAST, relay)?;
    for at in (0..3).filter(|at| *at != relay) {
        let other = regions.group_status(EAST, at)?;
        // Without a relay they do not know how much of it is committed.
        let own = &other["instances"][at]["ack_lsn"];
        require!(*own == before["group_lsn"], "{other} and {before}");
    }
    regions.start(EAST, relay)?;
    ends_as_one(regions, 3)
}

#[test]
fn a_blank_recovery_group_of_three_gets_one_copy() -> Try {
    let mut regions = Regions::plan(&of(3))?;
    for at in 0..3 {
        regions.start(WEST, at)?;
    }
    leave_behind(&regions)?;
    for at in 0..3 {
        regions.start(EAST, at)?;
    }
    let seen = regions.until_towed()?;
    require!(number(&seen, "rebases") == 1, "{seen}");
    ends_as_one(regions, 3)
}

/// A data folder with so much space.
struct Filled {
    _disk: ChaosDisk,
    file: PathBuf,
}

#[test]
fn too_little_room_for_a_copy_is_refused_and_the_old_log_stays() -> Try {
    let mut regions = Regions::plan(&of(1))?;
    let disk = ChaosDisk::plain(regions.site(EAST, 0))?;
    let filled = Filled { _disk: disk, file: regions.site(EAST, 0).data.join("filler") };
    regions.start(EAST, 0)?;
    regions.start(WEST, 0)?;
    load(&regions, 0, &["put", "--queue", "old", "--count", "20", "--size", "1000"])?;
    regions.until_towed()?;
    let before = regions.group_status(EAST, 0)?;
    regions.stop(EAST, 0)?;
    leave_behind(&regions)?;
    let left = rustix::fs::statvfs(&regions.site(EAST, 0).data)?;
    let free = left.f_bavail * left.f_frsize;
    std::fs::write(&filled.file, vec![1; usize::try_from(free - (24 << 20))?])?;
    regions.start(EAST, 0)?;
    let refused = |seen: &Value| seen["reason"].as_str().unwrap_or("").contains("free space");
    let seen = until_seen(&regions, "a refusal", refused)?;
    require!(seen["status"] == "needs_copy", "{seen}");
    require!(regions.site(EAST, 0).log().contains("TWL4448E"), "{seen}");
    let east = regions.group_status(EAST, 0)?;
    require!(east["group_lsn"] == before["group_lsn"], "{east} and {before}");
    require!(!regions.site(EAST, 0).data.join("rebase").exists(), "something was written");
    std::fs::remove_file(&filled.file)?;
    ends_as_one(regions, 1)
}
