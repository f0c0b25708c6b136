//! Where the content of a delivery comes from: memory, the log's cache, or the log's extents.

use towline_core::{Body, DeadLetterReason, Delivery};
use towline_log::{Log, LogError};
use towline_types::{BodyLocation, Payload};

use crate::door::Door;

/// The content when no disk has to be waited for.
pub(crate) fn resident(log: &Log, body: &Body) -> Option<Payload> {
    match body {
        Body::Memory(bytes) => Some(Payload::from(bytes.clone())),
        Body::Incoming(payload) => Some(payload.clone()),
        Body::Log(location) => log.resident(*location).map(Payload::from),
        Body::Chunks(chunks) => collect(chunks, |location| log.resident(location).ok_or(())).ok(),
        Body::Announced { .. } => None,
    }
}

/// The content; waits for the disk.
pub(crate) fn read(log: &Log, body: &Body) -> Result<Payload, LogError> {
    match body {
        Body::Memory(bytes) => Ok(Payload::from(bytes.clone())),
        Body::Incoming(payload) => Ok(payload.clone()),
        Body::Log(location) => log.read(*location).map(Payload::from),
        Body::Chunks(chunks) => collect(chunks, |location| log.read(location)),
        Body::Announced { .. } => Ok(Payload::Empty),
    }
}

/// The content; what is damaged is fetched from another instance of the group before. Waits for
/// both.
pub(crate) fn read_or_fetch(door: &Door, log: &Log, body: &Body) -> Result<Payload, LogError> {
    let found = read(log, body);
    match (&found, door.repairs()) {
        (Err(error), Some(repairs)) if error.is_damage() && repairs.wait_for(parts(body)) => {
            read(log, body)
        }
        _ => found,
    }
}

/// Whether the message was set aside because its content is damaged.
pub(crate) fn is_note(delivery: &Delivery) -> bool {
    delivery.dead_letter.as_ref().is_some_and(|it| it.reason == DeadLetterReason::Damaged)
}

/// Where in the log the content is.
pub(crate) fn parts(body: &Body) -> Vec<BodyLocation> {
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
