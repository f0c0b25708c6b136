//! Where the content of a delivery comes from: memory, the log's cache, or the log's extents.

use std::sync::Arc;

use towline_core::{Body, DeadLetterReason, Delivery};
use towline_log::{Log, LogError};
use towline_types::{BodyLocation, Payload};

use crate::repairs::Repairs;

/// The content, if it is in memory.
#[must_use]
pub fn resident(log: &Log, body: &Body) -> Option<Payload> {
    match body {
        Body::Memory(bytes) => Some(Payload::from(bytes.clone())),
        Body::Incoming(payload) => Some(payload.clone()),
        Body::Log(location) => log.resident(*location).map(Payload::from),
        Body::Chunks(chunks) => collect(chunks, |location| log.resident(location).ok_or(())).ok(),
        Body::Announced { .. } => None,
    }
}

/// The content; waits for the disk.
///
/// # Errors
/// The body is damaged, or the log does not have it any more.
pub fn read(log: &Log, body: &Body) -> Result<Payload, LogError> {
    match body {
        Body::Memory(bytes) => Ok(Payload::from(bytes.clone())),
        Body::Incoming(payload) => Ok(payload.clone()),
        Body::Log(location) => log.read(*location).map(Payload::from),
        Body::Chunks(chunks) => collect(chunks, |location| log.read(location)),
        Body::Announced { .. } => Ok(Payload::Empty),
    }
}

/// The content, after a repair if it is damaged. Waits for the disk and for the repair.
///
/// # Errors
/// As [`read`].
pub fn read_or_repair(
    log: &Log,
    body: &Body,
    repairs: Option<&Arc<dyn Repairs>>,
) -> Result<Payload, LogError> {
    let content = read(log, body);
    match (&content, repairs) {
        (Err(error), Some(repairs)) if error.is_damage() && repairs.wait_for(parts(body)) => {
            read(log, body)
        }
        _ => content,
    }
}

/// Whether the message was set aside because its content is damaged.
#[must_use]
pub fn is_note(delivery: &Delivery) -> bool {
    delivery.dead_letter.as_ref().is_some_and(|it| it.reason == DeadLetterReason::Damaged)
}

/// The positions of the content in the log.
#[must_use]
pub fn parts(body: &Body) -> Vec<BodyLocation> {
    match body {
        Body::Log(location) => vec![*location],
        Body::Chunks(chunks) => chunks.to_vec(),
        Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => Vec::new(),
    }
}

fn collect<E>(
    chunks: &[BodyLocation],
    get: impl Fn(BodyLocation) -> Result<bytes::Bytes, E>,
) -> Result<Payload, E> {
    let mut whole = Payload::Empty;
    for location in chunks {
        whole.push(get(*location)?);
    }
    Ok(whole)
}
