//! Replies that wait for the other region (SyncReplication). Strict: what a client was answered is
//! in the other region, whatever is killed or cut, and nothing persistent is answered while that is
//! away. Eventual: live goes on alone after its wait, says so, and waits again.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::peer::{Peer, transfer};
use towline_e2e::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use towline_e2e::slow_net::command::{Command as Order, Ways};
use towline_e2e::wire::{amqp, code, message};
use towline_e2e::{Try, fail, require, wait};

const SMALL: &str = "[log]\nextent_bytes = 4194304\n";
/// Rounds of each test of fail-overs; `TOWLINE_SYNC_ROUNDS` asks for more in a long run.
const ROUNDS: u32 = 3;
/// Long enough for an answer that does not wait for anything.
const SOON: Duration = Duration::from_millis(400);

fn design(size: usize, consistency: &str) -> RegionsDesign {
    let recovery = format!(
        "sync_replication = true\nsync_consistency = \"{consistency}\"\nsync_wait_ms = 1000"
    );
    RegionsDesign { size, config: SMALL.into(), recovery, ..RegionsDesign::default() }
}

/// Both groups run, and replies wait.
fn in_step(size: usize, consistency: &str) -> Try<Regions> {
    let regions = Regions::towed(&design(size, consistency))?;
    until_sync(&regions, WEST, "in step")?;
    Ok(regions)
}

/// What `region check` finds once it is seen that the link is cut: it stands until nothing was
/// heard for a while.
fn checked(regions: &Regions, active: usize) -> Try<String> {
    let site = regions.site(WEST, active);
    let stands = || site.runs(&["region", "check"], 3).is_ok();
    wait::until_true("the cut to be seen", LONG, stands)?;
    site.runs(&["region", "check"], 3)
}

/// Waits until replies are in this state, at the active instance of a group.
fn until_sync(regions: &Regions, live: usize, state: &str) -> Try<Value> {
    let mut last = Value::Null;
    let seen = wait::until(&format!("replies to be {state}"), LONG, || {
        last = regions.other_as_seen(live).unwrap_or_else(|error| error.to_string().into());
        (last["sync"]["state"] == state).then(|| last["sync"].clone())
    });
    seen.map_err(|error| regions.explained(&format!("{error}: {last}")))
}

/// A client with a link to a queue, handle 0.
fn client(regions: &Regions, group: usize, queue: &str) -> Try<Peer> {
    let active = regions.until_active(group)?;
    let mut peer = Peer::begun(&regions.site(group, active).listen)?;
    peer.attach_sender(0, queue)?;
    Ok(peer)
}

/// Whether an answer comes within a time.
fn is_answered(peer: &mut Peer, limit: Duration) -> Try<bool> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match peer.read_frame(left)? {
            Some(frame) if frame.performative.code() == Some(code::DISPOSITION) => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
}

fn depth(regions: &Regions, group: usize, queue: &str) -> Try<u64> {
    let active = regions.until_active(group)?;
    regions.site(group, active).queue_number(queue, "depth")
}

fn log_of(regions: &Regions, group: usize, size: usize) -> String {
    (0..size).map(|at| regions.site(group, at).log()).collect()
}

