//! `{"do":"region_rehearse"}`: the log of this recovery instance is held for a rehearsal as long as
//! the connection stands on which it was asked for.
//!
//! Not here: what is held (`towline_replica::rehearsal`); the process that reads it (the command).
//! Invariants: one rehearsal at a time; when its connection ends, however it does, nothing is held
//! any more and nothing of it is left in the data folder; what is held is released when its
//! reader has ended, or after a time-out.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towline_admin::catalogue::{REGION_REHEARSAL_BEGUN, REGION_REHEARSAL_ENDED};
use towline_config::Config;
use towline_config::GroupConfig;
use towline_engine::housekeeping::percent_full;
use towline_logging::log as say;
use towline_replica::OpenReplica;
use towline_replica::rehearsal::{self, RehearsedLog};
use towline_replica::rehearsal_folder;
use towline_types::{CivilTime, Lsn, limits};

use crate::control::{Beside, RehearsalOrder};

/// How often it is looked whether this instance needs its log.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The last line to a client fits into the buffer of its socket.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);
/// Time-out for the command to kill its queue manager after the last line.
const LET_GO_MAX: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Rehearsals {
    opened: Arc<OpenReplica>,
    group: GroupConfig,
    reserve_bytes: u64,
    is_under_way: Arc<AtomicBool>,
}

/// Cleared when it is dropped.
struct OnlyOne(Arc<AtomicBool>);

impl Drop for OnlyOne {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Rehearsals {
    pub(super) fn new(
        opened: &Arc<OpenReplica>,
        (config, group): (&Config, &GroupConfig),
    ) -> Rehearsals {
        Rehearsals {
            opened: Arc::clone(opened),
            group: group.clone(),
            reserve_bytes: config.log.reserve_bytes,
            is_under_way: Arc::default(),
        }
    }

    /// Begins one: what is answered, and what goes on beside.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn begin(&self, order: &RehearsalOrder) -> Result<(Value, Beside), String> {
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return Err("a rehearsal is under way at this instance: one at a time".into());
        }
        let alone = OnlyOne(Arc::clone(&self.is_under_way));
        let room_bytes =
            order.room_bytes.clamp(limits::REHEARSAL_ROOM_MIN, limits::REHEARSAL_ROOM_MAX);
        // What another user left is removed by the next command of that user; this one has a folder
        // of its own.
        clear_up(&self.opened);
        let began = self.opened.clock.now();
        let held = rehearsal::share(&self.opened, &self.group, room_bytes)?;
        let took = self.opened.clock.now().since(began);
        let end = Lsn(held.log.end);
        say(&REGION_REHEARSAL_BEGUN, &[&end.to_string(), &order.by]);
        let opened = &self.opened;
        let rows = opened.images.time_index().map(|index| index.rows()).unwrap_or_default();
        let known = rows.iter().rev().find(|row| row.upto <= end).map(|row| row.at);
        let answer = json!({
            "group": self.group.name,
            "instance": self.group.instance,
            "shared": held.log,
            "lsn": end.to_string(),
            "image_lsn": Lsn(held.log.image).to_string(),
            "image_was_taken": held.image.is_some(),
            "at": CivilTime::of(opened.clock.wall()).to_string(),
            "log_was_longer_at": known.map(|at| CivilTime::of(at).to_string()),
            "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
        let (opened, reserve_bytes) = (Arc::clone(opened), self.reserve_bytes);
        let beside = move |stream: &UnixStream| {
            let why = until_over(stream, &opened, &held, reserve_bytes);
            // The command kills its queue manager before it closes the connection, and when it
            // reads that the log is let go. The queue manager has the connection open, too: it is
            // closed when both have ended.
            crate::control::last_word(stream, &json!({ "ended": why }), LAST_WORD_MAX);
            let is_closed = until_closed(stream, LET_GO_MAX);
            drop(held);
            clear_up(&opened);
            say(&REGION_REHEARSAL_ENDED, &[&ended(why, is_closed)]);
            drop(alone);
        };
        Ok((answer, Box::new(beside)))
    }
}

fn clear_up(opened: &OpenReplica) {
    if let Err(error) = rehearsal_folder::clear_up(opened.driver.data()) {
        tracing::warn!(%error, "what a rehearsal left cannot be removed");
    }
}

/// Why it has ended, and whether more of it than its log is left.
fn ended(why: String, is_closed: bool) -> String {
    match is_closed {
        true => why,
        // Such as a command that was stopped: it would have killed its queue manager.
        false => format!("{why}; its command, or its queue manager, still runs"),
    }
}

/// Says that nothing more comes, and waits until the other side has closed it, too: whether it has.
fn until_closed(stream: &UnixStream, longest: Duration) -> bool {
    // It may have closed it before.
    stream.shutdown(Shutdown::Write).ok();
    let deadline = Instant::now() + longest;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return false;
        }
        match (&mut &*stream).read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if is_early(&error) => {}
            Err(_) => return true,
        }
    }
}

/// Nothing came within the time.
fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Waits for the end of the connection, or until this instance needs its log; why it is over.
fn until_over(
    stream: &UnixStream,
    opened: &OpenReplica,
    held: &RehearsedLog,
    reserve_bytes: u64,
) -> String {
    let closed = "the command ended".to_owned();
    if stream.set_read_timeout(Some(LOOK_INTERVAL)).is_err() {
        return closed;
    }
    loop {
        let mut byte = [0; 1];
        match (&mut &*stream).read(&mut byte) {
            Ok(0) => return closed,
            Ok(_) => return "the command said what is not understood".to_owned(),
            Err(error) if is_early(&error) => {}
            Err(_) => return closed,
        }
        let stats = opened.driver.log().stats();
        let percent = percent_full(stats.bytes_in_use, &stats, reserve_bytes);
        if let Some(why) = held.objection(opened, percent) {
            return why;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_held_until_the_command_and_its_queue_manager_have_closed_the_connection() {
        let (here, command) = UnixStream::pair().unwrap();
        let of_queue_manager = command.try_clone().unwrap();
        let brief = Duration::from_millis(20);
        assert!(!until_closed(&here, brief), "both have it open");
        let mut told = Vec::new();
        (&command).read_to_end(&mut told).unwrap();
        assert!(told.is_empty(), "the command reads the end, and does not wait for us");
        drop(command);
        assert!(!until_closed(&here, brief), "the queue manager has not ended");
        drop(of_queue_manager);
        assert!(until_closed(&here, Duration::from_secs(60)));
        assert_eq!(ended("promoted".into(), true), "promoted");
        assert!(ended("promoted".into(), false).ends_with("still runs"), "it was said to be gone");
    }
}
