//! Images: everything as of the facts applied so far. What is decided and not applied is not in an
//! image; of the messages an image holds outlines, one for each block of up to 256 of them, and the
//! messages themselves are on pages.
//!
//! ```text
//! magic "TWLIMAGE", version 2 or 3 (1 byte), (version 3) fields, (format level 3) histories that
//! are not kept, number of those that are, each: fields; persistent messages put and removed since
//! the first of them; (always) next sequence, next queue id, next body id,
//! number of bodies of which chunks came and no put yet, each: body id, number of chunks, each:
//!   position, bytes
//! number of definitions, each: definition (`record/definition.rs`); a local queue is followed by
//!   its totals: puts, gets, backouts, expired, moved, cleared; (version 3) fields, or 0
//!   number of outlines, in order of lanes and sequences, each:
//!     lane 1, first sequence, last - first, messages, expiring, [earliest expiry], put_at of the
//!     first, bytes, page: unit, bytes, checksum 4 LE; extents, each: number, bodies, bytes
//!     (version 3) bit 7 of the lane: fields
//! ```
//! Numbers, text and fields as in `record`. The log adds a checksum. An image of a log of format
//! level 1 has version 2, which earlier programs read, of a later level version 3. The fields of an
//! image have the level; totals and outlines have none yet. The histories are too long for a field:
//! that they are there the level says, and a program that does not read the level reads no further.
//!
//! Version 1 had neither chunks nor outlines: the log was read from before the image on, and still
//! is for such an image, and when pages are damaged (see `replay`).

use std::sync::Arc;

use towline_types::{BodyLocation, Histories, Lsn, PageRef, Time, limits};

#[cfg(test)]
use crate::decide::parts::CommitInParts;
use crate::message::BodyName;
use crate::object::Definition;
use crate::page_cache::{PageJob, StoredPage};
use crate::queue::{ExtentShare, Outline, Queue, SEQUENCE_END, Totals};
use crate::record::fields::{self, LEVEL_OF_FIELDS, LEVEL_OF_HISTORIES};
use crate::record::{
    FieldReader, LaterFormat, Reader, RecordError, decode_definition, encode_definition,
    put_history, put_level, put_varint, read_history, read_level,
};
use crate::region::LogCounts;
use crate::request::Limits;
use crate::spilled_bodies::{Pieces, SpilledBlock};
use crate::{BodyId, PageKey, QueueId, QueueManager};

const MAGIC: &[u8; 8] = b"TWLIMAGE";
/// Newest version of images. A new version of pages comes with a new one of images, so that an
/// older program refuses both before it reads a page.
pub const VERSION: u8 = 3;
const VERSION_WITHOUT_FIELDS: u8 = 2;
const VERSION_WITHOUT_MESSAGES: u8 = 1;
/// Of the lane of an outline.
const OUTLINE_HAS_FIELDS: u8 = 0x80;

/// What is to be written of an image. Taken in a moment; written and encoded without the rules.
#[derive(Debug, Default)]
pub struct ImagePlan {
    bytes: Vec<u8>,
    /// Where in `bytes` the bodies go of which no put has come.
    ahead_at: usize,
    ahead: Vec<Arc<SpilledBlock>>,
    /// Where in `bytes` the outlines of a queue go.
    outlines: Vec<(usize, Vec<BlockPlan>)>,
    jobs: Vec<PageJob>,
    obsolete: Vec<PageRef>,
}

#[derive(Debug)]
enum BlockPlan {
    /// Its page says what it holds.
    Stored(u8, Arc<Outline>),
    /// Its page is written for this image: the job of this number.
    Written(u8, usize),
}

impl ImagePlan {
    /// Pages to be written, and durable, before the image.
    #[must_use]
    pub fn jobs(&self) -> &[PageJob] {
        &self.jobs
    }

    /// Pages that this image does not refer to: they may be overwritten once it is durable. When
    /// it does not become so, give them back with [`QueueManager::keep_obsolete_pages`].
    #[must_use]
    pub fn take_obsolete(&mut self) -> Vec<PageRef> {
        std::mem::take(&mut self.obsolete)
    }

