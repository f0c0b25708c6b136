//! The cases of recovery, as two tables. Facts in, verdict out; every combination of facts has
//! exactly one row, and a test walks over all of them.
//!
//! Not here: finding the facts (`scan`), acting on the verdict (`repair`).
//!
//! Why a batch that is not whole may or may not be a loss: up to `writes_in_flight_max` batches are
//! written side by side, so after a power cut one may be torn while a later one is whole. Neither
//! was reported durable then. But each batch says how many before it were not yet durable when it
//! was handed to the disk; one that proves an earlier, unreadable batch durable proves damage.

use crate::error::Damage;

/// What is known about an extent's file before its batches are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub(crate) length: Length,
    pub(crate) header: Header,
    /// Whether an extent with a higher sequence is there.
    pub(crate) followed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// No bytes at all.
    Empty,
    /// Some bytes, not a whole header, or not whole blocks.
    Ragged,
    /// A header and more, not all of the extent.
    Part,
    /// As long as an extent is.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Good,
    /// Checksum or magic is wrong.
    Damaged,
    /// Written by a newer program.
    Newer,
    /// Of another log.
    OtherLog,
    /// Of another position in the log, or of extents of another size.
    OtherPlace,
}

/// What to do about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileVerdict {
    Use,
    Refuse(Damage),
    RefuseVersion,
    RefuseOtherLog,
}

struct FileRow {
    length: &'static [Length],
    header: &'static [Header],
    followed: &'static [bool],
    verdict: FileVerdict,
}

const ANY_HEADER: &[Header] =
    &[Header::Good, Header::Damaged, Header::Newer, Header::OtherLog, Header::OtherPlace];
const EITHER: &[bool] = &[false, true];
const READABLE: &[Length] = &[Length::Part, Length::Full];

/// Files. An extent gets its name when it is whole, so none of the refused ones can come from a
/// crash.
const FILE_ROWS: &[FileRow] = &[
    // A file of no length: made or emptied by something else, or lost by the file system.
    FileRow {
        length: &[Length::Empty, Length::Ragged],
        header: ANY_HEADER,
        followed: EITHER,
        verdict: FileVerdict::Refuse(Damage::ExtentLength),
    },
    FileRow {
        length: READABLE,
        header: &[Header::Damaged],
        followed: EITHER,
        verdict: FileVerdict::Refuse(Damage::ExtentHeader),
    },
    // A downgrade: the newer program's records may mean anything.
    FileRow {
        length: READABLE,
        header: &[Header::Newer],
        followed: EITHER,
        verdict: FileVerdict::RefuseVersion,
    },
    FileRow {
        length: READABLE,
        header: &[Header::OtherLog],
        followed: EITHER,
        verdict: FileVerdict::RefuseOtherLog,
    },
    // An old copy of the file put back, from before it was used again.
    FileRow {
        length: READABLE,
        header: &[Header::OtherPlace],
        followed: EITHER,
        verdict: FileVerdict::Refuse(Damage::ExtentSequence),
    },
    // Cut off in the middle of the log.
    FileRow {
        length: &[Length::Part],
        header: &[Header::Good],
        followed: &[true],
        verdict: FileVerdict::Refuse(Damage::ExtentLength),
    },
    // The first extent of a new log is used while it is still being filled.
    FileRow {
        length: &[Length::Part],
        header: &[Header::Good],
        followed: &[false],
        verdict: FileVerdict::Use,
    },
    FileRow {
        length: &[Length::Full],
        header: &[Header::Good],
        followed: EITHER,
        verdict: FileVerdict::Use,
    },
];

/// What is known about the location where the chain of batches ends: the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailFacts {
    /// What stands where the chain ends.
    pub at: At,
    /// What stands behind it.
    pub behind: Behind,
    /// Where the newest image lies.
    pub image: NewestImage,
}

/// What the bytes at the tail are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Nothing that claims to be a batch of this location: zeros, an earlier use of the file, or
    /// the end of the extent.
    Nothing,
    /// A header of this location with a wrong checksum.
    Torn,
    /// A whole batch of this location that does not continue the chain and proves nothing.
    Ghost,
    /// A whole batch of this location that does not continue the chain and proves that the one that
    /// should be here was durable.
    Proof,
    /// The disk does not give the bytes back.
    Unreadable,
}

/// What is found anywhere behind the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// No batch, whole or torn.
    Nothing,
    /// Batches, none of which proves that the tail held a durable one: only a whole one can.
    Ghosts,
    /// A whole batch that proves it.
    Proof,
}

/// Where the newest image stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewestImage {
    /// At or before the tail, or there is none.
    Covered,
    /// Behind the tail: the image's log had been durable.
    Beyond,
}

/// What to do about the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailVerdict {
    /// The log ends here.
    End,
    /// The log ends here; what was in flight at the crash is erased.
    Cut,
    /// What had been durable is gone.
    Refuse(Damage),
}

struct TailRow {
    at: &'static [At],
    behind: &'static [Behind],
    image: &'static [NewestImage],
    verdict: TailVerdict,
}

const ANY_BEHIND: &[Behind] = &[Behind::Nothing, Behind::Ghosts, Behind::Proof];
const NO_PROOF: &[Behind] = &[Behind::Nothing, Behind::Ghosts];
const ANY_IMAGE: &[NewestImage] = &[NewestImage::Covered, NewestImage::Beyond];

