//! Reading the log in order: batch after batch, as long as each continues the one before it; and
//! the facts about the place where that ends.
//!
//! Not here: what the facts mean (`table`). Nothing is written.
//!
//! Invariant: a batch is only believed when its checksum is right, its LSN is that of its place,
//! and (from the second on) it carries the checksum, index and term that follow.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use towline_types::Lsn;

use super::table::{At, Behind, Image, TailFacts};
use crate::block::Aligned;
use crate::disk::DiskFile;
use crate::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, LogId, padded, payload_sum,
    size,
};

/// Bytes read at a time.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// An extent's file as recovery found it.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) length: u64,
}

/// A place in the log: extent and offset in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
}

/// What the next batch must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) checksum: u32,
    pub(crate) index: u64,
    pub(crate) term: u32,
}

impl Link {
    /// Before the first batch of a log.
    pub(crate) const ROOT: Link = Link { checksum: 0, index: 0, term: 0 };

    fn of(header: &BatchHeader) -> Link {
        Link { checksum: header.checksum, index: header.index, term: header.term }
    }

    fn continued_by(&self, header: &BatchHeader) -> bool {
        header.previous == self.checksum
            && Some(header.index) == self.index.checked_add(1)
            && header.term >= self.term
    }
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Whole(BatchHeader),
    Torn,
    Nothing,
}

/// Walks over the batches of a log.
pub(crate) struct Scan<'a> {
    log_id: LogId,
    extent_bytes: u64,
    extents: &'a BTreeMap<u64, Found>,
    window: Window,
    /// Where the next batch is looked for.
    pub(crate) place: Place,
    /// `None` when any whole batch will do (the first one read of a log whose beginning is gone).
    pub(crate) link: Option<Link>,
    /// End of the newest batch, without padding.
    pub(crate) end: Lsn,
    /// The newest batch's payload, as a place in the window.
    payload: (Place, usize),
}

