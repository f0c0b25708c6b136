//! A small blocking AMQP 1.0 client for the command line, over a Unix socket, TCP or TLS.
//!
//! One thread, one connection, one session. Every call drives the connection as far as it needs and
//! returns; nothing happens between calls, so do not leave a [`Client`] alone for longer than the
//! idle time-out. Not made for speed (the load harness has its own client), nor for reconnection.
//!
//! Reading order: [`address`] (where to connect), [`options`] (how), [`client`] (the connection and
//! how it is driven), [`message`], [`send`], [`receive`], [`unit`] (units of work), [`request`]
//! (administration), [`credentials`] (users), [`error`].

#![forbid(unsafe_code)]

mod address;
mod client;
mod credentials;
mod error;
mod link;
mod message;
mod options;
mod receive;
mod request;
mod send;
mod stream;
#[cfg(test)]
mod tests;
mod unit;

pub use address::{Address, path_too_long};
pub use client::Client;
pub use credentials::user_line;
pub use error::Error;
pub use link::{Receiver, Sender};
pub use message::{Body, Message, Property};
pub use options::{Options, Sasl};
pub use receive::{Delivery, ReceiverOptions};
pub use request::{ADMIN_ADDRESS, Reply};
pub use send::encoded;
pub use unit::Unit;
