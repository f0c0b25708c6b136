//! The return of an old live group, as it is kept in the data folder of an instance: the fork that
//! was heard of, what was exported behind it, and the order to give up what is there.
//!
//! ```text
//! region-fork      another group went on in a newer history, and this log has its own end   (process)
//! region-exported  the tail was listed and its added messages saved, up to here             (command)
//! region-return    the order, and how far it is:                                     (process, start)
//!   ordered  -> cutting -> done        each is durable before what it says is begun
//!            -> refused                the next start found why not; nothing was changed
//! each: one line of JSON, and one with its CRC-32C in 8 hexadecimal digits; replaced as a whole
//! ```
//!
//! An order is carried out by the next start, before the log is opened: no process has the log
//! then, and nothing is promised with it. From `cutting` on the log may be half cut: each start
//! goes on until it is done.
//!
//! Not here: whether an order can be carried out (`towline_replica`), how a log is cut
//! (`towline_log::cut_back`). Invariant: an order names a history; an instance whose log has that
//! takes no such order.

use std::io::{self, Error, ErrorKind, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use towline_os::fs::{self, File};
use towline_types::Lsn;

use crate::batch_marks::BatchMark;

const FORK: &str = "region-fork";
const EXPORTED: &str = "region-exported";
const RETURN: &str = "region-return";

/// Changes of term in a tail that are noted: elections since the fork.
pub const TERMS_MAX: usize = 1_000;
/// Everything behind the fork may go, exported or not.
pub const ALL: u64 = u64::MAX;

/// What is known of where two logs part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkEvidence {
    /// Nothing but what the histories say, or what an earlier version compared.
    #[default]
    Unsaid,
    /// Both have the batches before it, and not those behind it.
    Batches,
    /// They have other batches already where the first ones are that both have still: they part
    /// before that, or there.
    OtherBatches,
    /// One of both has none of the batches before it any more, so nothing could be compared: it is
    /// what the histories say. A group that lost a part of its log may part before that.
    Histories,
}

/// Another group went on from a position of this log in a history that this log does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct KnownFork {
    /// End of what both logs have.
    pub fork: u64,
    /// Name of the other group.
    pub other: String,
    /// The first history there that this log does not have.
    pub history: [u8; 16],
    /// This log has no history that the other one does not have: it is the old one.
    pub is_old: bool,
    /// The batches of both logs were compared, as far as they are there. Else `fork` is what their
    /// histories say, and this log may part from the other one before that.
    #[serde(default)]
    pub is_compared: bool,
    /// What came of that.
    #[serde(default)]
    pub evidence: ForkEvidence,
    /// From here on, or earlier, all is of this log alone: behind `fork`, if what is between is not
    /// known.
    #[serde(default)]
    pub own_from: u64,
    /// The newest batches that both have, the newest one last; none, if they were compared: none of
    /// those that are there still.
    #[serde(default)]
    pub common: Vec<BatchMark>,
    /// The one history that only this log has, by which its group handed over to the other one,
    /// which never had it and is live in `history`; all zero: it is not so.
    #[serde(default)]
    pub void: [u8; 16],
}

/// Batches of one term in a tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TailTerm {
    /// The term.
    pub term: u64,
    /// The index of its last batch there.
    pub last: u64,
}

/// The end of a tail, so that another log can be compared with it: a log whose last batch has the
/// index and the term of one in here is the beginning of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TailEnd {
    /// Where it ends; [`ALL`]: whatever is there.
    pub end: u64,
    /// The terms of its batches, in order.
    pub terms: Vec<TailTerm>,
}

impl TailEnd {
    /// Whatever is there.
    #[must_use]
    pub fn all() -> TailEnd {
        TailEnd { end: ALL, terms: Vec::new() }
    }

    /// Enters the next batch.
    pub fn enter(&mut self, term: u64, index: u64, end: Lsn) {
        self.end = self.end.max(end.0);
        if let Some(last) = self.terms.last_mut().filter(|last| last.term == term) {
            last.last = index;
        } else if self.terms.len() < TERMS_MAX {
            self.terms.push(TailTerm { term, last: index });
        }
    }