fn strict_waits_for_a_link_that_is_cut(size: usize) -> Try {
    let mut regions = in_step(size, "strict")?;
    regions.order(EAST, Order::Delay(Ways::Both, Duration::from_millis(5)));
    let mut persistent = client(&regions, WEST, "Q")?;
    let mut other = client(&regions, WEST, "N")?;
    persistent.put(0, 0, b"in both regions")?;
    let sync = until_sync(&regions, WEST, "in step")?;
    require!(sync["replies"]["answered"].as_u64() > Some(0), "{sync}");
    require!(sync["covers"] == true && sync["consistency"] == "strict", "{sync}");

    regions.order(EAST, Order::Cut(Ways::Both));
    persistent.put_unanswered(0, 1, b"here alone")?;
    // Not persistent, it does not wait, nor does a client that comes.
    other.send(&amqp(0, &transfer(0, 0, false), &message(false, b"volatile")))?;
    require!(is_answered(&mut other, LONG)?, "what is not persistent was not answered");
    let active = regions.until_active(WEST)?;
    let mut reader = Peer::begun(&regions.site(WEST, active).listen)?;
    reader.attach_receiver(0, "Q", 2)?;
    let got = [reader.get()?, reader.get()?];
    require!(got[1].ends_with(b"here alone"), "it stands on the queue of this group: {got:?}");
    let shown = regions.site(WEST, active).mqsc("DISPLAY QUEUE(Q)")?;
    require!(shown.contains("QUEUE(Q)"), "an operator looks: {shown}");
    // What changes objects is answered like a commit.
    let script = regions.site(WEST, active).scratch().join("define.mqsc");
    fs::write(&script, "DEFINE QLOCAL(DEFINED)")?;
    let define = ["mqsc", "-f", &script.to_string_lossy()];
    let mut define = regions.site(WEST, active).towline(&define)?;
    let mut define = define.stdout(Stdio::null()).spawn()?;

    wait::until_true("the alarm", LONG, || log_of(&regions, WEST, size).contains("TWL4422W"))?;
    let alarm = log_of(&regions, WEST, size);
    require!(alarm.contains(" s: group 'EAST' is away or behind"), "{alarm}");
    let sync = until_sync(&regions, WEST, "waiting")?;
    require!(sync["covers"] == true, "nothing was answered alone: {sync}");
    require!(sync["replies"]["waiting"].as_u64() > Some(0), "{sync}");
    require!(!is_answered(&mut persistent, SOON)?, "it was answered while the link was cut");
    require!(define.try_wait()?.is_none(), "the definition was answered while the link was cut");
    let check = checked(&regions, active)?;
    require!(check.contains("strict: waiting"), "{check}");

    regions.order(EAST, Order::Heal(Ways::Both));
    require!(is_answered(&mut persistent, LONG)?, "it was not answered when the link was back");
    let sync = until_sync(&regions, WEST, "in step")?;
    require!(sync["times_alone"] == 0, "{sync}");
    require!(define.wait()?.success(), "the definition was not answered");
    let said = log_of(&regions, WEST, size);
    require!(said.matches("TWL4421I").count() == 2 && !said.contains("TWL4423W"), "{said}");
    regions.stop_all()
}

#[test]
fn strict_answers_nothing_persistent_until_the_link_is_back() -> Try {
    strict_waits_for_a_link_that_is_cut(1)
}

#[test]
fn a_group_of_three_answers_nothing_persistent_until_the_link_is_back() -> Try {
    strict_waits_for_a_link_that_is_cut(3)
}

fn eventual_goes_on_alone(size: usize) -> Try {
    let mut regions = in_step(size, "eventual")?;
    let mut peer = client(&regions, WEST, "Q")?;
    let mut delivery = 0..;
    let mut next = || delivery.next().unwrap_or(0);
    peer.put(0, next(), b"in both regions")?;
    for round in 1..3 {
        regions.order(EAST, Order::Cut(Ways::Both));
        let begun = Instant::now();
        peer.put(0, next(), b"waits, and is answered alone")?;
        let waited = begun.elapsed();
        require!(waited >= Duration::from_millis(500), "it did not wait: {waited:?}");
        require!(waited < Duration::from_secs(10), "it waited for {waited:?}");
        let sync = until_sync(&regions, WEST, "alone")?;
        require!(sync["covers"] == false && sync["times_alone"] == round, "{sync}");
        let begun = Instant::now();
        for _ in 0..5 {
            peer.put(0, next(), b"alone")?;
        }
        require!(begun.elapsed() < Duration::from_secs(5), "it waits: {:?}", begun.elapsed());
        let active = regions.until_active(WEST)?;
        let check = checked(&regions, active)?;
        require!(check.contains("eventual: alone"), "{check}");
        regions.order(EAST, Order::Heal(Ways::Both));
        let sync = until_sync(&regions, WEST, "in step")?;
        require!(sync["covers"] == true, "{sync}");
        let count = |id: &str| log_of(&regions, WEST, size).matches(id).count();
        require!(
            count("TWL4423W") == usize::try_from(round)?,
            "the alarm was raised once each time"
        );
        require!(count("TWL4421I") == 1 + usize::try_from(round)?, "and cleared");
    }
    // It waits again.
    regions.order(EAST, Order::Cut(Ways::Both));
    peer.put_unanswered(0, next(), b"waits")?;
    require!(!is_answered(&mut peer, SOON)?, "it is in step and did not wait");
    regions.order(EAST, Order::Heal(Ways::Both));
    require!(is_answered(&mut peer, LONG)?, "it was not answered");
    regions.until_towed()?;
    regions.stop_all()
}