    /// The image's bytes. `stored` is what came of [`ImagePlan::jobs`], in their order; `None` for
    /// those of which nothing is kept.
    ///
    /// # Panics
    /// When `stored` has another length.
    #[must_use]
    pub fn encode(&self, stored: &[Option<StoredPage>]) -> Vec<u8> {
        assert_eq!(stored.len(), self.jobs.len(), "each job has an outcome");
        let mut out = Vec::with_capacity(self.bytes.len() + 64 * self.jobs.len());
        out.extend_from_slice(self.between(0, self.ahead_at));
        self.ahead.iter().for_each(|block| put_ahead(block, &mut out));
        let mut from = self.ahead_at;
        for (at, blocks) in &self.outlines {
            out.extend_from_slice(self.between(from, *at));
            from = *at;
            let outlines: Vec<(u8, &Outline)> = blocks
                .iter()
                .filter_map(|block| match block {
                    BlockPlan::Stored(lane, outline) => Some((*lane, outline.as_ref())),
                    BlockPlan::Written(lane, job) => {
                        let page = stored.get(*job).and_then(Option::as_ref)?;
                        Some((*lane, page.outline.as_ref()))
                    }
                })
                .collect();
            put_varint(outlines.len() as u64, &mut out);
            for (lane, outline) in outlines {
                out.push(lane);
                put_outline(outline, &mut out);
            }
        }
        out.extend_from_slice(self.between(from, self.bytes.len()));
        out
    }

    /// What stands between two lists of outlines.
    ///
    /// # Panics
    /// When the lists are not in the order of their positions: an image would lack what is between.
    fn between(&self, from: usize, to: usize) -> &[u8] {
        match self.bytes.get(from..to) {
            Some(bytes) => bytes,
            None => unreachable!("no bytes {from} to {to} in a plan of {}", self.bytes.len()),
        }
    }
}

/// Bodies of which no put has come.
fn put_ahead(block: &SpilledBlock, out: &mut Vec<u8>) {
    for (body, chunks) in block.iter() {
        put_varint(body.0, out);
        put_varint(chunks.len() as u64, out);
        for chunk in chunks {
            put_varint(chunk.lsn.0, out);
            put_varint(u64::from(chunk.bytes), out);
        }
    }
}

/// A queue manager as of an image.
#[derive(Debug)]
pub struct RestoredImage {
    /// The queue manager.
    pub rules: QueueManager,
    /// It has its messages: only what came after the image must be replayed.
    pub whole: bool,
}

/// What an image has that is read.
#[derive(Clone, Copy)]
struct ReadImage {
    has_messages: bool,
    has_fields: bool,
    whole: bool,
}

/// Whether the pages that an image refers to can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// They say what the image says.
    Whole,
    /// They are damaged: messages are found in the log.
    Ignored,
}

impl QueueManager {
    /// An image as of the last fact applied.
    ///
    /// # Panics
    /// While something is kept aside for a commit ([`QueueManager::has_parts`]): an image does not
    /// say what.
    #[must_use]
    pub fn plan_image(&mut self) -> ImagePlan {
        assert!(!self.has_parts(), "an image within a commit would lose a part of it");
        let obsolete = self.take_obsolete_pages();
        let mut plan = ImagePlan { obsolete, ..ImagePlan::default() };
        let out = &mut plan.bytes;
        out.extend_from_slice(MAGIC);
        let has_fields = self.level >= LEVEL_OF_FIELDS;
        out.push(if has_fields { VERSION } else { VERSION_WITHOUT_FIELDS });
        if has_fields {
            put_level(self.level, out);
        }
        if self.level >= LEVEL_OF_HISTORIES {
            put_histories(self.region.histories(), out);
            put_varint(self.region.counts.put, out);
            put_varint(self.region.counts.removed, out);
        }
        put_varint(self.next.sequence, out);
        put_varint(u64::from(self.next.queue), out);
        put_varint(self.next.body, out);
        put_varint(self.spilled_bodies.len() as u64, out);
        // What is carried forward goes to the log in one run with its put.
        assert!(!self.spilled_bodies.has_carried(), "a body is between runs");
        plan.ahead_at = plan.bytes.len();
        plan.ahead = self.spilled_bodies.blocks().map(Arc::clone).collect();
        let out = &mut plan.bytes;
        put_varint(self.catalogue.durable().count() as u64, out);
        for definition in self.catalogue.durable() {
            encode_definition(definition, &mut plan.bytes);
            if let Definition::Local(local) = definition {
                let queue = self.queue(local.id);
                put_totals(queue.totals, &mut plan.bytes);
                if has_fields {
                    put_varint(0, &mut plan.bytes);
                }
                if queue.live > 0 {
                    plan.add(queue, self.limits.extent_bytes);
                } else {
                    put_varint(0, &mut plan.bytes);
                }
            }
        }
        plan
    }

