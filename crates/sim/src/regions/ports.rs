//! One process at the network between two regions: it dials while it is asked to, accepts what
//! comes in, and serves each connection, as the product's links do.
//!
//! Not here: the connections themselves (`wires`), what is sent. Invariants: as of `towline_link`:
//! `closed` follows each `opened`, once; frames of one connection arrive in order; of the
//! connections that came in, one at a time carries frames, the newest.

use std::future::ready;
use std::io::ErrorKind;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex as Plain;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};
use towline_link::{
    FrameCost, Intake, LinkState, LinkStream, OpeningCopy, RegionDialler, RegionHello, RegionInbox,
    RegionLink, RegionLinkState, RetryPhase,
};
use towline_os::sync::Mutex;
use towline_os::task::{Handle, sleep, timeout};
use towline_os::thread::{self, Builder};
use towline_types::limits::REGION_WRITABLE_BYTES;

use super::pipes;
use super::wires::{
    JudgedHello, LinePiece, LineSide, RegionCaller, RegionLine, RegionWires, now_us, region_of,
};

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// How often the ends of a connection look at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The side of one process.
pub(super) struct RegionPorts {
    end: usize,
    name: String,
    wires: Arc<RegionWires>,
    inbox: Arc<dyn RegionInbox>,
    dialling: watch::Sender<bool>,
    kicks: Notify,
    /// The connection that came in last, and the turn of the one that is served.
    newest: Plain<Option<RegionLink>>,
    turn: Mutex<()>,
    state: Plain<RegionLinkState>,
    /// The end to which a connection stands that this side dialled.
    dialled: Plain<Option<usize>>,
}

impl RegionPorts {
    /// Connects the process that runs to the network.
    pub(super) fn start(
        wires: &Arc<RegionWires>,
        (end, name): (usize, String),
        inbox: Arc<dyn RegionInbox>,
    ) -> PortsDialler {
        let ports = Arc::new(RegionPorts {
            end,
            name,
            wires: Arc::clone(wires),
            inbox,
            dialling: watch::Sender::new(false),
            kicks: Notify::new(),
            newest: Plain::default(),
            turn: Mutex::new(()),
            state: Plain::default(),
            dialled: Plain::default(),
        });
        let (accepting, callers) = unbounded_channel();
        wires.inner.lock().accepting[end] = Some(accepting);
        let of_accept = Arc::clone(&ports);
        spawn("region-accept", move || of_accept.accept(callers));
        let of_dial = Arc::clone(&ports);
        spawn("region-dial", move || of_dial.keep());
        PortsDialler(Arc::downgrade(&ports))
    }

    fn hello(&self) -> RegionHello {
        RegionHello {
            instance: Arc::from(self.name.as_str()),
            build: Arc::from("simulated"),
            version: 1,
            sections: self.inbox.hello(),
        }
    }

    fn caller_of(&self, to: usize) -> Option<UnboundedSender<RegionCaller>> {
        self.wires.inner.lock().accepting[to].clone()
    }

    /// Dials while it is wanted.
    fn keep(self: &Arc<Self>) {
        let handle = Handle::current();
        let mut dialling = self.dialling.subscribe();
        loop {
            if handle.block_on(dialling.wait_for(|dials| *dials)).is_err() {
                return;
            }
            let began = now_us();
            for to in self.wires.others(self.end) {
                if let Some((line, hello)) = self.connect(to) {
                    *self.dialled.lock() = Some(to);
                    self.serve(&line, 0, &hello);
                    *self.dialled.lock() = None;
                    break;
                }
                if !*self.dialling.borrow() {
                    break;
                }
            }
            let retry = self.wires.plan.retry;
            let has_stood = now_us() - began >= u64::try_from(retry.as_micros()).unwrap_or(0);
            let pause = if has_stood { Duration::from_millis(1) } else { retry };
            let kicked = timeout(pause, self.kicks.notified());
            handle.block_on(kicked).ok();
        }
    }

