//! Several processes with one data folder: one is active, the others stand by and take over.
//!
//! Not here: file systems of other machines; the steps of a takeover one by one (unit tests of
//! `shared_folder`). After each takeover the judgement of tests/e2e/src/history.rs.

use std::fs;
use std::time::{Duration, Instant};

use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Daemon, Site, said};
use towline_e2e::history::{History, Tally};
use towline_e2e::peer::Peer;
use towline_e2e::wait;
use towline_e2e::workload::{Workload, drain_all};
use towline_e2e::{Try, fail, require};

/// Small extents, so that they are filled and let go within the rounds.
const LOG: &str = "[log]\nextent_bytes = 4194304\n";
/// Where no instance is stopped: so long that none loses a lease on a busy machine.
const LONG_LEASE: &str = "[shared]\nlease_ms = 120000\n";
/// Where an instance is stopped, and none may lose a lease by itself on a busy machine.
const LEASE: &str = "[shared]\nlease_ms = 4000\n";
/// Exit status of an instance that lost its lease.
const LEASE_LOST: i32 = 71;
/// Far above what it takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Pauses about as long as the lease.
const PAUSES: u32 = 8;
/// Takeovers in a row; `TOWLINE_TAKEOVERS` asks for more in a long run.
const TAKEOVERS: u32 = 20;

/// Sites with one data folder; each has its own log of the daemon.
fn sites(count: usize, config: &str) -> Try<Vec<Site>> {
    let mut sites: Vec<Site> = Vec::new();
    for _ in 0..count {
        let mut site = Site::open()?.with_config(&format!("{LOG}{config}"));
        site.arguments.push("--standby".into());
        if let Some(first) = sites.first() {
            site.data.clone_from(&first.data);
        }
        sites.push(site);
    }
    Ok(sites)
}

/// Waits until clients can put, and says how long it took.
fn taken_over(daemon: &mut Daemon, began: Instant) -> Try<Duration> {
    daemon.await_active()?;
    put(daemon, "AFTER", &["after"])?;
    Ok(began.elapsed())
}

fn put(daemon: &Daemon, queue: &str, bodies: &[&str]) -> Try {
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, queue)?;
    for (number, body) in (0..).zip(bodies) {
        peer.put(0, number, body.as_bytes())?;
    }
    Ok(())
}

fn drain(daemon: &Daemon, queue: &str) -> Try<Vec<String>> {
    Peer::begun(daemon.address())?.drain(queue)
}

fn loaded(daemon: &Daemon, round: u32, chance: &mut Chance) -> Try<Workload> {
    let load = Workload::start(daemon, round, chance);
    wait::until_true("work begun", LIMIT, || load.units_begun() > 20)?;
    wait::pause(Duration::from_millis(chance.within(50, 300)));
    Ok(load)
}

fn judged(daemon: &Daemon, history: &History) -> Try<Tally> {
    history.judge(&drain_all(daemon)?)
}

fn epoch(site: &Site) -> Try<u64> {
    let status = site.status()?;
    let epoch = status["shared"]["epoch"].as_u64();
    epoch.ok_or_else(|| format!("no epoch in {status}").into())
}

#[test]
fn when_the_active_is_killed_the_standby_serves_and_nothing_acknowledged_is_lost() -> Try {
    let mut chance = Chance::announced("kill -9 of the active");
    let sites = sites(2, LONG_LEASE)?;
    let active = sites[0].start()?;
    let mut standby = sites[1].start_standby()?;
    let load = loaded(&active, 0, &mut chance)?;
    let began = Instant::now();
    active.kill()?;
    let took = taken_over(&mut standby, began)?;
    println!("kill -9 to the first put of the standby: {} ms", took.as_millis());
    let tally = judged(&standby, &load.end()?)?;
    println!("{tally:?}");
    require!(tally.committed > 0, "nothing was committed: {tally:?}");
    standby.stop()
}

#[test]
fn when_the_active_ends_in_order_the_standby_does_not_wait_for_its_lease() -> Try {
    // Not even where a free lock is not trusted: the active says that it has ended.
    let sites = sites(2, &format!("{LONG_LEASE}takeover_by_lock = false\n"))?;
    let active = sites[0].start()?;
    let mut standby = sites[1].start_standby()?;
    put(&active, "Q", &["one", "two"])?;
    active.stop()?;
    let took = taken_over(&mut standby, Instant::now())?;
    println!("orderly end to the first put of the standby: {} ms", took.as_millis());
    let found = drain(&standby, "Q")?;
    require!(found == ["one", "two"], "{found:?}");
    standby.stop()
}

