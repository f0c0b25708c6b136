//! Objects that are there from the first start on, and the format level of the log.
//!
//! Not here: which ones (the daemon says so).

use towline_core::command::{Define, DefineModel, LocalChanges};
use towline_core::object::QueueKind;
use towline_core::{DanglingNames, Decision, Principal, QueueManager, Refusal};
use towline_types::{LevelRaise, Time};

use super::{Instance, Outbound};
use crate::journal::Journal;

impl Instance {
    /// Names of all objects.
    pub fn object_names(&self) -> impl Iterator<Item = &str> {
        self.rules.definitions().map(|definition| definition.name())
    }

    /// See [`towline_core::QueueManager::dangling`].
    #[must_use]
    pub fn dangling(&self) -> DanglingNames {
        self.rules.dangling()
    }

    /// The format level of the log.
    #[must_use]
    pub fn format_level(&self) -> u8 {
        self.rules.format_level()
    }

    /// Raises the format level of the log to this one, which this program must know.
    ///
    /// # Errors
    /// The log has no free space, or is behind: nothing is decided, so that the readers of the log
    /// can be looked at again before it is appended.
    pub fn raise_format_level(
        &mut self,
        now: Time,
        to: u8,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> Result<LevelRaise, Refusal> {
        if self.is_stalled() {
            return Err(Refusal::LogFull);
        }
        self.decide_for_process(now, journal, out, |rules, decision| {
            rules.raise_level(to, decision)
        })
    }

    /// Decides what the process itself asks for, and carries it out.
    pub(crate) fn decide_for_process<R>(
        &mut self,
        now: Time,
        journal: &dyn Journal,
        out: &mut Outbound,
        decide: impl FnOnce(&mut QueueManager, &mut Decision) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        assert_eq!(self.decision.principal, Principal::Internal, "it is not between requests");
        let decided = decide(&mut self.rules, &mut self.decision);
        self.carry_out(now, None, journal, out);
        decided
    }

    /// Defines a local queue that every new queue manager has.
    ///
    /// # Errors
    /// The log has no free space.
    pub fn define_default_queue(
        &mut self,
        now: Time,
        name: &str,
        description: &str,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> Result<(), Refusal> {
        let changes =
            LocalChanges { description: Some(description.to_owned()), ..LocalChanges::default() };
        let define = Define { name: name.to_owned(), replace: false, like: None, changes };
        let defined = self.rules.define_local(now, &define, &mut self.decision);
        self.carry_out(now, None, journal, out);
        defined
    }

    /// Defines a model queue that every new queue manager has.
    ///
    /// # Errors
    /// The log has no free space.
    pub fn define_default_model(
        &mut self,
        now: Time,
        name: &str,
        kind: QueueKind,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> Result<(), Refusal> {
        let changes = LocalChanges::default();
        let define = Define { name: name.to_owned(), replace: false, like: None, changes };
        let model = DefineModel { define, kind: Some(kind) };
        let defined = self.rules.define_model(now, &model, &mut self.decision);
        self.carry_out(now, None, journal, out);
        defined
    }
}
