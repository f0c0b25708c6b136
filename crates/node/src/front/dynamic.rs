//! Dynamic nodes: what a peer may wish for one, and what it is promised (AMQP 3.5.9, 3.5.10).
//!
//! There is one promise, delete-on-close: a queue that was made for a link goes when that link is
//! closed, whichever other connections have it open. The other lifetimes are understood, and answered with this one:
//! the answer says what is true. Wishes that are not understood are not repeated.

use towline_amqp::codec::{Map, OwnedValue, Value};
use towline_amqp::types::{Error, condition};

const LIFETIME_POLICY: &str = "lifetime-policy";
const DISTRIBUTION_MODES: &str = "supported-dist-modes";
const DELETE_ON_CLOSE: u64 = 0x2b;
/// The lifetimes of 3.5.10 to 3.5.13: their numbers follow one another.
const POLICIES: [&str; 4] = [
    "amqp:delete-on-close:list",
    "amqp:delete-on-no-links:list",
    "amqp:delete-on-no-messages:list",
    "amqp:delete-on-no-links-or-messages:list",
];

/// Looks at the wishes for a dynamic node.
///
/// # Errors
/// `amqp:invalid-field` when the lifetime or the distribution modes are not of the standard's types.
pub(super) fn check(wishes: &Map) -> Result<(), Error> {
    let text = if wishes.get(LIFETIME_POLICY).is_some_and(|policy| !is_policy(&policy)) {
        "lifetime-policy is not one of delete-on-close, delete-on-no-links, \
         delete-on-no-messages, delete-on-no-links-or-messages"
    } else if wishes.get(DISTRIBUTION_MODES).is_some_and(|modes| !are_symbols(&modes)) {
        "supported-dist-modes is neither a symbol nor an array of symbols"
    } else {
        return Ok(());
    };
    Err(Error::new(condition::INVALID_FIELD, text))
}

/// One symbol, or several of them (3.5.9: a field of type symbol, multiple).
fn are_symbols(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Symbol(_) => true,
        Value::Array(modes) => modes.iter().all(|mode| matches!(mode, Ok(Value::Symbol(_)))),
        _ => false,
    }
}

fn is_policy(policy: &Value<'_>) -> bool {
    let Value::Described(described) = policy else { return false };
    let known = match described.descriptor() {
        Value::Ulong(code) => (DELETE_ON_CLOSE..DELETE_ON_CLOSE + 4).contains(&code),
        Value::Symbol(name) => POLICIES.contains(&name),
        _ => false,
    };
    known && matches!(described.value(), Value::List(_))
}

/// What the answer to an attach says of its node.
pub(super) fn promised(dynamic: bool) -> Map {
    if !dynamic {
        return Map::default();
    }
    let nothing = OwnedValue::list(&[]);
    let policy = OwnedValue::described(Value::Ulong(DELETE_ON_CLOSE), nothing.view());
    Map::default().with(LIFETIME_POLICY, policy.view())
}
