//! Whether a certificate is that of a certain instance.
//!
//! An instance is named by its certificate's common name `<queue manager>.<group>.<instance>`, or
//! by a DNS name in it (subjectAltName, RFC 5280 section 4.2.1.6): the same in full. Case counts in
//! the common name and does not in a DNS name; there are no wildcards. The instance's name alone is
//! not enough: an authority that signs for other things too may have given `a` to any machine of
//! that name.
//!
//! Not here: its issuer and expiry (`towline_tls`).

use rustls::pki_types::CertificateDer;
use towline_tls::{SubjectNames, subject_names};

/// Names by which a certificate may call one instance.
#[derive(Clone, Debug)]
pub(super) struct Names {
    full: String,
}

impl Names {
    pub(super) fn of(queue_manager: &str, group: &str, instance: &str) -> Names {
        Names { full: format!("{queue_manager}.{group}.{instance}") }
    }
}

/// Checks that the certificate is that instance's.
///
/// # Errors
/// What it is instead.
pub(super) fn belongs(certificate: &CertificateDer<'_>, names: &Names) -> Result<(), String> {
    let SubjectNames { common, dns } = subject_names(certificate)?;
    if dns.iter().any(|name| name.eq_ignore_ascii_case(&names.full)) || common.contains(&names.full)
    {
        return Ok(());
    }
    Err(format!(
        "the certificate is for common name '{}' and DNS names [{}], not for '{}'",
        common.join(", ").escape_default(),
        dns.join(", ").escape_default(),
        names.full
    ))
}

/// Checks that the certificate is of some instance of a group.
///
/// # Errors
/// What it is instead.
pub(super) fn of_group(
    certificate: &CertificateDer<'_>,
    queue_manager: &str,
    group: &str,
) -> Result<(), String> {
    let SubjectNames { common, dns } = subject_names(certificate)?;
    let prefix = format!("{queue_manager}.{group}.");
    let is_in_dns = |name: &String| {
        let start = name.get(..prefix.len());
        name.len() > prefix.len() && start.is_some_and(|start| start.eq_ignore_ascii_case(&prefix))
    };
    let is_common = |name: &String| name.len() > prefix.len() && name.starts_with(&prefix);
    if dns.iter().any(is_in_dns) || common.iter().any(is_common) {
        return Ok(());
    }
    Err(format!(
        "the certificate is for common name '{}' and DNS names [{}], not for an instance of group \
         '{group}', '{prefix}*'",
        common.join(", ").escape_default(),
        dns.join(", ").escape_default(),
    ))
}

/// The certificate that the other end showed for itself.
pub(super) fn own_certificate<'a>(
    chain: Option<&'a [CertificateDer<'static>]>,
) -> Option<&'a CertificateDer<'static>> {
    chain.and_then(<[_]>::first)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(common: &str, dns: &[&str]) -> CertificateDer<'static> {
        let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn an_instance_is_named_in_full_as_common_name_or_as_dns_name() {
        let names = Names::of("QM1", "G", "a");
        for (common, dns, fits) in [
            ("QM1.G.a", &[][..], true),
            ("x", &["b", "A"], false),
            ("x", &["a"], false),
            ("x", &["qm1.g.a"], true),
            ("QM1.G.b", &[], false),
            ("qm1.g.a", &[], false),
            ("a", &[], false),
            ("x", &["*", "*.g.a", "a.b", "aa"], false),
            ("x", &["QM2.G.a"], false),
        ] {
            let result = belongs(&certificate(common, dns), &names);
            assert_eq!(result.is_ok(), fits, "{common} {dns:?}: {result:?}");
        }
        let why = belongs(&certificate("x", &["y"]), &names).unwrap_err();
        assert!(why.contains("'x'") && why.contains("[y]") && why.contains("'QM1.G.a'"), "{why}");
        assert!(belongs(&CertificateDer::from(vec![1, 2, 3]), &names).is_err());
    }
}
