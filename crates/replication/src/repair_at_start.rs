//! Repairs the log at a start that would be refused because a batch before the end of the log is
//! damaged: asks the other instances for the batch, writes it where it belongs, and tries the start
//! again.
//!
//! Meanwhile it serves intact batches to the others, so that two instances with damage in different
//! batches repair each other when they are started together.
//!
//! There are no links yet, and the hard state is not touched: after the repair the log is byte for
//! byte what it was, so this instance may promise the same as before.
//!
//! Not here: the question (`batch`), the proof (`towline_log::mend`). Invariants: a start
//! is repaired once; it waits `PATIENCE` for instances that do not answer yet, and no longer.

use std::path::Path;
use std::time::Duration;
use towline_os::time::Instant;

use bytes::Bytes;
use towline_admin::catalogue::{EXTENT_HEADER_REPAIRED, GROUP_BATCH_LACKING, GROUP_BATCH_REPAIRED};
use towline_log::mend::{DamageLeft, MendReport, id_at_rest, mend_by_asking};
use towline_log::{Damage, Finding, LogId};
use towline_types::BodyLocation;

use crate::batch::{self, BatchAnswer};
use towline_config::GroupConfig;
use towline_link::{Asker, Peer, StreamPurpose};
use towline_logging::log as say;

/// When a group is started, it takes so long until all instances answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether they do.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The log to be repaired, and its instance.
pub struct StartRepair<'a> {
    /// Name of the queue manager.
    pub queue_manager: &'a str,
    /// The group, with its members.
    pub group: &'a GroupConfig,
    /// This member.
    pub this: Peer,
    /// Id of the log, if the folder does not show it.
    pub log: LogId,
}

/// Reads the log back; what is damaged in it is repaired before, if another instance has it.
///
/// # Errors
/// As `read_back`: its first error, when nothing can be repaired. `damage` is what an error
/// says of the log.
pub fn reading<T, E>(
    about: &StartRepair<'_>,
    folder: &Path,
    damage: impl Fn(&E) -> Option<&Finding>,
    read_back: impl Fn() -> Result<T, E>,
) -> Result<T, E> {
    // In a group of one there is none to ask.
    let has_others = about.group.member.len() > 1;
    match read_back() {
        Err(error) if has_others => {
            match damage(&error).filter(|found| is_of_a_batch(found.what)) {
                Some(found) if repair(about, folder, found) => read_back(),
                Some(_) | None => Err(error),
            }
        }
        back => back,
    }
}

/// Others are not: an extent that is gone comes with a copy. Behind a header that is damaged there
/// may be a batch that is, too.
fn is_of_a_batch(what: Damage) -> bool {
    matches!(what, Damage::Batch | Damage::Chain | Damage::Unreadable | Damage::ExtentHeader)
}

/// Whether all that was damaged is repaired.
fn repair(about: &StartRepair<'_>, folder: &Path, found: &Finding) -> bool {
    let lacking = |why: &str| say(&GROUP_BATCH_LACKING, &[&found.lsn.to_string(), why]);
    let log = id_at_rest(folder).ok().flatten().unwrap_or(about.log);
    let about = &StartRepair { log, ..*about };
    let asker = match Asker::new(about.queue_manager, about.group, about.this) {
        Ok(asker) => asker,
        Err(why) => {
            lacking(&why);
            return false;
        }
    };
    let until = Instant::now() + PATIENCE;
    let mut asking = Asking { about, asker, folder, listens: false, until, had: String::new() };
    // The batch before is needed too: what continues it is right.
    let first = found.extent.saturating_sub(1);
    let mut last = String::new();
    let done = mend_by_asking(folder, first, &mut |part| {
        last.clear();
        asking.ask(part, &mut last)
    });
    match done {
        Ok(MendReport { mended, left, .. }) => {
            for repaired in &mended {
                if repaired.what == Damage::ExtentHeader {
                    say(&EXTENT_HEADER_REPAIRED, &[&repaired.file]);
                    continue;
                }
                let Finding { file, offset, lsn, .. } = repaired;
                let offset = offset.to_string();
                let lsn = lsn.to_string();
                say(&GROUP_BATCH_REPAIRED, &[file, &offset, &lsn, &asking.had]);
            }
            for DamageLeft { why, .. } in &left {
                lacking(&if last.is_empty() { (*why).to_owned() } else { last.clone() });
            }
            left.is_empty() && !mended.is_empty()
        }
        Err(error) => {
            lacking(&error.to_string());
            false
        }
    }
}

struct Asking<'a> {
    about: &'a StartRepair<'a>,
    asker: Asker,
    /// Of the log.
    folder: &'a Path,
    /// Others may ask this instance meanwhile.
    listens: bool,
    /// The end of waiting for instances that do not answer yet.
    until: Instant,
    /// The instance that had what was asked for last.
    had: String,
}

impl Asking<'_> {
    /// Gives others what is intact here: they may be in the same need, and have what is wanted
    /// here.
    fn listen(&mut self) {
        if self.listens {
            return;
        }
        let StartRepair { queue_manager, group, this, log } = *self.about;
        let names: Vec<String> = group.member.iter().map(|member| member.name.clone()).collect();
        let folder = self.folder.to_owned();
        let give = move |peer: Peer, stream| {
            let folder = folder.clone();
            let name = names[peer].clone();
            tokio::spawn(async move { batch::give_at_rest(&folder, log, stream, &name).await });
        };
        // The socket of the process before may still be there: it is tried again.
        match self.asker.listen(queue_manager, group, this, Box::new(give)) {
            Ok(()) => self.listens = true,
            Err(error) => tracing::debug!(error, "others cannot ask this instance meanwhile"),
        }
    }

    /// Asks one instance after the other; why they do not have it is in `why` then.
    fn ask(&mut self, part: BodyLocation, why: &mut String) -> Option<Bytes> {
        loop {
            self.listen();
            let mut reasons = Vec::new();
            let mut all_answered = true;
            for (peer, member) in self.about.group.member.iter().enumerate() {
                if peer == self.about.this {
                    continue;
                }
                let opening = self.asker.stream(peer, &StreamPurpose::Batch);
                let asking = batch::ask(opening, self.about.log, part);
                let because = match self.asker.runtime().block_on(asking) {
                    Ok(BatchAnswer::Given(batch)) => {
                        self.had.clone_from(&member.name);
                        return Some(batch);
                    }
                    Ok(BatchAnswer::Refused(because)) => because,
                    Err(error) => {
                        all_answered = false;
                        error.to_string()
                    }
                };
                reasons.push(format!("'{}': {because}", member.name));
            }
            *why = reasons.join("; ");
            if all_answered || Instant::now() >= self.until {
                return None;
            }
            // Inside, because a timer belongs to a runtime.
            self.asker.runtime().block_on(async { tokio::time::sleep(LOOK_INTERVAL).await });
        }
    }
}
