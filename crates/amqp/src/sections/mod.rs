//! Messages (AMQP 3.2): where their sections are, what a queue manager reads in them, and how to
//! write them.
//!
//! ```text
//!   header                  0x70  list   durable, priority, ttl ...: may change at every hop
//!   delivery-annotations    0x71  map    for the next hop only
//!   message-annotations     0x72  map  \
//!   properties              0x73  list  | content: what a queue keeps, byte for byte
//!   application-properties  0x74  map   |
//!   body                    0x75  data, 0x76 sequence (one or more each), or 0x77 one value
//!   footer                  0x78  map  /
//! ```
//!
//! [`Sections::scan`] finds the sections without copying or looking inside;
//! [`Sections::scan_checked`] also checks every byte, which a queue manager does once, at put.
//! [`Sections::scan_front`] needs only as much of a message as stands before its body.
//! Views ([`Header`], [`Properties`], [`PropertyValue`]) read what they are asked for.
//! [`MessageBuilder`] writes.
//!
//! Not here: what priority or expiry mean. Invariant: sections are in the order above, each at most
//! once but for the body's. Two things that the standard does not allow are taken, because clients
//! send them: a message without any body section, and a footer before the body
//! ([`Sections::in_order`] puts it where it belongs).

mod build;
mod code;
mod identifier;
mod properties;
mod scan;

pub use build::{
    MessageBuilder, encode_header, encode_value_body, with_application_properties,
    with_message_annotations,
};
pub use identifier::{MessageId, id_hash};
pub use properties::{Properties, PropertyValue};
pub use scan::{BodyKind, Header, Sections, Span, coordinator_command};

#[cfg(test)]
mod tests;
