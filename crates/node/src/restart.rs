//! Restart: the newest image, then the facts of the log, run by run. There is no undo: a run
//! without its end was never committed and is dropped.
//!
//! An image is *whole* when its messages are on pages: then only what came after it is replayed.
//! When pages are damaged (or the image is of version 1) the messages are found in the log, which
//! is replayed from its oldest extent on.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use towline_core::{
    Effect, Fact, LaterFormat, Limits, Outputs, PAGE_VERSION, PageRequest, Pages, QueueManager,
    RecordError, ReplayError, record, snapshot,
};
use towline_types::{Lsn, PageRef, fitting};

use crate::instance::Instance;

/// A part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// The newest image.
    Image,
    /// The record at this position.
    Record(Lsn),
    /// A page.
    Page(PageRef),
}

impl LogPart {
    /// The newest version of its layout that this program reads.
    #[must_use]
    pub fn version(self) -> u8 {
        match self {
            LogPart::Image => snapshot::VERSION,
            LogPart::Record(_) => record::VERSION,
            LogPart::Page(_) => PAGE_VERSION,
        }
    }
}

impl fmt::Display for LogPart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPart::Image => write!(out, "the image"),
            LogPart::Record(lsn) => write!(out, "the record at {lsn}"),
            LogPart::Page(page) => write!(out, "the page at unit {}", page.unit),
        }
    }
}

/// Why an instance cannot be restored from its log.
#[derive(Debug)]
pub enum RestartError {
    /// The image is not one of ours.
    Image(RecordError),
    /// A record of the log is not one of ours.
    Record {
        /// Where.
        lsn: Lsn,
        /// What is wrong.
        error: RecordError,
    },
    /// A part of the log was written by a later version of this program.
    Newer {
        /// Which.
        part: LogPart,
        /// What is there.
        found: LaterFormat,
    },
    /// A page cannot be read, or says something else than the image: the queues can be rebuilt from
    /// the log (`Pages::Ignored`).
    Page {
        /// Which.
        page: PageRef,
        /// What is wrong; `None`: it could not be read.
        error: Option<RecordError>,
    },
    /// A record does not fit what came before it.
    Replay {
        /// Where.
        lsn: Lsn,
        /// What is wrong.
        error: ReplayError,
    },
}

impl fmt::Display for RestartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestartError::Image(error) => write!(out, "the image cannot be read: {error}"),
            RestartError::Record { lsn, error } => {
                write!(out, "the record at {lsn} cannot be read: {error}")
            }
            RestartError::Newer { part, found } => {
                let known = found.known(part.version());
                write!(out, "{part} has {found}, this program reads up to {known}")
            }
            RestartError::Replay { lsn, error } => write!(out, "the record at {lsn}: {error}"),
            RestartError::Page { page, error: Some(error) } => {
                write!(out, "the page at unit {} is damaged: {error}", page.unit)
            }
            RestartError::Page { page, error: None } => {
                write!(out, "the page at unit {} cannot be read", page.unit)
            }
        }
    }
}

impl std::error::Error for RestartError {}

impl RestartError {
    fn of_image(error: RecordError) -> RestartError {
        RestartError::newer(LogPart::Image, error).unwrap_or(RestartError::Image(error))
    }

    fn of_record(lsn: Lsn, error: RecordError) -> RestartError {
        let newer = RestartError::newer(LogPart::Record(lsn), error);
        newer.unwrap_or(RestartError::Record { lsn, error })
    }

    /// To rebuild the queues would empty the page file: what a later version wrote stays.
    fn of_page(page: PageRef, error: RecordError) -> RestartError {
        let newer = RestartError::newer(LogPart::Page(page), error);
        newer.unwrap_or(RestartError::Page { page, error: Some(error) })
    }

    fn newer(part: LogPart, error: RecordError) -> Option<RestartError> {
        error.later.map(|found| RestartError::Newer { part, found })
    }
}

