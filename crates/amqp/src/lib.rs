//! AMQP 1.0 without sockets: bytes and time in; events, bytes and deadlines out.
//!
//! Reading order: [`codec`] (the type system, part 1 of the standard), [`types`] (performatives,
//! termini, delivery states), [`frame`] (frames and protocol headers), [`sections`] (messages, part
//! 3), [`sasl`] (login, part 5); then the machines of part 2: `link`, `session`, and over them
//! [`connection`] with [`Connection`], which a driver holds; [`event`] has the words that they
//! exchange, [`coordinator`] the messages of transactions (part 4). Apart: [`Url`], the address of
//! a broker.
//!
//! The crate knows no queue, opens no socket, reads no clock and draws no random number.

#![forbid(unsafe_code)]

pub mod codec;
pub mod connection;
pub mod event;
pub mod frame;
mod link;
mod output;
#[cfg(any(test, feature = "peer"))]
pub mod peer;
pub mod sasl;
pub mod sections;
mod session;
pub mod types;
mod url;

pub use connection::{ClientOptions, Connection, ServerOptions};
pub use event::{
    Allowance, AttachReply, AttachRequest, Deliveries, Event, IncomingDelivery, IncomingId,
    LinkFlow, LinkId, Outgoing, PeerAttach, PeerOpen, SessionId, TooLong,
};
pub use link::coordinator;
pub use session::UnsettledCount;
pub use url::Url;
