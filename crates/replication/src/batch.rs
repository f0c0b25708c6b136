//! Transfers one batch, which is damaged in the log of one instance, from another instance, on a
//! stream of its own.
//!
//! ```text
//! asker:   16  log id      giver:  1  0: refused;  1 byte of length, why, in UTF-8
//!          8  LSN                   1: the batch; 4 bytes of length, header and payload
//!          4  bytes                    as they are in the giver's log
//! ```
//!
//! All numbers are little-endian. The LSN and the bytes after it are a part of the log that lies in
//! one batch, such as a body: the asker may not know where the batch begins.
//!
//! Not here: when an instance asks, and which one ([`crate::repair`], [`crate::repair_at_start`]);
//! whether the answer is what was written there (`towline_log::Log::mend_batch`). Invariants: a
//! peer gets one batch at a time; no more is read than a batch can be long, and no more memory
//! taken than twice what came; neither side waits longer than [`ANSWER_MAX`].

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use towline_admin::catalogue::GROUP_BATCH_GIVEN;
use towline_log::mend::batch_at_rest;
use towline_log::{LogError, LogId};
use towline_os::task::{Handle, timeout};
use towline_types::{BodyLocation, Lsn};

use crate::driver::Driver;
use towline_link::{LinkStream, Peer};
use towline_logging::log as say;

/// From the first dial to the last byte. A batch takes milliseconds; a disk that is busy with other
/// things, or a handshake on a busy processor, may take seconds.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The longest batch that is taken: see `towline_log::Options` (1 MiB, and one longest record), and
/// the same again for a configuration that allows longer ones.
const BATCH_BYTES_MAX: u32 = 8 * 1024 * 1024;
const ASKED_BYTES: usize = 28;
const REFUSED: u8 = 0;
const GIVEN: u8 = 1;

/// What an instance answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BatchAnswer {
    Given(Bytes),
    Refused(String),
}

/// Asks a peer, to which a stream is opened, for the batch that covers a part of the log.
///
/// # Errors
/// It cannot be reached, did not answer in time, or not as it should.
pub(crate) async fn ask(
    opening: impl Future<Output = Result<LinkStream>>,
    log: LogId,
    part: BodyLocation,
) -> Result<BatchAnswer> {
    let asking = async { converse(&mut opening.await?, log, part).await };
    let late = || Error::new(ErrorKind::TimedOut, "no answer in time");
    timeout(ANSWER_MAX, asking).await.unwrap_or_else(|_| Err(late()))
}

async fn converse(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    log: LogId,
    part: BodyLocation,
) -> Result<BatchAnswer> {
    stream.write_all(&question(log, part)).await?;
    stream.flush().await?;
    match stream.read_u8().await? {
        GIVEN => {
            let bytes = stream.read_u32_le().await?;
            if bytes > BATCH_BYTES_MAX {
                return Err(wrong(&format!("it would send a batch of {bytes} bytes")));
            }
            read(stream, u64::from(bytes)).await.map(|batch| BatchAnswer::Given(batch.into()))
        }
        REFUSED => {
            let bytes = stream.read_u8().await?;
            let why = read(stream, u64::from(bytes)).await?;
            let why: String = String::from_utf8_lossy(&why).chars().filter(is_printable).collect();
            Ok(BatchAnswer::Refused(why))
        }
        other => Err(wrong(&format!("its answer begins with {other}"))),
    }
}

/// Takes memory as the bytes come: the length is what the peer says.
async fn read(stream: &mut (impl AsyncRead + Unpin), bytes: u64) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    stream.take(bytes).read_to_end(&mut read).await?;
    if read.len() as u64 == bytes { Ok(read) } else { Err(wrong("its answer ends too early")) }
}

fn question(log: LogId, part: BodyLocation) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ASKED_BYTES);
    bytes.put_u128_le(log.0);
    bytes.put_u64_le(part.lsn.0);
    bytes.put_u32_le(part.bytes);
    bytes
}

fn is_printable(letter: &char) -> bool {
    !letter.is_control()
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why.to_owned())
}

