//! kill -9 under load: random rounds, and after each the judgement of tests/e2e/src/history.rs.

use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::history::Tally;
use towline_e2e::require;
use towline_e2e::wait;
use towline_e2e::workload::{Workload, drain_all};

/// Rounds of the test; `TOWLINE_KILL_ROUNDS` asks for more in a long run.
const ROUNDS: u32 = 50;

#[test]
fn after_every_kill_each_acknowledged_message_is_there_once_and_no_unit_is_half() -> Try {
    let rounds = std::env::var("TOWLINE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mut chance = Chance::announced("kill -9 under load");
    let site = Site::open()?;
    let mut daemon = site.start()?;
    let mut sum = Tally::default();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let after = Duration::from_millis(chance.within(50, 400));
        let (started, tally) = kill_round(&site, daemon, round, after, &mut chance)
            .map_err(|error| format!("round {round}, killed after {after:?}: {error}"))?;
        daemon = started;
        sum.add(tally);
    }
    println!("{sum:?}");
    require!(sum.committed > 100, "too little was committed to prove anything: {sum:?}");
    daemon.stop()
}

fn kill_round(
    site: &Site,
    daemon: Daemon,
    round: u32,
    after: Duration,
    chance: &mut Chance,
) -> Try<(Daemon, Tally)> {
    let load = Workload::start(&daemon, round, chance);
    wait::until_true("work begun", Duration::from_secs(20), || load.units_begun() > 0)?;
    wait::pause(after);
    daemon.kill()?;
    let history = load.end()?;
    let daemon = site.start()?;
    let found = drain_all(&daemon)?;
    let tally = history.judge(&found)?;
    Ok((daemon, tally))
}

#[test]
fn a_kill_while_the_daemon_starts_leaves_the_log_readable() -> Try {
    let mut chance = Chance::announced("kill -9 during the start");
    let site = Site::open()?;
    let daemon = site.start()?;
    let load = Workload::start(&daemon, 0, &mut chance);
    wait::until_true("work done", Duration::from_secs(20), || load.units_begun() > 50)?;
    daemon.kill()?;
    let history = load.end()?;
    for _ in 0..20 {
        let mut child = site.command()?.stdout(std::process::Stdio::null()).spawn()?;
        wait::pause(Duration::from_millis(chance.within(1, 60)));
        child.kill()?;
        child.wait()?;
    }
    let daemon = site.start()?;
    history.judge(&drain_all(&daemon)?)?;
    daemon.stop()
}
