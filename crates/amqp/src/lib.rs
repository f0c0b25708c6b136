//! AMQP 1.0 without sockets: bytes and time in; events, bytes and deadlines out.
//!
//! Reading order: [`codec`] (the type system, part 1 of the standard), [`types`] (performatives,
//! termini, delivery states), [`frame`] (frames and protocol headers), [`sections`] (messages,
//! part 3), [`sasl`] (login).
//!
//! The room knows no queue, opens no socket, reads no clock and draws no random number.

#![forbid(unsafe_code)]

pub mod codec;
pub mod frame;
pub mod sasl;
pub mod sections;
pub mod types;
