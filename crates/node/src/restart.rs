//! Restart: the newest image, then the facts of the log, run by run. There is no undo: a run without
//! its end was never committed and is dropped.

use std::fmt;

use towline_core::{Effect, Fact, Limits, Outputs, QueueManager, RecordError, ReplayError, record};
use towline_types::Lsn;

use crate::instance::Instance;

/// Why an instance cannot be brought back from its log.
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
            RestartError::Replay { lsn, error } => write!(out, "the record at {lsn}: {error}"),
        }
    }
}

impl std::error::Error for RestartError {}

/// An instance that is being brought back.
#[derive(Debug)]
pub struct Restart {
    instance: Instance,
    image_at: Lsn,
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
    ) -> Result<Restart, RestartError> {
        let (image_at, rules) = match image {
            None => (Lsn::ZERO, QueueManager::new(limits)),
            Some(image) => {
                let short = RecordError { offset: 0, what: "an image begins with its position" };
                let (at, snapshot) = image.split_first_chunk().ok_or(RestartError::Image(short))?;
                let rules = QueueManager::restore(snapshot, limits);
                (Lsn(u64::from_le_bytes(*at)), rules.map_err(RestartError::Image)?)
            }
        };
        let instance = Instance::around(name, rules, extent_bytes);
        let (run, outputs) = (Vec::new(), Outputs::default());
        Ok(Restart { instance, image_at, run, outputs, facts: 0 })
    }

    /// Takes the next record of the log, whose first byte is at `lsn`.
    ///
    /// # Errors
    /// When it is not one of ours, or does not fit.
    pub fn record(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<(), RestartError> {
        let (fact, last) =
            record::decode(bytes, lsn).map_err(|error| RestartError::Record { lsn, error })?;
        self.run.push((lsn, fact));
        if !last {
            return Ok(());
        }
        for (lsn, fact) in self.run.drain(..) {
            let before_image = lsn < self.image_at;
            self.instance
                .rules
                .replay(fact, before_image, &mut self.outputs)
                .map_err(|error| RestartError::Replay { lsn, error })?;
            self.facts += 1;
        }
        self.account();
        Ok(())
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
                // Nobody is connected yet.
                Effect::Deliver(_)
                | Effect::Drained { .. }
                | Effect::ConsumerClosed { .. }
                | Effect::UnitRolledBack { .. }
                | Effect::Fetch { .. } => {}
            }
        }
    }
}
