//! Fetches what is damaged in this instance's log from another one, writes it where it belongs, and
//! reads it again: before a message is set aside, before a replica gives up, before a replica that
//! lags is refused.
//!
//! One thread (`group-repair`) does all of it, one batch after the other and one instance after the
//! other, so this instance has at most one question under way, and no lock is held meanwhile: other
//! clients, other queues and the group go on.
//!
//! Not here: the bytes of question and answer (`batch`); what is proven before anything is
//! written (`towline_log::Log::mend_batch`).
//!
//! When no instance had a batch while one of them could not be reached, the batch is asked for
//! again as soon as that one is back: what was set aside meanwhile is intact then.
//!
//! Invariants: each job is answered once, whatever its result; a batch that no instance had is not
//! asked for again before `PAUSE`, unless an instance is back; an instance that did not answer is
//! not asked again before `SILENCE`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::mpsc::Receiver;
use towline_os::time::Instant;

use towline_admin::catalogue::{GROUP_BATCH_LACKING, GROUP_BATCH_REFUSED, GROUP_BATCH_REPAIRED};
use towline_group::FetchOrder;
use towline_log::mend::NotMended;
use towline_log::{Log, LogError};
use towline_types::{Batch, BatchPlace, BodyLocation, Lsn};

use crate::batch::{self, BatchAnswer};
use crate::driver::Driver;
use crate::repair_queue::Job;
use towline_link::{Peer, StreamPurpose};
use towline_logging::log as say;

/// Before a batch that no instance had is asked for again.
const PAUSE: Duration = Duration::from_secs(30);
/// Before an instance is asked again that did not answer.
const SILENCE: Duration = Duration::from_secs(10);
/// Batches that no instance had and that are remembered; beyond that they may be asked for sooner.
const LACKING_MAX: usize = 4_096;

/// Repairs what is asked for, until the process ends.
pub fn serve(driver: &Arc<Driver>) {
    let Some(jobs) = driver.repairs().take_jobs() else { return };
    let mut worker = Worker {
        driver,
        memory: Memory { lacking: HashMap::new(), silent: vec![None; driver.names().len()] },
    };
    for job in jobs {
        match job {
            Job::Bring(parts, then) => {
                let mut repaired = false;
                for part in parts {
                    repaired |= worker.bring(part);
                }
                then(repaired);
            }
            Job::Back(peer) => {
                for part in worker.memory.back(peer) {
                    worker.bring(part);
                }
            }
        }
    }
}

/// Reads batches; what is damaged is fetched and read again. Blocks.
///
/// # Errors
/// As [`Log::read_batches`].
pub fn read_batches(
    driver: &Driver,
    places: &[BatchPlace],
    bytes_max: usize,
) -> Result<Vec<Batch>, LogError> {
    let log: &Log = driver.log();
    loop {
        let read = log.read_batches(places, bytes_max);
        match read {
            Err(error) if error.is_damage() => {
                let parts = places.iter().map(part).collect();
                // What was repaired is whole now, so this ends.
                if !driver.repairs().wait_for(parts) {
                    return Err(error);
                }
            }
            read => return read,
        }
    }
}

/// Reads batches for replicas that lag, until the process ends.
pub fn serve_fetches(driver: &Driver, orders: Receiver<FetchOrder>) {
    /// Read for one order.
    const BYTES_MAX: usize = 8 * 1024 * 1024;
    for FetchOrder { id, places } in orders {
        let batches = read_batches(driver, &places, BYTES_MAX).unwrap_or_else(|error| {
            tracing::warn!(%error, "batches for a replica that lags");
            Vec::new()
        });
        driver.fetched(id, batches);
    }
}

