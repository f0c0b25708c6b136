//! Which clients may log in, under which name, and which of them may administer.
//!
//! Reading order: [`LoginPolicy`] (the rules of one listener: SASL mechanisms, and what they need),
//! [`Gate`] (the login of one connection), [`Users`] (names, credentials and administrators, from
//! the users file), [`Attempts`] (wrong passwords, and how long answers wait), `comparisons` (the
//! threads that compare passwords).
//!
//! Not here: sockets, TLS and the check of the operating system's users on the local socket
//! (`server`); the SASL exchange itself (`amqp`); what an administrator does (`node`).
//!
//! Invariants: a client has a name only if it proved it; without credentials to compare with, no
//! password fits; over TCP only a name may administer.

#![forbid(unsafe_code)]

mod attempts;
mod comparisons;
mod gate;
mod login_policy;
#[cfg(test)]
mod tests;
mod users;

pub use attempts::Attempts;
pub use gate::{Comparison, Gate};
pub use login_policy::{LoginPolicy, Peer};
pub use users::Users;
