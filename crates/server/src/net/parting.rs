//! The last of a socket: the peer gets our last bytes, and the word for the end.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use towline_link::scratch;

/// How long the peer of a connection that is over has to close its side.
const PARTING: Duration = Duration::from_secs(1);
/// Bytes that are read from it meanwhile, and thrown away.
const PARTING_BYTES_MAX: usize = 1024 * 1024;

/// Ends a socket so that the peer gets our last bytes. Without the closing alert of TLS the peer
/// must assume that the connection was cut by an attacker; and a socket that is closed with unread
/// bytes in it is reset, which may take back what the peer has not read.
pub(super) async fn part<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    let parting = async {
        socket.shutdown().await?;
        let mut left = PARTING_BYTES_MAX;
        while left > 0 {
            let read = std::future::poll_fn(|context| {
                scratch::with(|buffer| {
                    let read = std::pin::pin!(socket.read_buf(buffer)).poll(context);
                    buffer.clear();
                    read
                })
            });
            match read.await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        io::Result::Ok(())
    };
    match tokio::time::timeout(PARTING, parting).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::trace!(%error, "a peer did not wait for the end"),
    }
}
