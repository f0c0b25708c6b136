//! An instance that serves clients: its steps, its answers, its batches, its images.

use bytes::Bytes;
use towline_core::{ConnectionId, NewMessage, PageRequest};
use towline_group::Input as MemberInput;
use towline_node::{ImagePlan, Input, Outbound, PutTo, Request, Response, RoutedResponse};
use towline_types::{FORMAT_LEVEL_UNASKED, Lsn, PageRef, Payload};

use super::{ADMINISTRATOR, At, Event, SCRATCH, World, tell};
use crate::client::{Answer, queue_name};
use crate::disk::{Disk, Image};
use crate::history::Speaker;
use crate::journal::CommitUrgency;
use crate::process::Stage;
use crate::view::content_of;

/// What no client waits for goes to the log after so long, in microseconds.
const LAZY_US: u64 = 1_000;

impl World {
    /// Steps an active and carries out what it wants.
    pub(crate) fn step(&mut self, at: At, input: Input<'_>) {
        let now = self.now;
        let Some(process) = self.process(at) else { return };
        let local = process.clock.local(now);
        let Some(active) = process.active() else { return };
        let mut out = std::mem::take(&mut active.out);
        active.instance.step(local, input, &active.journal, &mut out);
        self.take_outbound(at, &mut out);
        if let Some(active) = self.process(at).and_then(|process| process.active()) {
            active.out = out;
        }
        self.flush(at);
    }

    fn take_outbound(&mut self, at: At, out: &mut Outbound) {
        if let Some(error) = out.damage.take() {
            self.fail(format!("{}: a page is damaged: {error}", at.node));
        }
        for request in out.pages.drain(..) {
            let after = 20 + self.dice.below(2_000);
            self.plan_in(after, Event::PageRead { at, request });
        }
        for routed in out.routed.drain(..) {
            self.route(at, routed);
        }
    }

    /// An answer leaves the instance: what it promises counts from here on.
    fn route(&mut self, at: At, RoutedResponse { connection, response }: RoutedResponse) {
        let Some(process) = self.nodes[at.node].process.as_ref() else { return };
        let known = process.connections.get(&connection).copied();
        let term = process.leading.map_or(0, |leading| leading.term);
        let speaker = Speaker { node: at.node, process: at.process, term };
        if connection == ADMINISTRATOR {
            return;
        }
        let answer = match self.promise(speaker, connection, known, response) {
            Ok(answer) => answer,
            Err(broken) => return self.fail(format!("{}: {broken}", at.node)),
        };
        if let (Some((client, _)), Some(answer)) = (known, answer) {
            self.tell_client(client, connection, answer);
        }
    }

    fn promise(
        &mut self,
        speaker: Speaker,
        connection: ConnectionId,
        known: Option<(usize, usize)>,
        response: Response,
    ) -> Result<Option<Answer>, String> {
        let number = |token: u64| usize::try_from(token).unwrap_or(usize::MAX);
        let history = &mut self.history;
        Ok(Some(match response {
            Response::ProducerOpened { result, .. } => {
                Answer::Producer(result.ok().map(|opened| opened.producer))
            }
            Response::ConsumerOpened { result, .. } => {
                Answer::Consumer(result.ok().map(|opened| opened.consumer))
            }
            Response::Put { token, result, .. } => {
                history.answers(connection.0, Some(number(token)), None);
                history.put_answered(speaker, number(token), result.is_ok())?;
                Answer::Done(result.is_ok())
            }
            Response::Settled { link, result, .. } => {
                history.get_answered(speaker, number(link.0), result.is_ok())?;
                Answer::Done(result.is_ok())
            }
            Response::Declared { token, result } => Answer::Declared(number(token), result.ok()),
            Response::Discharged { token, result, .. } => {
                history.answers(connection.0, None, Some(number(token)));
                history.discharge_answered(speaker, number(token), result.is_ok())?;
                Answer::Done(result.is_ok())
            }
            Response::Deliver(delivery) => {
                let content = content_of(&delivery.body, &self.nodes[speaker.node].disk);
                let content = content.ok_or_else(|| format!("a body is gone: {delivery:?}"))?;
                let queue = known.map_or(usize::MAX, |(_, queue)| queue);
                let message = history.delivered(speaker, connection.0, queue, &content)?;
                Answer::Delivered(message, delivery.sequence)
            }
            Response::Connected { .. }
            | Response::Drained { .. }
            | Response::Withdrawn { .. }
            | Response::ConsumerClosed { .. }
            | Response::UnitRolledBack { .. }
            | Response::Admin(_)
            | Response::Ending(_)
            | Response::Stopped => return Ok(None),
        }))
    }

