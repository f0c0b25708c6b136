//! The histories of the log, as the surroundings of an instance need them.
//!
//! Not here: when one begins (the daemon), what it means (`towline_core`).

use towline_admin::status::{HistoryRow, RegionStatus, RoleChangeRow};
use towline_core::{BeginHistory, LogCounts, QueueManager, Refusal};
use towline_types::{ChangeCause, Histories, History, Time};

use crate::instance::{Instance, Outbound};
use crate::journal::Journal;

impl Instance {
    /// See [`towline_core::QueueManager::set_group`].
    pub fn set_group(&mut self, name: &str) {
        self.rules.set_group(name);
    }

    /// The histories of the log, as applied.
    #[must_use]
    pub fn histories(&self) -> &Histories {
        self.rules.histories()
    }

    /// See [`towline_core::QueueManager::log_counts`].
    #[must_use]
    pub fn log_counts(&self) -> LogCounts {
        self.rules.log_counts()
    }

    /// See [`towline_core::QueueManager::is_closed`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.rules.is_closed()
    }

    /// See [`towline_core::QueueManager::close_for_switch`].
    ///
    /// # Errors
    /// As there; and while runs wait for the log.
    pub fn close_for_switch(&mut self, to: &str) -> Result<(), Refusal> {
        self.check_not_stalled()?;
        self.rules.close_for_switch(to)
    }

    /// See [`towline_core::QueueManager::restate_level`].
    ///
    /// # Errors
    /// As there; and while runs wait for the log: it would not be written now.
    pub fn restate_level(
        &mut self,
        now: Time,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> Result<(), Refusal> {
        self.check_not_stalled()?;
        self.decide_for_process(now, journal, out, QueueManager::restate_level)
    }

    /// See [`towline_core::QueueManager::fence`].
    pub fn fence(&mut self, why: &str) {
        self.rules.fence(why);
    }

    /// See [`towline_core::QueueManager::lift_fence`].
    pub fn lift_fence(&mut self) {
        self.rules.lift_fence();
    }

    fn check_not_stalled(&self) -> Result<(), Refusal> {
        if self.is_stalled() {
            return Err(Refusal::NoHistory { why: "what was decided waits for the log".into() });
        }
        Ok(())
    }

    /// See [`towline_core::QueueManager::take_switch_back`].
    pub fn take_switch_back(&mut self) {
        self.rules.take_switch_back();
    }

    /// See [`towline_core::QueueManager::non_persistent_messages`].
    #[must_use]
    pub fn non_persistent_messages(&self) -> u64 {
        self.rules.non_persistent_messages()
    }

    /// Clients that are connected, those that are about to be closed included.
    #[must_use]
    pub fn connected_clients(&self) -> u64 {
        self.connections.len() as u64
    }

    /// Begins a history: see [`towline_core::QueueManager::begin_history`]. It has begun when
    /// [`Instance::histories`] has it.
    ///
    /// # Errors
    /// As there; and while runs wait for the log: it is not to be appended at a time that is not
    /// known, when it cannot be taken back.
    pub fn begin_history(
        &mut self,
        now: Time,
        begin: &BeginHistory,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) -> Result<(), Refusal> {
        self.check_not_stalled()?;
        self.decide_for_process(now, journal, out, |rules, decision| {
            rules.begin_history(begin, decision)
        })
    }

    /// The histories for the status; `None`: the log has none.
    #[must_use]
    pub fn region_status(&self) -> Option<RegionStatus> {
        let histories = self.rules.histories();
        let newest = histories.newest()?;
        Some(RegionStatus {
            role: self.rules.own_region_role().as_str().to_owned(),
            history: newest.id.to_string(),
            live: newest.live.clone(),
            closed: self.rules.is_closed(),
            histories: histories.count(),
            chain: histories.iter().map(history_row).collect(),
            role_changes: role_changes(histories),
        })
    }
}

fn history_row(history: &History) -> HistoryRow {
    HistoryRow { history: history.id.to_string(), fork: history.fork.to_string() }
}

/// The newest changes of roles of a log for the status, the newest first.
#[must_use]
pub fn role_changes(histories: &Histories) -> Vec<RoleChangeRow> {
    let before = |history: &History| histories.get(history.parent?).map(|it| it.live.clone());
    let row = |history: &History| {
        let cause = ChangeCause::parse(&history.cause);
        let kind = cause.as_ref().map(|cause| cause.kind.name().to_owned());
        let (by, instance) = cause.map(|cause| (cause.by, cause.instance)).unwrap_or_default();
        RoleChangeRow {
            history: history.id.to_string(),
            fork: history.fork.to_string(),
            from: before(history).unwrap_or_default(),
            live: history.live.clone(),
            kind: kind.unwrap_or_default(),
            by,
            instance,
            began_at: history.began.as_millis(),
            cause: history.cause.clone(),
        }
    };
    histories.role_changes().map(row).collect()
}