    /// A queue manager as of an image: replay the log over it.
    ///
    /// # Errors
    /// The bytes are not an image of a known version.
    pub fn restore(
        image: &[u8],
        limits: Limits,
        pages: Pages,
    ) -> Result<RestoredImage, RecordError> {
        let mut reader = Reader::new(image);
        for expected in MAGIC {
            if reader.byte()? != *expected {
                return Err(reader.error("not an image of a queue manager"));
            }
        }
        let (has_messages, has_fields) = match reader.byte()? {
            VERSION => (true, true),
            VERSION_WITHOUT_FIELDS => (true, false),
            VERSION_WITHOUT_MESSAGES => (false, false),
            later @ 4.. => {
                return Err(RecordError::later(MAGIC.len(), LaterFormat::Version(later)));
            }
            0 => return Err(reader.error("an image of another version")),
        };
        let whole = has_messages && pages == Pages::Whole;
        let mut rules = QueueManager::new(limits);
        if has_fields {
            rules.level = read_level(&mut reader, &fields::IMAGE)?;
        }
        if rules.level >= LEVEL_OF_HISTORIES {
            let histories = read_histories(&mut reader)?;
            let counts = LogCounts { put: reader.varint()?, removed: reader.varint()? };
            rules.region.restore(histories, counts);
        }
        let reads = ReadImage { has_messages, has_fields, whole };
        rules.next.sequence = reader.varint()?;
        rules.next.queue = reader.varint_u32()?;
        rules.next.body = reader.varint()?;
        if rules.next.sequence >= SEQUENCE_END || rules.next.queue == u32::MAX {
            return Err(reader.error("a counter that was never reached"));
        }
        rules.image_whole = whole;
        rules.image_sequence = if whole { 0 } else { rules.next.sequence };
        if has_messages {
            rules.read_chunks(&mut reader, whole)?;
        }
        for _ in 0..reader.varint()? {
            rules.read_object(&mut reader, reads)?;
        }
        reader.end()?;
        Ok(RestoredImage { rules, whole })
    }

    fn read_chunks(&mut self, reader: &mut Reader<'_>, whole: bool) -> Result<(), RecordError> {
        let mut bodies: Vec<(BodyName, Pieces)> = Vec::new();
        for _ in 0..reader.varint()? {
            let body = BodyName::Own(BodyId(reader.varint()?));
            if bodies.last().is_some_and(|(before, _)| *before >= body) {
                return Err(reader.error("bodies are not in order"));
            }
            let mut pieces: Option<Pieces> = None;
            for _ in 0..reader.varint()? {
                let lsn = Lsn(reader.varint()?);
                let location = BodyLocation { lsn, bytes: reader.varint_u32()? };
                match &mut pieces {
                    Some(pieces) => pieces.push(location),
                    None => pieces = Some(Pieces::One(location)),
                }
            }
            bodies.extend(pieces.map(|pieces| (body, pieces)));
        }
        if whole {
            self.spilled_bodies = bodies.into_iter().collect();
        }
        Ok(())
    }