#[test]
fn eventual_goes_on_alone_after_its_wait_says_so_and_waits_again() -> Try {
    eventual_goes_on_alone(1)
}

#[test]
fn a_group_of_three_goes_on_alone_after_its_wait_and_waits_again() -> Try {
    eventual_goes_on_alone(3)
}

/// Puts messages one after the other until something fails: how many were confirmed.
fn put_until_lost(address: &str, ends: &AtomicBool) -> u64 {
    let Ok(mut peer) = Peer::begun(address) else { return 0 };
    if peer.attach_sender(0, "Q").is_err() {
        return 0;
    }
    let mut confirmed = 0;
    while !ends.load(Ordering::SeqCst) {
        let delivery = u32::try_from(confirmed).unwrap_or(u32::MAX);
        if peer.put(0, delivery, b"confirmed in both regions").is_err() {
            break;
        }
        confirmed += 1;
    }
    confirmed
}

/// All of live is killed at a random moment while clients count what was confirmed, with the link
/// cut before or not; the other group is promoted, and has all of it.
fn fail_over(chance: &mut Chance, size: usize) -> Try {
    const CLIENTS: usize = 3;
    let mut regions = in_step(size, "strict")?;
    // Live says so twice a second, and a fail-over before that cannot promise it.
    for at in 0..size {
        wait::until_true("east to hear that it has all that is acknowledged", LONG, || {
            let outlook = regions.site(EAST, at).runs(&["region", "failover", "--dry-run"], 3);
            outlook.is_ok_and(|outlook| outlook.contains("Nothing acknowledged is lost"))
        })?;
    }
    let delay = Duration::from_micros(chance.within(0, 15_000));
    regions.order(EAST, Order::Delay(Ways::Both, delay));
    let active = regions.until_active(WEST)?;
    let address = regions.site(WEST, active).listen.clone();
    let leads_another = size == 3 && chance.percent(50);
    let ends = AtomicBool::new(false);
    let confirmed = thread::scope(|scope| -> Try<u64> {
        let put = || put_until_lost(&address, &ends);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(put)).collect();
        let mut lose = || -> Try {
            wait::pause(Duration::from_micros(chance.within(0, 1_200_000)));
            match chance.index(4) {
                0 => regions.order(EAST, Order::Cut(Ways::Both)),
                1 => regions.order(EAST, Order::Cut(Ways::There)),
                2 => regions.order(EAST, Order::Stall(Ways::Back)),
                _ => {}
            }
            wait::pause(Duration::from_micros(chance.within(0, 500_000)));
            if leads_another {
                // For a moment, or it is about to.
                regions.kill(WEST, active)?;
                wait::pause(Duration::from_micros(chance.within(0, 3_000_000)));
            }
            for at in 0..size {
                if regions.daemon(WEST, at).is_ok() {
                    regions.kill(WEST, at)?;
                }
            }
            Ok(())
        };
        let lost = lose();
        ends.store(true, Ordering::SeqCst);
        let mut sum = 0;
        for client in clients {
            sum += client.join().map_err(|_| "a client panicked")?;
        }
        lost.map(|()| sum)
    })?;
    let asked = chance.index(size);
    wait::until_true("nothing in the way of a fail-over", LONG, || {
        regions.site(EAST, asked).runs(&["region", "failover", "--dry-run"], 0).is_ok()
    })?;
    let outlook = regions.site(EAST, asked).runs(&["region", "failover", "--dry-run"], 0)?;
    // An instance that has just become active does not know what the one before has answered.
    require!(leads_another || outlook.contains("Nothing acknowledged is lost"), "{outlook}");
    regions.site(EAST, asked).runs(&["region", "failover", "--yes"], 0)?;
    let after = depth(&regions, EAST, "Q").unwrap_or(0);
    println!("{confirmed} confirmed, {after} are there; the link took {delay:?}");
    let most = confirmed + CLIENTS as u64;
    require!((confirmed..=most).contains(&after), "{confirmed} were confirmed, {after} are there");
    // It is strict, too: it serves when it is ordered to do so without the other one.
    let mut peer = client(&regions, EAST, "Q")?;
    peer.put_unanswered(0, 0, b"alone")?;
    require!(!is_answered(&mut peer, SOON / 2)?, "it was answered without the other region");
    until_sync(&regions, EAST, "waiting")?;
    let active = regions.until_active(EAST)?;
    regions.site(EAST, active).runs(&["region", "alone", "--yes"], 0)?;
    require!(is_answered(&mut peer, LONG)?, "it was not answered alone");
    until_sync(&regions, EAST, "alone")?;
    regions.stop_all()
}

