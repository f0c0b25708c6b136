//! Whether it serves again when nothing goes wrong any more, and what its queues then hold against
//! what was promised: as it is, after a power cut, and rebuilt from the log.

use std::sync::Arc;

use towline_engine::Door;
use towline_os::simulated::Process;

use super::weather::OPERATORS;
use super::{Alone, AloneEvent, AlonePhase, PEACE_US};
use crate::served::compare;
use crate::served::look::{self, SeenSlot};
use crate::view::Row;

/// How long the looks may take together.
const LOOK_MAX_US: u64 = 90_000_000;
/// AloneLooks: as it is, after a power cut, rebuilt.
const LOOKS: usize = 3;

/// What was looked at.
#[derive(Default)]
pub(super) struct AloneLooks {
    begun: Option<(Process, SeenSlot)>,
    done: usize,
    reference: Option<Vec<Row>>,
    /// The last restore was begun.
    has_restored: bool,
}

impl Alone {
    pub(super) fn active(&self) -> Option<(usize, Process, Arc<Door>)> {
        self.machines.iter().enumerate().find_map(|(node, machine)| {
            let live = machine.live.as_ref().filter(|_| !machine.is_paused)?;
            let (door, _) = live.board.served.lock().clone()?;
            Some((node, live.process, door))
        })
    }

    /// AloneLooks whether everything is as it should be in peace, and goes on when it is.
    pub(super) fn look(&mut self) {
        match self.phase {
            AlonePhase::Safety | AlonePhase::Over => {}
            AlonePhase::Peace(since) => match self.what_is_missing(since) {
                None => {
                    self.tell(format_args!("all is well"));
                    self.counts.peace_us = self.now - since;
                    self.phase = AlonePhase::Leaving(self.now);
                    self.clients.iter_mut().for_each(|client| client.stopping = true);
                }
                Some(missing) if self.now - since > PEACE_US => {
                    self.show();
                    self.fail(format!("{} s after the last fault {missing}", PEACE_US / 1_000_000));
                }
                Some(_) => {}
            },
            AlonePhase::Leaving(since) => {
                if self.clients.iter().all(|client| client.connection.is_none()) {
                    self.phase = AlonePhase::Verdict(self.now);
                } else if self.now - since > PEACE_US {
                    self.show();
                    self.fail("clients cannot leave".into());
                }
            }
            AlonePhase::Verdict(since) => self.compare(since),
        }
    }

    fn show(&self) {
        for operation in self.disk.take_trace().iter().rev().take(20).rev() {
            self.tell(format_args!("{operation:?}"));
        }
        let left: Vec<String> = self
            .world
            .left()
            .iter()
            .map(|(process, name)| format!("{}:{name}", process.0))
            .collect();
        self.tell(format_args!("coroutines: {}", left.join(" ")));
        for wait in self.world.waits() {
            self.tell(format_args!("{wait}"));
        }
    }

    fn what_is_missing(&self, since: u64) -> Option<String> {
        if self.active().is_none() {
            return Some("no process is active".into());
        }
        for (node, machine) in self.machines.iter().enumerate() {
            let Some(live) = &machine.live else {
                return Some(format!("machine {node} has no process"));
            };
            if live.board.served.lock().is_none() && !*live.board.stands_by.lock() {
                return Some(format!("machine {node} neither serves nor stands by"));
            }
        }
        let history = self.ledger.history.lock();
        let waits = self.clients.iter().find(|client| !client.is_served(since, &history))?;
        Some(format!("client {} was not served", waits.number))
    }

    fn compare(&mut self, since: u64) {
        if self.now - since > LOOK_MAX_US {
            self.show();
            return self.fail(format!("only {} of {LOOKS} looks were made", self.looks.done));
        }
        if self.looks.done == LOOKS {
            if !std::mem::replace(&mut self.looks.has_restored, true) {
                self.check_restore();
            }
            if self.backups.is_idle() {
                self.phase = AlonePhase::Over;
            }
            return;
        }
        let Some((process, slot)) = self.looks.begun.take() else { return self.begin_look() };
        let seen = slot.lock().take();
        match seen {
            // It ended meanwhile, and what it held open with it: the next one is asked.
            None | Some(Err(_)) if self.world.ended(process).is_some() => {}
            None => self.looks.begun = Some((process, slot)),
            Some(seen) => match seen.and_then(|(rows, depths)| self.judge(rows, &depths)) {
                Ok(()) => self.looked(),
                Err(broken) => self.fail(format!("look {}: {broken}", self.looks.done)),
            },
        }
    }

    fn begin_look(&mut self) {
        let Some((_, process, door)) = self.active() else { return };
        let (queues, slot) = (self.queues(), SeenSlot::default());
        let result = Arc::clone(&slot);
        self.operators += 1;
        let observer = Process(OPERATORS + self.operators);
        self.world.mount(observer, &self.disk);
        self.world.start(observer, "look", move || {
            *result.lock() = Some(look::see(&door, &queues));
        });
        self.looks.begun = Some((process, slot));
    }

    fn looked(&mut self) {
        self.tell(format_args!("it has what was promised"));
        self.counts.compared += 1;
        self.looks.done += 1;
        match self.looks.done {
            1 => self.power_cut(),
            2 => self.rebuild(),
            _ => return,
        }
        for node in 0..self.machines.len() {
            self.plan_in(0, AloneEvent::Start { node });
        }
    }

    fn judge(&mut self, rows: Vec<Row>, depths: &[(String, u64)]) -> Result<(), String> {
        compare::judge_depths(&rows, depths)?;
        compare::judge_rows(&self.ledger.history.lock(), self.plan.base.queues, &rows)?;
        let persistent: Vec<Row> = rows.into_iter().filter(|row| row.persistent).collect();
        match &self.looks.reference {
            None => self.looks.reference = Some(persistent),
            Some(reference) => compare::same(self.looks.done, &persistent, reference)?,
        }
        Ok(())
    }
}