/// Tails.
const TAIL_ROWS: &[TailRow] = &[
    // Orderly end, or a crash with nothing in flight.
    TailRow {
        at: &[At::Nothing],
        behind: &[Behind::Nothing],
        image: &[NewestImage::Covered],
        verdict: TailVerdict::End,
    },
    // A crash with one batch in flight.
    TailRow {
        at: &[At::Torn],
        behind: &[Behind::Nothing],
        image: &[NewestImage::Covered],
        verdict: TailVerdict::Cut,
    },
    // A crash with several in flight: of a later one more arrived, or all, than of this one. A torn
    // one is erased too: the log may grow up to its location, and would seem to end torn there.
    TailRow {
        at: &[At::Nothing, At::Torn],
        behind: &[Behind::Ghosts],
        image: &[NewestImage::Covered],
        verdict: TailVerdict::Cut,
    },
    // A crash after such a crash, before what was left of the first had been erased.
    TailRow {
        at: &[At::Ghost],
        behind: NO_PROOF,
        image: &[NewestImage::Covered],
        verdict: TailVerdict::Cut,
    },
    // Another batch stands where a durable one stood: an old copy, a misdirected write.
    TailRow {
        at: &[At::Proof],
        behind: ANY_BEHIND,
        image: ANY_IMAGE,
        verdict: TailVerdict::Refuse(Damage::Chain),
    },
    // Bytes changed before the tail.
    TailRow {
        at: &[At::Nothing, At::Torn, At::Ghost],
        behind: &[Behind::Proof],
        image: ANY_IMAGE,
        verdict: TailVerdict::Refuse(Damage::Batch),
    },
    // The same, with nothing written since the image.
    TailRow {
        at: &[At::Torn, At::Ghost],
        behind: NO_PROOF,
        image: &[NewestImage::Beyond],
        verdict: TailVerdict::Refuse(Damage::Batch),
    },
    // The end of the log is missing: an old copy of the newest extent.
    TailRow {
        at: &[At::Nothing],
        behind: NO_PROOF,
        image: &[NewestImage::Beyond],
        verdict: TailVerdict::Refuse(Damage::EndsBeforeImage),
    },
    // A bad sector. It may hold anything: never taken for the end.
    TailRow {
        at: &[At::Unreadable],
        behind: ANY_BEHIND,
        image: ANY_IMAGE,
        verdict: TailVerdict::Refuse(Damage::Unreadable),
    },
];

impl FileRow {
    fn matches(&self, facts: FileFacts) -> bool {
        self.length.contains(&facts.length)
            && self.header.contains(&facts.header)
            && self.followed.contains(&facts.followed)
    }
}

impl TailRow {
    fn matches(&self, facts: TailFacts) -> bool {
        self.at.contains(&facts.at)
            && self.behind.contains(&facts.behind)
            && self.image.contains(&facts.image)
    }
}

/// The verdict about an extent's file.
pub(crate) fn judge_file(facts: FileFacts) -> FileVerdict {
    let row = FILE_ROWS.iter().find(|row| row.matches(facts));
    assert!(row.is_some(), "every combination has a row: {facts:?}");
    row.map_or(FileVerdict::Refuse(Damage::ExtentHeader), |row| row.verdict)
}

/// The verdict about the end of the chain.
pub fn judge_tail(facts: TailFacts) -> TailVerdict {
    let row = TAIL_ROWS.iter().find(|row| row.matches(facts));
    assert!(row.is_some(), "every combination has a row: {facts:?}");
    row.map_or(TailVerdict::Refuse(Damage::Batch), |row| row.verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_file_facts_has_exactly_one_row() {
        let lengths = [Length::Empty, Length::Ragged, Length::Part, Length::Full];
        let mut used = vec![0; FILE_ROWS.len()];
        for length in lengths {
            for header in ANY_HEADER.iter().copied() {
                for followed in [false, true] {
                    let facts = FileFacts { length, header, followed };
                    let rows = FILE_ROWS.iter().enumerate().filter(|(_, row)| row.matches(facts));
                    let rows: Vec<usize> = rows.map(|(number, _)| number).collect();
                    assert_eq!(rows.len(), 1, "{facts:?}: rows {rows:?}");
                    used[rows[0]] += 1;
                }
            }
        }
        assert!(used.iter().all(|count| *count > 0), "a row that never matches: {used:?}");
    }

    #[test]
    fn every_combination_of_tail_facts_has_exactly_one_row() {
        let ats = [At::Nothing, At::Torn, At::Ghost, At::Proof, At::Unreadable];
        let mut used = vec![0; TAIL_ROWS.len()];
        for at in ats {
            for behind in ANY_BEHIND.iter().copied() {
                for image in ANY_IMAGE.iter().copied() {
                    let facts = TailFacts { at, behind, image };
                    let rows = TAIL_ROWS.iter().enumerate().filter(|(_, row)| row.matches(facts));
                    let rows: Vec<usize> = rows.map(|(number, _)| number).collect();
                    assert_eq!(rows.len(), 1, "{facts:?}: rows {rows:?}");
                    used[rows[0]] += 1;
                }
            }
        }
        assert!(used.iter().all(|count| *count > 0), "a row that never matches: {used:?}");
    }

    #[test]
    fn what_was_durable_is_never_cut_off() {
        for at in [At::Nothing, At::Torn, At::Ghost, At::Proof, At::Unreadable] {
            for behind in ANY_BEHIND.iter().copied() {
                for image in ANY_IMAGE.iter().copied() {
                    let lost = at == At::Proof
                        || at == At::Unreadable
                        || behind == Behind::Proof
                        || image == NewestImage::Beyond;
                    let verdict = judge_tail(TailFacts { at, behind, image });
                    assert_eq!(lost, matches!(verdict, TailVerdict::Refuse(_)));
                }
            }
        }
    }
}
