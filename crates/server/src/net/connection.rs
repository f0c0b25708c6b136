//! One client connection: bytes from the socket to its front, requests to the node, responses back,
//! bytes to the socket. One task per connection, written as one poll function so that a wake-up
//! costs one read, one step of the node and one write.
//!
//! Back-pressure: it stops reading while the front holds too many bytes that are not durable yet,
//! or all connections too many of unfinished large messages (`arrivals`), and stops taking
//! responses while the socket does not take its output, or all connections have too many large ones
//! to send (`departures`). While the log is behind it keeps requests that add to it, and reads
//! nothing; so it does with all requests while the instance has enough of them (`is_shut`), unless
//! others wait for the end of a large message of its client.
//!
//! Not here: bodies of deliveries (`outgoing_bodies`), what makes one step (`portion`), a log that
//! is behind (`log_wait`).

pub(super) mod checks;
mod log_wait;
mod outgoing_bodies;

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, sleep_until};
use towline_amqp::types::SaslCode;
use towline_core::ConnectionId;
use towline_log::{Log, LogError};
use towline_node::{Front, Request, Response};
use towline_types::{Payload, Time, limits};

use self::checks::MessageAnswer;
use crate::net::admission::ConnectionSlot;
use crate::net::pace::Paces;
use crate::net::parting::part;
use crate::net::portion;
use crate::net::turn::{self, Turns};
use towline_access::Gate;
use towline_engine::{AccountShare, Arrival, Departure, Door, LogShare, Outbox};
use towline_link::scratch;
use towline_process::Clock;

/// Encoded bytes that may wait for the socket before responses wait instead.
const OUTPUT_BYTES_HIGH: usize = 1024 * 1024;
/// Bytes taken from the front at once: all that a turn leaves there, so that it is one write.
const OUTPUT_BYTES_TAKEN: usize = OUTPUT_BYTES_HIGH;
/// Bytes written in one turn before the others get theirs, and a little more.
const TURN_BYTES_MAX: usize = 4 * OUTPUT_BYTES_TAKEN;
/// Undurable bytes of one connection above which it is not read.
const INCOMING_BYTES_HIGH: usize = 16 * 1024 * 1024;
/// Pieces given to one vectored write (IOV_MAX is 1,024).
const WRITE_PIECES_MAX: usize = 512;
/// How long a connection that is over may take to get its last bytes out.
const LINGER: Duration = Duration::from_secs(5);
/// Responses of one turn before the others get theirs.
const RESPONSES_MAX: usize = 512;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides closed in order.
    Orderly,
    /// The socket broke or the protocol was violated.
    Lost,
    /// It had not logged in, and others waited for its slot.
    GaveWay,
    /// It held a large message and stood still, and others waited for the memory.
    StoodStill,
}

/// How a connection came in.
pub(crate) struct EnteringClient {
    /// Its slot among all connections.
    pub(crate) place: ConnectionSlot,
    /// Decides on its login.
    pub(crate) gate: Arc<Gate>,
    /// Of its thread.
    pub(super) paces: Rc<Paces>,
}

/// The answer to a login, when it comes.
type LoginAnswer = Pin<Box<dyn Future<Output = SaslCode>>>;
type BodyRead = JoinHandle<Result<Payload, LogError>>;

