//! Whether everything comes back when faults stop, and what the queues then hold against what was
//! promised: on each instance, one after the other as the active one.
//!
//! Looks are coroutines of a process of their own, the observer: a lock that an instance holds
//! makes a look wait, as it makes any other caller wait.

use std::path::PathBuf;
use std::sync::Arc;

use towline_engine::Door;
use towline_group::Progress;
use towline_os::simulated::Process;

use super::{Cluster, ClusterEvent, LOOK_US, PEACE_US, RunPhase, look};
use crate::client::queue_name;
use crate::served::compare;
use crate::served::look::SeenSlot;
use crate::view::Row;

/// The process of the looks at the first instance, and so on.
const OBSERVER: Process = Process(1 << 40);
/// How long a look may take.
const LOOK_MAX_US: u64 = 30_000_000;

/// Looks that were begun.
#[derive(Default)]
pub(super) struct Looks {
    goal: Option<u64>,
    content: Option<(usize, u64, SeenSlot)>,
    /// What each instance held that was active and looked into.
    compared: [bool; 3],
    reference: Option<Vec<Row>>,
}

impl Cluster {
    fn queues(&self) -> Vec<String> {
        (0..self.plan.queues).map(queue_name).collect()
    }

    /// Looks whether everything is as it should be in peace, and goes on when it is.
    pub(super) fn look(&mut self) {
        match self.phase {
            RunPhase::Safety | RunPhase::Over => return,
            RunPhase::Peace(since) => match self.what_is_missing(since) {
                None => {
                    self.tell(format_args!("all is well"));
                    self.counts.peace_us = self.now - since;
                    self.phase = RunPhase::Leaving(self.now);
                    self.clients.iter_mut().for_each(|client| client.stopping = true);
                }
                Some(missing) if self.now - since > PEACE_US => {
                    self.show();
                    self.fail(format!("{} s after the last fault {missing}", PEACE_US / 1_000_000));
                }
                Some(_) => {}
            },
            RunPhase::Leaving(since) => {
                if self.clients.iter().all(|client| client.connection.is_none()) {
                    self.phase = RunPhase::Verdict(self.now);
                } else if self.now - since > PEACE_US {
                    self.fail("clients cannot leave".into());
                }
            }
            RunPhase::Verdict(since) => self.compare(since),
        }
        self.plan_in(LOOK_US, ClusterEvent::Look);
    }

    pub(super) fn show(&self) {
        let shown = std::env::var("SIM_OPERATIONS").ok().and_then(|count| count.parse().ok());
        for node in 0..3 {
            let group = self.progress(node);
            self.tell(format_args!("{node}: {group:?}"));
            let trace = self.machines[node].disk.take_trace();
            for operation in trace.iter().rev().take(shown.unwrap_or(12)).rev() {
                self.tell(format_args!("{node}: {operation:?}"));
            }
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

    /// Leaves the files of the instances, as their processes saw them, in the folder that
    /// `SIM_DISKS` names: for `towline log dump`.
    pub(super) fn leave_disks(&self) {
        let Some(folder) = std::env::var_os("SIM_DISKS").map(PathBuf::from) else { return };
        for (node, machine) in self.machines.iter().enumerate() {
            for (path, bytes) in machine.disk.tree() {
                let below = path.strip_prefix("/").unwrap_or(&path);
                let to = folder.join(node.to_string()).join(below);
                let left = match (bytes, to.parent()) {
                    (Some(bytes), Some(parent)) => {
                        std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&to, bytes))
                    }
                    _ => std::fs::create_dir_all(&to),
                };
                if let Err(error) = left {
                    self.tell(format_args!("{} is not left: {error}", to.display()));
                }
            }
        }
    }

    fn progress(&self, node: usize) -> Option<Progress> {
        let live = self.machines[node].live.as_ref()?;
        live.board.group.lock().clone().map(|(group, _)| group)
    }

    fn active(&self) -> Option<(usize, Process, Arc<Door>)> {
        (0..3).find_map(|node| {
            let live = self.machines[node].live.as_ref()?;
            let (door, _) = live.board.served.lock().clone()?;
            let leads = live.board.group.lock().as_ref().is_some_and(|(_, leads)| *leads);
            leads.then_some((node, live.process, door))
        })
    }

