//! One socket to the daemon, driven frame by frame: the hostile peer, and the plain one beside it.
//!
//! Blocking, with a time limit on every read. It answers nothing by itself: not even a close.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::wire::{AMQP_HEADER, SASL_HEADER, Value, amqp, code, described, frame, symbol, text};
use crate::{Try, fail, require};

mod reading;

/// Answers on this machine come within milliseconds; this is for a busy one.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Transfers that a drain takes: the most that the arithmetic of AMQP allows (section 2.8.10).
const WINDOW_OF_DRAIN: u32 = 0x7fff_ffff;

/// A frame as it was read.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Channel of the frame.
    pub channel: u16,
    /// The performative; [`Value::Null`] in an empty frame.
    pub performative: Value,
    /// What follows the performative.
    pub payload: Vec<u8>,
}

/// How the daemon ended what a hostile peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A close, end or detach with this condition.
    Condition(String),
    /// A close, end or detach without a condition.
    Quiet,
    /// The socket was closed without a word.
    Hangup,
    /// Nothing at all before the time was up.
    Nothing,
}

/// One connection.
pub struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    patience: Duration,
    /// Transfers that came while something else was awaited: a delivery may come before the outcome
    /// of the put of its message.
    early: VecDeque<Frame>,
}

impl Peer {
    /// Connects, and says nothing yet.
    ///
    /// # Errors
    /// When no program listens.
    pub fn connect(address: &str) -> Try<Self> {
        Self::over(TcpStream::connect(address)?)
    }

