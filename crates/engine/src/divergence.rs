//! What the tail of an old live group's log did behind a fork: each persistent message that it
//! added, and each one that it removed. Read from a log at rest, or beside a running process;
//! nothing is changed.
//!
//! A message is named by its queue and its sequence. What removes it has no more than that, so its
//! put is looked for in the log: all that was live at the fork has its content there, unless the
//! extent was released since. The log is read three times or more: what ended, and what moved, is
//! kept in memory, in slices of a bounded size, and messages are shown as their puts come by.
//!
//! Not here: what an operator does about them; ids of messages, which are in their content, of
//! which nothing is known here. Invariants: a message is shown once for each change; what is shown
//! as added and not removed again was on its queue at the end of the tail, and was not at the fork;
//! what was there at the end, and of which that is not known, is shown as perhaps added.
//!
//! A log that was reclaimed past the fork has other puts than the first ones: a message that lived
//! long was carried forward, with its sequence. Whether its put was before the fork or behind it is
//! not in the log any more.

mod steps;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use towline_core::object::Definition;
use towline_core::record::history_begun;
use towline_core::{Header, Pages as Trust, QueueManager};
use towline_log::offline::{self, Filter, Item};
use towline_log::{Disk, LinuxDisk, LogError, LogId, Options, Recovery};
use towline_types::{BodyLocation, HistoryId, Lsn};

use steps::{LogStep, LogSteps, MessageKey, StepAt};

/// Messages that ended in the tail, or were carried forward, of which a slice of the work keeps the
/// names: about 250 MiB.
const KEPT_MAX: usize = 4_000_000;
/// Moves in the whole log that are kept, about as much. More are refused.
const MOVED_MAX: usize = 2_000_000;
/// Findings that are said.
const FINDINGS_MAX: usize = 20;

/// What happened to a message in the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailChange {
    /// It was put there, and is there at the end.
    Added,
    /// It was put there, and ended there again.
    AddedAndRemoved(HowEnded),
    /// It was there at the fork, and ended.
    Removed(HowEnded),
    /// It was there at the fork, and is on another queue now.
    Moved,
    /// It is there at the end. Whether it was put in the tail, or the other group has it too, is
    /// not in the log any more.
    PerhapsAdded,
    /// It ended in the tail, and the same is not known of it.
    PerhapsRemoved(HowEnded),
}

/// Where a tail begins, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailBegin {
    /// Both logs are one up to here.
    pub from: Lsn,
    /// From here on, or earlier, all is of this log alone.
    pub own: Lsn,
    /// They may part before `from`, in what is not in the log any more.
    pub parts_before: bool,
}

impl TailBegin {
    /// A tail that begins exactly here.
    #[must_use]
    pub const fn at(fork: Lsn) -> TailBegin {
        TailBegin { from: fork, own: fork, parts_before: false }
    }
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowEnded {
    /// A consumer got it.
    Got,
    /// It expired.
    Expired,
    /// Its queue was cleared.
    Cleared,
    /// Its queue was deleted.
    QueueDeleted,
}

impl HowEnded {
    /// One word for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HowEnded::Got => "got",
            HowEnded::Expired => "expired",
            HowEnded::Cleared => "cleared",
            HowEnded::QueueDeleted => "queue deleted",
        }
    }
}

/// A message that the tail added or removed.
#[derive(Clone, Debug, PartialEq)]
pub struct TailMessage {
    /// What happened.
    pub change: TailChange,
    /// The queue: where it is, or was last.
    pub queue: String,
    /// Its sequence there.
    pub sequence: u64,
    /// What its put said; `None`: that is not in the log any more.
    pub put: Option<FoundPut>,
}

/// The put of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPut {
    /// Its position.
    pub lsn: Lsn,
    /// Its header.
    pub header: Header,
    /// Where its content is, in pieces.
    pub body: Vec<BodyLocation>,
}

impl FoundPut {
    /// Bytes of the content.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.body.iter().map(|piece| u64::from(piece.bytes)).sum()
    }
}

