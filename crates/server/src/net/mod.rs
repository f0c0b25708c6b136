//! Sockets: listeners, TLS, admission before login, one task per connection.

mod admission;
mod away;
mod comparing;
mod connection;
mod drain;
mod listener;
mod local;
mod parting;
pub(crate) mod scratch;
#[cfg(test)]
mod tests;
mod tls;
mod turn;

pub(crate) use admission::{Admission, LOCAL_CONNECTIONS_MAX};
pub(crate) use away::Away;
pub(crate) use comparing::Comparing;
pub(crate) use drain::drain;
#[cfg(test)]
pub(crate) use listener::burst;
pub(crate) use listener::{
    Accepted, Acceptor, ClientSocket, IoThreads, ListenerKind, Listening, admit, bind_floating,
    called, listen_widely,
};
pub(crate) use local::LocalAccess;
pub(crate) use tls::{ListenerTls, server_settings};
