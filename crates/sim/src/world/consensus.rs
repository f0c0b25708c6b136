//! What a member wants done, and what is committed.

use bytes::Bytes;
use towline_group::{FetchOrder, Input, Message, Output, Role};
use towline_node::Input as NodeInput;
use towline_types::{Batch, Lsn, PageRef};

use super::life::{ProcessEnd, node_of};
use super::{At, Event, World, tell};
use crate::journal::{JournalSizes, SimulatedJournal, next_lsn};
use crate::process::{Active, Stage};

impl World {
    /// Steps a member and carries out what it wants.
    pub(crate) fn input(&mut self, at: At, input: Input) {
        if self.was_put_back_unseen(at) {
            return;
        }
        let now = self.now;
        let Some(process) = self.process(at) else { return };
        let mut out = Output::default();
        process.member.step(process.clock.local(now), input, &mut out);
        self.carry_out(at, out);
    }

    fn carry_out(&mut self, at: At, out: Output) {
        let Output { hard_state, receive, lead, send, fetch, role, copy_from, .. } = out;
        let has_region = out.shipped.is_some() || out.begins_again;
        assert!(!has_region, "no other region ships to a group of this world");
        let node = &mut self.nodes[at.node];
        if let Some(hard_state) = hard_state {
            node.disk.hard_state = hard_state;
        }
        if let Some(role) = role {
            let term = self.process(at).map_or(0, |process| process.member.hard_state().term);
            tell!(self, "{}: {role:?} in term {term}", at.node);
        }
        if role.is_some_and(|role| role != Role::Leader) && self.has_led(at) {
            // Whether what it wanted to say is still said makes no difference to be relied on.
            if self.dice.chance(500) {
                self.send(at, send);
            }
            return self.restart(at.node, ProcessEnd::Exec);
        }
        self.receive(at, receive);
        let leading = lead.map(|term| self.begin_leading(at, term));
        self.send(at, send);
        for order in fetch {
            let after = 50 + self.dice.below(5_000);
            self.plan_in(after, Event::Fetch { at, order });
        }
        if let Some(from) = copy_from {
            return self.begin_copy(at, node_of(from));
        }
        if let Some(batch) = leading {
            self.input(at, Input::Leading(batch.place()));
            self.start_sync(at);
        }
        self.progress(at);
    }

    fn has_led(&mut self, at: At) -> bool {
        self.process(at).is_some_and(|process| process.has_led)
    }

    fn receive(&mut self, at: At, receive: Vec<Batch>) {
        let Some(first) = receive.first().map(|batch| batch.index) else { return };
        let disk = &mut self.nodes[at.node].disk;
        if first <= disk.last() {
            disk.cut(first);
        }
        receive.into_iter().for_each(|batch| disk.push(batch));
        self.start_sync(at);
    }

    /// Leadership begins with an empty batch.
    fn begin_leading(&mut self, at: At, term: u64) -> Batch {
        let block_bytes = self.block_bytes(at.node);
        let disk = &mut self.nodes[at.node].disk;
        let last = disk.last_place();
        let lsn = next_lsn(last.end, block_bytes);
        let batch = Batch { index: last.index + 1, term, lsn, payload: Bytes::new() };
        disk.push(batch.clone());
        if let Some(process) = self.process(at) {
            (process.leading, process.has_led) = (Some(batch.place()), true);
        }
        batch
    }

    /// Builds differ in how they lay out the log.
    pub(crate) fn block_bytes(&self, node: usize) -> u64 {
        if self.nodes[node].version.is_multiple_of(2) { 512 } else { 64 }
    }

    fn send(&mut self, at: At, send: Vec<(towline_group::MemberId, Message)>) {
        for (to, message) in send {
            let message = if self.dice.chance(100) { through_bytes(&message) } else { message };
            let sent = self.network.send(self.now, at.node, node_of(to), message, &mut self.dice);
            for (time, link, parcel) in sent {
                self.plan_at(time, Event::Arrives { link, parcel });
            }
        }
    }

    /// Writes what is not durable, unless the disk is busy.
    pub(crate) fn start_sync(&mut self, at: At) {
        let plan = self.plan.disk;
        let disk = &mut self.nodes[at.node].disk;
        if disk.flight.is_some() || disk.synced >= disk.last() || !self.lives(at) {
            return;
        }
        let node = &mut self.nodes[at.node];
        node.disk.flight = Some(node.disk.last());
        let factor = node.slow_factor;
        let mut after = (plan.sync_us + self.dice.below(plan.sync_more_us)) * factor;
        if self.dice.chance(plan.stall_per_mille) {
            after += self.dice.below(plan.stall_us);
        }
        self.plan_in(after, Event::Synced { at });
    }

