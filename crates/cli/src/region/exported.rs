//! The file of messages that an old live group's log added behind a fork.
//!
//! ```text
//!   0   8  magic "TOWLINED"
//! each message:
//!   0   4  bytes of the head, 1 or more          4   8  bytes of the content
//!  12   4  CRC-32C of what follows              16   -  head (JSON), content
//! the end:
//!   0   4  zero                                  4   8  how many messages there are
//!  12   4  CRC-32C of these 8 bytes
//! ```
//!
//! Numbers are little-endian. The content is what the producer sent (message annotations and the
//! bare message), byte for byte; the head has what the queue manager knows beside it. Not here:
//! where they come from, and go to. Invariants: a file without its end is not taken for whole; a
//! new one is for its owner only.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towline_types::limits::TRANSFER_BYTES_MAX;

use crate::failure::Failure;
use crate::private_file;

const MAGIC: &[u8; 8] = b"TOWLINED";
const FRAME_BYTES: usize = 16;
/// A head has a queue name of 48 characters and a few numbers.
const HEAD_BYTES_MAX: usize = 4_096;

/// What is known of a message beside its content.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ExportedHead {
    /// Its queue.
    pub(super) queue: String,
    /// 0 to 9.
    pub(super) priority: u8,
    /// When it was put, microseconds since the epoch.
    pub(super) put_at_us: u64,
    /// When it expires, if it does.
    pub(super) expires_at_us: Option<u64>,
    /// Bytes of the content.
    pub(super) bytes: u64,
    /// Whether it was added is not known: the other group may have it too. Earlier versions do not
    /// say that, and read over it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_perhaps: bool,
}

/// Writes a file.
pub(super) struct ExportWriter {
    out: BufWriter<File>,
    path: PathBuf,
    count: u64,
}

impl ExportWriter {
    /// A new file: what is there is not written over.
    ///
    /// # Errors
    /// It is there, or cannot be made.
    pub(super) fn create(path: &Path) -> Result<ExportWriter, Failure> {
        let made = private_file::create_new(path);
        let made = made.map_err(|error| Failure::about(path.display(), error))?;
        let (out, path) = (BufWriter::new(made), path.to_owned());
        let mut writer = ExportWriter { out, path, count: 0 };
        writer.write(MAGIC)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::about(self.path.display(), error))
    }

    /// Adds a message.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) fn put(&mut self, head: &ExportedHead, content: &Bytes) -> Result<(), Failure> {
        let head = serde_json::to_vec(head).map_err(Failure::failed)?;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), content);
        let head_bytes = u32::try_from(head.len()).unwrap_or(u32::MAX);
        self.write(&head_bytes.to_le_bytes())?;
        self.write(&(content.len() as u64).to_le_bytes())?;
        self.write(&sum.to_le_bytes())?;
        self.write(&head)?;
        self.write(content)?;
        self.count += 1;
        Ok(())
    }

    /// Ends the file: it is on the disk when this returns. Yields how many messages are in it.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        let count = self.count.to_le_bytes();
        self.write(&0_u32.to_le_bytes())?;
        self.write(&count)?;
        self.write(&crc32c::crc32c(&count).to_le_bytes())?;
        let failed = |error: std::io::Error| Failure::about(self.path.display(), error);
        self.out.flush().map_err(failed)?;
        self.out.get_ref().sync_all().map_err(failed)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(failed)?;
        folder.sync_all().map_err(failed)?;
        Ok(self.count)
    }
}

/// Reads a file, message after message.
pub(super) struct ExportReader<R> {
    from: R,
    path: PathBuf,
    count: u64,
    /// Bytes that were read, and a checksum that changes with each message.
    identity: (u64, u32),
}

impl ExportReader<BufReader<File>> {
    /// # Errors
    /// It is none of these files, or cannot be read.
    pub(super) fn open(path: &Path) -> Result<ExportReader<BufReader<File>>, Failure> {
        let file = File::open(path).map_err(|error| Failure::about(path.display(), error))?;
        ExportReader::of(BufReader::new(file), path)
    }
}

