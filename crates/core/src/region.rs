//! The histories of the log, and whether this instance may decide: its group is live in the newest
//! one, or is in none.
//!
//! A history that names another group as live is the last thing that is decided in this log until a
//! next one names this group. From its decision on (not only from when it is applied) each request
//! is refused, and what the queue manager would log by itself is left: messages that expired stay,
//! and so do backouts. The same holds while a switch to the other group is under way, which ends
//! with such a history or is taken back; and while this group is fenced: it was superseded, or an
//! operator had it stop. What the other group decides is applied here by what is
//! not the active instance, as ever.
//!
//! Not here: when a history begins (the daemon decides that), and its bytes (`record`).
//!
//! Invariants: nothing is added to a decision while the log is closed; a fence refuses each request
//! at once, and closes the log when no large message and no large commit goes on.

use towline_types::{Histories, History, RegionRole};

use crate::request::Decision;
use crate::{MessageSequence, QueueManager, Refusal};

/// Persistent messages that were put and removed since the first history of the log began: got,
/// expired, cleared or deleted, wherever they were moved meanwhile. Both only grow, and are the
/// same in each region that has applied the same log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Messages put.
    pub put: u64,
    /// Messages removed.
    pub removed: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// Of what was applied.
    pub(crate) counts: LogCounts,
    /// Of what was applied.
    histories: Histories,
    /// Decided, and not applied yet.
    on_its_way: Option<Box<History>>,
    /// Name of the group of this instance.
    own: Option<Box<str>>,
    /// The group that is to be live: a switch is under way, and can be taken back.
    switches_to: Option<Box<str>>,
    /// Another group is live, or is to be.
    is_closed: bool,
    /// This group is to serve no client: why.
    fenced: Option<Box<str>>,
}

impl Region {
    pub(crate) fn histories(&self) -> &Histories {
        &self.histories
    }

    pub(crate) fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }

    pub(crate) fn is_on_its_way(&self) -> bool {
        self.on_its_way.is_some()
    }

    /// The newest one, decided or applied.
    pub(crate) fn newest(&self) -> Option<&History> {
        self.on_its_way.as_deref().or_else(|| self.histories.newest())
    }

    /// As an image has them.
    pub(crate) fn restore(&mut self, histories: Histories, counts: LogCounts) {
        assert!(self.histories.is_empty(), "an image comes first");
        (self.histories, self.counts) = (histories, counts);
        self.look();
    }

    pub(crate) fn decide(&mut self, history: History) {
        assert!(self.on_its_way.is_none(), "one history begins at a time");
        self.on_its_way = Some(Box::new(history));
        self.look();
    }

    fn look(&mut self) {
        let own = self.own.as_deref();
        let other = |newest: &History| own.is_some_and(|own| own != newest.live);
        self.is_closed = self.switches_to.is_some() || self.newest().is_some_and(other);
    }

    /// Whether this is the group to which a switch is under way.
    pub(crate) fn switches_to(&self, group: &str) -> bool {
        self.switches_to.as_deref() == Some(group)
    }
}

impl QueueManager {
    /// Says of which group this instance is. Without it, it is in none, and may decide whatever the
    /// histories of its log say: it is a copy that serves on its own.
    pub fn set_group(&mut self, name: &str) {
        self.region.own = Some(name.into());
        self.region.look();
    }

    /// The histories of the log, as applied.
    #[must_use]
    pub fn histories(&self) -> &Histories {
        self.region.histories()
    }

    /// How many persistent messages were put and removed, as applied. None before the first
    /// history: a log on its way to another region has what was put before it, and the counts of
    /// both are compared.
    #[must_use]
    pub fn log_counts(&self) -> LogCounts {
        match self.region.histories.is_empty() {
            true => LogCounts::default(),
            false => self.region.counts,
        }
    }

    /// What a group is in the newest history that was applied.
    #[must_use]
    pub fn region_role(&self, group: &str) -> RegionRole {
        self.region.histories.role_of(group)
    }

    /// What the group of this instance is.
    #[must_use]
    pub fn own_region_role(&self) -> RegionRole {
        self.region.own().map_or(RegionRole::NoRegion, |own| self.region_role(own))
    }

    /// Whether a history is decided and not applied yet.
    #[must_use]
    pub fn has_history_on_its_way(&self) -> bool {
        self.region.is_on_its_way()
    }

