//! Power cuts: the daemon's data is on a file system that forgets what was not synced.

use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::history::{Contents, History, Tally};
use towline_e2e::lossy::mount::{Lossy, folder_on};
use towline_e2e::peer::Peer;
use towline_e2e::require;
use towline_e2e::wait;
use towline_e2e::workload::{Workload, drain_all};

/// Rounds of the test; `TOWLINE_POWER_ROUNDS` asks for more in a long run.
const ROUNDS: u32 = 20;
/// How much of what was not synced stays: nothing, a third, most, by turns.
const KEPT: [u64; 3] = [0, 30, 70];
/// Small extents, so that they are filled, reused and reclaimed within the rounds.
const CONFIG: &str = "[log]\nextent_bytes = 4194304\n";
/// Far above what the rounds need.
const DISK_BYTES: u64 = 4 << 30;

/// A site with its data folder on a lossy disk.
fn lossy_site() -> Try<(Lossy, Site)> {
    let lossy = Lossy::mount(DISK_BYTES)?;
    let mut site = Site::open()?.with_config(CONFIG);
    site.data = folder_on(&lossy, "power")?.join("QM1");
    Ok((lossy, site))
}

#[test]
fn after_every_power_cut_each_acknowledged_message_is_there_once_and_no_unit_is_half() -> Try {
    let rounds = std::env::var("TOWLINE_POWER_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mut chance = Chance::announced("power cuts under load");
    let (lossy, site) = lossy_site()?;
    let mut daemon = site.start()?;
    let mut sum = Tally::default();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let kept = KEPT[round as usize % KEPT.len()];
        let history = work_until_killed(daemon, round, &mut chance)?;
        lossy.cut_power(kept, &mut chance);
        let judged = start_and_judge(&site, &history);
        let (started, tally) =
            judged.map_err(|error| format!("round {round}, {kept} % kept: {error}"))?;
        daemon = started;
        sum.add(tally);
    }
    println!("{sum:?}, {} syncs", lossy.with_disk(|disk| disk.syncs()));
    require!(sum.committed > 50, "too little was committed to prove anything: {sum:?}");
    daemon.stop()
}

fn work_until_killed(daemon: Daemon, round: u32, chance: &mut Chance) -> Try<History> {
    work_until_killed_behind(daemon, round, chance, |load| load.units_begun() > 0)
}

fn work_until_killed_behind(
    daemon: Daemon,
    round: u32,
    chance: &mut Chance,
    has_begun: impl Fn(&Workload) -> bool,
) -> Try<History> {
    let after = Duration::from_millis(chance.within(50, 400));
    let load = Workload::start(&daemon, round, chance);
    wait::until_true("work begun", Duration::from_secs(20), || has_begun(&load))?;
    wait::pause(after);
    daemon.kill()?;
    load.end()
}

fn start_and_judge(site: &Site, history: &History) -> Try<(Daemon, Tally)> {
    let daemon = site.start()?;
    let found: Contents = drain_all(&daemon)?;
    let tally = history.judge(&found)?;
    Ok((daemon, tally))
}

#[test]
fn a_disk_that_lies_is_found_out_so_the_judge_is_not_blind() -> Try {
    let mut chance = Chance::announced("a disk that lies");
    let (lossy, site) = lossy_site()?;
    let daemon = site.start()?;
    lossy.with_disk(|disk| disk.set_syncs_lie(true));
    // Without an answer nothing is promised that could be lost.
    let history =
        work_until_killed_behind(daemon, 0, &mut chance, |load| load.units_committed() > 0)?;
    lossy.with_disk(|disk| disk.set_syncs_lie(false));
    lossy.cut_power(0, &mut chance);
    let judged = start_and_judge(&site, &history);
    require!(judged.is_err(), "all was lost, and nobody noticed");
    Ok(())
}

#[test]
fn a_power_cut_during_the_first_start_does_no_harm() -> Try {
    let mut chance = Chance::announced("power cut during the first start");
    for round in 0..6_usize {
        let (lossy, site) = lossy_site()?;
        let mut child = site.command()?.stdout(std::process::Stdio::null()).spawn()?;
        wait::pause(Duration::from_millis(chance.within(1, 40)));
        child.kill()?;
        child.wait()?;
        lossy.cut_power(KEPT[round % KEPT.len()], &mut chance);
        let daemon = site.start()?;
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, "FIRST")?;
        peer.put(0, 0, b"first")?;
        daemon.kill()?;
        lossy.cut_power(0, &mut chance);
        let daemon = site.start()?;
        let texts = Peer::begun(daemon.address())?.drain("FIRST")?;
        require!(texts == ["first"], "round {round}: {texts:?}");
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn a_definition_that_was_confirmed_survives_a_power_cut() -> Try {
    let mut chance = Chance::announced("power cut after DEFINE");
    let (lossy, mut site) = lossy_site()?;
    site.arguments.clear();
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL('DEFINED') MAXDEPTH(77)")?;
    daemon.kill()?;
    lossy.cut_power(0, &mut chance);
    let daemon = site.start()?;
    let shown = site.mqsc("DISPLAY QLOCAL('DEFINED') MAXDEPTH")?;
    require!(shown.contains("MAXDEPTH(77)"), "not there after the cut: {shown}");
    daemon.stop()
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_any_more() -> Try {
    let (lossy, site) = lossy_site()?;
    let mut daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "SYNC")?;
    peer.put(0, 0, b"before")?;
    lossy.with_disk(|disk| disk.set_syncs_fail(true));
    let after = peer.put(0, 1, b"after");
    require!(after.is_err(), "a message was accepted although the sync failed");
    let status = daemon.await_end(Duration::from_secs(10))?;
    require!(!status.success(), "the daemon ended with success after a failed sync");
    lossy.with_disk(|disk| disk.set_syncs_fail(false));
    let daemon = site.start()?;
    let texts = Peer::begun(daemon.address())?.drain("SYNC")?;
    require!(texts.first().is_some_and(|text| text == "before"), "lost: {texts:?}");
    daemon.stop()
}
