//! Tables of cases from Jakarta Messaging 3.1, section 3.8.1, and properties of the whole.

use super::{IndexKey, Properties, Selector, Value};

mod truth;

struct Message;

impl Properties for Message {
    fn get(&self, name: &str) -> Value<'_> {
        match name {
            "age" => Value::Long(17),
            "weight" => Value::Double(2500.5),
            "zero" => Value::Long(0),
            "least" => Value::Long(i64::MIN),
            "nan" => Value::Double(f64::NAN),
            "yes" => Value::Boolean(true),
            "no" => Value::Boolean(false),
            "color" => Value::Text("blue"),
            "phone" => Value::Text("12993"),
            "word" => Value::Text("lose"),
            "under" => Value::Text("_foo"),
            "quote" => Value::Text("it's"),
            "two words" => Value::Text("x"),
            "größe" => Value::Text("naïve"),
            "JMSCorrelationID" => Value::Text("c1"),
            "JMSDeliveryMode" => Value::Text("PERSISTENT"),
            _ => Value::Null,
        }
    }
}

#[track_caller]
fn check(text: &str, expected: Value<'_>) {
    let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(selector.program.evaluate(&Message, &mut { usize::MAX }), expected, "{text}");
    assert_eq!(selector.matches(&Message), expected == Value::Boolean(true), "{text}");
}

#[track_caller]
fn all(expected: Value<'_>, texts: &[&str]) {
    for text in texts {
        check(text, expected);
    }
}

const TRUE: Value<'static> = Value::Boolean(true);
const FALSE: Value<'static> = Value::Boolean(false);
const UNKNOWN: Value<'static> = Value::Null;

#[test]
fn comparisons_follow_the_types() {
    all(
        TRUE,
        &[
            "age = 17",
            "age <> 18",
            "age < 17.5",
            "age >= 17",
            "17 = age",
            "weight > 2500",
            "color = 'blue'",
            "color <> 'red'",
            "yes = TRUE",
            "no <> true",
            "age = 17.0",
            "JMSDeliveryMode = 'PERSISTENT'",
            "quote = 'it''s'",
            "größe = 'naïve'",
            "\"two words\" = 'x'",
            "nan <> nan",
            "yes",
            "yes = (age > 3)",
            "TRUE",
        ],
    );
    // Unlike types, and orders of what has none: false, whichever way round.
    all(
        FALSE,
        &[
            "age = '17'",
            "age <> '17'",
            "color = 1",
            "color > 3",
            "yes = 'true'",
            "yes <> 1",
            "nan = nan",
            "nan < 1",
            "no",
            "color < age",
            "yes > no",
        ],
    );
    all(UNKNOWN, &["none = 1", "none <> 'x'", "none > 3", "none", "none = none"]);
    for text in ["age", "color", "(age)"] {
        assert!(!Selector::parse(text).unwrap().matches(&Message), "{text}");
    }
}

#[test]
fn conditions_have_three_values() {
    all(TRUE, &["yes AND yes", "none OR yes", "yes OR none", "not no", "NOT (no AND none)"]);
    all(FALSE, &["no AND none", "none AND no", "yes AND no", "no OR no", "NOT yes"]);
    all(UNKNOWN, &["none AND yes", "yes AND none", "none OR no", "no OR none", "NOT none"]);
    all(TRUE, &["none IS NULL", "age IS NOT NULL", "NOT age IS NULL", "age is not null"]);
    all(FALSE, &["none IS NOT NULL", "age IS NULL"]);
    // A property that is no condition is unknown as one.
    all(UNKNOWN, &["age AND yes", "NOT color", "color OR no"]);
}

#[test]
fn and_binds_tighter_than_or_and_not_tighter_than_and() {
    all(TRUE, &["yes OR no AND no", "NOT no AND yes", "NOT yes OR yes", "NOT age = 3 AND yes"]);
    all(FALSE, &["(yes OR no) AND no", "NOT (no OR yes)", "NOT age = 17"]);
    all(TRUE, &["1 + 2 * 3 = 7", "(1 + 2) * 3 = 9", "10 - 2 - 3 = 5", "8 / 4 / 2 = 1"]);
    all(TRUE, &["-age = -17", "- -age = 17", "2 - -3 = 5", "-2 * -3 = 6", "+age = 17"]);
}