/// The task of one connection.
pub(crate) struct ConnectionTask<S> {
    socket: S,
    front: Front,
    id: ConnectionId,
    place: ConnectionSlot,
    paces: Rc<Paces>,
    arrival: Arrival,
    departure: Departure,
    account: AccountShare,
    /// Until the client has logged in.
    gate: Option<Arc<Gate>>,
    /// No output before: too many wrong passwords came from there.
    held: Option<Pin<Box<Sleep>>>,
    /// The password of a login that is being compared; nothing is read meanwhile.
    comparing: Option<LoginAnswer>,
    /// A long message that is being checked; nothing is read meanwhile.
    checking: Option<MessageAnswer>,
    door: Arc<Door>,
    outbox: Arc<Outbox>,
    log: Log,
    clock: Clock,
    /// Start of a frame whose end has not come yet.
    partial: BytesMut,
    requests: Vec<Request>,
    /// Those of the step that is made.
    portion: Vec<Request>,
    /// The log has taken much more than its disk has written.
    log_is_behind: bool,
    /// What it added meanwhile without having waited in turn.
    log_share: LogShare,
    /// The requests add to a log that is behind: they wait, and nothing is read meanwhile.
    waits_for_log: bool,
    /// The instance takes no requests: they wait, and nothing is read meanwhile.
    is_shut: bool,
    responses: VecDeque<Response>,
    output: VecDeque<Bytes>,
    output_bytes: usize,
    /// A large delivery that may not be begun yet; the responses behind it wait.
    postponed: Option<Response>,
    /// A body that is being read from the log; the responses behind it wait.
    reading: Option<(BodyRead, Response)>,
    /// Its bytes, as far as they are counted.
    reading_bytes: u64,
    /// The other instances were asked for what is being read.
    is_group_asked: bool,
    timer: Pin<Box<Sleep>>,
    timer_at: Time,
    end_of_input: bool,
    /// Written, and perhaps still inside TLS.
    unflushed: bool,
    /// A bound ended this turn: the others get theirs before the next one.
    turn_was_long: bool,
    turns: Turns,
    /// It was closed because it stood still and others waited.
    stood_still: bool,
    /// Runs once the connection is over: a peer that does not read must not keep it.
    linger: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(crate) fn new(
        socket: S,
        front: Front,
        id: ConnectionId,
        entrance: EnteringClient,
        door: Arc<Door>,
        outbox: Arc<Outbox>,
    ) -> ConnectionTask<S> {
        let clock = door.clock();
        let log = door.log();
        let timer_at = front.deadline();
        ConnectionTask {
            socket,
            front,
            id,
            place: entrance.place,
            arrival: door.arrivals().join(),
            departure: door.departures().join(),
            account: door.connections().join(),
            gate: Some(entrance.gate),
            held: None,
            comparing: None,
            checking: None,
            door,
            outbox,
            log,
            clock,
            partial: BytesMut::new(),
            requests: Vec::new(),
            portion: Vec::new(),
            log_is_behind: false,
            log_share: LogShare::default(),
            waits_for_log: false,
            is_shut: false,
            responses: VecDeque::new(),
            output: VecDeque::new(),
            output_bytes: 0,
            postponed: None,
            reading: None,
            reading_bytes: 0,
            is_group_asked: false,
            timer: Box::pin(sleep_until(turn::instant_of(clock, timer_at))),
            timer_at,
            end_of_input: false,
            unflushed: false,
            turn_was_long: false,
            turns: Turns::of(&entrance.paces.line),
            paces: entrance.paces,
            stood_still: false,
            linger: None,
        }
    }

    /// Runs until the connection is over, then notifies the node.
    pub(crate) async fn run(mut self) -> End {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        self.finish_checks().await;
        let began = self.clock.now();
        // What was sent and is settled in advance must not come back with the rest.
        if !self.requests.is_empty() {
            self.door.step(self.clock.now(), self.id, &mut self.requests);
        }
        self.door.disconnect(self.id, end != End::Orderly);
        self.turns.worked(self.clock.now().since(began));
        // All but the instance's part may wait: a client that comes again sees that it was gone.
        // Not an administrator's: there are few slots for them.
        if !self.place.is_local() {
            self.paces.ends.turn().await;
        }
        if self.front.is_finished() && self.is_flushed() && !self.end_of_input {
            // Everything but the socket and its slot is given back before.
            let ConnectionTask { socket, place, .. } = self;
            // In a box: a connection that lives should not be larger for its end.
            Box::pin(part(socket)).await;
            drop(place);
        }
        end
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        // An administrator does not wait behind those that come.
        let is_new = self.gate.is_some() && !self.place.is_local();
        if !self.turns.begins(context, is_new) {
            return Poll::Pending;
        }
        let began = self.clock.now();
        let end = self.take_turn(context, began);
        if end.is_ready() {
            // A crowd that ends in its first turns is no less work than one that stays.
            self.turns.worked(self.clock.now().since(began));
        }
        self.turns.ends();
        end
    }

