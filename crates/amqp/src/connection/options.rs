//! What the driver decides before a connection starts.

use std::sync::Arc;
use std::time::Duration;

use towline_types::limits;

use crate::codec::{Map, Symbols};
use crate::sasl::{ClientLogin, Mechanism};

/// Settings of the accepting side.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Our container id (the queue manager's name).
    pub container_id: Arc<str>,
    /// max-frame-size that we take, in bytes; at least 512.
    pub frame_bytes_max: u32,
    /// Highest channel number.
    pub channel_max: u16,
    /// Highest link handle of a session.
    pub handle_max: u32,
    /// Silence after which we close the connection; offered in our open.
    pub idle_timeout: Duration,
    /// Time for headers, SASL exchange and open together.
    pub login_timeout: Duration,
    /// Mechanisms offered, the preferred one first.
    pub sasl_mechanisms: Vec<Mechanism>,
    /// False: a peer may leave the SASL layer out and is then anonymous.
    pub require_sasl: bool,
    /// Identity of the peer's TLS certificate: EXTERNAL is offered only when there is one.
    pub tls_identity: Option<Arc<str>>,
    /// Random text for SCRAM, never used before; at least 18 printable characters without a comma.
    pub nonce: Arc<str>,
    /// Secret of this server from which the salts of unknown users are made.
    pub salt_secret: Arc<[u8]>,
    /// Offered in our open.
    pub offered_capabilities: Symbols,
    /// Product, version and the like, for our open.
    pub properties: Map,
}

impl Default for ServerOptions {
    /// The limits of [`limits`], no mechanism (so no user can log in), SASL required.
    fn default() -> ServerOptions {
        ServerOptions {
            container_id: Arc::from("towline"),
            frame_bytes_max: limits::FRAME_BYTES_MAX,
            channel_max: limits::CHANNEL_MAX,
            handle_max: limits::HANDLE_MAX,
            idle_timeout: Duration::from_secs(60),
            login_timeout: Duration::from_secs(10),
            sasl_mechanisms: Vec::new(),
            require_sasl: true,
            tls_identity: None,
            nonce: Arc::from(""),
            salt_secret: Arc::from([]),
            offered_capabilities: Symbols::default(),
            properties: Map::default(),
        }
    }
}

/// Settings of the connecting side.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Our container id.
    pub container_id: Arc<str>,
    /// The host that we believe to reach.
    pub hostname: Option<Arc<str>>,
    /// How to log in; none leaves the SASL layer out.
    pub login: Option<ClientLogin>,
    /// max-frame-size that we take, in bytes; at least 512.
    pub frame_bytes_max: u32,
    /// Highest channel number.
    pub channel_max: u16,
    /// Highest link handle of a session.
    pub handle_max: u32,
    /// Silence after which we close the connection; offered in our open.
    pub idle_timeout: Duration,
    /// Time for headers, SASL exchange and open together.
    pub login_timeout: Duration,
    /// Capabilities that we would like.
    pub desired_capabilities: Symbols,
    /// Product, version and the like, for our open.
    pub properties: Map,
}

impl Default for ClientOptions {
    /// The limits of [`limits`], no login.
    fn default() -> ClientOptions {
        ClientOptions {
            container_id: Arc::from("towline-client"),
            hostname: None,
            login: None,
            frame_bytes_max: limits::FRAME_BYTES_MAX,
            channel_max: limits::CHANNEL_MAX,
            handle_max: limits::HANDLE_MAX,
            idle_timeout: Duration::from_secs(60),
            login_timeout: Duration::from_secs(10),
            desired_capabilities: Symbols::default(),
            properties: Map::default(),
        }
    }
}
