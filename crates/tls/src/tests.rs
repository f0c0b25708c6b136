//! Each fault of a file is named, with the file and what to do; what is accepted works on both ends
//! of a handshake.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CipherSuite, ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use tempfile::TempDir;

use super::*;

/// A certificate of X.509 version 1 and its key, from `openssl x509 -req` without extensions.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBFzCBvwIULnYruiiTFji7YyhRHku7dV8N/yYwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMCAXDTI2MTEyMzEyNTY0MVoYDzIxMjYxMDMwMTI1NjQxWjAOMQww
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARx59W19Js5DGyp
yzafrylNh8RkytQsyU4WG+PP7F+HaFKUapcBgjZpRp+5j8szV/4rtAvtW4lz5aMb
qOENAXhfMAoGCCqGSM49BAMCA0cAMEQCIA6ZbD4e41dGSHncH8xt2/Uh6AAge4xi
Wke4vGHRWWwDAiA2Vv5H8mOc2G7ij0tPW7nDPdcFHk9Y9tC+uuIaAwcbwg==
-----END CERTIFICATE-----
";
const VERSION_1_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQglFUOFoiLPaneaeI7
WofT6np5jdudlEver65/VvAYrvqhRANCAARx59W19Js5DGypyzafrylNh8RkytQs
yU4WG+PP7F+HaFKUapcBgjZpRp+5j8szV/4rtAvtW4lz5aMbqOENAXhf
-----END PRIVATE KEY-----
";
/// The first lines of a key that OpenSSL encrypted, in its new and its old form.
const ENCRYPTED: [&str; 2] = [
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAc\n\
     -----END ENCRYPTED PRIVATE KEY-----\n",
    "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,57DB\n\n\
     f048oFdfFhxNO/CvyP5fOJGgP6m2KnzPT/nD0Mmb2LFK5cWx7BEoCkVSUTsC4Dey\n\
     -----END EC PRIVATE KEY-----\n",
];

/// A folder with files of an authority and of `localhost`.
struct Bed {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    authorities: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Bed {
    fn new() -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let path = |name: &str| folder.path().join(name);
        let (authorities, certificate, own_key) = (path("ca.pem"), path("a.pem"), path("a.key"));
        fs::write(&authorities, pem).unwrap();
        let issuer = Issuer::new(params, key);
        let (text, key) = issue(&issuer);
        fs::write(&certificate, text).unwrap();
        fs::write(&own_key, key).unwrap();
        Bed { folder, issuer, authorities, certificate, key: own_key }
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn identity(&self) -> Identity {
        Identity::read(&self.certificate, &self.key).unwrap()
    }

