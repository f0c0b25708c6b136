//! Pages of deep queues at the door: what is evicted and read, and the images that hold them.
//!
//! Not here: the file (`towline_log`), the threads that read and write (`pager`, `images`).

use towline_admin::catalogue::{NEWER_FORMAT, PAGE_DAMAGED};
use towline_core::{PAGE_VERSION, PageRequest, RecordError};
use towline_delegation::DelegationLock;
use towline_log::{Listener, Log, LogError, mark_rebuild};
use towline_logging::log;
use towline_node::{Input, Instance};
use towline_process::Clock;
use towline_types::Time;

use super::{Door, Inner};
use crate::images::{ImageReport, ImageSource};

impl Door {
    /// Whether more of the queues is in memory than should be, and the pager goes on, if it can.
    /// Otherwise it is called again: when there is more, or, if it cannot go on, by the next thread
    /// that takes the lock and may have changed that.
    pub(crate) fn evicts_on(&self, can_go_on: bool) -> bool {
        let mut inner = self.inner.lock();
        let more = can_go_on && inner.instance.wants_eviction();
        inner.needs.eviction = more;
        drop(inner);
        self.take_reports();
        more
    }

    /// As [`look`](Door::look), for a thread that comes again at once: one that waits for the lock
    /// has it next.
    pub(crate) fn look_in_turn<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = look(&mut inner.instance);
        let to_notify = self.note_needs(&mut inner);
        DelegationLock::release_fairly(inner);
        self.wake_ups.notify(to_notify);
        self.take_reports();
        result
    }

    /// A page that was requested was read.
    pub(crate) fn page(&self, request: PageRequest, content: &[u8]) {
        self.step_instance(self.clock.wall(), None, Input::Page { request, content });
    }

    /// A page that was requested cannot be read. If no block depends on it any more it may have
    /// been reused, and the requests that waited for it are tried again; else the page file is
    /// damaged.
    pub(crate) fn page_unreadable(&self, request: PageRequest, why: &str) {
        let mut inner = self.inner.lock();
        if inner.instance.needs_page(request) {
            self.page_damaged(why);
        }
        let input = Input::Page { request, content: &[] };
        let after = self.step_locked(&mut inner, self.clock.wall(), None, input);
        drop(inner);
        self.finish(after);
        self.take_reports();
    }

    /// Requests the first page of each queue, so that the first gets need not wait for them.
    pub(crate) fn load_first_pages(&self) {
        let journal = self.journal();
        self.with_inner(|Inner { instance, out, .. }| {
            instance.load_first_pages(&journal, out);
            out.pages.drain(..).for_each(|request| self.workers.request_page(request));
        });
    }

    /// The content of a page is wrong. One of a later version is not damaged, and a rebuild would
    /// empty the page file: nothing is changed.
    pub(super) fn page_refused(&self, error: &RecordError) -> ! {
        let Some(found) = error.later else { self.page_damaged(&error.to_string()) };
        let known = found.known(PAGE_VERSION);
        log(&NEWER_FORMAT, &["pages", &found.to_string(), &known]);
        towline_os::process::exit(towline_process::EXIT_LOG_FAILED);
    }

    /// A page cannot be read, or its content is wrong. The log has all of it: the next start
    /// rebuilds the queues from there.
    pub fn page_damaged(&self, why: &str) -> ! {
        log(&PAGE_DAMAGED, &[why]);
        if let Err(error) = mark_rebuild(self.workers.rebuild_marker()) {
            tracing::error!(%error, "the rebuild marker cannot be written");
        }
        towline_os::process::exit(towline_process::EXIT_LOG_FAILED);
    }
}

impl ImageSource for Door {
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        Door::look(self, look)
    }

    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        Some(Door::look(self, look))
    }

    fn log(&self) -> Log {
        Door::log(self)
    }

    fn clock(&self) -> Clock {
        Door::clock(self)
    }

    fn log_failed(&self, error: &LogError) {
        Listener::failed(self, error);
    }

    fn image_taken(&self, image: &ImageReport, now: Time) {
        self.process.image_taken(image, now);
    }
}
