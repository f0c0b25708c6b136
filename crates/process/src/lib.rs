//! What a process asks of its operating system: clocks, random bytes, folders whose names are
//! durable; and its exit codes.
//!
//! Reading order: [`Clock`], [`random`], [`folder`].
//!
//! It knows no log, no queue and no client. Not here: sockets, threads, signals, and clocks that
//! measure one thing only (the lease of a shared folder, the expiry of a certificate).

#![forbid(unsafe_code)]

mod clock;
pub mod folder;
pub mod random;

pub use clock::{Clock, since_boot};

/// Exit code when the recovery log failed: what is acknowledged is safe, a restart reads it.
pub const EXIT_LOG_FAILED: i32 = 70;

/// Exit code when the lease of a shared data folder was lost: another instance may be active.
/// Nothing was acknowledged since.
pub const EXIT_LEASE_LOST: i32 = 71;

/// Exit code of an instance of a group that must re-execute and cannot do so by itself: start it.
pub const EXIT_REEXEC_FAILED: i32 = 75;
