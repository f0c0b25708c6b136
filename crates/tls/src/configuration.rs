//! Settings of rustls. The plain ones are for clients and listeners, the mutual ones for two sides
//! that both show a certificate, TLS 1.3 only.
//!
//! Not here: protocols (ALPN), resumption and tickets: a caller that wants them sets them.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, ConfigBuilder, ConfigSide, ServerConfig, WantsVerifier,
    WantsVersions,
};

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

/// A server that takes only clients with a certificate of `authorities`; with `only`, with this
/// cipher suite of TLS 1.3 and no other.
///
/// # Errors
/// When TLS cannot use the authorities.
///
/// # Panics
/// As [`mutual_client`].
pub fn mutual_server(
    identity: &Identity,
    authorities: &Authorities,
    only: Option<CipherSuite>,
) -> Result<ServerConfig, FileError> {
    let verifier = authorities.client_verifier(ClientCertificate::Needed)?;
    let builder = newest_tls(ServerConfig::builder_with_provider(provider(only)));
    Ok(builder.with_client_cert_verifier(verifier).with_cert_resolver(identity.resolver()))
}

/// A client that checks the issuer and the dates of the server's certificate, and leaves the name
/// in it to the caller. It sends no name of a server. With `only`, it speaks this cipher suite of
/// TLS 1.3 and no other.
///
/// # Panics
/// When `only` is no cipher suite of TLS 1.3 that rustls has: AES_128_GCM_SHA256,
/// AES_256_GCM_SHA384 and CHACHA20_POLY1305_SHA256 are.
#[must_use]
pub fn mutual_client(
    identity: &Identity,
    authorities: &Authorities,
    only: Option<CipherSuite>,
) -> ClientConfig {
    let mut client = newest_tls(ClientConfig::builder_with_provider(provider(only)))
        .dangerous()
        .with_custom_certificate_verifier(authorities.chain_verifier())
        .with_client_cert_resolver(identity.resolver());
    // The certificate is checked for another kind of name, so the name is not sent in clear.
    client.enable_sni = false;
    client
}

/// Gathers the entropy that the first handshake of a process needs: 60 ms of work, once (the jitter
/// of the processor, as AWS-LC has it). A server lets another thread do that before.
pub fn gather_entropy() {
    // A failure is that of the first handshake, which says so.
    let _failure = default_provider().secure_random.fill(&mut [0; 32]);
}

fn provider(only: Option<CipherSuite>) -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    provider.cipher_suites.retain(|suite| only.is_none_or(|only| suite.suite() == only));
    Arc::new(provider)
}

fn newest_tls<Side: ConfigSide>(
    builder: ConfigBuilder<Side, WantsVersions>,
) -> ConfigBuilder<Side, WantsVerifier> {
    match builder.with_protocol_versions(&[&TLS13]) {
        Ok(builder) => builder,
        Err(error) => unreachable!("no cipher suite of TLS 1.3 is left: {error}"),
    }
}