    fn connect(&self, to: usize) -> Option<(Arc<RegionLine>, RegionHello)> {
        let wires = &self.wires;
        let handle = Handle::current();
        thread::sleep(wires.delay());
        if !wires.is_reached(self.end) {
            handle.block_on(sleep(wires.plan.retry));
            return None;
        }
        let accepting = self.caller_of(to)?;
        let (answer, answered) = oneshot::channel();
        let (given, line) = oneshot::channel();
        let hello = self.hello();
        thread::sleep(wires.delay());
        accepting.send(RegionCaller::Frames { hello, answer, line }).ok()?;
        let judged = handle.block_on(timeout(HANDSHAKE_MAX, answered)).ok()?.ok()?;
        thread::sleep(wires.delay());
        let judged = judged.and_then(|hello| self.inbox.greets(false, &hello).map(|()| hello));
        let hello = match judged {
            Ok(hello) => hello,
            Err(why) => {
                self.state.lock().trouble = why;
                return None;
            }
        };
        if !*self.dialling.borrow() {
            return None;
        }
        let line = wires.new_line([self.end, to]);
        if given.send(Arc::clone(&line)).is_err() {
            line.breaks("it is gone");
        }
        Some((line, hello))
    }

    fn accept(self: &Arc<Self>, mut callers: UnboundedReceiver<RegionCaller>) {
        let handle = Handle::current();
        while let Some(caller) = handle.block_on(callers.recv()) {
            let ports = Arc::clone(self);
            spawn("region-incoming", move || match caller {
                RegionCaller::Frames { hello, answer, line } => ports.takes(&hello, answer, line),
                RegionCaller::Copy { hello, answer, stream } => {
                    let judged = ports.inbox.admits(&hello).map(|()| ports.hello());
                    let is_taken = judged.is_ok();
                    if answer.send(judged).is_ok() && is_taken {
                        ports.inbox.stream(&hello, stream);
                    }
                }
            });
        }
    }

    fn takes(
        self: &Arc<Self>,
        hello: &RegionHello,
        answer: oneshot::Sender<JudgedHello>,
        line: oneshot::Receiver<Arc<RegionLine>>,
    ) {
        self.kicks.notify_one();
        let judged = self.inbox.greets(true, hello).map(|()| self.hello());
        let is_taken = judged.is_ok();
        if answer.send(judged).is_err() || !is_taken {
            return;
        }
        let Ok(Ok(line)) = Handle::current().block_on(timeout(HANDSHAKE_MAX, line)) else { return };
        thread::sleep(self.wires.delay());
        let before = self.newest.lock().replace(self.link(&line, 1));
        if let Some(before) = before {
            before.close("a newer connection took its turn");
        }
        let _turn = self.turn.lock();
        self.serve(&line, 1, hello);
    }

    fn link(&self, line: &Arc<RegionLine>, side: usize) -> RegionLink {
        let (line, wires) = (Arc::clone(line), Arc::clone(&self.wires));
        Arc::new(LineSide { line, side, wires })
    }

    /// Serves a connection until it ends.
    fn serve(&self, line: &Arc<RegionLine>, side: usize, hello: &RegionHello) {
        let link = self.link(line, side);
        {
            let mut state = self.state.lock();
            state.instance = Arc::clone(&hello.instance);
            state.trouble.clear();
            let round_trip = 2 * self.wires.plan.delay_us + self.wires.plan.delay_more_us;
            state.link.round_trip_us = Some(round_trip.max(1));
            if side == 0 {
                state.address = Arc::clone(&hello.instance);
                (state.phase, state.link.connected_out) = (RetryPhase::Connected, true);
            } else {
                state.link.connected_in = true;
            }
        }
        self.inbox.opened(side == 1, hello, Arc::clone(&link));
        let why = self.hear(line, side, &link);
        {
            let mut state = self.state.lock();
            *state = RegionLinkState {
                link: LinkState::default(),
                phase: RetryPhase::First,
                trouble: why.clone(),
                ..RegionLinkState::default()
            };
        }
        self.wires.inner.lock().lines.retain(|other| !Arc::ptr_eq(other, line));
        self.inbox.closed(line.id, &why);
    }

