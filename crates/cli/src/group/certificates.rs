//! `towline group certificates`: an authority, and one certificate signed by it for each instance.
//!
//! An authority that is in the folder already is used again, so the same command renews
//! certificates before they expire; running instances look at their files every few seconds.
//!
//! Invariants: files are their owner's only; each is replaced whole; keys are new each time.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use crate::arguments::GroupCertificates;
use crate::failure::Failure;
use crate::show;

const AUTHORITY: &str = "authority";
/// The authority outlives the certificates: replacing it means to touch all instances at once.
const AUTHORITY_DAYS: u32 = 3_650;
/// Clocks of other machines may be behind ours.
const VALID_SINCE: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Bytes of a common name (RFC 5280, ub-common-name).
const COMMON_NAME_BYTES_MAX: usize = 64;

/// Runs the command.
pub(super) fn run(arguments: &GroupCertificates) -> Result<(), Failure> {
    let out = &arguments.out;
    let group = arguments.group.as_ref().unwrap_or(&arguments.name);
    let names = names(&arguments.name, group, &arguments.instances)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(out);
    made.map_err(|error| Failure::about(out.display(), error))?;
    let authority =
        authority(out, &format!("Towline group {group} of {}", arguments.name), arguments.json)?;
    let mut made = Vec::new();
    for (instance, name) in arguments.instances.iter().zip(&names) {
        let key = KeyPair::generate().map_err(Failure::failed)?;
        let mut params = params(name, arguments.days)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // An instance dials and is dialled.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &authority).map_err(Failure::failed)?;
        write(out, instance, &certificate.pem(), &key)?;
        let file = out.join(format!("{instance}.pem"));
        made.push(json!({ "instance": instance, "name": name, "certificate": file }));
        if arguments.json {
            continue;
        }
        show::line(&format!("{}: {name}, valid for {} days", file.display(), arguments.days))?;
    }
    if arguments.json {
        show::json(&json!({ "days": arguments.days, "certificates": made }))?;
    }
    Ok(())
}

/// The common name of each instance.
fn names(queue_manager: &str, group: &str, instances: &[String]) -> Result<Vec<String>, Failure> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let mut names = Vec::new();
    for instance in instances {
        // It becomes part of a path, so it must not lead anywhere else.
        let plain =
            !instance.is_empty() && instance.chars().all(fits) && !instance.starts_with('.');
        let taken = instance == AUTHORITY || instance.ends_with("-key");
        if !plain || taken {
            return Err(Failure::Usage(format!("'{instance}' cannot be the name of an instance")));
        }
        let name = format!("{queue_manager}.{group}.{instance}");
        if names.contains(&name) {
            return Err(Failure::Usage(format!("the instance '{instance}' is named twice")));
        }
        if name.len() > COMMON_NAME_BYTES_MAX {
            return Err(Failure::Usage(format!(
                "'{name}' is too long: a certificate's name has {COMMON_NAME_BYTES_MAX} bytes"
            )));
        }
        names.push(name);
    }
    Ok(names)
}

/// The authority in the folder, or a new one.
fn authority(out: &Path, name: &str, quiet: bool) -> Result<Issuer<'static, KeyPair>, Failure> {
    let certificate = out.join(format!("{AUTHORITY}.pem"));
    let key = out.join(format!("{AUTHORITY}-key.pem"));
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| Failure::about(path.display(), error))
    };
    if certificate.exists() || key.exists() {
        let of_key = |error| Failure::about(key.display(), error);
        let of_certificate = |error| Failure::about(certificate.display(), error);
        let pair = KeyPair::from_pem(&read(&key)?).map_err(of_key)?;
        let issuer = Issuer::from_ca_cert_pem(&read(&certificate)?, pair);
        return issuer.map_err(of_certificate);
    }
    let pair = KeyPair::generate().map_err(Failure::failed)?;
    let mut params = params(name, AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&pair).map_err(Failure::failed)?;
    write(out, AUTHORITY, &certificate.pem(), &pair)?;
    if quiet {
        return Ok(Issuer::new(params, pair));
    }
    show::line(&format!(
        "{}: {name}; keep {} away from the instances",
        out.join(format!("{AUTHORITY}.pem")).display(),
        key.display()
    ))?;
    Ok(Issuer::new(params, pair))
}

fn params(name: &str, days: u32) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(Vec::new()).map_err(Failure::failed)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    params.not_before = (now - VALID_SINCE).into();
    params.not_after = (now + DAY * days).into();
    Ok(params)
}

/// Writes the key first: a reader in between finds two files that do not fit, and reads again.
fn write(out: &Path, name: &str, certificate: &str, key: &KeyPair) -> Result<(), Failure> {
    replace(&out.join(format!("{name}-key.pem")), &key.serialize_pem())?;
    replace(&out.join(format!("{name}.pem")), certificate)
}

fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let beside = path.with_extension("pem.new");
    let written = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|error| Failure::about(path.display(), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn arguments(out: &Path) -> GroupCertificates {
        GroupCertificates {
            out: out.to_owned(),
            name: "QM1".into(),
            group: Some("G".into()),
            instances: ["a", "b", "c"].map(str::to_owned).to_vec(),
            days: 30,
            json: false,
        }
    }

    #[test]
    fn each_instance_gets_papers_that_only_their_owner_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("papers");
        run(&arguments(&out)).unwrap();
        let mut files: Vec<String> = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600);
                entry.file_name().into_string().unwrap()
            })
            .collect();
        files.sort();
        let expected = ["a-key.pem", "a.pem", "authority-key.pem", "authority.pem", "b-key.pem"];
        assert_eq!(files[..5], expected);
        assert_eq!(files.len(), 8);
    }

    #[test]
    fn a_second_run_renews_with_the_same_authority() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        run(&arguments(folder.path())).unwrap();
        let (authority, certificate) = (read("authority.pem"), read("a.pem"));
        run(&arguments(folder.path())).unwrap();
        assert_eq!(read("authority.pem"), authority);
        assert_ne!(read("a.pem"), certificate);
        std::fs::remove_file(folder.path().join("authority-key.pem")).unwrap();
        assert!(run(&arguments(folder.path())).is_err(), "an authority without its key");
    }

    #[test]
    fn names_that_lead_elsewhere_or_stand_twice_are_refused() {
        let instances = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            super::names("QM1", "G", &names)
        };
        assert_eq!(instances(&["a", "b"]).unwrap(), ["QM1.G.a", "QM1.G.b"]);
        for wrong in ["", "../x", ".", "a/b", "authority", "a-key", "a b"] {
            assert!(instances(&[wrong]).is_err(), "{wrong}");
        }
        assert!(instances(&["a", "a"]).is_err());
        assert!(instances(&["a".repeat(60).as_str()]).is_err());
    }
}
