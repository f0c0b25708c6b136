//! Whether one group serves and the other one follows when faults stop, and what both then hold
//! against what was promised: first the live one, then, behind a planned switch, the other one.
//!
//! Looks are coroutines of a process of their own, the observer.

use std::collections::BTreeMap;

use towline_group::Mode;
use towline_os::simulated::Process;
use towline_os::simulated::time::WALL;
use towline_types::{Histories, HistoryId, Time};

use super::ledger::FinalLook;
use super::machines::NAMES;
use super::{GROUPS, Regions, RunStage, exposures};
use crate::client::queue_name;
use crate::served::look::{self, SeenSlot};
use crate::view::Row;

/// One group must serve, and the other one follow, so long after faults have stopped.
const PEACE_US: u64 = 90_000_000;
/// How long clients may take to leave, and a switch and a look.
const END_US: u64 = 60_000_000;
/// The process of the first look, and so on.
const OBSERVER: u64 = 1 << 40;
/// How often the trace says what is missing.
const TOLD_EVERY_US: u64 = 5_000_000;
/// An instance may look at its clock so much later.
const TICK_US: u64 = 1_000_000;

/// What was compared.
#[derive(Default)]
pub(super) struct RegionsVerdict {
    /// So many batches are to be everywhere, of the log in which this history is the newest.
    goal: Option<(Option<HistoryId>, u64)>,
    /// When the trace said last what is missing.
    told_us: u64,
    content: Option<(usize, u64, SeenSlot)>,
    /// What the group held that was live first.
    reference: Option<(usize, Vec<Row>, Histories)>,
    ordered: u64,
    looks: u64,
}

impl Regions {
    /// Looks whether everything is as it should be, and goes on when it is.
    pub(super) fn look(&mut self) {
        match self.stage {
            RunStage::Safety | RunStage::Over => {}
            RunStage::Peace(since) => match self.what_is_missing() {
                None => {
                    self.tell(format_args!("all is well"));
                    self.counts.peace_us = self.now - since;
                    self.stage = RunStage::Leaving(self.now);
                    self.verdict.goal = None;
                }
                Some(missing) if self.now - since > PEACE_US => {
                    self.show();
                    let seconds = PEACE_US / 1_000_000;
                    self.fail(format!("{seconds} s after the last fault {missing}"));
                }
                Some(missing) => {
                    if self.now - self.verdict.told_us >= TOLD_EVERY_US {
                        self.tell(format_args!("waits: {missing}"));
                        self.verdict.told_us = self.now;
                    }
                }
            },
            RunStage::Leaving(since) => {
                // An act ends by itself.
                if self.now - since > 3_000_000 && self.what_is_missing().is_none() {
                    self.stage = RunStage::Verdict(self.now);
                } else if self.now - since > END_US {
                    self.show();
                    let missing = self.what_is_missing();
                    self.fail(format!("not all came to rest: {missing:?}"));
                }
            }
            RunStage::Verdict(since) => self.compare(since),
        }
    }

    pub(super) fn show(&self) {
        for end in self.all_ends() {
            let sight = self.sight(end);
            self.tell(format_args!("{}: {sight:?}", NAMES[end]));
        }
        for wait in self.world.waits() {
            self.tell(format_args!("{wait}"));
        }
    }

    fn what_is_missing(&mut self) -> Option<String> {
        let serving = [self.serving(0), self.serving(1)];
        let (live, active) = match serving {
            [Some(active), None] => (0, active),
            [None, Some(active)] => (1, active),
            [None, None] => return Some("no group serves".into()),
            [Some(_), Some(_)] => return Some("both groups serve".into()),
        };
        let sight = self.sight(active)?;
        let (newest, committed) =
            (sight.histories.newest().map(|it| it.id), sight.group.committed.index);
        // An old live group that returned, or was emptied, may have had more batches than the other
        // one will ever have.
        let before = self.verdict.goal.filter(|(of, _)| *of == newest);
        let (_, goal) = *self.verdict.goal.insert(before.unwrap_or((newest, committed)));
        for end in self.all_ends() {
            let name = NAMES[end];
            let Some(sight) = self.sight(end) else {
                return Some(format!("instance {name} does not run"));
            };
            let is_live = super::region_of(end) == live;
            if (sight.mode == Mode::Voting) != is_live {
                return Some(format!("instance {name} is {:?}", sight.mode));
            }
            if is_live && !sight.group.may_vote {
                return Some(format!("instance {name} does not vote"));
            }
            let has = sight.group.committed.index;
            if has < goal {
                return Some(format!("instance {name} has {has} batches of {goal}"));
            }
        }
        let follows =
            self.ends(1 - live).any(|end| self.sight(end).is_some_and(|it| it.is_connected));
        (!follows).then(|| {
            let trouble = self.sight(active).map(|it| it.trouble).unwrap_or_default();
            format!("group {} is not shipped to: {trouble}", GROUPS[1 - live])
        })
    }