#[test]
fn arithmetic_is_that_of_java() {
    all(
        TRUE,
        &[
            "7 / 2 = 3",
            "7 / 2.0 = 3.5",
            "-7 / 2 = -3",
            "age * 2 = 34",
            "weight + age = 2517.5",
            "9223372036854775807 + 1 = -9223372036854775808",
            "least / -1 = least",
            "-least = least",
            "1 / 0.0 > 1E300",
            "age + 0.5 > 17",
        ],
    );
    all(UNKNOWN, &["age / zero = 1", "none + 1 = 1", "color + 1 = 1", "-color = 1", "+color = 1"]);
}

#[test]
fn literals_are_those_of_java_and_sql() {
    all(
        TRUE,
        &[
            "0x1F = 31",
            "0XfL = 15",
            "017 = 15",
            "0 = 00",
            "17L = age",
            "17l = 17",
            "7E3 = 7000",
            "-57.9E2 = -5790",
            "7. = 7",
            "-95.7 = -95.7D",
            "+6.2 = 6.2f",
            ".5 = 0.5",
            "7D = 7",
            "1e+2 = 100",
            "1E-1 = 0.1",
            "-9223372036854775808 = least",
            "0x7FFFFFFFFFFFFFFF > 1",
            "tRuE",
        ],
    );
    refused("9223372036854775808 > 1", 0, "range of a long");
    refused("age = 08", 6, "not octal");
    refused("age = 17x", 6, "runs into");
    refused("age=17AND yes", 4, "runs into");
    refused("age = 1.2.3", 6, "runs into");
    refused("age = 0x", 6, "without digits");
    refused("age = 1E999", 6, "range of a double");
    refused("age = 0xFFFFFFFFFFFFFFFF", 6, "range of a long");
}

#[test]
fn between_in_and_like_follow_the_specification() {
    all(
        TRUE,
        &[
            "age BETWEEN 15 AND 19",
            "age BETWEEN 17 AND 17",
            "age NOT BETWEEN 18 AND 20",
            "age BETWEEN 10 + 5 AND 20 - 1 AND yes",
            "color IN ('red', 'blue')",
            "color NOT IN ('red')",
            "phone LIKE '12%3'",
            "word LIKE 'l_se'",
            "under LIKE '\\_%' ESCAPE '\\'",
            "phone NOT LIKE '13%'",
            "color LIKE '%'",
        ],
    );
    all(
        FALSE,
        &[
            "age BETWEEN 18 AND 20",
            "age NOT BETWEEN 15 AND 19",
            "color BETWEEN 1 AND 3",
            "color NOT BETWEEN 1 AND 3",
            "color IN ('BLUE')",
            "phone LIKE '12_3'",
            "word LIKE 'l_s'",
            "word NOT LIKE '%s_'",
            "color LIKE ''",
            "under LIKE 'x\\_%' ESCAPE '\\'",
        ],
    );
    all(
        UNKNOWN,
        &[
            "none BETWEEN 1 AND 2",
            "age BETWEEN none AND 20",
            "none IN ('a')",
            "none NOT IN ('a')",
            "none LIKE 'a'",
            "none NOT LIKE '%'",
            "age IN ('17')",
            "age NOT IN ('17')",
            "age LIKE '17'",
            "age NOT LIKE '17'",
        ],
    );
}

#[test]
fn text_of_white_space_selects_everything() {
    all(TRUE, &["", "  \t\n"]);
}

#[track_caller]
fn refused(text: &str, position: usize, part: &str) {
    let error = Selector::parse(text).expect_err(text);
    assert!(error.message.contains(part), "{text}: {error}");
    assert_eq!(error.position, position, "{text}: {error}");
}

