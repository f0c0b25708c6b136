//! One connection through the proxy: two ways, each read by one task and written by another, with
//! what is on the way in between.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

use super::{Line, Wires};

/// Bytes of one piece.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces on the way: 16 MiB, which is 10 Gbit/s for 13 ms.
const PIECES_MAX: usize = 256;

/// Bytes and when they are due; none for the end.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// Joins the two until both ways ended, one broke, or everything is reset.
pub(super) async fn join(
    net: &Wires,
    client: TcpStream,
    target: TcpStream,
    resets: &mut watch::Receiver<u64>,
) {
    client.set_nodelay(true).ok();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_target, mut to_target) = target.into_split();
    let ways = async {
        tokio::try_join!(
            carry(net, 0, &mut from_client, &mut to_target),
            carry(net, 1, &mut from_target, &mut to_client),
        )
    };
    tokio::select! {
        biased;
        _ = resets.changed() => {
            for socket in [from_client.as_ref(), from_target.as_ref()] {
                socket.set_zero_linger().ok();
            }
            // Dropped without a word for the end, both are reset.
            to_client.forget();
            to_target.forget();
        }
        // One that broke ends the other.
        _ = ways => {}
    }
}

async fn carry(
    net: &Wires,
    way: usize,
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
) -> std::io::Result<()> {
    let line = net.ways[way].subscribe();
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let counted = &net.bytes[way];
    let reading = read(from, sender, line.clone());
    let writing = async {
        let mut receiver = receiver;
        let mut line = line;
        while let Some(piece) = receiver.recv().await {
            let Piece { due, bytes } = piece;
            net.alarm.until(due).await;
            line.wait_for(|line| !line.cut).await.ok();
            if bytes.is_empty() {
                to.shutdown().await?;
                break;
            }
            to.write_all(&bytes).await?;
            counted.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    tokio::try_join!(reading, writing)?;
    Ok(())
}

async fn read(
    from: &mut OwnedReadHalf,
    sender: mpsc::Sender<Piece>,
    line: watch::Receiver<Line>,
) -> std::io::Result<()> {
    let mut free_at = Instant::now();
    loop {
        let mut bytes = Vec::with_capacity(PIECE_BYTES);
        from.read_buf(&mut bytes).await?;
        let now = Instant::now();
        let Line { delay, bytes_per_s, .. } = *line.borrow();
        free_at = free_at.max(now);
        if bytes_per_s > 0 {
            let bits = bytes.len() as f64 / bytes_per_s as f64;
            free_at += Duration::from_secs_f64(bits);
        }
        let end = bytes.is_empty();
        let sent = sender.send(Piece { due: free_at + delay, bytes }).await;
        if end || sent.is_err() {
            return Ok(());
        }
    }
}
