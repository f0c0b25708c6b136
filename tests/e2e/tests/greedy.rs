//! Clients that keep large messages half sent or half read: what they take is bounded, and given
//! back when others need it. (One that is merely slow: `hostile_load`.)

use std::time::Duration;

use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::peer::{Ending, Peer, attach_browser, credit_flow, transfer};
use towline_e2e::wire::{Value, amqp, code, message};
use towline_e2e::{Try, fail, require, wait};

/// What all connections together may hold, either way.
const HELD_MAX: u64 = 256 << 20;
/// A client that stands still gives way within 17 s; the rest is for a busy machine. Less than the
/// idle time-out, which would end it as well.
const LIMIT: Duration = Duration::from_secs(40);
const FRAME_BYTES: usize = 60_000;

/// Sends the first `bytes` of a message in frames.
fn send_part(peer: &mut Peer, message: &[u8], bytes: usize) -> Try {
    let mut left = message.get(..bytes).unwrap_or(message);
    let is_whole = bytes >= message.len();
    while !left.is_empty() {
        let (frame, behind) = left.split_at(FRAME_BYTES.min(left.len()));
        left = behind;
        let more = !(is_whole && left.is_empty());
        peer.send(&amqp(0, &transfer(0, 0, more), frame))?;
    }
    Ok(())
}

fn sender(daemon: &Daemon, queue: &str) -> Try<Peer> {
    let mut peer = Peer::begun(daemon.address())?.patient(LIMIT);
    peer.attach_sender(0, queue)?;
    Ok(peer)
}

/// Puts one message of so many bytes.
fn put_large(daemon: &Daemon, queue: &str, bytes: usize) -> Try {
    let mut peer = sender(daemon, queue)?;
    let message = message(true, &vec![b'x'; bytes]);
    send_part(&mut peer, &message, message.len())?;
    peer.await_accepted(1)
}

/// Reads one message. Its bytes.
fn read_large(peer: &mut Peer) -> Try<usize> {
    let mut bytes = 0;
    loop {
        let Some(frame) = peer.read_frame(LIMIT)? else { fail!("nothing after {bytes} bytes") };
        require!(
            frame.performative.code() == Some(code::TRANSFER),
            "after {bytes} bytes: {:?}",
            frame.performative
        );
        bytes += frame.payload.len();
        if *frame.performative.field(5) != Value::Bool(true) {
            break;
        }
    }
    Ok(bytes)
}

/// Asks for a copy of one message.
fn browse(peer: &mut Peer, queue: &str) -> Try {
    peer.send(&amqp(0, &attach_browser(0, queue), &[]))?;
    peer.expect(code::ATTACH)?;
    peer.send(&amqp(0, &credit_flow(0, 0, 1), &[]))
}

fn departing(site: &Site) -> Try<u64> {
    Ok(site.status()?["memory"]["departing_bytes"].as_u64().unwrap_or_default())
}

#[test]
fn readers_of_large_messages_that_stand_still_give_way_to_others() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    put_large(&daemon, "STILL", 60_000_000)?;
    let mut still = Vec::new();
    for _ in 0..5 {
        let mut peer = Peer::begun(daemon.address())?.patient(LIMIT);
        browse(&mut peer, "STILL")?;
        still.push(peer);
    }
    wait::until_true("four of them hold the message", LIMIT, || {
        departing(&site).is_ok_and(|bytes| bytes > 180 << 20)
    })?;
    let mut reader = Peer::begun(daemon.address())?.patient(LIMIT);
    browse(&mut reader, "STILL")?;
    let mut beside = sender(&daemon, "BESIDE")?;
    for number in 0..50 {
        beside.put(0, number, b"beside")?;
        let held = departing(&site)?;
        require!(held <= HELD_MAX, "{held} bytes are held");
    }
    let bytes = read_large(&mut reader)?;
    require!(bytes > 60_000_000, "{bytes} bytes came");
    require!(site.log().contains("TWL1110W"), "the log says nothing:\n{}", site.log());
    drop(still);
    daemon.stop()
}

#[test]
fn senders_that_stop_in_the_middle_of_large_messages_give_way_to_others() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let message = message(true, &vec![b'x'; 100_000_000]);
    let mut still = Vec::new();
    for _ in 0..3 {
        let mut peer = sender(&daemon, "HALF")?;
        send_part(&mut peer, &message, 90_000_000)?;
        still.push(peer);
    }
    put_large(&daemon, "SHORTER", 1_000_000)?;
    for peer in &mut still {
        let ending = peer.ending(Duration::from_millis(1))?;
        require!(ending == Ending::Nothing, "a shorter message waited: {ending:?}");
    }
    put_large(&daemon, "WHOLE", 10_000_000)?;
    let mut closed = Vec::new();
    for peer in &mut still {
        match peer.ending(Duration::from_secs(1))? {
            Ending::Nothing => {}
            ending => closed.push(ending),
        }
    }
    let limit = Ending::Condition("amqp:resource-limit-exceeded".to_owned());
    require!(closed == [limit], "{closed:?}");
    require!(site.queue_number("HALF", "depth")? == 0, "half a message was stored");
    daemon.stop()
}