    pub(crate) fn synced(&mut self, at: At) {
        let disk = &mut self.nodes[at.node].disk;
        disk.sync_done();
        let end = disk.synced_end();
        self.start_sync(at);
        self.input(at, Input::Durable(end));
        self.flush(at);
        self.start_sync(at);
    }

    /// The member asked to be woken.
    pub(crate) fn try_again(&mut self, at: At) {
        if let Some(process) = self.process(at) {
            process.try_at = None;
        }
        let end = self.nodes[at.node].disk.synced_end();
        self.input(at, Input::Durable(end));
    }

    pub(crate) fn tick(&mut self, at: At) {
        self.input(at, Input::Tick);
        let now = self.now;
        let tick = self.plan.tick;
        let writes_kept = self.dice.chance(100);
        let node = &mut self.nodes[at.node];
        let Some(process) = node.process.as_ref().filter(|there| there.number == at.process) else {
            return;
        };
        if writes_kept {
            node.disk.hard_state = process.member.hard_state();
        }
        let next = process.clock.true_time(process.clock.local(now) + tick);
        self.plan_at(next.max(now + 1), Event::Tick { at });
        self.tick_instance(at);
        self.image_if_due(at);
    }

    pub(crate) fn fetch(&mut self, at: At, order: &FetchOrder) {
        let disk = &self.nodes[at.node].disk;
        let read = order.places.iter().filter_map(|place| disk.batch(place.index)).cloned();
        let batches = read.collect();
        self.input(at, Input::Fetched(order.id, batches));
    }

    /// What follows from what is committed now.
    pub(crate) fn progress(&mut self, at: At) {
        self.compare_committed(at);
        self.compare_vote(at);
        self.apply_committed(at);
        self.tell_seam(at);
        self.finish_restart(at);
        let Some(process) = self.process(at) else { return };
        let wanted = process.member.next_try();
        if let Some(time) = wanted.filter(|time| process.try_at.is_none_or(|at| *time < at)) {
            process.try_at = Some(time);
            let time = process.clock.true_time(time).max(self.now + 1);
            self.plan_at(time, Event::Try { at });
        }
    }

    /// What one sees committed, all see.
    fn compare_committed(&mut self, at: At) {
        let Some(process) = self.nodes[at.node].process.as_mut() else { return };
        let disk = &self.nodes[at.node].disk;
        let upto = process.member.committed();
        if upto > disk.synced {
            let synced = disk.synced;
            let what = format!("{}: committed {upto}, durable {synced}", at.node);
            return self.fail(what);
        }
        let mut broken = None;
        for index in process.compared.max(disk.base.index) + 1..=upto {
            let here = disk.batch(index);
            let known = usize::try_from(index).unwrap_or(usize::MAX) - 1;
            match (here, self.committed.get(known)) {
                (Some(here), Some(known)) if is_same(here, known) => {}
                (Some(here), None) if known == self.committed.len() => {
                    self.committed.push(here.clone());
                }
                _ => broken = Some(index),
            }
        }
        process.compared = process.compared.max(upto);
        if let Some(index) = broken {
            self.fail(format!("{}: batch {index} is committed, but is another one", at.node));
        }
    }

    /// A member that forgot gives no vote before it has again all that was committed when it
    /// forgot.
    fn compare_vote(&mut self, at: At) {
        let Some(owes) = self.nodes[at.node].owes else { return };
        if !self.process(at).is_some_and(|process| process.member.may_vote()) {
            return;
        }
        let disk = &self.nodes[at.node].disk;
        let last =
            owes.checked_sub(1).and_then(|last| self.committed.get(usize::try_from(last).ok()?));
        let has = last.is_none_or(|last| {
            let here = disk.batch(last.index);
            let is_covered = here.is_none() && disk.base.index >= last.index;
            disk.synced >= last.index && (is_covered || here == Some(last))
        });
        if has {
            self.nodes[at.node].owes = None;
        } else {
            let synced = disk.synced;
            self.fail(format!("{}: votes with {synced} batches, and owes {owes}", at.node));
        }
    }

