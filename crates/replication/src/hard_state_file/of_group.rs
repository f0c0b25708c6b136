//! Which instance a data folder belongs to, of a group of how many, and what was noted in it.
//!
//! Not here: what was promised, and for which log. Nothing is changed here.

use std::path::Path;

use towline_group::{HardState, MemberId};
use towline_os::fs;

use super::{HardStateFile, NAME, NOTE, Slot};

/// Members of a group of which a hard state says nothing: a version that does not say it knows no
/// other ones.
const MEMBERS_UNSAID: usize = 3;

/// Whether this is the data folder of an instance of a group. It is one, whether or not its hard
/// state can be read, from its first start on.
///
/// # Errors
/// When the folder cannot be looked into.
pub fn is_folder_of_group(data: &Path) -> std::io::Result<bool> {
    Ok(fs::try_exists(data.join(NAME))? || fs::try_exists(data.join(NOTE))?)
}

impl HardStateFile {
    /// The member that this hard state belongs to, if that is known.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn owner(&self) -> std::io::Result<Option<MemberId>> {
        Ok(self.newest(NAME)?.and_then(|slot| slot.owner))
    }

    /// How many members the group had in which it was kept; `None`: nothing is kept.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn members_count(&self) -> std::io::Result<Option<usize>> {
        let count = |slot: Slot| match slot.members_count {
            0 => MEMBERS_UNSAID,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        };
        Ok(self.newest(NAME)?.map(count))
    }

    /// What was noted as committed, also where the hard state itself is lost: index and end count.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn noted(&self) -> std::io::Result<Option<HardState>> {
        Ok(self.newest(NOTE)?.map(|slot| slot.hard_state))
    }
}
