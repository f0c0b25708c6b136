//! What the driver does as time passes: ticks, and notes of how far the log is committed.
//!
//! Not here: what a tick means (`towline_group`).

use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::mpsc::RecvTimeoutError;
use towline_os::time::Instant;

use crate::driver::Driver;

/// How often an active instance notes how far the log is known to be committed.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// Ticks, and steps the member earlier when it wants that; until the process ends.
pub fn keep_time(driver: &Driver, tick: Duration) {
    let (_stop, never) = towline_os::sync::mpsc::channel::<()>();
    let mut last = Instant::now();
    loop {
        let rest = tick.saturating_sub(last.elapsed());
        let wanted = driver.next_try().map_or(rest, |wanted| wanted.min(rest));
        let waited = never.recv_timeout(wanted.max(Duration::from_millis(1)));
        if waited != Err(RecvTimeoutError::Timeout) || driver.is_ending() {
            return;
        }
        if last.elapsed() >= tick {
            // One tick however long it was: a process that was stopped must not find its time gone.
            last = Instant::now();
            driver.tick();
        } else {
            driver.look_again();
        }
    }
}

/// Has an active instance write down how far the log is committed: the first time so that it is on
/// the disk, for a young group has no note at all, then as a replica does. With that it looks
/// whether the format level can be raised, which waits for the lock of the door.
pub async fn note_committed(driver: Arc<Driver>) {
    let mut interval = towline_os::task::interval(NOTE_INTERVAL);
    let mut first = true;
    loop {
        interval.tick().await;
        let noting = Arc::clone(&driver);
        let durably = std::mem::take(&mut first);
        let noted = towline_os::task::spawn_blocking(move || {
            noting.raise_level_if_all_read();
            if durably { noting.note_committed_durably() } else { noting.note_committed() }
        });
        if let Ok(Err(error)) = noted.await {
            tracing::warn!(%error, "how far the log is committed cannot be written down");
        }
    }
}
