//! One client connection: bytes from the socket to its front, requests to the node, responses back,
//! bytes to the socket. One task per connection, written as one poll function so that a wake-up
//! costs one read, one step of the node and one write.
//!
//! Back-pressure: it stops reading while the front holds too many bytes that are not durable yet, or
//! all connections too many of unfinished large messages (`arrivals`), and stops taking responses while the socket does not take its output.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use towline_amqp::types::SaslCode;
use towline_core::{Body, ConnectionId, DeadLetterReason, Delivery, Refusal, SetAside};
use towline_log::{Log, LogError};
use towline_node::{Front, Request, Response};
use towline_types::{Payload, Time};

use crate::bodies;
use crate::clock::Clock;
use crate::door::Door;
use crate::identity::Gate;
use crate::net::admission::Place;
use crate::net::arrivals::Arrival;
use crate::net::scratch;
use crate::outbox::Outbox;

/// Encoded bytes that may wait for the socket before responses wait instead.
const OUTPUT_BYTES_HIGH: usize = 1024 * 1024;
/// Bytes taken from the front at once: all that a turn leaves there, so that it is one write.
const OUTPUT_BYTES_TAKEN: usize = OUTPUT_BYTES_HIGH;
/// Undurable bytes of one connection above which it is not read.
const INCOMING_BYTES_HIGH: usize = 16 * 1024 * 1024;
/// Pieces given to one vectored write (IOV_MAX is 1,024).
const WRITE_PIECES_MAX: usize = 512;
/// How long a connection that is over may take to get its last bytes out.
const LINGER: Duration = Duration::from_secs(5);
/// How long the peer of a connection that is over has to close its side.
const PARTING: Duration = Duration::from_secs(1);
/// Bytes that are read from it meanwhile, and thrown away.
const PARTING_BYTES_MAX: usize = 1024 * 1024;
/// Responses of one turn before the others get theirs.
const RESPONSES_MAX: usize = 512;
/// Rounds of one poll before the others get their turn.
const ROUNDS_MAX: usize = 1;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides closed in order.
    Orderly,
    /// The socket broke or the protocol was violated.
    Lost,
    /// It had not logged in, and others waited for its place.
    GaveWay,
}

/// How a connection came in.
pub(crate) struct Entrance {
    /// Its place among all.
    pub(crate) place: Place,
    /// Who watches its login.
    pub(crate) gate: Arc<Gate>,
}

/// The answer to a login, when it comes.
type LoginAnswer = Pin<Box<dyn Future<Output = SaslCode>>>;
type BodyRead = JoinHandle<Result<Payload, LogError>>;

