//! Messages through a queue and out again: far more bytes than a log may have.
//!
//! Not here: what the log should do meanwhile. A put may be refused for a moment, until extents are
//! reclaimed, but not for long.

use std::time::Duration;

use crate::peer::Peer;
use crate::{Try, require, wait};

/// How long puts may be refused.
const LIMIT: Duration = Duration::from_secs(30);
const BODY: usize = 60_000;
const AT_A_TIME: u32 = 20;

/// Puts messages on a queue and gets them, until so many bytes went through.
///
/// # Errors
/// When puts are refused for long, or accepted messages do not come out.
pub fn pass_through(address: &str, queue: &str, bytes: u64) -> Try {
    let body = vec![b'b'; BODY];
    let mut passed = 0;
    while passed < bytes {
        let mut accepted = 0;
        wait::until_true("a put is accepted", LIMIT, || {
            let put = Peer::begun(address).and_then(|mut peer| {
                peer.attach_sender(0, queue)?;
                for number in 0..AT_A_TIME {
                    peer.put(0, number, &body)?;
                    accepted += 1;
                }
                Ok(())
            });
            put.is_ok() || accepted > 0
        })?;
        let got = Peer::begun(address)?.drain(queue)?.len();
        require!(got >= accepted, "{got} of {accepted}");
        passed += (got * BODY) as u64;
    }
    Ok(())
}