#[test]
fn faults_name_the_byte_and_what_was_expected() {
    refused("age >", 5, "ends where a value");
    refused("age = = 1", 6, "a value was expected, not '='");
    refused("(age = 1", 8, "')'");
    refused("age = 1)", 7, "operator");
    refused("color = 'blue", 8, "closing quote");
    refused("\"age = 1", 0, "closing quote");
    refused("\"\" = 1", 0, "empty name");
    refused("age != 1", 4, "<>");
    refused("größe # 1", 8, "'#'");
    refused("age IS 1", 7, "NULL was expected");
    refused("age BETWEEN 1 OR 2", 14, "AND was expected, not OR");
    refused("color IN ()", 10, "a string in quotes");
    refused("color IN ('a' 'b')", 14, "','");
    refused("color IN (1)", 10, "a string");
    refused("color LIKE 1", 11, "a pattern");
    refused("color LIKE 'a' ESCAPE 'ab'", 22, "exactly one character");
    refused("color LIKE 'a\\b' ESCAPE '\\'", 11, "escape character");
    refused("age NOT = 1", 4, "NOT does not belong here");
    refused("age NOT NULL", 8, "BETWEEN, IN or LIKE");
    refused("age yes", 4, "operator");
    refused("ESCAPE = 1", 0, "not ESCAPE");
}

#[test]
fn types_that_are_wrong_in_the_text_are_refused() {
    refused("1", 0, "a selector is a condition; this is a number");
    refused("'a'", 0, "this is a string");
    refused("age + 1", 0, "this is a number");
    refused("yes AND 1", 8, "AND joins conditions");
    refused("NOT 'a'", 4, "NOT takes a condition");
    refused("color > 'a'", 8, "strings and booleans know only = and <>");
    refused("'a' + 1 = 1", 0, "arithmetic takes numbers");
    refused("-TRUE = 1", 1, "a sign stands before a number");
    refused("age BETWEEN 'a' AND 'b'", 12, "BETWEEN takes numbers");
    refused("1 IS NULL", 0, "a property's name");
    refused("age + 1 IS NULL", 0, "a property's name");
    refused("'a' LIKE 'a'", 0, "a property's name");
}

#[test]
fn length_and_depth_are_limited() {
    let long = format!("color = '{}'", "x".repeat(4_087));
    assert_eq!(long.len(), 4_097);
    refused(&long, 4_096, "longer than 4096 bytes");
    assert!(Selector::parse(&long.replace("xx'", "x'")).is_ok());
    let nested = |depth: usize| format!("{}yes{}", "(".repeat(depth), ")".repeat(depth));
    check(&nested(32), TRUE);
    refused(&nested(33), 32, "deeper than 32");
    refused(&format!("{} yes", "NOT ".repeat(33)), 128, "deeper than 32");
    refused(&format!("{}1 = 1", "-".repeat(34)), 32, "deeper than 32");
    // What is not nested may be as long as it likes.
    check(&vec!["age = 1"; 300].join(" OR "), FALSE);
    // A stack higher than the machine has is the same fault.
    let heavy = "(no OR yes AND 1 < 2 + 3 * ".repeat(20) + "4" + &")".repeat(20);
    assert!(Selector::parse(&heavy).is_err());
}

#[test]
fn an_index_key_is_found_where_an_and_requires_it() {
    let correlation = |text: &str| Some(IndexKey::CorrelationId(text.into()));
    let cases = [
        ("JMSCorrelationID = 'x'", correlation("x")),
        ("'x' = JMSCorrelationID", correlation("x")),
        ("(JMSCorrelationID) = ('x')", correlation("x")),
        ("((JMSCorrelationID = 'it''s'))", correlation("it's")),
        ("age > 1 AND JMSCorrelationID = 'x' AND yes", correlation("x")),
        ("age > 1 AND (yes AND JMSCorrelationID = 'x')", correlation("x")),
        ("JMSMessageID = 'ID:1'", Some(IndexKey::MessageId("ID:1".into()))),
        ("JMSCorrelationID = 'x' OR yes", None),
        ("NOT JMSCorrelationID = 'x'", None),
        ("JMSCorrelationID <> 'x'", None),
        ("JMSCorrelationID = color", None),
        ("JMSCorrelationID LIKE 'x'", None),
        ("(JMSCorrelationID = 'x') = FALSE", None),
        ("(JMSCorrelationID = 'x') IS NULL", None),
        ("color = 'x'", None),
    ];
    for (text, expected) in cases {
        match Selector::parse(text) {
            Ok(selector) => assert_eq!(selector.index_key(), expected.as_ref(), "{text}"),
            Err(_) => assert!(text.ends_with("NULL"), "{text}"),
        }
    }
}

