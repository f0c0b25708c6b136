//! One thread's connections: an epoll loop around sockets, machines and roles.
//!
//! Each turn reads what came, lets the role answer, and writes once for each connection. Everything
//! that need not happen for each message (time-outs, reconnects, the board) happens in a round over
//! all connections every [`ROUND`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use towline_amqp::event::Event;
use towline_types::Time;

use crate::board::{Board, Counts, Phase};
use crate::clock::Clock;
use crate::desk::Desk;
use crate::dial::Dialer;
use crate::events::What;
use crate::plan::Plan;
use crate::redirect;
use crate::seat::Client;
use crate::wire::{ReadOutcome, Scratch};

/// Time between two rounds over all connections.
const ROUND: Duration = Duration::from_millis(10);
/// Ready sockets taken at once.
const READY_MAX: usize = 256;

/// A worker's loop and all that it owns.
pub(crate) struct Worker {
    index: usize,
    epoll: OwnedFd,
    clients: Vec<Client>,
    dialer: Dialer,
    desk: Desk,
    clock: Clock,
    scratch: Scratch,
    /// When rated clients want a turn.
    timetable: BinaryHeap<Reverse<(Time, usize)>>,
    next_round: Time,
    published: Counts,
}

impl Worker {
    /// Worker `index` of the plan's threads, with each client that its number selects.
    ///
    /// # Errors
    /// A sentence, when there is no epoll or the authorities cannot be read.
    pub(crate) fn new(
        index: u32,
        plan: &Arc<Plan>,
        board: &Arc<Board>,
        clock: Clock,
    ) -> Result<Worker, String> {
        let mine = plan.seats.iter().filter(|seat| seat.index % plan.threads == index);
        let mut desk = Desk::new(Arc::clone(plan), Arc::clone(board));
        desk.now = clock.now();
        Ok(Worker {
            index: index as usize,
            epoll: epoll::create(CreateFlags::CLOEXEC)
                .map_err(|error| format!("epoll: {error}"))?,
            clients: mine.map(|seat| Client::new(seat.clone(), plan)).collect(),
            dialer: Dialer::new(Arc::clone(plan))?,
            desk,
            clock,
            scratch: Scratch::new(),
            timetable: BinaryHeap::new(),
            next_round: Time::ZERO,
            published: Counts::default(),
        })
    }

    /// Runs until the board says so; returns the notes.
    pub(crate) fn run(mut self) -> Desk {
        let mut ready = Vec::with_capacity(READY_MAX);
        while !self.is_over() {
            self.wait(&mut ready);
            self.desk.now = self.clock.now();
            for (index, flags) in ready.drain(..) {
                self.serve(index, flags);
            }
            self.enter_phase();
            self.run_timetable();
            if self.desk.now >= self.next_round {
                self.round();
            }
            self.publish();
        }
        self.desk
    }

    fn is_over(&self) -> bool {
        self.desk.phase == Phase::End && self.clients.iter().all(|client| client.wire.is_none())
    }

