//! Why the roles of two regions changed: what was ordered, by whom, at which instance. It is the
//! cause of a history, as text.
//!
//! ```text
//! switch, ordered by NAME at instance 'INSTANCE'
//! fail-over, ordered by NAME at instance 'INSTANCE'
//! drill, ordered by NAME at instance 'INSTANCE', back after SECONDS s
//! return of a drill, ordered by NAME at instance 'INSTANCE'
//! ```
//!
//! The word before the first comma says what it was, so no name can make one change another. What
//! follows the name is read from the end, where only the instance wrote.
//!
//! Not here: when a history begins. Invariant: a text that [`ChangeCause`] wrote is read back as
//! the same value, unless the name was cut to fit.

use std::fmt;

use crate::limits::{GROUP_NAME_BYTES_MAX, HISTORY_CAUSE_BYTES_MAX};

const BY: &str = ", ordered by ";
const AT: &str = " at instance '";
const BACK: &str = "', back after ";

/// What was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A planned change, without loss.
    Switch,
    /// A promotion without the live group.
    Failover,
    /// The first half of a drill: a switch that is followed by one back.
    Drill {
        /// The group that is live then switches back after so many seconds.
        back_after_s: u64,
    },
    /// The second half of a drill.
    DrillReturn,
}

impl ChangeKind {
    /// As the cause has it, before the first comma.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            ChangeKind::Switch => "switch",
            ChangeKind::Failover => "fail-over",
            ChangeKind::Drill { .. } => "drill",
            ChangeKind::DrillReturn => "return of a drill",
        }
    }

    /// As status and reports have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ChangeKind::Switch => "switch",
            ChangeKind::Failover => "failover",
            ChangeKind::Drill { .. } => "drill",
            ChangeKind::DrillReturn => "drill_return",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeCause {
    /// What was ordered.
    pub kind: ChangeKind,
    /// The user that ordered it.
    pub by: String,
    /// The instance at which it was ordered.
    pub instance: String,
}

impl ChangeCause {
    /// Reads the cause of a history; `None`: it is none of those above.
    #[must_use]
    pub fn parse(cause: &str) -> Option<ChangeCause> {
        let (word, rest) = cause.split_once(BY)?;
        let kinds = [
            ChangeKind::Switch,
            ChangeKind::Failover,
            ChangeKind::Drill { back_after_s: 0 },
            ChangeKind::DrillReturn,
        ];
        let kind = kinds.into_iter().find(|kind| kind.word() == word)?;
        let (kind, rest) = match kind {
            ChangeKind::Drill { .. } => {
                let (rest, seconds) = rest.rsplit_once(BACK)?;
                let back_after_s = seconds.strip_suffix(" s")?.parse().ok()?;
                (ChangeKind::Drill { back_after_s }, rest)
            }
            ChangeKind::Switch | ChangeKind::Failover | ChangeKind::DrillReturn => {
                (kind, rest.strip_suffix('\'')?)
            }
        };
        let (by, instance) = rest.rsplit_once(AT)?;
        Some(ChangeCause { kind, by: by.to_owned(), instance: instance.to_owned() })
    }
}

impl fmt::Display for ChangeCause {
    /// At most [`HISTORY_CAUSE_BYTES_MAX`] bytes: a longer name is cut at the end.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.kind {
            ChangeKind::Drill { back_after_s } => format!("{BACK}{back_after_s} s"),
            ChangeKind::Switch | ChangeKind::Failover | ChangeKind::DrillReturn => "'".to_owned(),
        };
        let others = self.kind.word().len() + BY.len() + AT.len() + self.instance.len() + end.len();
        let left = HISTORY_CAUSE_BYTES_MAX.saturating_sub(others);
        let by = self.by.get(..self.by.floor_char_boundary(left)).unwrap_or_default();
        write!(out, "{}{BY}{by}{AT}{}{end}", self.kind.word(), self.instance)
    }
}

// The longest of everything but the name (an instance is called as a group may be): it leaves a
// name of 64 bytes whole.
const _: () = assert!(
    "return of a drill".len() + BY.len() + AT.len() + BACK.len() + 22 + GROUP_NAME_BYTES_MAX + 64
        <= HISTORY_CAUSE_BYTES_MAX
);

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(kind: ChangeKind, by: &str) -> ChangeCause {
        ChangeCause { kind, by: by.into(), instance: "a".into() }
    }

    #[test]
    fn what_was_written_is_read_back_whatever_the_name_is() {
        let names = ["root", "", "a at instance 'b", "x', back after 5 s", "y, ordered by z", "ü"];
        let kinds = [
            ChangeKind::Switch,
            ChangeKind::Failover,
            ChangeKind::Drill { back_after_s: 30 },
            ChangeKind::Drill { back_after_s: u64::MAX },
            ChangeKind::DrillReturn,
        ];
        for by in names {
            for kind in kinds {
                let wanted = cause(kind, by);
                assert_eq!(ChangeCause::parse(&wanted.to_string()), Some(wanted));
            }
        }
        let text = cause(ChangeKind::Switch, "root").to_string();
        assert_eq!(text, "switch, ordered by root at instance 'a'");
    }

    #[test]
    fn no_name_makes_a_switch_a_drill() {
        let by = "drill, ordered by me at instance 'a', back after 5 s";
        let read = ChangeCause::parse(&cause(ChangeKind::Switch, by).to_string()).unwrap();
        assert_eq!((read.kind, &*read.by), (ChangeKind::Switch, by));
    }

    #[test]
    fn a_long_name_is_cut_and_the_rest_stays() {
        for by in ["x".repeat(1_000), "ü".repeat(1_000)] {
            let text = cause(ChangeKind::Drill { back_after_s: 9 }, &by).to_string();
            assert!(text.len() <= HISTORY_CAUSE_BYTES_MAX);
            let read = ChangeCause::parse(&text).unwrap();
            assert_eq!(read.kind, ChangeKind::Drill { back_after_s: 9 });
            assert!(by.starts_with(&read.by) && read.instance == "a");
        }
    }

    #[test]
    fn another_text_is_none() {
        let texts = [
            "",
            "group 'EAST' is its other region",
            "switch, ordered by root",
            "switch, ordered by root at instance 'a",
            "drill, ordered by root at instance 'a'",
            "drill, ordered by root at instance 'a', back after x s",
            "swit",
        ];
        for text in texts {
            assert_eq!(ChangeCause::parse(text), None, "{text}");
        }
    }
}