    /// Requests of a connection arrive.
    pub(crate) fn asks(&mut self, at: At, connection: ConnectionId, requests: &mut Vec<Request>) {
        let leaves = requests.iter().any(|request| matches!(request, Request::Disconnect { .. }));
        self.step(at, Input::Requests { connection, requests });
        if let Some(process) = self.process(at).filter(|_| leaves) {
            process.connections.remove(&connection);
        }
    }

    /// The log has no free space, or has it again.
    pub(crate) fn fill_log(&mut self, at: At, full: bool) {
        if let Some(active) = self.process(at).and_then(|process| process.active()) {
            active.journal.fill(full);
        }
        self.step(at, Input::LogFull(full));
    }

    /// Closes batches and gives them to the group and the disk, when it is time.
    pub(crate) fn flush(&mut self, at: At) {
        let busy = self.nodes[at.node].disk.flight.is_some() && !self.plan.disk.eager;
        let Some(active) = self.process(at).and_then(|process| process.active()) else { return };
        match active.journal.waiting() {
            CommitUrgency::Nothing => {}
            CommitUrgency::Lazy if active.flush_planned => {}
            CommitUrgency::Lazy => {
                active.flush_planned = true;
                self.plan_in(LAZY_US, Event::Flush { at });
            }
            CommitUrgency::Forced if busy => {}
            CommitUrgency::Forced => self.close_batches(at),
        }
    }

    pub(crate) fn flush_lazy(&mut self, at: At) {
        let Some(active) = self.process(at).and_then(|process| process.active()) else { return };
        active.flush_planned = false;
        if active.journal.waiting() != CommitUrgency::Nothing {
            self.close_batches(at);
        }
    }

    fn close_batches(&mut self, at: At) {
        let Some(active) = self.process(at).and_then(|process| process.active()) else { return };
        for batch in active.journal.take() {
            if !self.lives(at) {
                return;
            }
            self.nodes[at.node].disk.push(batch.clone());
            self.start_sync(at);
            self.input(at, MemberInput::Left(batch));
        }
        let active = self.process(at).and_then(|process| process.active());
        if active.is_some_and(|active| active.journal.has_caught_up()) {
            tell!(self, "{}: the log takes runs again", at.node);
            self.counts.logs_behind += 1;
            self.step(at, Input::LogCaughtUp);
        }
    }

    /// A new active: the administrator sees to the queues; those that are there are refused.
    pub(crate) fn welcome(&mut self, at: At) {
        let define = |queue| format!("DEFINE QLOCAL('{}')\n", queue_name(queue));
        let text: String = (0..self.plan.queues).map(define).collect();
        self.administer(at, &text);
    }

    fn administer(&mut self, at: At, text: &str) {
        let request =
            Request::Admin { token: 0, kind: "mqsc".into(), text: text.into(), owner: true };
        let requests = &mut vec![request];
        self.step(at, Input::Requests { connection: ADMINISTRATOR, requests });
    }

    pub(crate) fn tick_instance(&mut self, at: At) {
        let now = self.now;
        let Some(process) = self.process(at) else { return };
        let local = process.clock.local(now);
        let Some(active) = process.active() else { return };
        if active.instance.next_tick() <= local {
            self.step(at, Input::Tick);
        }
        self.raise_level(at);
        self.work(at);
        if self.dice.chance(30) {
            self.change_scratch(at);
        }
    }

    /// Raises the format level, once all builds read the newest one.
    fn raise_level(&mut self, at: At) {
        let from = self.level_from_version;
        let now = self.now;
        if self.nodes.iter().any(|node| node.version < from) {
            return;
        }
        let Some(process) = self.process(at) else { return };
        let local = process.clock.local(now);
        let Some(active) = process.active().filter(|active| !active.is_level_raised) else {
            return;
        };
        let mut out = std::mem::take(&mut active.out);
        // Without space for it the next tick tries again.
        let raised = active.instance.raise_format_level(
            local,
            FORMAT_LEVEL_UNASKED,
            &active.journal,
            &mut out,
        );
        active.is_level_raised = raised.is_ok();
        self.take_outbound(at, &mut out);
        if let Some(active) = self.process(at).and_then(|process| process.active()) {
            active.out = out;
        }
        self.flush(at);
    }

    /// Does what takes longer than a step, a slice at each tick.
    fn work(&mut self, at: At) {
        const UNITS: u32 = 512;
        let Some(process) = self.process(at) else { return };
        if process.active().is_some_and(|active| active.instance.has_work()) {
            self.step(at, Input::Work { units: &mut { UNITS } });
        }
    }

