//! Two regions, one log: what the live group and the recovery group send each other, and how far
//! the second is behind.
//!
//! The live group's active instance ships committed batches to one instance of the recovery group,
//! the relay, which appends them to its own log and passes them to its peers. Nothing is waited
//! for on the way there: [`Shipper`] keeps a window in flight. On the way back comes the recovery
//! point, the end of what is durable at a majority of the recovery group; it alone moves what live
//! believes of recovery ([`RecoveryPoint`]).
//!
//! Reading order: [`wire`] (bytes), [`Shipper`] (the live side), [`Reports`] (when recovery
//! reports), [`Backlog`] (what would be lost now), [`SyncGate`] (up to where replies may go that
//! wait for recovery).
//!
//! Not here: sockets, TLS, compression (`link`), the recovery group's own replication (`group`),
//! histories (`types`), the batches' content.

#![forbid(unsafe_code)]

mod backlog;
mod interval;
mod reports;
mod shipper;
mod sync_gate;
pub mod wire;

pub use backlog::{Backlog, BacklogSample, CountedLog, Exposure};
pub use interval::{RegionFigures, RegionInterval, RegionIntervals};
pub use reports::{ReportPolicy, Reports};
pub use shipper::{Send, Shipper, ShippingError};
pub use sync_gate::{SyncGate, SyncPolicy, SyncSight, SyncState, SyncTurn, SyncView};
pub use wire::{Counts, RecoveryPoint, Refusal};
