//! Units of work that are larger than what is kept of them in memory: bounded memory, no harm to
//! others, nothing left after a rollback or a crash, and an end before they fill the log.
//!
//! The sizes are small so that a loaded machine is quick; `TOWLINE_UNIT_MESSAGES=1000000` repeats
//! the measurements at full size and prints them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::peer::{PATIENCE, Peer, transfer, transfer_in_unit};
use towline_e2e::wire::{Value, amqp, code, described, message};
use towline_e2e::{Try, require, wait};

const QUEUE: &str = "LARGE";
/// Bytes of one message.
const BYTES: usize = 2_000;
/// Messages sent before their answers are waited for: fewer than the credit that is always there.
const BATCH: u32 = 400;
const CONTROL: u32 = 9;
const LIMIT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
const MANY: &str = "[queue_manager]\nmaxumsgs = 2000000\nunit_age_max_s = 3000\n";

fn messages() -> u32 {
    let wanted = std::env::var("TOWLINE_UNIT_MESSAGES").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(40_000)
}

/// A client with one open unit of work.
struct Client {
    peer: Peer,
    unit: Value,
    next: u32,
}

impl Client {
    fn open(daemon: &Daemon) -> Try<Client> {
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, QUEUE)?;
        peer.attach_coordinator(CONTROL)?;
        let declared = peer.control(CONTROL, 0, &described(code::DECLARE, vec![]))?;
        Ok(Client { peer, unit: declared.field(0).clone(), next: 1 })
    }

    /// Puts so many in the unit. False: one was refused.
    fn put(&mut self, count: u32, body: &[u8]) -> Try<bool> {
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            let mut bytes = Vec::new();
            for _ in 0..batch {
                bytes.extend(amqp(0, &transfer_in_unit(0, self.next, &self.unit), body));
                self.next += 1;
            }
            self.peer.send(&bytes)?;
            if !self.await_answers(batch)? {
                return Ok(false);
            }
            left -= batch;
        }
        Ok(true)
    }

    fn await_answers(&mut self, count: u32) -> Try<bool> {
        let mut left = u64::from(count);
        while left > 0 {
            let answer = self.peer.expect(code::DISPOSITION)?.performative;
            let first = answer.field(1).as_number().unwrap_or(0);
            let last = answer.field(2).as_number().unwrap_or(first);
            if answer.field(4).field(1).code() != Some(code::ACCEPTED) {
                println!("refused: {:?}", answer.field(4));
                return Ok(false);
            }
            left = left.saturating_sub(last - first + 1);
        }
        Ok(true)
    }

    fn discharge(&mut self, fail: bool) -> Try<Value> {
        let discharge = described(code::DISCHARGE, vec![self.unit.clone(), Value::Bool(fail)]);
        let body = Value::Described(code::AMQP_VALUE, Box::new(discharge)).bytes();
        self.peer.send(&amqp(0, &transfer(CONTROL, self.next, false), &body))?;
        self.next += 1;
        // Answers to puts may come before.
        loop {
            let answer = self.peer.expect(code::DISPOSITION)?.performative;
            if answer.field(1).as_number() == Some(u64::from(self.next - 1)) {
                return Ok(answer.field(4).clone());
            }
        }
    }
}

/// Puts one small message after the other until stopped, and says when it has begun; the
/// slowest of them.
fn bystander(address: &str, stop: &AtomicBool, begun: &Sender<()>) -> Try<Duration> {
    let mut peer = Peer::begun(address)?;
    peer.attach_sender(0, "BESIDE")?;
    peer.put(0, 0, b"beside")?;
    begun.send(())?;
    let (mut slowest, mut number) = (Duration::ZERO, 1);
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        peer.put(0, number, b"beside")?;
        slowest = slowest.max(begun.elapsed());
        number += 1;
    }
    Ok(slowest)
}

/// Does this while a bystander puts; the slowest of its puts.
fn beside(daemon: &Daemon, what: impl FnOnce() -> Try) -> Try<Duration> {
    let (stop, address) = (AtomicBool::new(false), daemon.address());
    thread::scope(|scope| {
        let (began, begins) = mpsc::channel();
        let stop = &stop;
        let other = scope.spawn(move || bystander(address, stop, &began));
        let done = begins.recv().map_err(Into::into).and_then(|()| what());
        stop.store(true, Ordering::Release);
        let slowest = other.join().map_err(|_| "the bystander panicked")?;
        done?;
        slowest
    })
}