fn fail_overs(test: &str, size: usize, rounds: u32) -> Try {
    let mut chance = Chance::announced(test);
    let asked = std::env::var("TOWLINE_SYNC_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..asked.unwrap_or(rounds) {
        println!("round {round}");
        fail_over(&mut chance, size)?;
    }
    Ok(())
}

#[test]
fn what_strict_confirmed_is_there_after_a_fail_over_at_any_moment() -> Try {
    fail_overs("sync_fail_over", 1, ROUNDS)
}

#[test]
fn what_a_group_of_three_confirmed_is_there_after_a_fail_over_at_any_moment() -> Try {
    fail_overs("sync_fail_over_of_three", 3, ROUNDS - 1)
}

#[test]
fn a_new_active_instance_waits_until_the_other_region_has_all_and_a_switch_goes_there_and_back()
-> Try {
    let mut regions = in_step(3, "strict")?;
    let mut count = 0;
    for _ in 0..2 {
        let active = regions.until_active(WEST)?;
        let mut peer = client(&regions, WEST, "Q")?;
        for number in 0..20 {
            peer.put(0, number, b"before")?;
            count += 1;
        }
        regions.kill(WEST, active)?;
        regions.start(WEST, active)?;
        regions.until_active(WEST)?;
        let sync = until_sync(&regions, WEST, "in step")?;
        require!(sync["covers"] == true && sync["times_alone"] == 0, "{sync}");
    }
    for live in [WEST, EAST] {
        let active = regions.until_active(live)?;
        until_sync(&regions, live, "in step")?;
        let site = regions.site(live, active);
        let is_fit = || site.runs(&["region", "switch", "--dry-run"], 0).is_ok();
        wait::until_true("nothing in the way of a switch", LONG, is_fit)?;
        let said = site.runs(&["region", "switch", "--yes"], 0);
        said.map_err(|error| regions.explained(&error.to_string()))?;
        until_sync(&regions, 1 - live, "in step")?;
        let mut peer = client(&regions, 1 - live, "Q")?;
        peer.put(0, 0, b"after")?;
        count += 1;
        let found = depth(&regions, 1 - live, "Q")?;
        if found != count {
            fail!("{count} were confirmed, {found} are there");
        }
    }
    regions.stop_all()
}