/// All together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divergence {
    /// Where the tail begins.
    pub fork: Lsn,
    /// Where it ended when it was read.
    pub end: Lsn,
    /// The first batch that the log has.
    pub first: Option<Lsn>,
    /// Messages that are there at its end, and were not at the fork; their bytes.
    pub added: (u64, u64),
    /// Messages that were put in it and ended in it.
    pub passed: (u64, u64),
    /// Messages that were there at the fork, and ended; their bytes as far as they are known.
    pub removed: (u64, u64),
    /// Messages that were there at the fork, and are on another queue.
    pub moved: (u64, u64),
    /// Messages that are there at its end, and may have been there at the fork; their bytes.
    pub perhaps_added: (u64, u64),
    /// Messages that ended in it, and may have been there at the fork.
    pub perhaps_removed: (u64, u64),
    /// Of those that ended or moved: their puts are not in the log any more.
    pub unknown: u64,
    /// Objects that were defined, altered or deleted.
    pub objects: u64,
    /// What of the log cannot be read, or is not there any more: with any the list may not be
    /// complete.
    pub findings: Vec<String>,
}

/// Why a tail cannot be listed.
#[derive(Debug)]
pub enum DivergenceError<E> {
    /// The log cannot be read.
    Log(LogError),
    /// A record is not one of ours, or does not fit; in words.
    Record(String),
    /// More messages were moved than are kept.
    TooMany,
    /// The receiver refused a message.
    Shown(E),
}

impl<E> fmt::Display for DivergenceError<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DivergenceError::Log(error) => error.fmt(out),
            DivergenceError::Record(why) => out.write_str(why),
            DivergenceError::TooMany => {
                write!(out, "the log has more than {MOVED_MAX} moves of messages between queues")
            }
            DivergenceError::Shown(_) => out.write_str("the list was not shown to its end"),
        }
    }
}

/// Lists what the log in `folder` has behind a fork.
///
/// # Errors
/// [`DivergenceError`].
pub fn list<E>(
    folder: &Path,
    begin: TailBegin,
    show: &mut dyn FnMut(&TailMessage) -> Result<(), E>,
) -> Result<Divergence, DivergenceError<E>> {
    let mut search = Search::new(folder, begin);
    search.names = names_of_image(folder).map_err(DivergenceError::Log)?;
    search.survey()?;
    let slices = search.kept_count.div_ceil(KEPT_MAX).max(1) as u64;
    for slice in 0..slices {
        search.collect((slice, slices))?;
        search.show((slice, slices), show)?;
    }
    search.says_what_is_gone();
    Ok(search.found)
}

/// Whether the log behind `from` has the record with which a history begins.
///
/// # Errors
/// Why that is not known.
pub fn has_record(folder: &Path, from: Lsn, history: HistoryId) -> Result<bool, String> {
    let mut has_it = false;
    let filter = Filter { from, ..Filter::default() };
    let shown = offline::dump(folder, filter, &mut |item| {
        if let Item::Record { lsn, bytes, .. } = item {
            let begun = history_begun(bytes).filter(|_| lsn >= from);
            has_it |= begun.is_some_and(|begun| begun.id == history);
        }
    });
    shown.map_err(|error| error.to_string())?;
    Ok(has_it)
}

/// The first change behind `from` that an operator would miss if it were given up: of a message, or
/// of an object. `None`: there is none.
///
/// # Errors
/// Why that is not known.
pub fn first_change(folder: &Path, from: Lsn) -> Result<Option<Lsn>, String> {
    let mut first = None;
    let mut steps = LogSteps::default();
    let filter = Filter { from, ..Filter::default() };
    let mut trouble = None;
    let shown = offline::dump(folder, filter, &mut |item| {
        if let Item::Finding(finding) = item
            && !finding.what.is_harmless()
            && finding.lsn >= from
        {
            trouble.get_or_insert(finding.to_string());
        }
        let taken = steps.take(item, &mut |StepAt { at, step, .. }| {
            if at >= from && step.is_missed() {
                first.get_or_insert(at);
            }
        });
        if let Err(why) = taken {
            trouble.get_or_insert(why);
        }
    });
    shown.map_err(|error| error.to_string())?;
    match (first, trouble) {
        (Some(first), _) => Ok(Some(first)),
        (None, Some(why)) => Err(why),
        (None, None) => Ok(None),
    }
}

