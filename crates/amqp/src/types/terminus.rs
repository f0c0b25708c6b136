//! The two ends of a link: source, target, coordinator (AMQP 3.5, 4.5.1).

use std::sync::Arc;

use super::Outcome;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Map, Reader, Symbols};

/// What survives when the peer goes away (3.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminusDurability {
    /// Nothing.
    #[default]
    None,
    /// That the terminus exists, and its properties.
    Configuration,
    /// Also the state of its deliveries.
    UnsettledState,
}

/// When the expiry timer of a terminus starts (3.5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryPolicy {
    /// When the link is detached.
    LinkDetach,
    /// When the session ends.
    #[default]
    SessionEnd,
    /// When the connection closes.
    ConnectionClose,
    /// Never.
    Never,
}

/// Whether a link takes messages away or shows copies (3.5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistributionMode {
    /// Consume.
    Move,
    /// Browse.
    Copy,
}

/// Where messages of a link come from (3.5.3).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// Name of the node. `None` when dynamic is asked for.
    pub address: Option<Arc<str>>,
    /// What survives.
    pub durable: TerminusDurability,
    /// When the timer of `timeout_s` starts.
    pub expiry_policy: ExpiryPolicy,
    /// Seconds for which an expiring terminus is kept.
    pub timeout_s: u32,
    /// Create a node for this link.
    pub dynamic: bool,
    /// Wishes for the dynamic node, for example `lifetime-policy`.
    pub dynamic_node_properties: Map,
    /// Consume or browse; `None`: as the node does.
    pub distribution_mode: Option<DistributionMode>,
    /// Filters by name (symbol to described value), for example `apache.org:selector-filter:string`.
    pub filter: Map,
    /// Outcome of a delivery settled without one.
    pub default_outcome: Option<Outcome>,
    /// Outcomes that the source understands; empty: all of them.
    pub outcomes: Symbols,
    /// Extensions, for example `queue`, `topic`, `shared`, `global`.
    pub capabilities: Symbols,
}

/// Where messages of a link go to (3.5.4).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Name of the node. `None`: the anonymous terminus, or a dynamic node is asked for.
    pub address: Option<Arc<str>>,
    /// What survives.
    pub durable: TerminusDurability,
    /// When the timer of `timeout_s` starts.
    pub expiry_policy: ExpiryPolicy,
    /// Seconds for which an expiring terminus is kept.
    pub timeout_s: u32,
    /// Create a node for this link.
    pub dynamic: bool,
    /// Wishes for the dynamic node.
    pub dynamic_node_properties: Map,
    /// Extensions.
    pub capabilities: Symbols,
}

/// The target of a transaction control link (4.5.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coordinator {
    /// `amqp:local-transactions` and others of 4.5.7.
    pub capabilities: Symbols,
}

/// What may stand in the target field of an attach.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkTarget {
    /// A node that takes messages.
    Target(Target),
    /// The transaction coordinator.
    Coordinator(Coordinator),
}