/// An instance that is being restored.
#[derive(Debug)]
pub struct Restart {
    instance: Instance,
    image_at: Lsn,
    whole: bool,
    run: Vec<(Lsn, Fact)>,
    outputs: Outputs,
    /// Facts applied.
    pub facts: u64,
}

impl Restart {
    /// Begins with the newest image, if there is one.
    ///
    /// # Errors
    /// When the image cannot be read.
    pub fn begin(
        name: &str,
        limits: Limits,
        extent_bytes: u64,
        image: Option<&[u8]>,
        pages: Pages,
    ) -> Result<Restart, RestartError> {
        let limits = Limits { extent_bytes, ..limits };
        let (image_at, whole, rules) = match image {
            None => (Lsn::ZERO, false, QueueManager::new(limits)),
            Some(image) => {
                let short = RecordError::malformed(0, "an image begins with its position");
                let (at, content) = image.split_first_chunk().ok_or(RestartError::Image(short))?;
                let restored = QueueManager::restore(content, limits, pages);
                let restored = restored.map_err(RestartError::of_image)?;
                (Lsn(u64::from_le_bytes(*at)), restored.whole, restored.rules)
            }
        };
        let instance = Instance::around(name, rules, extent_bytes);
        let run = Vec::new();
        let outputs = Outputs::default();
        Ok(Restart { instance, image_at, whole, run, outputs, facts: 0 })
    }

    /// Whether the image has its messages: only what came after it need be replayed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The position of the image; zero without one.
    #[must_use]
    pub fn image_at(&self) -> Lsn {
        self.image_at
    }

    /// The pages that the image refers to.
    pub fn pages(&self) -> impl Iterator<Item = PageRef> {
        self.instance.pages()
    }

    /// The instance, for eviction while a long log is replayed.
    pub fn instance(&mut self) -> &mut Instance {
        &mut self.instance
    }

    /// The extents that hold messages, and how many bodies or parts of large ones each holds:
    /// without any one of them a message cannot be read. What open units of work have in the log
    /// does not count: it goes with the restart.
    #[must_use]
    pub fn live_extents(&self) -> BTreeMap<u64, u64> {
        self.instance.live.bodies_without(self.instance.rules.bodies_in_progress())
    }

    /// Of the extents `wanted`: how many bodies, or parts of large ones, belong to messages that
    /// were set aside as damaged. They are among those of [`Restart::live_extents`], and nothing
    /// more is lost without them. Reads pages.
    #[must_use]
    pub fn set_aside_in(
        &self,
        wanted: &dyn Fn(u64) -> bool,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for body in self.instance.rules.bodies_set_aside(wanted, read) {
            let extent = body.lsn.0 / self.instance.live.extent_bytes();
            if wanted(extent) {
                *counts.entry(extent).or_default() += 1;
            }
        }
        counts
    }

