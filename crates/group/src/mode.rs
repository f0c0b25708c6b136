//! What part a member has in its own group: kept with the hard state.
//!
//! Not here: what a member does in each mode (`member`).

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Votes and leads.
    #[default]
    Voting,
    /// Receives the log of a live group in another region: it gives no vote and never stands.
    Recovery,
    /// It was a recovery member, and takes nothing of the live group any more: it votes and stands,
    /// and becomes [`Mode::Voting`] when the log says that the history has begun.
    Promoting,
}

impl Mode {
    /// Whether a member in this mode takes part in elections.
    #[must_use]
    pub fn elects(self) -> bool {
        match self {
            Mode::Voting | Mode::Promoting => true,
            Mode::Recovery => false,
        }
    }

    /// As it is kept.
    pub(crate) fn number(self) -> u8 {
        match self {
            Mode::Voting => 0,
            Mode::Recovery => 1,
            Mode::Promoting => 2,
        }
    }

    /// From what is kept; `None`: of another version.
    pub(crate) fn of_number(number: u8) -> Option<Mode> {
        [Mode::Voting, Mode::Recovery, Mode::Promoting]
            .into_iter()
            .find(|mode| mode.number() == number)
    }
}
