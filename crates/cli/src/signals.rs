//! Signals as events, for commands that stay: they must put the terminal right, or end their children,
//! before they go.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To end.
    End,
    /// The terminal has another size.
    Resized,
}

/// From now on `tell` is called for each signal, on a thread of its own, until it gives false.
pub(crate) fn listen(mut tell: impl FnMut(Told) -> bool + Send + 'static) -> io::Result<()> {
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
                    _ = terminate.recv() => Told::End,
                    _ = interrupt.recv() => Told::End,
                    _ = hangup.recv() => Told::End,
                    _ = resized.recv() => Told::Resized,
                };
                if !tell(told) {
                    return;
                }
            }
        });
    })?;
    Ok(())
}
