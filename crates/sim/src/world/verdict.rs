//! What is compared with what: replicas with the log that all agreed on, queues with the history,
//! and whether everything comes back when faults stop.

use std::collections::{BTreeMap, BTreeSet};

use towline_core::Pages;
use towline_group::Role;
use towline_node::Restart;
use towline_types::{BatchPlace, Lsn, Time};

use super::{At, Event, LOOK_US, PEACE_US, Phase, SCRATCH, World, tell};
use crate::client::queue_name;
use crate::disk::Disk;
use crate::journal::CommitUrgency;
use crate::process::Stage;
use crate::runs::Runs;
use crate::view::{self, Row};

/// So many of a thousand replicas that end are compared.
const COMPARED_PER_MILLE: u64 = 150;

impl World {
    fn queues(&self) -> Vec<String> {
        let own = (0..self.plan.queues).map(queue_name);
        own.chain([SCRATCH.to_owned()]).collect()
    }

    /// Looks whether everything is as it should be in peace, and goes on when it is.
    pub(crate) fn look(&mut self) {
        match self.phase {
            Phase::Safety | Phase::Over => {}
            Phase::Peace(since) => match self.what_is_missing(since) {
                None => {
                    tell!(self, "all is well");
                    self.counts.peace_us = self.now - since;
                    self.phase = Phase::Leaving(self.now);
                    self.clients.iter_mut().for_each(|client| client.stopping = true);
                }
                Some(_) if self.now - since > PEACE_US && self.waits_for_operator() => {
                    tell!(self, "two give no vote: an operator is needed, as the guide says");
                    self.phase = Phase::Over;
                }
                Some(missing) if self.now - since > PEACE_US => {
                    for (node, there) in self.nodes.iter().enumerate() {
                        let progress = there.process.as_ref().map(|there| there.member.progress());
                        tell!(self, "{node}: {progress:?}");
                    }
                    self.fail(format!("{} s after the last fault {missing}", PEACE_US / 1_000_000));
                }
                Some(_) => {}
            },
            Phase::Leaving(since) => match self.what_is_under_way() {
                None => {
                    let verdict = self.verdict();
                    self.check(verdict);
                    self.phase = Phase::Over;
                }
                Some(what) if self.now - since > PEACE_US => {
                    self.fail(format!("after all clients left {what}"));
                }
                Some(_) => {}
            },
        }
        self.plan_in(LOOK_US, Event::Look);
    }

    /// Folders of several instances were put back, so that what they know of each other's starts is
    /// of different times: a healthy one may be taken for put back, too, and two give no vote. That
    /// is safe, and only an operator knows better (docs/adr, peers remember starts).
    fn waits_for_operator(&self) -> bool {
        let put_back = self.nodes.iter().filter(|node| node.was_put_back).count();
        let votes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        let votes = votes.filter(|process| process.member.may_vote()).count();
        put_back > 1 && votes < 2 && self.leader().is_none()
    }

    fn leader(&self) -> Option<At> {
        (0..3).filter_map(|node| self.at(node)).find(|at| {
            let process = self.nodes[at.node].process.as_ref();
            process
                .is_some_and(|process| process.is_active() && process.member.role() == Role::Leader)
        })
    }

    fn what_is_missing(&mut self, since: u64) -> Option<String> {
        let Some(leader) = self.leader() else { return Some("no instance is active".into()) };
        let committed = self.nodes[leader.node].process.as_ref()?.member.committed();
        let goal = *self.goal.get_or_insert(committed);
        for (node, there) in self.nodes.iter().enumerate() {
            let Some(process) = &there.process else {
                return Some(format!("instance {node} does not run"));
            };
            let has = process.member.committed();
            if has < goal {
                return Some(format!("instance {node} has {has} batches of {goal}"));
            }
            if !process.member.may_vote() {
                return Some(format!("instance {node} does not vote"));
            }
        }
        let waits = self.clients.iter().find(|client| client.progress_at <= since)?;
        Some(format!("client {} was not served", waits.number))
    }

    fn what_is_under_way(&mut self) -> Option<String> {
        let Some(leader) = self.leader() else { return Some("no instance is active".into()) };
        let last = self.nodes[leader.node].disk.last();
        if let Some(client) = self.clients.iter().find(|client| client.connection.is_some()) {
            return Some(format!("client {} is still there", client.number));
        }
        let active = self.process(leader)?.active()?;
        if active.instance.runs_pending() > 0 || active.journal.waiting() != CommitUrgency::Nothing
        {
            return Some("something is on its way to the log".into());
        }
        if active.instance.has_work() {
            // What comes back in slices may still log something.
            return Some("work is left".into());
        }
        if !self.process(leader)?.connections.is_empty() {
            return Some("connections are still there".into());
        }
        for node in 0..3 {
            let process = self.nodes[node].process.as_ref();
            let committed = process.map_or(0, |process| process.member.committed());
            if committed != last || self.nodes[node].disk.last() != last {
                return Some(format!("instance {node} has {committed} batches of {last}"));
            }
        }
        None
    }

