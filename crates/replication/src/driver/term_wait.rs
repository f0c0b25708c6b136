//! Logs that this instance waits for the terms of the others because it may have forgotten its
//! newest one, and from which it has not heard.
//!
//! Not here: why it waits (`towline_group`, `newest_term`). Invariant: where all others are up,
//! nothing is logged, because they answer at once.

use std::time::Duration;

use towline_admin::catalogue::{GROUP_TERM_KNOWN, GROUP_TERM_UNKNOWN};
use towline_group::MemberId;
use towline_types::Time;

use super::Driver;
use crate::frames::peer_of;
use towline_logging::log as say;

/// Longer than connections to instances that are up take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is said again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Why an instance that was started without extents of its log is not in sync.
const LACKS: &str = "extents of its log are missing: it gets a copy from the active instance, and leads \
                     only when no other instance can";

/// When that it waits is said, once it is known to wait.
#[derive(Debug, Default)]
pub(crate) struct TermWait {
    /// When it is said next.
    next: Option<Time>,
    was_said: bool,
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Nothing,
    Waits,
    Over,
}

impl TermWait {
    fn news(&mut self, waits: bool, now: Time) -> News {
        if !waits {
            let was_said = std::mem::take(self).was_said;
            return if was_said { News::Over } else { News::Nothing };
        }
        if now < *self.next.get_or_insert(now + PATIENCE) {
            return News::Nothing;
        }
        *self = TermWait { next: Some(now + TOLD_AGAIN), was_said: true };
        News::Waits
    }
}

impl Driver {
    /// Says that this instance waits, and for which others, now and then while it does.
    pub(crate) fn log_term_wait(&self) {
        let mut core = self.core.lock();
        let unheard = core.member.unheard();
        let term = core.member.hard_state().term;
        let waits = !core.member.knows_term();
        let news = core.unheard.news(waits, self.now());
        drop(core);
        self.after();
        match news {
            News::Nothing => {}
            News::Waits => say(&GROUP_TERM_UNKNOWN, &[&self.quoted(&unheard)]),
            News::Over => say(&GROUP_TERM_KNOWN, &[&term.to_string()]),
        }
    }

    /// Why this instance takes part in nothing, for a status; empty: it does, as far as terms go.
    pub fn why_silent(&self, unheard: &[MemberId]) -> String {
        let put_back = "its data folder was put back, or is that of a clone";
        if unheard.is_empty() {
            let lacks = self.look(|core| core.member.lacks_batches());
            return match (self.is_put_back(), lacks) {
                (true, _) => format!("{put_back}: it gives no vote before it has caught up"),
                (false, true) => LACKS.to_owned(),
                (false, false) => String::new(),
            };
        }
        let names = self.quoted(unheard);
        let why =
            if self.is_put_back() { put_back } else { "it may have forgotten its newest term" };
        format!("{why}, and waits until it has heard from {names}")
    }

    fn quoted(&self, members: &[MemberId]) -> String {
        let names = members.iter().map(|member| self.name(peer_of(*member)));
        names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_said_when_it_lasts_then_once_a_minute_and_its_end_if_it_was_said() {
        let start = Time(1_000_000);
        let mut wait = TermWait::default();
        let said = |wait: &mut TermWait, second: u64, waits| {
            wait.news(waits, start + Duration::from_secs(second))
        };
        let waits: Vec<u64> =
            (0..130).filter(|second| said(&mut wait, *second, true) == News::Waits).collect();
        assert_eq!(waits, [3, 63, 123]);
        assert_eq!(said(&mut wait, 130, false), News::Over);
        assert_eq!(said(&mut wait, 131, false), News::Nothing);
        assert_eq!(said(&mut wait, 132, true), News::Nothing);
        assert_eq!(said(&mut wait, 134, false), News::Nothing, "it was short");
    }
}
