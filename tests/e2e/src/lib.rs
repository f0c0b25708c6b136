//! Black-box tests: the real daemon, other people's clients, faulty disks and hostile peers.
//!
//! Here is what the test files in `tests/` stand on, in reading order: [`chance`] (seeds), [`wait`]
//! (levels, not edges), [`paths`] (where programs are), [`daemon`] (start, kill, ask), [`group`]
//! (three of them), [`chaos`] (random faults on those), [`regions`] (two groups), [`region_rounds`]
//! (random changes of their roles), [`program`] (clients in other languages), [`wire`] (raw AMQP
//! bytes), [`peer`] (a hostile or a plain peer on one socket), [`tls`] (a TLS client under it),
//! [`lossy`] (a file system that forgets), [`slow`] (one that takes its time), [`slow_net`] (a
//! network that does), [`history`] (the answers that clients got), [`workload`] (producers and
//! movers for the kill tests), [`through`] (messages in and out again), [`numbered`] (messages that
//! are kept apart), [`deep`] (deep queues), [`extent`] (the log's bytes), [`papers`]
//! (certificates), [`versions`] (programs of another version), [`lan`] (machines on a bridge).
//! Nothing here is part of the product, and the product's crates are not used: what is tested is
//! what a stranger sees.

pub mod chance;
pub mod chaos;
pub mod daemon;
pub mod deep;
pub mod extent;
pub mod group;
pub mod history;
pub mod lan;
pub mod lossy;
pub mod numbered;
pub mod one_log;
pub mod papers;
pub mod paths;
pub mod peer;
pub mod program;
pub mod region_rounds;
pub mod regions;
pub mod slow;
pub mod slow_net;
pub mod through;
pub mod tls;
pub mod versions;
pub mod wait;
pub mod wire;
pub mod workload;

/// What a test or a support function gives back: the reason in words when it did not work.
pub type Try<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Ends a function that gives back [`Try`] with a reason.
#[macro_export]
macro_rules! fail {
    ($($words:tt)*) => { return Err(format!($($words)*).into()) };
}

/// Ends a function that gives back [`Try`] with a reason unless the condition holds.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($words:tt)*) => {
        if !$condition { return Err(format!($($words)*).into()) }
    };
}
