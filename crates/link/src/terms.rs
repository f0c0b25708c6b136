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
use towline_types::fitting;

use super::text::{put_text, text};

/// Name of the term with the interval between heartbeats.
pub const INTERVAL: &str = "group.heartbeat_interval_ms";
/// Name of the term with the time without heartbeats after which an instance is taken for lost.
pub const TIMEOUT: &str = "group.heartbeat_timeout_ms";
/// Signs of life that must fit into the time after which their absence counts: with fewer, one that
/// is late makes an election.
const SIGNS_MIN: u32 = 2;

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
        for term in &one.1.terms {
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

    #[test]
    fn what_only_one_of_both_says_is_no_difference() {
        let mut later = terms(1, "D", [250, 2_000]);
        later.bind("something new", "x");
        let here = terms(1, "D", [250, 2_000]);
        assert_eq!(Terms::compared(("a", &here), ("b", &later)), Ok(String::new()));
        assert_eq!(Terms::compared(("a", &later), ("b", &here)), Ok(String::new()));
    }
}
