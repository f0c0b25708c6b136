//! A clock that a test moves, and leases on it. Only for tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::lease::{Claim, Lease, Loss};

/// The hands of the clock, and what was lost.
#[derive(Clone)]
pub(crate) struct Hands {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    now: Duration,
    tick: Duration,
    losses: Vec<Loss>,
}

impl Hands {
    pub(crate) fn at(now: Duration) -> Hands {
        let inner = Inner { now, tick: Duration::ZERO, losses: Vec::new() };
        Hands { inner: Arc::new(Mutex::new(inner)) }
    }

    pub(crate) fn go(&self, time: Duration) {
        self.inner.lock().now += time;
    }

    /// From now on, the clock goes so far each time that it is read.
    pub(crate) fn tick(&self, time: Duration) {
        self.inner.lock().tick = time;
    }

    pub(crate) fn now(&self) -> Duration {
        self.inner.lock().now
    }

    pub(crate) fn losses(&self) -> Vec<Loss> {
        self.inner.lock().losses.clone()
    }
}

/// The epoch, if it is free.
pub(crate) fn claim(
    data: &Path,
    epoch: u64,
    length: Duration,
    hands: &Hands,
) -> Option<Arc<Lease>> {
    let (clock, losses) = (hands.clone(), hands.clone());
    let read = move || {
        let mut inner = clock.inner.lock();
        let now = inner.now;
        inner.now = now + inner.tick;
        now
    };
    let halt = move |_, loss: &Loss| losses.inner.lock().losses.push(loss.clone());
    let claim = Claim { data, epoch, length, window_bytes: 1 << 20, holder: "here:1" };
    Lease::claim(&claim, Arc::new(read), Box::new(halt)).unwrap()
}