    fn what_is_missing(&mut self, since: u64) -> Option<String> {
        let Some((active, ..)) = self.active() else { return Some("no instance is active".into()) };
        let committed = self.progress(active)?.committed.index;
        let goal = *self.looks.goal.get_or_insert(committed);
        for node in 0..3 {
            let Some(group) = self.progress(node) else {
                return Some(format!("instance {node} does not run"));
            };
            if group.committed.index < goal {
                let has = group.committed.index;
                return Some(format!("instance {node} has {has} batches of {goal}"));
            }
            if !group.may_vote {
                return Some(format!("instance {node} does not vote"));
            }
            if self.machines[node].rotten.is_some() {
                return Some(format!("instance {node} has a damaged disk"));
            }
        }
        let history = self.shared.history.lock();
        let waits = self.clients.iter().find(|client| !client.is_served(since, &history))?;
        Some(format!("client {} was not served", waits.number))
    }

    /// The end of the run: everything is compared, on one active instance after the other.
    fn compare(&mut self, since: u64) {
        if self.now - since > 3 * LOOK_MAX_US {
            self.show();
            return self.fail(format!("not all could be compared: {:?}", self.looks.compared));
        }
        let Some((node, process, slot)) = self.looks.content.take() else {
            return self.look_into_active();
        };
        let lives = self.machines[node].live.as_ref().is_some_and(|it| it.process.0 == process);
        let seen = slot.lock().take();
        match seen {
            None if lives => self.looks.content = Some((node, process, slot)),
            // It ended meanwhile: the next active one is asked.
            None => {}
            Some(seen) => {
                let judged = seen.and_then(|(rows, depths)| self.judge(node, rows, &depths));
                match judged {
                    Ok(()) => self.compared(node),
                    Err(broken) => self.fail(format!("instance {node}: {broken}")),
                }
            }
        }
    }

    fn look_into_active(&mut self) {
        let Some((node, process, door)) = self.active() else { return };
        if self.looks.compared[node] {
            if self.others_can_follow(node) {
                self.kill(node, true);
            }
            return;
        }
        let (queues, slot) = (self.queues(), SeenSlot::default());
        let result = Arc::clone(&slot);
        let observer = Process(OBSERVER.0 + node as u64);
        self.world.mount(observer, &self.machines[node].disk);
        self.world.start(observer, "look", move || {
            look::until_clients_are_gone(&door);
            *result.lock() = Some(look::see(&door, &queues));
        });
        self.looks.content = Some((node, process.0, slot));
    }

    /// Whether each instance that was not compared yet has all that the active one has: one that
    /// is sent a copy by it would begin again for ever.
    fn others_can_follow(&self, active: usize) -> bool {
        let Some(goal) = self.progress(active) else { return true };
        let mut missing = (0..3).filter(|node| !self.looks.compared[*node]);
        missing.all(|node| {
            let group = self.progress(node);
            group.is_some_and(|group| {
                group.may_vote && group.committed.index >= goal.committed.index
            })
        })
    }

    /// The next one is asked when this one is gone.
    fn compared(&mut self, node: usize) {
        self.tell(format_args!("instance {node} has what was promised"));
        self.counts.compared += 1;
        self.looks.compared[node] = true;
        if self.looks.compared.iter().all(|compared| *compared) {
            self.phase = RunPhase::Over;
        }
    }

    fn judge(
        &mut self,
        node: usize,
        rows: Vec<Row>,
        depths: &[(String, u64)],
    ) -> Result<(), String> {
        compare::judge_depths(&rows, depths)?;
        let has_failed = self.machines.iter().any(|it| it.let_down.any())
            || self.happened.contains_key("bits flipped");
        if let Some(row) = compare::set_aside(&rows).next().filter(|_| !has_failed) {
            return Err(format!("a message was set aside, and no disk has failed: {row:?}"));
        }
        compare::judge_rows(&self.shared.history.lock(), self.plan.queues, &rows)?;
        let persistent: Vec<Row> = rows.into_iter().filter(|row| row.persistent).collect();
        match &self.looks.reference {
            None => self.looks.reference = Some(persistent),
            Some(reference) => compare::same(node, &persistent, reference)?,
        }
        Ok(())
    }
}
