//! Reading the log in order: batch after batch, as long as each continues the one before it; and
//! the facts about the location where the chain ends.
//!
//! Not here: what the facts mean (`table`). Nothing is written.
//!
//! Invariant: a batch is only believed when its checksum is right, its LSN is that of its location,
//! and (from the second on) it carries the checksum, index and term that follow.

use std::io;

use towline_types::{Lsn, fitting};

use super::chain::{ExtentOffset, Link};
use super::files::Files;
use super::table::{At, Behind, NewestImage, TailFacts};
use super::window::{Cost, Window};
use crate::block::Aligned;
use crate::error::Damage;
use crate::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, LogId, padded, payload_sum,
    size,
};
use crate::mark::Seam;
use crate::record::Records;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What the bytes at a location are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Whole(BatchHeader),
    Torn,
    Nothing,
}

/// What is readable of a damaged batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Casualties {
    /// Bodies that are damaged.
    pub bodies: u64,
    /// Bodies that are whole.
    pub whole: u64,
    /// Whether there may be more of them: the walk over its records did not come to the end.
    pub incomplete: bool,
}

/// What is where the chain ended.
#[derive(Debug)]
pub struct TailSurvey {
    /// The facts about that location.
    pub facts: TailFacts,
    /// The locations of batches from there on, whole or torn (not that of a torn one exactly where
    /// the chain ended).
    pub ghosts: Vec<ExtentOffset>,
}

/// A whole batch, whatever it continues.
#[derive(Clone, Copy, Debug)]
pub struct WholeBatch {
    /// Where it begins.
    pub place: ExtentOffset,
    /// Its header.
    pub header: BatchHeader,
}

/// Where the chain is broken.
#[derive(Clone, Copy, Debug)]
pub struct ChainBreak {
    /// The location.
    pub place: ExtentOffset,
    /// How it is broken.
    pub what: Damage,
}

/// Walks over the batches of a log.
pub struct Scan<'a> {
    log_id: LogId,
    extent_bytes: u64,
    files: &'a Files,
    window: Window<'a>,
    /// Where the next batch is looked for.
    pub place: ExtentOffset,
    /// `None` when any whole batch will do (the first one read when the beginning of the log is
    /// gone).
    pub link: Option<Link>,
    /// End of the newest batch, without padding.
    pub end: Lsn,
    /// Length of that batch, header included.
    pub batch_bytes: u32,
    /// The newest batch's payload, as offsets in the window.
    payload: (ExtentOffset, usize),
    /// Whether the walk ended because the disk did not give back what is at the location. A second
    /// look may find a whole batch there, which continues the chain: it must not be judged as one
    /// that the chain left out.
    is_unread: bool,
}

