//! Format levels: what a log may hold. What came with each is listed in `core`
//! (`record/fields`).

/// The level of a log that says nothing of levels.
pub const FORMAT_LEVEL_FIRST: u8 = 1;
/// The newest level that this program reads.
pub const FORMAT_LEVEL: u8 = 3;
/// To this level a log is raised without being asked, once all programs that read it know it.
pub const FORMAT_LEVEL_UNASKED: u8 = 2;
/// To this one when the queue manager becomes one of two regions, and not before: the log of
/// another one stays readable to programs that know of no histories.
pub const FORMAT_LEVEL_OF_REGIONS: u8 = 3;

const _: () = assert!(FORMAT_LEVEL_UNASKED <= FORMAT_LEVEL);
const _: () = assert!(FORMAT_LEVEL_OF_REGIONS <= FORMAT_LEVEL);

/// What came of an attempt to raise the format level of a log to the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelRaise {
    /// It is in force: applied, and with that durable, in a group committed.
    InForce,
    /// The record that raises it is decided, now or before, and not applied.
    OnItsWay,
    /// Nothing was decided: there is no space in the log, or the queue manager ends.
    Refused,
}

/// What one instance of a group says of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatLevels {
    /// What its log holds, or is about to.
    pub in_force: u8,
    /// The newest one that its program reads.
    pub read: u8,
}

impl Default for FormatLevels {
    /// Those of a program that knows of no levels.
    fn default() -> FormatLevels {
        FormatLevels { in_force: FORMAT_LEVEL_FIRST, read: FORMAT_LEVEL_FIRST }
    }
}