#[test]
fn an_active_that_was_stopped_wakes_and_ends_without_a_word() -> Try {
    let mut chance = Chance::announced("SIGSTOP of the active");
    let sites = sites(2, LEASE)?;
    let mut active = sites[0].start()?;
    let mut standby = sites[1].start_standby()?;
    let load = loaded(&active, 0, &mut chance)?;
    let began = Instant::now();
    active.pause()?;
    let took = taken_over(&mut standby, began)?;
    println!("SIGSTOP to the first put of the standby: {} ms", took.as_millis());
    let ran_out = sites[1].log().contains("the lease of the active instance has expired");
    require!(ran_out, "taken over for another reason: {}", sites[1].log());
    put(&standby, "MEANWHILE", &["one", "two"])?;
    active.wake()?;
    let status = active.await_end(LIMIT)?;
    require!(status.code() == Some(LEASE_LOST), "the old active ended with {status}");
    require!(sites[0].log().contains("TWL1063E"), "no word of it: {}", sites[0].log());
    let tally = judged(&standby, &load.end()?)?;
    println!("{tally:?}");
    require!(tally.committed > 0, "nothing was committed: {tally:?}");
    let found = drain(&standby, "MEANWHILE")?;
    require!(found == ["one", "two"], "{found:?}");
    standby.stop()?;
    // Nor did the old one change what the next start reads.
    let daemon = sites[0].start()?;
    require!(drain(&daemon, "MEANWHILE")?.is_empty(), "what was got is back");
    require!(epoch(&sites[0])? == 3, "{}", sites[0].status()?);
    daemon.stop()
}

#[test]
fn whether_a_pause_is_shorter_or_longer_than_the_lease_nothing_is_lost() -> Try {
    let mut chance = Chance::announced("pauses about as long as the lease");
    let sites = sites(2, "[shared]\nlease_ms = 1000\n")?;
    let mut active = sites[0].start()?;
    let (mut sum, mut survived) = (Tally::default(), 0);
    for round in 0..PAUSES {
        let next = &sites[usize::from(round % 2 == 0)];
        let mut standby = next.start_standby()?;
        let load = loaded(&active, round, &mut chance)?;
        let time = Duration::from_millis(chance.within(600, 1_600));
        active.pause()?;
        wait::pause(time);
        active.wake()?;
        if put(&active, "AFTER", &["after"]).is_ok() {
            survived += 1;
            put(&active, "AFTER", &["after"])?;
            active.kill()?;
        } else {
            let status = active.await_end(LIMIT)?;
            require!(status.code() == Some(LEASE_LOST), "after {time:?}: ended with {status}");
        }
        standby.await_active()?;
        let tally = judged(&standby, &load.end()?);
        sum.add(tally.map_err(|error| format!("round {round}, {time:?}: {error}"))?);
        active = standby;
    }
    println!("{survived} of {PAUSES} survived; {sum:?}");
    let after = drain(&active, "AFTER")?.len();
    // Of a put that was not answered nothing is known.
    require!(after >= 2 * survived, "{after} of {survived} x 2 puts are there");
    active.stop()
}

#[test]
fn of_two_standbys_one_takes_over_and_the_other_goes_on_standing_by() -> Try {
    let sites = sites(3, LONG_LEASE)?;
    let active = sites[0].start()?;
    let (one, other) = (sites[1].start_standby()?, sites[2].start_standby()?);
    put(&active, "Q", &["one"])?;
    active.kill()?;
    let said = "is a standby";
    let took_over = |site: &Site| site.log().contains("TWL1002I");
    wait::until_true("one that took over", LIMIT, || took_over(&sites[1]) || took_over(&sites[2]))?;
    let one_won = took_over(&sites[1]);
    let (mut winner, mut other) = if one_won { (one, other) } else { (other, one) };
    let (winner_at, other_at) = if one_won { (1, 2) } else { (2, 1) };
    winner.await_active()?;
    put(&winner, "Q", &["two"])?;
    require!(other.is_running() && !took_over(&sites[other_at]), "both took over");
    require!(sites[other_at].log().contains(said), "{}", sites[other_at].log());
    require!(epoch(&sites[winner_at])? == 2, "{}", sites[0].status()?);
    winner.kill()?;
    other.await_active()?;
    let found = drain(&other, "Q")?;
    require!(found == ["one", "two"], "{found:?}");
    require!(epoch(&sites[other_at])? == 3, "{}", sites[0].status()?);
    other.stop()
}

