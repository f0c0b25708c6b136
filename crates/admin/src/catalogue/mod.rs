//! Every message that the product writes for an operator: replies to commands and lines of the log,
//! by id. The page docs/reference/messages.md is made from this table.
//!
//! An id is `TWL`, four digits and a letter: `I` (information), `W` (odd, but it goes on), `E` (a
//! human must act). Thousands: 1 start and stop, 2 recovery log, 3 clients, 4 group, 5 refusals, 8
//! commands. An id is never given to another meaning.

/// The entries of a table, and a list of all of them with that name.
macro_rules! entries {
    ($list:ident; $($name:ident = $id:literal $template:literal, $explanation:literal;)*) => {
        $(
            #[doc = $template]
            pub const $name: Entry =
                Entry { id: $id, template: $template, explanation: $explanation };
        )*
        /// All entries of this table, by id.
        pub(super) const $list: &[&Entry] = &[$(&$name),*];
    };
}

mod entries;
mod regions;

use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use towline_core::Refusal;
use towline_types::printable_entry;

pub use entries::*;
pub use regions::*;

use entries::ENTRIES;
use regions::REGION_ENTRIES;

/// All entries, by id.
pub static ALL: LazyLock<Vec<&Entry>> = LazyLock::new(|| {
    let mut all = [ENTRIES, REGION_ENTRIES].concat();
    all.sort_by_key(|entry| entry.id);
    all
});

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// All is well.
    Information,
    /// Odd, but it goes on.
    Warning,
    /// A human must act.
    Error,
}

/// One message of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Such as `TWL8006I`.
    pub id: &'static str,
    /// The text; each `{name}` stands for something that is filled in, in order.
    pub template: &'static str,
    /// What happened, and what to do about it.
    pub explanation: &'static str,
}

/// A message of the catalogue, filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Such as `TWL8006I`.
    pub id: String,
    /// The last letter of the id.
    pub severity: Severity,
    /// The text without the id.
    pub text: String,
}

impl Entry {
    /// The last letter of the id.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.id.as_bytes().last() {
            Some(b'I') => Severity::Information,
            Some(b'W') => Severity::Warning,
            Some(_) | None => Severity::Error,
        }
    }

    /// The four digits of the id.
    fn number(&self) -> Option<u32> {
        self.id.get(3..7).and_then(|digits| digits.parse().ok())
    }

    /// The message with its placeholders replaced, in order.
    ///
    /// # Panics
    /// When there are more or fewer values than placeholders.
    #[must_use]
    pub fn message(&self, values: &[&str]) -> Message {
        Message { id: self.id.into(), severity: self.severity(), text: self.text(values) }
    }

    /// The text alone, with its placeholders replaced. What stands for them may be what a client
    /// said: it does not command a terminal, and forges no line of a log.
    ///
    /// # Panics
    /// As [`Entry::message`].
    #[must_use]
    pub fn text(&self, values: &[&str]) -> String {
        let mut text = String::with_capacity(self.template.len());
        let mut values = values.iter();
        let mut rest = self.template;
        while let Some((before, behind)) = rest.split_once('{') {
            let placeholder = behind.split_once('}');
            let (value, (_, after)) = match (values.next(), placeholder) {
                (Some(value), Some(placeholder)) => (value, placeholder),
                (_, _) => unreachable!("{}: too few values for its placeholders", self.id),
            };
            text.push_str(before);
            text.push_str(&printable_entry(value));
            rest = after;
        }
        assert!(values.next().is_none(), "{}: too many values for its placeholders", self.id);
        text.push_str(rest);
        text
    }
}

impl fmt::Display for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.id, self.text)
    }
}

/// The entry of an id as a user types it: `TWL1012E`, in any case, with or without its letter or
/// `TWL`.
///
/// # Errors
/// Those with the nearest numbers; none when it is no number at all.
pub fn find(typed: &str) -> Result<&'static Entry, Vec<&'static Entry>> {
    /// So many are shown.
    const NEAREST: usize = 3;
    let upper = typed.trim().trim_end_matches([':', '.']).to_ascii_uppercase();
    let id = upper.strip_prefix("TWL").unwrap_or(&upper);
    let number = id.strip_suffix(['I', 'W', 'E']).unwrap_or(id);
    let known = |entry: &&&Entry| entry.number() == number.parse().ok();
    let Ok(wanted) = number.parse::<u32>() else { return Err(Vec::new()) };
    if let Some(entry) = ALL.iter().find(known) {
        return Ok(entry);
    }
    let mut nearest: Vec<&Entry> = ALL.to_vec();
    nearest.sort_by_key(|entry| entry.number().unwrap_or_default().abs_diff(wanted));
    nearest.truncate(NEAREST);
    nearest.sort_by_key(|entry| entry.id);
    Err(nearest)
}

/// The first id of a message in a text.
#[must_use]
pub fn id_in(text: &str) -> Option<&'static str> {
    let mut words = text.split(|each: char| !each.is_ascii_alphanumeric());
    words.find_map(|word| ALL.iter().find(|entry| entry.id == word).map(|entry| entry.id))
}

/// The message for a refused command or request. One id for each refusal.
#[must_use]
pub fn of_refusal(refusal: &Refusal) -> Message {
    entry_of_refusal(refusal).message(&[&refusal.to_string()])
}

