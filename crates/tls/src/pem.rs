//! A PEM file as it was read: its sections, and whether the file has other bytes now.
//!
//! Not here: what a certificate says (`certificate`).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{FileError, FileFault, FileRole};

/// A file and its bytes.
pub(crate) struct PemFile {
    pub(crate) path: PathBuf,
    role: FileRole,
    bytes: Vec<u8>,
}

impl PemFile {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(path: &Path, role: FileRole) -> Result<PemFile, FileError> {
        let bytes = fs::read(path).map_err(|error| {
            let fault = match error.kind() {
                ErrorKind::NotFound => FileFault::Missing,
                ErrorKind::PermissionDenied => FileFault::Forbidden,
                ErrorKind::IsADirectory => FileFault::Folder,
                _ => FileFault::Unreadable(error),
            };
            FileError { file: path.to_owned(), role, fault }
        })?;
        Ok(PemFile { path: path.to_owned(), role, bytes })
    }

    /// Whether the file has other bytes now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn has_changed(&self) -> Result<bool, FileError> {
        Ok(PemFile::read(&self.path, self.role)?.bytes != self.bytes)
    }

    /// Its certificates, in their order; at least one.
    ///
    /// # Errors
    /// When it has none, or a section is damaged.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FileError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.bytes)
            .collect::<Result<_, _>>()
            .map_err(|error| self.damaged(error))?;
        if chain.is_empty() {
            let has_key = PrivateKeyDer::from_pem_slice(&self.bytes).is_ok();
            return Err(self.without(FileFault::NoCertificate { has_key }));
        }
        Ok(chain)
    }

    /// Its first private key.
    ///
    /// # Errors
    /// When it has none, the key is encrypted, or a section before it is damaged.
    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>, FileError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            // A header of such a key is not base64 (RFC 1421), and its newer form is a kind of
            // section of its own.
            _ if self.is_encrypted() => self.error(FileFault::EncryptedKey),
            pem::Error::NoItemsFound => {
                let has_certificate = CertificateDer::from_pem_slice(&self.bytes).is_ok();
                self.without(FileFault::NoKey { has_certificate })
            }
            error => self.damaged(error),
        })
    }

    /// The error of this file.
    pub(crate) fn error(&self, fault: FileFault) -> FileError {
        FileError { file: self.path.clone(), role: self.role, fault }
    }

    fn damaged(&self, error: pem::Error) -> FileError {
        self.error(FileFault::Damaged(error))
    }

    /// The error of a file without what was looked for: `fault`, unless it has no section at all.
    fn without(&self, fault: FileFault) -> FileError {
        if self.bytes.trim_ascii().is_empty() {
            return self.error(FileFault::Empty);
        }
        self.error(if contains(&self.bytes, b"-----BEGIN") { fault } else { FileFault::NotPem })
    }

    fn is_encrypted(&self) -> bool {
        contains(&self.bytes, b"ENCRYPTED")
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
