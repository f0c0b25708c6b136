//! Every message that the product writes for an operator: replies to commands and lines of the log,
//! by id. The page docs/reference/messages.md is made from this table.
//!
//! An id is `TWL`, four digits and a letter: `I` (information), `W` (odd, but it goes on), `E` (a
//! human must act). Thousands: 1 start and stop, 2 recovery log, 3 clients, 4 group, 5 refusals, 8 commands. An
//! id is never given to another meaning.

mod entries;

use serde::{Deserialize, Serialize};
use towline_core::Refusal;

use crate::reply::Message;
pub use entries::*;

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

    /// The message with its places filled in, in order.
    ///
    /// # Panics
    /// When there are more or fewer values than places.
    #[must_use]
    pub fn message(&self, values: &[&str]) -> Message {
        Message { id: self.id.into(), severity: self.severity(), text: self.text(values) }
    }

    /// The text alone, with its places filled in.
    ///
    /// # Panics
    /// As [`Entry::message`].
    #[must_use]
    pub fn text(&self, values: &[&str]) -> String {
        let mut text = String::with_capacity(self.template.len());
        let mut values = values.iter();
        let mut rest = self.template;
        while let Some((before, behind)) = rest.split_once('{') {
            let place = behind.split_once('}');
            let (value, (_, after)) = match (values.next(), place) {
                (Some(value), Some(place)) => (value, place),
                (_, _) => unreachable!("{}: too few values for its places", self.id),
            };
            text.push_str(before);
            text.push_str(value);
            rest = after;
        }
        assert!(values.next().is_none(), "{}: too many values for its places", self.id);
        text.push_str(rest);
        text
    }
}

/// The message for a refused command or request. One id for each refusal.
#[must_use]
pub fn of_refusal(refusal: &Refusal) -> Message {
    entry_of_refusal(refusal).message(&[&refusal.to_string()])
}

/// The entry for a refusal; its only place is the refusal's own text.
#[must_use]
pub fn entry_of_refusal(refusal: &Refusal) -> &'static Entry {
    match refusal {
        Refusal::UnknownQueue(_) => &UNKNOWN_QUEUE,
        Refusal::BadName(_) => &BAD_NAME,
        Refusal::BadAlias(_) => &BAD_ALIAS,
        Refusal::PutInhibited(_) => &PUT_INHIBITED,
        Refusal::GetInhibited(_) => &GET_INHIBITED,
        Refusal::QueueFull { .. } => &QUEUE_FULL,
        Refusal::MessageTooLong { .. } => &MESSAGE_TOO_LONG,
        Refusal::QueueInUse(_) | Refusal::BelongsToOther(_) => &QUEUE_IN_USE,
        Refusal::UnitTooManyMessages { .. } => &UNIT_TOO_MANY_MESSAGES,
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
        for entry in ALL {
            let (number, letter) = entry.id.strip_prefix("TWL").unwrap().split_at(4);
            let number: u32 = number.parse().unwrap();
            assert!(["I", "W", "E"].contains(&letter), "{}", entry.id);
            assert!(number > before, "{} is out of order or double", entry.id);
            assert!(!entry.explanation.is_empty(), "{}", entry.id);
            before = number;
        }
    }

    #[test]
    fn texts_have_no_runs_of_blanks_and_no_blanks_at_their_ends() {
        for entry in ALL {
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
}
