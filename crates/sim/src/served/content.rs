//! The content of a delivery, as a connection of the daemon gets it: from memory or the log, from
//! where it was logged again meanwhile, or after a repair by the group.
//!
//! Not here: what becomes of a message that cannot be read.

use bytes::Bytes;
use towline_core::Delivery;
use towline_engine::{Door, bodies};
use towline_log::LogError;

/// The content; `None` when the message is gone meanwhile. Waits for the disk and for a repair.
pub(crate) fn of(door: &Door, delivery: &Delivery) -> Result<Option<Bytes>, LogError> {
    let log = door.log();
    let mut body = delivery.body.clone();
    loop {
        let content = match bodies::resident(&log, &body) {
            Some(content) => Ok(content),
            None => bodies::read_or_repair(&log, &body, door.repairs()),
        };
        let error = match content {
            Ok(content) => return Ok(Some(content.to_contiguous())),
            Err(error) => error,
        };
        let (queue, sequence) = (delivery.queue, delivery.sequence);
        match door.look(|instance| instance.body_now(queue, sequence)) {
            Some(moved) if moved != body => body = moved,
            Some(_) => return Err(error),
            None => return Ok(None),
        }
    }
}

/// How often a read of which it must be known what it holds is made, when the disk fails it.
const READS_MAX: usize = 10;

/// The same for the run, which must know which message it was although the disk fails now and then.
pub(crate) fn for_sure(door: &Door, delivery: &Delivery) -> Option<Bytes> {
    (0..READS_MAX).find_map(|_| of(door, delivery).ok()).flatten()
}