    fn trusted(&self) -> Authorities {
        Authorities::read(&self.authorities).unwrap()
    }
}

/// Certificate and key of `localhost`.
fn issue(issuer: &Issuer<'static, KeyPair>) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (std::time::SystemTime::now() - Duration::from_secs(86_400)).into();
    params.not_after = (std::time::SystemTime::now() + Duration::from_secs(86_400)).into();
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

fn refused<T>(result: Result<T, FileError>) -> String {
    result.err().expect("the file is not accepted").to_string()
}

/// The text names the file and its role, and has all of these parts.
fn says(text: &str, role: &str, file: &Path, parts: &[&str]) {
    assert!(text.starts_with(&format!("{role} {}: ", file.display())), "{text}");
    for part in parts {
        assert!(text.contains(part), "no '{part}' in: {text}");
    }
}

#[test]
fn a_file_of_authorities_without_a_certificate_is_refused() {
    let bed = Bed::new();
    for (text, parts) in [
        ("", ["is empty", "name the file"]),
        (" \n\n", ["is empty", "name the file"]),
        ("no certificate", ["no PEM file", "-inform DER"]),
        (VERSION_1_KEY, ["no certificate in it, only a private key", "name the file"]),
        (ENCRYPTED[0], ["no certificate in it;", "name the file"]),
    ] {
        let file = bed.file("none.pem", text);
        says(&refused(Authorities::read(&file)), "authorities", &file, &parts);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_its_role_and_what_to_do() {
    let bed = Bed::new();
    let gone = bed.folder.path().join("gone.pem");
    let missing = ["no such file", "correct its path"];
    says(&refused(Authorities::read(&gone)), "authorities", &gone, &missing);
    says(&refused(Identity::read(&gone, &bed.key)), "certificate", &gone, &missing);
    says(&refused(Identity::read(&bed.certificate, &gone)), "private key", &gone, &missing);
    let folder = bed.folder.path();
    let text = refused(Authorities::read(folder));
    let named = ["it is a folder", "name the file in it with the certificates of the trusted"];
    says(&text, "authorities", folder, &named);
    let text = refused(Identity::read(&bed.certificate, folder));
    says(
        &text,
        "private key",
        folder,
        &["it is a folder; name the file in it with the private key"],
    );
    // Tests may run as root, which reads every file.
    let forbidden =
        FileError { file: gone.clone(), role: FileRole::PrivateKey, fault: FileFault::Forbidden };
    says(&forbidden.to_string(), "private key", &gone, &["permission denied", "allow the user"]);
}

#[test]
fn a_certificate_file_without_a_certificate_is_refused() {
    let bed = Bed::new();
    let text = refused(Identity::read(&bed.key, &bed.key));
    says(&text, "certificate", &bed.key, &["only a private key", "name the file"]);
    let der = CertificateDer::from_pem_file(&bed.certificate).unwrap();
    let file = bed.file("a.der", der);
    let text = refused(Identity::read(&file, &bed.key));
    says(&text, "certificate", &file, &["no PEM file", "openssl x509 -inform DER"]);
    let text = fs::read_to_string(&bed.certificate).unwrap();
    let (cut, _) = text.split_once("-----END").unwrap();
    let file = bed.file("cut.pem", cut);
    let text = refused(Identity::read(&file, &bed.key));
    says(&text, "certificate", &file, &["damaged", "-----END CERTIFICATE----- is missing"]);
    let file = bed.file("odd.pem", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
    says(&refused(Identity::read(&file, &bed.key)), "certificate", &file, &["damaged"]);
}

#[test]
fn a_key_file_without_a_key_that_can_be_used_is_refused() {
    let bed = Bed::new();
    let with = |key: &Path| refused(Identity::read(&bed.certificate, key));
    let text = with(&bed.certificate);
    says(&text, "private key", &bed.certificate, &["only a certificate", "name the file"]);
    for text in ENCRYPTED {
        let file = bed.file("encrypted.key", text);
        says(&with(&file), "private key", &file, &["encrypted", "openssl pkey"]);
    }
    let file = bed.file("text.key", "secret");
    says(&with(&file), "private key", &file, &["no PEM file", "openssl pkey -inform DER"]);
    let file =
        bed.file("short.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    says(&with(&file), "private key", &file, &["cannot be used"]);
}

#[test]
fn a_key_of_another_certificate_is_refused_with_both_files() {
    let bed = Bed::new();
    let file = bed.file("other.key", issue(&bed.issuer).1);
    let text = refused(Identity::read(&bed.certificate, &file));
    let certificate = bed.certificate.display().to_string();
    says(&text, "private key", &file, &["does not belong to certificate", &certificate]);
}

#[test]
fn a_certificate_of_version_1_is_refused_with_the_way_to_make_another() {
    let bed = Bed::new();
    let (certificate, key) = (bed.file("1.pem", VERSION_1), bed.file("1.key", VERSION_1_KEY));
    let text = refused(Identity::read(&certificate, &key));
    says(&text, "certificate", &certificate, &["version 1", "-extfile"]);
}

#[test]
fn what_a_certificate_says_is_read() {
    let bed = Bed::new();
    let identity = bed.identity();
    let names = subject_names(identity.own()).unwrap();
    let expected = SubjectNames { common: vec!["alice".into()], dns: vec!["localhost".into()] };
    assert_eq!(names, expected);
    let chain = [identity.own().clone()];
    assert_eq!(common_name(Some(&chain)).as_deref(), Some("alice"));
    assert_eq!(common_name(Some(&[])), None);
    let expires = identity.expires().unwrap();
    assert!(matches!(expires.expiry(), Expiry::Near(0 | 1)), "{expires}");
    let now = UnixTime::now();
    let at = |days: i64| {
        let seconds = i64::try_from(now.as_secs()).unwrap() + 86_400 * days;
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap());
        in_date(Some(&chain), UnixTime::since_unix_epoch(seconds))
    };
    assert_eq!((at(0), in_date(None, now)), (Ok(()), Ok(())));
    assert!(at(2).unwrap_err().contains("has expired"));
    assert!(at(-2).unwrap_err().contains("not valid yet"));
    let nonsense = CertificateDer::from(vec![1, 2, 3]);
    assert!(subject_names(&nonsense).is_err() && in_date(Some(&[nonsense]), now).is_err());
}

#[test]
fn a_certificate_is_checked_against_the_authorities_of_peers() {
    let (bed, other) = (Bed::new(), Bed::new());
    let now = UnixTime::now();
    assert!(bed.identity().check(&bed.trusted(), now).is_ok());
    let text = refused(bed.identity().check(&other.trusted(), now));
    let parts = ["an authority that we do not trust", "--ca", "`authorities` of [group]"];
    says(&text, "certificate", &bed.certificate, &parts);
    let late = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + 2 * 86_400));
    let text = refused(bed.identity().check(&bed.trusted(), late));
    says(&text, "certificate", &bed.certificate, &["has expired"]);
}

#[test]
fn a_private_key_that_any_user_can_read_or_change_is_noticed() {
    let bed = Bed::new();
    for (mode, open) in [(0o600, None), (0o640, None), (0o644, Some(0o644)), (0o602, Some(0o602))] {
        fs::set_permissions(&bed.key, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(mode_open_to_all(&bed.key), open, "{mode:o}");
    }
    assert_eq!(mode_open_to_all(&bed.folder.path().join("none")), None);
}

#[test]
fn a_file_that_was_replaced_is_noticed() {
    let bed = Bed::new();
    let (identity, authorities) = (bed.identity(), bed.trusted());
    assert!(!identity.has_changed().unwrap() && !authorities.has_changed().unwrap());
    fs::write(&bed.key, "other").unwrap();
    assert!(identity.has_changed().unwrap());
    fs::remove_file(&bed.authorities).unwrap();
    assert!(refused(authorities.has_changed()).contains("no such file"));
}

/// The user name by which the server knows the client after a handshake and one byte each way.
fn handshake(client: ClientConfig, server: ServerConfig) -> Result<Option<Arc<str>>, String> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    client.writer().write_all(b"x").unwrap();
    for _ in 0..8 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            server.read_tls(&mut wire).unwrap();
            server.process_new_packets().map_err(|error| error.to_string())?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().map_err(|error| error.to_string())?;
        }
    }
    let mut byte = [0];
    server.reader().read_exact(&mut byte).map_err(|error| error.to_string())?;
    Ok(common_name(server.peer_certificates()))
}

#[test]
fn a_listener_takes_clients_with_and_without_a_certificate_and_no_certificate_of_others() {
    let (bed, other) = (Bed::new(), Bed::new());
    let (identity, trusted) = (bed.identity(), bed.trusted());
    let with = |clients: Option<&Authorities>| server(&identity, clients).unwrap();
    let alice = Some(Arc::from("alice"));
    let own = || client(&trusted, Some(&identity));
    assert_eq!(handshake(own(), with(Some(&trusted))), Ok(alice));
    assert_eq!(handshake(own(), with(None)), Ok(None), "not asked for");
    assert_eq!(handshake(client(&trusted, None), with(Some(&trusted))), Ok(None));
    let stranger = client(&trusted, Some(&other.identity()));
    assert!(handshake(stranger, with(Some(&trusted))).is_err());
    assert!(handshake(client(&other.trusted(), None), with(None)).is_err());
}

#[test]
fn a_mutual_server_needs_a_certificate_of_its_authorities() {
    let (bed, other) = (Bed::new(), Bed::new());
    let (identity, trusted) = (bed.identity(), bed.trusted());
    let server = || mutual_server(&identity, &trusted, None).unwrap();
    let alice = Some(Arc::from("alice"));
    assert_eq!(handshake(mutual_client(&identity, &trusted, None), server()), Ok(alice));
    assert!(handshake(client(&trusted, None), server()).is_err());
    assert!(handshake(mutual_client(&other.identity(), &trusted, None), server()).is_err());
    assert!(handshake(mutual_client(&identity, &other.trusted(), None), server()).is_err());
}

#[test]
fn a_suite_that_one_end_demands_is_used_and_two_ends_that_demand_others_do_not_connect() {
    let bed = Bed::new();
    let (identity, trusted) = (bed.identity(), bed.trusted());
    let connects = |ends: [Option<CipherSuite>; 2]| {
        let [here, there] = ends;
        let server = mutual_server(&identity, &trusted, there).unwrap();
        handshake(mutual_client(&identity, &trusted, here), server).is_ok()
    };
    let suites = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    for one in suites {
        assert!(connects([Some(one), None]) && connects([None, Some(one)]), "{one:?}");
        for other in suites {
            assert_eq!(connects([Some(one), Some(other)]), one == other, "{one:?} {other:?}");
        }
    }
}

#[test]
#[should_panic(expected = "no cipher suite of TLS 1.3 is left")]
fn a_suite_of_another_version_is_no_setting() {
    let bed = Bed::new();
    let older = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    drop(mutual_client(&bed.identity(), &bed.trusted(), Some(older)));
}
