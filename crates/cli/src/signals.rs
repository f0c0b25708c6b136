//! Signals as events, for commands that stay: they must put the terminal right, or end their
//! children, before they go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// To end.
    End,
    /// The terminal has another size.
    Resized,
}

/// 128 and the number of SIGINT, as a shell counts.
const BY_SIGNAL: i32 = 130;

/// A flag that is set by the first signal to end, after which `wake` is called; a second one ends
/// the process.
pub(crate) fn first_asks(wake: impl Fn() + Send + 'static) -> io::Result<Arc<AtomicBool>> {
    let is_asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_asked);
    listen(move |notice| {
        if notice == Notice::End {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(BY_SIGNAL);
            }
            wake();
        }
        true
    })?;
    Ok(is_asked)
}

/// Calls `react` for each signal from now on, on a thread of its own, until it returns false.
pub(crate) fn listen(mut react: impl FnMut(Notice) -> bool + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt, mut hangup, mut resized) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::window_change())?,
        )
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            loop {
                let notice = tokio::select! {
                    _ = terminate.recv() => Notice::End,
                    _ = interrupt.recv() => Notice::End,
                    _ = hangup.recv() => Notice::End,
                    _ = resized.recv() => Notice::Resized,
                };
                if !react(notice) {
                    return;
                }
            }
        });
    })?;
    Ok(())
}
