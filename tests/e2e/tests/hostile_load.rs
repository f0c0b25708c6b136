//! Too many, too slow, too big: bounded memory, a clear end, and another client unharmed.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::peer::{
    Ending, Peer, attach_browser, attach_sender, credit_flow, transfer, transfer_in_unit,
};
use towline_e2e::wire::{SASL_HEADER, Value, amqp, code, described, frame, message};
use towline_e2e::{Try, fail, require, wait};

/// Login time-out of the tests: short, so that they are.
const CONFIG: &str = "[limits]\nlogin_timeout_s = 2\nidle_timeout_s = 2\n";
const LIMIT: Duration = Duration::from_secs(20);

/// Puts and gets one message and returns how long it took.
fn round_trip(peer: &mut Peer, number: u32) -> Try<Duration> {
    let begun = Instant::now();
    peer.put(0, number, b"still here")?;
    peer.get()?;
    Ok(begun.elapsed())
}

/// A plain client with a sender and a receiver.
fn bystander(daemon: &Daemon) -> Try<Peer> {
    client_of(daemon, "BYSTANDER")
}

fn client_of(daemon: &Daemon, queue: &str) -> Try<Peer> {
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, queue)?;
    peer.attach_receiver(1, queue, 1_000_000)?;
    Ok(peer)
}

fn allow_many_files() -> Try {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(65_536).min(65_536);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })?;
    Ok(())
}

#[test]
fn a_thousand_connections_that_never_log_in_end_in_time_and_cost_little() -> Try {
    allow_many_files()?;
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let mut plain = bystander(&daemon)?;
    let before = (daemon.resident_bytes()?, daemon.descriptors()?);
    let mut silent = Vec::new();
    for number in 0..1_000 {
        let mut peer = Peer::connect(daemon.address())?;
        // Some say nothing, some a header, some half a frame; a hang-up is an answer, too.
        match number % 3 {
            0 => {}
            1 => drop(peer.send(&SASL_HEADER)),
            _ => drop(peer.send(b"AMQP\x03\x01\x00\x00\x00\x00\x00\x20\x02\x01")),
        }
        silent.push(peer);
        if number % 100 == 0 {
            round_trip(&mut plain, number / 100)?;
        }
    }
    let grown = daemon.resident_bytes()?.saturating_sub(before.0);
    require!(grown < 64 << 20, "{grown} bytes for a thousand silent connections");
    let end = Instant::now() + LIMIT;
    for (number, peer) in (10..).zip(&mut silent) {
        // Those that wait for others to be cut take longer than a client may be silent.
        round_trip(&mut plain, number)?;
        let left = end.saturating_duration_since(Instant::now());
        require!(peer.is_hung_up(left), "a silent connection is still open after {LIMIT:?}");
    }
    round_trip(&mut plain, 1_010)?;
    wait::until_true("descriptors given back", LIMIT, || {
        daemon.descriptors().is_ok_and(|count| count <= before.1 + 8)
    })?;
    client_of(&daemon, "LATE").and_then(|mut peer| round_trip(&mut peer, 0))?;
    daemon.stop()
}

#[test]
fn a_login_byte_by_byte_is_cut_at_the_time_limit() -> Try {
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let mut peer = Peer::connect(daemon.address())?;
    let begun = Instant::now();
    let slow = [SASL_HEADER.to_vec(), frame(1, 0, &[0x40; 400])].concat();
    for byte in slow {
        if peer.send(&[byte]).is_err() || peer.is_hung_up(Duration::from_millis(50)) {
            break;
        }
    }
    let took = begun.elapsed();
    require!(took < Duration::from_secs(10), "the login went on for {took:?}");
    require!(took > Duration::from_secs(1), "cut after {took:?}, the limit is 2 s");
    daemon.stop()
}

#[test]
fn readers_that_do_not_read_cost_bounded_memory() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut plain = bystander(&daemon)?;
    let mut putting = Peer::begun(daemon.address())?;
    putting.attach_sender(0, "UNREAD")?;
    let body = vec![b'x'; 20_000];
    for number in 0..2_000 {
        putting.put(0, number, &body)?;
    }
    let before = daemon.resident_bytes()?;
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut peer = Peer::begun(daemon.address())?;
        browse_all(&mut peer, "UNREAD")?;
        readers.push(peer);
    }
    for number in 0..50 {
        let took = round_trip(&mut plain, number)?;
        require!(took < Duration::from_secs(5), "the bystander waited {took:?}");
    }
    let grown = daemon.resident_bytes()?.saturating_sub(before);
    require!(grown < 200 << 20, "{grown} bytes for twenty readers of 40 MB that do not read");
    drop(readers);
    round_trip(&mut plain, 50)?;
    daemon.stop()
}