    fn take_turn(&mut self, context: &mut Context<'_>, now: Time) -> Poll<End> {
        self.front.set_ahead(self.clock.ahead_us());
        if self.gate.is_some() && self.place.poll_gives_way(context) {
            return Poll::Ready(End::GaveWay);
        }
        if self.departure.is_over() {
            return Poll::Ready(End::StoodStill);
        }
        self.log_is_behind = self.door.log_is_behind(self.log_is_behind);
        self.front.set_log_behind(self.log_is_behind);
        self.is_shut = self.outbox.is_shut(context.waker());
        self.count();
        let mut progress = self.poll_login(context, now);
        progress |= self.poll_check(context, now);
        progress |= self.poll_input(context, now);
        progress |= self.poll_check(context, now);
        progress |= self.step_node(now);
        progress |= self.poll_responses(context, now);
        progress |= self.poll_timer(context, now);
        match self.poll_output(context, now) {
            Ok(written) => progress |= written,
            Err(_) => {
                self.end_of_input = true;
                return Poll::Ready(End::Lost);
            }
        }
        if let Some(end) = self.finished(context) {
            return Poll::Ready(end);
        }
        progress |= self.has_log_again(context);
        progress |= self.account.has_part(self.front.goes_on_at(), context.waker());
        if !progress && (self.requests.is_empty() || self.waits_for_log || self.is_shut) {
            return Poll::Pending;
        }
        let was_cut = std::mem::take(&mut self.turn_was_long) || self.front.has_more();
        let ended = self.clock.now();
        self.turns.goes_on(context, ended, ended.since(now), was_cut);
        Poll::Pending
    }

    /// Counts what the connection holds.
    fn count(&mut self) {
        let here = self.output_bytes as u64 + self.reading_bytes;
        let bytes = self.front.account().bytes() + here;
        let bytes_max = self.account.holds(bytes, self.front.bytes_max());
        self.front.set_full_at(bytes_max);
    }

    fn finished(&mut self, context: &mut Context<'_>) -> Option<End> {
        if self.front.is_finished() {
            if self.is_flushed() {
                return Some(match self.front.ended_orderly() {
                    true => End::Orderly,
                    false if self.stood_still => End::StoodStill,
                    false => End::Lost,
                });
            }
            let linger = self.linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
            if linger.as_mut().poll(context).is_ready() {
                return Some(End::Lost);
            }
        }
        // Puts that the client had sent before.
        if self.checking.is_some() {
            return None;
        }
        // Nothing more can come: what was asked for is answered by the node's own bookkeeping.
        if self.end_of_input { Some(End::Lost) } else { None }
    }

    /// Whether the socket has all that there was to send.
    fn is_flushed(&self) -> bool {
        self.output.is_empty() && !self.front.has_output() && !self.unflushed
    }

    /// Bytes that wait for the socket, encoded or not.
    fn output_waiting(&self) -> usize {
        self.output_bytes + self.front.output_bytes()
    }

