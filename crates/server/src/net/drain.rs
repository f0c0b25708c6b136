//! Waiting for connections to end after their clients got the close, before the process ends or
//! re-executes itself.
//!
//! A socket that is closed while bytes of the client lie unread resets the connection, and the
//! close with its condition may never be read. So each connection gets the time to end in order;
//! but a client that never answers must not keep the address from the others: what counts is that
//! connections end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest that all connections together are waited for.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// The longest without any connection ending.
const STILL_MAX: Duration = Duration::from_millis(300);
/// Between two looks at how many there are.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits while `connections` become fewer. Returns how many are left: 0, or those that ended
/// neither within 300 ms of another one nor within 2 s.
pub(crate) async fn drain(connections: impl Fn() -> usize) -> usize {
    let deadline = Instant::now() + DRAIN_MAX;
    let mut left = connections();
    let mut fewer_at = Instant::now();
    while left > 0 {
        let now = Instant::now();
        if now >= deadline || now.duration_since(fewer_at) >= STILL_MAX {
            break;
        }
        sleep(LOOK_INTERVAL).await;
        let open = connections();
        if open < left {
            (left, fewer_at) = (open, Instant::now());
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left, and how long it took in ms, of connections that end so many ms after the
    /// start.
    fn drained(ends_ms: &[u64]) -> (usize, u64) {
        let runtime = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let start = Instant::now();
            let open = || {
                let since_ms = start.elapsed().as_millis();
                ends_ms.iter().filter(|end_ms| u128::from(**end_ms) > since_ms).count()
            };
            let left = drain(open).await;
            (left, u64::try_from(start.elapsed().as_millis()).unwrap())
        })
    }

    #[test]
    fn it_ends_with_the_last_connection() {
        assert_eq!(drained(&[]), (0, 0));
        assert_eq!(drained(&[10, 50, 50, 290]), (0, 290));
    }

    #[test]
    fn a_client_that_never_answers_costs_the_others_a_moment_only() {
        assert_eq!(drained(&[u64::MAX]), (1, 300));
        assert_eq!(drained(&[5, 40, u64::MAX, u64::MAX]), (2, 340));
    }

    #[test]
    fn many_that_end_slowly_have_two_seconds() {
        let ends_ms: Vec<u64> = (0..100).map(|number| number * 100).collect();
        let (left, took_ms) = drained(&ends_ms);
        assert_eq!((left, took_ms), (79, 2_000));
    }
}
