//! A rehearsal at a recovery instance: it has what the recovery point has, can be written to, and
//! leaves nothing, also when it is killed; recovery follows live meanwhile, and neither sees it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::{Try, one_log, require, wait};

const SMALL: &str = "[log]\nextent_bytes = 4194304\n\n[queue_manager]\nimglogln = 4\n";

fn of(size: usize) -> RegionsDesign {
    RegionsDesign { size, config: SMALL.into(), ..RegionsDesign::default() }
}

/// Puts messages of 2000 bytes at the active instance of live.
fn put(regions: &Regions, count: usize, text: &str) -> Try {
    let active = regions.until_active(WEST)?;
    let body = "x".repeat(2_000);
    let lines: String = (0..count).map(|number| format!("{text} {number} {body}\n")).collect();
    let arguments = ["put", "Q", "--lines", "--transaction", "20"];
    regions.site(WEST, active).runs_with(&arguments, lines.as_bytes(), 0).map(drop)
}

fn depth(regions: &Regions) -> Try<u64> {
    let active = regions.until_active(WEST)?;
    regions.site(WEST, active).queue_number("Q", "depth")
}

/// Rehearses at an instance of east; what is said.
fn rehearse(regions: &Regions, at: usize, check: &[&str], code: i32) -> Try<Value> {
    let arguments = [&["region", "rehearse", "--json"], check].concat();
    // The check's own arguments come last, behind those that the kit adds.
    let mut command = regions.site(EAST, at).towline(&arguments[..3])?;
    let output = command.args(check).output()?;
    let said = towline_e2e::daemon::said(&output);
    require!(output.status.code() == Some(code), "{}: {said}", output.status);
    let line = said.lines().find(|line| line.starts_with('{')).ok_or("no JSON")?;
    Ok(serde_json::from_str(line)?)
}

fn folder(regions: &Regions, at: usize) -> PathBuf {
    regions.site(EAST, at).data.join("rehearsal")
}

/// The depth of the queue in a report.
fn one(said: &Value, depth: u64) -> Try {
    let queues = said["queues"].as_array().ok_or("no queues")?;
    let queue = queues.iter().find(|queue| queue["name"] == "Q").ok_or("no queue")?;
    require!(queue["depth"] == depth, "{said}");
    Ok(())
}

/// A script with the path of our program as `$TOWLINE`.
fn script(text: &str) -> Try<Vec<String>> {
    let program = towline_e2e::paths::towline()?;
    let text = format!("TOWLINE={}; {text}", program.display());
    Ok(vec!["--".into(), "sh".into(), "-ec".into(), text])
}

/// Waits until each instance of east has what a majority has.
fn until_all_have_it(regions: &Regions, size: usize) -> Try {
    let mut last = Value::Null;
    let has_all = || {
        let relay = regions.relay();
        last = relay.and_then(|at| regions.group_status(EAST, at).ok()).unwrap_or_default();
        let rows = last["instances"].as_array().map(Vec::as_slice).unwrap_or_default();
        rows.len() == size && rows.iter().all(|row| row["ack_lsn"] == last["group_lsn"])
    };
    wait::until_true("all of east to have the log", LONG, has_all)
        .map_err(|error| regions.explained(&format!("{error}: {last}")))
}

