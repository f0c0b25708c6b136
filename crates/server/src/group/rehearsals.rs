//! `{"do":"region_rehearse"}`: the log of this recovery instance is held for a rehearsal as long as
//! the connection stands on which it was asked for.
//!
//! Not here: what is held (`towline_replica::rehearsal`); the process that reads it (the command).
//! Invariants: one rehearsal at a time; when its connection ends, however it does, nothing is held
//! any more and nothing of it is left in the data folder.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
        let clear = |error| format!("what an earlier rehearsal left cannot be removed: {error}");
        rehearsal_folder::clear_up(self.opened.driver.data()).map_err(clear)?;
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
            // reads that the log is let go.
            crate::control::last_word(stream, &json!({ "ended": why }), LAST_WORD_MAX);
            drop(held);
            if let Err(error) = rehearsal_folder::clear_up(opened.driver.data()) {
                tracing::warn!(%error, "what a rehearsal left cannot be removed");
            }
            say(&REGION_REHEARSAL_ENDED, &[&why]);
            drop(alone);
        };
        Ok((answer, Box::new(beside)))
    }
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
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => return closed,
        }
        let stats = opened.driver.log().stats();
        let percent = percent_full(stats.bytes_in_use, &stats, reserve_bytes);
        if let Some(why) = held.objection(opened, percent) {
            return why;
        }
    }
}
