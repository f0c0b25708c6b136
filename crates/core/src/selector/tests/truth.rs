//! Every operator over every type of value, against the tables and sentences of Jakarta Messaging
//! 3.1, 3.8.1.1 and 3.8.1.2, written down here a second time and as plainly as can be.

use super::{FALSE, Properties, Selector, TRUE, UNKNOWN, Value};

/// Properties of every type; two or three of each, so that equal and unequal ones meet.
const VALUES: [(&str, Value<'static>); 11] = [
    ("n", Value::Null),
    ("t", TRUE),
    ("f", FALSE),
    ("one", Value::Long(1)),
    ("two", Value::Long(2)),
    ("half", Value::Double(1.5)),
    ("unit", Value::Double(1.0)),
    ("nan", Value::Double(f64::NAN)),
    ("a", Value::Text("a")),
    ("b", Value::Text("b")),
    ("digit", Value::Text("1")),
];

struct Typed;

impl Properties for Typed {
    fn get(&self, name: &str) -> Value<'_> {
        VALUES.iter().find(|(known, _)| *known == name).map_or(Value::Null, |(_, value)| *value)
    }
}

#[track_caller]
fn check(text: &str, expected: Value<'_>) {
    let selector = Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(selector.program.evaluate(&Typed, &mut { usize::MAX }), expected, "{text}");
    assert_eq!(selector.matches(&Typed), expected == TRUE, "{text}");
}

fn number(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Long(1) => Some(1.0),
        Value::Long(2) => Some(2.0),
        Value::Double(value) => Some(value),
        _ => None,
    }
}

/// "If either of the type values evaluates to NULL, the value of the expression is unknown." "If
/// the comparison of non-like type values is attempted, the value of the operation is false."
/// "String and Boolean comparison is restricted to = and <>."
fn compared(left: Value<'_>, operator: &str, right: Value<'_>) -> Value<'static> {
    if left == Value::Null || right == Value::Null {
        return UNKNOWN;
    }
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        return Value::Boolean(match operator {
            "=" => left == right,
            "<>" => left != right,
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            ">=" => left >= right,
            other => panic!("no comparison: {other}"),
        });
    }
    let like = matches!(
        (left, right),
        (Value::Text(_), Value::Text(_)) | (Value::Boolean(_), Value::Boolean(_))
    );
    Value::Boolean(match operator {
        "=" => like && left == right,
        "<>" => like && left != right,
        _ => false,
    })
}

/// The value as a condition: only TRUE and FALSE are known.
fn condition(value: Value<'_>) -> Value<'static> {
    if value == TRUE {
        TRUE
    } else if value == FALSE {
        FALSE
    } else {
        UNKNOWN
    }
}

fn and(left: Value<'_>, right: Value<'_>) -> Value<'static> {
    let (left, right) = (condition(left), condition(right));
    let table = [
        (TRUE, TRUE, TRUE),
        (TRUE, FALSE, FALSE),
        (TRUE, UNKNOWN, UNKNOWN),
        (FALSE, TRUE, FALSE),
        (FALSE, FALSE, FALSE),
        (FALSE, UNKNOWN, FALSE),
        (UNKNOWN, TRUE, UNKNOWN),
        (UNKNOWN, FALSE, FALSE),
        (UNKNOWN, UNKNOWN, UNKNOWN),
    ];
    let row = table.into_iter().find(|row| (row.0, row.1) == (left, right));
    row.expect("the table has all rows").2
}

fn or(left: Value<'_>, right: Value<'_>) -> Value<'static> {
    let (left, right) = (condition(left), condition(right));
    let table = [
        (TRUE, TRUE, TRUE),
        (TRUE, FALSE, TRUE),
        (TRUE, UNKNOWN, TRUE),
        (FALSE, TRUE, TRUE),
        (FALSE, FALSE, FALSE),
        (FALSE, UNKNOWN, UNKNOWN),
        (UNKNOWN, TRUE, TRUE),
        (UNKNOWN, FALSE, UNKNOWN),
        (UNKNOWN, UNKNOWN, UNKNOWN),
    ];
    let row = table.into_iter().find(|row| (row.0, row.1) == (left, right));
    row.expect("the table has all rows").2
}