    fn wait(&mut self, ready: &mut Vec<(usize, EventFlags)>) {
        let due = self.timetable.peek().map_or(Time::NEVER, |Reverse((due, _))| *due);
        let wait = self.next_round.min(due).since(self.desk.now).min(ROUND);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; READY_MAX];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((found, _)) => ready.extend(found.iter().map(|event| {
                let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                (index, event.flags)
            })),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => self.desk.board.fail(format!("epoll: {error}")),
        }
    }

    /// One socket is ready.
    fn serve(&mut self, index: usize, flags: EventFlags) {
        // Anew for each socket: serving hundreds takes longer than the latencies that are timed.
        self.desk.now = self.clock.now();
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(wire) = &mut client.wire else { return };
        if flags.intersects(EventFlags::ERR | EventFlags::HUP)
            && let Some(error) = wire.socket_error()
        {
            self.lose(index, &error.to_string());
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP) {
            self.read(index);
        }
        self.flush(index);
    }

    fn read(&mut self, index: usize) {
        loop {
            let Some(client) = self.clients.get_mut(index) else { return };
            let Some(wire) = &mut client.wire else { return };
            match wire.read(&mut self.scratch, self.desk.now) {
                Ok(found) => {
                    self.handle_events(index);
                    match found {
                        ReadOutcome::More => {}
                        ReadOutcome::All => return,
                        ReadOutcome::End => {
                            return self.lose(index, "the broker closed the connection");
                        }
                    }
                }
                Err(error) => return self.lose(index, &error.to_string()),
            }
        }
    }

    fn handle_events(&mut self, index: usize) {
        loop {
            let Some(client) = self.clients.get_mut(index) else { return };
            let Some(wire) = &mut client.wire else { return };
            let Some(event) = wire.machine.next_event() else { return };
            if let Event::Closed { error: Some(error), .. } = &event
                && self.dialer.sends_on(client, error, self.desk.now)
            {
                return;
            }
            let Some(wire) = &mut client.wire else { return };
            let machine = &mut wire.machine;
            let desk = &mut self.desk;
            match event {
                Event::Opened(opened) if redirect::is_denied(&opened) => {}
                Event::Opened(_) => {
                    client.is_open = true;
                    desk.counts.reconnects += u64::from(client.was_open);
                    client.was_open = true;
                    client.failures = 0;
                    if client.seat.part.drives() {
                        desk.event(client.seat.number, What::Open);
                    }
                    client.role.open(machine, desk);
                }
                Event::Closed { error, .. } => {
                    let reason = error.map_or_else(|| "closed".into(), |error| describe(&error));
                    return self.lose(index, &reason);
                }
                Event::SessionEnded { error: Some(error), .. }
                | Event::Detached { error: Some(error), .. } => {
                    return self.lose(index, &describe(&error));
                }
                event => client.role.event(machine, desk, event),
            }
        }
    }

    /// Writes, and watches for free space when the kernel takes no more.
    fn flush(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(wire) = &mut client.wire else { return };
        let waits = match wire.flush() {
            Ok(done) => !done,
            Err(error) => return self.lose(index, &error.to_string()),
        };
        if wire.machine.is_finished() && !waits {
            return self.lose(index, "closed");
        }
        if waits == wire.waits_to_write {
            return;
        }
        wire.waits_to_write = waits;
        let mut interest = EventFlags::IN | EventFlags::RDHUP;
        interest.set(EventFlags::OUT, waits);
        let key = EventData::new_u64(index as u64);
        if let Err(error) = epoll::modify(&self.epoll, wire.as_fd(), key, interest) {
            self.desk.board.fail(format!("epoll: {error}"));
        }
    }

    /// The connection is gone: closing the socket takes it out of epoll.
    fn lose(&mut self, index: usize, reason: &str) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.wire = None;
        let was_open = std::mem::replace(&mut client.is_open, false);
        if self.desk.phase == Phase::End {
            return;
        }
        if was_open && client.seat.part.drives() {
            self.desk.event(client.seat.number, What::Lost);
        }
        client.role.lost(&mut self.desk);
        let url = self.dialer.url(client);
        let plan = &self.desk.plan;
        if !plan.reconnect {
            self.desk.board.fail(format!("{url}: {reason}"));
            return;
        }
        self.desk.remark(format!("{url}: {reason}"));
        client.try_next_after(self.desk.now);
    }

    fn enter_phase(&mut self) {
        let phase = self.desk.board.phase();
        if phase == self.desk.phase {
            return;
        }
        let began = self.desk.is_running();
        self.desk.enter(phase);
        let begins = !began && self.desk.is_running();
        for index in 0..self.clients.len() {
            if begins {
                self.start(index);
            }
            if phase == Phase::End {
                self.hang_up(index);
            } else {
                self.turn(index);
            }
        }
        self.next_round = self.desk.now;
    }

    fn start(&mut self, index: usize) {
        let plan = Arc::clone(&self.desk.plan);
        let drivers = plan.seats.iter().filter(|seat| seat.part.drives()).count();
        let drivers = u32::try_from(drivers).unwrap_or(u32::MAX);
        let Some(client) = self.clients.get_mut(index) else { return };
        client.role.start(self.desk.now, client.seat.number, drivers);
        if let Some(due) = client.role.due() {
            self.timetable.push(Reverse((due, index)));
        }
    }

    /// Lets a role do what it can outside of an event.
    fn turn(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(wire) = client.wire.as_mut().filter(|_| client.is_open) else { return };
        client.role.turn(&mut wire.machine, &mut self.desk);
        self.flush(index);
    }

    /// Ends a connection in the ordinary way.
    fn hang_up(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(wire) = &mut client.wire else { return };
        if client.is_open {
            wire.machine.close(None);
            client.give_up_at = self.desk.now + Duration::from_secs(1);
            self.flush(index);
        } else {
            client.wire = None;
        }
    }

    fn run_timetable(&mut self) {
        let now = self.desk.now;
        while let Some(Reverse((due, index))) = self.timetable.peek().copied()
            && due <= now
            && self.desk.is_running()
        {
            self.timetable.pop();
            self.turn(index);
            let Some(interval) = self.desk.plan.interval else { return };
            let Some(client) = self.clients.get_mut(index) else { return };
            let next = client.role.due().filter(|next| *next > now).unwrap_or(now + interval);
            self.timetable.push(Reverse((next, index)));
        }
    }

    /// What need not happen for each message.
    fn round(&mut self) {
        self.next_round = self.desk.now + ROUND;
        let (mut ready, mut busy, mut unfinished) = (0, 0, 0);
        for index in 0..self.clients.len() {
            self.look_after(index);
            let Some(client) = self.clients.get_mut(index) else { continue };
            ready += u32::from(client.is_open && client.role.is_ready());
            busy += u32::from(client.role.is_busy());
            unfinished += u32::from(client.role.is_unfinished());
        }
        let cells = self.desk.board.cells(self.index);
        cells.ready.store(ready, Ordering::Release);
        cells.busy.store(busy, Ordering::Release);
        cells.unfinished.store(unfinished, Ordering::Release);
    }

    fn look_after(&mut self, index: usize) {
        let now = self.desk.now;
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(wire) = &mut client.wire else {
            let may_dial = self.desk.phase != Phase::End && self.dialer.may_dial(client, now);
            if !may_dial {
                return;
            }
            if let Err(reason) = self.dialer.dial(client, index, &self.epoll, now) {
                self.lose(index, &reason);
            }
            return;
        };
        if wire.machine.deadline().is_some_and(|deadline| deadline <= now) {
            wire.machine.tick(now);
            self.handle_events(index);
            self.flush(index);
            return;
        }
        if now >= client.give_up_at && (!client.is_open || self.desk.phase == Phase::End) {
            self.lose(index, "no answer in time");
        }
    }

    fn publish(&mut self) {
        let counts = self.desk.counts;
        if counts != self.published {
            self.desk.board.add(counts.since(self.published));
            self.published = counts;
        }
    }
}

fn describe(error: &towline_amqp::types::Error) -> String {
    match &error.description {
        Some(words) => format!("{}: {words}", error.condition),
        None => error.condition.to_string(),
    }
}
