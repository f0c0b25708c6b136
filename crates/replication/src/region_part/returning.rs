//! The other group went on in a newer history, and this one is live: it was superseded, and serves
//! no client from then on. Where both logs part is kept for the operator, as soon as the batches of
//! both were compared (`comparing`). A group with nothing behind that position follows without an
//! order.
//!
//! So does a group in recovery whose switch came to nothing: the other one was promoted while the
//! last batch was on its way, and is live without it. What such a group has of its own is the
//! record of that switch, unless the other one lost more.
//!
//! What is said over the link is what was applied, or what a live group said that it had applied:
//! so a history that is heard of is committed there, and no mark and no promotion that is under way
//! makes this group stop. A live group of which the other one knows no newer history, but one
//! beside, is not superseded: an operator decides.
//!
//! Not here: the order (`driver::returning`) and how it is carried out (`towline_replica`).
//! Invariants: a group with a history that the other one does not have is not stopped, and never
//! returns by itself, unless that is a switch to it; nor does one of which the log has the record
//! of the other one's history, and is to apply it. A group in recovery returns to a live one only.

use std::sync::Arc;

use towline_admin::catalogue::REGION_RETURNS_ALONE;
use towline_group::Mode;
use towline_logging::log as say;
use towline_os::thread::Builder;
use towline_types::Lsn;

use super::{KnownRegion, RegionHost, RegionPart};
use crate::driver::Driver;
use crate::fence::Supersession;
use crate::region_clients::GroupClients;
use crate::region_meeting::{RegionSaid, first_lacked, fork_of};
use crate::return_order::{self, KeptReturn, KnownFork, ReturnOrder, ReturnStage, TailEnd};

impl RegionPart {
    /// Where the other group went on without this one, as it said to this process last; `None`: it
    /// has not, or both logs are one.
    pub fn known_fork(&self) -> Option<KnownFork> {
        let known = self.known.lock();
        let heard = known.fork.clone().filter(|_| known.partition.is_some());
        drop(known);
        // What stops it counts until it has returned, whichever group is connected.
        let kept = self.driver.superseded().map(|superseded| superseded.fork);
        let is_better = |kept: &KnownFork| {
            let is_one = |heard: &KnownFork| heard.history == kept.history && !heard.is_compared;
            kept.is_compared && heard.as_ref().is_none_or(is_one)
        };
        kept.clone().filter(is_better).or(heard).or(kept)
    }

    /// Whether this log has the record with which the first history begins that the other group has
    /// and this instance has not applied: it is about to.
    pub(super) fn has_taken_record(&self, own: &RegionSaid, other: &RegionSaid) -> bool {
        own.log_id == other.log_id
            && first_lacked(own, other).is_some_and(|history| self.host.has_record(history))
    }

    /// The other group went on from all of this log's histories: no client is served here any more.
    fn stops(&self, found: &KnownFork, other: &RegionSaid) {
        let applied = self.host.histories();
        let Some(of) = applied.newest().map(|newest| newest.id.0) else { return };
        self.driver.histories_begun(applied.iter().map(|history| history.id));
        let clients = GroupClients::said(&other.agreement).as_configured(&self.terms.recovery);
        let at_ms = self.host.wall().as_millis();
        self.driver.supersede(Supersession { of, fork: found.clone(), clients, at_ms });
    }

    /// Both logs are one: what was kept of a fork is of before.
    pub(super) fn forgets_fork(&self, known: &mut KnownRegion) {
        if known.fork.take().is_some()
            && let Err(error) = return_order::forget_fork(self.driver.folder())
        {
            tracing::warn!(%error, "a fork that is none any more cannot be forgotten");
        }
    }

    /// Both groups said of their logs how they stand.
    pub(super) fn notes_fork(&self, own: &RegionSaid, other: &RegionSaid) {
        let Some(found) = fork_of(own, other) else { return };
        let is_void = found.void != [0; 16];
        match self.driver.mode() {
            Mode::Voting if is_void || self.has_taken_record(own, other) => return,
            // At once: to compare may take a while.
            Mode::Voting if found.is_old => self.stops(&found, other),
            // One that is not live is to return towards this one, and not the other way round.
            Mode::Voting if other.agreement.is_live != Some(true) => return,
            Mode::Voting => {}
            Mode::Recovery if is_void => {}
            Mode::Recovery | Mode::Promoting => return,
        }
        let found = self.compared(found, own, other);
        if found.is_old && found.is_compared {
            self.stops(&found, other);
        }
        let mut known = self.known.lock();
        if known.fork.as_ref() == Some(&found) {
            return;
        }
        known.fork = Some(found.clone());
        drop(known);
        if let Err(error) = self.keeps_fork(&found) {
            // It is heard of again with the next connection, and by the next process.
            tracing::warn!(%error, "the fork of both logs cannot be kept");
        }
        // Without a batch in common everything here may be of this log alone.
        if !(found.is_old || is_void) || found.common.is_empty() {
            return;
        }
        let (driver, host) = (Arc::clone(&self.driver), Arc::clone(&self.host));
        let body = move || return_if_nothing_is_lost(&driver, host.as_ref(), &found);
        if let Err(error) = Builder::new().name("region-return".into()).spawn(body) {
            tracing::warn!(%error, "no thread to look at the end of the log");
        }
    }

    /// What an earlier process compared stays, until this one has.
    fn keeps_fork(&self, found: &KnownFork) -> std::io::Result<()> {
        let folder = self.driver.folder();
        let kept = return_order::known_fork(folder).ok().flatten();
        let is_better = |kept: KnownFork| kept.is_compared && kept.history == found.history;
        match !found.is_compared && kept.is_some_and(is_better) {
            true => Ok(()),
            false => return_order::keep_fork(folder, found),
        }
    }
}

/// Whether a start did not carry out an order to return from this fork.
fn has_refused(kept: &KeptReturn, known: &KnownFork) -> bool {
    let is_same = (kept.order.fork, kept.order.history) == (known.fork, known.history);
    is_same && matches!(kept.stage, ReturnStage::Refused(_))
}

/// The start looks once more: what is put meanwhile is not given up.
fn return_if_nothing_is_lost(driver: &Driver, host: &dyn RegionHost, known: &KnownFork) {
    let fork = Lsn(known.fork);
    let is_void = known.void != [0; 16];
    if is_void && driver.kept_return().is_some_and(|kept| has_refused(&kept, known)) {
        // The start found why not, and would again.
        return;
    }
    match host.has_changes_behind(fork) {
        Ok(false) => {}
        Ok(true) => return,
        Err(why) => return tracing::info!(why, "the end of the log cannot be looked at"),
    }
    let [one, other] = [host.drawn(), host.drawn()].map(u64::to_le_bytes);
    let mut id = [0; 16];
    let (first, second) = id.split_at_mut(8);
    first.copy_from_slice(&one);
    second.copy_from_slice(&other);
    let tail = TailEnd { end: known.fork, terms: Vec::new() };
    let by = "this group, which lost nothing".to_owned();
    let KnownFork { fork: upto, history, common, void, .. } = known.clone();
    let order = ReturnOrder { id, fork: upto, history, tail, common, by, void };
    match driver.order_return(order) {
        Ok(()) => {
            say(&REGION_RETURNS_ALONE, &[&fork.to_string(), &known.other]);
            driver.begins_return_with_others();
        }
        Err(why) => tracing::info!(why, "this group does not return by itself"),
    }
}
