//! One incoming connection for frames at a time: a newer one ends the one before.
//!
//! Not here: whether a connection may stand at all.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};

/// See the module.
#[derive(Default)]
pub(super) struct IncomingTurn {
    newest: Mutex<Option<Arc<Notify>>>,
    turn: tokio::sync::Mutex<()>,
}

/// The turn of one connection, until it is dropped.
pub(super) struct TurnPermit<'a> {
    newer: Arc<Notify>,
    _turn: MutexGuard<'a, ()>,
}

impl IncomingTurn {
    /// Asks the connection before to end, and waits until it has.
    pub(super) async fn take(&self) -> TurnPermit<'_> {
        let newer = Arc::new(Notify::new());
        if let Some(before) = self.newest.lock().replace(Arc::clone(&newer)) {
            before.notify_one();
        }
        TurnPermit { newer, _turn: self.turn.lock().await }
    }
}

impl TurnPermit<'_> {
    /// Waits until a newer connection asks for the turn.
    pub(super) async fn newer(&self) {
        self.newer.notified().await;
    }
}