/// The entry for a refusal; its only placeholder is the refusal's own text.
#[must_use]
pub fn entry_of_refusal(refusal: &Refusal) -> &'static Entry {
    match refusal {
        Refusal::UnknownQueue(_)
        | Refusal::UnknownQueueButCase { .. }
        | Refusal::UnknownModel { .. }
        | Refusal::UnknownObject { .. } => &UNKNOWN_QUEUE,
        Refusal::BadName(_) => &BAD_NAME,
        Refusal::BadAlias(_) => &BAD_ALIAS,
        Refusal::PutInhibited(_) => &PUT_INHIBITED,
        Refusal::GetInhibited(_) => &GET_INHIBITED,
        Refusal::QueueFull { .. } => &QUEUE_FULL,
        Refusal::MessageTooLong { .. } => &MESSAGE_TOO_LONG,
        Refusal::QueueInUse(_) | Refusal::BelongsToOther(_) => &QUEUE_IN_USE,
        Refusal::UnitTooManyMessages { .. } => &UNIT_TOO_MANY_MESSAGES,
        Refusal::UnitsTooManyPuts { .. } => &UNITS_TOO_MANY_PUTS,
        Refusal::UnitTooLarge { .. } => &UNIT_TOO_LARGE,
        Refusal::UnitTooOld { .. } => &UNIT_TOO_OLD,
        Refusal::UnitHeldLog { .. } => &UNIT_HELD_LOG,
        Refusal::UnitDoomed => &UNIT_DOOMED,
        Refusal::UnknownUnit => &UNKNOWN_UNIT,
        Refusal::TooManyUnits { .. } => &TOO_MANY_UNITS,
        Refusal::AlreadyExists(_) => &ALREADY_EXISTS,
        Refusal::WrongType { .. } => &WRONG_TYPE,
        Refusal::ObjectOpen(_) => &OBJECT_OPEN,
        Refusal::NotEmpty { .. } => &NOT_EMPTY,
        Refusal::Uncommitted(_) => &UNCOMMITTED,
        Refusal::BadAttribute { .. } => &BAD_ATTRIBUTE,
        Refusal::MemoryFull { .. } => &MEMORY_FULL,
        Refusal::LogFull => &LOG_FULL_REFUSED,
        Refusal::Ending => &ENDING_REFUSED,
        Refusal::NotLive { .. } => &NOT_LIVE,
        Refusal::Fenced { .. } => &FENCED_REFUSED,
        Refusal::NoHistory { .. } => &HISTORY_REFUSED,
        Refusal::NotAuthorized(_) => &NOT_AUTHORIZED,
        Refusal::Deleted(_) => &OBJECT_DELETED,
        Refusal::MessageDamaged { .. } => &MESSAGE_UNREADABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_well_formed_ascending_and_unique() {
        let mut before = 0;
        for entry in ALL.iter() {
            let (number, letter) = entry.id.strip_prefix("TWL").unwrap().split_at(4);
            let number: u32 = number.parse().unwrap();
            assert!(["I", "W", "E"].contains(&letter), "{}", entry.id);
            assert!(number > before, "{} is out of order or double", entry.id);
            assert!(!entry.explanation.is_empty(), "{}", entry.id);
            before = number;
        }
    }

    #[test]
    fn an_entry_is_found_however_its_id_is_typed_and_else_the_nearest_ones() {
        for typed in ["TWL1012E", "twl1012e", "TWL1012", "1012", " TWL1012E: ", "twl1012i"] {
            assert_eq!(find(typed), Ok(&LISTEN_FAILED), "{typed}");
        }
        let near: Vec<&str> = find("1018e").unwrap_err().iter().map(|near| near.id).collect();
        assert_eq!(near, ["TWL1016E", "TWL1017E", "TWL1019E"]);
        assert_eq!(find("TWL99999999").unwrap_err().len(), 3);
        assert!(find("quorum").unwrap_err().is_empty());
        assert!(ALL.iter().all(|entry| find(entry.id) == Ok(*entry)));
    }

    #[test]
    fn an_id_is_found_in_a_text() {
        assert_eq!(id_in("x: TWL1012E: Cannot listen on y"), Some("TWL1012E"));
        assert_eq!(id_in("XTWL1012E TWL7"), None);
    }

    #[test]
    fn texts_have_no_runs_of_blanks_and_no_blanks_at_their_ends() {
        for entry in ALL.iter() {
            for text in [entry.template, entry.explanation] {
                assert!(!text.contains("  ") && !text.contains('\n'), "{}: {text}", entry.id);
                assert_eq!(text.trim(), text, "{}", entry.id);
            }
        }
    }

    #[test]
    fn places_are_filled_in_order_and_only_once() {
        let message = QUEUE_CREATED.message(&["A{B}"]);
        assert_eq!(message.to_string(), "TWL8006I: Queue 'A{B}' created.");
        assert_eq!(message.severity, Severity::Information);
    }

    #[test]
    fn what_is_filled_in_commands_no_terminal_and_forges_no_line() {
        let said = "x\u{1b}[2J\r\n2026-11-27T18:00:00Z  INFO forged\u{202e}";
        let text = QUEUE_CREATED.text(&[said]);
        assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text:?}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("    ")), "{text}");
    }
}