fn not(value: Value<'_>) -> Value<'static> {
    let table = [(TRUE, FALSE), (FALSE, TRUE), (UNKNOWN, UNKNOWN)];
    let row = table.into_iter().find(|row| row.0 == condition(value));
    row.expect("the table has all rows").1
}

#[test]
fn every_comparison_of_every_two_types_is_what_the_specification_says() {
    for (left, left_value) in VALUES {
        for (right, right_value) in VALUES {
            for operator in ["=", "<>", "<", "<=", ">", ">="] {
                let expected = compared(left_value, operator, right_value);
                check(&format!("{left} {operator} {right}"), expected);
                check(&format!("NOT {left} {operator} {right}"), not(expected));
            }
        }
    }
}

#[test]
fn every_condition_of_every_two_types_is_what_the_tables_say() {
    for (left, left_value) in VALUES {
        check(&format!("NOT {left}"), not(left_value));
        check(&format!("NOT NOT {left}"), not(not(left_value)));
        for (right, right_value) in VALUES {
            check(&format!("{left} AND {right}"), and(left_value, right_value));
            check(&format!("{left} OR {right}"), or(left_value, right_value));
            check(&format!("NOT ({left} AND {right})"), not(and(left_value, right_value)));
            check(&format!("NOT ({left} OR {right})"), not(or(left_value, right_value)));
        }
    }
}

/// "age BETWEEN 15 AND 19 is equivalent to age >= 15 AND age <= 19", and NOT BETWEEN to
/// `age < 15 OR age > 19`.
#[test]
fn between_of_every_three_types_is_what_its_comparisons_are() {
    for (value, is) in VALUES {
        for (low, lowest) in VALUES {
            for (high, highest) in VALUES {
                let within = and(compared(is, ">=", lowest), compared(is, "<=", highest));
                let without = or(compared(is, "<", lowest), compared(is, ">", highest));
                check(&format!("{value} BETWEEN {low} AND {high}"), within);
                check(&format!("{value} NOT BETWEEN {low} AND {high}"), without);
                check(&format!("NOT {value} BETWEEN {low} AND {high}"), not(within));
            }
        }
    }
}

/// The identifier of IN "has a String or NULL value", that of LIKE "has a String value"; of NULL
/// "the value of the operation is unknown". What is neither is nothing that they could know of: not
/// in the list, and not out of it.
#[test]
fn in_and_like_of_what_is_no_string_are_unknown_and_so_are_their_negations() {
    for (name, value) in VALUES {
        let expected = match value {
            Value::Text(text) => Value::Boolean(text == "a"),
            Value::Null | Value::Boolean(_) | Value::Long(_) | Value::Double(_) => UNKNOWN,
        };
        for asked in ["IN ('a', 'c')", "LIKE 'a%'"] {
            check(&format!("{name} {asked}"), expected);
            check(&format!("{name} NOT {asked}"), not(expected));
            check(&format!("NOT {name} {asked}"), not(expected));
            check(&format!("NOT ({name} NOT {asked})"), expected);
        }
    }
}

#[test]
fn whether_there_is_a_value_is_known_of_every_type() {
    for (name, value) in VALUES {
        let none = Value::Boolean(value == Value::Null);
        check(&format!("{name} IS NULL"), none);
        check(&format!("{name} IS NOT NULL"), not(none));
        check(&format!("NOT {name} IS NULL"), not(none));
    }
}

/// "Comparison or arithmetic with an unknown value always yields an unknown value"; what is no
/// number has no value in arithmetic.
#[test]
fn arithmetic_with_what_is_no_number_is_unknown() {
    for (left, left_value) in VALUES {
        let known = number(left_value).is_some();
        for sign in ["-", "+"] {
            let expected = if known { Value::Boolean(left != "nan") } else { UNKNOWN };
            check(&format!("{sign}{left} < 99"), expected);
        }
        for (right, right_value) in VALUES {
            let known = known && number(right_value).is_some();
            for operator in ["+", "-", "*", "/"] {
                let sum = format!("{left} {operator} {right} < 99");
                let expected = match known {
                    false => UNKNOWN,
                    true => Value::Boolean(left != "nan" && right != "nan"),
                };
                check(&sum, expected);
            }
        }
    }
}
