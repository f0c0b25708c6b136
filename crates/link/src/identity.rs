//! Certificate, key and authorities of this instance, as TLS settings for both ends of a link.
//!
//! TLS 1.3 only, both ends show a certificate. Connections for frames check dates and authorities
//! anew. Streams may resume what one before them showed (`tickets`), as long as the certificates
//! are in date and neither end has read new files: tickets are sealed with a key of this identity,
//! and kept with it. The owner of a certificate is checked by its name afterwards (`names`), for
//! both ends with the same code, so TLS checks the chain alone. The link to another region is made
//! in the same way, with files and cipher suites of its own where they are configured.
//!
//! Not here: reading the files (`towline_tls`); when they are read again (`rotation`).

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{CipherSuite, ClientConfig, ServerConfig};
use towline_config::{GroupConfig, RegionCiphers};
use towline_tls::{
    Authorities, ExpiryTime, FileError, Identity, in_date, mutual_client, mutual_server,
};

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
    /// Cipher suites that a connection with them may use.
    pub ciphers: RegionCiphers,
}

impl IdentityFiles {
    /// For the links inside the group.
    pub fn of(config: &GroupConfig) -> IdentityFiles {
        IdentityFiles {
            certificate: config.certificate.clone(),
            private_key: config.private_key.clone(),
            authorities: config.authorities.clone(),
            ciphers: RegionCiphers::Any,
        }
    }

    /// For the link to the other region: the group's own files where there are none for it.
    pub fn of_region(config: &GroupConfig) -> IdentityFiles {
        let own = IdentityFiles::of(config);
        IdentityFiles {
            certificate: config.region_certificate.clone().unwrap_or(own.certificate),
            private_key: config.region_private_key.clone().unwrap_or(own.private_key),
            authorities: config.region_authorities.clone().unwrap_or(own.authorities),
            ciphers: config.region_ciphers,
        }
    }
}

/// The one suite that is allowed; `None`: all.
fn only(ciphers: RegionCiphers) -> Option<CipherSuite> {
    match ciphers {
        RegionCiphers::Any => None,
        RegionCiphers::Aes128GcmSha256 => Some(CipherSuite::TLS13_AES_128_GCM_SHA256),
        RegionCiphers::Aes256GcmSha384 => Some(CipherSuite::TLS13_AES_256_GCM_SHA384),
        RegionCiphers::Chacha20Poly1305Sha256 => Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
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
        let suite = only(files.ciphers);
        let mut server = mutual_server(&own, &authorities, suite).map_err(said)?;
        server.alpn_protocols = vec![ALPN_FRAMES.to_vec(), ALPN_STREAM.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        // All that it must know of a stream before stands in the ticket.
        server.ticketer = Ticketer::new().map_err(|error| format!("tickets of TLS: {error}"))?;
        server.send_tls13_tickets = tickets::GIVEN;
        let mut client = mutual_client(&own, &authorities, suite);
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

    /// When it begins to be valid, seconds since 1970.
    pub(super) fn begins_s(&self) -> u64 {
        self.own.begins_s()
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
    let identity = belonging(&IdentityFiles::of(config), queue_manager, config, name)?;
    let checked = identity.own.check(&identity.authorities, UnixTime::now());
    checked.map_err(|error| error.to_string())?;
    Ok(identity.expires.to_string())
}

/// The same of the link to the other region. What its instances trust is not known here, so only
/// the dates of the certificate are checked.
///
/// # Errors
/// As [`check`].
pub fn check_region(
    queue_manager: &str,
    config: &GroupConfig,
    name: &str,
) -> Result<String, String> {
    let files = IdentityFiles::of_region(config);
    let identity = belonging(&files, queue_manager, config, name)?;
    in_date(Some(&[identity.own().clone()]), UnixTime::now())
        .map_err(|why| format!("certificate {}: {why}", files.certificate.display()))?;
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
    Ok(belonging(&IdentityFiles::of(config), queue_manager, config, name)?.expires)
}

/// The files, if they fit together and name that instance.
fn belonging(
    files: &IdentityFiles,
    queue_manager: &str,
    config: &GroupConfig,
    name: &str,
) -> Result<TlsIdentity, String> {
    let identity = TlsIdentity::read(files)?;
    let names = Names::of(queue_manager, &config.name, name);
    names::belongs(identity.own(), &names)
        .map_err(|why| format!("certificate {}: {why}", files.certificate.display()))?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    fn config(files: &IdentityFiles, keys: &str) -> GroupConfig {
        let [certificate, private_key, authorities] =
            [&files.certificate, &files.private_key, &files.authorities]
                .map(|file| file.display().to_string());
        let mut text = format!(
            "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = \"{certificate}\"\n\
             private_key = \"{private_key}\"\nauthorities = \"{authorities}\"\n{keys}\n"
        );
        for name in ["a", "b", "c"] {
            text += &format!("[[group.member]]\nname = \"{name}\"\naddress = \"{name}:1\"\n");
        }
        towline_config::Config::parse(&text).unwrap().group.unwrap()
    }

    #[test]
    fn the_other_region_sees_the_groups_own_files_unless_there_are_some_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = Authority::new().issue(folder.path(), "a", 100);
        let same = config(&own, "");
        assert_eq!(IdentityFiles::of_region(&same), IdentityFiles::of(&same));
        let other = "region_certificate = \"r.pem\"\nregion_private_key = \"rk.pem\"\n\
                     region_authorities = \"ra.pem\"\nregion_ciphers = \"TLS_AES_256_GCM_SHA384\"";
        let files = IdentityFiles::of_region(&config(&own, other));
        assert_eq!(files.ciphers, RegionCiphers::Aes256GcmSha384);
        let paths = [files.certificate, files.private_key, files.authorities];
        assert_eq!(paths, ["r.pem", "rk.pem", "ra.pem"].map(PathBuf::from));
        assert_eq!(IdentityFiles::of(&config(&own, other)), own, "inside the group");
    }

    #[test]
    fn what_another_region_would_see_must_name_the_instance_and_be_in_date() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let own = authority.issue(folder.path(), "a", 100);
        let shown = |name: &str, days: i64| {
            let beside = folder.path().join(format!("{name}{days}"));
            std::fs::create_dir(&beside).unwrap();
            // Another authority than that of the group: the other region knows it.
            let files = Authority::new().issue(&beside, name, days);
            let [certificate, key] =
                [files.certificate, files.private_key].map(|file| file.display().to_string());
            let keys =
                format!("region_certificate = \"{certificate}\"\nregion_private_key = \"{key}\"");
            check_region("QM1", &config(&own, &keys), "a")
        };
        assert!(shown("a", 100).is_ok());
        let expired = shown("a", -1).unwrap_err();
        assert!(expired.contains("a.pem: the certificate has expired"), "{expired}");
        let wrong = shown("b", 100).unwrap_err();
        assert!(wrong.contains("'QM1.G.b'") && wrong.contains("not for 'QM1.G.a'"), "{wrong}");
    }
}
