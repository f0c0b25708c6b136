//! What the process itself has the instance decide, and no client asks for.
//!
//! Not here: when (the daemon says so).

use towline_core::{BeginHistory, Refusal};
use towline_types::{HistoryId, LevelRaise, Lsn};

use super::{Door, Inner};

impl Door {
    /// Defines the objects of a new queue manager, when it has no object at all.
    pub fn define_defaults(&self) {
        let now = self.clock.wall();
        let journal = self.journal();
        self.with_inner(|Inner { instance, out, .. }| {
            crate::defaults::define(instance, now, &journal, out);
            crate::defaults::warn_of_undefined_names(instance);
        });
    }

    /// Raises the format level of the log to this one: all programs that read it know it.
    pub fn raise_format_level(&self, to: u8) -> LevelRaise {
        let now = self.clock.wall();
        let journal = self.journal();
        let raised = self.with_inner(|Inner { instance, out, level_said, .. }| {
            if instance.object_names().next().is_none() {
                // Of a log that begins now no other program knows.
                *level_said = to;
            }
            instance.raise_format_level(now, to, &journal, out)
        });
        // There is no free space, which is reported.
        raised.unwrap_or(LevelRaise::Refused)
    }

    /// Begins a history, for the daemon: see [`Instance::begin_history`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_history(&self, begin: &BeginHistory) -> Result<(), Refusal> {
        let now = self.clock.wall();
        let journal = self.journal();
        self.with_inner(|Inner { instance, out, .. }| {
            instance.begin_history(now, begin, &journal, out)
        })
    }

    /// Begins the first history of the log, which is that of group `live`, under a new random name.
    ///
    /// # Errors
    /// As [`Door::begin_history`], in words.
    pub fn begin_first_history(&self, live: &str, cause: &str) -> Result<(), String> {
        let begin = BeginHistory {
            id: HistoryId(towline_process::random::bytes()),
            live: live.to_owned(),
            fork: Lsn::ZERO,
            began: self.clock.wall(),
            cause: cause.to_owned(),
        };
        self.begin_history(&begin).map_err(|refusal| refusal.to_string())
    }
}