mod generated {
    use proptest::prelude::*;

    use super::*;
    use crate::selector::like::Like;

    /// LIKE by the book: exponential, obviously right.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some(('_', rest)) => !text.is_empty() && naive(rest, &text[1..]),
            Some((one, rest)) => text.first() == Some(one) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn like_agrees_with_the_naive_matcher(pattern in "[abä%_]{0,9}", text in "[abä]{0,12}") {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&characters(&pattern), &characters(&text));
            let like = Like::new(&pattern, None).unwrap();
            prop_assert_eq!(like.matches(&text), expected, "{} {}", pattern, text);
        }

        #[test]
        fn any_text_is_parsed_or_refused_within_itself(text in ".{0,60}") {
            if let Err(error) = Selector::parse(&text) {
                prop_assert!(error.position <= text.len());
            }
        }

        #[test]
        fn any_words_are_parsed_or_refused(words in proptest::collection::vec(
            prop_oneof![
                Just("age"), Just("color"), Just("none"), Just("yes"), Just("="), Just("<>"),
                Just("<"), Just("AND"), Just("OR"), Just("NOT"), Just("("), Just(")"), Just("1"),
                Just("2.5"), Just("'a'"), Just("IN"), Just("LIKE"), Just("BETWEEN"), Just("IS"),
                Just("NULL"), Just("-"), Just("+"), Just("*"), Just("/"), Just(","), Just("ESCAPE"),
                Just("TRUE"), Just("JMSMessageID"),
            ], 0..14)) {
            let text = words.join(" ");
            if let Ok(selector) = Selector::parse(&text) {
                let matches = selector.matches(&Message);
                prop_assert_eq!(matches, selector.clone().matches(&Message));
                prop_assert_eq!(selector.text(), text);
            }
        }
    }
}

#[test]
fn like_takes_time_linear_in_the_text() {
    // Backtracking would need about 200,000 ^ 3 steps for this.
    let selector = Selector::parse("word LIKE '%a_a%a_a%a_ab'").unwrap();
    struct Long(String);
    impl Properties for Long {
        fn get(&self, _: &str) -> Value<'_> {
            Value::Text(&self.0)
        }
    }
    assert!(!selector.matches(&Long("a".repeat(200_000))));
    let selector = Selector::parse("word LIKE '%a_a%a_b%'").unwrap();
    assert!(!selector.matches(&Long("a".repeat(200_000))));
    refused(&format!("word LIKE '%{}_%'", "a".repeat(64)), 10, "more than 64 characters");
}

#[test]
fn arbitrary_bytes_never_panic() {
    bolero::check!().with_iterations(2_000).for_each(|input: &[u8]| {
        if let Ok(text) = std::str::from_utf8(input)
            && let Ok(selector) = Selector::parse(text)
        {
            assert_eq!(selector.matches(&Message), selector.matches(&Message));
        }
    });
}

#[test]
fn the_memory_of_a_selector_is_more_than_its_text_and_grows_with_it() {
    let bytes = |text: &str| Selector::parse(text).unwrap().memory_bytes();
    let one = bytes("a = 1");
    assert!(one > 100, "{one}");
    let terms = |term: &str| vec![term; 100].join(" OR ");
    for term in ["a = 1", "a LIKE 'x%y_z%'", "a IN ('x', 'y')", "a BETWEEN 1 AND 2"] {
        let many = bytes(&terms(term));
        assert!(many > 100 * 100, "{term}: {many}");
    }
}
