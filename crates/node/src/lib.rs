//! One instance of a queue manager: the rules and the client sessions as one `step`.
//!
//! Reading order: [`Request`] and [`Response`] (what a connection asks, and the answers), [`Front`]
//! (one connection's AMQP machine translated into requests), [`Instance`] (decide, log, apply,
//! dispatch), `pending` (replies wait for their log position), `live` (which extents still hold
//! bodies).
//!
//! This crate opens no file and no socket and reads no clock and no random source. It knows the log
//! only as a [`Journal`] that takes runs of facts and reports when they are durable.

#![forbid(unsafe_code)]

mod admin;
mod annotated;
mod damaged;
mod front;
mod instance;
mod journal;
mod live;
mod pending;
mod region;
mod request;
mod restart;
mod selection;

pub use admin::{ConnectionListRow, DefinitionListRow, HandleListRow, QueueListRow};
pub use damaged::{DamagedMessage, Whereabouts};
pub use front::{
    CheckedMessage, ConnectionAccount, Elsewhere, Front, FrontOptions, Logins, MessageCheck,
    SOLE_CONNECTION, TurnedAway,
};
pub use instance::{
    Administration, AnswerWaits, Chore, ChoreTicket, Fetch, ImagePlan, Input, Instance, OldBody,
    Outbound, RoutedResponse,
};
pub use journal::{Journal, NotAppended};
pub use live::{MESSAGE_OVERHEAD_BYTES, SparseExtents};
pub use region::role_changes;
pub use request::{
    AdminReply, ConsumerOpened, Farewell, LinkToken, ProducerId, ProducerOpened, PutTo, Request,
    Response, Terminus,
};
pub use restart::{LogPart, Restart, RestartError};
pub use selection::{FetchTicket, front_of_chunks};
pub use towline_core::record::{history_begun, raises_to};