fn rehearses(size: usize) -> Try {
    let mut regions = Regions::towed(&of(size))?;
    put(&regions, 3_000, "one")?;
    regions.until_towed()?;
    let at = size - 1;
    until_all_have_it(&regions, size)?;
    let said = rehearse(&regions, at, &[], 0)?;
    one(&said, 3_000)?;
    println!("{said}");

    // It can be written to, by its user alone; and the check's end is its own.
    let check = script(
        "test \"$TOWLINE_QUEUE_MANAGER\" = QM1.REHEARSAL; \
         test \"$($TOWLINE get Q --count 2000 | wc -l)\" = 2000; \
         printf 'DEFINE QLOCAL(NEW)\\nDISPLAY QUEUE(Q) CURDEPTH\\n' | $TOWLINE mqsc >&2; \
         $TOWLINE put Q again; $TOWLINE put NEW new; \
         ! TOWLINE_PASSWORD=wrong $TOWLINE get Q --count 1",
    )?;
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    let said = rehearse(&regions, at, &check, 0)?;
    require!(said["check"]["exit_code"] == 0, "{said}");
    let said = rehearse(&regions, at, &["--", "sh", "-c", "exit 7"], 3)?;
    require!(said["check"]["exit_code"] == 7, "{said}");
    // Each begins at the recovery point again, and live did not see any.
    put(&regions, 100, "two")?;
    regions.until_towed()?;
    until_all_have_it(&regions, size)?;
    one(&rehearse(&regions, at, &[], 0)?, 3_100)?;
    require!(depth(&regions)? == 3_100, "live was changed");
    require!(!folder(&regions, at).exists(), "something is left");
    regions.stop_all()?;
    one_log::follows(&regions, WEST, size)
}

#[test]
fn a_rehearsal_has_the_recovery_point_can_be_written_to_and_leaves_nothing() -> Try {
    rehearses(1)
}

#[test]
fn any_instance_of_a_recovery_group_of_three_can_be_rehearsed_with() -> Try {
    rehearses(3)
}

/// One that stays; and where it serves.
fn kept(regions: &Regions) -> Try<(Child, String)> {
    let mut command = regions.site(EAST, 0).towline(&["region", "rehearse", "--keep"])?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("no standard output")?;
    let mut lines = BufReader::new(out).lines();
    let serves = lines.find_map(|line| {
        let line = line.ok()?;
        Some(line.strip_prefix("it serves at amqp://")?.split(',').next()?.to_owned())
    });
    let Some(address) = serves else {
        child.kill()?;
        return Err("it does not serve".into());
    };
    Ok((child, address))
}

fn is_gone(regions: &Regions, address: &str) -> Try {
    let folder = folder(regions, 0);
    wait::until_true("nothing to be left", LONG, || {
        !folder.exists() && std::net::TcpStream::connect(address).is_err()
    })
}

/// Files without a name that a process has open count too.
fn bytes_held(data: &Path) -> Try<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(data.join("log"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

#[test]
fn recovery_goes_on_beside_a_rehearsal_and_what_kills_one_removes_it() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, 2_000, "one")?;
    regions.until_towed()?;
    let (mut child, address) = kept(&regions)?;
    let second = regions.site(EAST, 0).runs(&["region", "rehearse"], 1);
    require!(second.is_ok(), "two at a time");
    // Live goes on, and so does recovery: twice what is there, so that extents are let go.
    let active = regions.until_active(WEST)?;
    regions.site(WEST, active).runs(&["get", "Q", "--all"], 0)?;
    put(&regions, 6_000, "two")?;
    regions.until_towed()?;
    // What the rehearsal has is as it was: each body is read and checked.
    let url = format!("amqp://{address}");
    require!(bytes_held(&regions.site(EAST, 0).data)? > 0, "no log");
    // Each rehearsal has a folder of its own in it.
    let own = fs::read_dir(folder(&regions, 0))?.next().ok_or("no folder")??;
    let data = own.path().join("data");
    let mut command = std::process::Command::new(towline_e2e::paths::towline()?);
    let got = command.args(["get", "Q", "--all", "--data"]).arg(&data).output()?;
    let said = String::from_utf8_lossy(&got.stdout);
    let right = said.lines().filter(|line| line.starts_with("one ")).count();
    require!(right == 2_000, "{right} of 2000 at {url}");
    child.kill()?;
    child.wait()?;
    is_gone(&regions, &address)?;

    // The instance is killed: the rehearsal ends, and the next start removes what is left.
    let (mut child, address) = kept(&regions)?;
    regions.kill(EAST, 0)?;
    let ended = wait::until("the end of the rehearsal", LONG, || child.try_wait().ok().flatten())?;
    require!(ended.code() == Some(1), "{ended}");
    fs::create_dir_all(folder(&regions, 0).join("data"))?;
    regions.start(EAST, 0)?;
    is_gone(&regions, &address)?;

    // Its group is promoted: that goes first.
    regions.until_towed()?;
    let (mut child, address) = kept(&regions)?;
    regions.kill(WEST, 0)?;
    let site = regions.site(EAST, 0);
    let is_lost = || site.runs(&["region", "failover", "--dry-run"], 0).is_ok();
    wait::until_true("the live group is seen to be gone", LONG, is_lost)?;
    site.runs(&["region", "failover", "--yes", "--json"], 0)?;
    let ended = wait::until("the end of the rehearsal", LONG, || child.try_wait().ok().flatten())?;
    require!(ended.code() == Some(1), "{ended}");
    is_gone(&regions, &address)?;
    let refused = regions.site(EAST, 0).runs(&["region", "rehearse"], 1);
    require!(refused.is_ok(), "a live group was rehearsed with");
    regions.stop(EAST, 0)
}

