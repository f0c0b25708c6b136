//! What can be wrong with a file: which one, what it is for, the fault, and what to do.
//!
//! Not here: why a handshake with good files fails (`failure`).

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;

use crate::failure;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// The certificate chain of this side.
    Certificate,
    /// The key of that certificate.
    PrivateKey,
    /// The authorities that sign the certificates of peers.
    Authorities,
}

/// A file that cannot be used.
#[derive(Debug)]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// What it is for.
    pub role: FileRole,
    /// What is wrong with it.
    pub fault: FileFault,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum FileFault {
    /// There is no such file.
    Missing,
    /// This user may not read it.
    Forbidden,
    /// It is a folder.
    Folder,
    /// It cannot be read for another reason.
    Unreadable(io::Error),
    /// It has no text.
    Empty,
    /// No line in it begins a PEM section.
    NotPem,
    /// A PEM section of it is damaged.
    Damaged(pem::Error),
    /// It has no certificate.
    NoCertificate {
        /// It has a private key.
        has_key: bool,
    },
    /// It has no private key.
    NoKey {
        /// It has a certificate.
        has_certificate: bool,
    },
    /// Its key is encrypted with a password.
    EncryptedKey,
    /// Its key belongs to another certificate than that of the file named here.
    WrongKey(PathBuf),
    /// Its certificate has X.509 version 1 (RFC 5280, 4.1.2.1). `openssl x509 -req` makes such
    /// ones when it is given no extensions.
    Version1,
    /// Its certificate cannot be parsed.
    NotX509,
    /// Its certificate is not signed by the authorities, or is not in date.
    Untrusted(rustls::Error),
    /// Its content cannot be used: the text of the TLS library.
    Unusable(String),
}

impl fmt::Display for FileRole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            FileRole::Certificate => "certificate",
            FileRole::PrivateKey => "private key",
            FileRole::Authorities => "authorities",
        })
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: ", self.role, self.file.display())?;
        let wanted = match self.role {
            FileRole::Certificate | FileRole::PrivateKey => self.role.to_string(),
            FileRole::Authorities => "certificates of the trusted authorities".to_owned(),
        };
        match &self.fault {
            FileFault::Missing => out.write_str("there is no such file; correct its path"),
            FileFault::Forbidden => out.write_str(
                "permission denied; allow the user that runs this program to read it, and to \
                 enter the folders above it",
            ),
            FileFault::Folder => {
                write!(out, "it is a folder; name the file in it with the {wanted}")
            }
            FileFault::Unreadable(error) => write!(out, "it cannot be read: {error}"),
            FileFault::Empty => write!(out, "the file is empty; name the file with the {wanted}"),
            FileFault::NotPem => self.not_pem(out),
            FileFault::Damaged(error) => {
                write!(out, "its PEM is damaged: {}; copy it again", Damage(error))
            }
            FileFault::NoCertificate { has_key } => {
                let only = if *has_key { ", only a private key" } else { "" };
                write!(out, "no certificate in it{only}; name the file with the {wanted}")
            }
            FileFault::NoKey { has_certificate } => {
                let only = if *has_certificate { ", only a certificate" } else { "" };
                write!(out, "no private key in it{only}; name the file with the {wanted}")
            }
            FileFault::EncryptedKey => out.write_str(
                "it is encrypted with a password; decrypt it (openssl pkey -in FILE -out NEW-FILE)",
            ),
            FileFault::WrongKey(certificate) => write!(
                out,
                "it does not belong to certificate {}; name the key that the certificate was \
                 issued for",
                certificate.display()
            ),
            FileFault::Version1 => out.write_str(
                "it has X.509 version 1, and 3 is needed; sign it with extensions (openssl x509 \
                 -req -extfile)",
            ),
            FileFault::NotX509 => out.write_str("it cannot be parsed as X.509; issue it again"),
            FileFault::Untrusted(error) => out.write_str(&failure::words(error)),
            FileFault::Unusable(why) => write!(out, "it cannot be used: {why}"),
        }
    }
}

impl FileError {
    fn not_pem(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = match self.role {
            FileRole::PrivateKey => "pkey",
            FileRole::Certificate | FileRole::Authorities => "x509",
        };
        write!(
            out,
            "it is no PEM file (no line starts with -----BEGIN); convert it if it is DER (openssl \
             {program} -inform DER -in FILE -out NEW-FILE)"
        )
    }
}

/// A damaged section, for people.
struct Damage<'a>(&'a pem::Error);

impl fmt::Display for Damage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            pem::Error::MissingSectionEnd { end_marker } => {
                write!(out, "the line -----END {}----- is missing", end_marker.escape_ascii())
            }
            pem::Error::IllegalSectionStart { line } => {
                write!(out, "the line {} begins no section", line.escape_ascii())
            }
            other => other.fmt(out),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            FileFault::Unreadable(error) => Some(error),
            FileFault::Damaged(error) => Some(error),
            FileFault::Untrusted(error) => Some(error),
            _ => None,
        }
    }
}