    /// Takes over a connected socket.
    ///
    /// # Errors
    /// When its options cannot be set.
    pub fn over(stream: TcpStream) -> Try<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new(), patience: PATIENCE, early: VecDeque::new() })
    }

    /// The same with another limit for each answer: for a caller that prefers a new connection to
    /// waiting.
    #[must_use]
    pub fn patient(mut self, limit: Duration) -> Self {
        self.patience = limit;
        self
    }

    /// Connects and gets as far as an open connection (SASL ANONYMOUS).
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn open(address: &str) -> Try<Self> {
        Self::connect(address)?.opened()
    }

    /// SASL ANONYMOUS and open on a fresh connection.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn opened(mut self) -> Try<Self> {
        self.authenticate()?;
        self.send(&amqp(0, &open_frame(), &[]))?;
        self.expect(code::OPEN)?;
        Ok(self)
    }

    /// Connects, opens, and begins a session on channel 0.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn begun(address: &str) -> Try<Self> {
        let mut peer = Self::open(address)?;
        peer.begin(0)?;
        Ok(peer)
    }

    /// SASL ANONYMOUS, up to and including the AMQP protocol header.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn authenticate(&mut self) -> Try {
        self.send(&SASL_HEADER)?;
        require!(self.read_bytes(8)? == SASL_HEADER, "not the SASL header");
        self.expect(code::SASL_MECHANISMS)?;
        let fields = vec![symbol("ANONYMOUS"), Value::Binary(b"e2e".into())];
        self.send(&frame(1, 0, &described(code::SASL_INIT, fields).bytes()))?;
        let outcome = self.expect(code::SASL_OUTCOME)?;
        require!(outcome.performative.field(0).as_number() == Some(0), "refused: {outcome:?}");
        self.send(&AMQP_HEADER)?;
        require!(self.read_bytes(8)? == AMQP_HEADER, "not the AMQP header");
        Ok(())
    }

    /// Begins a session.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn begin(&mut self, channel: u16) -> Try {
        let fields = vec![
            Value::Null,
            Value::Uint(0),
            Value::Uint(2048),
            Value::Uint(2048),
            Value::Uint(255),
        ];
        self.send(&amqp(channel, &described(code::BEGIN, fields), &[]))?;
        self.expect(code::BEGIN)?;
        Ok(())
    }

    /// Attaches a sender on channel 0 and waits for credit.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn attach_sender(&mut self, handle: u32, queue: &str) -> Try {
        self.send(&amqp(0, &attach_sender(handle, queue), &[]))?;
        let attach = self.expect(code::ATTACH)?;
        require!(*attach.performative.field(6) != Value::Null, "refused: {attach:?}");
        self.expect(code::FLOW)?;
        Ok(())
    }

    /// Attaches a receiver on channel 0 and gives it credit.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn attach_receiver(&mut self, handle: u32, queue: &str, credit: u32) -> Try {
        self.send(&amqp(0, &attach_receiver(handle, queue), &[]))?;
        let attach = self.expect(code::ATTACH)?;
        require!(*attach.performative.field(5) != Value::Null, "refused: {attach:?}");
        self.send(&amqp(0, &credit_flow(handle, 0, credit), &[]))
    }

    /// Attaches a link to the transaction coordinator on channel 0 and waits for credit.
    ///
    /// # Errors
    /// When the daemon does not answer as it should.
    pub fn attach_coordinator(&mut self, handle: u32) -> Try {
        self.send(&amqp(0, &attach_coordinator(handle), &[]))?;
        let attach = self.expect(code::ATTACH)?;
        require!(*attach.performative.field(6) != Value::Null, "refused: {attach:?}");
        self.expect(code::FLOW)?;
        Ok(())
    }

    /// Sends a declare or discharge, and gives back the state that answers it.
    ///
    /// # Errors
    /// When no disposition comes.
    pub fn control(&mut self, handle: u32, delivery: u32, request: &Value) -> Try<Value> {
        let body = Value::Described(code::AMQP_VALUE, Box::new(request.clone())).bytes();
        self.send(&amqp(0, &transfer(handle, delivery, false), &body))?;
        Ok(self.expect(code::DISPOSITION)?.performative.field(4).clone())
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the daemon has hung up.
    pub fn send(&mut self, bytes: &[u8]) -> Try {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Puts one small durable message on an attached sender, and waits until it is accepted.
    ///
    /// # Errors
    /// When it is not accepted.
    pub fn put(&mut self, handle: u32, delivery: u32, body: &[u8]) -> Try {
        self.put_unanswered(handle, delivery, body)?;
        let answer = self.expect(code::DISPOSITION)?;
        let state = answer.performative.field(4).code();
        require!(state == Some(code::ACCEPTED), "not accepted: {answer:?}");
        Ok(())
    }

    /// Puts one small durable message, and waits for nothing.
    ///
    /// # Errors
    /// When the socket is gone.
    pub fn put_unanswered(&mut self, handle: u32, delivery: u32, body: &[u8]) -> Try {
        let bytes = crate::wire::message(true, body);
        self.send(&amqp(0, &transfer(handle, delivery, false), &bytes))
    }

    /// Waits until so many of our deliveries are accepted and settled, one by one or in ranges.
    ///
    /// # Errors
    /// When one has another outcome, or the daemon falls silent.
    pub fn await_accepted(&mut self, count: u32) -> Try {
        let mut left = u64::from(count);
        while left > 0 {
            let answer = self.expect(code::DISPOSITION)?.performative;
            let first = answer.field(1).as_number().unwrap_or(0);
            let last = answer.field(2).as_number().unwrap_or(first);
            let accepted = answer.field(4).code() == Some(code::ACCEPTED);
            require!(accepted, "not accepted: {answer:?}");
            left = left.saturating_sub(last - first + 1);
        }
        Ok(())
    }

    /// Waits for a delivery, and accepts it; gives back the message's bytes.
    ///
    /// # Errors
    /// When none comes.
    pub fn get(&mut self) -> Try<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut delivery = None;
        loop {
            let got = self.expect(code::TRANSFER)?;
            bytes.extend(&got.payload);
            delivery = delivery.or(got.performative.field(1).as_number());
            if *got.performative.field(5) == Value::Bool(true) {
                continue;
            }
            if let Some(delivery) = delivery {
                let delivery = u32::try_from(delivery)?;
                self.send(&amqp(0, &accept(delivery, delivery), &[]))?;
            }
            return Ok(bytes);
        }
    }

    /// Reads frames until one of this performative comes.
    ///
    /// # Errors
    /// When another ending comes first, or nothing.
    pub fn expect(&mut self, wanted: u64) -> Try<Frame> {
        if wanted == code::TRANSFER
            && let Some(early) = self.early.pop_front()
        {
            return Ok(early);
        }
        loop {
            let Some(got) = self.read_frame(self.patience)? else {
                fail!("{wanted:#x} did not come")
            };
            let code = got.performative.code();
            if code == Some(wanted) {
                return Ok(got);
            }
            let ends = [code::DETACH, code::END, code::CLOSE];
            if code.is_some_and(|code| ends.contains(&code)) {
                fail!("{wanted:#x} was expected, but: {got:?}");
            }
            if code == Some(code::TRANSFER) {
                self.early.push_back(got);
            }
        }
    }

    /// Reads until the daemon ends something, or hangs up, or the time is up.
    ///
    /// # Errors
    /// When what comes is not AMQP.
    pub fn ending(&mut self, limit: Duration) -> Try<Ending> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let got = match self.read_frame(left) {
                Ok(Some(got)) => got,
                Ok(None) => return Ok(Ending::Nothing),
                Err(_) => return Ok(Ending::Hangup),
            };
            let error = match got.performative.code() {
                Some(code::DETACH) => got.performative.field(2),
                Some(code::END | code::CLOSE) => got.performative.field(0),
                _ => continue,
            };
            let condition = error.condition().map(|text| Ending::Condition(text.into()));
            return Ok(condition.unwrap_or(Ending::Quiet));
        }
    }

    /// True when the daemon has closed the socket within the limit; frames are thrown away.
    #[must_use]
    pub fn is_hung_up(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut chunk = [0_u8; 65_536];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            drop(self.stream.set_read_timeout(Some(left)));
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                }
            }
        }
    }

    /// Closes the sending half only.
    ///
    /// # Errors
    /// When the socket is gone.
    pub fn half_close(&self) -> Try {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// The next frame, or `None` when the time is up.
    ///
    /// # Errors
    /// When the daemon has hung up, or what comes is not AMQP.
    pub fn read_frame(&mut self, limit: Duration) -> Try<Option<Frame>> {
        let Some(head) = self.fill(4, limit)? else { return Ok(None) };
        let size = head.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
        require!((8..=1 << 20).contains(&size), "a frame of {size} bytes");
        let Some(bytes) = self.fill(size, PATIENCE)? else { fail!("half a frame") };
        let bytes = bytes.to_vec();
        self.buffer.drain(..size);
        let channel = bytes.iter().skip(6).take(2).fold(0, |sum, byte| sum << 8 | u16::from(*byte));
        let mut rest = bytes.get(8..).unwrap_or_default();
        let empty = rest.is_empty();
        let performative = if empty { Some(Value::Null) } else { Value::read(&mut rest) };
        let Some(performative) = performative else { fail!("not a performative: {bytes:?}") };
        Ok(Some(Frame { channel, performative, payload: rest.to_vec() }))
    }

    /// Exactly so many bytes, outside of frames.
    ///
    /// # Errors
    /// When they do not come.
    pub fn read_bytes(&mut self, count: usize) -> Try<Vec<u8>> {
        let Some(bytes) = self.fill(count, self.patience)? else { fail!("nothing came") };
        let bytes = bytes.to_vec();
        self.buffer.drain(..count);
        Ok(bytes)
    }

    fn fill(&mut self, count: usize, limit: Duration) -> Try<Option<&[u8]>> {
        let end = Instant::now() + limit;
        let mut chunk = [0_u8; 65_536];
        while self.buffer.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => fail!("the daemon hung up"),
                Ok(read) => self.buffer.extend(chunk.iter().take(read)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.buffer.get(..count))
    }
}

