//! Dynamic nodes: what a peer may wish for one, and what it is promised (AMQP 3.5.9, 3.5.10); what
//! it is promised of any terminus (3.5.6).
//!
//! There is one promise, delete-on-close: a queue that was made for a link goes when that link is
//! closed, whichever other connections have it open. The other lifetimes are understood, and
//! answered with this one: the answer says what is true. Wishes that are not understood are not
//! repeated. An administrator may have given the model DEFTYPE(PERMDYN): then queues stay, until
//! they are deleted by DELETE, and no lifetime is promised.
//!
//! A link that is detached and not closed may come back under its name, and finds its queue: until
//! the session ends, or the connection, as the expiry policy of its terminus says (3.5.6). What was
//! delivered on it and not settled goes back to the queue.
//!
//! Invariant: of a queue that is kept there is no link, and it goes with the connection at the
//! latest.

use std::collections::HashMap;

use towline_amqp::codec::{Map, OwnedValue, Value};
use towline_amqp::types::{Error, ExpiryPolicy, LinkTarget, Role, condition};
use towline_amqp::{LinkId, PeerAttach, SessionId};
use towline_types::limits;

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
/// `amqp:invalid-field` when the lifetime or the distribution modes are not of the standard's
/// types.
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

/// The dynamic nodes of a connection.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    of_links: HashMap<LinkId, Node>,
    kept: Vec<(LinkId, Node)>,
}

/// A node that was made for a link.
#[derive(Debug)]
struct Node {
    link_name: String,
    peer_role: Role,
    queue: String,
    /// It is temporary.
    goes_with_link: bool,
    expiry: ExpiryPolicy,
}

impl Nodes {
    /// A link was attached to `queue`; when its terminus is dynamic, the queue is its own.
    pub(super) fn attached(&mut self, attached: &PeerAttach, queue: &str, goes_with_link: bool) {
        let (dynamic, expiry) = match (attached.peer_role, attached.target.as_deref()) {
            (Role::Sender, Some(LinkTarget::Target(target))) => {
                (target.dynamic, target.expiry_policy)
            }
            (Role::Sender, _) => return,
            (Role::Receiver, _) => {
                let Some(source) = attached.source.as_deref() else { return };
                (source.dynamic, source.expiry_policy)
            }
        };
        if !dynamic {
            return;
        }
        let node = Node {
            link_name: attached.name.to_string(),
            peer_role: attached.peer_role,
            queue: queue.to_owned(),
            goes_with_link,
            expiry,
        };
        self.of_links.insert(attached.link, node);
    }

    /// What the answer to an attach says of its node.
    pub(super) fn promised(&self, link: LinkId) -> Map {
        if !self.of_links.get(&link).is_some_and(|node| node.goes_with_link) {
            return Map::default();
        }
        let nothing = OwnedValue::list(&[]);
        let policy = OwnedValue::described(Value::Ulong(DELETE_ON_CLOSE), nothing.view());
        Map::default().with(LIFETIME_POLICY, policy.view())
    }

    /// The link is gone: whether its queue stays, for the link to come back.
    pub(super) fn detached(&mut self, link: LinkId, closed: bool) -> bool {
        let Some(node) = self.of_links.remove(&link) else { return false };
        let keep = !closed
            && node.expiry != ExpiryPolicy::LinkDetach
            && self.kept.len() < limits::QUEUES_KEPT_MAX;
        if keep {
            self.kept.push((link, node));
        }
        keep
    }

    /// The queue that was kept for a link that comes back.
    pub(super) fn comes_back(&mut self, attached: &PeerAttach) -> Option<String> {
        let place = self.kept.iter().position(|(_, node)| {
            node.peer_role == attached.peer_role && node.link_name == *attached.name
        })?;
        Some(self.kept.swap_remove(place).1.queue)
    }

    /// The queues that went with the session.
    pub(super) fn session_ended(&mut self, session: SessionId) -> Vec<String> {
        let goes = |link: &LinkId, node: &Node| {
            link.is_of(session) && node.expiry == ExpiryPolicy::SessionEnd
        };
        let gone = self.kept.extract_if(.., |(link, node)| goes(link, node));
        gone.map(|(_, node)| node.queue).collect()
    }
}

/// What the answer to an attach says of how long its terminus is kept (3.5.6). Of a link that is
/// detached nothing is kept, whatever was wished for, but for a dynamic node; no terminus outlives
/// its connection, and none has a timer.
pub(super) fn promised_expiry(dynamic: bool, wished: ExpiryPolicy) -> ExpiryPolicy {
    match wished {
        _ if !dynamic => ExpiryPolicy::LinkDetach,
        ExpiryPolicy::Never => ExpiryPolicy::ConnectionClose,
        kept => kept,
    }
}
