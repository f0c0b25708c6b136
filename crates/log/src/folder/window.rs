//! The part of the log that is in memory while it is read in order: few and large reads, the next
//! one done by a second thread while this one is looked at.
//!
//! Not here: what the bytes are (`scan`).
//!
//! Invariants: bytes are those of the location asked for; a piece that cannot be read is read again
//! without what is behind it, so that one bad sector hides no more than it must.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::mpsc::{Receiver, SyncSender, sync_channel};
use towline_os::thread;
use towline_os::time::Instant;

use super::chain::ExtentOffset;
use super::files::Files;
use crate::block::Aligned;
use crate::disk::DiskFile;
use crate::format::{BLOCK_BYTES, padded, size};

/// Bytes read at a time.
pub const PIECE_BYTES: usize = 4 * 1024 * 1024;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// What reading cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Calls that read.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// Time in which nothing was done but wait for the disk.
    pub waited: Duration,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, more: Cost) {
        self.reads += more.reads;
        self.bytes += more.bytes;
        self.waited += more.waited;
    }
}

/// The bytes in memory.
pub struct Window<'a> {
    files: &'a Files,
    sequence: u64,
    from: u64,
    bytes: Aligned,
    ahead: Ahead,
    /// What reading cost so far.
    pub cost: Cost,
}

/// What is read next, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    sequence: u64,
    from: u64,
    bytes: usize,
}

type Order = (Arc<dyn DiskFile>, Piece);

/// The second thread. Without it (it could not be started) all is read when it is needed.
#[derive(Default)]
struct Ahead {
    worker: Option<Worker>,
    ordered: Option<Piece>,
}

struct Worker {
    orders: SyncSender<Order>,
    pieces: Receiver<io::Result<Aligned>>,
}

impl<'a> Window<'a> {
    /// A window onto the extents of `files`.
    pub fn new(files: &'a Files) -> Window<'a> {
        Window {
            files,
            sequence: u64::MAX,
            from: 0,
            bytes: Aligned::zeroed(0),
            ahead: Ahead::default(),
            cost: Cost::default(),
        }
    }

    /// The `bytes` bytes at a location, fewer where the file ends.
    ///
    /// # Errors
    /// What the disk said.
    pub fn get(&mut self, place: ExtentOffset, bytes: usize) -> io::Result<&[u8]> {
        let Some(length) = self.files.length(place.sequence) else { return Ok(&[]) };
        let end = (place.offset + bytes as u64).min(length);
        let inside = self.sequence == place.sequence
            && self.from <= place.offset
            && end <= (self.from + self.bytes.len() as u64).max(self.from);
        if !inside && place.offset < length {
            self.load(place, end, length)?;
        } else if !inside {
            return Ok(&[]);
        }
        let start = size(place.offset.saturating_sub(self.from));
        let all = self.bytes.bytes();
        let end = (start + bytes).min(all.len());
        Ok(&all[start.min(end)..end])
    }

    /// Reads the bytes from a location to `end` into memory, and more.
    fn load(&mut self, place: ExtentOffset, end: u64, length: u64) -> io::Result<()> {
        let began = Instant::now();
        let from = place.offset / BLOCK * BLOCK;
        let held = self.from + self.bytes.len() as u64;
        let goes_on = self.sequence == place.sequence && (self.from..=held).contains(&from);
        let mut bytes = Aligned::with_capacity(0);
        if goes_on && from < held {
            let rest = self.bytes.rest(size(from - self.from));
            bytes = Aligned::with_capacity(rest.len() + PIECE_BYTES);
            bytes.append_to().extend_from_slice(rest);
        }
        let at = from + bytes.len() as u64;
        let wanted = size(padded(end.saturating_sub(at))).max(PIECE_BYTES);
        let wanted = wanted.min(size(padded(length - at.min(length))));
        let piece = Piece { sequence: place.sequence, from: at, bytes: wanted };
        self.sequence = u64::MAX;
        match self.piece(piece) {
            Ok(found) if bytes.is_empty() => bytes = found,
            Ok(found) => bytes.append_to().extend_from_slice(found.bytes()),
            Err(_) => {
                let least = Piece { from, bytes: size(padded(end) - from), ..piece };
                bytes = self.read(least)?;
            }
        }
        (self.sequence, self.from, self.bytes) = (place.sequence, from, bytes);
        let next = from + self.bytes.len() as u64;
        self.order_next(next, length);
        self.cost.waited += began.elapsed();
        Ok(())
    }

    /// A piece, as it was ordered or by reading it now.
    fn piece(&mut self, piece: Piece) -> io::Result<Aligned> {
        let ordered = self.ahead.ordered.take();
        let ready = ordered.and_then(|_| self.ahead.worker.as_ref()?.pieces.recv().ok());
        match (ordered, ready) {
            (Some(ordered), Some(found))
                if (ordered.sequence, ordered.from) == (piece.sequence, piece.from)
                    && ordered.bytes >= piece.bytes =>
            {
                found
            }
            (_, _) => self.read(piece),
        }
    }

    fn read(&mut self, piece: Piece) -> io::Result<Aligned> {
        let file = self.files.file(piece.sequence)?;
        self.cost.reads += 1;
        self.cost.bytes += piece.bytes as u64;
        read(file.as_ref(), piece)
    }

    /// Has the second thread read what comes next, in this file or in the one behind it.
    fn order_next(&mut self, from: u64, length: u64) {
        let mut piece = Piece { sequence: self.sequence, from, bytes: PIECE_BYTES };
        let mut rest = length.saturating_sub(from);
        if rest == 0 {
            let Some(next) = self.files.next_after(self.sequence) else { return };
            piece = Piece { sequence: next, from: BLOCK, bytes: PIECE_BYTES };
            rest = self.files.length(next).unwrap_or(0).saturating_sub(BLOCK);
        }
        piece.bytes = piece.bytes.min(size(padded(rest)));
        // What cannot be opened is said when it is needed.
        let Ok(file) = self.files.file(piece.sequence) else { return };
        if piece.bytes > 0 && self.ahead.order(file, piece) {
            self.cost.reads += 1;
            self.cost.bytes += piece.bytes as u64;
        }
    }
}

impl Ahead {
    fn order(&mut self, file: Arc<dyn DiskFile>, piece: Piece) -> bool {
        if self.worker.is_none() {
            self.worker = Worker::start().ok();
        }
        let Some(worker) = &self.worker else { return false };
        let ordered = worker.orders.send((file, piece)).is_ok();
        self.ordered = ordered.then_some(piece);
        ordered
    }
}

impl Worker {
    fn start() -> io::Result<Worker> {
        let (orders, ordered) = sync_channel::<Order>(1);
        let (done, pieces) = sync_channel(1);
        let body = move || {
            for (file, piece) in ordered {
                if done.send(read(file.as_ref(), piece)).is_err() {
                    return;
                }
            }
        };
        // No thread joins it: it ends by itself, after a last read in vain at most.
        thread::Builder::new().name("log-read-ahead".to_owned()).spawn(body)?;
        Ok(Worker { orders, pieces })
    }
}

fn read(file: &dyn DiskFile, piece: Piece) -> io::Result<Aligned> {
    let mut buffer = Aligned::zeroed(piece.bytes);
    let count = file.read_at(buffer.bytes_mut(), piece.from)?;
    buffer.truncate(count);
    Ok(buffer)
}