#[test]
fn a_hundred_rehearsals_leave_no_file_and_no_space() -> Try {
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, 200, "one")?;
    regions.until_towed()?;
    let names = || -> Try<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&regions.site(EAST, 0).data)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    let before = names()?;
    let mut longest = 0;
    for _ in 0..100 {
        let said = rehearse(&regions, 0, &[], 0)?;
        longest = longest.max(said["serving_ms"].as_u64().ok_or("no time")?);
    }
    println!("the slowest served after {longest} ms");
    wait::until_true("no file is left", Duration::from_secs(10), || {
        names().is_ok_and(|now| now == before)
    })?;
    regions.stop_all()
}

/// How long a rehearsal takes does not grow with what is on the queues. By hand:
/// TOWLINE_REHEARSAL_DEPTH=1000000.
#[test]
fn a_rehearsal_of_deep_queues_serves_as_soon_as_one_of_empty_ones() -> Try {
    let depth = std::env::var("TOWLINE_REHEARSAL_DEPTH").ok().and_then(|text| text.parse().ok());
    let depth: u64 = depth.unwrap_or(4_000);
    let mut regions = Regions::towed(&of(1))?;
    put(&regions, 10, "one")?;
    regions.until_towed()?;
    let serves = || -> Try<[u64; 2]> {
        let said = rehearse(&regions, 0, &[], 0)?;
        println!("{said}");
        let of = |key: &str| said[key].as_u64().ok_or("no number");
        Ok([of("serving_ms")?, of("messages")?])
    };
    let [empty, _] = serves()?;
    let url = format!("amqp://{}", regions.site(WEST, 0).listen);
    for queue in 0..10 {
        let mut command = std::process::Command::new(towline_e2e::paths::towline()?);
        command.args(["load", "put", "--persistent", "--queue", &format!("DEEP.{queue}")]);
        command.args(["--count", &depth.to_string(), "--seconds", "900", "--size", "100"]);
        command.args(["--url", &url, "--quiet"]);
        let output = command.output()?;
        require!(output.status.success(), "{}", towline_e2e::daemon::said(&output));
    }
    regions.until_towed()?;
    let status = regions.site(WEST, 0).status()?;
    let queues = status["queues"].as_array().ok_or("no queues")?;
    let there: u64 = queues.iter().filter_map(|queue| queue["depth"].as_u64()).sum();
    let [deep, messages] = serves()?;
    require!(messages == there && there > depth, "{messages}, not {there}");
    // The first one may have had to take an image.
    let [again, _] = serves()?;
    println!("empty {empty} ms, deep {deep} ms, again {again} ms");
    require!(again < empty * 3 + 1_000, "{again} ms with {messages} messages, {empty} ms without");
    regions.stop_all()
}
