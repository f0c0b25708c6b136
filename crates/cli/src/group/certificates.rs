//! `towline group certificates`: an authority, and one certificate signed by it for each instance.
//!
//! An authority that is in the folder already is used again, so the same command renews
//! certificates before they expire; running instances look at their files every few seconds.
//!
//! Invariants: files are their owner's only; each is replaced whole; keys are new each time. A
//! folder with files of another queue manager or group is refused before anything is written.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use towline_tls::{Identity, SubjectNames, certificates_in, subject_names};

use crate::arguments::GroupCertificates;
use crate::failure::Failure;
use crate::show;

const AUTHORITY: &str = "authority";
/// How the common name of an authority begins that this command created. One of a house's own may
/// sign for several groups.
const AUTHORITY_NAME: &str = "Towline group ";
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
    let common_name = format!("{AUTHORITY_NAME}{group} of {}", arguments.name);
    authority_is_ours(out, &common_name)?;
    for (instance, name) in arguments.instances.iter().zip(&names) {
        certificate_is_ours(&out.join(format!("{instance}.pem")), name)?;
    }
    let authority = authority(out, &common_name, arguments.json)?;
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

/// Refuses a folder with the authority of another queue manager or group, or with one whose two
/// files do not belong together: certificates of it would fit no instance.
fn authority_is_ours(out: &Path, common_name: &str) -> Result<(), Failure> {
    let [certificate, key] = authority_files(out);
    if !certificate.exists() && !key.exists() {
        return Ok(());
    }
    let authority = Identity::read(&certificate, &key).map_err(Failure::failed)?;
    let names = subject_names(authority.own());
    let names = names.map_err(|why| Failure::about(certificate.display(), why))?;
    let is_other = |name: &&String| name.starts_with(AUTHORITY_NAME) && *name != common_name;
    match names.common.iter().find(is_other) {
        None => Ok(()),
        Some(other) => Err(of_another(&certificate, other, common_name)),
    }
}

/// Refuses to replace a file that is not the certificate of the instance with that name.
fn certificate_is_ours(file: &Path, name: &str) -> Result<(), Failure> {
    if !file.exists() {
        return Ok(());
    }
    let first = certificates_in(file).map_err(Failure::failed)?.into_iter().next();
    let names = first.as_ref().map(subject_names).transpose();
    let names = names.map_err(|why| Failure::about(file.display(), why))?.unwrap_or_default();
    let SubjectNames { common, dns } = names;
    let is_ours = common.iter().any(|common| common == name)
        || dns.iter().any(|dns| dns.eq_ignore_ascii_case(name));
    if is_ours { Ok(()) } else { Err(of_another(file, &[common, dns].concat().join(", "), name)) }
}

fn of_another(file: &Path, owner: &str, wanted: &str) -> Failure {
    Failure::Failed(format!(
        "{}: this certificate is for '{}', not for '{wanted}'; nothing was written: correct --name, \
         --group or --instances, or name another folder with --out",
        file.display(),
        owner.escape_default(),
    ))
}

/// Certificate and key of the authority.
fn authority_files(out: &Path) -> [PathBuf; 2] {
    [out.join(format!("{AUTHORITY}.pem")), out.join(format!("{AUTHORITY}-key.pem"))]
}

/// The authority in the folder, or a new one.
fn authority(out: &Path, name: &str, quiet: bool) -> Result<Issuer<'static, KeyPair>, Failure> {
    let [certificate, key] = authority_files(out);
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

    /// All files of the folder and their bytes.
    fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.map(|path| (std::fs::read(&path).unwrap(), path)).collect();
        files.sort_by(|(_, left), (_, right)| left.cmp(right));
        files.into_iter().map(|(bytes, path)| (path, bytes)).collect()
    }

    #[test]
    fn files_of_another_queue_manager_or_group_are_refused_and_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        run(&arguments(out)).unwrap();
        let before = files(out);
        let other_name = GroupCertificates { name: "QM2".into(), ..arguments(out) };
        let other_group = GroupCertificates { group: Some("H".into()), ..arguments(out) };
        for (other, wanted) in [(&other_name, "of QM2"), (&other_group, "group H of QM1")] {
            let refused = run(other).unwrap_err();
            let why = refused.reason();
            for part in ["authority.pem: ", "Towline group G of QM1", wanted, "--name", "--out"] {
                assert!(why.contains(part), "no '{part}' in: {why}");
            }
            assert_eq!(files(out), before, "nothing is written");
        }
        // Without its authority, an instance's certificate still says whose it is.
        for file in authority_files(out) {
            std::fs::remove_file(file).unwrap();
        }
        let before = files(out);
        let refused = run(&other_name).unwrap_err();
        assert!(refused.reason().contains("'QM1.G.a', not for 'QM2.G.a'"), "{refused:?}");
        assert_eq!(files(out), before, "nothing is written, no authority either");
    }

    #[test]
    fn an_authority_with_the_key_of_another_one_and_a_file_without_a_certificate_are_refused() {
        let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        run(&arguments(folder.path())).unwrap();
        run(&arguments(other.path())).unwrap();
        let key = |folder: &Path| authority_files(folder)[1].clone();
        std::fs::write(folder.path().join("b.pem"), "notes").unwrap();
        let refused = run(&arguments(folder.path())).unwrap_err();
        assert!(refused.reason().contains("b.pem: it is no PEM file"), "{refused:?}");
        std::fs::copy(key(other.path()), key(folder.path())).unwrap();
        let before = files(folder.path());
        let refused = run(&arguments(folder.path())).unwrap_err();
        assert!(refused.reason().contains("does not belong to certificate"), "{refused:?}");
        assert_eq!(files(folder.path()), before);
    }

    #[test]
    fn an_authority_of_the_house_signs_for_any_group() {
        let folder = tempfile::tempdir().unwrap();
        let mut params = params("Example Ltd", 30).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        write(folder.path(), AUTHORITY, &certificate.pem(), &key).unwrap();
        run(&arguments(folder.path())).unwrap();
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
