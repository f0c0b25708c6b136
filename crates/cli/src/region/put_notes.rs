//! What was put of a file of `towline region divergence --export`, noted beside it (`FILE.put`): so
//! that a second command does not put it all again without a word.
//!
//! ```text
//! one line of JSON each:
//! {"begun":{...}}            a command begins: of which file, which messages, from where
//! {"committing":N}           a unit of work that ends with message N of the file is committed now
//! {"done":N}                 and it was
//! {"ended":N}                all was put, up to the last message, N
//! ```
//!
//! Not here: the messages (`put_again`). Invariants: a line is in the file before what it says is
//! begun; a line that is cut says nothing, and so no more than is true is taken for done.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Which messages of a file a command puts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct PutScope {
    /// Length of the file and a checksum over it: of another file with its name nothing was put.
    pub(super) file: (u64, u32),
    /// Those of this queue alone.
    pub(super) queue: Option<String>,
    /// Those that were added.
    pub(super) added: bool,
    /// Those that were perhaps added.
    pub(super) perhaps: bool,
}

impl PutScope {
    /// Whether some messages are of both.
    fn overlaps(&self, other: &PutScope) -> bool {
        let is_one = |one: &Option<String>, other: &Option<String>| {
            one.is_none() || other.is_none() || one == other
        };
        self.file == other.file
            && is_one(&self.queue, &other.queue)
            && (self.added && other.added || self.perhaps && other.perhaps)
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum PutLine {
    Begun(PutScope),
    Committing(u64),
    Done(u64),
    Ended(u64),
}

/// What an earlier command put.
#[derive(Debug, Default)]
struct EarlierPut {
    scope: PutScope,
    /// Up to this message of the file.
    done: u64,
    /// And perhaps up to this one.
    committing: Option<u64>,
    has_ended: bool,
}

/// Notes what is put.
pub(super) struct PutNotes {
    out: File,
    path: PathBuf,
}

impl PutNotes {
    /// A command begins, unless an earlier one put some of it. `skip`: so many messages are passed
    /// over, as the operator says; `again`: whatever was put.
    ///
    /// # Errors
    /// What was put already, and the ways on; or it cannot be noted.
    pub(super) fn begin(
        file: &Path,
        scope: &PutScope,
        (skip, again): (Option<u64>, bool),
    ) -> Result<PutNotes, Failure> {
        let mut path = file.as_os_str().to_owned();
        path.push(".put");
        let path = PathBuf::from(path);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::about(path.display(), error)),
        };
        if !again && let Some(why) = in_the_way(&earlier(&text), scope, skip) {
            return Err(Failure::about(path.display(), why));
        }
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).mode(0o600).open(&path);
        let out = opened.map_err(|error| {
            Failure::about(
                path.display(),
                format!(
                    "what is put cannot be noted: {error}. Nothing was put; copy the file to a \
                         folder that can be written"
                ),
            )
        })?;
        let mut notes = PutNotes { out, path };
        if !text.is_empty() && !text.ends_with('\n') {
            notes.write(b"\n")?;
        }
        notes.line(&PutLine::Begun(scope.clone()))?;
        notes.sync()?;
        Ok(notes)
    }

    /// A unit of work is committed next that ends with this message of the file.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) fn commits(&mut self, upto: u64) -> Result<(), Failure> {
        self.line(&PutLine::Committing(upto))
    }

    /// All is decided up to this message of the file.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) fn done(&mut self, upto: u64) -> Result<(), Failure> {
        self.line(&PutLine::Done(upto))
    }

    /// All was put.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) fn ended(&mut self, last: u64) -> Result<(), Failure> {
        self.line(&PutLine::Ended(last))?;
        self.sync()
    }

    fn line(&mut self, line: &PutLine) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).map_err(Failure::failed)?;
        text.push(b'\n');
        self.write(&text)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::about(self.path.display(), error))
    }

    fn sync(&self) -> Result<(), Failure> {
        self.out.sync_all().map_err(|error| Failure::about(self.path.display(), error))
    }
}