/// Looks over all of the log that is there, and repairs what is damaged in it, because the taker of
/// a copy found damage. Blocks, and reads all of it.
pub fn look_over(driver: &Driver) {
    loop {
        match driver.log().damaged_parts() {
            Ok(parts) => {
                // Behind what was repaired there may be more.
                if parts.is_empty() || !driver.repairs().wait_for(parts) {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the log cannot be looked over");
                return;
            }
        }
    }
}

/// The header of a batch: how long the batch is may be what is damaged.
fn part(place: &BatchPlace) -> BodyLocation {
    let bytes = towline_types::fitting(towline_types::BATCH_HEADER_BYTES);
    BodyLocation { lsn: place.lsn, bytes }
}

/// What was tried lately.
struct Memory {
    /// What no instance had that answered, by position.
    lacking: HashMap<Lsn, Lacking>,
    /// When each peer was silent.
    silent: Vec<Option<Instant>>,
}

/// A batch that no instance had.
struct Lacking {
    part: BodyLocation,
    when: Instant,
    /// Those that could not be asked.
    absent: Vec<Peer>,
}

/// Why a peer did not give a batch.
enum NotBrought {
    /// It could not be asked, or did not answer.
    Absent(String),
    /// It has it damaged too, or what it has cannot be written here.
    Lacks(String),
}

struct Worker<'a> {
    driver: &'a Arc<Driver>,
    memory: Memory,
}

impl Worker<'_> {
    /// Whether the batch was damaged, and is not any more.
    fn bring(&mut self, part: BodyLocation) -> bool {
        match self.driver.log().batch_over(part) {
            Err(error) if error.is_damage() => {}
            // It is whole, or none of the log that is there.
            Ok(_) | Err(_) => return false,
        }
        if !self.memory.may_ask(part.lsn, Instant::now()) {
            return false;
        }
        let mut reasons = Vec::new();
        let mut absent = Vec::new();
        for peer in self.others() {
            let name = self.driver.name(peer).to_owned();
            match self.bring_from(peer, &name, part) {
                Ok(()) => return true,
                Err(NotBrought::Lacks(why)) => reasons.push(format!("'{name}': {why}")),
                Err(NotBrought::Absent(why)) => {
                    reasons.push(format!("'{name}': {why}"));
                    absent.push(peer);
                }
            }
        }
        if self.driver.is_alone() {
            reasons.push("this instance is the only one of its group".to_owned());
        }
        self.driver.repairs().count_lacking();
        say(&GROUP_BATCH_LACKING, &[&part.lsn.to_string(), &reasons.join("; ")]);
        self.memory.lacks(Lacking { part, when: Instant::now(), absent });
        false
    }

    /// The other instances, those with a connection first.
    fn others(&self) -> Vec<Peer> {
        let this = self.driver.this();
        let mut others: Vec<Peer> =
            (0..self.driver.names().len()).filter(|peer| *peer != this).collect();
        if let Some(links) = self.driver.links() {
            others.sort_by_key(|peer| !links.state(*peer).connected_out);
        }
        others
    }

    fn bring_from(&mut self, peer: Peer, name: &str, part: BodyLocation) -> Result<(), NotBrought> {
        let absent = |why: &str| NotBrought::Absent(why.to_owned());
        if self.memory.is_silent(peer, Instant::now()) {
            return Err(absent("it did not answer a moment ago"));
        }
        let log = self.driver.log();
        let links = self.driver.links().ok_or_else(|| absent("there are no links yet"))?;
        let asking = batch::ask(links.open_stream(peer, StreamPurpose::Batch), log.id(), part);
        let came = match links.streams().block_on(asking) {
            Ok(BatchAnswer::Given(came)) => came,
            Ok(BatchAnswer::Refused(why)) => return Err(NotBrought::Lacks(why)),
            Err(error) => {
                if error.kind() == std::io::ErrorKind::TimedOut {
                    self.memory.was_silent(peer, Instant::now());
                }
                return Err(NotBrought::Absent(error.to_string()));
            }
        };
        match log.mend_batch(part, &came) {
            Ok(Some(mended)) => {
                self.driver.repairs().count_repaired();
                let offset = mended.offset.to_string();
                let lsn = mended.lsn.to_string();
                say(&GROUP_BATCH_REPAIRED, &[&mended.file, &offset, &lsn, name]);
                Ok(())
            }
            // Another instance was quicker, so to speak: what stands here can be read.
            Ok(None) => Ok(()),
            Err(NotMended::Refused(why)) => {
                say(&GROUP_BATCH_REFUSED, &[name, &part.lsn.to_string(), why]);
                Err(NotBrought::Lacks(why.to_owned()))
            }
            Err(NotMended::Log(error)) => Err(NotBrought::Lacks(error.to_string())),
        }
    }
}

