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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_and_the_unit_name_every_exit_code() {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |file: &str| std::fs::read_to_string(sources.join(file)).unwrap();
        let (reference, unit) =
            (read("docs/reference/command.md"), read("examples/towline.service"));
        let (_, table) = reference.split_once("| Exit code of `run` | Means |").unwrap();
        for (code, what) in [
            (EXIT_LOG_FAILED, "the recovery log failed"),
            (EXIT_LEASE_LOST, "the lease"),
            (EXIT_REEXEC_FAILED, "re-exec"),
        ] {
            let row = table.lines().find(|line| line.starts_with(&format!("| {code} |")));
            assert!(row.is_some_and(|row| row.contains(what)), "{code}: {row:?}");
            assert!(unit.contains(&format!("{code} (")), "{code} in the unit");
        }
    }
}
