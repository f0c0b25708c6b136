//! A full copy for a replica that lags so far that the log which it needs is gone. The active
//! instance sends image, pages and extents straight from its files; the replica writes a new log
//! beside its own and re-executes itself, and the new log replaces the old one (`log_swap`).
//!
//! ```text
//! giver to taker: a copy (`towline_backup`); taker to giver, once all is checked and synced: '+'
//! ```
//!
//! Not here: which replica needs one (`towline_group`); the log that is retained until the replica
//! is in sync (`retention`). Invariants: the log that is replaced stays until the copy is whole and
//! on the disk; neither side waits for the other without an end.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use towline_os::fs::{self, File};
use towline_os::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline_admin::catalogue::{
    GROUP_COPY_COMES, GROUP_COPY_FAILED, GROUP_COPY_GIVEN, GROUP_COPY_TAKEN,
};
use towline_backup::{
    BackupError, Progress, ReceivedCopy, Source, give as give_log, take as take_log,
};
use towline_log::time_index::Row;
use towline_log::{Disk, LinuxDisk, Log, Pages};
use towline_os::task::{Handle, timeout};
use towline_types::{BatchPlace, PageRef};

use crate::driver::Driver;
use crate::{log_swap, repair};
use towline_link::{LinkStream, Peer, StreamPurpose};
use towline_logging::log as say;

/// A stream that stands still for so long is given up. An image is taken before the first byte
/// comes.
pub(crate) const STILL_MAX: Duration = Duration::from_secs(20);
/// How long the taker may check what came.
pub(crate) const CHECK_MAX: Duration = Duration::from_secs(300);
/// How often the taker says how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// Read from the stream at once.
pub(crate) const READ_BYTES: usize = 256 * 1024;
/// What the taker answers.
const WHOLE: u8 = b'+';

/// What a copy is made of besides the log: an image, the pages that it refers to, and when the log
/// was how long.
pub trait CopySource: Send + Sync {
    /// Takes an image, and yields it with the log behind it as the source of a copy, and the pages
    /// that belong to it. Without pages that the image refers to, the taker rebuilds its queues.
    ///
    /// # Errors
    /// Why not, in words for the operator.
    fn source(&self, log: &Log) -> Result<(Source, Vec<PageRef>), String>;

    /// No page that an image refers to is used again before the result is dropped.
    fn hold_pages(&self) -> Box<dyn Send + '_>;

    /// The page file.
    fn pages(&self) -> &Pages;

    /// A page of the source cannot be read: each later copy would fail there. Ends the process, and
    /// its next start rebuilds the queues.
    fn page_damaged(&self, why: &str) -> !;

    /// When the log was how long.
    fn times(&self) -> Vec<Row>;
}

/// Sends a copy of this instance's log to a peer, on a thread of its own.
pub fn give(driver: Arc<Driver>, from: Arc<dyn CopySource>, peer: Peer, stream: LinkStream) {
    let handle = Handle::current();
    let started = towline_os::thread::Builder::new().name("copy".into()).spawn(move || {
        let name = driver.name(peer);
        match give_all(&driver, from.as_ref(), peer, Patient { stream, handle }) {
            Ok(bytes) => say(&GROUP_COPY_GIVEN, &[name, &bytes.to_string()]),
            Err(why) => say(&GROUP_COPY_FAILED, &[name, &why]),
        }
    });
    if let Err(error) = started {
        say(&GROUP_COPY_FAILED, &["", &error.to_string()]);
    }
}