    fn queues(&self) -> Vec<String> {
        (0..self.plan.queues).map(queue_name).collect()
    }

    /// The end of the run: both groups are compared, the second one behind a switch.
    fn compare(&mut self, since: u64) {
        if self.now - since > 3 * END_US {
            self.show();
            return self.fail("not both groups could be compared".into());
        }
        if let Some((end, process, slot)) = self.verdict.content.take() {
            let seen = slot.lock().take();
            let live = self.machines[end].live.as_ref();
            let lives = live.is_some_and(|live| live.process.0 == process);
            match seen {
                None if lives => self.verdict.content = Some((end, process, slot)),
                None => {}
                Some(Err(why)) => {
                    self.show();
                    self.fail(format!("instance {}: {why}", NAMES[end]));
                }
                Some(Ok((rows, _))) => {
                    if let Err(broken) = self.judge(end, rows) {
                        self.fail(format!("instance {}: {broken}", NAMES[end]));
                    }
                }
            }
            return;
        }
        match &self.verdict.reference {
            None => self.look_into(None),
            Some((first, ..)) => {
                let first = *first;
                if self.serving(1 - first).is_some() {
                    return self.look_into(Some(1 - first));
                }
                if let Some(active) = self.serving(first)
                    && self.now - self.verdict.ordered > 10_000_000
                {
                    self.verdict.ordered = self.now;
                    self.order_last_switch(active);
                }
            }
        }
    }

    fn look_into(&mut self, region: Option<usize>) {
        let end = (0..2).filter(|it| region.is_none_or(|region| region == *it));
        let Some(end) = end.filter_map(|region| self.serving(region)).next() else { return };
        let Some(live) = &self.machines[end].live else { return };
        let Some((door, _)) = live.board.served.lock().clone() else { return };
        let (queues, slot) = (self.queues(), SeenSlot::default());
        let result = std::sync::Arc::clone(&slot);
        self.verdict.looks += 1;
        let observer = Process(OBSERVER + self.verdict.looks);
        let process = live.process.0;
        self.world.mount(observer, &self.machines[end].disk);
        self.world.start(observer, "look", move || {
            look::until_clients_are_gone(&door);
            *result.lock() = Some(look::see(&door, &queues));
        });
        self.verdict.content = Some((end, process, slot));
    }

    fn judge(&mut self, end: usize, rows: Vec<Row>) -> Result<(), String> {
        let region = super::region_of(end);
        let Some(sight) = self.sight(end) else { return Ok(()) };
        let wall_us = u64::try_from(WALL.as_micros()).unwrap_or(0) + self.now;
        let [one, other] = self.plan.ahead_us;
        let latest = Time(wall_us.saturating_add_signed(one.max(other)) + TICK_US);
        {
            let ledger = self.counter.ledger.lock();
            let mut present = BTreeMap::new();
            for row in &rows {
                *present.entry(ledger.identify(&row.content)?).or_insert(0) += 1;
            }
            let histories = &sight.histories;
            FinalLook { ledger: &ledger, histories, present, latest }.judge()?;
            exposures::judge(&self.samples.lock(), &ledger, histories)?;
        }
        self.counts.compared += 1;
        self.tell(format_args!("group {} has what was promised", GROUPS[region]));
        let Some((first, reference, histories)) = self.verdict.reference.take() else {
            let many = sight.histories.count();
            if many > 1 {
                self.count("runs with a change of roles");
            }
            self.verdict.reference = Some((region, rows, sight.histories));
            return Ok(());
        };
        if first == region {
            self.verdict.reference = Some((first, reference, histories));
            return Ok(());
        }
        self.same(&rows, &reference)?;
        self.stage = RunStage::Over;
        Ok(())
    }

    /// A switch loses nothing, and brings nothing; what ends or is due meanwhile may differ.
    fn same(&self, rows: &[Row], reference: &[Row]) -> Result<(), String> {
        let ledger = self.counter.ledger.lock();
        let numbers = |rows: &[Row]| -> Result<Vec<usize>, String> {
            let all = rows.iter().map(|row| ledger.identify(&row.content));
            let all = all.collect::<Result<Vec<usize>, String>>()?;
            let is_timed = |number: &usize| ledger.messages[*number].expires_at.is_some();
            Ok(all.into_iter().filter(|number| !is_timed(number)).collect())
        };
        let (here, there) = (numbers(rows)?, numbers(reference)?);
        match here == there {
            true => Ok(()),
            false => Err(format!("behind a switch {here:?} is there, and {there:?} was before")),
        }
    }
}
