//! The space notifier: the thread that reports the free space of the log to the listener, and that
//! a log which took no run because it was behind has caught up.
//!
//! Not here: measuring the free space (`preallocation`). It is a thread of its own because the
//! listener may append, and so wait for the preallocation thread.

use std::sync::Arc;

use crate::extents::Space;
use crate::shared::Shared;

/// Body of the thread: reports to the listener how much free space there is, each time that it
/// differs from the last report. Changes that happen while the listener is at work are reported as
/// one.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut reported = Space::Ample;
    let mut state = shared.state();
    while !state.is_ending() {
        if let Some(error) = state.hindrance.take() {
            drop(state);
            shared.report(|listener| listener.hindered(&error));
            state = shared.state();
        } else if std::mem::take(&mut state.caught_up) {
            drop(state);
            shared.report(|listener| listener.caught_up());
            state = shared.state();
        } else if state.space == reported {
            shared.space_notifier.wait(&mut state);
        } else {
            reported = state.space;
            drop(state);
            shared.report(|listener| listener.space(reported));
            state = shared.state();
        }
    }
}
