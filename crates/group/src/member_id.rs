//! The number of a member in consensus.
//!
//! Not here: how members get their numbers (the caller orders them by name).

/// Names a member: never 0, the same for all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// Stands for a vote that was given, or may have been, when it is not known to which
    /// member: no member has this name, so that none is given the vote of that term again.
    pub const NONE_OF_THEM: MemberId = MemberId(u64::MAX);

    /// Stands for the sender of batches that come from outside the group: the live group of another
    /// region, directly or through a relay. No member has this name, so that none can be taken for
    /// it, and no answer of the library to it is sent to anyone.
    pub const OUTSIDE: MemberId = MemberId(u64::MAX - 1);
}
