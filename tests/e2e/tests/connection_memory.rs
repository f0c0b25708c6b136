//! What one client can make the process hold: the two ways that once took a gigabyte each.

use std::time::Duration;

use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::peer::{Peer, attach_receiver, transfer};
use towline_e2e::wire::{Value, amqp, code, message};
use towline_e2e::{Try, fail, require, wait};

/// `connection_memory_bytes_max`, and as much again for the allocator and what else a run needs.
const GROWTH_MAX: u64 = 2 * (64 << 20);
const LIMIT: Duration = Duration::from_secs(60);

fn growth(daemon: &Daemon, before: u64) -> Try<u64> {
    Ok(daemon.resident_bytes()?.saturating_sub(before))
}

/// An attach of a consumer with a selector of nearly the greatest length, of which a program of
/// twenty times its length is made.
fn selecting(channel: u16, handle: u32) -> Value {
    const FILTER: &str = "apache.org:selector-filter:string";
    const FILTER_CODE: u64 = 0x0000_468c_0000_0004;
    let text = vec!["a=1"; 580].join(" OR ");
    let selector = Value::Described(FILTER_CODE, Box::new(Value::Text(text)));
    let filters = Value::Map(vec![(Value::Symbol(FILTER.into()), selector)]);
    let mut attach = attach_receiver(handle, "SELECTED");
    let name = Value::Text(format!("{channel}-{handle}"));
    if let Value::Described(_, list) = &mut attach
        && let Value::List(fields) = list.as_mut()
        && fields.splice(0..1, [name]).next().is_some()
        && let Some(Value::Described(_, source)) = fields.get_mut(5)
        && let Value::List(source) = source.as_mut()
    {
        source.resize(7, Value::Null);
        source.push(filters);
    }
    attach
}

/// Attaches one. Whether it was refused for the memory that it takes.
fn is_refused(peer: &mut Peer, channel: u16, handle: u32) -> Try<bool> {
    peer.send(&amqp(channel, &selecting(channel, handle), &[]))?;
    let attach = peer.expect(code::ATTACH)?;
    if *attach.performative.field(5) != Value::Null {
        return Ok(false);
    }
    let Some(detach) = peer.read_frame(LIMIT)? else { fail!("no detach behind {attach:?}") };
    let condition = detach.performative.field(2).condition();
    require!(condition == Some("amqp:resource-limit-exceeded"), "{detach:?}");
    Ok(true)
}

#[test]
fn parts_of_messages_in_small_frames_take_what_they_are_long() -> Try {
    const LINKS: u32 = 200;
    const FRAME_BYTES: usize = 1_100;
    const ROUNDS: u32 = 60;
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?.patient(LIMIT);
    for handle in 0..LINKS {
        peer.attach_sender(handle, "PARTS")?;
    }
    let before = daemon.resident_bytes()?;
    let part = message(false, &vec![b'x'; 100_000]);
    let part = part.get(..FRAME_BYTES).unwrap_or(&part);
    for _ in 0..ROUNDS {
        for handle in 0..LINKS {
            // Each in a read of its own, if the daemon keeps up.
            peer.send(&amqp(0, &transfer(handle, handle, true), part))?;
            std::thread::yield_now();
        }
    }
    let sent = u64::from(LINKS) * u64::from(ROUNDS) * FRAME_BYTES as u64;
    wait::until_true("all parts are there", LIMIT, || {
        let arriving = site.status().ok();
        let bytes = arriving.and_then(|status| status["memory"]["arriving_bytes"].as_u64());
        bytes.is_some_and(|bytes| bytes >= sent)
    })?;
    let grown = growth(&daemon, before)?;
    require!(grown < GROWTH_MAX, "{grown} bytes more for {sent} bytes");
    daemon.stop()
}

#[test]
fn links_with_long_selectors_are_refused_before_they_take_more_than_a_connection_may() -> Try {
    const SESSIONS: u16 = 10;
    const LINKS: u32 = 200;
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?.patient(LIMIT);
    let before = daemon.resident_bytes()?;
    let mut refused = 0;
    for channel in 0..SESSIONS {
        if channel > 0 {
            peer.begin(channel)?;
        }
        for handle in 0..LINKS {
            refused += u32::from(is_refused(&mut peer, channel, handle)?);
        }
    }
    let grown = growth(&daemon, before)?;
    require!(grown < GROWTH_MAX, "{grown} bytes more, {refused} links were refused");
    require!(refused > 0, "all links were taken");
    // Another connection has memory of its own.
    let mut other = Peer::begun(daemon.address())?.patient(LIMIT);
    require!(!is_refused(&mut other, 0, 0)?, "another client is refused");
    daemon.stop()
}
