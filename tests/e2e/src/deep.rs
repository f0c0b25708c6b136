//! Many small messages, quickly: filling a queue far beyond what the daemon keeps in memory.
//!
//! A message's body is its number; it carries the number as correlation id, message id and
//! application property too. Not here: what the tests expect of such a queue.

use crate::peer::{PATIENCE, Peer, accept, attach_receiver, drain_flow, transfer};
use crate::wire::{Value, amqp, code, described, symbol, text};
use crate::{Try, require};

/// The daemon keeps as little of a queue in memory as it can: 64 blocks of 256 messages.
pub const NO_INDEX: &str = "[queue_manager]\nindex_bytes_max = 0\nexpiry_interval_s = 1\n\
                            [log]\nextent_bytes = 4194304\ncache_bytes = 1048576\n";
/// Messages sent before their outcomes are waited for.
const BATCH: u32 = 200;

/// What a message has beside its number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// 0 to 9; 4 when none is given.
    pub priority: Option<u8>,
    /// Milliseconds that it lives.
    pub ttl_ms: Option<u32>,
}

/// The correlation id of a message.
#[must_use]
pub fn correlation_id(number: u32) -> String {
    format!("c{number}")
}

/// The message id of a message.
#[must_use]
pub fn message_id(number: u32) -> String {
    format!("ID:m{number}")
}

/// A persistent message as bytes.
#[must_use]
pub fn message(number: u32, traits: Traits) -> Vec<u8> {
    let priority = traits.priority.map_or(Value::Null, Value::Ubyte);
    let ttl = traits.ttl_ms.map_or(Value::Null, Value::Uint);
    let mut out = described(code::HEADER, vec![Value::Bool(true), priority, ttl]).bytes();
    let correlation = text(&correlation_id(number));
    let none = || Value::Null;
    let properties = vec![text(&message_id(number)), none(), none(), none(), none(), correlation];
    described(code::PROPERTIES, properties).write(&mut out);
    let map = Value::Map(vec![(text("number"), Value::Long(i64::from(number)))]);
    Value::Described(code::APPLICATION_PROPERTIES, Box::new(map)).write(&mut out);
    let body = number.to_string().into_bytes();
    Value::Described(code::DATA, Box::new(Value::Binary(body))).write(&mut out);
    out
}

/// A sender to one queue that waits for the outcomes of many messages at once.
pub struct Filler {
    peer: Peer,
    delivery: u32,
}

impl Filler {
    /// Opens a connection and a link.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn open(address: &str, queue: &str) -> Try<Self> {
        let mut peer = Peer::begun(address)?;
        peer.attach_sender(0, queue)?;
        Ok(Self { peer, delivery: 0 })
    }

    /// Puts these messages; when this returns all of them are acknowledged.
    ///
    /// # Errors
    /// When one is not accepted, or the daemon is gone.
    pub fn put(&mut self, numbers: impl Iterator<Item = (u32, Traits)>) -> Try {
        let mut numbers = numbers.peekable();
        while numbers.peek().is_some() {
            let mut bytes = Vec::new();
            let first = self.delivery;
            for (number, traits) in numbers.by_ref().take(BATCH as usize) {
                let performative = transfer(0, self.delivery, false);
                bytes.extend(amqp(0, &performative, &message(number, traits)));
                self.delivery += 1;
            }
            self.peer.send(&bytes)?;
            self.peer.await_accepted(self.delivery - first)?;
        }
        Ok(())
    }
}

/// Puts plain messages of these numbers.
///
/// # Errors
/// When one is not accepted.
pub fn fill(address: &str, queue: &str, numbers: std::ops::Range<u32>) -> Try {
    Filler::open(address, queue)?.put(numbers.map(|number| (number, Traits::default())))
}

/// How messages are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// They are got: settled without an answer.
    Get,
    /// They stay.
    Browse,
}

/// Takes up to so many messages that are in a queue now, in order, as text.
///
/// # Errors
/// When the queue cannot be read.
pub fn take(address: &str, queue: &str, look: ReadMode, count: u32) -> Try<Vec<String>> {
    let mut taken = Vec::new();
    take_into(&mut taken, address, queue, look, count)?;
    Ok(taken)
}

