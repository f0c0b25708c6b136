//! kill -9 under load: random rounds, and after each the judgement of tests/e2e/src/history.rs.

use std::process::Stdio;
use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::history::Tally;
use towline_e2e::peer::{PATIENCE, Peer, attach_receiver, credit_flow};
use towline_e2e::require;
use towline_e2e::wait;
use towline_e2e::wire::{Value, amqp, body_text, code};
use towline_e2e::workload::{Workload, drain_all};

/// Small extents, so that they are filled, reused and reclaimed within the rounds.
const CONFIG: &str = "[log]\nextent_bytes = 4194304\n";
/// Rounds of the test; `TOWLINE_KILL_ROUNDS` asks for more in a long run.
const ROUNDS: u32 = 50;

#[test]
fn after_every_kill_each_acknowledged_message_is_there_once_and_no_unit_is_half() -> Try {
    let rounds = std::env::var("TOWLINE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mut chance = Chance::announced("kill -9 under load");
    let site = Site::open()?.with_config(CONFIG);
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
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let load = Workload::start(&daemon, 0, &mut chance);
    wait::until_true("work done", Duration::from_secs(20), || load.units_begun() > 50)?;
    daemon.kill()?;
    let history = load.end()?;
    for _ in 0..20 {
        let mut child = site.command()?.stdout(Stdio::null()).spawn()?;
        wait::pause(Duration::from_millis(chance.within(1, 60)));
        child.kill()?;
        child.wait()?;
    }
    let daemon = site.start()?;
    history.judge(&drain_all(&daemon)?)?;
    daemon.stop()
}

/// An attach of a receiver that gets its deliveries settled (snd-settle-mode of AMQP 2.8.2).
fn attach_presettled(queue: &str) -> Value {
    let mut attach = attach_receiver(0, queue);
    if let Value::Described(_, list) = &mut attach
        && let Value::List(fields) = list.as_mut()
        && let Some(mode) = fields.get_mut(3)
    {
        *mode = Value::Ubyte(1);
    }
    attach
}

/// What a consumer without settlement receives until the daemon is killed, after `until` of its
/// deliveries: also what was on its way to it.
fn received(daemon: Daemon, queue: &str, credit: u32, until: usize) -> Try<Vec<String>> {
    let mut peer = Peer::begun(daemon.address())?;
    peer.send(&amqp(0, &attach_presettled(queue), &[]))?;
    peer.expect(code::ATTACH)?;
    peer.send(&amqp(0, &credit_flow(0, 0, credit), &[]))?;
    let mut received = Vec::new();
    let mut running = Some(daemon);
    loop {
        if received.len() >= until
            && let Some(daemon) = running.take()
        {
            daemon.kill()?;
        }
        match peer.read_frame(PATIENCE) {
            Ok(Some(got)) if got.performative.code() == Some(code::TRANSFER) => {
                let settled = *got.performative.field(4) == Value::Bool(true);
                require!(settled, "a delivery that is not settled: {got:?}");
                received.push(body_text(&got.payload).ok_or("a message without text")?);
            }
            Ok(Some(_)) => {}
            Ok(None) => return Err(format!("no more after {}", received.len()).into()),
            // The end of the socket, which the kill made.
            Err(_) if running.is_none() => return Ok(received),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn what_a_consumer_without_settlement_received_does_not_come_again_after_a_kill() -> Try {
    const COUNT: usize = 600;
    const CREDIT: usize = 400;
    let mut chance = Chance::announced("kill -9 and deliveries that come settled");
    let site = Site::open()?.with_config(CONFIG);
    for round in 0..8 {
        let daemon = site.start()?;
        let texts: Vec<String> = (0..COUNT).map(|number| format!("{round}.{number:03}")).collect();
        let input = texts.join("\n") + "\n";
        site.runs_with(&["put", "Q", "--lines", "--transaction", "100"], input.as_bytes(), 0)?;
        let until = usize::try_from(chance.within(1, CREDIT as u64))?;
        let received = received(daemon, "Q", u32::try_from(CREDIT)?, until)?;
        let daemon = site.start()?;
        let left = Peer::begun(daemon.address())?.drain("Q")?;
        println!("{until}: {} received, {} are left", received.len(), left.len());
        // In order and without a gap from the first one on; those beyond the credit all stay.
        require!(texts.starts_with(&received), "received {received:?}");
        require!(texts.ends_with(&left), "left {left:?}");
        require!(received.len() + left.len() <= COUNT, "some came again: {left:?}");
        require!(left.len() >= COUNT - CREDIT, "lost beyond the credit: {left:?}");
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn what_a_get_that_ended_well_printed_does_not_come_again_after_a_kill() -> Try {
    let site = Site::open()?.with_config(CONFIG);
    for round in 0..12 {
        let daemon = site.start()?;
        let (url, text) = (daemon.url(), format!("got {round}"));
        site.runs(&["put", "GOT", &text, "--url", &url], 0)?;
        let get: &[&str] = match round % 3 {
            0 => &["get", "GOT"],
            1 => &["get", "GOT", "--transaction", "1"],
            _ => &["get", "GOT", "--all"],
        };
        let got = site.runs(&[get, &["--url", &url]].concat(), 0)?;
        daemon.kill()?;
        require!(got.trim() == text, "{got}");
        let daemon = site.start()?;
        let left = Peer::begun(daemon.address())?.drain("GOT")?;
        require!(left.is_empty(), "round {round}: {left:?} came again");
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn a_get_that_is_interrupted_by_a_kill_has_printed_what_is_not_there_any_more() -> Try {
    const COUNT: usize = 3_000;
    let mut chance = Chance::announced("kill -9 in the middle of a get");
    let site = Site::open()?.with_config(CONFIG);
    let mut interrupted = 0;
    for round in 0..10 {
        let daemon = site.start()?;
        let texts: Vec<String> = (0..COUNT).map(|number| format!("{round}.{number:04}")).collect();
        let input = texts.join("\n") + "\n";
        site.runs_with(&["put", "Q", "--lines", "--transaction", "100"], input.as_bytes(), 0)?;
        let mut command = site.towline(match round % 2 {
            0 => &["get", "Q", "--all"],
            _ => &["get", "Q", "--all", "--transaction", "50"],
        })?;
        let getting = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        wait::pause(Duration::from_millis(chance.within(5, 250)));
        daemon.kill()?;
        let output = getting.wait_with_output()?;
        interrupted += usize::from(!output.status.success());
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let printed: Vec<&str> = printed.lines().collect();
        let daemon = site.start()?;
        let left = Peer::begun(daemon.address())?.drain("Q")?;
        println!("{} printed, {} are left", printed.len(), left.len());
        let lost =
            texts.iter().find(|text| !printed.contains(&text.as_str()) && !left.contains(*text));
        require!(lost.is_none(), "{lost:?} was neither printed nor is there");
        require!(texts.ends_with(&left), "left {left:?}");
        if output.status.success() {
            require!(left.is_empty(), "it ended well, and {} are left", left.len());
        }
        daemon.stop()?;
    }
    require!(interrupted > 0, "none was interrupted");
    Ok(())
}