impl<'a> Scan<'a> {
    /// Begins with the first batch of extent `sequence`.
    pub fn new(files: &'a Files, sequence: u64) -> Scan<'a> {
        let extent_bytes = files.identity().extent_bytes;
        let place = ExtentOffset { sequence, offset: EXTENT_HEADER_BYTES as u64 };
        let end = Lsn(sequence * extent_bytes).after(place.offset);
        let link = (sequence == 0).then_some(Link::ROOT);
        Scan::at(files, place, link, end)
    }

    /// Begins behind a seam.
    pub fn behind(files: &'a Files, seam: Seam) -> Scan<'a> {
        let extent_bytes = files.identity().extent_bytes;
        // The batch before the seam may end with its extent.
        let sequence = seam.end.0.saturating_sub(1) / extent_bytes;
        let offset = padded(seam.end.0 - sequence * extent_bytes);
        let place = ExtentOffset { sequence, offset: offset.max(EXTENT_HEADER_BYTES as u64) };
        let mut scan = Scan::at(files, place, Some(Link::of_seam(seam)), seam.end);
        scan.batch_bytes = seam.bytes;
        scan
    }

    /// Begins with the batch at a location, which continues `link` if that is known.
    pub fn again(files: &'a Files, place: ExtentOffset, link: Option<Link>) -> Scan<'a> {
        let end = Lsn(place.sequence * files.identity().extent_bytes).after(place.offset);
        Scan::at(files, place, link, end)
    }

    fn at(files: &'a Files, place: ExtentOffset, link: Option<Link>, end: Lsn) -> Scan<'a> {
        let (log_id, extent_bytes) = (files.identity().log_id, files.identity().extent_bytes);
        let (window, payload) = (Window::new(files), (place, 0));
        let (batch_bytes, is_unread) = (0, false);
        Scan {
            log_id,
            extent_bytes,
            files,
            window,
            place,
            link,
            end,
            batch_bytes,
            payload,
            is_unread,
        }
    }

    /// Whether the batch before the location is the one that a seam names: an old copy of its
    /// extent put back would otherwise pass for the end of the log. Looks at its header only.
    ///
    /// # Errors
    /// What the disk said.
    pub fn follows(&mut self, seam: Seam) -> io::Result<bool> {
        if seam.index == 0 {
            return Ok(true);
        }
        let Some(begin) = seam.end.0.checked_sub(u64::from(seam.bytes)) else { return Ok(false) };
        let place = self.place_of(Lsn(begin));
        if !place.offset.is_multiple_of(BLOCK) || self.files.length(place.sequence).is_none() {
            return Ok(false);
        }
        let block = self.block(place)?;
        Ok(BatchHeader::decode(block.bytes()).is_some_and(|header| {
            header.lsn == Lsn(begin)
                && header.batch_bytes() == u64::from(seam.bytes)
                && Link::of(&header) == Link::of_seam(seam)
        }))
    }

    /// The batch before the location where reading begins, if that is known.
    pub fn begun(&self) -> Option<Seam> {
        let Link { checksum, index, term } = self.link?;
        let (end, bytes) = (self.end, self.batch_bytes);
        Some(Seam { end, index, checksum, term, bytes })
    }

    /// What reading cost so far.
    pub fn cost(&self) -> Cost {
        self.window.cost
    }

    /// The position of a location.
    pub fn lsn(&self, place: ExtentOffset) -> Lsn {
        Lsn(place.sequence * self.extent_bytes).after(place.offset)
    }

    /// The location of a position.
    pub fn place_of(&self, lsn: Lsn) -> ExtentOffset {
        ExtentOffset { sequence: lsn.0 / self.extent_bytes, offset: lsn.0 % self.extent_bytes }
    }

    /// The next batch that continues the chain, `None` where it ends.
    ///
    /// # Errors
    /// What the disk said; with the location that it could not read. [`Scan::facts`] remembers it
    /// until a batch is found.
    pub fn next_batch(&mut self) -> io::Result<Option<BatchHeader>> {
        let next = self.find_next();
        self.is_unread = next.is_err();
        next
    }

    fn find_next(&mut self) -> io::Result<Option<BatchHeader>> {
        if let Some(header) = self.continuing(self.place)? {
            return Ok(Some(self.enter(self.place, header)));
        }
        let next =
            ExtentOffset { sequence: self.place.sequence + 1, offset: EXTENT_HEADER_BYTES as u64 };
        if self.files.length(next.sequence).is_none() || self.link.is_none() {
            return Ok(None);
        }
        let there = self.peek(next).and_then(|there| match there {
            true => self.continuing(next),
            false => Ok(None),
        });
        match there {
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
    pub fn payload(&mut self) -> io::Result<&[u8]> {
        let (place, bytes) = self.payload;
        self.window.get(place, bytes)
    }

    /// Whether a batch of this location seems to begin here. Reads one block beside the window:
    /// usually, when the next extent is looked at, nothing is in it.
    fn peek(&mut self, place: ExtentOffset) -> io::Result<bool> {
        let block = self.block(place)?;
        let lsn = self.lsn(place);
        Ok(BatchHeader::decode(block.bytes()).is_some_and(|header| header.lsn == lsn))
    }

    fn block(&mut self, place: ExtentOffset) -> io::Result<Aligned> {
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        self.files.file(place.sequence)?.read_at(block.bytes_mut(), place.offset)?;
        self.window.cost.reads += 1;
        self.window.cost.bytes += BLOCK;
        Ok(block)
    }

    fn continuing(&mut self, place: ExtentOffset) -> io::Result<Option<BatchHeader>> {
        Ok(match self.probe(place)? {
            Probe::Whole(header) => {
                let link = self.link;
                link.is_none_or(|link| link.continued_by(&header)).then_some(header)
            }
            Probe::Torn | Probe::Nothing => None,
        })
    }

    fn enter(&mut self, place: ExtentOffset, header: BatchHeader) -> BatchHeader {
        let bytes = header.batch_bytes();
        let payload = ExtentOffset { offset: place.offset + BATCH_HEADER_BYTES as u64, ..place };
        self.payload = (payload, size(u64::from(header.payload_bytes)));
        self.link = Some(Link::of(&header));
        self.end = self.lsn(place).after(bytes);
        self.batch_bytes = fitting(bytes);
        self.place = ExtentOffset { offset: place.offset + padded(bytes), ..place };
        header
    }

    fn probe(&mut self, place: ExtentOffset) -> io::Result<Probe> {
        let lsn = self.lsn(place);
        let bytes = self.window.get(place, BATCH_HEADER_BYTES)?;
        let Some(header) = BatchHeader::decode(bytes).filter(|header| header.lsn == lsn) else {
            return Ok(Probe::Nothing);
        };
        let whole = header.batch_bytes();
        if whole > self.extent_bytes - place.offset {
            return Ok(Probe::Torn);
        }
        let bytes = self.window.get(place, size(whole))?;
        let Some(payload) = bytes.get(BATCH_HEADER_BYTES..size(whole)) else {
            return Ok(Probe::Torn);
        };
        let right = header.sum(payload_sum(self.log_id, payload)) == header.checksum;
        Ok(if right { Probe::Whole(header) } else { Probe::Torn })
    }

    /// Index that the batch at the location should have, for what later ones prove about it; 0, and
    /// so any later one proves it, when the batch before it is not known.
    fn expected_index(&self) -> u64 {
        self.link.map_or(0, |link| link.index.saturating_add(1))
    }

    /// What is at the location where the chain ended, and behind it. `stray_bytes`: how far from
    /// the beginning of a later extent what was in flight at a crash may lie.
    pub fn facts(&mut self, image: Option<Lsn>, stray_bytes: u64) -> TailSurvey {
        let end = self.end;
        let image = match image {
            Some(at) if at > end => NewestImage::Beyond,
            Some(_) | None => NewestImage::Covered,
        };
        let expected = self.expected_index();
        let term = self.link.map_or(0, |link| link.term);
        // What was written before the chain's last batch proves nothing about what followed that.
        let proves =
            |header: &BatchHeader| header.term >= term && header.proves_durable_before() > expected;
        let mut ghosts = Vec::new();
        let at = match self.probe(self.place) {
            _ if self.is_unread => At::Unreadable,
            Err(_) => At::Unreadable,
            Ok(Probe::Nothing) => At::Nothing,
            Ok(Probe::Torn) => At::Torn,
            Ok(Probe::Whole(header)) => {
                ghosts.push(self.place);
                if proves(&header) { At::Proof } else { At::Ghost }
            }
        };
        let mut behind = Behind::Nothing;
        let mut from = ExtentOffset { offset: self.place.offset + BLOCK, ..self.place };
        while let Some((place, found)) = self.search(from, stray_bytes, |_| true) {
            ghosts.push(place);
            behind = Behind::Ghosts;
            // How long a torn one is, its header cannot be asked.
            let mut bytes = BLOCK;
            if let Probe::Whole(header) = found {
                if proves(&header) {
                    behind = Behind::Proof;
                    break;
                }
                bytes = padded(header.batch_bytes());
            }
            from = ExtentOffset { offset: place.offset + bytes, ..place };
        }
        TailSurvey { facts: TailFacts { at, behind, image }, ghosts }
    }

    /// The first whole batch at or behind a location, whatever it continues. Unreadable blocks are
    /// skipped.
    pub fn next_whole(&mut self, from: ExtentOffset) -> Option<WholeBatch> {
        let is_whole = |found: &Probe| matches!(found, Probe::Whole(_));
        match self.search(from, u64::MAX, is_whole)? {
            (place, Probe::Whole(header)) => Some(WholeBatch { place, header }),
            (_, Probe::Torn | Probe::Nothing) => None,
        }
    }

    /// The first batch at or behind a location that is `wanted`. Looks at all of the extent of
    /// `from` and at the first `bytes` bytes of later ones: an extent is written from its beginning
    /// on.
    fn search(
        &mut self,
        from: ExtentOffset,
        bytes: u64,
        wanted: impl Fn(&Probe) -> bool,
    ) -> Option<(ExtentOffset, Probe)> {
        let mut place = from;
        let mut end = self.files.length(place.sequence)?;
        if place.sequence > self.place.sequence {
            end = end.min(bytes.saturating_add(place.offset));
        }
        loop {
            while place.offset < end {
                match self.probe(place) {
                    Ok(Probe::Nothing) | Err(_) => {}
                    Ok(found) if wanted(&found) => return Some((place, found)),
                    Ok(Probe::Whole(_) | Probe::Torn) => {}
                }
                place.offset += BLOCK;
            }
            place.sequence = self.files.next_after(place.sequence)?;
            place.offset = EXTENT_HEADER_BYTES as u64;
            end = self.files.length(place.sequence)?.min(bytes.saturating_add(place.offset));
        }
    }

    /// Where the chain is broken, and how: at the location, or where the next extent begins when
    /// nothing was ever written behind the last batch of this one.
    pub fn broken_at(&mut self) -> ChainBreak {
        let place = self.place;
        let next =
            ExtentOffset { sequence: place.sequence + 1, offset: EXTENT_HEADER_BYTES as u64 };
        let goes_over = self.files.length(next.sequence).is_some()
            && match self.files.length(place.sequence) {
                Some(length) if place.offset < length => {
                    matches!(self.probe(place), Ok(Probe::Nothing))
                        && matches!(self.peek(next), Ok(true))
                }
                Some(_) | None => true,
            };
        let place = if goes_over { next } else { place };
        match self.probe(place) {
            Ok(Probe::Whole(_)) => ChainBreak { place, what: Damage::Chain },
            Ok(Probe::Torn | Probe::Nothing) | Err(_) => ChainBreak { place, what: Damage::Batch },
        }
    }

    /// What is left of the damaged batch at a location.
    pub fn casualties(&mut self, place: ExtentOffset) -> Casualties {
        let unknown = Casualties { incomplete: true, ..Casualties::default() };
        let lsn = self.lsn(place);
        let log_id = self.log_id;
        let header = self.window.get(place, BATCH_HEADER_BYTES).ok().and_then(BatchHeader::decode);
        let header = header.filter(|header| {
            header.lsn == lsn && header.batch_bytes() <= self.extent_bytes - place.offset
        });
        let Some(header) = header else { return unknown };
        let Ok(bytes) = self.window.get(place, size(header.batch_bytes())) else { return unknown };
        let mut found = Casualties::default();
        for record in Records::new(bytes.get(BATCH_HEADER_BYTES..).unwrap_or(&[])) {
            let Ok(record) = record else {
                found.incomplete = true;
                break;
            };
            match record.is_whole(log_id, lsn.after(BATCH_HEADER_BYTES as u64)) {
                Some(true) => found.whole += 1,
                Some(false) => found.bodies += 1,
                None => {}
            }
        }
        // No body has a check: of version 1, or of settlements alone.
        found.incomplete |= found.whole + found.bodies == 0;
        found
    }

    /// Goes on at a whole batch behind damage.
    pub fn go_on_at(&mut self, place: ExtentOffset) {
        self.place = place;
        self.link = None;
        self.is_unread = false;
    }
}
