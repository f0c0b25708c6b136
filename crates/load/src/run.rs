//! One run from connect to close: starts the workers, moves the phases on, samples, collects.
//!
//! ```text
//! Connect -> Warm -> Measure -> Stop (nothing new; what is under way is finished) -> End
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use towline_types::Time;

use crate::args::Mode;
use crate::board::{Board, Counts, Phase};
use crate::clock::Clock;
use crate::desk::Desk;
use crate::events::Events;
use crate::latency::Latencies;
use crate::plan::Plan;
use crate::process::{self, Memory};
use crate::show::{Row, Show};
use crate::verify::Ledger;
use crate::worker::Worker;

/// All clients must be connected, with links, within this time.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
/// What is under way when the time is over must be finished within this time.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// The rest of a stream has come when nothing came for this time.
const QUIET: Duration = Duration::from_secs(3);
/// Between two looks at the board.
const LOOK: Duration = Duration::from_millis(10);

/// What a run found.
pub(crate) struct Outcome {
    /// While measuring.
    pub(crate) counts: Counts,
    /// Of the whole run, warm-up and end included.
    pub(crate) counts_all: Counts,
    /// Length of the measured part.
    pub(crate) measured: Duration,
    pub(crate) latencies: Latencies,
    pub(crate) ledger: Ledger,
    pub(crate) remarks: Vec<String>,
    pub(crate) gap_max_us: u64,
    pub(crate) events: Events,
    /// CPU time of the server's processes while measuring.
    pub(crate) server_cpu: Duration,
    /// CPU time of this process while measuring.
    pub(crate) own_cpu: Duration,
    /// Memory of the server's processes at the end.
    pub(crate) server_memory: Memory,
    /// Operations that were under way and did not finish.
    pub(crate) unfinished: u32,
}

/// Runs a plan.
///
/// # Errors
/// A sentence: what ended the run before its time.
pub(crate) fn run(
    plan: &Arc<Plan>,
    (server_pids, interrupted): (&[u32], &AtomicBool),
    csv: Option<&Path>,
    show: &Show,
) -> Result<Outcome, String> {
    let clock = Clock::new();
    let board = Arc::new(Board::new(plan.threads));
    let (sender, finished) = mpsc::channel();
    for index in 0..plan.threads {
        let worker = Worker::new(index, plan, &board, clock)?;
        let sender = sender.clone();
        let body = move || {
            // The receiver only goes when the run has failed already.
            drop(sender.send(worker.run()));
        };
        let builder = thread::Builder::new().name(format!("load-{index}"));
        builder.spawn(body).map_err(|error| format!("thread: {error}"))?;
    }
    drop(sender);
    let samples = show.samples(csv, plan)?;
    let mut driver =
        Driver { plan, board: &board, clock, server_pids, interrupted, samples, finished };
    let result = driver.drive();
    board.set_phase(Phase::End);
    driver.collect(result)
}

struct Driver<'a> {
    plan: &'a Plan,
    board: &'a Board,
    clock: Clock,
    server_pids: &'a [u32],
    /// A caller wants it to end.
    interrupted: &'a AtomicBool,
    samples: crate::show::Samples,
    finished: Receiver<Desk>,
}

/// What the driver measured itself.
struct Measured {
    counts: Counts,
    measured: Duration,
    server_cpu: Duration,
    own_cpu: Duration,
    server_memory: Memory,
    unfinished: u32,
}