    /// Whether a log that ends with this batch of a tail has nothing that this one does not have.
    #[must_use]
    pub fn has(&self, term: u64, index: u64) -> bool {
        self.end == ALL || self.terms.iter().any(|it| it.term == term && index <= it.last)
    }
}

/// A tail was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExportNote {
    /// Where it begins.
    pub fork: u64,
    /// Where it ended then.
    pub tail: TailEnd,
    /// Messages in the file.
    pub messages: u64,
    /// The file.
    pub file: String,
}

/// The order to return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ReturnOrder {
    /// Its name: random bytes.
    pub id: [u8; 16],
    /// The log is cut off here.
    pub fork: u64,
    /// The first history behind it, which this group is to follow.
    pub history: [u8; 16],
    /// What may be given up.
    pub tail: TailEnd,
    /// The newest batches before that which the log of the other group has too, the newest one
    /// last: with one of them a log must end that is cut off. None, with a tail of [`ALL`]: it may
    /// end with any.
    #[serde(default)]
    pub common: Vec<BatchMark>,
    /// The user that ordered it.
    pub by: String,
    /// As [`KnownFork::void`]: a recovery member takes no order but one that names the newest
    /// history of its log here.
    #[serde(default)]
    pub void: [u8; 16],
}

/// How far an order is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnStage {
    /// The next start looks whether it can be carried out.
    #[default]
    Ordered,
    /// The log may be half cut.
    Cutting,
    /// It is carried out.
    Done,
    /// It was not carried out: why. Nothing was changed.
    Refused(String),
}

/// An order that was given to this instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct KeptReturn {
    /// The order.
    pub order: ReturnOrder,
    /// How far it is.
    pub stage: ReturnStage,
    /// When it was carried out, the log had all that the others of the group counted on: its member
    /// gave votes.
    #[serde(default)]
    pub had_all: bool,
    /// It was given to a recovery member. One that was marked for a promotion since does not carry
    /// it out: what it has counts there.
    #[serde(default)]
    pub in_recovery: bool,
    /// Orders that were refused here before this one: the newest ones. Members that returned by
    /// orders of their own say them again and again.
    #[serde(default)]
    pub refused: Vec<RefusedOrder>,
}

/// An order that was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RefusedOrder {
    /// Its name.
    pub id: [u8; 16],
    /// It was to give up whatever is there.
    pub all: bool,
}

/// Refused orders that are remembered. There are as many at once as members that returned by an
/// order of their own.
const REFUSED_MAX: usize = 16;

impl KeptReturn {
    /// Whether an order was refused that gave up as much.
    #[must_use]
    pub fn has_refused(&self, order: &ReturnOrder) -> bool {
        let is_it = |it: &RefusedOrder| it.id == order.id && (it.all || order.tail.end != ALL);
        self.refused.iter().chain(&self.refused_now()).any(is_it)
    }

    fn refused_now(&self) -> Option<RefusedOrder> {
        let is_refused = matches!(self.stage, ReturnStage::Refused(_));
        is_refused.then_some(RefusedOrder { id: self.order.id, all: self.order.tail.end == ALL })
    }

    /// What is remembered as refused beside the next order.
    #[must_use]
    pub fn refused_before(&self) -> Vec<RefusedOrder> {
        let all = self.refused_now().into_iter().chain(self.refused.iter().copied());
        all.take(REFUSED_MAX).collect()
    }
}

/// The fork that was heard of last, if any was.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn known_fork(data: &Path) -> io::Result<Option<KnownFork>> {
    read(data, FORK)
}

/// Keeps it; it is on the disk when this returns.
///
/// # Errors
/// What the disk said.
pub fn keep_fork(data: &Path, fork: &KnownFork) -> io::Result<()> {
    write(data, FORK, fork)
}

/// Both logs are one again: the fork that was heard of is none any more.
///
/// # Errors
/// What the disk said.
pub fn forget_fork(data: &Path) -> io::Result<()> {
    forget(data, FORK)
}