    /// Takes the next record of the log, with its first byte at `lsn`. `read` reads a page; `None`
    /// when it cannot.
    ///
    /// # Errors
    /// When it is not one of ours, or does not fit, or a page is damaged.
    pub fn record(
        &mut self,
        lsn: Lsn,
        bytes: &[u8],
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Result<(), RestartError> {
        if self.whole && lsn < self.image_at {
            return Ok(());
        }
        let (fact, last) =
            record::decode(bytes, lsn).map_err(|error| RestartError::of_record(lsn, error))?;
        let ascends = self.run.last().is_none_or(|(before, _)| *before < lsn);
        assert!(ascends, "the record at {lsn} stands before one that was taken already");
        self.run.push((lsn, fact));
        if !last {
            return Ok(());
        }
        self.complete_part();
        for (lsn, fact) in std::mem::take(&mut self.run) {
            let before_image = lsn < self.image_at;
            while let Some(request) = self.instance.rules.page_before(&fact) {
                self.read_page(request, read)?;
            }
            self.instance
                .rules
                .replay(fact, before_image, &mut self.outputs)
                .map_err(|error| RestartError::Replay { lsn, error })?;
            self.facts += 1;
            self.carry_out_completed(lsn, read)?;
        }
        let ended = self.instance.rules.replay_run_end();
        ended.map_err(|error| RestartError::Replay { lsn, error })?;
        self.account();
        Ok(())
    }

    fn read_page(
        &mut self,
        request: PageRequest,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Result<(), RestartError> {
        let page = request.page;
        let content = read(page).ok_or(RestartError::Page { page, error: None })?;
        self.instance
            .rules
            .page_arrived(request, &content)
            .map_err(|error| RestartError::of_page(page, error))
    }

    /// What the fact at `lsn` completed is carried out before the next one.
    fn carry_out_completed(
        &mut self,
        lsn: Lsn,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Result<(), RestartError> {
        loop {
            while let Some(request) = self.instance.rules.page_before_completed() {
                self.read_page(request, read)?;
            }
            let more = self
                .instance
                .rules
                .replay_completed(lsn < self.image_at, &mut self.outputs)
                .map_err(|error| RestartError::Replay { lsn, error })?;
            if !more {
                return Ok(());
            }
        }
    }

    /// A log that is read from its oldest extent on may begin within a run. Of a part of a commit,
    /// what is left is kept aside too: its end says what it is.
    fn complete_part(&mut self) {
        let Some((lsn, Fact::Part { commit, operations: 0 })) = self.run.last() else { return };
        let has_head = self
            .run
            .iter()
            .any(|(_, fact)| matches!(fact, Fact::Part { operations, .. } if *operations > 0));
        if has_head || *lsn >= self.image_at {
            return;
        }
        let (commit, first) = (*commit, self.run.first().map_or(*lsn, |(lsn, _)| *lsn));
        let chunks =
            self.run.iter().take_while(|(_, fact)| matches!(fact, Fact::BodyChunk { .. })).count();
        let operations = fitting(self.run.len() - chunks - 1);
        self.run.insert(chunks, (first, Fact::Part { commit, operations }));
    }

    /// Another process, or another leader, wrote the log from the batch at `at` on: units of work
    /// that were open are gone, and what they sent to the log ahead with them; so is a commit in
    /// parts that was not completed. Must be called wherever the log is read, live or at a start:
    /// no image can be taken while such a commit seems to be on its way.
    pub fn new_term(&mut self, at: Lsn) {
        if self.whole && at < self.image_at {
            return; // The image knows the outcome.
        }
        self.run.clear();
        self.instance.rules.replay_new_term(&mut self.outputs);
        self.account();
    }

    /// All runs that end at or before `at` were given, and no other: images may be taken of it.
    ///
    /// # Panics
    /// Inside a run.
    pub fn reached(&mut self, at: Lsn) {
        assert!(self.run.is_empty(), "a position that was reached lies between runs");
        self.instance.resume_at(at);
    }

    /// The log is read to its end.
    #[must_use]
    pub fn finish(mut self, tail: Lsn) -> Instance {
        self.run.clear();
        self.instance.rules.replay_end(&mut self.outputs);
        self.account();
        self.instance.resume_at(tail);
        self.instance
    }

    fn account(&mut self) {
        for effect in self.outputs.effects.drain(..) {
            match effect {
                Effect::Stored { location } => self.instance.live.stored(location),
                Effect::Removed { location } => self.instance.live.removed(location),
                Effect::RemovedMany { locations } => {
                    locations.into_iter().for_each(|at| self.instance.live.removed(at));
                }
                Effect::RemovedFrom { share } => self.instance.live.removed_share(share),
                // No client is connected yet.
                Effect::Deliver(_)
                | Effect::Drained { .. }
                | Effect::ConsumerClosed { .. }
                | Effect::UnitRolledBack { .. }
                | Effect::LoadPage { .. }
                | Effect::Fetch { .. } => {}
            }
        }
    }
}