    /// Passes on what arrives, until the connection ends; why it did.
    fn hear(&self, line: &RegionLine, side: usize, link: &RegionLink) -> String {
        let from = region_of(line.ends[1 - side]);
        let mut is_full = false;
        loop {
            self.ends_if_due(line, side, link);
            let mut state = line.state.lock();
            if let Some(why) = &state.ended[side] {
                return why.clone();
            }
            if std::mem::take(&mut state.writable[side]) {
                drop(state);
                self.inbox.writable(line.id);
                continue;
            }
            is_full &= !std::mem::take(&mut state.resumed[side]);
            let is_held = is_full || self.wires.is_cut(from);
            let now = now_us();
            let next = state.lanes[side].pieces.front().map(|(at_us, _)| *at_us);
            let next = next.filter(|_| !is_held);
            if next.is_none_or(|at_us| at_us > now) {
                let wait = next.map_or(u64::MAX, |at_us| at_us - now);
                let wait = Duration::from_micros(wait).min(LOOK_INTERVAL);
                line.changed.wait_for(&mut state, wait);
                continue;
            }
            match state.lanes[side].pieces.pop_front() {
                Some((_, LinePiece::End(why))) => {
                    state.ended[side].get_or_insert(why);
                }
                Some((_, LinePiece::Frame(kind, body))) => {
                    let other = 1 - side;
                    let before = LineSide::queued(&state, other);
                    state.lanes[side].bytes -= body.len();
                    let is_below = LineSide::queued(&state, other) < REGION_WRITABLE_BYTES;
                    state.writable[other] |= before >= REGION_WRITABLE_BYTES && is_below;
                    drop(state);
                    let cost = FrameCost { wire_bytes: body.len(), ..FrameCost::default() };
                    match self.inbox.frame(line.id, kind, body, cost) {
                        Ok(Intake::More) => {}
                        Ok(Intake::Full) => is_full = true,
                        Err(why) => link.close(&why),
                    }
                }
                None => {}
            }
        }
    }

    /// Ends a connection that is wanted no more, or over which nothing comes.
    fn ends_if_due(&self, line: &RegionLine, side: usize, link: &RegionLink) {
        if side == 0 && !*self.dialling.borrow() {
            link.close("this group no longer ships its log");
        }
        let gone_since = line.state.lock().gone_since_us;
        let timeout_us = self.wires.plan.timeout_us;
        let is_gone = gone_since.is_some_and(|since| now_us().saturating_sub(since) >= timeout_us);
        if is_gone || self.wires.is_dead() {
            line.breaks("nothing was heard from it");
        }
    }

    async fn open(self: Arc<Self>) -> std::io::Result<(RegionHello, LinkStream)> {
        let connected = *self.dialled.lock();
        let ends = self.wires.others(self.end);
        let mut reasons = Vec::new();
        for to in ends.into_iter().filter(|end| connected.is_none_or(|it| it == *end)) {
            sleep(self.wires.delay() * 2).await;
            let Some(accepting) = self.caller_of(to).filter(|_| self.wires.is_reached(self.end))
            else {
                reasons.push("connection refused".to_owned());
                continue;
            };
            let (near, far) = pipes::stream(&self.wires, region_of(self.end));
            let (answer, answered) = oneshot::channel();
            let caller = RegionCaller::Copy { hello: self.hello(), answer, stream: far };
            if accepting.send(caller).is_err() {
                continue;
            }
            match timeout(HANDSHAKE_MAX, answered).await {
                Ok(Ok(Ok(hello))) => return Ok((hello, near)),
                Ok(Ok(Err(why))) => reasons.push(why),
                Ok(Err(_)) | Err(_) => reasons.push("no answer".to_owned()),
            }
        }
        Err(std::io::Error::other(reasons.join("; ")))
    }
}

/// The same, as the part of an instance in the traffic uses it.
/// Its threads own it: that part owns this, and they call that part.
pub(super) struct PortsDialler(Weak<RegionPorts>);

impl PortsDialler {
    /// None when the process has ended.
    fn ports(&self) -> Option<Arc<RegionPorts>> {
        self.0.upgrade()
    }
}

impl RegionDialler for PortsDialler {
    fn dial(&self, on: bool) {
        if let Some(ports) = self.ports() {
            ports.dialling.send_replace(on);
        }
    }

    fn kick(&self) {
        if let Some(ports) = self.ports() {
            ports.kicks.notify_one();
        }
    }

    fn open_stream(&self) -> OpeningCopy {
        match self.ports() {
            Some(ports) => Box::pin(ports.open()),
            None => Box::pin(ready(Err(ErrorKind::NotConnected.into()))),
        }
    }

    fn state(&self) -> RegionLinkState {
        self.ports().map(|ports| ports.state.lock().clone()).unwrap_or_default()
    }

    fn certificate_expires_s(&self) -> u64 {
        u64::MAX
    }

    fn certificate_begins_s(&self) -> u64 {
        0
    }

    fn streams(&self) -> Handle {
        Handle::current()
    }

    fn stop(&self) {
        if let Some(ports) = self.ports() {
            ports.dialling.send_replace(false);
            ports.wires.ended(ports.end, true);
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    let spawned = Builder::new().name(name.to_owned()).spawn(body);
    assert!(spawned.is_ok(), "a coroutine costs nothing");
}