/// Asks for copies of everything, with endless credit and an endless window.
fn browse_all(peer: &mut Peer, queue: &str) -> Try {
    peer.send(&amqp(0, &attach_browser(3, queue), &[]))?;
    peer.expect(code::ATTACH)?;
    let flow = vec![
        Value::Uint(0),
        Value::Uint(u32::MAX / 2),
        Value::Uint(0),
        Value::Uint(2048),
        Value::Uint(3),
        Value::Uint(0),
        Value::Uint(1_000_000),
    ];
    peer.send(&amqp(0, &described(code::FLOW, flow), &[]))
}

#[test]
fn a_writer_that_stops_in_the_middle_harms_nobody() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut plain = bystander(&daemon)?;
    let mut halves = Vec::new();
    for number in 0..50_u32 {
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, "HALF")?;
        let whole = amqp(0, &transfer(0, 0, false), &message(true, &[b'x'; 30_000]));
        let cut = usize::try_from(number)? * 500 + 1;
        peer.send(whole.get(..cut).unwrap_or_default())?;
        if number % 2 == 0 {
            peer.half_close()?;
        }
        halves.push(peer);
    }
    for number in 0..20 {
        round_trip(&mut plain, number)?;
    }
    drop(halves);
    round_trip(&mut plain, 20)?;
    require!(site.queue_number("HALF", "depth")? == 0, "half a message was stored");
    daemon.stop()
}

#[test]
fn a_message_over_maxmsgl_is_rejected_over_many_frames_too_and_the_link_goes_on() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL('SHORT') MAXMSGL(100000)\nDEFINE QLOCAL('BYSTANDER')")?;
    let mut plain = bystander(&daemon)?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "SHORT")?;
    let first = b"\x00\x53\x75\xb0\x7f\xff\xff\xff".to_vec();
    peer.send(&amqp(0, &transfer(0, 0, true), &first))?;
    for _ in 0..8 {
        peer.send(&amqp(0, &transfer(0, 0, true), &[b'x'; 30_000]))?;
    }
    peer.send(&amqp(0, &transfer(0, 0, false), b"the end"))?;
    let disposition = peer.expect(code::DISPOSITION)?;
    let outcome = disposition.performative.field(4);
    require!(outcome.code() == Some(code::REJECTED), "{outcome:?}");
    let condition = outcome.field(0).field(0).as_text();
    require!(condition == Some("amqp:link:message-size-exceeded"), "{outcome:?}");
    peer.put(0, 1, b"the link goes on")?;
    round_trip(&mut plain, 0)?;
    daemon.stop()
}

#[test]
fn unfinished_deliveries_are_limited() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut plain = bystander(&daemon)?;
    let before = daemon.resident_bytes()?;
    let mut peer = Peer::begun(daemon.address())?;
    let part = vec![b'x'; 60_000];
    let mut ended = false;
    for handle in 0..600 {
        peer.send(&amqp(0, &attach_sender(handle, "PARTS"), &[]))?;
        let mut first = b"\x00\x53\x75\xb0\x00\x3f\x00\x00".to_vec();
        first.extend(&part);
        if peer.send(&amqp(0, &transfer(handle, handle, true), &first)).is_err() {
            ended = true;
            break;
        }
    }
    let ending = if ended { Ending::Hangup } else { peer.ending(LIMIT)? };
    require!(ending != Ending::Nothing, "600 unfinished deliveries on one session are taken");
    let grown = daemon.resident_bytes()?.saturating_sub(before);
    require!(grown < 64 << 20, "{grown} bytes for unfinished deliveries");
    round_trip(&mut plain, 0)?;
    daemon.stop()
}

#[test]
fn units_of_one_connection_are_limited() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_coordinator(0)?;
    let declare =
        Value::Described(code::AMQP_VALUE, Box::new(described(code::DECLARE, vec![]))).bytes();
    for number in 0..1_100 {
        peer.send(&amqp(0, &transfer(0, number, false), &declare))?;
        let Some(answer) = next_answer(&mut peer)? else { fail!("no answer to declare {number}") };
        if answer.field(4).code() != Some(code::DECLARED) {
            println!("declare {number}: {answer:?}");
            require!(number >= 1_000, "refused at unit {number}, the limit is 1,000");
            return daemon.stop();
        }
    }
    fail!("1,100 units are open on one connection")
}