fn unit_number(site: &Site, key: &str) -> Try<u64> {
    Ok(site.status()?["units"][key].as_u64().ok_or("no such number in units")?)
}

/// Bytes of memory that the daemon has for itself. The log's cache is bounded apart from units, so
/// it is filled before anything is compared.
fn filled_cache(site: &Site, daemon: &Daemon) -> Try<u64> {
    let mut client = Client::open(daemon)?;
    require!(client.put(45_000, &message(true, &[b'w'; BYTES]))?, "refused");
    require!(client.discharge(true)?.code() == Some(code::ACCEPTED), "not rolled back");
    wait::until_true("rolled back", LIMIT, || {
        unit_number(site, "log_bytes").is_ok_and(|n| n == 0)
    })?;
    daemon.resident_bytes()
}

#[test]
fn a_unit_larger_than_its_memory_commits_whole_beside_others() -> Try {
    let site = Site::open()?.with_config(MANY);
    let daemon = site.start()?;
    let before = filled_cache(&site, &daemon)?;
    let (count, body) = (messages(), message(true, &[b'x'; BYTES]));
    let mut client = Client::open(&daemon)?;
    let begun = Instant::now();
    let staging = beside(&daemon, || {
        require!(client.put(count, &body)?, "refused");
        Ok(())
    })?;
    let staged_in = begun.elapsed();
    let staged = daemon.resident_bytes()?;
    let in_log = unit_number(&site, "log_bytes")?;
    require!(in_log + MIB >= u64::from(count) * BYTES as u64, "{in_log} bytes are in the log");
    require!(site.queue_number(QUEUE, "depth")? == u64::from(count), "places are taken");
    let begun = Instant::now();
    let committing = beside(&daemon, || {
        let outcome = client.discharge(false)?;
        require!(outcome.code() == Some(code::ACCEPTED), "not committed: {outcome:?}");
        Ok(())
    })?;
    let committed_in = begun.elapsed();
    let after = daemon.resident_bytes()?;
    println!(
        "{count} messages of {BYTES} bytes: put in {staged_in:?} (bystander {staging:?}), \
         committed in {committed_in:?} (bystander {committing:?}); memory {} MiB, staged {} MiB, \
         committed {} MiB",
        before / MIB,
        staged / MIB,
        after / MIB
    );
    let more = staged.max(after).saturating_sub(before);
    // 40,000 messages would be 80 MB.
    let allowed = 40 * MIB + 1_000 * u64::from(count);
    require!(more < allowed, "{} MiB more memory", more / MIB);
    require!(site.queue_number(QUEUE, "uncommitted")? == 0, "all committed");
    require!(unit_number(&site, "log_bytes")? == 0, "nothing waits for a commit");
    daemon.kill()?;
    let daemon = site.start()?;
    require!(site.queue_number(QUEUE, "depth")? == u64::from(count), "all of it after a restart");
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_receiver(3, QUEUE, 1)?;
    require!(peer.get()?.ends_with(&[b'x'; BYTES]), "the message that was put");
    daemon.stop()
}

/// Puts a committed message, and then so many without a commit; the daemon is killed then, and
/// started again. How long that took.
fn killed_with(count: u32) -> Try<(Site, Daemon)> {
    let site = Site::open()?.with_config(MANY);
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, QUEUE)?;
    let body = message(true, &[b'x'; BYTES]);
    let mut client = Client::open(&daemon)?;
    require!(client.put(count, &body)?, "refused");
    peer.put(0, 0, b"committed")?;
    daemon.kill()?;
    let daemon = site.start()?;
    Ok((site, daemon))
}

