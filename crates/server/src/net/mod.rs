//! Sockets: listeners, TLS, admission before login, one task per connection.

mod admission;
mod away;
mod connection;
mod drain;
mod listener;
mod local;
mod pace;
mod parting;
mod portion;
mod reception;
#[cfg(test)]
mod tests;
mod tls;
mod turn;

pub(crate) use admission::{Admission, LOCAL_CONNECTIONS_MAX};
pub(crate) use away::Away;
pub(crate) use drain::drain;
pub(crate) use listener::{AcceptedClient, IoThreads, ListenerKind, Listening, bind_floating};
pub(crate) use local::{LocalAccess, LocalRight};
pub(crate) use reception::{Here, Reception};
pub(crate) use tls::{ListenerTls, server_settings};