    /// Whether another group is live, as decided or applied, or this one is fenced and nothing goes
    /// on: this instance refuses each request, and decides nothing by itself.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let is_fenced = || self.region.fenced.is_some() && !self.has_begun_large();
        self.region.is_closed || is_fenced()
    }

    /// Whether clients are served: from the moment on at which they are not, nothing is delivered,
    /// and nothing new is logged.
    pub(crate) fn serves(&self) -> bool {
        !self.region.is_closed && self.region.fenced.is_none()
    }

    fn has_begun_large(&self) -> bool {
        !self.large_puts.is_empty() || !self.commits.is_empty()
    }

    /// This group is fenced from here on, until [`QueueManager::lift_fence`]: each request is
    /// refused with this reason. What large messages and large commits have begun goes on to its
    /// end first; then the log is closed ([`QueueManager::is_closed`]).
    pub fn fence(&mut self, why: &str) {
        self.region.fenced = Some(why.into());
    }

    /// The fence is taken back: this group decides as before.
    pub fn lift_fence(&mut self) {
        self.region.fenced = None;
    }

    /// A switch to group `to` begins: from here on nothing is decided but the history that makes it
    /// live, until [`QueueManager::take_switch_back`].
    ///
    /// # Errors
    /// Another group is live already, or is about to be; or a large message or a large commit has
    /// begun, which would go on.
    pub fn close_for_switch(&mut self, to: &str) -> Result<(), Refusal> {
        self.check_open()?;
        if self.has_begun_large() {
            let why = "a large message or a large commit has begun".to_owned();
            return Err(Refusal::NoHistory { why });
        }
        self.region.switches_to = Some(to.into());
        self.region.look();
        Ok(())
    }

    /// The switch that is under way is taken back: this group decides as before.
    ///
    /// # Panics
    /// When its history was decided: then there is no way back.
    pub fn take_switch_back(&mut self) {
        assert!(!self.region.is_on_its_way(), "the history of a switch was decided");
        self.region.switches_to = None;
        self.region.look();
    }

    /// Messages that are not persistent, and would be lost with a change of roles.
    #[must_use]
    pub fn non_persistent_messages(&self) -> u64 {
        self.queues.values().map(|queue| queue.non_persistent_live()).sum()
    }

    /// Every deciding call that may be refused starts with this, or with
    /// [`QueueManager::check_open`] if it decides no fact.
    pub(crate) fn begin(&self, out: &mut Decision) -> Result<(), Refusal> {
        self.begin_unasked(out);
        self.check_open()
    }

    /// Every other one.
    pub(crate) fn begin_unasked(&self, out: &mut Decision) {
        out.begin(self.is_closed());
    }

    /// # Errors
    /// This group is fenced.
    pub(crate) fn check_not_fenced(&self) -> Result<(), Refusal> {
        match &self.region.fenced {
            Some(why) => Err(Refusal::Fenced { why: why.as_ref().to_owned() }),
            None => Ok(()),
        }
    }

    /// # Errors
    /// Another group is live, or this one is fenced.
    pub(crate) fn check_open(&self) -> Result<(), Refusal> {
        let Region { switches_to, is_closed, .. } = &self.region;
        self.check_not_fenced()?;
        match (switches_to, self.region.newest()) {
            (Some(to), _) => Err(Refusal::NotLive { live: to.as_ref().to_owned() }),
            (None, Some(newest)) if *is_closed => {
                Err(Refusal::NotLive { live: newest.live.clone() })
            }
            (None, Some(_) | None) => Ok(()),
        }
    }

    /// Whether what the queue manager would log by itself is left at present.
    pub(crate) fn logs_nothing(&self) -> bool {
        self.log_wait.waits() || !self.serves()
    }

    pub(crate) fn apply_history(&mut self, history: History, first: Option<MessageSequence>) {
        if self.region.histories.is_empty() {
            // Images of before that do not have them.
            self.region.counts = LogCounts::default();
            self.parts.begins_counting();
        }
        if let Err(fault) = self.region.histories.push(history) {
            unreachable!("a history that does not fit was decided: {fault}")
        }
        let applied = self.region.histories.newest();
        let on_its_way = self.region.on_its_way.take();
        let is_own = on_its_way.is_none_or(|begun| Some(&*begun) == applied);
        assert!(is_own, "another history was applied than the one on its way");
        if let Some(first) = first {
            self.next.sequence = self.next.sequence.max(first.0);
        }
        self.region.look();
    }
}