    fn apply_committed(&mut self, at: At) {
        loop {
            let Some(process) = self.process(at) else { return };
            if process.next > process.member.committed() {
                return;
            }
            let index = process.next;
            process.next += 1;
            let Some(batch) = self.nodes[at.node].disk.batch(index).cloned() else {
                return self.fail(format!("{}: committed batch {index} is not there", at.node));
            };
            let is_active = self.process(at).is_some_and(|process| process.is_active());
            if is_active {
                self.apply_active(at, &batch);
            } else {
                self.apply_warm(at, &batch);
            }
        }
    }

    /// Up to where a restart need ask no other instance.
    fn tell_seam(&mut self, at: At) {
        let now = self.now;
        let Some(process) = self.process(at) else { return };
        let Some(seam) =
            process.seam.filter(|seam| seam.index > process.member.hard_state().committed)
        else {
            return;
        };
        let mut out = Output::default();
        process.member.step(process.clock.local(now), Input::Seam(seam), &mut out);
        self.carry_out(at, out);
    }

    fn apply_warm(&mut self, at: At, batch: &Batch) {
        let node = &mut self.nodes[at.node];
        let Some(process) = node.process.as_mut() else { return };
        let Stage::Warm(restart) = &mut process.stage else { return };
        let disk = &node.disk;
        let read = |page: PageRef| disk.page(page);
        let records = process.runs.push(batch);
        let applied =
            records.iter().try_for_each(|(lsn, record)| restart.record(*lsn, record, &read));
        if batch.payload.is_empty() {
            restart.new_term(batch.lsn);
        }
        if let Err(error) = applied {
            let what = format!("{}: batch {} cannot be applied: {error}", at.node, batch.index);
            return self.fail(what);
        }
        if process.runs.is_at_seam() {
            process.seam = Some(batch.place());
        }
    }

    fn apply_active(&mut self, at: At, batch: &Batch) {
        let is_led = self.process(at).is_some_and(|process| process.member.role() == Role::Leader);
        assert!(is_led, "an active leads, or it is no more");
        self.step(at, NodeInput::Durable(batch.end()));
        let Some(process) = self.process(at) else { return };
        let applied = process.active().map_or(Lsn::ZERO, |active| active.instance.applied());
        // Stepping may have led to the next batch before this one was looked at.
        let newer = process.seam.is_none_or(|seam| seam.index < batch.index);
        if newer && applied >= batch.end() {
            process.seam = Some(batch.place());
        }
    }

    /// The first batch of the own term is committed and applied: clients may come.
    fn finish_restart(&mut self, at: At) {
        let sizes = JournalSizes {
            batch_bytes: self.batch_bytes(at.node),
            block_bytes: self.block_bytes(at.node),
            waiting_bytes_max: self.plan.log_waiting_bytes_max,
        };
        let Some(process) = self.process(at) else { return };
        let Some(leading) = process.leading else { return };
        if process.next <= leading.index || !matches!(process.stage, Stage::Warm(_)) {
            return;
        }
        let Stage::Warm(restart) = std::mem::replace(&mut process.stage, Stage::Between) else {
            return;
        };
        let instance = restart.finish(leading.end);
        let journal = SimulatedJournal::behind(leading, sizes);
        let out = Default::default();
        let flush_planned = false;
        let active = Active { instance, journal, out, flush_planned, is_level_raised: false };
        process.stage = Stage::Active(Box::new(active));
        let term = leading.term;
        tell!(self, "{}: ACTIVE in term {term}, from {}", at.node, leading.index);
        self.counts.activations += 1;
        self.welcome(at);
    }

    fn batch_bytes(&self, node: usize) -> usize {
        if self.nodes[node].version.is_multiple_of(3) { self.plan.batch_bytes } else { 1_024 }
    }

    /// Batches before this position are forgotten.
    pub(crate) fn forget(&mut self, at: At, upto: Lsn) {
        self.nodes[at.node].disk.forget(upto);
        let base = self.nodes[at.node].disk.base.end;
        self.input(at, Input::Forget(base));
    }
}

/// Most payloads are one memory that the three share: they are not read again.
fn is_same(one: &Batch, other: &Batch) -> bool {
    let (here, there) = (&one.payload, &other.payload);
    let is_shared = here.as_ptr() == there.as_ptr() && here.len() == there.len();
    one.place() == other.place() && (is_shared || here == there)
}

/// As it would be read from a socket.
fn through_bytes(message: &Message) -> Message {
    let (mut head, payloads) = message.encode();
    payloads.iter().for_each(|payload| head.extend_from_slice(payload));
    let decoded = Message::decode(&Bytes::from(head));
    assert_eq!(decoded.as_ref(), Ok(message), "a message comes back as it was");
    decoded.unwrap_or_else(|_| message.clone())
}