/// The names of queues as of the newest image, if there is one.
fn names_of_image(folder: &Path) -> Result<HashMap<u32, String>, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(folder)?);
    let recovery = Recovery::open(disk, Options::default(), LogId(0))?;
    let Some(image) = recovery.image() else { return Ok(HashMap::new()) };
    // An image begins with its position.
    let content = image.bytes.get(size_of::<u64>()..).unwrap_or_default();
    let restored = QueueManager::restore(content, towline_core::Limits::default(), Trust::Ignored);
    let Ok(restored) = restored else { return Ok(HashMap::new()) };
    let local = restored.rules.definitions().filter_map(|definition| match definition {
        Definition::Local(queue) => Some((queue.id.0, queue.name.clone())),
        Definition::Alias(_) | Definition::Model(_) | Definition::QueueManager(_) => None,
    });
    Ok(local.collect())
}

/// A queue that lost all of its messages before a sequence.
#[derive(Clone, Copy)]
struct Emptied {
    queue: u32,
    upto: u64,
    how: HowEnded,
}

/// Where a message was put.
#[derive(Clone, Copy)]
enum Origin {
    /// Before the fork: the other group had it too.
    Before,
    /// Behind it.
    Tail,
    Unknown,
}

/// What is done with a step of the log.
type EachStep<'s, 'a, E> =
    &'s mut dyn FnMut(&mut Search<'a>, StepAt) -> Result<(), DivergenceError<E>>;

struct Search<'a> {
    folder: &'a Path,
    begin: TailBegin,
    /// The log does not go back to where the tail begins: it was reclaimed.
    is_reclaimed: bool,
    names: HashMap<u32, String>,
    /// Where a message went, and when.
    moves: HashMap<MessageKey, (MessageKey, Lsn)>,
    /// The same, backwards.
    came_from: HashMap<MessageKey, MessageKey>,
    emptied: Vec<Emptied>,
    kept_count: usize,
    /// Of one slice: what ended in the tail, and was not shown yet.
    ended: HashMap<MessageKey, HowEnded>,
    /// Of one slice: messages of queues that were emptied that were gone before, or are shown.
    gone: HashSet<MessageKey>,
    /// Of one slice: messages with more than one put in the log, or with one that is not the first,
    /// by the names under which they were put; and those of them that came by.
    carried: HashSet<MessageKey>,
    told: HashSet<MessageKey>,
    found: Divergence,
}