pub(crate) fn forget(data: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(data.join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The tail that was exported last, if one was.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn exported(data: &Path) -> io::Result<Option<ExportNote>> {
    read(data, EXPORTED)
}

/// Notes that a tail was exported; it is on the disk when this returns.
///
/// # Errors
/// What the disk said.
pub fn note_exported(data: &Path, note: &ExportNote) -> io::Result<()> {
    write(data, EXPORTED, note)
}

/// The order that was given last, if one was.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn kept(data: &Path) -> io::Result<Option<KeptReturn>> {
    read(data, RETURN)
}

/// Keeps an order with how far it is; it is on the disk when this returns.
///
/// # Errors
/// What the disk said.
pub fn keep(data: &Path, kept: &KeptReturn) -> io::Result<()> {
    write(data, RETURN, kept)
}

pub(crate) fn read<T: DeserializeOwned>(data: &Path, name: &str) -> io::Result<Option<T>> {
    let text = match fs::read(data.join(name)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::new(error.kind(), format!("{name}: {error}"))),
    };
    let damaged = |why: &str| {
        let text = format!("{name} is damaged: {why}; remove it, and give the order again");
        Error::new(ErrorKind::InvalidData, text)
    };
    let (line, sum) = text.split_once('\n').ok_or_else(|| damaged("it is cut"))?;
    if sum.strip_suffix('\n') != Some(&summed(line)) {
        return Err(damaged("its checksum is wrong"));
    }
    serde_json::from_str(line).map(Some).map_err(|error| damaged(&error.to_string()))
}

fn summed(line: &str) -> String {
    format!("{:08x}", crc32c::crc32c(line.as_bytes()))
}

pub(crate) fn write<T: Serialize>(data: &Path, name: &str, value: &T) -> io::Result<()> {
    let line = serde_json::to_string(value).map_err(Error::other)?;
    let new = data.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(format!("{line}\n{}\n", summed(&line)).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, data.join(name))?;
    File::open(data)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> ReturnOrder {
        let tail = TailEnd { end: 9_000, terms: vec![TailTerm { term: 3, last: 17 }] };
        let common = vec![BatchMark { index: 3, sum: 5, ..BatchMark::default() }];
        let by = "anna".into();
        let void = [0; 16];
        ReturnOrder { id: [7; 16], fork: 4_096, history: [9; 16], tail, common, by, void }
    }

    #[test]
    fn what_is_kept_comes_back_and_a_damaged_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        assert_eq!((kept(data).unwrap(), known_fork(data).unwrap()), (None, None));
        for stage in [
            ReturnStage::Ordered,
            ReturnStage::Cutting,
            ReturnStage::Done,
            ReturnStage::Refused("why\nnot".into()),
        ] {
            let now = KeptReturn {
                order: order(),
                stage,
                had_all: true,
                in_recovery: true,
                ..KeptReturn::default()
            };
            keep(data, &now).unwrap();
            assert_eq!(kept(data).unwrap(), Some(now));
        }
        let note = ExportNote { fork: 1, tail: order().tail, messages: 3, file: "f".into() };
        note_exported(data, &note).unwrap();
        assert_eq!(exported(data).unwrap(), Some(note));
        let bytes = std::fs::read(data.join(RETURN)).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            std::fs::write(data.join(RETURN), &flipped).unwrap();
            assert!(kept(data).is_err(), "byte {at}");
            std::fs::write(data.join(RETURN), &bytes[..at]).unwrap();
            assert!(kept(data).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_log_is_the_beginning_of_a_tail_if_its_last_batch_is_in_there() {
        let mut tail = TailEnd::default();
        for (term, index) in [(3, 10), (3, 11), (5, 12), (5, 13)] {
            tail.enter(term, index, Lsn(index * 4_096));
        }
        assert_eq!(tail.end, 13 * 4_096);
        assert!(tail.has(3, 11) && tail.has(3, 10) && tail.has(5, 13));
        assert!(!tail.has(3, 12) && !tail.has(4, 12) && !tail.has(5, 14));
        assert!(TailEnd::all().has(77, 77));
    }
}
