//! Names and passwords as they are compared: SASLprep (RFC 4013), so that a user that types the
//! same characters on another keyboard is the same user.
//!
//! It judges nothing: text that SASLprep does not allow (control characters, letters that are
//! younger than Unicode 3.2, directions that mix) is compared as it came, and so do most peers.

use std::borrow::Cow;

/// The text as it is compared: compatibility forms replaced (NFKC), exotic spaces made plain ones,
/// invisible characters left out. ASCII stays as it is.
#[must_use]
pub fn prepared(text: &str) -> Cow<'_, str> {
    stringprep::saslprep(text).unwrap_or(Cow::Borrowed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4013_come_out_as_there() {
        let examples = [
            ("I\u{ad}X", "IX"),
            ("user", "user"),
            ("USER", "USER"),
            ("\u{aa}", "a"),
            ("\u{2168}", "IX"),
        ];
        for (text, expected) in examples {
            assert_eq!(prepared(text), expected);
        }
    }

    #[test]
    fn what_is_not_allowed_stays_as_it_came() {
        for text in ["\u{7}", "\u{627}1", "\u{1f600}"] {
            assert_eq!(prepared(text), text);
        }
    }

    #[test]
    fn one_letter_written_in_two_ways_is_one() {
        assert_eq!(prepared("Zu\u{308}rich"), prepared("Z\u{fc}rich"));
        assert_eq!(prepared("a\u{a0}b"), "a b");
    }
}