impl Memory {
    fn may_ask(&self, lsn: Lsn, now: Instant) -> bool {
        let lacking = self.lacking.get(&lsn);
        lacking.is_none_or(|lacking| now.duration_since(lacking.when) >= PAUSE)
    }

    fn lacks(&mut self, lacking: Lacking) {
        let now = lacking.when;
        if self.lacking.len() >= LACKING_MAX {
            self.lacking.retain(|_, other| now.duration_since(other.when) < PAUSE);
        }
        if self.lacking.len() >= LACKING_MAX {
            self.lacking.clear();
        }
        self.lacking.insert(lacking.part.lsn, lacking);
    }

    /// What this peer could not be asked for: it can be now.
    fn back(&mut self, peer: Peer) -> Vec<BodyLocation> {
        self.silent[peer] = None;
        let awaits = |lacking: &Lacking| lacking.absent.contains(&peer);
        let found = self.lacking.extract_if(|_, lacking| awaits(lacking));
        found.map(|(_, lacking)| lacking.part).collect()
    }

    fn is_silent(&self, peer: Peer, now: Instant) -> bool {
        let when = self.silent[peer];
        when.is_some_and(|when| now.duration_since(when) < SILENCE)
    }

    fn was_silent(&mut self, peer: Peer, now: Instant) {
        self.silent[peer] = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(lsn: u64, when: Instant, absent: &[Peer]) -> Lacking {
        let part = BodyLocation { lsn: Lsn(lsn), bytes: 100 };
        Lacking { part, when, absent: absent.to_vec() }
    }

    #[test]
    fn what_an_instance_could_not_be_asked_for_is_asked_for_when_it_is_back() {
        let began = Instant::now();
        let mut memory = Memory { lacking: HashMap::new(), silent: vec![None; 3] };
        memory.lacks(lacking(4_096, began, &[2]));
        memory.lacks(lacking(8_192, began, &[]));
        memory.was_silent(2, began);
        assert!(memory.back(1).is_empty() && memory.is_silent(2, began));
        let again: Vec<Lsn> = memory.back(2).iter().map(|part| part.lsn).collect();
        assert_eq!(again, [Lsn(4_096)]);
        assert!(memory.may_ask(Lsn(4_096), began) && !memory.is_silent(2, began));
        assert!(!memory.may_ask(Lsn(8_192), began), "all answered, and none had it");
        assert!(memory.back(2).is_empty(), "once");
    }

    #[test]
    fn lacking_batches_and_silent_instances_are_asked_again_after_a_pause() {
        let began = Instant::now();
        let mut memory = Memory { lacking: HashMap::new(), silent: vec![None; 3] };
        memory.lacks(lacking(4_096, began, &[]));
        memory.was_silent(2, began);
        let soon = began + Duration::from_secs(1);
        assert!(!memory.may_ask(Lsn(4_096), soon) && memory.may_ask(Lsn(8_192), soon));
        assert!(memory.is_silent(2, soon) && !memory.is_silent(1, soon));
        assert!(memory.may_ask(Lsn(4_096), began + PAUSE));
        assert!(!memory.is_silent(2, began + SILENCE));
        for lsn in 0..3 * LACKING_MAX as u64 {
            memory.lacks(lacking(lsn, soon, &[]));
        }
        assert!(memory.lacking.len() <= LACKING_MAX, "it is bounded");
    }
}