    /// The end of the run: everything is compared.
    fn verdict(&mut self) -> Result<(), String> {
        let Some(at) = self.leader() else { return Err("no instance is active".into()) };
        let queues = self.queues();
        let node = &mut self.nodes[at.node];
        let Some(process) = node.process.as_mut() else { return Ok(()) };
        let now = process.clock.local(self.now);
        let Stage::Active(active) = &mut process.stage else { return Ok(()) };
        let instance = &mut active.instance;
        let journal = &active.journal;
        let rows = view::browse(instance, &node.disk, now, journal, &queues)?;
        let depths = view::depths(instance, &node.disk, now, journal)?;
        self.judge_depths(&rows, &depths)?;
        self.judge_rows(&rows)?;
        let persistent: Vec<Row> = rows.into_iter().filter(|row| row.persistent).collect();
        let all = self.committed.len() as u64;
        let reference = self.reference(all)?;
        same("the active", "its log", &persistent, &reference)?;
        for node in 0..3 {
            let there = self.restarted(node)?;
            same(&format!("instance {node}"), "the log", &there, &reference)?;
            self.counts.compared += 1;
        }
        Ok(())
    }

    fn judge_depths(&self, rows: &[Row], depths: &[(String, u64)]) -> Result<(), String> {
        let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
        rows.iter().for_each(|row| *counted.entry(&row.queue).or_default() += 1);
        for (queue, depth) in depths {
            let there = counted.get(queue.as_str()).copied().unwrap_or(0);
            if there != *depth {
                return Err(format!("{queue} has depth {depth}, but {there} messages"));
            }
        }
        Ok(())
    }

    fn judge_rows(&self, rows: &[Row]) -> Result<(), String> {
        let mut present = BTreeSet::new();
        for queue in 0..self.plan.queues {
            let name = queue_name(queue);
            let mut browsed = Vec::new();
            for row in rows.iter().filter(|row| row.queue == name) {
                let number = self.history.identify(&row.content)?;
                let put = &self.history.puts[number];
                if (put.queue, put.priority) != (queue, row.priority) {
                    return Err(format!("message {number} is another one: {put:?}, {row:?}"));
                }
                browsed.push(number);
            }
            self.history.check_order(&browsed)?;
            present.extend(browsed);
        }
        self.history.judge(&present)
    }

    /// What the queues hold by the log alone, without images, up to this batch.
    fn reference(&self, upto: u64) -> Result<Vec<Row>, String> {
        let mut disk = Disk::default();
        for batch in self.committed.iter().take_while(|batch| batch.index <= upto) {
            disk.push(batch.clone());
        }
        self.replayed(&disk, Pages::Ignored)
    }

    /// What an instance would hold that starts from its disk.
    fn restarted(&self, node: usize) -> Result<Vec<Row>, String> {
        self.replayed(&self.nodes[node].disk, Pages::Whole)
    }

    fn replayed(&self, disk: &Disk, pages: Pages) -> Result<Vec<Row>, String> {
        let image = disk.image.as_ref();
        let bytes = image.map(|image| image.bytes.as_slice());
        let at = image.map_or(Lsn::ZERO, |image| image.at);
        let begun = Restart::begin("QMS", self.limits(), self.plan.extent_bytes, bytes, pages);
        let mut restart = begun.map_err(|error| error.to_string())?;
        let mut runs = Runs::default();
        for index in disk.base.index + 1..=disk.last() {
            let Some(batch) = disk.batch(index) else { return Err(format!("no batch {index}")) };
            if batch.end() <= at {
                continue;
            }
            for (lsn, record) in runs.push(batch) {
                let applied = restart.record(lsn, &record, &|page| disk.page(page));
                applied.map_err(|error| error.to_string())?;
            }
            if batch.payload.is_empty() {
                restart.new_term(batch.lsn);
            }
        }
        view::look_into(restart, disk.last_place().end, disk, Time(0), &self.queues())
    }

    /// A replica that ends is asked what it holds.
    pub(crate) fn compare_replica(
        &mut self,
        node: usize,
        stage: Stage,
        seam: Option<BatchPlace>,
        next: u64,
    ) {
        let (Stage::Warm(restart), Some(seam)) = (stage, seam) else { return };
        if seam.index + 1 != next || !self.dice.chance(COMPARED_PER_MILLE) {
            return;
        }
        let disk = &self.nodes[node].disk;
        let here = view::look_into(*restart, seam.end, disk, Time(0), &self.queues());
        let result = here.and_then(|here| {
            let reference = self.reference(seam.index)?;
            same(&format!("replica {node} at {}", seam.index), "the log", &here, &reference)
        });
        self.counts.compared += 1;
        self.check(result);
    }
}

/// What is held here is what the log says. A backout that was counted when it was decided is in an
/// image even if its record was never committed: there may be more of them here, never less.
fn same(name: &str, other_name: &str, rows: &[Row], others: &[Row]) -> Result<(), String> {
    let equal = |(row, other): (&Row, &Row)| {
        let backouts = row.backouts;
        row.backouts >= other.backouts && *row == Row { backouts, ..other.clone() }
    };
    if rows.len() == others.len() && rows.iter().zip(others).all(equal) {
        return Ok(());
    }
    let here = rows.len();
    let there = others.len();
    let first = rows.iter().zip(others).find(|pair| !equal(*pair));
    Err(format!("{name} holds {here} messages, {other_name} {there}; first to differ: {first:?}"))
}
