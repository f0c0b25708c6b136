//! The two threads of links: one for frames, and one for streams, which must not delay a heartbeat.
//!
//! Not here: what runs on them.

use std::thread::{JoinHandle, ThreadId};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::LinkError;

/// Tasks polled before sockets are asked again: a burst of handshakes must not keep a heartbeat
/// waiting.
const EVENT_INTERVAL: u32 = 7;

/// See the module. They end when it is dropped, or with [`LinkThreads::stop`].
pub(super) struct LinkThreads {
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ids: [ThreadId; 2],
}

impl LinkThreads {
    /// Runs the two runtimes, of frames and of streams, each on a thread with this name. `begin`
    /// runs on the first one.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn start(
        names: [&str; 2],
        runtimes: [Runtime; 2],
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<LinkThreads, LinkError> {
        let (stop, stopped) = watch::channel(false);
        let [frames, streams] = runtimes;
        let frames = spawn(names[0], frames, stopped.clone(), begin)?;
        let streams = spawn(names[1], streams, stopped, || {})?;
        let ids = [frames.thread().id(), streams.thread().id()];
        Ok(LinkThreads { stop, threads: Mutex::new(vec![frames, streams]), ids })
    }

    /// Ends both and waits for them. Called on one of them, it does not wait.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
        if self.ids.contains(&std::thread::current().id()) {
            return;
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The panic hook has reported a panic there already.
            thread.join().ok();
        }
    }
}

impl Drop for LinkThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A runtime for one of them.
///
/// # Errors
/// When the system refuses what it needs.
pub(super) fn runtime() -> Result<Runtime, LinkError> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().event_interval(EVENT_INTERVAL).max_blocking_threads(2);
    builder.build().map_err(LinkError::System)
}

/// Runs a runtime on a thread of its own until it is stopped.
fn spawn(
    name: &str,
    runtime: Runtime,
    mut stopped: watch::Receiver<bool>,
    begin: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, LinkError> {
    let run = move || {
        runtime.block_on(async {
            begin();
            // An error means that the sender is gone, which has the same effect.
            stopped.wait_for(|stop| *stop).await.ok();
        });
        // A name that is being looked up must not keep the end waiting.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(LinkError::System)
}
