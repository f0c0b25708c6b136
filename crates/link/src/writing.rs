//! Frames on their way into a connection, in the pieces that they were made of.
//!
//! Not here: which frames. Invariant: nothing is left in buffers of TLS when it returns.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Pieces given to one vectored write.
const WRITE_PIECES_MAX: usize = 64;

/// Writes all pieces.
///
/// # Errors
/// When the connection broke.
pub(super) async fn write_pieces(
    writer: &mut (impl AsyncWrite + Unpin),
    pieces: &mut VecDeque<Bytes>,
) -> io::Result<()> {
    pieces.retain(|piece| !piece.is_empty());
    while !pieces.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            pieces.iter().take(WRITE_PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(piece) = pieces.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            pieces.pop_front();
        }
    }
    writer.flush().await
}
