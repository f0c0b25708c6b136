//! Certificate, key and authorities of this instance, as TLS settings for both ends of a link.
//!
//! TLS 1.3 only, both ends show a certificate. Connections for frames check dates and authorities
//! anew. Streams may resume what one before them showed (`tickets`), as long as the certificates
//! are in date and neither end has read new files: tickets are sealed with a key of this identity,
//! and kept with it. The owner of a certificate is checked by its name afterwards (`names`), for
//! both ends with the same code, so TLS checks the chain alone.
//!
//! Not here: reading the files (`towline_tls`); when they are read again (`rotation`).

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};
use towline_config::GroupConfig;
use towline_tls::{Authorities, ExpiryTime, FileError, Identity, mutual_client, mutual_server};

use super::names::{self, Names};
use super::tickets::{self, Tickets};

/// What a connection is for, sent before the certificates so that the right thread takes it (ALPN,
/// RFC 7301). What it really is for stands in the hello.
pub(super) const ALPN_FRAMES: &[u8] = b"towline-frames";
pub(super) const ALPN_STREAM: &[u8] = b"towline-stream";

/// Where the PEM files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The chain that this instance shows, its own certificate first.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub private_key: PathBuf,
    /// The authorities that issue the certificates of the other ends.
    pub authorities: PathBuf,
}

impl IdentityFiles {
    /// For the links inside the group.
    pub fn of(config: &GroupConfig) -> IdentityFiles {
        IdentityFiles {
            certificate: config.certificate.clone(),
            private_key: config.private_key.clone(),
            authorities: config.authorities.clone(),
        }
    }
}

/// The identity from the files as they were read.
pub(super) struct TlsIdentity {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client_frames: Arc<ClientConfig>,
    pub(super) client_stream: Arc<ClientConfig>,
    own: Identity,
    authorities: Authorities,
    expires: ExpiryTime,
}

impl TlsIdentity {
    /// Reads the three files.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it.
    pub(super) fn read(files: &IdentityFiles) -> Result<TlsIdentity, String> {
        let said = |error: FileError| error.to_string();
        let own = Identity::read(&files.certificate, &files.private_key).map_err(said)?;
        let authorities = Authorities::read(&files.authorities).map_err(said)?;
        let expires = own.expires().map_err(said)?;
        let mut server = mutual_server(&own, &authorities).map_err(said)?;
        server.alpn_protocols = vec![ALPN_FRAMES.to_vec(), ALPN_STREAM.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        // All that it must know of a stream before stands in the ticket.
        server.ticketer = Ticketer::new().map_err(|error| format!("tickets of TLS: {error}"))?;
        server.send_tls13_tickets = tickets::GIVEN;
        let mut client = mutual_client(&own, &authorities);
        client.resumption = Resumption::disabled();
        let with = |protocol: &[u8]| {
            let mut client = client.clone();
            client.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(client)
        };
        let client_frames = with(ALPN_FRAMES);
        client.resumption = Resumption::store(Arc::new(Tickets::default()));
        client.alpn_protocols = vec![ALPN_STREAM.to_vec()];
        let client_stream = Arc::new(client);
        let server = Arc::new(server);
        Ok(TlsIdentity { server, client_frames, client_stream, own, authorities, expires })
    }

    /// Whether the files have other bytes now.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn changed(&self) -> Result<bool, String> {
        let changed = || Ok(self.own.has_changed()? || self.authorities.has_changed()?);
        changed().map_err(|error: FileError| error.to_string())
    }

    /// Our own certificate.
    pub(super) fn own(&self) -> &CertificateDer<'static> {
        self.own.own()
    }

    /// When it expires.
    pub(super) fn expires(&self) -> &ExpiryTime {
        &self.expires
    }
}

/// Checks what the instance `name` of a group would show and trust: that the files can be read, fit
/// together, name that instance, and are valid now. The time until which its certificate is valid
/// is returned.
///
/// # Errors
/// A text that names the file and what is wrong with it.
pub fn check(queue_manager: &str, config: &GroupConfig, name: &str) -> Result<String, String> {
    let identity = belonging(queue_manager, config, name)?;
    let checked = identity.own.check(&identity.authorities, UnixTime::now());
    checked.map_err(|error| error.to_string())?;
    Ok(identity.expires.to_string())
}

/// When the certificate of the instance `name` of a group expires.
///
/// # Errors
/// Why a start refuses the files.
pub fn expires(
    queue_manager: &str,
    config: &GroupConfig,
    name: &str,
) -> Result<ExpiryTime, String> {
    Ok(belonging(queue_manager, config, name)?.expires)
}

/// The files, if they fit together and name that instance.
fn belonging(queue_manager: &str, config: &GroupConfig, name: &str) -> Result<TlsIdentity, String> {
    let files = IdentityFiles::of(config);
    let identity = TlsIdentity::read(&files)?;
    let names = Names::of(queue_manager, &config.name, name);
    names::belongs(identity.own(), &names)
        .map_err(|why| format!("certificate {}: {why}", files.certificate.display()))?;
    Ok(identity)
}
