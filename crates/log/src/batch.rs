//! One batch while it collects records, in memory.
//!
//! Not here: when it is written (`rule`), where (`extents`), and how (`writer`).
//!
//! Invariants: the buffer begins with space for the header; records follow without gaps; content
//! never passes `limit`, so a batch never crosses its extent.

use std::sync::Arc;
use towline_os::time::Instant;

use towline_types::Lsn;

use crate::block::Aligned;
use crate::extents::Extent;
use crate::format::BATCH_HEADER_BYTES;
use crate::record::{self, Kind};

/// A batch that takes records, or waits for a writer.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) lsn: Lsn,
    pub(crate) index: u64,
    pub(crate) extent: Arc<Extent>,
    /// Of the batch in the extent's file.
    pub(crate) offset: u64,
    pub(crate) buffer: Aligned,
    /// Most bytes of content, header included.
    limit: usize,
    /// Runs in it that a caller waits for.
    pub(crate) forced: u64,
    /// When the first lazy run came.
    pub(crate) lazy_since: Option<Instant>,
    /// Where the newest record's prefix begins in the content.
    newest: Option<usize>,
    /// Whether the run of the newest record is unfinished.
    pub(crate) inside_run: bool,
    /// Whether it holds a body; the check of that body needs its sum.
    pub(crate) has_bodies: bool,
    /// Whether the group hears of it when it is written (not of the one with which a term begins:
    /// it knows that one); only a log of a group asks.
    pub(crate) is_told: bool,
}

/// A record that turned out longer than the space left in the batch.
#[derive(Debug)]
pub(crate) struct Overflow {
    pub(crate) record: Vec<u8>,
    /// Where in it the body begins that it ends with.
    pub(crate) body: Option<usize>,
}

impl Batch {
    /// An empty batch at `offset` of `extent`.
    pub(crate) fn new(
        extent: Arc<Extent>,
        offset: u64,
        lsn: Lsn,
        index: u64,
        memory: Aligned,
        limit: usize,
    ) -> Batch {
        assert!(memory.is_empty() && limit > BATCH_HEADER_BYTES, "a batch begins empty");
        let mut buffer = memory;
        let header = buffer.append_to().len() + BATCH_HEADER_BYTES;
        buffer.append_to().resize(header, 0);
        let (forced, lazy_since, newest, inside_run) = (0, None, None, false);
        let (has_bodies, is_told) = (false, true);
        Batch {
            lsn,
            index,
            extent,
            offset,
            buffer,
            limit,
            forced,
            lazy_since,
            newest,
            inside_run,
            has_bodies,
            is_told,
        }
    }

    /// Bytes of content, header included.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Whether no record is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes() == BATCH_HEADER_BYTES
    }

    /// Position behind the newest record.
    pub(crate) fn end(&self) -> Lsn {
        self.lsn.after(self.bytes() as u64)
    }

    /// Whether `more` bytes still fit.
    pub(crate) fn fits(&self, more: usize) -> bool {
        self.bytes() + more <= self.limit
    }

    /// Marks what was collected of a run that was given up.
    pub(crate) fn push_given_up(&mut self) {
        assert!(self.fits(1), "room for the mark was asked for");
        record::put_prefix(self.buffer.append_to(), 0, Kind::GivenUp);
        self.newest = None;
    }

    /// Adds a record that `write` appends; `bytes_hint` is a guess of its length. When `write` says
    /// where in the record a body begins, which is the end of it, a check goes behind it. Returns
    /// the position of the record's first byte.
    ///
    /// # Errors
    /// [`Overflow`] with the record when it does not fit; the batch is as it was.
    pub(crate) fn push(
        &mut self,
        bytes_hint: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Option<usize>,
    ) -> Result<Lsn, Overflow> {
        let before = self.bytes();
        let memory = self.buffer.append_to();
        record::put_prefix(memory, bytes_hint, Kind::More);
        let start = memory.len();
        let body = write(memory);
        assert!(memory.len() >= start, "a record's writer only appends");
        let bytes = memory.len() - start;
        let guessed = record::prefix_bytes(bytes_hint);
        let start = start - guessed;
        if record::prefix_bytes(bytes) == guessed {
            record::patch_prefix(memory, start, bytes, Kind::More);
        } else {
            record::move_for_prefix(memory, start, guessed, bytes);
        }
        let content = self.bytes() - bytes;
        let has_check = body.is_some_and(|head| {
            assert!(head <= bytes, "a body lies in its record");
            record::put_check(self.buffer.append_to(), head)
        });
        if self.bytes() > self.limit {
            let record = self.buffer.bytes()[content..].to_vec();
            self.buffer.truncate(before);
            return Err(Overflow { record, body });
        }
        self.has_bodies |= has_check;
        self.newest = Some(before);
        self.inside_run = true;
        Ok(self.lsn.after(content as u64))
    }

    /// Marks the newest record as the last of its run.
    pub(crate) fn end_run(&mut self) {
        let Some(newest) = self.newest.take() else {
            unreachable!("a run ends behind a record of its own")
        };
        self.inside_run = false;
        self.buffer.bytes_mut()[newest] |= Kind::Last.bits();
    }

    /// Drops content from `bytes` on (a run that was given up before any writer saw it).
    pub(crate) fn truncate(&mut self, bytes: usize) {
        assert!(bytes >= BATCH_HEADER_BYTES, "the header's room stays");
        self.buffer.truncate(bytes);
        self.newest = None;
    }
}