impl<R: Read> ExportReader<R> {
    fn of(from: R, path: &Path) -> Result<ExportReader<R>, Failure> {
        let mut reader = ExportReader { from, path: path.to_owned(), count: 0, identity: (0, 0) };
        let mut magic = [0; MAGIC.len()];
        reader.fill(&mut magic)?;
        match magic == *MAGIC {
            true => Ok(reader),
            false => Err(reader.wrong("it is no file of 'towline region divergence --export'")),
        }
    }

    fn wrong(&self, why: &str) -> Failure {
        let count = self.count;
        Failure::about(self.path.display(), format!("{why}, behind {count} messages"))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        let read = self.from.read_exact(bytes);
        read.map_err(|error| self.wrong(&error.to_string()))
    }

    /// The next message; `None`: that were all.
    ///
    /// # Errors
    /// The file is damaged, cut, or cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<(ExportedHead, Bytes)>, Failure> {
        let mut frame = [0; FRAME_BYTES];
        self.fill(&mut frame)?;
        // The frame has the checksum of the message.
        self.identity.1 = crc32c::crc32c_append(self.identity.1, &frame);
        let [a, b, c, d, rest @ .., s, t, u, v] = frame;
        let head_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let (content_bytes, sum) = (u64::from_le_bytes(rest), u32::from_le_bytes([s, t, u, v]));
        if head_bytes == 0 {
            let is_whole = crc32c::crc32c(&rest) == sum && content_bytes == self.count;
            return if is_whole { Ok(None) } else { Err(self.wrong("its end is damaged")) };
        }
        if head_bytes > HEAD_BYTES_MAX || content_bytes > TRANSFER_BYTES_MAX {
            return Err(self.wrong("a message is longer than one can be"));
        }
        let mut head = vec![0; head_bytes];
        self.fill(&mut head)?;
        let mut content = Vec::new();
        // Memory only for what is there.
        let read = self.from.by_ref().take(content_bytes).read_to_end(&mut content);
        read.map_err(|error| self.wrong(&error.to_string()))?;
        if content.len() as u64 != content_bytes
            || crc32c::crc32c_append(crc32c::crc32c(&head), &content) != sum
        {
            return Err(self.wrong("a message is damaged"));
        }
        let head = serde_json::from_slice(&head);
        let head = head.map_err(|error| self.wrong(&error.to_string()))?;
        self.count += 1;
        self.identity.0 += head_bytes as u64 + content_bytes;
        Ok(Some((head, content.into())))
    }

    /// By this a file is known that was read to its end: whatever it is called.
    pub(super) fn identity(&self) -> (u64, u32) {
        self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: u64) -> ExportedHead {
        ExportedHead {
            queue: "Q".into(),
            priority: 4,
            put_at_us: 5,
            expires_at_us: Some(6),
            bytes,
            // Each other one: a head says it or not.
            is_perhaps: bytes == 7,
        }
    }

    fn all(bytes: &[u8]) -> Result<Vec<(ExportedHead, Bytes)>, Failure> {
        let mut reader = ExportReader::of(bytes, Path::new("f"))?;
        let mut all = Vec::new();
        while let Some(message) = reader.next()? {
            all.push(message);
        }
        Ok(all)
    }

    #[test]
    fn messages_come_back_and_a_file_that_is_cut_or_damaged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut writer = ExportWriter::create(&path).unwrap();
        let contents = [Bytes::new(), Bytes::from_static(b"content")];
        for content in &contents {
            writer.put(&head(content.len() as u64), content).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), 2);
        assert!(ExportWriter::create(&path).is_err(), "it is not written over");
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "messages are for the owner's eyes");
        let bytes = std::fs::read(&path).unwrap();
        let found = all(&bytes).unwrap();
        assert_eq!(found.iter().map(|(_, content)| content.clone()).collect::<Vec<_>>(), contents);
        assert_eq!(found[1].0, head(7));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(all(&flipped).is_err(), "byte {at}");
            assert!(all(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
