//! Settings of rustls. The plain ones are for clients and listeners, the mutual ones for two sides
//! that both show a certificate, TLS 1.3 only.
//!
//! Not here: protocols (ALPN), resumption and tickets: a caller that wants them sets them.

use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use crate::authorities::{Authorities, ClientCertificate};
use crate::error::FileError;
use crate::identity::Identity;

/// A server that shows `identity`. With `authorities`, it asks clients for a certificate and takes
/// those without one as well: they log in otherwise.
///
/// # Errors
/// When TLS cannot use the authorities.
pub fn server(
    identity: &Identity,
    authorities: Option<&Authorities>,
) -> Result<ServerConfig, FileError> {
    let builder = ServerConfig::builder();
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => builder
            .with_client_cert_verifier(authorities.client_verifier(ClientCertificate::Optional)?),
    };
    Ok(builder.with_cert_resolver(identity.resolver()))
}

/// A client that trusts `authorities`, and shows `identity` when a server asks for it.
#[must_use]
pub fn client(authorities: &Authorities, identity: Option<&Identity>) -> ClientConfig {
    let builder = ClientConfig::builder().with_root_certificates(authorities.roots());
    match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
    }
}

/// A server that takes only clients with a certificate of `authorities`.
///
/// # Errors
/// When TLS cannot use the authorities.
pub fn mutual_server(
    identity: &Identity,
    authorities: &Authorities,
) -> Result<ServerConfig, FileError> {
    let verifier = authorities.client_verifier(ClientCertificate::Needed)?;
    let builder = ServerConfig::builder_with_protocol_versions(&[&TLS13]);
    Ok(builder.with_client_cert_verifier(verifier).with_cert_resolver(identity.resolver()))
}

/// A client that checks the issuer and the dates of the server's certificate, and leaves the name
/// in it to the caller. It sends no name of a server.
#[must_use]
pub fn mutual_client(identity: &Identity, authorities: &Authorities) -> ClientConfig {
    let mut client = ClientConfig::builder_with_protocol_versions(&[&TLS13])
        .dangerous()
        .with_custom_certificate_verifier(authorities.chain_verifier())
        .with_client_cert_resolver(identity.resolver());
    // The certificate is checked for another kind of name, so the name is not sent in clear.
    client.enable_sni = false;
    client
}
