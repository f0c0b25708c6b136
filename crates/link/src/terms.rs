//! What instances of one group must have in common, said with each hello and compared by both ends.
//!
//! A binding term that differs is a reason to refuse the connection: the group would number its
//! members differently, or one instance could not take what another one decides. Another term that
//! differs is reported, and the connection stands: it could be changed on one instance after the
//! other.
//!
//! Not here: what the terms are (`group::agreement`), the bytes around them (`hello`). Invariant:
//! the text of a refusal names both values, and is the same at both ends.

use std::time::Duration;

use bytes::{Buf, BufMut};
use towline_types::{FormatLevels, fitting};

use super::text::{put_text, text};

/// Name of the term with the format level in force. Programs that know of no levels say 1, and
/// compare it as text.
const RECORDS: &str = "the version of records";
/// Name of the term with the newest format level that a program reads.
const LEVEL_READ: &str = "newest format level read";
/// Name of the term with the id of the log: 32 hexadecimal digits. An empty log takes another one,
/// so that it is for its instance to compare.
const LOG: &str = "log id";
/// Name of the term with the interval between heartbeats.
pub const INTERVAL: &str = "group.heartbeat_interval_ms";
/// Name of the term with the time without heartbeats after which an instance is taken for lost.
pub const TIMEOUT: &str = "group.heartbeat_timeout_ms";
/// Signs of life that must fit into the time after which their absence counts: with fewer, one that
/// is late makes an election.
const SIGNS_MIN: u32 = 2;

/// Bytes that the terms of a configuration may take in a hello, those of levels not counted: the
/// longest names and reports fit beside them.
pub const TERMS_BYTES_MAX: usize = 1_400;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    name: String,
    value: String,
    binding: bool,
}

impl Terms {
    /// One that must be equal.
    pub fn bind(&mut self, name: &str, value: impl ToString) {
        self.add(name, value.to_string(), true);
    }

    /// One that should be.
    pub fn mention(&mut self, name: &str, value: impl ToString) {
        self.add(name, value.to_string(), false);
    }