fn earlier(text: &str) -> Vec<EarlierPut> {
    let mut all: Vec<EarlierPut> = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match (line, all.last_mut()) {
            (PutLine::Begun(scope), _) => all.push(EarlierPut { scope, ..EarlierPut::default() }),
            (_, None) => {}
            (PutLine::Committing(upto), Some(put)) => put.committing = Some(upto),
            (PutLine::Done(upto), Some(put)) => (put.done, put.committing) = (upto, None),
            (PutLine::Ended(upto), Some(put)) => {
                (put.done, put.committing, put.has_ended) = (upto, None, true);
            }
        }
    }
    all
}

/// Why a command does not begin.
fn in_the_way(all: &[EarlierPut], scope: &PutScope, skip: Option<u64>) -> Option<String> {
    let same: Vec<&EarlierPut> = all.iter().filter(|it| it.scope.overlaps(scope)).collect();
    if same.iter().any(|put| put.has_ended) {
        return Some(
            "these messages were put already, by an earlier command: nothing was put. --again puts \
             them once more; remove this note if they were put at a group that is gone"
                .to_owned(),
        );
    }
    let furthest = same.iter().max_by_key(|put| (put.done, put.committing))?;
    let done = furthest.done;
    match (furthest.committing, skip) {
        (_, Some(skip)) if skip >= done => None,
        (None, None) if done == 0 => None,
        (Some(upto), _) => Some(format!(
            "an earlier command ended early: nothing was put now. {}",
            in_doubt(done, upto)
        )),
        (None, _) => Some(format!(
            "an earlier command put the first {done} messages of the file, as far as it was to, and \
             ended early: nothing was put now. Go on with --skip {done}; --again puts all"
        )),
    }
}

/// What to do about a unit of work of which the outcome is not known.
pub(super) fn in_doubt(done: u64, upto: u64) -> String {
    format!(
        "Whether messages {} to {upto} of the file were put is not known: look at their queues. If \
         they are there, go on with --skip {upto}, else with --skip {done}",
        done + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(queue: Option<&str>) -> PutScope {
        let queue = queue.map(str::to_owned);
        PutScope { file: (100, 7), queue, added: true, perhaps: false }
    }

    fn refused(file: &Path, scope: &PutScope, skip: Option<u64>) -> String {
        match PutNotes::begin(file, scope, (skip, false)) {
            Err(failure) => failure.reason().to_owned(),
            Ok(_) => panic!("it begins"),
        }
    }

    #[test]
    fn what_was_put_is_not_put_once_more_without_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let all = scope(None);
        let mut notes = PutNotes::begin(&file, &all, (None, false)).unwrap();
        notes.commits(3).unwrap();
        notes.done(3).unwrap();
        notes.ended(3).unwrap();
        assert!(refused(&file, &all, None).contains("--again"));
        assert!(refused(&file, &all, Some(3)).contains("put already"));
        assert!(refused(&file, &scope(Some("Q")), None).contains("put already"));
        // What is not of it: another file with the name, and what was perhaps added.
        for other in [
            PutScope { file: (100, 8), ..all.clone() },
            PutScope { added: false, perhaps: true, ..all.clone() },
        ] {
            PutNotes::begin(&file, &other, (None, false)).unwrap();
        }
        PutNotes::begin(&file, &all, (None, true)).unwrap();
    }

    #[test]
    fn a_command_that_ended_early_is_gone_on_with_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let (one, other) = (scope(Some("A")), scope(Some("B")));
        drop(PutNotes::begin(&file, &one, (None, false)).unwrap());
        // It had put nothing.
        let mut notes = PutNotes::begin(&file, &one, (None, false)).unwrap();
        notes.commits(100).unwrap();
        assert!(refused(&file, &one, None).contains("messages 1 to 100"), "not even the first");
        notes.done(100).unwrap();
        assert!(refused(&file, &one, None).contains("--skip 100; --again"));
        notes.commits(200).unwrap();
        // The disk was full: a line is cut.
        notes.write(b"{\"done").unwrap();
        for skip in [None, Some(50)] {
            let why = refused(&file, &one, skip);
            assert!(why.contains("messages 101 to 200") && why.contains("--skip 100"), "{why}");
        }
        drop(PutNotes::begin(&file, &other, (None, false)).unwrap());
        let mut notes = PutNotes::begin(&file, &one, (Some(200), false)).unwrap();
        notes.ended(400).unwrap();
        assert!(refused(&file, &one, Some(400)).contains("put already"));
    }
}