    /// Reads once, if the buffer has free space. True when bytes came.
    fn poll_input(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        if self.end_of_input || self.front.is_finished() || self.comparing.is_some() {
            return false;
        }
        self.arrival.holds(self.front.unfinished_bytes());
        if self.is_kept_unread(context) || !self.arrival.may_read(context) {
            // This side does not read: the peer must not pass for silent.
            self.front.listening_stopped(now);
            self.arrival.excused();
            return false;
        }
        if self.arrival.is_over() {
            self.front.stood_still();
            self.arrival.holds(0);
            self.stood_still = true;
            return true;
        }
        if self.output_waiting() > OUTPUT_BYTES_HIGH
            || self.requests.len() >= limits::STEP_REQUESTS_MAX
        {
            return false;
        }
        if self.front.has_more() {
            let mut input = std::mem::take(&mut self.partial);
            self.front.receive(now, &mut input, &mut self.requests);
            self.partial = input;
            return true;
        }
        let socket = &mut self.socket;
        let partial = &mut self.partial;
        let read = scratch::with(|buffer| {
            buffer.extend_from_slice(partial);
            let result = std::pin::pin!(socket.read_buf(buffer)).poll(context);
            let input = buffer.split();
            (result, input)
        });
        let (result, mut input) = read;
        match result {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                self.end_of_input = true;
                true
            }
            Poll::Ready(Ok(_)) => {
                self.front.receive(now, &mut input, &mut self.requests);
                self.arrival.holds(self.front.unfinished_bytes());
                self.watch_login();
                // A copy of the little that is left: `input` would pin the whole read buffer.
                self.partial = BytesMut::from(&input[..]);
                true
            }
        }
    }

    /// Whether the connection has so much here that it is not read for now.
    fn is_kept_unread(&mut self, context: &mut Context<'_>) -> bool {
        self.front.incoming_bytes() > INCOMING_BYTES_HIGH
            || self.waits_for_log
            || self.front.is_checking()
            || (self.is_shut && !self.goes_on_for_others(context))
    }

    /// Although the instance takes nothing, as long as others wait for the end of its message: that
    /// may take as long as a commit. What comes with it waits here.
    fn goes_on_for_others(&mut self, context: &mut Context<'_>) -> bool {
        self.requests.len() < limits::STEP_REQUESTS_MAX && self.arrival.holds_up_others(context)
    }

    /// Follows the login: a client that guesses passwords waits for its answers.
    fn watch_login(&mut self) {
        let Some(gate) = &self.gate else { return };
        let wait = gate.take_wait();
        if !wait.is_zero() {
            self.held = Some(Box::pin(sleep(wait)));
        }
        if let Some(comparison) = gate.take_comparison() {
            self.comparing = Some(Box::pin(comparison.answer()));
        }
        if self.front.is_logged_in() {
            gate.welcomed();
            self.place.logged_in();
            self.gate = None;
        } else if self.front.is_finished() {
            gate.refused();
        } else if gate.was_tried() {
            self.place.spoke();
        }
    }

    /// Gives the client the answer to its login once it is known. True when it came.
    fn poll_login(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        let Some(comparing) = &mut self.comparing else { return false };
        let Poll::Ready(code) = comparing.as_mut().poll(context) else { return false };
        self.comparing = None;
        let mut input = std::mem::take(&mut self.partial);
        self.front.answer_login(now, code, &mut input, &mut self.requests);
        self.partial = input;
        self.watch_login();
        true
    }

    /// Hands what was asked for to the node, as much as makes one step. The answers come through
    /// the outbox, in order.
    fn step_node(&mut self, now: Time) -> bool {
        let count = portion::of_step(&self.requests);
        let requests = self.requests.get(..count).unwrap_or_default();
        self.waits_for_log = self.log_is_behind
            && portion::adds_to_log(requests)
            && (self.is_shut || !self.takes_share(count));
        if count == 0 || self.waits_for_log || self.is_shut {
            return false;
        }
        if count == self.requests.len() {
            self.door.step(now, self.id, &mut self.requests);
            return true;
        }
        self.portion.extend(self.requests.drain(..count));
        self.door.step(now, self.id, &mut self.portion);
        self.turn_was_long = true;
        true
    }

    /// Encodes responses while the output buffer has free space. True when there was one.
    fn poll_responses(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        let mut progress = false;
        if self.departure.is_counted() {
            self.departure.holds(self.departing_bytes());
        }
        for left in (0..RESPONSES_MAX).rev() {
            self.turn_was_long |= left == 0;
            if self.output_waiting() > OUTPUT_BYTES_HIGH {
                return progress;
            }
            while let Some(settled) = self.outbox.take_settled() {
                self.front.respond(now, settled, None, &mut self.requests);
                progress = true;
            }
            if let Some((read, _)) = &mut self.reading {
                let Poll::Ready(result) = Pin::new(read).poll(context) else { return progress };
                let Some((_, response)) = self.reading.take() else { return progress };
                match result {
                    Ok(Ok(body)) => {
                        self.front.respond(now, response, Some(body), &mut self.requests);
                    }
                    Ok(Err(error)) => self.read_elsewhere(response, &error),
                    Err(_) => self.end_of_input = true,
                }
                progress = true;
                if self.reading.is_some() {
                    continue;
                }
                self.reading_bytes = 0;
            }
            let response = match self.postponed.take() {
                postponed @ Some(_) => postponed,
                None => self.front.next_held(now, &mut self.requests),
            };
            let response = match response {
                next @ Some(_) => next,
                None => {
                    if self.responses.is_empty() {
                        self.outbox.take(&mut self.responses, context.waker());
                    }
                    let Some(response) = self.responses.pop_front() else { return progress };
                    self.front.admit(response)
                }
            };
            if let Some(response) = response
                && !self.respond(context, now, response)
            {
                return progress;
            }
            // What came of it is taken when the turn ends: the outcomes of many puts are one frame
            // then.
            progress = true;
        }
        progress
    }

    fn poll_timer(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        let deadline = self.front.deadline();
        if deadline <= now {
            self.front.tick(now, &mut self.requests);
            return true;
        }
        // The timer is moved only when it fired or would be late: deadlines move away all the time.
        if deadline < self.timer_at || self.timer.as_mut().poll(context).is_ready() {
            self.timer_at = deadline;
            self.timer.as_mut().reset(turn::instant_of(self.clock, deadline));
            return self.timer.as_mut().poll(context).is_ready();
        }
        false
    }

    fn take_output(&mut self) {
        if self.front.has_output() {
            let before: usize = self.output.len();
            self.front.take_output(&mut self.output, OUTPUT_BYTES_TAKEN);
            self.output_bytes += self.output.iter().skip(before).map(Bytes::len).sum::<usize>();
        }
    }

    /// Writes what there is, as far as one turn goes. True when bytes went out.
    fn poll_output(&mut self, context: &mut Context<'_>, now: Time) -> io::Result<bool> {
        if let Some(held) = &mut self.held {
            if held.as_mut().poll(context).is_pending() {
                return Ok(false);
            }
            self.held = None;
        }
        let mut progress = false;
        let mut left = TURN_BYTES_MAX;
        while left > 0 {
            if self.output_bytes < OUTPUT_BYTES_TAKEN {
                self.take_output();
            }
            if self.output.is_empty() {
                if self.unflushed {
                    // TLS may hold what the socket did not take.
                    match Pin::new(&mut self.socket).poll_flush(context) {
                        Poll::Pending => {}
                        Poll::Ready(result) => {
                            result?;
                            self.unflushed = false;
                        }
                    }
                }
                return Ok(progress);
            }
            let written = match self.poll_write(context) {
                Poll::Pending => return Ok(progress),
                Poll::Ready(result) => result?,
            };
            left = left.saturating_sub(written);
            self.departure.moved(written as u64);
            if self.output_waiting() > OUTPUT_BYTES_HIGH {
                // It takes what it gets, and is not read meanwhile: it must not pass for silent.
                self.front.listening_stopped(now);
            }
            progress = true;
        }
        self.turn_was_long = true;
        Ok(progress)
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let pieces: Vec<IoSlice<'_>> =
            self.output.iter().take(WRITE_PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(context, &pieces))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.unflushed = true;
        self.forget_written(written);
        Poll::Ready(Ok(written))
    }

    fn forget_written(&mut self, mut written: usize) {
        self.output_bytes -= written;
        while let Some(piece) = self.output.front_mut() {
            if piece.len() > written {
                bytes::Buf::advance(piece, written);
                return;
            }
            written -= piece.len();
            self.output.pop_front();
        }
    }
}