/// Answers a peer.
pub(crate) fn give(driver: Arc<Driver>, peer: Peer, stream: LinkStream) {
    let handle = Handle::current();
    let started = towline_os::thread::Builder::new().name("batch".into()).spawn(move || {
        // One that asks twice at a time finds its second stream closed.
        let Some(_giving) = driver.repairs().begin_giving(peer) else { return };
        if let Err(error) = handle.block_on(give_one(&driver, stream, peer)) {
            tracing::warn!(%error, peer, "a batch that another instance asked for");
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "there is no thread to give a batch");
    }
}

async fn give_one(driver: &Driver, stream: LinkStream, peer: Peer) -> Result<()> {
    let name = driver.name(peer);
    answer(stream, name, |log, part| look(driver, log, part, peer)).await
}

/// Answers a peer from the log in `folder`, which this process holds and which does not run.
pub(crate) async fn give_at_rest(folder: &Path, log: LogId, stream: LinkStream, name: &str) {
    let look = |asked, part| match asked == log {
        true => match batch_at_rest(folder, part) {
            Ok(Some(batch)) => BatchAnswer::Given(batch),
            Ok(None) => BatchAnswer::Refused("it does not have it whole".to_owned()),
            Err(error) => BatchAnswer::Refused(error.to_string()),
        },
        false => BatchAnswer::Refused("this is another log".to_owned()),
    };
    if let Err(error) = answer(stream, name, look).await {
        tracing::warn!(%error, name, "a batch that another instance asked for");
    }
}

async fn answer(
    mut stream: LinkStream,
    name: &str,
    look: impl FnOnce(LogId, BodyLocation) -> BatchAnswer,
) -> Result<()> {
    let late = || Error::new(ErrorKind::TimedOut, "it stands still");
    let asked = timeout(ANSWER_MAX, hear(&mut stream)).await.unwrap_or_else(|_| Err(late()));
    let (log, part) = asked?;
    let answer = look(log, part);
    let sent = timeout(ANSWER_MAX, tell(&mut stream, &answer));
    sent.await.unwrap_or_else(|_| Err(late()))?;
    if let BatchAnswer::Given(_) = answer {
        say(&GROUP_BATCH_GIVEN, &[name, &part.lsn.to_string()]);
    }
    Ok(())
}

async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> Result<(LogId, BodyLocation)> {
    let mut asked = [0; ASKED_BYTES];
    stream.read_exact(&mut asked).await?;
    let mut asked = asked.as_slice();
    let log = LogId(asked.get_u128_le());
    Ok((log, BodyLocation { lsn: Lsn(asked.get_u64_le()), bytes: asked.get_u32_le() }))
}

/// Reads it, on the thread of this stream.
fn look(driver: &Driver, log: LogId, part: BodyLocation, peer: Peer) -> BatchAnswer {
    if driver.log().id() != log {
        return BatchAnswer::Refused("this is another log".to_owned());
    }
    match driver.log().batch_over(part) {
        Ok(batch) => BatchAnswer::Given(batch),
        Err(error) => {
            if error.is_damage() {
                // Found by chance: the others are asked for it in turn.
                driver.repairs().ask(vec![part], Box::new(|_| ()));
            }
            tracing::debug!(%error, peer, "a batch that another instance asked for");
            BatchAnswer::Refused(match &error {
                LogError::Gone { .. } => "it does not have it".to_owned(),
                _ if error.is_damage() => "it is damaged there too".to_owned(),
                other => other.to_string(),
            })
        }
    }
}

async fn tell(stream: &mut (impl AsyncWrite + Unpin), answer: &BatchAnswer) -> Result<()> {
    match answer {
        BatchAnswer::Given(batch) => {
            let bytes = u32::try_from(batch.len()).map_err(Error::other)?;
            stream.write_u8(GIVEN).await?;
            stream.write_u32_le(bytes).await?;
            stream.write_all(batch).await?;
        }
        BatchAnswer::Refused(why) => {
            let why: String = why.chars().filter(char::is_ascii).take(255).collect();
            stream.write_u8(REFUSED).await?;
            stream.write_u8(u8::try_from(why.len()).map_err(Error::other)?).await?;
            stream.write_all(why.as_bytes()).await?;
        }
    }
    stream.flush().await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = LogId(7);
    const PART: BodyLocation = BodyLocation { lsn: Lsn(81_920), bytes: 45_000 };

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// What is made of these bytes from the other end.
    fn heard(answer: &[u8]) -> Result<BatchAnswer> {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        run(async {
            far.write_all(answer).await.unwrap();
            far.shutdown().await.unwrap();
            converse(&mut near, LOG, PART).await
        })
    }

    #[test]
    fn question_and_answer_come_as_they_were_meant() {
        let why = "it is damaged there too";
        let answers = [
            BatchAnswer::Given(Bytes::from(vec![5; 100_000])),
            BatchAnswer::Refused(why.to_owned()),
        ];
        for answer in answers {
            let (mut near, mut far) = tokio::io::duplex(1 << 20);
            let came = run(async {
                tell(&mut far, &answer).await.unwrap();
                let came = converse(&mut near, LOG, PART).await.unwrap();
                assert_eq!(hear(&mut far).await.unwrap(), (LOG, PART));
                came
            });
            assert_eq!(came, answer);
        }
    }

    #[test]
    fn an_answer_that_is_none_is_an_error_and_takes_no_memory_for_what_did_not_come() {
        let said = |answer: &[u8]| heard(answer).unwrap_err().to_string();
        assert_eq!(said(&[2, 0, 0]), "its answer begins with 2");
        assert_eq!(said(&[GIVEN, 255, 255, 255, 255]), "it would send a batch of 4294967295 bytes");
        assert_eq!(said(&[GIVEN, 0, 0, 64, 0, 1, 2, 3]), "its answer ends too early");
        assert_eq!(said(&[REFUSED, 9, b'n', b'o']), "its answer ends too early");
        assert!(heard(&[]).is_err() && heard(&[GIVEN, 1]).is_err());
        let refused = heard(&[REFUSED, 4, b'a', b'\n', 27, b'b']).unwrap();
        assert_eq!(refused, BatchAnswer::Refused("ab".to_owned()), "it stands in a line of a log");
    }
}
