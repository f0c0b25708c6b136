//! The group: consensus around opaque batches of the recovery log, without I/O.
//!
//! Reading order: [`Member`] (one instance's part in the group, stepped as everything here is),
//! [`Input`] and [`Output`] (what wakes it, what it wants done), [`Message`] (what travels between
//! members, and its bytes), [`HardState`] (what of it must outlive the process), [`Starts`]
//! (whether the folder is the one that it was).
//!
//! One entry of consensus is one batch of the log, at the same position in the log of every member.
//! Not here: what batches mean, files, sockets, clocks. The algorithm is the library `raft`'s; ours
//! is what surrounds it: which members may vote, when an election begins, what is durable, what is
//! in memory.

#![forbid(unsafe_code)]

mod election;
mod hard_state;
mod member;
mod member_id;
mod mode;
mod payloads;
mod progress;
mod relayed;
mod shipped;
mod starts;
mod store;
mod table;
mod timeline;
mod wire;

pub use hard_state::HardState;
pub use member::{FetchOrder, Input, Member, Options, Output, RecoveredLog, Role, Witness};
pub use member_id::MemberId;
pub use mode::{LogSays, Mode, UnknownMode};
pub use progress::{PeerProgress, Progress};
pub use shipped::{Shipment, ShipmentRefusal, ShippedAnswer};
pub use starts::{Start, Starts, StartsChange};
pub use timeline::may_begin_behind;
pub use wire::{Message, WireError};