/// An open of a plain client.
#[must_use]
pub fn open_frame() -> Value {
    let fields = vec![text("e2e"), text("localhost"), Value::Uint(65_536), Value::Ushort(255)];
    described(code::OPEN, fields)
}

/// An attach of a sender to a queue.
#[must_use]
pub fn attach_sender(handle: u32, queue: &str) -> Value {
    let name = text(&format!("sender-{handle}-{queue}"));
    let source = described(code::SOURCE, vec![text("e2e")]);
    let target = described(code::TARGET, vec![text(queue)]);
    let count = Value::Uint(0);
    let fields = vec![
        name,
        Value::Uint(handle),
        Value::Bool(false),
        Value::Null,
        Value::Null,
        source,
        target,
        Value::Null,
        Value::Null,
        count,
    ];
    described(code::ATTACH, fields)
}

/// An attach of a link to the transaction coordinator.
#[must_use]
pub fn attach_coordinator(handle: u32) -> Value {
    let fields = vec![
        text("coordinator"),
        Value::Uint(handle),
        Value::Bool(false),
        Value::Null,
        Value::Null,
        described(code::SOURCE, vec![]),
        described(code::COORDINATOR, vec![]),
        Value::Null,
        Value::Null,
        Value::Uint(0),
    ];
    described(code::ATTACH, fields)
}