    /// A queue that is defined, filled, cleared, deleted and defined anew.
    fn change_scratch(&mut self, at: At) {
        let text = match self.dice.below(6) {
            0 => format!("DEFINE QLOCAL('{SCRATCH}')"),
            1 => format!("DELETE QLOCAL('{SCRATCH}') PURGE"),
            2 => format!("CLEAR QLOCAL('{SCRATCH}')"),
            3 => format!("ALTER QLOCAL('{SCRATCH}') DEFPRTY({})", self.dice.below(10)),
            _ => {
                let content = Bytes::from(vec![7; self.dice.index(200)]);
                let content = Payload::from(content);
                let message = NewMessage { content, ..NewMessage::default() };
                let put = Request::Put {
                    token: 0,
                    target: PutTo::Name(SCRATCH.into()),
                    message: NewMessage { persistent: Some(true), ..message },
                    unit: None,
                    reply_wanted: false,
                };
                let requests = &mut vec![put];
                return self.step(at, Input::Requests { connection: ADMINISTRATOR, requests });
            }
        };
        self.administer(at, &text);
    }

    pub(crate) fn page_read(&mut self, at: At, request: PageRequest) {
        let content = self.nodes[at.node].disk.page(request.page);
        let Some(active) = self.process(at).and_then(|process| process.active()) else { return };
        match content {
            Some(content) => self.step(at, Input::Page { request, content: &content }),
            None if active.instance.needs_page(request) => {
                self.fail(format!("{}: page {:?} is gone", at.node, request.page));
            }
            None => {}
        }
    }

    /// Takes an image when it is time; it is durable a while later.
    pub(crate) fn image_if_due(&mut self, at: At) {
        let now = self.now;
        let every = self.plan.image_every_us;
        let version = self.nodes[at.node].version;
        let node = &mut self.nodes[at.node];
        let Some(process) = node.process.as_mut().filter(|there| there.number == at.process) else {
            return;
        };
        // Builds differ in when they take images.
        let due = every > 0 && now >= process.image_at + every * (1 + version % 3);
        if !due || process.image_under_way {
            return;
        }
        let next = process.next;
        let seam = process.seam.filter(|seam| seam.index + 1 == next);
        let (bytes, obsolete, image_at, keep_from) = match &mut process.stage {
            Stage::Warm(restart) => {
                let Some(seam) = seam else { return };
                let instance = restart.instance();
                let Some(plan) = instance.plan_image() else { return };
                let (bytes, obsolete) = write_image(plan, instance, &mut node.disk);
                // A replica's restart does not know how far it is: the seam does.
                let bytes = [&seam.end.0.to_le_bytes()[..], &bytes[8..]].concat();
                (bytes, obsolete, seam.end, None)
            }
            Stage::Active(active) => {
                let Some(plan) = active.instance.plan_image() else { return };
                let applied = plan.applied;
                let keep_from = plan.keep_from;
                let (bytes, obsolete) = write_image(plan, &mut active.instance, &mut node.disk);
                (bytes, obsolete, applied, Some(keep_from))
            }
            Stage::Between => return,
        };
        (process.image_at, process.image_under_way) = (now, true);
        let after = 100 + self.dice.below(50_000);
        let image = Image { bytes, at: image_at };
        self.plan_in(after, Event::ImageWritten { at, image, obsolete, keep_from });
    }

    pub(crate) fn image_written(
        &mut self,
        at: At,
        image: Image,
        obsolete: &[PageRef],
        keep_from: Option<Lsn>,
    ) {
        tell!(self, "{}: image at {}", at.node, image.at);
        self.counts.images += 1;
        let upto = image.at;
        let disk = &mut self.nodes[at.node].disk;
        disk.image = Some(image.into());
        disk.drop_pages(obsolete);
        if let Some(process) = self.process(at) {
            process.image_under_way = false;
        }
        if self.dice.chance(self.plan.forget_per_mille) {
            self.forget(at, upto);
            if let Some(keep_from) = keep_from {
                self.nodes[at.node].disk.reclaim(keep_from);
            }
        }
    }
}

/// Writes the pages of an image, and then says what it says.
fn write_image(
    mut plan: ImagePlan,
    instance: &mut towline_node::Instance,
    disk: &mut Disk,
) -> (Vec<u8>, Vec<PageRef>) {
    let written = plan.jobs().iter().map(|job| {
        let mut content = Vec::new();
        let draft = job.encode(&mut content)?;
        Some(draft.stored_at(disk.write_page(content)))
    });
    let stored: Vec<_> = written.collect();
    let bytes = plan.encode(&stored);
    instance.pages_stored(stored.into_iter().flatten().collect(), false);
    (bytes, plan.take_obsolete())
}
