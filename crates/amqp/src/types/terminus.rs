//! The two ends of a link: source, target, coordinator (AMQP 3.5, 4.5.1).

use std::sync::Arc;

use bytes::BytesMut;

use super::Outcome;
use crate::codec::{
    Composite, DecodeError, Fields, FieldsWriter, Map, Reader, Symbols, descriptor,
};

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
    /// Filters by name (symbol to described value), for example
    /// `apache.org:selector-filter:string`.
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

impl TerminusDurability {
    fn field(fields: &mut Fields<'_>) -> Result<TerminusDurability, DecodeError> {
        match fields.u32()? {
            None | Some(0) => Ok(TerminusDurability::None),
            Some(1) => Ok(TerminusDurability::Configuration),
            Some(2) => Ok(TerminusDurability::UnsettledState),
            Some(_) => Err(DecodeError::OutOfRange("durable")),
        }
    }

    fn encoded(self) -> Option<u32> {
        match self {
            TerminusDurability::None => None,
            TerminusDurability::Configuration => Some(1),
            TerminusDurability::UnsettledState => Some(2),
        }
    }
}

impl ExpiryPolicy {
    fn field(fields: &mut Fields<'_>) -> Result<ExpiryPolicy, DecodeError> {
        match fields.symbol()? {
            None | Some("session-end") => Ok(ExpiryPolicy::SessionEnd),
            Some("link-detach") => Ok(ExpiryPolicy::LinkDetach),
            Some("connection-close") => Ok(ExpiryPolicy::ConnectionClose),
            Some("never") => Ok(ExpiryPolicy::Never),
            Some(_) => Err(DecodeError::OutOfRange("expiry-policy")),
        }
    }

    fn encoded(self) -> Option<&'static str> {
        match self {
            ExpiryPolicy::LinkDetach => Some("link-detach"),
            ExpiryPolicy::SessionEnd => None,
            ExpiryPolicy::ConnectionClose => Some("connection-close"),
            ExpiryPolicy::Never => Some("never"),
        }
    }
}

impl DistributionMode {
    fn field(fields: &mut Fields<'_>) -> Result<Option<DistributionMode>, DecodeError> {
        match fields.symbol()? {
            None => Ok(None),
            Some("move") => Ok(Some(DistributionMode::Move)),
            Some("copy") => Ok(Some(DistributionMode::Copy)),
            Some(_) => Err(DecodeError::OutOfRange("distribution-mode")),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            DistributionMode::Move => "move",
            DistributionMode::Copy => "copy",
        }
    }
}

/// An address: strings are what we know; the standard allows any type (`*`).
fn address(fields: &mut Fields<'_>) -> Result<Option<Arc<str>>, DecodeError> {
    Ok(fields.string()?.map(Arc::from))
}

fn some_unless_zero(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

impl Composite for Source {
    const CODE: u8 = 0x28;
    const NAME: &'static str = "amqp:source:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Source, DecodeError> {
        Ok(Source {
            address: address(fields)?,
            durable: TerminusDurability::field(fields)?,
            expiry_policy: ExpiryPolicy::field(fields)?,
            timeout_s: fields.u32()?.unwrap_or(0),
            dynamic: fields.bool()?.unwrap_or(false),
            dynamic_node_properties: fields.map()?,
            distribution_mode: DistributionMode::field(fields)?,
            filter: fields.map()?,
            default_outcome: fields.with(Outcome::decode)?,
            outcomes: fields.symbols()?,
            capabilities: fields.symbols()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.string(self.address.as_deref());
        fields.u32(self.durable.encoded());
        fields.symbol(self.expiry_policy.encoded());
        fields.u32(some_unless_zero(self.timeout_s));
        fields.flag(self.dynamic);
        fields.map(&self.dynamic_node_properties);
        fields.symbol(self.distribution_mode.map(DistributionMode::as_str));
        fields.map(&self.filter);
        match &self.default_outcome {
            Some(outcome) => outcome.encode(fields.value()),
            None => fields.null(),
        }
        fields.symbols(&self.outcomes);
        fields.symbols(&self.capabilities);
    }
}

impl Composite for Target {
    const CODE: u8 = 0x29;
    const NAME: &'static str = "amqp:target:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Target, DecodeError> {
        Ok(Target {
            address: address(fields)?,
            durable: TerminusDurability::field(fields)?,
            expiry_policy: ExpiryPolicy::field(fields)?,
            timeout_s: fields.u32()?.unwrap_or(0),
            dynamic: fields.bool()?.unwrap_or(false),
            dynamic_node_properties: fields.map()?,
            capabilities: fields.symbols()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.string(self.address.as_deref());
        fields.u32(self.durable.encoded());
        fields.symbol(self.expiry_policy.encoded());
        fields.u32(some_unless_zero(self.timeout_s));
        fields.flag(self.dynamic);
        fields.map(&self.dynamic_node_properties);
        fields.symbols(&self.capabilities);
    }
}

impl Composite for Coordinator {
    const CODE: u8 = 0x30;
    const NAME: &'static str = "amqp:coordinator:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Coordinator, DecodeError> {
        Ok(Coordinator { capabilities: fields.symbols()? })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.symbols(&self.capabilities);
    }
}

impl LinkTarget {
    /// Reads a target or a coordinator.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn decode(reader: &mut Reader<'_>) -> Result<LinkTarget, DecodeError> {
        let code = descriptor(reader)?;
        if code == u64::from(Target::CODE) {
            Target::decode_body(reader).map(LinkTarget::Target)
        } else if code == u64::from(Coordinator::CODE) {
            Coordinator::decode_body(reader).map(LinkTarget::Coordinator)
        } else {
            Err(DecodeError::UnknownDescriptor)
        }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            LinkTarget::Target(target) => target.encode(out),
            LinkTarget::Coordinator(coordinator) => coordinator.encode(out),
        }
    }
}
