//! The orderly end of an instance that no other one takes over from: clients finish what they
//! began.
//!
//! Not here: when it ends, and what is stopped before and after. Invariant: no client gets its
//! close before the answer to what was decided for it, unless the disk does not answer.

use std::sync::Arc;
use std::time::Duration;

use towline_engine::Door;
use towline_node::Farewell;

use crate::net::{Admission, drain};

/// How long a quiescing queue manager waits for open units of work.
const QUIESCE_MAX: Duration = Duration::from_secs(10);

/// How long it waits after that for what was decided to be durable and answered. Less on any disk
/// that answers; gets go on meanwhile, so that there may always be something that is not.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// New work is refused, open units of work may end, then each client gets its close. False when
/// units of work were still open.
pub(crate) async fn quiesce(door: &Arc<Door>, admission: &Arc<Admission>) -> bool {
    door.quiesce();
    let waited = wait_until(QUIESCE_MAX, || door.look(|instance| instance.units_open()) == 0).await;
    // A commit is decided before it is durable, and its answer goes out after that: a client that
    // got the close instead would not know its outcome.
    wait_until(ANSWERS_MAX, || door.look(|instance| instance.runs_pending()) == 0).await;
    door.end(Farewell::Ending);
    drain(|| admission.connections()).await;
    waited
}

/// Looks every few milliseconds. True when it came about in time.
async fn wait_until(longest: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + longest;
    while !done() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}