/// A transfer of an unsettled delivery in a unit of work.
#[must_use]
pub fn transfer_in_unit(handle: u32, delivery: u32, unit: &Value) -> Value {
    let fields = vec![
        Value::Uint(handle),
        Value::Uint(delivery),
        Value::Binary(delivery.to_be_bytes().into()),
        Value::Uint(0),
        Value::Bool(false),
        Value::Bool(false),
        Value::Null,
        described(code::TRANSACTIONAL, vec![unit.clone()]),
    ];
    described(code::TRANSFER, fields)
}

/// An attach of a receiver to a queue.
#[must_use]
pub fn attach_receiver(handle: u32, queue: &str) -> Value {
    attach_from(handle, queue, vec![text(queue)])
}

/// An attach of a receiver of copies.
#[must_use]
pub fn attach_browser(handle: u32, queue: &str) -> Value {
    let mut source = vec![Value::Null; 7];
    source.splice(0..1, [text(queue)]);
    source.splice(6..7, [symbol("copy")]);
    attach_from(handle, queue, source)
}

fn attach_from(handle: u32, queue: &str, source: Vec<Value>) -> Value {
    let name = text(&format!("receiver-{handle}-{queue}"));
    let source = described(code::SOURCE, source);
    let target = described(code::TARGET, vec![text("e2e")]);
    let fields = vec![
        name,
        Value::Uint(handle),
        Value::Bool(true),
        Value::Null,
        Value::Null,
        source,
        target,
    ];
    described(code::ATTACH, fields)
}

/// A flow that gives a receiver credit.
#[must_use]
pub fn credit_flow(handle: u32, delivery_count: u32, credit: u32) -> Value {
    let fields = vec![
        Value::Uint(0),
        Value::Uint(2048),
        Value::Uint(0),
        Value::Uint(2048),
        Value::Uint(handle),
        Value::Uint(delivery_count),
        Value::Uint(credit),
    ];
    described(code::FLOW, fields)
}

/// The same with the drain flag: what is there now, and then the credit is gone.
#[must_use]
pub fn drain_flow(handle: u32, delivery_count: u32, credit: u32) -> Value {
    let mut flow = credit_flow(handle, delivery_count, credit);
    if let Value::Described(_, list) = &mut flow
        && let Value::List(fields) = list.as_mut()
    {
        // The session's window is counted from its begin: a deep queue needs more than usual.
        if let Some(window) = fields.get_mut(1) {
            *window = Value::Uint(WINDOW_OF_DRAIN);
        }
        fields.extend([Value::Null, Value::Bool(true)]);
    }
    flow
}

/// A disposition of a receiver that accepts and settles a range of deliveries.
#[must_use]
pub fn accept(first: u32, last: u32) -> Value {
    let accepted = described(code::ACCEPTED, vec![]);
    let fields =
        vec![Value::Bool(true), Value::Uint(first), Value::Uint(last), Value::Bool(true), accepted];
    described(code::DISPOSITION, fields)
}

/// A transfer of an unsettled delivery with its number as the tag.
#[must_use]
pub fn transfer(handle: u32, delivery: u32, more: bool) -> Value {
    let fields = vec![
        Value::Uint(handle),
        Value::Uint(delivery),
        Value::Binary(delivery.to_be_bytes().into()),
        Value::Uint(0),
        Value::Bool(false),
        Value::Bool(more),
    ];
    described(code::TRANSFER, fields)
}
