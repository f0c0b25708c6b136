//! Relocates live messages of the oldest extents: logs them again, so that one message that no
//! client gets does not retain all that was logged after it.
//!
//! Not here: when housekeeping runs, and reclaiming what is free afterwards (`housekeeping`); which
//! extents hold how many live bodies (`towline_node`).
//!
//! Invariants: it leaves an eighth of the reserve to gets
//! ([`towline_log::Log::room_for_relocation`]); when free space is short it frees at least twice
//! what it logs, and not before all is reclaimed that can be without it. So a log that is full of
//! live messages is left as it is. What lies behind an extent that cannot be freed is logged again
//! at most once.

use towline_core::{Body, RelocationCursor, RelocationSearch};
use towline_log::{Log, Space};
use towline_node::{MESSAGE_OVERHEAD_BYTES, OldBody};
use towline_types::Lsn;

use crate::bodies;
use crate::door::Door;
use crate::images::Images;

/// Extents that the log may have beyond twice its live bytes before old messages are relocated.
const EXTENTS_SPARE: u64 = 4;
/// They are at most this part (one in so many) of what puts may fill. A message of an eighth of it
/// is due when half is in use then, and there is free space for it until seven eighths are.
const PART_SPARE: u64 = 4;
/// What may be logged between two looks, as a part (one in so many) of what puts may fill: far less
/// than the three eighths in which such a message has to be relocated.
pub(crate) const PART_BETWEEN_LOOKS: u64 = 16;
/// A log of which this part (one in so many) is in use relocates messages sooner than that, if it
/// is cheap: a log of a few extents would be full before.
const PART_IN_USE: u64 = 2;
/// What is freed, as a multiple of what is logged for it: while there is enough free space it must
/// not cost a noticeable part of the writes of a queue whose messages are got in order.
const GAIN_WITH_SPACE: u64 = 8;
/// The same when free space is short.
const GAIN_UNDER_PRESSURE: u64 = 2;
/// A message that is logged alone fills a block of a batch.
const BLOCK_BYTES: u64 = 4_096;

/// What the last relocation did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastRelocation {
    /// End of the log after it: until all up to there is applied (in a group that may be long after
    /// it is on this disk), the same messages would be found, and logged, a second time.
    end: Lsn,
    /// The oldest extent with live messages when it began.
    oldest: Option<u64>,
}

/// Relocates the messages of the oldest extents if it is worth it: see the constants. `usable`:
/// bytes that puts may fill.
pub(crate) fn relocate_if_due(
    door: &Door,
    images: &Images,
    usable: u64,
    last: LastRelocation,
) -> LastRelocation {
    if door.look(|instance| instance.applied()) < last.end {
        return last;
    }
    if door.log_is_behind(false) {
        // What is read now would be dropped: the instance queues no relocated message.
        return last;
    }
    let extent_bytes = door.log().extent_bytes();
    let oldest = door.look(|instance| instance.keep_from()).0 / extent_bytes;
    let Some(mut before) = relocate_before(door, usable) else {
        return LastRelocation { end: door.log().tail(), ..last };
    };
    if last.oldest == Some(oldest) {
        // Something in it could not be moved then (a damaged message, what an open unit of work
        // had put). What lies behind it is not logged a second time for nothing.
        before = before.min(Lsn((oldest + 1).saturating_mul(extent_bytes)));
    }
    let oldest = match relocate(door, images, before) {
        RelocationEnd::AsFarAsPossible => Some(oldest),
        RelocationEnd::UntilLogWasBehind => last.oldest,
    };
    LastRelocation { end: door.log().tail(), oldest }
}

/// The position before which messages are to be relocated; `None`: none is.
fn relocate_before(door: &Door, usable: u64) -> Option<Lsn> {
    let log = door.log();
    let extent_bytes = log.extent_bytes();
    let (live_bytes, keep_from) =
        door.look(|instance| (instance.live_bytes(), instance.keep_from()));
    let in_use = log.durable().0.saturating_sub(keep_from.0);
    let spare_bytes = (EXTENTS_SPARE * extent_bytes).min(usable / PART_SPARE);
    let gain = match log.space() {
        Space::Ample if in_use >= 2 * live_bytes + spare_bytes => {
            return Some(Lsn(keep_from.0.saturating_add(extent_bytes)));
        }
        Space::Ample if in_use >= usable / PART_IN_USE => GAIN_WITH_SPACE,
        Space::Ample => return None,
        // An image, or the end of a hold, frees space without it.
        Space::Low | Space::Full
            if log.first_held().0 / extent_bytes < keep_from.0 / extent_bytes =>
        {
            return None;
        }
        Space::Low | Space::Full => GAIN_UNDER_PRESSURE,
    };
    let cost_max = room(door, &log).min(extent_bytes);
    let sparse = door.look(|instance| instance.sparse_extents(gain, cost_max))?;
    assert!(
        sparse.cost_bytes <= cost_max && sparse.cost_bytes * gain <= sparse.freed_bytes,
        "relocation frees more than it takes"
    );
    Some(sparse.before)
}

/// How a relocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelocationEnd {
    /// What is left cannot be moved, or finds no free space.
    AsFarAsPossible,
    /// The rest may be moved later.
    UntilLogWasBehind,
}

/// Moves all that can be, as long as there is free space for it, and the log is not behind.
pub(crate) fn relocate(door: &Door, images: &Images, before: Lsn) -> RelocationEnd {
    let log = door.log();
    let mut cursor = RelocationCursor::default();
    let mut found = Vec::new();
    loop {
        let step = door.look(|instance| instance.find_old(before, &mut cursor, &mut found));
        for OldBody { queue, sequence, body } in found.drain(..) {
            if door.log_is_behind(false) {
                return RelocationEnd::UntilLogWasBehind;
            }
            if !has_room(door, &log, &body) {
                return RelocationEnd::AsFarAsPossible;
            }
            match bodies::read_or_repair(&log, &body, door.repairs()) {
                Ok(content) => door.relocate(queue, sequence, content),
                Err(error) => {
                    door.unreadable(queue, sequence, None, &error);
                }
            }
        }
        match step {
            RelocationSearch::More => {}
            RelocationSearch::All => return RelocationEnd::AsFarAsPossible,
            RelocationSearch::Needs(request) => match images.pages().read(request.page) {
                Ok(content) => door.page(request, &content),
                Err(error) => door.page_unreadable(request, &error.to_string()),
            },
        }
    }
}

/// Whether the message can be logged again and leave the gets their part of the reserve.
fn has_room(door: &Door, log: &Log, body: &Body) -> bool {
    let bytes = body.bytes().saturating_add(MESSAGE_OVERHEAD_BYTES + BLOCK_BYTES);
    bytes <= room(door, log)
}

/// Bytes that may be logged for it: messages that clients have begun to put keep their space.
pub(crate) fn room(door: &Door, log: &Log) -> u64 {
    let promised = door.look(|instance| instance.log_room_promised());
    log.room_for_relocation().saturating_sub(promised)
}
