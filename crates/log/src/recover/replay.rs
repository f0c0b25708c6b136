//! From batches to whole runs, in bounded memory.
//!
//! A run is yielded when its end is found. One that does not fit in memory until then is read a
//! second time. Not here: where reading begins, and what the location where it ends means.

use std::io;

use towline_types::Lsn;

use super::files::Files;
use super::member::ReplayMemory;
use super::progress::Progress;
use super::{ReplayError, ReplayItem, Report};
use crate::error::{Damage, LogError};
use crate::folder::chain::{ExtentOffset, Link, finding};
use crate::folder::names::extent_name;
use crate::folder::scan::Scan;
use crate::folder::window::Cost;
use crate::format::BATCH_HEADER_BYTES;
use crate::record::{self, Halt, Kind, Receiver, Records, RunAssembler};

/// Takes what replay yields.
type ItemReceiver<'a, E> = dyn FnMut(ReplayItem<'_>) -> Result<(), E> + 'a;

/// Where the run begins that is not finished yet.
#[derive(Clone, Copy)]
struct Start {
    place: ExtentOffset,
    link: Option<Link>,
}

/// What is replayed.
pub(super) struct ReplaySource<'a, 'f> {
    pub(super) scan: &'a mut Scan<'f>,
    pub(super) files: &'a Files,
    /// Runs that end at or before it are not yielded.
    pub(super) upto: Lsn,
    /// Bytes of an unfinished run that are held.
    pub(super) bytes_max: usize,
}

/// Reads batches to the end of the chain and yields the runs in them, and where another term
/// begins. Enters each batch into
/// `seen`, which may hold some back. Returns what reading again cost.
pub(super) fn yield_runs<E>(
    source: ReplaySource<'_, '_>,
    take: &mut ItemReceiver<'_, E>,
    seen: &mut ReplayMemory,
    report: &mut Report,
    progress: &mut Progress<impl FnMut(u64, u64)>,
) -> Result<Cost, ReplayError<E>> {
    let ReplaySource { scan, files, upto, bytes_max } = source;
    let mut runs = RunAssembler::new(bytes_max);
    let mut start: Option<Start> = None;
    let mut cost = Cost::default();
    loop {
        let link = scan.link;
        // A block that cannot be read ends the walk like any other; the table decides about it, and
        // `scan` remembers that it was not read, whatever a second look finds there.
        let Ok(Some(header)) = scan.next_batch() else {
            seen.end(runs);
            return Ok(cost);
        };
        report.batches += 1;
        report.bytes += header.batch_bytes();
        let place = scan.place_of(header.lsn);
        let name = || extent_name(place.sequence);
        let payload = scan.payload().map_err(|e| LogError::io("read a batch", &name(), e));
        let payload = payload.map_err(ReplayError::Log)?;
        let malformed = || {
            let finding = finding(place, header.lsn, Damage::Records);
            ReplayError::Log(LogError::Damaged(finding))
        };
        if seen.holds_back(&header) {
            let shape = record::shape(payload).map_err(|_| malformed())?;
            seen.add(&header, shape.is_seam);
            progress.done(scan.end);
            continue;
        }
        // The batch that begins a term may have no record, and be the last one.
        if link.is_some_and(|link| link.index > 0 && link.term != header.term) {
            let at = header.lsn;
            let taken = take(ReplayItem::NewTerm { at });
            taken.map_err(|error| ReplayError::Record { lsn: at, error })?;
        }
        let lsn = header.lsn.after(BATCH_HEADER_BYTES as u64);
        let record: &mut Receiver<'_, E> =
            &mut |lsn: Lsn, bytes: &[u8]| take(ReplayItem::Record { lsn, bytes });
        let mut again = |first: Lsn, last: Lsn, record: &mut Receiver<'_, E>| match start {
            Some(start) => read_again(files, start, first, last, record, &mut cost),
            None => Err(Halt::Malformed),
        };
        match runs.feed(header.term, lsn, payload, upto, record, &mut again) {
            Ok(count) => report.records += count,
            Err(Halt::Receiver { lsn, error }) => return Err(ReplayError::Record { lsn, error }),
            Err(Halt::Log(error)) => return Err(ReplayError::Log(error)),
            Err(Halt::Malformed) => return Err(malformed()),
        }
        seen.fed(&header, runs.began().is_none());
        match runs.began() {
            None => start = None,
            Some(began) if began >= header.lsn => start = Some(Start { place, link }),
            Some(_) => {}
        }
        progress.done(scan.end);
    }
}

/// Yields the records of one run, from its first to its last, which were all seen before.
fn read_again<E>(
    files: &Files,
    start: Start,
    first: Lsn,
    last: Lsn,
    record: &mut Receiver<'_, E>,
    cost: &mut Cost,
) -> Result<u64, Halt<E>> {
    let mut scan = Scan::again(files, start.place, start.link);
    let mut count = 0;
    loop {
        let failed = |e: io::Error, place: ExtentOffset| {
            Halt::Log(LogError::io("read a run again", &extent_name(place.sequence), e))
        };
        let place = scan.place;
        let header = scan.next_batch().map_err(|e| failed(e, place))?;
        let Some(header) = header else {
            // It was whole a moment ago.
            let finding = finding(place, scan.lsn(place), Damage::Batch);
            return Err(Halt::Log(LogError::Damaged(finding)));
        };
        let begin = header.lsn.after(BATCH_HEADER_BYTES as u64);
        let payload = scan.payload().map_err(|e| failed(e, place))?;
        for found in Records::new(payload) {
            let found = found.map_err(|_| Halt::Malformed)?;
            let lsn = begin.after(found.start as u64);
            if lsn < first || found.kind == Kind::GivenUp {
                continue;
            }
            record(lsn, found.bytes).map_err(|error| Halt::Receiver { lsn, error })?;
            count += 1;
            if lsn == last {
                cost.add(scan.cost());
                return Ok(count);
            }
        }
    }
}