    fn read_object(
        &mut self,
        reader: &mut Reader<'_>,
        reads: ReadImage,
    ) -> Result<(), RecordError> {
        let definition = decode_definition(reader)?;
        let name = definition.name().to_owned();
        if self.catalogue.get(&name).is_some() {
            return Err(reader.error("two objects of one name"));
        }
        if let Definition::Local(local) = &definition {
            if local.id.0 >= self.next.queue || self.queues.contains_key(&local.id) {
                return Err(reader.error("two queues of one id"));
            }
            let totals = read_totals(reader)?;
            if reads.has_fields
                && let Some(fields) = FieldReader::begin_if_some(reader, &fields::TOTALS)?
            {
                fields.refuse()?;
            }
            self.adopt(&definition);
            self.queue_mut(local.id).totals = totals;
            if reads.has_messages {
                self.read_outlines(reader, local.id, reads)?;
            }
        } else {
            self.adopt(&definition);
        }
        self.catalogue.apply(&name, Some(definition));
        Ok(())
    }

    fn read_outlines(
        &mut self,
        reader: &mut Reader<'_>,
        id: QueueId,
        reads: ReadImage,
    ) -> Result<(), RecordError> {
        let mut before: Option<(u8, u64)> = None;
        for _ in 0..reader.varint()? {
            let tag = reader.byte()?;
            let lane = if reads.has_fields { tag & !OUTLINE_HAS_FIELDS } else { tag };
            let outline = read_outline(reader)?;
            if lane != tag {
                FieldReader::begin(reader, &fields::OUTLINE)?.refuse()?;
            }
            let in_order = lane <= 9 && before < Some((lane, outline.first));
            if !in_order || outline.last >= self.next.sequence {
                return Err(reader.error("outlines are not in order"));
            }
            before = Some((lane, outline.last));
            if reads.whole {
                self.queue_mut(id).push_away(lane, Arc::new(outline));
            }
        }
        Ok(())
    }

    /// Where the bodies of all messages that are away are.
    pub fn shares(&self) -> impl Iterator<Item = ExtentShare> {
        let away = self.outlines().flat_map(|outline| outline.extents.iter().copied());
        let extent_bytes = self.limits.extent_bytes;
        away.chain(self.spilled_bodies.locations().map(move |chunk| ExtentShare {
            extent: chunk.lsn.0 / extent_bytes,
            bodies: 1,
            bytes: u64::from(chunk.bytes),
        }))
    }

    /// Bodies in the log that open units of work know of.
    #[cfg(test)]
    pub(crate) fn bodies_of_units(&self) -> u64 {
        let of_commits: u64 = self.commits.values().map(CommitInParts::bodies_ahead).sum();
        let units = self.units.values().flat_map(|unit| &unit.spilled_bodies);
        units.map(|(_, bodies)| bodies).sum::<u64>()
            + of_commits
            + self.parts.locations().count() as u64
    }

    /// Bodies, or chunks of them, that belong to no message yet: of open units of work, and of
    /// commits that are not complete.
    pub fn bodies_in_progress(&self) -> impl Iterator<Item = BodyLocation> {
        self.spilled_bodies.locations().chain(self.parts.locations())
    }

    /// The pages that blocks refer to.
    pub fn pages(&self) -> impl Iterator<Item = PageRef> {
        self.outlines().map(|outline| outline.page)
    }

    fn outlines(&self) -> impl Iterator<Item = &Outline> {
        let blocks = self.queues.values().flat_map(|queue| queue.all_blocks());
        blocks.filter_map(|(_, block)| block.stored.as_deref())
    }
}

