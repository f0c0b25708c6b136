//! The process of the coroutine that runs.

use super::schedule;

/// Ends the process, at once and for good: see [`std::process::exit`].
pub fn exit(status: i32) -> ! {
    if schedule::in_world() {
        schedule::exit(status);
    }
    std::process::exit(status)
}
