//! Throw-away certificates: one authority, a server's and a client's paper, each as PEM files.
//!
//! Nothing here is secret or kept; the files live in a test's scratch folder.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::Try;

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