impl<'a> Search<'a> {
    fn new(folder: &'a Path, begin: TailBegin) -> Search<'a> {
        let (fork, end) = (begin.from, begin.from);
        Search {
            folder,
            begin,
            is_reclaimed: false,
            names: HashMap::new(),
            moves: HashMap::new(),
            came_from: HashMap::new(),
            emptied: Vec::new(),
            kept_count: 0,
            ended: HashMap::new(),
            gone: HashSet::new(),
            carried: HashSet::new(),
            told: HashSet::new(),
            found: Divergence { fork, end, ..Divergence::default() },
        }
    }

    /// Goes over all of the log.
    fn walk<E>(&mut self, each: EachStep<'_, 'a, E>) -> Result<(), DivergenceError<E>> {
        let (mut steps, mut result, mut end) = (LogSteps::default(), Ok(()), self.begin.from);
        let mut findings = Vec::new();
        let folder = self.folder;
        let dumped = offline::dump(folder, Filter::default(), &mut |item| {
            match item {
                Item::Batch { lsn, index, bytes, .. } => {
                    self.begins_with(lsn, index);
                    end = end.max(lsn.after(bytes));
                }
                Item::Finding(finding) if !finding.what.is_harmless() => {
                    findings.push(finding.to_string());
                }
                Item::Image { .. }
                | Item::Record { .. }
                | Item::GivenUp { .. }
                | Item::Finding(_)
                | Item::Damaged(_) => {}
            }
            let taken = steps.take(item, &mut |step| {
                if result.is_ok() {
                    result = each(self, step);
                }
            });
            if let (Err(why), true) = (taken, result.is_ok()) {
                result = Err(DivergenceError::Record(why));
            }
        });
        dumped.map_err(DivergenceError::Log)?;
        result?;
        findings.truncate(FINDINGS_MAX);
        (self.found.findings, self.found.end) = (findings, end.max(self.found.end));
        Ok(())
    }

    /// The first batch that the log has, if this is it.
    fn begins_with(&mut self, lsn: Lsn, index: u64) {
        if self.found.first.is_none() {
            self.found.first = Some(lsn);
            self.is_reclaimed = index > 1 && lsn > self.begin.from;
        }
    }

    /// Whether nothing says of a message that was carried forward where it was put.
    fn is_doubtful(&self) -> bool {
        self.is_reclaimed || self.begin.parts_before
    }

    fn says_what_is_gone(&mut self) {
        let Some(first) = self.found.first.filter(|_| self.is_reclaimed) else { return };
        self.found.findings.push(format!(
            "the log begins at {first}, behind {}, where the tail begins: what was before that was \
             reclaimed. Messages that were carried forward are listed as perhaps added, or perhaps \
             removed: they were put behind the fork, or before it, and then the other group had \
             them too. What was put and removed again before {first} is not listed",
            self.begin.from
        ));
    }

    /// What moved, which queues were emptied, how much ended, how queues are called.
    fn survey<E>(&mut self) -> Result<(), DivergenceError<E>> {
        self.walk(&mut |search, StepAt { at, step, .. }| {
            let is_tail = at >= search.begin.from;
            match step {
                LogStep::Moved { from, to } => {
                    if search.moves.len() >= MOVED_MAX {
                        return Err(DivergenceError::TooMany);
                    }
                    search.moves.insert(from, (to, at));
                    search.came_from.insert(to, from);
                }
                LogStep::Ended { .. } => search.kept_count += usize::from(is_tail),
                LogStep::Put { carried, .. } => search.kept_count += usize::from(carried),
                LogStep::Emptied { queue, upto, how } if is_tail => {
                    search.emptied.push(Emptied { queue, upto, how });
                    search.found.objects += u64::from(how == HowEnded::QueueDeleted);
                }
                LogStep::Defined { queue } => {
                    search.names.extend(queue);
                    search.found.objects += u64::from(is_tail);
                }
                LogStep::Undefined => search.found.objects += u64::from(is_tail),
                LogStep::Emptied { .. } | LogStep::Operations => {}
            }
            Ok(())
        })
    }

    /// The name under which a message was put.
    fn root(&self, key: MessageKey) -> MessageKey {
        let mut root = key;
        while let Some(before) = self.came_from.get(&root) {
            root = *before;
        }
        root
    }

    fn is_of(&self, key: MessageKey, (slice, slices): (u64, u64)) -> bool {
        slices == 1 || self.root(key).sequence % slices == slice
    }

    /// What of a slice ended in the tail, and what of the queues that were emptied was gone before.
    fn collect<E>(&mut self, slice: (u64, u64)) -> Result<(), DivergenceError<E>> {
        self.ended.clear();
        self.gone.clear();
        self.carried.clear();
        self.told.clear();
        let concerned: HashSet<u32> = self.emptied.iter().map(|emptied| emptied.queue).collect();
        self.walk(&mut |search, StepAt { at, step, .. }| {
            let key = match step {
                LogStep::Ended { key, .. } => key,
                LogStep::Moved { from, .. } => from,
                LogStep::Put { key, carried: true, .. } => key,
                LogStep::Put { .. }
                | LogStep::Emptied { .. }
                | LogStep::Defined { .. }
                | LogStep::Undefined
                | LogStep::Operations => return Ok(()),
            };
            if !search.is_of(key, slice) {
                return Ok(());
            }
            if let LogStep::Put { .. } = step {
                let root = search.root(key);
                search.carried.insert(root);
                return Ok(());
            }
            if let LogStep::Ended { key, how } = step
                && at >= search.begin.from
            {
                search.ended.insert(key, how);
            }
            if concerned.contains(&key.queue) {
                search.gone.insert(key);
            }
            Ok(())
        })
    }

    /// Shows the messages of a slice, as their puts come by.
    fn show<E>(
        &mut self,
        slice: (u64, u64),
        show: &mut dyn FnMut(&TailMessage) -> Result<(), E>,
    ) -> Result<(), DivergenceError<E>> {
        self.walk(&mut |search, StepAt { at, lsn, step }| {
            let LogStep::Put { key, carried, header, body } = step else { return Ok(()) };
            if !header.persistent || !search.is_of(key, slice) {
                return Ok(());
            }
            let root = search.root(key);
            if search.carried.contains(&root) && !search.told.insert(root) {
                // Its first put in the log came by before.
                return Ok(());
            }
            let origin = search.origin(at, carried);
            let Some((change, last)) = search.outcome(key, origin) else { return Ok(()) };
            let put = FoundPut { lsn, header: *header, body };
            search.tell(change, last, Some(put), show)
        })?;
        // What is left was put in a part of the log that is not there any more.
        let left: Vec<_> = self.ended.drain().collect();
        for (key, how) in left {
            let change = match self.is_doubtful() {
                true => TailChange::PerhapsRemoved(how),
                false => TailChange::Removed(how),
            };
            self.tell(change, key, None, show)?;
        }
        Ok(())
    }

    /// Where a message was put of which the log has this put first.
    fn origin(&self, at: Lsn, carried: bool) -> Origin {
        match carried {
            true if self.is_doubtful() => Origin::Unknown,
            true => Origin::Before,
            false if at >= self.begin.own => Origin::Tail,
            false if at >= self.begin.from => Origin::Unknown,
            false => Origin::Before,
        }
    }

    /// What became of a message that was put as `key`; `None`: nothing of account, or it was shown.
    fn outcome(&mut self, key: MessageKey, origin: Origin) -> Option<(TailChange, MessageKey)> {
        let (mut last, mut has_moved) = (key, false);
        while let Some((to, at)) = self.moves.get(&last) {
            (last, has_moved) = (*to, has_moved || *at >= self.begin.from);
        }
        let how = self.ended.remove(&last).or_else(|| self.emptied_with(last));
        let change = match (origin, how) {
            (Origin::Tail, None) => TailChange::Added,
            (Origin::Tail, Some(how)) => TailChange::AddedAndRemoved(how),
            (Origin::Unknown, None) => TailChange::PerhapsAdded,
            (Origin::Unknown, Some(how)) => TailChange::PerhapsRemoved(how),
            (Origin::Before, Some(how)) => TailChange::Removed(how),
            (Origin::Before, None) if has_moved => TailChange::Moved,
            (Origin::Before, None) => return None,
        };
        Some((change, last))
    }

    /// Whether a message went with all others of its queue, in the tail.
    fn emptied_with(&mut self, key: MessageKey) -> Option<HowEnded> {
        let mut emptied = self.emptied.iter();
        let with = emptied.find(|it| it.queue == key.queue && key.sequence < it.upto)?;
        let how = with.how;
        self.gone.insert(key).then_some(how)
    }

    fn tell<E>(
        &mut self,
        change: TailChange,
        last: MessageKey,
        put: Option<FoundPut>,
        show: &mut dyn FnMut(&TailMessage) -> Result<(), E>,
    ) -> Result<(), DivergenceError<E>> {
        let name = self.names.get(&last.queue).cloned();
        let queue = name.unwrap_or_else(|| format!("queue {}", last.queue));
        let message = TailMessage { change, queue, sequence: last.sequence, put };
        let bytes = message.put.as_ref().map_or(0, FoundPut::bytes);
        let counts = match change {
            TailChange::Added => &mut self.found.added,
            TailChange::AddedAndRemoved(_) => &mut self.found.passed,
            TailChange::Removed(_) => &mut self.found.removed,
            TailChange::Moved => &mut self.found.moved,
            TailChange::PerhapsAdded => &mut self.found.perhaps_added,
            TailChange::PerhapsRemoved(_) => &mut self.found.perhaps_removed,
        };
        (counts.0, counts.1) = (counts.0 + 1, counts.1 + bytes);
        self.found.unknown += u64::from(message.put.is_none());
        show(&message).map_err(DivergenceError::Shown)
    }
}

#[cfg(test)]
mod tests;
