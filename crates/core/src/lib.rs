//! The rules of a queue manager: messages, queues, units of work, objects.
//!
//! Requests are *decided* (`decide`, on the active instance only: it may refuse), what was decided
//! is *logged* as [`Fact`]s, facts are *applied* (`apply`, everywhere: it is total). Non-persistent
//! messages, consumers, credit and locks are never logged.
//!
//! This crate knows no AMQP, no file, no socket, no thread, no clock and no random source: time and
//! bytes are arguments. It must not name `std::fs`, `std::net`, `std::time::Instant`,
//! `std::time::SystemTime` or `std::thread` (the tidy test checks).

#![forbid(unsafe_code)]

mod apply;
mod audit;
mod catalogue;
pub mod command;
mod decide;
mod dispatch;
mod effect;
mod expiry;
mod fact;
mod garbage;
mod ghosts;
mod hash;
mod ids;
mod log_room;
mod log_wait;
mod message;
pub mod object;
mod page_cache;
mod page_key;
mod parts;
mod principal;
mod queue;
mod queue_manager;
pub mod record;
mod refusal;
mod region;
mod relocate;
mod replay;
mod request;
mod returns;
pub mod selector;
mod sessions;
pub mod snapshot;
mod spilled_bodies;
mod staged_puts;
mod status;
mod work;

pub use decide::damaged::{SetAside, Unreadable};
pub use decide::define::DanglingNames;
pub use decide::history::BeginHistory;
pub use effect::{Delivery, Effect, Outputs};
pub use fact::{Durability, Fact};
pub use hash::FastMap;
pub use ids::{
    BodyId, CommitId, ConnectionId, ConsumerId, LargePutId, MessageSequence, QueueId, UnitId,
};
pub use message::{Body, BodyName, DeadLetter, DeadLetterReason, Header, Message, NewMessage};
pub use page_cache::{EvictionPlan, PageDraft, PageJob, PagingStatus, StoredPage};
pub use page_key::{PageKey, PageRequest};
pub use principal::Principal;
pub use queue::page::VERSION as PAGE_VERSION;
pub use queue::{ExtentShare, Outline, Totals};
pub use queue_manager::QueueManager;
pub use record::{LaterFormat, RecordError, ReplayError};
pub use refusal::Refusal;
pub use region::LogCounts;
pub use relocate::{RelocationCursor, RelocationSearch};
pub use request::{
    AutoDefine, Candidate, ConsumerMode, ConsumerSpec, Decision, Filter, FilterKey, Limits, Match,
    MoveCounts, Outcome, PutTarget, Selection, Settlement,
};
pub use snapshot::{ImagePlan, Pages, RestoredImage};
pub use status::{ConnectionStatus, HandleStatus, QueueStatus};

#[cfg(test)]
mod tests;
