//! Throw-away certificates (one authority, a server's and a client's paper, each as PEM files) and
//! users files.
//!
//! Nothing here is secret or kept; the files live in a test's scratch folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::{Try, require};

/// Prints one line of a users file.
const SCRAM: &str = r#"
import base64, hashlib, hmac, os, sys
name, password = sys.argv[1:]
salt, count = os.urandom(16), 4096
salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, count)
stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
server = hmac.digest(salted, b"Server Key", "sha256")
text = lambda value: base64.b64encode(value).decode()
print(f"{name}:SCRAM-SHA-256${count}:{text(salt)}${text(stored)}:{text(server)}")
"#;

/// Paths of the PEM files.
pub struct Papers {
    /// Certificate of the authority.
    pub authority: PathBuf,
    /// Certificate of the daemon, for `localhost` and 127.0.0.1.
    pub server: PathBuf,
    /// Its key (PKCS #8).
    pub server_key: PathBuf,
    /// Certificate of a client, common name as given.
    pub client: PathBuf,
    /// Its key (PKCS #8).
    pub client_key: PathBuf,
    /// A client's certificate, same name, of another authority.
    pub stranger: PathBuf,
    /// Its key.
    pub stranger_key: PathBuf,
}

/// Makes all papers in a folder.
///
/// # Errors
/// When a file cannot be written.
pub fn issue(folder: &Path, client_name: &str) -> Try<Papers> {
    let papers = Papers {
        authority: folder.join("authority.pem"),
        server: folder.join("server.pem"),
        server_key: folder.join("server-key.pem"),
        client: folder.join("client.pem"),
        client_key: folder.join("client-key.pem"),
        stranger: folder.join("stranger.pem"),
        stranger_key: folder.join("stranger-key.pem"),
    };
    let (authority, pem) = authority("Towline test authority")?;
    fs::write(&papers.authority, pem)?;
    let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
    let server = paper(names, "localhost", ExtendedKeyUsagePurpose::ServerAuth)?;
    sign(&server, &authority, &papers.server, &papers.server_key)?;
    let client = paper(vec![], client_name, ExtendedKeyUsagePurpose::ClientAuth)?;
    sign(&client, &authority, &papers.client, &papers.client_key)?;
    let (other, _) = self::authority("Somebody else's authority")?;
    sign(&client, &other, &papers.stranger, &papers.stranger_key)?;
    Ok(papers)
}

/// Makes a server's certificate of its own authority that ends so many seconds after the epoch.
///
/// # Errors
/// When a file cannot be written.
pub fn server_until(folder: &Path, ends_at: Duration) -> Try<(PathBuf, PathBuf)> {
    let (authority, _) = authority("Towline test authority")?;
    let mut server =
        paper(vec!["localhost".into()], "localhost", ExtendedKeyUsagePurpose::ServerAuth)?;
    server.not_before = rcgen::date_time_ymd(1975, 1, 1);
    server.not_after = rcgen::date_time_ymd(1970, 1, 1) + ends_at;
    let (certificate, key) = (folder.join("until.pem"), folder.join("until-key.pem"));
    sign(&server, &authority, &certificate, &key)?;
    Ok((certificate, key))
}

/// Writes a users file for the daemon, readable by its owner alone, with these names and passwords.
///
/// The line's shape is `name:SCRAM-SHA-256$iterations:salt$stored:server`; the keys are made by
/// Python's hashlib (RFC 5802 section 3), so that the product's own code is not its own witness.
///
/// # Errors
/// When the file cannot be written.
pub fn users(folder: &Path, users: &[(&str, &str)]) -> Try<PathBuf> {
    let mut text = String::new();
    for (name, password) in users {
        let output = Command::new("python3").args(["-c", SCRAM, name, password]).output()?;
        require!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        text.push_str(&String::from_utf8(output.stdout)?);
    }
    let path = folder.join("users");
    fs::write(&path, text)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path)
}

fn authority(name: &str) -> Try<(Issuer<'static, KeyPair>, String)> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

fn paper(names: Vec<String>, name: &str, usage: ExtendedKeyUsagePurpose) -> Try<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn sign(params: &CertificateParams, by: &Issuer<'_, KeyPair>, to: &Path, key_to: &Path) -> Try {
    let key = KeyPair::generate()?;
    fs::write(to, params.signed_by(&key, by)?.pem())?;
    fs::write(key_to, key.serialize_pem())?;
    Ok(())
}
