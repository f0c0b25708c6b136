//! More than the disk can take at once: all producers wait, none hangs, and others are served.

use std::thread;
use std::time::{Duration, Instant};

use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::peer::{Peer, transfer};
use towline_e2e::wire::{amqp, message};
use towline_e2e::{Try, require};

/// Producers at once.
const PRODUCERS: u32 = 10;
/// Messages of each, sent without waiting.
const EACH: u32 = 120;
/// Bytes of one message.
const BYTES: usize = 100_000;

/// Sends all messages at once, then waits for all answers.
fn produce(address: &str, number: u32) -> Try {
    let mut peer = Peer::begun(address)?;
    peer.attach_sender(0, &format!("PRESSURE.{}", number % 2))?;
    let body = message(true, &vec![b'x'; BYTES]);
    let (front, back) = body.split_at(BYTES / 2);
    for delivery in 0..EACH {
        peer.send(&amqp(0, &transfer(0, delivery, true), front))?;
        peer.send(&amqp(0, &transfer(0, delivery, false), back))?;
    }
    peer.await_accepted(EACH)
}

/// Starts all producers, and meanwhile puts and gets small messages beside them.
fn under_pressure(site: &Site, daemon: &Daemon) -> Try<Duration> {
    let mut beside = Peer::begun(daemon.address())?;
    beside.attach_sender(0, "BESIDE")?;
    beside.attach_receiver(1, "BESIDE", 100_000)?;
    let mut slowest = Duration::ZERO;
    let mut number = 0;
    let address = daemon.address();
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..PRODUCERS).map(|number| scope.spawn(move || produce(address, number))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            let begun = Instant::now();
            beside.put(0, number, b"beside")?;
            beside.get()?;
            slowest = slowest.max(begun.elapsed());
            number += 1;
        }
        for thread in threads {
            thread.join().map_err(|_| "a producer panicked")??;
        }
        Try::Ok(())
    })?;
    let depth =
        site.queue_number("PRESSURE.0", "depth")? + site.queue_number("PRESSURE.1", "depth")?;
    require!(depth == u64::from(PRODUCERS * EACH), "{depth} messages are there");
    Ok(slowest)
}

#[test]
fn ten_producers_of_large_messages_do_not_stop_the_daemon() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let slowest = under_pressure(&site, &daemon)?;
    println!("slowest put and get beside 120 MB: {slowest:?}");
    require!(slowest < Duration::from_secs(10), "the client beside waited {slowest:?}");
    daemon.stop()
}

#[test]
fn nor_does_a_slow_disk() -> Try {
    let mut site = Site::open()?;
    site.arguments.extend(["--log-sync-delay-us".into(), "5000".into()]);
    let daemon = site.start()?;
    let slowest = under_pressure(&site, &daemon)?;
    println!("slowest put and get beside 120 MB, 5 ms more a sync: {slowest:?}");
    require!(slowest < Duration::from_secs(10), "the client beside waited {slowest:?}");
    daemon.stop()
}

#[test]
fn what_pressure_put_comes_out_again_after_a_kill() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    under_pressure(&site, &daemon)?;
    daemon.kill()?;
    let daemon = site.start()?;
    let mut count = 0;
    for queue in ["PRESSURE.0", "PRESSURE.1"] {
        count += Peer::begun(daemon.address())?.drain(queue)?.len();
    }
    require!(count == (PRODUCERS * EACH) as usize, "{count} messages are there");
    daemon.stop()
}