impl<'a> Scan<'a> {
    /// Begins with the first batch of extent `sequence`.
    pub(crate) fn new(
        log_id: LogId,
        extent_bytes: u64,
        extents: &'a BTreeMap<u64, Found>,
        sequence: u64,
    ) -> Scan<'a> {
        let place = Place { sequence, offset: EXTENT_HEADER_BYTES as u64 };
        let end = Lsn(sequence * extent_bytes).after(place.offset);
        let link = (sequence == 0).then_some(Link::ROOT);
        let payload = (place, 0);
        Scan { log_id, extent_bytes, extents, window: Window::new(), place, link, end, payload }
    }

    /// The position of a place.
    pub(crate) fn lsn(&self, place: Place) -> Lsn {
        Lsn(place.sequence * self.extent_bytes).after(place.offset)
    }

    /// The next batch that continues the chain, `None` where it ends.
    ///
    /// # Errors
    /// What the disk said; `place` is then where it said so.
    pub(crate) fn next(&mut self) -> io::Result<Option<BatchHeader>> {
        if let Some(header) = self.continuing(self.place)? {
            return Ok(Some(self.enter(self.place, header)));
        }
        let next = Place { sequence: self.place.sequence + 1, offset: EXTENT_HEADER_BYTES as u64 };
        if !self.extents.contains_key(&next.sequence) || self.link.is_none() {
            return Ok(None);
        }
        match self.continuing(next) {
            Ok(found) => Ok(found.map(|header| self.enter(next, header))),
            Err(error) => {
                self.place = next;
                Err(error)
            }
        }
    }

    /// Payload of the batch that [`Scan::next`] found last.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn payload(&mut self) -> io::Result<&[u8]> {
        let (place, bytes) = self.payload;
        let Some(found) = self.extents.get(&place.sequence) else { return Ok(&[]) };
        self.window.get(found, place, bytes)
    }

    fn continuing(&mut self, place: Place) -> io::Result<Option<BatchHeader>> {
        Ok(match self.probe(place)? {
            Probe::Whole(header) => {
                let link = self.link;
                link.is_none_or(|link| link.continued_by(&header)).then_some(header)
            }
            Probe::Torn | Probe::Nothing => None,
        })
    }

    fn enter(&mut self, place: Place, header: BatchHeader) -> BatchHeader {
        let bytes = header.batch_bytes();
        let payload = Place { offset: place.offset + BATCH_HEADER_BYTES as u64, ..place };
        self.payload = (payload, size(u64::from(header.payload_bytes)));
        self.link = Some(Link::of(&header));
        self.end = self.lsn(place).after(bytes);
        self.place = Place { offset: place.offset + padded(bytes), ..place };
        header
    }

    fn probe(&mut self, place: Place) -> io::Result<Probe> {
        let lsn = self.lsn(place);
        let Some(found) = self.extents.get(&place.sequence) else { return Ok(Probe::Nothing) };
        let bytes = self.window.get(found, place, BATCH_HEADER_BYTES)?;
        let Some(header) = BatchHeader::decode(bytes).filter(|header| header.lsn == lsn) else {
            return Ok(Probe::Nothing);
        };
        let whole = header.batch_bytes();
        if whole > self.extent_bytes - place.offset {
            return Ok(Probe::Torn);
        }
        let bytes = self.window.get(found, place, size(whole))?;
        let Some(payload) = bytes.get(BATCH_HEADER_BYTES..size(whole)) else {
            return Ok(Probe::Torn);
        };
        let right = header.sum(payload_sum(self.log_id, payload)) == header.checksum;
        Ok(if right { Probe::Whole(header) } else { Probe::Torn })
    }

    /// Index that the batch at the place should have, for what later ones prove about it.
    fn expected_index(&self) -> u64 {
        self.link.map_or(0, |link| link.index.saturating_add(1))
    }

    /// The facts about the place where the chain ended, and the places of whole batches from there
    /// on.
    pub(crate) fn facts(&mut self, image: Option<Lsn>) -> (TailFacts, Vec<Place>) {
        let end = self.end;
        let image = match image {
            Some(at) if at > end => Image::Beyond,
            Some(_) | None => Image::Covered,
        };
        let expected = self.expected_index();
        let proves = |header: &BatchHeader| header.proves_durable_before() > expected;
        let mut ghosts = Vec::new();
        let at = match self.probe(self.place) {
            Err(_) => At::Unreadable,
            Ok(Probe::Nothing) => At::Nothing,
            Ok(Probe::Torn) => At::Torn,
            Ok(Probe::Whole(header)) => {
                ghosts.push(self.place);
                if proves(&header) { At::Proof } else { At::Ghost }
            }
        };
        let mut behind = Behind::Nothing;
        let mut from = Place { offset: self.place.offset + BLOCK, ..self.place };
        while let Some((place, header)) = self.next_whole(from) {
            ghosts.push(place);
            if proves(&header) {
                behind = Behind::Proof;
                break;
            }
            behind = Behind::Ghosts;
            from = Place { offset: place.offset + padded(header.batch_bytes()), ..place };
        }
        (TailFacts { at, behind, image }, ghosts)
    }

    /// The first whole batch at or behind a place, whatever it continues. Unreadable blocks are
    /// passed over.
    pub(crate) fn next_whole(&mut self, from: Place) -> Option<(Place, BatchHeader)> {
        let mut place = from;
        loop {
            let length = self.extents.get(&place.sequence)?.length;
            while place.offset < length {
                if let Ok(Probe::Whole(header)) = self.probe(place) {
                    return Some((place, header));
                }
                place.offset += BLOCK;
            }
            place.sequence = *self.extents.range(place.sequence + 1..).next()?.0;
            place.offset = EXTENT_HEADER_BYTES as u64;
        }
    }

    /// Goes on at a whole batch behind damage.
    pub(crate) fn go_on_at(&mut self, place: Place) {
        self.place = place;
        self.link = None;
    }
}

/// The part of an extent that is in memory.
struct Window {
    sequence: u64,
    from: u64,
    bytes: Aligned,
}

impl Window {
    fn new() -> Window {
        Window { sequence: u64::MAX, from: 0, bytes: Aligned::zeroed(0) }
    }

    /// The `bytes` bytes at `place`, fewer where the file ends.
    fn get(&mut self, found: &Found, place: Place, bytes: usize) -> io::Result<&[u8]> {
        let end = (place.offset + bytes as u64).min(found.length);
        let here = self.from..self.from + self.bytes.len() as u64;
        let inside = self.sequence == place.sequence
            && here.start <= place.offset
            && end <= here.end.max(here.start);
        if !inside {
            self.load(found, place, bytes)?;
        }
        let start = size(place.offset.saturating_sub(self.from));
        let all = self.bytes.bytes();
        let end = (start + bytes).min(all.len());
        Ok(all.get(start.min(end)..end).unwrap_or(&[]))
    }

    fn load(&mut self, found: &Found, place: Place, bytes: usize) -> io::Result<()> {
        let from = place.offset / BLOCK * BLOCK;
        let least = (size(place.offset - from) + bytes).next_multiple_of(BLOCK_BYTES);
        let rest = size(padded(found.length.saturating_sub(from)));
        self.sequence = u64::MAX;
        let read = |want: usize| -> io::Result<Aligned> {
            let mut buffer = Aligned::zeroed(want.min(rest));
            let count = found.file.read_at(buffer.bytes_mut(), from)?;
            buffer.truncate(count);
            Ok(buffer)
        };
        // One bad sector must not make everything around it unreadable.
        self.bytes = read(least.max(WINDOW_BYTES)).or_else(|_| read(least))?;
        self.sequence = place.sequence;
        self.from = from;
        Ok(())
    }
}
