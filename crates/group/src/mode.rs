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

/// What a log says of which group is live, as far as it can be read at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSays {
    /// It has no batch.
    Empty,
    /// It has batches, and no history.
    Nothing,
    /// Its newest history is one of the own group.
    OwnLive,
    /// Its newest history is one of the other group.
    OtherLive,
}

/// See [`Mode::at_start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl Mode {
    /// Whether a member in this mode takes part in elections.
    #[must_use]
    pub fn elects(self) -> bool {
        match self {
            Mode::Voting | Mode::Promoting => true,
            Mode::Recovery => false,
        }
    }

    /// With which mode a process starts. What is kept with a mark was durable before anything was
    /// said in it, and the log may not say so yet, or not as far as it is applied; without a mark
    /// the log says which group is live, and only where it is empty the configuration does.
    ///
    /// # Errors
    /// The log has batches and does not say which group is live, and the group is to begin as a
    /// recovery group: nothing would say which group's these are.
    pub fn at_start(kept: Mode, log: LogSays, begins_as: Mode) -> Result<Mode, UnknownMode> {
        match (kept, log) {
            (Mode::Recovery | Mode::Promoting, _) => Ok(kept),
            (Mode::Voting, LogSays::OwnLive) => Ok(Mode::Voting),
            (Mode::Voting, LogSays::OtherLive) => Ok(Mode::Recovery),
            (Mode::Voting, LogSays::Empty) => Ok(begins_as),
            (Mode::Voting, LogSays::Nothing) => match begins_as {
                Mode::Voting => Ok(Mode::Voting),
                Mode::Recovery | Mode::Promoting => Err(UnknownMode),
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_has_the_mode_that_was_marked_else_that_of_the_log_and_of_an_empty_one_the_configured()
     {
        use LogSays::{Empty, Nothing, OtherLive, OwnLive};
        use Mode::{Promoting, Recovery, Voting};
        // Kept, what the log says; then what the group begins as: live, recovery.
        let table = [
            (Voting, Empty, [Ok(Voting), Ok(Recovery)]),
            (Voting, Nothing, [Ok(Voting), Err(UnknownMode)]),
            (Voting, OwnLive, [Ok(Voting); 2]),
            (Voting, OtherLive, [Ok(Recovery); 2]),
            (Recovery, Empty, [Ok(Recovery); 2]),
            (Recovery, Nothing, [Ok(Recovery); 2]),
            (Recovery, OwnLive, [Ok(Recovery); 2]),
            (Recovery, OtherLive, [Ok(Recovery); 2]),
            (Promoting, Empty, [Ok(Promoting); 2]),
            (Promoting, Nothing, [Ok(Promoting); 2]),
            (Promoting, OwnLive, [Ok(Promoting); 2]),
            (Promoting, OtherLive, [Ok(Promoting); 2]),
        ];
        for (kept, log, modes) in table {
            for (begins_as, mode) in [Voting, Recovery].into_iter().zip(modes) {
                assert_eq!(Mode::at_start(kept, log, begins_as), mode, "{kept:?} {log:?}");
            }
        }
    }
}