impl ImagePlan {
    fn add(&mut self, queue: &Queue, extent_bytes: u64) {
        let mut blocks = Vec::new();
        for (lane, block) in queue.all_blocks() {
            match (block.current, &block.stored, block.sheet()) {
                (true, Some(outline), _) => {
                    blocks.push(BlockPlan::Stored(lane, Arc::clone(outline)));
                }
                (_, _, Some(sheet)) if block.live > 0 => {
                    let key = PageKey { queue: queue.id(), lane, first: block.first };
                    blocks.push(BlockPlan::Written(lane, self.jobs.len()));
                    self.jobs.push(PageJob::of(key, block.version, sheet, extent_bytes));
                }
                (_, _, _) => {}
            }
        }
        self.outlines.push((self.bytes.len(), blocks));
    }
}

fn put_histories(histories: &Histories, out: &mut Vec<u8>) {
    put_varint(histories.folded(), out);
    put_varint(histories.iter().len() as u64, out);
    histories.iter().for_each(|history| put_history(history, out));
}

fn read_histories(reader: &mut Reader<'_>) -> Result<Histories, RecordError> {
    let (folded, count) = (reader.varint()?, reader.varint()?);
    if count > limits::HISTORIES_MAX as u64 {
        return Err(reader.error("more histories than are kept"));
    }
    let mut kept = Vec::new();
    for _ in 0..count {
        kept.push(read_history(reader)?);
    }
    Histories::of(folded, kept).map_err(|_| reader.error("histories are no chain"))
}

fn put_outline(outline: &Outline, out: &mut Vec<u8>) {
    put_varint(outline.first, out);
    put_varint(outline.last - outline.first, out);
    put_varint(u64::from(outline.live), out);
    put_varint(u64::from(outline.expiring), out);
    if outline.expiring > 0 {
        put_varint(outline.expires_first.0, out);
    }
    put_varint(outline.put_at.0, out);
    put_varint(outline.bytes, out);
    put_varint(u64::from(outline.page.unit), out);
    put_varint(u64::from(outline.page.bytes), out);
    out.extend_from_slice(&outline.page.checksum.to_le_bytes());
    put_varint(outline.extents.len() as u64, out);
    for share in &outline.extents {
        put_varint(share.extent, out);
        put_varint(share.bodies, out);
        put_varint(share.bytes, out);
    }
}

fn read_outline(reader: &mut Reader<'_>) -> Result<Outline, RecordError> {
    let first = reader.varint()?;
    let last = first.checked_add(reader.varint()?).filter(|last| *last < SEQUENCE_END);
    let last = last.ok_or_else(|| reader.error("a sequence that was never given"))?;
    let live = reader.varint_u32()?;
    let expiring = reader.varint_u32()?;
    if live == 0 || expiring > live {
        return Err(reader.error("an outline of nothing"));
    }
    let expires_first = if expiring > 0 { Time(reader.varint()?) } else { Time::NEVER };
    let put_at = Time(reader.varint()?);
    let bytes = reader.varint()?;
    let unit = reader.varint_u32()?;
    let page_bytes = reader.varint_u32()?;
    let page = PageRef { unit, bytes: page_bytes, checksum: reader.u32_le()? };
    let count = reader.varint()?;
    // One allocation of the right size for all but hostile images: a deep queue has many outlines.
    let mut extents = Vec::with_capacity(usize::try_from(count.min(8)).unwrap_or(0));
    for _ in 0..count {
        let extent = reader.varint()?;
        extents.push(ExtentShare { extent, bodies: reader.varint()?, bytes: reader.varint()? });
    }
    let extents = extents.into_boxed_slice();
    Ok(Outline { page, first, last, live, expiring, expires_first, put_at, bytes, extents })
}

fn put_totals(totals: Totals, out: &mut Vec<u8>) {
    let Totals { puts, gets, backouts, expired, moved, cleared } = totals;
    for total in [puts, gets, backouts, expired, moved, cleared] {
        put_varint(total, out);
    }
}

fn read_totals(reader: &mut Reader<'_>) -> Result<Totals, RecordError> {
    Ok(Totals {
        puts: reader.varint()?,
        gets: reader.varint()?,
        backouts: reader.varint()?,
        expired: reader.varint()?,
        moved: reader.varint()?,
        cleared: reader.varint()?,
    })
}
