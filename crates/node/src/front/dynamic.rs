//! Dynamic nodes: what a peer may wish for one, and what it is promised (AMQP 3.5.9, 3.5.10).
//!
//! There is one promise, delete-on-close: a queue that was made for a link goes when that link is
//! closed, whichever other connections have it open. The other lifetimes are understood, and answered with this one:
//! the answer says what is true. Wishes that are not understood are not repeated.

use towline_amqp::codec::{Map, OwnedValue, Value};
use towline_amqp::types::{Error, condition};

const LIFETIME_POLICY: &str = "lifetime-policy";
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
/// `amqp:invalid-field` when the lifetime is not one of the standard's.
pub(super) fn check(wishes: &Map) -> Result<(), Error> {
    match wishes.get(LIFETIME_POLICY) {
        None => Ok(()),
        Some(policy) if is_policy(&policy) => Ok(()),
        Some(_) => {
            let text = "lifetime-policy is not one of delete-on-close, delete-on-no-links, \
                        delete-on-no-messages, delete-on-no-links-or-messages";
            Err(Error::new(condition::INVALID_FIELD, text))
        }
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
