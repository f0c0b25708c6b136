//! Signals as events, for commands that stay: they must put the terminal right, or end their
//! children, before they go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalMeaning {
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
    listen(move |told| {
        if told == SignalMeaning::End {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(BY_SIGNAL);
            }
            wake();
        }
        true
    })?;
    Ok(is_asked)
}

/// From now on `tell` is called for each signal, on a thread of its own, until it gives false.
pub(crate) fn listen(
    mut tell: impl FnMut(SignalMeaning) -> bool + Send + 'static,
) -> io::Result<()> {
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
                let told = tokio::select! {
                    _ = terminate.recv() => SignalMeaning::End,
                    _ = interrupt.recv() => SignalMeaning::End,
                    _ = hangup.recv() => SignalMeaning::End,
                    _ = resized.recv() => SignalMeaning::Resized,
                };
                if !tell(told) {
                    return;
                }
            }
        });
    })?;
    Ok(())
}
