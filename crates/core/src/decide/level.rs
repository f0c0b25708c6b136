//! The format level of the log: what it may hold.
//!
//! Not here: when it may be raised (`engine`, `replica`: once all programs that read the log know
//! it), and what came with each level (`record/fields.rs`).

use towline_types::{FORMAT_LEVEL, FORMAT_LEVEL_FIRST, LevelRaise};

use crate::fact::{Durability, Fact};
use crate::request::Decision;
use crate::{QueueManager, Refusal};

impl QueueManager {
    /// The format level in force: of what was applied.
    #[must_use]
    pub fn format_level(&self) -> u8 {
        self.level
    }

    /// Raises the format level to this one, which this program must know: once; what was decided is
    /// not decided again while it is on its way.
    ///
    /// # Errors
    /// The log is full, the queue manager is ending, or another group is live.
    ///
    /// # Panics
    /// This program does not know the level.
    pub fn raise_level(&mut self, to: u8, out: &mut Decision) -> Result<LevelRaise, Refusal> {
        assert!(to <= FORMAT_LEVEL, "a log at level {to} could not be read again");
        self.begin(out)?;
        if self.level >= to {
            return Ok(LevelRaise::InForce);
        }
        if self.level_on_its_way < to {
            self.check_accepting()?;
            self.level_on_its_way = to;
            out.push_logged(Fact::Level { level: to }, Durability::Forced);
        }
        Ok(LevelRaise::OnItsWay)
    }

    /// Logs the level that is in force once more. It changes nothing: whoever has acknowledged the
    /// log behind it has done so since now.
    ///
    /// # Errors
    /// The log is at the first level, which is not logged; this group is not live, or is fenced.
    pub fn restate_level(&mut self, out: &mut Decision) -> Result<(), Refusal> {
        self.begin(out)?;
        if self.level == FORMAT_LEVEL_FIRST {
            let why = "the log is still at the first format level".to_owned();
            return Err(Refusal::NoHistory { why });
        }
        out.push_logged(Fact::Level { level: self.level }, Durability::Forced);
        Ok(())
    }
}