impl Driver<'_> {
    fn drive(&mut self) -> Result<Measured, String> {
        self.connect()?;
        self.board.set_phase(Phase::Warm);
        self.watch(self.clock.now() + self.plan.warmup, false)?;
        let counts_before = self.board.counts();
        let server_before = process::cpu_time(self.server_pids);
        let own_before = process::own_cpu_time();
        let start = self.clock.now();
        self.board.set_phase(Phase::Measure);
        self.samples.start(start);
        self.watch(start + self.plan.seconds, true)?;
        let counts = self.board.counts().since(counts_before);
        let measured = self.clock.now().since(start);
        let server_cpu = process::cpu_time(self.server_pids).saturating_sub(server_before);
        let own_cpu = process::own_cpu_time().saturating_sub(own_before);
        let server_memory = process::memory(self.server_pids);
        self.board.set_phase(Phase::Stop);
        let unfinished = self.stop()?;
        Ok(Measured { counts, measured, server_cpu, own_cpu, server_memory, unfinished })
    }

    fn connect(&mut self) -> Result<(), String> {
        let wanted = u32::try_from(self.plan.seats.len()).unwrap_or(u32::MAX);
        let until = self.clock.now() + CONNECT_PATIENCE;
        while self.board.ready() < wanted {
            self.look()?;
            if self.clock.now() > until {
                let ready = self.board.ready();
                return Err(format!("only {ready} of {wanted} clients were connected in time"));
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err("interrupted before all clients were connected".into());
            }
            self.samples.connecting(self.board.ready(), wanted);
        }
        Ok(())
    }

    /// Lets the load run until a time, or until it is done.
    fn watch(&mut self, until: Time, measuring: bool) -> Result<(), String> {
        let mut last = self.board.counts();
        let mut moved_at = self.clock.now();
        loop {
            let now = self.clock.now();
            if now >= until {
                return Ok(());
            }
            self.look()?;
            let counts = self.board.counts();
            if counts.gets != last.gets {
                moved_at = now;
            }
            last = counts;
            if measuring {
                let connected = self.board.ready();
                self.samples.sample(now, Row { counts, connected });
            }
            if self.is_done(counts) || self.interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            if self.plan.until_empty.is_some_and(|quiet| now.since(moved_at) >= quiet) {
                return Ok(());
            }
        }
    }

    /// Whether a count was asked for and is reached.
    fn is_done(&self, counts: Counts) -> bool {
        let Some(count) = self.plan.count else { return false };
        match self.plan.mode {
            Mode::Get => counts.gets >= count,
            Mode::Responder => counts.replies >= count,
            Mode::Idle => false,
            Mode::Requester | Mode::Put | Mode::Stream | Mode::Transaction => {
                counts != Counts::default() && self.board.unfinished() == 0
            }
        }
    }

    /// Waits for what is under way; returns how many operations did not finish.
    fn stop(&mut self) -> Result<u32, String> {
        let until = self.clock.now() + STOP_PATIENCE;
        // The workers' cells are one round old at most.
        self.look_for(3 * LOOK)?;
        while self.board.busy() > 0 && self.clock.now() < until {
            self.look()?;
        }
        if self.plan.mode == Mode::Stream {
            self.wait_for_the_rest()?;
        }
        Ok(self.board.busy())
    }

    /// A stream's consumers go on until all that was put has come.
    fn wait_for_the_rest(&mut self) -> Result<(), String> {
        let mut last = 0;
        let mut moved_at = self.clock.now();
        loop {
            self.look()?;
            let counts = self.board.counts();
            if counts.received >= counts.puts {
                return Ok(());
            }
            let now = self.clock.now();
            if counts.gets != last {
                last = counts.gets;
                moved_at = now;
            }
            if now.since(moved_at) >= QUIET {
                return Ok(());
            }
        }
    }

    fn look_for(&mut self, time: Duration) -> Result<(), String> {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.look()?;
        }
        Ok(())
    }

    /// Rests for a moment; fails when a worker did.
    fn look(&mut self) -> Result<(), String> {
        match self.finished.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                return Err("a worker thread ended early".into());
            }
        }
        self.board.failure().map_or(Ok(()), Err)
    }

    fn collect(self, result: Result<Measured, String>) -> Result<Outcome, String> {
        let measured = result?;
        self.samples.finish();
        let mut outcome = Outcome {
            counts: measured.counts,
            counts_all: Counts::default(),
            measured: measured.measured,
            latencies: Latencies::default(),
            ledger: Ledger::new(self.plan.run, true),
            remarks: Vec::new(),
            gap_max_us: 0,
            events: Events::new(true),
            server_cpu: measured.server_cpu,
            own_cpu: measured.own_cpu,
            server_memory: measured.server_memory,
            unfinished: measured.unfinished,
        };
        for desk in self.finished.iter() {
            outcome.latencies.merge(desk.latencies);
            outcome.ledger.merge(desk.ledger);
            outcome.remarks.extend(desk.remarks);
            outcome.events.merge(desk.events);
            outcome.gap_max_us = outcome.gap_max_us.max(desk.gap_max_us);
        }
        outcome.counts_all = self.board.counts();
        self.board.failure().map_or(Ok(outcome), Err)
    }
}
