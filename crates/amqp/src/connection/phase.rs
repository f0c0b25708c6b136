//! The phases of a connection, from the first byte to its end.
//!
//! Not here: the transitions (`login`, `dispatch`), and what each phase accepts (`receive`).

use crate::connection::options::ServerOptions;
use crate::sasl::{SaslClient, SaslServer};

/// The phase of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// Server: waits for the peer's protocol header.
    ServerHeader(Box<ServerOptions>),
    /// Client: our SASL header is out.
    ClientSaslHeader(Box<SaslClient>),
    /// Server: SASL frames.
    ServerSasl {
        /// The exchange.
        machine: Box<SaslServer>,
        /// The driver has a claim to answer; until then nothing is read.
        asked: bool,
    },
    /// Client: SASL frames.
    ClientSasl(Box<SaslClient>),
    /// The AMQP header of the peer is awaited.
    AmqpHeader,
    /// AMQP frames.
    Frames,
    /// Our close frame is out, the peer's is awaited.
    Closing,
    /// Over.
    Finished,
}
