//! Backups: a folder with a consistent copy of a log, its image and the pages that the image refers
//! to. A backup is made beside a running log or of one at rest, extended by what is new, checked,
//! and restored.
//!
//! A backup is a set of files that are written once and never changed, and a manifest that names
//! them with length and checksum. What the manifest does not name does not exist:
//!
//! ```text
//! manifest.json       the list; written last, under another name, synced, renamed
//! log-<LSN>.<N>       bytes of one extent, from the byte of this position on (a whole extent, or as
//!                     was new in the newest one at the time of a backup)
//! image-<LSN>.<N>     an image, as in the log folder
//! pages-<LSN>.<N>     pages, each padded to 4 KiB, that were new with the image of this position
//! places-<LSN>.<N>    of each page that the image refers to: its location, and that of its copy
//! times-<LSN>.<N>     when the log was how long
//! progress, lock      while a backup is made
//! ```
//! *N* is the number of the backup that wrote the file, from 1 on: no name is used twice.
//!
//! A *point* is one image with all that is needed to go on from it. Each backup adds one; the
//! newest few are kept, so that the state between two of them can be had.
//!
//! Reading order: [`manifest`], `folder` (the files), `source` (what is copied), `copy` and `packs`
//! (the copying), `view` (a backup seen as a log folder), `check`, `cut` and `restore` (the way
//! back), `times`; `stream` (a copy without a backup, from one folder into another).
//!
//! Not here: what an image says (the caller names its pages), which part of the program asks for a
//! backup, and when.
//!
//! Invariants: the previous backup can be used until the manifest of the next one is durable; a
//! file named in a manifest is whole and synced; a backup ends where no run is unfinished.

#![forbid(unsafe_code)]

mod account;
mod check;
mod copy;
mod cut;
mod damage;
mod damaged_batch;
mod error;
mod extent_length;
mod folder;
pub mod manifest;
mod mend;
mod packs;
mod progress;
mod restore;
mod source;
mod stream;
mod view;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, PagesOf, check_newest_image};
pub use copy::{BackupReport, Choices, Lacks};
pub use damaged_batch::DamagedBatch;
pub use error::BackupError;
pub use folder::{Backup, read_progress};
pub use mend::mend_from_backup;
pub use packs::SourcePages;
pub use progress::Progress;
pub use restore::{RestoreReport, Upto, restore, restore_folder};
pub use source::Source;
pub use stream::give::{Gift, give};
pub use stream::take::{PointKeeper, ReceivedCopy, prepare, take, take_behind};
pub use stream::{CopyHead, CopyPoint};
