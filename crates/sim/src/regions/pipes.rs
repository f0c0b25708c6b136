//! Streams between two regions, for copies: bytes arrive in order, later, and not while their
//! direction is cut. A stream ends with the process that opened it, and when it was cut for the
//! time-out.
//!
//! Not here: what opens one (`wires`).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use towline_link::LinkStream;
use towline_os::task::{Handle, sleep};
use towline_os::thread::Builder;

use super::wires::RegionWires;

/// Bytes of a stream that are on their way.
const STREAM_BYTES: usize = 256 * 1024;
/// How often a stream looks whether it is cut.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Both ends of a stream that is opened by a process of this region; the second one is for the
/// other region.
pub(super) fn stream(wires: &Arc<RegionWires>, region: usize) -> (LinkStream, LinkStream) {
    let (near, near_pipe) = tokio::io::duplex(STREAM_BYTES);
    let (far, far_pipe) = tokio::io::duplex(STREAM_BYTES);
    let (near_read, near_write) = tokio::io::split(near_pipe);
    let (far_read, far_write) = tokio::io::split(far_pipe);
    for (from, read, write) in [(region, near_read, far_write), (1 - region, far_read, near_write)]
    {
        let wires = Arc::clone(wires);
        let body = move || Handle::current().block_on(pass(&wires, from, read, write));
        let spawned = Builder::new().name("region-pipe".to_owned()).spawn(body);
        assert!(spawned.is_ok(), "a coroutine costs nothing");
    }
    (LinkStream::piped(near), LinkStream::piped(far))
}

/// Passes on what comes, until either end is gone.
async fn pass(
    wires: &RegionWires,
    from: usize,
    mut read: ReadHalf<DuplexStream>,
    mut write: WriteHalf<DuplexStream>,
) {
    let mut bytes = vec![0; STREAM_BYTES];
    loop {
        let count = match read.read(&mut bytes).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        sleep(wires.delay()).await;
        while wires.is_cut(from) && !wires.is_dead() {
            sleep(LOOK_INTERVAL).await;
        }
        let is_written = !wires.is_dead()
            && write.write_all(bytes.get(..count).unwrap_or_default()).await.is_ok();
        if !is_written {
            break;
        }
    }
    write.shutdown().await.ok();
}
