//! What the code below the sockets asks of the operating system: threads, locks, waits, time,
//! files, random numbers and the end of the process.
//!
//! In the product each of these *is* what the standard library (or parking_lot) has, under the same
//! name: this crate then holds re-exports and nothing else. With the feature `simulated`, which
//! only the simulator and tests switch on, the same names serve both worlds. A thread of the
//! operating system gets what it always got; inside a [`simulated::World`] every thread is a
//! coroutine, time is virtual, files are those of a simulated machine, and one number, the seed,
//! decides what happens. So the log, the driver of a group, the copy and the start run in the
//! simulator as they are.
//!
//! Not here: sockets, and tasks of tokio. Atomics: a coroutine is interrupted where it waits, and
//! nowhere else; all interleavings of atomics are loom's (`towline-delegation`).
//!
//! Invariant: code that waits, looks at the clock, touches files and draws numbers through this
//! crate alone does the same for the same seed.

#![forbid(unsafe_code)]

pub mod fs;
#[cfg(feature = "simulated")]
pub mod simulated;

/// Whether this thread is one of a simulated machine: never in the product.
#[must_use]
pub fn is_simulated() -> bool {
    #[cfg(feature = "simulated")]
    return simulated::time::since_boot().is_some();
    #[cfg(not(feature = "simulated"))]
    false
}

/// Locks, and waits for what another thread does.
pub mod sync {
    #[cfg(feature = "simulated")]
    pub use crate::simulated::sync::{Condvar, Mutex, MutexGuard, OnceLock, WaitTimeoutResult};
    #[cfg(not(feature = "simulated"))]
    pub use parking_lot::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
    #[cfg(not(feature = "simulated"))]
    pub use std::sync::OnceLock;

    /// Queues between threads.
    pub mod mpsc {
        #[cfg(feature = "simulated")]
        pub use crate::simulated::channel::{Receiver, Sender, SyncSender, channel, sync_channel};
        #[cfg(not(feature = "simulated"))]
        pub use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
        pub use std::sync::mpsc::{
            RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
        };
    }
}

/// Threads.
pub mod thread {
    #[cfg(feature = "simulated")]
    pub use crate::simulated::thread::{
        Builder, JoinHandle, ThreadId, current_id, park, park_timeout, sleep, yield_now,
    };
    #[cfg(not(feature = "simulated"))]
    pub use std::thread::{Builder, JoinHandle, ThreadId, park, park_timeout, sleep, yield_now};

    /// The thread that runs.
    #[cfg(not(feature = "simulated"))]
    #[must_use]
    pub fn current_id() -> ThreadId {
        std::thread::current().id()
    }
}

/// Tasks and timers of tokio.
#[cfg(feature = "tasks")]
pub mod task {
    #[cfg(feature = "simulated")]
    pub use crate::simulated::task::{
        Handle, Interval, JoinSet, interval, sleep, spawn_blocking, timeout,
    };
    pub use tokio::time::MissedTickBehavior;

    /// The handle of a runtime of tokio.
    #[cfg(feature = "simulated")]
    #[must_use]
    pub fn handle_of(runtime: &tokio::runtime::Handle) -> Handle {
        Handle::real(runtime.clone())
    }

    /// The handle of a runtime of tokio.
    #[cfg(not(feature = "simulated"))]
    #[must_use]
    pub fn handle_of(runtime: &Handle) -> Handle {
        runtime.clone()
    }
    #[cfg(not(feature = "simulated"))]
    pub use tokio::{
        runtime::Handle,
        task::{JoinSet, spawn_blocking},
        time::{Interval, interval, sleep, timeout},
    };
}

/// Time.
pub mod time {
    #[cfg(feature = "simulated")]
    pub use crate::simulated::time::Instant;
    #[cfg(not(feature = "simulated"))]
    pub use std::time::Instant;

    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    /// CLOCK_BOOTTIME: time since the machine started; it goes on while the machine sleeps.
    #[must_use]
    pub fn since_boot() -> Duration {
        #[cfg(feature = "simulated")]
        if let Some(time) = crate::simulated::time::since_boot() {
            return time;
        }
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (Ok(seconds), Ok(nanoseconds)) =
            (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec))
        else {
            unreachable!("{} s and {} ns since the machine started", time.tv_sec, time.tv_nsec)
        };
        Duration::new(seconds, nanoseconds)
    }

    /// The wall clock: time since the Unix epoch; nothing before it.
    #[must_use]
    pub fn since_epoch() -> Duration {
        #[cfg(feature = "simulated")]
        if let Some(time) = crate::simulated::time::since_epoch() {
            return time;
        }
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The process.
pub mod process {
    #[cfg(feature = "simulated")]
    pub use crate::simulated::process::exit;
    #[cfg(not(feature = "simulated"))]
    pub use std::process::exit;
}

/// Random numbers that cannot be guessed; in a simulation those of its seed.
pub mod random {
    /// Fills a buffer.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
        #[cfg(feature = "simulated")]
        if crate::simulated::fill_from_seed(bytes) {
            return Ok(());
        }
        getrandom::fill(bytes).map_err(std::io::Error::other)
    }
}