/// The same; what was taken before something failed is there too.
///
/// # Errors
/// When the queue cannot be read.
pub fn take_into(
    taken: &mut Vec<String>,
    address: &str,
    queue: &str,
    look: ReadMode,
    count: u32,
) -> Try {
    let mut peer = Peer::begun(address)?;
    let mut attach = attach_receiver(1, queue);
    if let (ReadMode::Browse, Value::Described(_, list)) = (look, &mut attach)
        && let Value::List(fields) = list.as_mut()
        && let Some(source) = fields.get_mut(5)
    {
        let mut terminus = vec![text(queue)];
        terminus.extend(std::iter::repeat_n(Value::Null, 5));
        terminus.push(symbol("copy"));
        *source = described(code::SOURCE, terminus);
    }
    peer.send(&amqp(0, &attach, &[]))?;
    let answer = peer.expect(code::ATTACH)?;
    require!(*answer.performative.field(5) != Value::Null, "refused: {answer:?}");
    loop {
        let before = u32::try_from(taken.len())?;
        let credit = CREDIT.min(count - before);
        if credit == 0 {
            return Ok(());
        }
        peer.send(&amqp(0, &drain_from(before, credit), &[]))?;
        take_some(&mut peer, taken)?;
        let after = u32::try_from(taken.len())?;
        if after == before {
            return Ok(());
        }
        peer.send(&amqp(0, &accept(before, after - 1), &[]))?;
    }
}

/// Credit given at a time; less than a session's window.
const CREDIT: u32 = 1_000;

/// A flow of link 1 after so many small deliveries: more credit, to be used or given back.
fn drain_from(received: u32, credit: u32) -> Value {
    let mut flow = drain_flow(1, received, credit);
    if let Value::Described(_, list) = &mut flow
        && let Value::List(fields) = list.as_mut()
        && let Some(next_incoming) = fields.first_mut()
    {
        *next_incoming = Value::Uint(received);
    }
    flow
}

/// Reads deliveries, each of one frame, until the credit is gone.
fn take_some(peer: &mut Peer, taken: &mut Vec<String>) -> Try {
    loop {
        let Some(got) = peer.read_frame(PATIENCE)? else {
            return Err(format!("no answer to a drain after {} messages", taken.len()).into());
        };
        let fields = &got.performative;
        let number = |at: usize| fields.field(at).as_number().unwrap_or(0);
        match fields.code() {
            Some(code::TRANSFER) => {
                let body = crate::wire::body_text(&got.payload);
                taken.push(body.ok_or("a message without text")?);
            }
            Some(code::FLOW) if *fields.field(4) != Value::Null && number(6) == 0 => return Ok(()),
            Some(code::DETACH | code::END | code::CLOSE) => {
                return Err(format!("drain ended: {got:?}").into());
            }
            _ => {}
        }
    }
}

/// Takes all messages of a queue, and checks that they are these, in this order.
///
/// # Errors
/// The first difference.
pub fn drains_to(address: &str, queue: &str, wanted: impl Iterator<Item = u32>) -> Try {
    in_order(&take(address, queue, ReadMode::Get, u32::MAX)?, wanted)
}

/// Checks that these bodies are these numbers, in this order.
///
/// # Errors
/// The first difference.
pub fn in_order(got: &[String], wanted: impl Iterator<Item = u32>) -> Try {
    let wanted: Vec<String> = wanted.map(|number| number.to_string()).collect();
    let differs = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
    if let Some(at) = differs {
        let around = |of: &[String]| of.iter().skip(at).take(5).cloned().collect::<Vec<_>>();
        let (got, wanted) = (around(got), around(&wanted));
        return Err(format!("number {at}: {got:?} instead of {wanted:?}").into());
    }
    let (got, wanted) = (got.len(), wanted.len());
    require!(got == wanted, "{got} messages instead of {wanted}");
    Ok(())
}
