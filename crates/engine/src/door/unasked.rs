//! What the process itself has the instance decide, and no client asks for.
//!
//! Not here: when (the daemon says so).

use std::sync::atomic::Ordering;

use towline_core::{BeginHistory, Refusal};
use towline_node::{Farewell, Input};
use towline_types::{HistoryId, LevelRaise, Lsn};

use super::{Door, Inner};

impl Door {
    /// Defines the objects of a new queue manager, when it has no object at all.
    pub fn define_defaults(&self) {
        let now = self.clock.wall();
        let journal = self.journal();
        self.with_inner(|Inner { instance, out, .. }| {
            crate::defaults::define(instance, now, &journal, out);
            crate::defaults::warn_of_undefined_names(instance);
        });
    }

    /// Raises the format level of the log to this one: all programs that read it know it.
    pub fn raise_format_level(&self, to: u8) -> LevelRaise {
        let now = self.clock.wall();
        let journal = self.journal();
        let raised = self.with_inner(|Inner { instance, out, level_said, .. }| {
            if instance.object_names().next().is_none() {
                // Of a log that begins now no other program knows.
                *level_said = to;
            }
            instance.raise_format_level(now, to, &journal, out)
        });
        // There is no free space, which is reported.
        raised.unwrap_or(LevelRaise::Refused)
    }

    /// From now on replies wait for the other region too: see [`Instance::wait_for_region`].
    pub fn wait_for_region(&self) {
        self.with_inner(|inner| {
            inner.instance.wait_for_region();
            inner.region_seen = 0;
            self.region_upto.store(0, Ordering::SeqCst);
        });
    }

    /// The other region has the log up to here; all ones: it is not waited for. Only a store: the
    /// caller goes on with [`Door::region_news`].
    pub fn region_has(&self, upto: Lsn) {
        self.region_upto.store(upto.0, Ordering::SeqCst);
    }

    /// Answers what that lets go. A thread that holds the lock meanwhile does it when it leaves.
    pub fn region_news(&self) {
        self.inner.post();
        self.take_reports();
    }

    /// Begins a history, for the daemon: see [`Instance::begin_history`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_history(&self, begin: &BeginHistory) -> Result<(), Refusal> {
        let now = self.clock.wall();
        let journal = self.journal();
        self.with_inner(|Inner { instance, out, .. }| {
            instance.begin_history(now, begin, &journal, out)
        })
    }

    /// Writes to the log what changes nothing ([`Instance::restate_level`]): one that has the log as
    /// it ends then has written since.
    ///
    /// # Errors
    /// See there, in words.
    pub fn mark_log(&self) -> Result<(), String> {
        let now = self.clock.wall();
        let journal = self.journal();
        let marked = self
            .with_inner(|Inner { instance, out, .. }| instance.restate_level(now, &journal, out));
        marked.map_err(|refusal| refusal.to_string())
    }

    /// A switch to the other group begins: nothing is decided any more.
    ///
    /// # Errors
    /// See [`Instance::close_for_switch`], in words.
    pub fn close_for_switch(&self, to: &str) -> Result<(), String> {
        let closed = self.with_inner(|inner| inner.instance.close_for_switch(to));
        closed.map_err(|refusal| refusal.to_string())
    }

    /// It is taken back. What was left meanwhile is gone on with.
    pub fn take_switch_back(&self) {
        self.with_inner(|inner| inner.instance.take_switch_back());
        self.tick();
    }

    /// The group serves no client from here on, and each client is let go with the reason. What was
    /// decided before is written and applied, and its clients do not hear of it.
    pub fn fence(&self, why: &str) {
        // At once: between both a put of before could be acknowledged still.
        let mut inner = self.inner.lock();
        inner.instance.fence(why);
        let end = Input::End(Farewell::Fenced(why.into()));
        let after = self.step_locked(&mut inner, self.clock.wall(), None, end);
        drop(inner);
        self.finish(after);
        self.take_reports();
    }

    /// That is taken back. What was left meanwhile is gone on with.
    pub fn lift_fence(&self) {
        self.with_inner(|inner| inner.instance.lift_fence());
        self.tick();
    }

    /// Begins the first history of the log, which is that of group `live`, under a new random name.
    ///
    /// # Errors
    /// As [`Door::begin_history`], in words.
    pub fn begin_first_history(&self, live: &str, cause: &str) -> Result<(), String> {
        let id = HistoryId(towline_process::random::bytes());
        self.begin_history_behind(Lsn::ZERO, (id, live), cause)
    }

    /// Begins a history with this name behind `fork`, in which group `live` is live.
    ///
    /// # Errors
    /// As [`Door::begin_history`], in words.
    pub fn begin_history_behind(
        &self,
        fork: Lsn,
        (id, live): (HistoryId, &str),
        cause: &str,
    ) -> Result<(), String> {
        let (live, cause) = (live.to_owned(), cause.to_owned());
        let begin = BeginHistory { id, live, fork, began: self.clock.wall(), cause };
        self.begin_history(&begin).map_err(|refusal| refusal.to_string())
    }
}
