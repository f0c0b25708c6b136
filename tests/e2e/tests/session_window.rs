//! A client that lets the session's window hold back what its links have credit for, and goes; and
//! one that fills it in one go.

use std::time::Duration;

use towline_e2e::daemon::Site;
use towline_e2e::peer::{Peer, attach_receiver, transfer};
use towline_e2e::wire::{Value, amqp, code, described, message};
use towline_e2e::{Try, require, wait};

const MESSAGES: u32 = 200;
const LIMIT: Duration = Duration::from_secs(20);

/// A session with this window, and a link with credit for everything that settles in advance.
fn consumer(address: &str, queue: &str, window: u32) -> Try<Peer> {
    let mut peer = Peer::open(address)?;
    let uints = |numbers: &[u32]| numbers.iter().map(|number| Value::Uint(*number)).collect();
    let mut begin: Vec<Value> = uints(&[0, window, 2_048]);
    begin.insert(0, Value::Null);
    peer.send(&amqp(0, &described(code::BEGIN, begin), &[]))?;
    peer.expect(code::BEGIN)?;
    let mut attach = attach_receiver(0, queue);
    if let Value::Described(_, list) = &mut attach
        && let Value::List(fields) = list.as_mut()
        && let Some(snd_settle_mode) = fields.get_mut(3)
    {
        *snd_settle_mode = Value::Ubyte(1);
    }
    peer.send(&amqp(0, &attach, &[]))?;
    peer.expect(code::ATTACH)?;
    let flow = uints(&[0, window, 0, 2_048, 0, 0, MESSAGES]);
    peer.send(&amqp(0, &described(code::FLOW, flow), &[]))?;
    Ok(peer)
}

#[test]
fn what_the_window_held_back_from_a_link_that_settles_in_advance_is_there_when_it_ends() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let lines: String = (0..MESSAGES).map(|number| format!("{number}\n")).collect();
    for (persistence, window) in [
        ("--persistent", 0),
        ("--persistent", 10),
        ("--non-persistent", 1),
        ("--non-persistent", 10),
    ] {
        let queue = format!("WINDOW{persistence}.{window}").to_uppercase();
        site.runs_with(&["put", &queue, "--lines", persistence], lines.as_bytes(), 0)?;
        let mut peer = consumer(daemon.address(), &queue, window)?;
        for _ in 0..window {
            peer.expect(code::TRANSFER)?;
        }
        let more = peer.read_frame(Duration::from_millis(100))?;
        require!(more.is_none(), "more than the window: {more:?}");
        drop(peer);
        wait::until_true("the end of the connection", LIMIT, || {
            site.queue_number(&queue, "consumers").is_ok_and(|open| open == 0)
        })?;
        let left = site.runs(&["get", &queue, "--all"], 0)?;
        let left: Vec<&str> = left.lines().collect();
        let wanted: Vec<String> = (window..MESSAGES).map(|number| number.to_string()).collect();
        require!(left == wanted, "{queue}: of {MESSAGES} are left {left:?}");
    }
    daemon.stop()
}

#[test]
fn puts_that_come_together_are_answered_in_one_frame() -> Try {
    const PUTS: u32 = 20;
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "TOGETHER")?;
    let body = message(false, b"x");
    let puts = (0..PUTS).flat_map(|number| amqp(0, &transfer(0, number, false), &body));
    peer.send(&puts.collect::<Vec<u8>>())?;
    let answer = peer.expect(code::DISPOSITION)?.performative;
    let range = [answer.field(1), answer.field(2)].map(Value::as_number);
    require!(range == [Some(0), Some(u64::from(PUTS) - 1)], "not all at once: {answer:?}");
    daemon.stop()
}
