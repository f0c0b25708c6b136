//! A file system that forgets what was not synced, as a machine does that loses its power.
//!
//! [`disk`] is the rule (pages and names, what is durable and what is not), [`mount`] shows it to
//! the kernel. It also has a size, so that it can be full, and can refuse syncs.

pub mod disk;
pub mod mount;