    /// What they take in a hello.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let mut body = Vec::new();
        self.encode(&mut body);
        body.len()
    }

    /// With the format levels of this moment.
    #[must_use]
    pub(super) fn with_levels(&self, levels: FormatLevels) -> Terms {
        let mut terms = self.clone();
        terms.bind(RECORDS, levels.in_force);
        terms.mention(LEVEL_READ, levels.read);
        terms
    }

    /// The format levels that were said.
    pub(super) fn levels(&self) -> FormatLevels {
        let said = |name: &str| self.value(name).and_then(|value| value.parse().ok());
        let unsaid = FormatLevels::default();
        FormatLevels {
            in_force: said(RECORDS).unwrap_or(unsaid.in_force),
            read: said(LEVEL_READ).unwrap_or(unsaid.read),
        }
    }

    /// With the id of the log; 0: nothing is said.
    #[must_use]
    pub(super) fn with_log(mut self, id: u128) -> Terms {
        if id != 0 {
            self.mention(LOG, format!("{id:032x}"));
        }
        self
    }

    /// The id of the log that was said; 0: none.
    pub(super) fn log(&self) -> u128 {
        self.value(LOG).and_then(|value| u128::from_str_radix(value, 16).ok()).unwrap_or(0)
    }

    fn add(&mut self, name: &str, value: String, binding: bool) {
        self.terms.push(Term { name: name.to_owned(), value, binding });
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.name == name).map(|term| term.value.as_str())
    }

    fn time(&self, name: &str) -> Option<Duration> {
        self.value(name)?.parse().ok().map(Duration::from_millis)
    }

    /// Compares the terms of `here` and `there`, each with the name of its instance. What differs
    /// and does not matter at once is returned.
    ///
    /// # Errors
    /// What differs and must not, with both values. What only one of both knows is left out: a
    /// later version may have more.
    pub(super) fn compared(here: (&str, &Terms), there: (&str, &Terms)) -> Result<String, String> {
        let [one, other] = if here.0 <= there.0 { [here, there] } else { [there, here] };
        let mut wrong = Vec::new();
        let mut odd = Vec::new();
        let both_know = [one, other].iter().all(|side| side.1.value(LEVEL_READ).is_some());
        for term in &one.1.terms {
            // Levels are no texts: what is in force here must be read there.
            let is_of_level = [RECORDS, LEVEL_READ].contains(&term.name.as_str());
            if (both_know && is_of_level) || term.name == LOG {
                continue;
            }
            let Some(value) = other.1.value(&term.name) else { continue };
            if value == term.value {
                continue;
            }
            let text = format!(
                "{} is '{}' at '{}' and '{}' at '{}'",
                term.name.escape_default(),
                term.value.escape_default(),
                one.0.escape_default(),
                value.escape_default(),
                other.0.escape_default()
            );
            if term.binding { &mut wrong } else { &mut odd }.push(text);
        }
        for (log, reader) in [(one, other), (other, one)] {
            let (level, read) = (log.1.levels().in_force, reader.1.levels().read);
            if both_know && level > read {
                wrong.push(format!(
                    "the log of '{}' has format level {level} and '{}' reads up to {read}",
                    log.0.escape_default(),
                    reader.0.escape_default()
                ));
            }
        }
        for (quick, slow) in [(one.1, other.1), (other.1, one.1)] {
            if let (Some(timeout), Some(interval)) = (quick.time(TIMEOUT), slow.time(INTERVAL))
                && timeout < interval.saturating_mul(SIGNS_MIN)
            {
                wrong.append(&mut odd);
            }
        }
        if wrong.is_empty() { Ok(odd.join("; ")) } else { Err(wrong.join("; ")) }
    }

    pub(super) fn encode(&self, body: &mut Vec<u8>) {
        body.put_u8(fitting(self.terms.len()));
        for term in &self.terms {
            body.put_u8(u8::from(term.binding));
            put_text(body, &term.name);
            put_text(body, &term.value);
        }
    }

    pub(super) fn decode(body: &mut &[u8]) -> Option<Terms> {
        let count = body.try_get_u8().ok()?;
        let mut terms = Terms::default();
        for _ in 0..count {
            let binding = body.try_get_u8().ok()? != 0;
            let name = text(body)?;
            let value = text(body)?;
            terms.terms.push(Term { name, value, binding });
        }
        Some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(extent_bytes: u64, deadq: &str, times: [u64; 2]) -> Terms {
        let mut terms = Terms::default();
        terms.bind("log.extent_bytes", extent_bytes);
        terms.mention("queue_manager.deadq", deadq);
        terms.mention(INTERVAL, times[0]);
        terms.mention(TIMEOUT, times[1]);
        terms
    }

    #[test]
    fn what_must_be_equal_is_refused_with_both_values_and_in_the_same_words_at_both_ends() {
        let here = terms(4_194_304, "D", [250, 2_000]);
        let there = terms(8_388_608, "D", [250, 2_000]);
        let why = Terms::compared(("a", &here), ("c", &there)).unwrap_err();
        assert_eq!(why, "log.extent_bytes is '4194304' at 'a' and '8388608' at 'c'");
        assert_eq!(Terms::compared(("c", &there), ("a", &here)).unwrap_err(), why);
    }

    #[test]
    fn what_should_be_equal_is_reported() {
        let here = terms(1, "D", [250, 2_000]);
        let odd = Terms::compared(("a", &here), ("b", &terms(1, "E", [250, 2_000]))).unwrap();
        assert_eq!(odd, "queue_manager.deadq is 'D' at 'a' and 'E' at 'b'");
        assert_eq!(Terms::compared(("a", &here), ("b", &here)).unwrap(), "");
    }

    #[test]
    fn times_may_differ_as_long_as_signs_of_life_come_in_time() {
        let here = terms(1, "D", [250, 2_000]);
        let slower = terms(1, "D", [1_000, 9_000]);
        let odd = Terms::compared(("a", &here), ("b", &slower)).unwrap();
        assert!(odd.contains("'250' at 'a' and '1000' at 'b'"), "{odd}");
        let too_slow = terms(1, "D", [1_001, 9_000]);
        let why = Terms::compared(("b", &too_slow), ("a", &here)).unwrap_err();
        assert!(why.contains("'2000' at 'a' and '9000' at 'b'"), "{why}");
    }

    fn levels(in_force: u8, read: u8) -> Terms {
        terms(1, "D", [250, 2_000]).with_levels(FormatLevels { in_force, read })
    }

    /// What a program that knows of no levels says.
    fn old() -> Terms {
        let mut old = terms(1, "D", [250, 2_000]);
        old.bind(RECORDS, 1);
        old
    }

    #[test]
    fn a_level_that_is_in_force_must_be_read_by_the_other() {
        let agree = |here: &Terms, there: &Terms| Terms::compared(("a", here), ("b", there));
        for (here, there) in [(levels(1, 2), levels(2, 2)), (levels(1, 2), levels(1, 3))] {
            assert_eq!(agree(&here, &there), Ok(String::new()));
            assert_eq!(agree(&there, &here), Ok(String::new()));
        }
        let why = agree(&levels(2, 2), &levels(3, 3)).unwrap_err();
        assert_eq!(why, "the log of 'b' has format level 3 and 'a' reads up to 2");
        let there = levels(3, 3);
        assert_eq!(Terms::compared(("b", &there), ("a", &levels(2, 2))), Err(why));
    }

    #[test]
    fn a_program_that_knows_of_no_levels_agrees_with_level_1_alone() {
        for here in [&levels(1, 2), &old()] {
            assert_eq!(Terms::compared(("a", here), ("b", &old())), Ok(String::new()));
            assert_eq!(Terms::compared(("a", &old()), ("b", here)), Ok(String::new()));
        }
        let why = Terms::compared(("a", &levels(2, 2)), ("b", &old())).unwrap_err();
        assert_eq!(why, "the version of records is '2' at 'a' and '1' at 'b'");
        assert_eq!(old().levels(), FormatLevels::default());
    }

    #[test]
    fn what_only_one_of_both_says_is_no_difference() {
        let mut later = terms(1, "D", [250, 2_000]);
        later.bind("something new", "x");
        let here = terms(1, "D", [250, 2_000]);
        assert_eq!(Terms::compared(("a", &here), ("b", &later)), Ok(String::new()));
        assert_eq!(Terms::compared(("a", &later), ("b", &here)), Ok(String::new()));
    }
}