#[test]
fn uncommitted_messages_in_the_log_are_gone_after_a_kill_and_cost_nothing_to_undo() -> Try {
    let (none, idle) = killed_with(0)?;
    let (many, daemon) = killed_with(messages())?;
    println!(
        "started in {:?} with none, in {:?} with {} uncommitted messages in the log",
        idle.started_in(),
        daemon.started_in(),
        messages()
    );
    for site in [&none, &many] {
        println!("{}", site.status()?["restart"]);
        require!(site.queue_number(QUEUE, "depth")? == 1, "only what was committed");
        require!(unit_number(site, "log_bytes")? == 0, "nothing of the unit");
    }
    idle.stop()?;
    daemon.stop()
}

#[test]
fn the_oldest_unit_ends_before_it_fills_the_log() -> Try {
    let log = "[log]\nextent_bytes = 4194304\nreserve_bytes = 8388608\nlog_bytes_max = 67108864\n";
    let site = Site::open()?.with_config(&format!("{MANY}{log}"));
    let daemon = site.start()?;
    let mut client = Client::open(&daemon)?;
    let body = message(true, &[b'x'; BYTES]);
    // 64 MiB are 32,000 messages.
    require!(!client.put(40_000, &body)?, "a unit larger than the log was taken");
    wait::until_true("rolled back", LIMIT, || {
        unit_number(&site, "ended_for_log").is_ok_and(|ended| ended == 1)
    })?;
    let outcome = client.discharge(false)?;
    require!(outcome.code() == Some(code::REJECTED), "not refused: {outcome:?}");
    require!(site.log().contains("TWL2030W"), "the operator is told");
    wait::until_true("the log has room again", LIMIT, || {
        let put = Peer::begun(daemon.address()).and_then(|mut peer| {
            peer.attach_sender(0, QUEUE)?;
            peer.put(0, 0, &[b'y'; 10_000])
        });
        put.is_ok() && site.status().is_ok_and(|status| status["log"]["space"] == "ok")
    })?;
    require!(unit_number(&site, "open")? == 0, "no unit is left");
    drop(client);
    daemon.stop()
}

#[test]
fn several_of_the_largest_messages_in_one_unit_do_not_stay_in_memory() -> Try {
    let site = Site::open()?.giving_freed_memory_back();
    let daemon = site.start()?;
    site.mqsc(&format!("DEFINE QLOCAL('{QUEUE}') MAXMSGL(104857600)\n"))?;
    let before = daemon.resident_bytes()?;
    let mut client = Client::open(&daemon)?;
    let body = message(true, &vec![b'x'; 30_000_000]);
    for number in 1..=6 {
        let mut left = body.as_slice();
        while !left.is_empty() {
            let (frame, rest) = left.split_at(left.len().min(60_000));
            left = rest;
            let transfer = transfer_in_unit(0, number, &client.unit);
            let more = with_more(transfer, !left.is_empty());
            client.peer.send(&amqp(0, &more, frame))?;
        }
        require!(client.await_answers(1)?, "message {number} was refused");
    }
    client.next = 7;
    let more = daemon.resident_bytes()?.saturating_sub(before);
    println!("180 MB in one unit: {} MiB more memory", more / MIB);
    require!(unit_number(&site, "memory_bytes")? == 0, "all of it is in the log");
    // The cache of the log, buffers of writers, and what is left of a message on its way.
    require!(more < 120 * MIB, "{} MiB more memory", more / MIB);
    require!(client.discharge(false)?.code() == Some(code::ACCEPTED), "not committed");
    require!(site.queue_number(QUEUE, "depth")? == 6, "all of them");
    client.peer.attach_receiver(3, QUEUE, 1)?;
    let first = client.peer.get()?;
    require!(first.ends_with(&[b'x'; 1_000]), "not the message");
    require!(first.len() >= 30_000_000, "{} bytes came back", first.len());
    wait::until_true("got", PATIENCE, || site.queue_number(QUEUE, "depth").is_ok_and(|n| n == 5))?;
    daemon.stop()
}

/// A transfer with its `more` flag (AMQP 2.7.5, field 5) set.
fn with_more(transfer: Value, more: bool) -> Value {
    let Value::Described(code, list) = transfer else { return transfer };
    let Value::List(mut fields) = *list else { return Value::Described(code, list) };
    if let Some(field) = fields.get_mut(5) {
        *field = Value::Bool(more);
    }
    Value::Described(code, Box::new(Value::List(fields)))
}