fn give_all(
    driver: &Driver,
    from: &dyn CopySource,
    peer: Peer,
    mut stream: Patient,
) -> Result<u64, String> {
    let log = driver.log();
    // Else the taker would lose its vote, and with it the group its majority, if this instance
    // stops before the taker has caught up.
    if !driver.wait_until(STILL_MAX / 2, || driver.shows_its_term()) {
        return Err("the first batch of its term is not on its disk yet".into());
    }
    // Before the image is taken: what it refers to must not go meanwhile.
    let giving = driver.retention().begin(peer, log);
    let mut pages_hold = Some(from.hold_pages());
    let (source, used) = from.source(log)?;
    giving.hold().only_from(source.first());
    let rows = from.times();
    let first = source.first().0 / log.extent_bytes();
    let mut progress = |now: Progress| {
        if now.extent > first {
            // All pages are sent.
            pages_hold = None;
        }
    };
    let pages = from.pages();
    let (pages, hold) = ((pages, used), giving.hold());
    let given = give_log(source, pages, &rows, hold, &mut stream, &mut progress);
    let bytes = match given {
        Ok(bytes) => bytes,
        Err(BackupError::Page(error)) => from.page_damaged(&error.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    match stream.answer() {
        Ok(WHOLE) => {
            giving.given();
            Ok(bytes)
        }
        Ok(_) => Err("its answer is not understood".into()),
        Err(error) => {
            // All of it was sent, and perhaps what this disk gave was not what was written: the
            // next copy is of what is repaired.
            repair::look_over(driver);
            Err(format!("it did not take it: {error}"))
        }
    }
}

/// A stream as blocking reads and writes, none of which waits longer than [`STILL_MAX`].
pub(crate) struct Patient {
    pub(crate) stream: LinkStream,
    pub(crate) handle: Handle,
}

impl Patient {
    pub(crate) fn wait<T>(
        &mut self,
        most: Duration,
        act: impl AsyncFnOnce(&mut LinkStream) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let stream = &mut self.stream;
        self.handle.block_on(async {
            let done = timeout(most, act(stream)).await;
            done.unwrap_or_else(|_| {
                let still = format!("nothing moved for {} seconds", most.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, still))
            })
        })
    }

    fn answer(&mut self) -> std::io::Result<u8> {
        self.wait(CHECK_MAX, async |stream| stream.read_u8().await)
    }
}

impl Read for Patient {
    fn read(&mut self, place: &mut [u8]) -> std::io::Result<usize> {
        self.wait(STILL_MAX, async |stream| stream.read(place).await)
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.wait(STILL_MAX, async |stream| stream.write(bytes).await)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.wait(STILL_MAX, async |stream| stream.flush().await)
    }
}

/// Gets a copy from a peer, which replaces this instance's log when the caller re-executes itself.
/// `drawn` is a random number for it.
///
/// # Errors
/// Why not, in words for the operator: the log is as it was.
pub fn take(driver: &Driver, data: &Path, peer: Peer, drawn: u64) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let links = driver.links().ok_or("there are no links")?;
    let handle = links.streams();
    let made = log_swap::begin(data).map_err(words)?;
    let taken = take_into(driver, &made, peer, handle);
    if taken.is_err() {
        // Its free space is wanted, and the next copy starts from the beginning: it removes what
        // this call leaves.
        fs::remove_dir_all(&made).ok();
    }
    let (mut stream, came) = taken?;
    let acknowledged = stream.wait(STILL_MAX, async |stream| {
        stream.write_u8(WHOLE).await?;
        stream.flush().await
    });
    if let Err(error) = acknowledged {
        // The copy is good, but what comes behind it may not be held back.
        tracing::warn!(%error, "the end of a copy could not be acknowledged");
    }
    let last = BatchPlace { index: came.index, term: came.term, ..BatchPlace::default() };
    driver
        .replaced_by(last, |hard_state| log_swap::hand_in(data, &made, hard_state, drawn))
        .map_err(words)?;
    say(&GROUP_COPY_TAKEN, &[driver.name(peer), &came.end.to_string()]);
    // Empty by now. If it stays, the next copy removes it.
    fs::remove_dir_all(&made).ok();
    Ok(())
}

/// Makes `made/log`; yields what came.
fn take_into(
    driver: &Driver,
    made: &Path,
    peer: Peer,
    handle: Handle,
) -> Result<(Patient, ReceivedCopy), String> {
    let links = driver.links().ok_or("there are no links")?;
    let opening = links.open_stream(peer, StreamPurpose::Copy);
    let opened = handle.block_on(async { timeout(STILL_MAX, opening).await });
    let opened = opened.map_err(|_| "it does not answer".to_owned())?;
    let stream = opened.map_err(|error| error.to_string())?;
    let disk = LinuxDisk::open(&made.join("log")).map_err(|error| error.to_string())?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let name = driver.name(peer);
    let mut logged_at = Instant::now();
    let mut progress = |now: Progress| {
        if logged_at.elapsed() >= TELL_INTERVAL {
            logged_at = Instant::now();
            let percent = u128::from(now.done) * 100 / u128::from(now.all.max(1));
            let [done, all] = [now.done, now.all].map(|bytes| bytes.to_string());
            say(&GROUP_COPY_COMES, &[name, &done, &all, &percent.to_string()]);
        }
    };
    let mut from = BufReader::with_capacity(READ_BYTES, Patient { stream, handle });
    let taken = take_log(&disk, &mut from, &mut progress);
    let taken = taken.map_err(|error| error.to_string())?;
    // The folder's own name must be there before it gets another one.
    File::open(made).and_then(|made| made.sync_all()).map_err(|error| error.to_string())?;
    Ok((from.into_inner(), taken))
}
