//! TLS files: PEM files to certificates, private keys and trusted authorities, and rustls settings
//! for servers and clients made of them.
//!
//! One loader serves listeners, the links of a group, the client commands and the load harness, so
//! that a file is accepted by all of them or by none, and refused with the same text.
//!
//! Reading order: [`error`](FileError) (what can be wrong with a file), `pem` (a file and its
//! sections), `certificate` and `expiry` (names and dates), [`identity`](Identity) (the certificate
//! that one side shows, and its key), `chain` and [`authorities`](Authorities) (which certificates
//! of peers are trusted), `configuration` (settings of rustls), `failure` (why a handshake failed).
//!
//! Not here: sockets and handshakes; when files are read again; which name a peer must have, and
//! what it may do; tickets and protocols of the links (`link`). Nothing of AMQP or of groups.
//!
//! Invariants: an [`Identity`] has a certificate and the key that belongs to it; [`Authorities`]
//! have at least one certificate, so a file without any is refused where it is read, not by each
//! connection; each error names the file, what is wrong with it, and what to do.

#![forbid(unsafe_code)]

mod authorities;
mod certificate;
mod chain;
mod configuration;
mod error;
mod expiry;
mod failure;
mod identity;
mod pem;
#[cfg(test)]
mod tests;

pub use authorities::Authorities;
pub use certificate::{SubjectNames, certificates_in, common_name, in_date, subject_names};
pub use configuration::{client, gather_entropy, mutual_client, mutual_server, server};
pub use error::{FileError, FileFault, FileRole};
pub use expiry::{Expiry, ExpiryTime};
pub use failure::reason;
pub use identity::{Identity, mode_open_to_all};