/// The task of one connection.
pub(crate) struct ConnectionTask<S> {
    socket: S,
    front: Front,
    id: ConnectionId,
    place: Place,
    arrival: Arrival,
    /// Until the client has logged in.
    gate: Option<Arc<Gate>>,
    /// No output before: too many wrong passwords came from there.
    held: Option<Pin<Box<Sleep>>>,
    /// The password of a login that is being compared; nothing is read meanwhile.
    comparing: Option<LoginAnswer>,
    door: Arc<Door>,
    outbox: Arc<Outbox>,
    log: Log,
    clock: Clock,
    /// Start of a frame whose end has not come yet.
    partial: BytesMut,
    requests: Vec<Request>,
    responses: VecDeque<Response>,
    output: VecDeque<Bytes>,
    output_bytes: usize,
    /// A body that is being read from the log; the responses behind it wait.
    reading: Option<(BodyRead, Response)>,
    /// The other instances were asked for what is being read.
    is_group_asked: bool,
    timer: Pin<Box<Sleep>>,
    timer_at: Time,
    end_of_input: bool,
    /// Written, and perhaps still inside TLS.
    unflushed: bool,
    /// Written since it was last looked at.
    has_written: bool,
    /// Runs once the connection is over: a peer that does not read must not keep it.
    linger: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(crate) fn new(
        socket: S,
        front: Front,
        id: ConnectionId,
        entrance: Entrance,
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
            gate: Some(entrance.gate),
            held: None,
            comparing: None,
            door,
            outbox,
            log,
            clock,
            partial: BytesMut::new(),
            requests: Vec::new(),
            responses: VecDeque::new(),
            output: VecDeque::new(),
            output_bytes: 0,
            reading: None,
            is_group_asked: false,
            timer: Box::pin(sleep_until(instant_of(clock, timer_at))),
            timer_at,
            end_of_input: false,
            unflushed: false,
            has_written: false,
            linger: None,
        }
    }

    /// Runs until the connection is over, then tells the node.
    pub(crate) async fn run(mut self) -> End {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        // What was sent and is settled in advance must not come back with the rest.
        self.step_node(self.clock.now());
        self.door.disconnect(self.id, end != End::Orderly);
        if self.front.is_finished() && self.is_flushed() && !self.end_of_input {
            // Everything but the socket and its place is given back before.
            let ConnectionTask { socket, place, .. } = self;
            // In a box: a connection that lives should not be larger for its end.
            Box::pin(part(socket)).await;
            drop(place);
        }
        end
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        self.front.set_ahead(self.clock.ahead_us());
        for _ in 0..ROUNDS_MAX {
            let now = self.clock.now();
            if self.gate.is_some() && self.place.poll_gives_way(context) {
                return Poll::Ready(End::GaveWay);
            }
            let mut progress = self.poll_login(context, now);
            progress |= self.poll_input(context, now);
            progress |= self.step_node(now);
            progress |= self.poll_responses(context, now);
            progress |= self.poll_timer(context, now);
            match self.poll_output(context) {
                Ok(written) => progress |= written,
                Err(_) => {
                    self.end_of_input = true;
                    return Poll::Ready(End::Lost);
                }
            }
            if let Some(end) = self.finished(context) {
                return Poll::Ready(end);
            }
            if !progress && self.requests.is_empty() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn finished(&mut self, context: &mut Context<'_>) -> Option<End> {
        if self.front.is_finished() {
            if self.is_flushed() {
                return Some(if self.front.ended_orderly() { End::Orderly } else { End::Lost });
            }
            let linger = self.linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
            if linger.as_mut().poll(context).is_ready() {
                return Some(End::Lost);
            }
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

    /// Reads once, if there is room for what it may bring. True when bytes came.
    fn poll_input(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        if self.end_of_input || self.front.is_finished() || self.comparing.is_some() {
            return false;
        }
        self.arrival.holds(self.front.unfinished_bytes());
        if self.front.incoming_bytes() > INCOMING_BYTES_HIGH || !self.arrival.may_read(context) {
            // It is we who do not listen: the peer must not pass for silent.
            self.front.listening_stopped(now);
            return false;
        }
        if self.output_waiting() > OUTPUT_BYTES_HIGH {
            if std::mem::take(&mut self.has_written) {
                // It reads what it asked for: a long message on a slow network is no silence. A
                // peer that takes nothing passes for silent.
                self.front.listening_stopped(now);
            }
            return false;
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

    /// Hands what was asked for to the node. The answers come through the outbox, in order.
    fn step_node(&mut self, now: Time) -> bool {
        if self.requests.is_empty() {
            return false;
        }
        self.door.step(now, self.id, &mut self.requests);
        true
    }

    /// Turns responses into output while there is room for it. True when there was one.
    fn poll_responses(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        let mut progress = false;
        for _ in 0..RESPONSES_MAX {
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
            }
            let response = match self.front.next_held(now, &mut self.requests) {
                held @ Some(_) => held,
                None => {
                    if self.responses.is_empty() {
                        self.outbox.take(&mut self.responses, context.waker());
                    }
                    let Some(response) = self.responses.pop_front() else { return progress };
                    self.front.admit(response)
                }
            };
            if let Some(response) = response {
                self.respond(now, response);
            }
            // What came of it is taken when the turn ends: the outcomes of many puts are one frame then.
            progress = true;
        }
        progress
    }

    fn respond(&mut self, now: Time, response: Response) {
        let Response::Deliver(delivery) = &response else {
            self.front.respond(now, response, None, &mut self.requests);
            return;
        };
        self.is_group_asked = false;
        match bodies::resident(&self.log, &delivery.body) {
            Some(body) => self.front.respond(now, response, Some(body), &mut self.requests),
            None => {
                let body = delivery.body.clone();
                self.read(body, response);
            }
        }
    }

    fn read(&mut self, body: Body, response: Response) {
        let log = self.log.clone();
        let read = tokio::task::spawn_blocking(move || bodies::read(&log, &body));
        self.reading = Some((read, response));
    }

    /// Reads what is damaged here when another instance of the group was asked for it: on a thread of
    /// its own, so that other clients' reads go on.
    fn read_from_group(&self, body: &Body) -> Option<BodyRead> {
        let repairs = self.door.repairs()?;
        let (answer, answered) = oneshot::channel();
        let (log, body, parts) = (self.log.clone(), body.clone(), bodies::parts(body));
        let again = move |_| {
            // The connection may be gone meanwhile.
            answer.send(bodies::read(&log, &body)).ok();
        };
        repairs.ask(parts, Box::new(again));
        let stopped = |_| Err(LogError::Stopped);
        Some(tokio::spawn(async move { answered.await.unwrap_or_else(stopped) }))
    }

    /// A body is not where it was: it may have been logged again meanwhile. What is damaged is fetched
    /// from another instance of the group. When it really cannot be read, the message is set aside,
    /// and its credit serves another one; when it cannot be set aside the link ends with the reason.
    /// What was set aside before is delivered as a note.
    fn read_elsewhere(&mut self, response: Response, error: &LogError) {
        let Response::Deliver(mut delivery) = response else { return };
        let (queue, sequence) = (delivery.queue, delivery.sequence);
        let now_at = self.door.look(|instance| instance.body_now(queue, sequence));
        let stays = now_at.as_ref().is_some_and(|body| *body == delivery.body);
        if error.is_damage()
            && stays
            && !std::mem::replace(&mut self.is_group_asked, true)
            && let Some(read) = self.read_from_group(&delivery.body)
        {
            self.reading = Some((read, Response::Deliver(delivery)));
            return;
        }
        match now_at {
            Some(body) if body != delivery.body => {
                self.is_group_asked = false;
                delivery.body = body.clone();
                self.read(body, Response::Deliver(delivery));
            }
            Some(_) if is_note(&delivery) => {
                let now = self.clock.now();
                let place = error.to_string();
                let origin = delivery.dead_letter.as_ref().map(|it| it.origin.clone());
                let found = (origin.as_deref().unwrap_or_default(), place.as_str());
                self.front.deliver_note(now, delivery, found, &mut self.requests);
            }
            None => self.front.not_sent(delivery.consumer, &mut self.requests),
            Some(_) => {
                let consumer = delivery.consumer;
                match self.door.unreadable((queue, sequence), Some(consumer), error) {
                    SetAside::Gone | SetAside::Moved { .. } => {
                        self.front.not_sent(consumer, &mut self.requests);
                    }
                    SetAside::Browsed { queue } => {
                        let (now, place) = (self.clock.now(), error.to_string());
                        let found = (queue.as_str(), place.as_str());
                        self.front.deliver_note(now, delivery, found, &mut self.requests);
                    }
                    SetAside::Stays { queue } => {
                        // At once: what waits behind it must not go to this link any more.
                        let (place, moved) = (error.to_string(), false);
                        let reason = Refusal::MessageDamaged { queue, place, moved };
                        let closed = Response::ConsumerClosed { consumer, reason };
                        let now = self.clock.now();
                        self.front.respond(now, closed, None, &mut self.requests);
                    }
                }
            }
        }
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
            self.timer.as_mut().reset(instant_of(self.clock, deadline));
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

    /// Writes what there is. True when bytes went out.
    fn poll_output(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        if let Some(held) = &mut self.held {
            if held.as_mut().poll(context).is_pending() {
                return Ok(false);
            }
            self.held = None;
        }
        let mut progress = false;
        loop {
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
            match self.poll_write(context) {
                Poll::Pending => return Ok(progress),
                Poll::Ready(result) => result?,
            }
            progress = true;
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pieces: Vec<IoSlice<'_>> =
            self.output.iter().take(WRITE_PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(context, &pieces))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.unflushed = true;
        self.has_written = true;
        self.forget_written(written);
        Poll::Ready(Ok(()))
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

/// Ends a socket so that the peer gets our last bytes. TLS has a word for the end, without which the
/// peer must think that somebody cut the connection; and a socket that is closed with unread bytes
/// in it is reset, which may take back what the peer has not read.
pub(super) async fn part<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    let parting = async {
        socket.shutdown().await?;
        let mut left = PARTING_BYTES_MAX;
        while left > 0 {
            let read = std::future::poll_fn(|context| {
                scratch::with(|buffer| {
                    let read = std::pin::pin!(socket.read_buf(buffer)).poll(context);
                    buffer.clear();
                    read
                })
            });
            match read.await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        io::Result::Ok(())
    };
    match tokio::time::timeout(PARTING, parting).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::trace!(%error, "a peer did not wait for the end"),
    }
}

/// Whether it was set aside because its content is damaged.
fn is_note(delivery: &Delivery) -> bool {
    delivery.dead_letter.as_ref().is_some_and(|it| it.reason == DeadLetterReason::Damaged)
}

fn instant_of(clock: Clock, at: Time) -> Instant {
    let now = clock.now();
    // tokio refuses instants decades away.
    let wait = at.since(now).min(Duration::from_secs(86_400));
    Instant::now() + wait
}