#[test]
fn twenty_takeovers_in_a_row_lose_nothing() -> Try {
    let rounds = std::env::var("TOWLINE_TAKEOVERS").ok().and_then(|text| text.parse().ok());
    let rounds: u32 = rounds.unwrap_or(TAKEOVERS);
    let mut chance = Chance::announced("takeovers in a row");
    let sites = sites(2, LEASE)?;
    let mut active = sites[0].start()?;
    let (mut sum, mut killed, mut stopped) = (Tally::default(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let next = &sites[usize::from(round % 2 == 0)];
        let mut standby = next.start_standby()?;
        let load = loaded(&active, round, &mut chance)?;
        let began = Instant::now();
        if chance.percent(75) {
            active.kill()?;
            killed.push(taken_over(&mut standby, began)?.as_millis());
        } else {
            active.pause()?;
            stopped.push(taken_over(&mut standby, began)?.as_millis());
            active.wake()?;
            let status = active.await_end(LIMIT)?;
            require!(status.code() == Some(LEASE_LOST), "round {round}: ended with {status}");
        }
        let tally = judged(&standby, &load.end()?);
        sum.add(tally.map_err(|error| format!("round {round}: {error}"))?);
        active = standby;
    }
    println!("takeover in ms, by kill -9 {killed:?}, by SIGSTOP {stopped:?}; {sum:?}");
    require!(sum.committed > 100, "too little was committed to prove anything: {sum:?}");
    let after = drain(&active, "AFTER")?;
    require!(after.len() == rounds as usize, "{} puts of {rounds} are there", after.len());
    active.stop()?;
    let left = fs::read_dir(&sites[0].data)?;
    let left = left.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut left = left.collect::<Try<Vec<_>>>()?;
    left.sort();
    let own = |name: &str| format!("{name}-{:016x}", rounds + 1);
    let wanted = [own("epoch"), own("log"), "name".into(), "room".into()];
    require!(left == wanted, "more is left than the last one's: {left:?}");
    Ok(())
}

#[test]
fn a_folder_of_one_instance_is_taken_over_and_is_then_started_with_and_without_sharing() -> Try {
    let shared = sites(2, LONG_LEASE)?;
    let (mut single, shared) = (Site::open()?.with_config(LOG), shared);
    single.data.clone_from(&shared[0].data);
    let daemon = single.start()?;
    put(&daemon, "Q", &["one"])?;
    let refused = said(&shared[0].start_refused()?);
    require!(refused.contains("TWL1011E"), "beside one that does not share: {refused}");
    daemon.kill()?;
    let daemon = shared[0].start()?;
    put(&daemon, "Q", &["two"])?;
    wait::until_true("the old folder is gone", LIMIT, || !single.data.join("log").exists())?;
    let refused = said(&single.start_refused()?);
    let holder = format!(":{}.", daemon.pid());
    require!(refused.contains("TWL1011E") && refused.contains(&holder), "{refused}");
    let standby = shared[1].start_standby()?;
    wait::until_true("the active knows its standby", LIMIT, || {
        let standbys = shared[0].status().map(|status| status["shared"]["standbys"].clone());
        standbys.is_ok_and(|standbys| standbys.to_string().contains(&standby.pid().to_string()))
    })?;
    require!(shared[0].status()?["shared"]["role"] == "active", "{}", shared[0].status()?);
    drop(standby);
    daemon.kill()?;
    let daemon = single.start()?;
    let found = drain(&daemon, "Q")?;
    require!(found == ["one", "two"], "{found:?}");
    daemon.stop()?;
    single.runs(&["log", "verify"], 0)?;
    let backup = single.scratch().join("backup");
    let backup = backup.to_str().ok_or("a path that is no text")?;
    single.runs(&["backup", "--to", backup], 0)?;
    single.runs(&["log", "dump"], 0).map(drop)
}

#[test]
fn an_instance_that_shares_with_nobody_has_the_files_it_always_had() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    require!(site.status()?.get("shared").is_none(), "{}", site.status()?);
    daemon.stop()?;
    let mut left = Vec::new();
    for entry in fs::read_dir(&site.data)? {
        left.push(entry?.file_name());
    }
    left.sort();
    if left != ["log", "name"] {
        fail!("{left:?}");
    }
    Ok(())
}