#[test]
fn a_unit_beyond_its_bytes_does_not_commit() -> Try {
    let site = Site::open()?.with_config("[queue_manager]\nunit_bytes_max = 100000\n");
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "UNIT.BYTES")?;
    peer.attach_coordinator(9)?;
    let unit = peer.control(9, 0, &described(code::DECLARE, vec![]))?.field(0).clone();
    let body = message(true, &[b'x'; 40_000]);
    for delivery in 1..4 {
        peer.send(&amqp(0, &transfer_in_unit(0, delivery, &unit), &body))?;
        let Some(answer) = next_answer(&mut peer)? else { fail!("no answer") };
        println!("message {delivery}: {:?}", answer.field(4));
    }
    let discharge = described(code::DISCHARGE, vec![unit, Value::Bool(false)]);
    let outcome = peer.control(9, 4, &discharge);
    println!("commit: {outcome:?}");
    let committed = outcome.is_ok_and(|state| state.code() == Some(code::ACCEPTED));
    require!(!committed, "a unit of 120 kB was committed, the limit is 100 kB");
    require!(site.queue_number("UNIT.BYTES", "depth")? == 0, "some of the unit is there");
    daemon.stop()
}

/// The next disposition, or what ends link, session or connection.
fn next_answer(peer: &mut Peer) -> Try<Option<Value>> {
    loop {
        let Some(got) = peer.read_frame(LIMIT)? else { return Ok(None) };
        let ends = [code::DISPOSITION, code::DETACH, code::END, code::CLOSE];
        if got.performative.code().is_some_and(|code| ends.contains(&code)) {
            return Ok(Some(got.performative));
        }
    }
}

#[test]
fn connections_that_come_and_go_leave_nothing() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut plain = bystander(&daemon)?;
    for _ in 0..50 {
        client_of(&daemon, "COMING").and_then(|mut peer| round_trip(&mut peer, 0))?;
    }
    let before = (daemon.resident_bytes()?, daemon.descriptors()?);
    for number in 0..1_000 {
        match number % 4 {
            0 => drop(Peer::connect(daemon.address())?),
            1 => drop(Peer::open(daemon.address())?),
            2 => drop(Peer::begun(daemon.address())?),
            _ => drop(client_of(&daemon, "COMING")?),
        }
    }
    wait::until_true("descriptors given back", LIMIT, || {
        daemon.descriptors().is_ok_and(|count| count <= before.1 + 2)
    })?;
    let grown = daemon.resident_bytes()?.saturating_sub(before.0);
    require!(grown < 16 << 20, "{grown} bytes stay after a thousand connections");
    round_trip(&mut plain, 0)?;
    daemon.stop()
}

#[test]
fn a_silent_client_is_dropped_after_the_idle_time_out() -> Try {
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let mut peer = Peer::open(daemon.address())?;
    let begun = Instant::now();
    require!(peer.is_hung_up(LIMIT), "still open after {LIMIT:?}");
    let took = begun.elapsed();
    require!(took > Duration::from_millis(1_500), "dropped after {took:?}, the limit is 2 s");
    daemon.stop()
}

/// One message that takes longer on a slow network than a client may be silent. Nothing that the
/// client says meanwhile is read, because there is enough to write.
#[test]
fn a_client_that_reads_a_long_message_slowly_is_not_silent_and_one_that_does_not_read_is() -> Try {
    const PARTS: u32 = 500;
    const PART: usize = 60_000;
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let mut putting = Peer::begun(daemon.address())?;
    putting.attach_sender(0, "LONG")?;
    let data = 4 + PARTS * u32::try_from(PART)?;
    let first = [b"\x00\x53\x75\xb0".as_slice(), &data.to_be_bytes(), b"head"].concat();
    putting.send(&amqp(0, &transfer(0, 0, true), &first))?;
    for part in 1..=PARTS {
        putting.send(&amqp(0, &transfer(0, 0, part < PARTS), &[b'x'; PART]))?;
    }
    putting.await_accepted(1)?;

    let mut deaf = Peer::begun(daemon.address())?;
    browse_all(&mut deaf, "LONG")?;
    let mut slow = Peer::begun(daemon.address())?;
    slow.attach_receiver(1, "LONG", 1)?;
    let (begun, mut read) = (Instant::now(), 0);
    while read < PART * PARTS as usize {
        slow.send(&frame(0, 0, &[]))?;
        read += slow.read_bytes(400_000)?.len();
        wait::pause(Duration::from_millis(100));
    }
    let took = begun.elapsed();
    require!(took > Duration::from_secs(6), "read in {took:?}: not slow");
    require!(deaf.is_hung_up(LIMIT), "one that reads nothing is still there");
    daemon.stop()
}

#[test]
fn a_flood_of_empty_frames_and_flows_harms_nobody() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut plain = bystander(&daemon)?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_receiver(3, "EMPTY", 1)?;
    let empty = frame(0, 0, &[]).repeat(5_000);
    let flows = amqp(0, &credit_flow(3, 0, 1), &[]).repeat(5_000);
    for number in 0..10 {
        peer.send(&empty)?;
        peer.send(&flows)?;
        let took = round_trip(&mut plain, number)?;
        require!(took < Duration::from_secs(5), "the bystander waited {took:?}");
    }
    require!(daemon.resident_bytes()? < 200 << 20, "memory {}", daemon.resident_bytes()?);
    daemon.stop()
}
