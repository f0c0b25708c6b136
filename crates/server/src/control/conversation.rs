//! Lines in and lines out of one connection, each within its time. Only bytes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A line, without its end.
    Line(Vec<u8>),
    /// A line that is longer than it may be: what follows is not read.
    TooLong,
    /// Nothing more.
    End,
}

/// The lines of a connection.
pub(super) struct Lines<'a> {
    stream: &'a UnixStream,
    unread: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(stream: &'a UnixStream) -> Lines<'a> {
        Lines { stream, unread: Vec::new() }
    }

    /// Waits for the next line of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// It is not complete after `time_max`, or the connection broke.
    pub(super) fn next(&mut self, bytes_max: usize, time_max: Duration) -> io::Result<Received> {
        let began = Instant::now();
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(end.saturating_add(1));
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.pop();
                return Ok(if line.len() > bytes_max {
                    Received::TooLong
                } else {
                    Received::Line(line)
                });
            }
            if self.unread.len() > bytes_max {
                return Ok(Received::TooLong);
            }
            self.stream.set_read_timeout(Some(left(began, time_max)?))?;
            let mut chunk = [0; 4_096];
            match (&mut &*self.stream).read(&mut chunk) {
                Ok(0) if self.unread.is_empty() => return Ok(Received::End),
                // The last line needs no end.
                Ok(0) => return Ok(Received::Line(std::mem::take(&mut self.unread))),
                Ok(count) => self.unread.extend(chunk.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes a line.
///
/// # Errors
/// Its reader has not read it after `time_max`, or the connection broke.
pub(super) fn write_line(stream: &UnixStream, text: &str, time_max: Duration) -> io::Result<()> {
    let began = Instant::now();
    let line = format!("{text}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(began, time_max)?))?;
        match (&mut &*stream).write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(began: Instant, time_max: Duration) -> io::Result<Duration> {
    let left = time_max.saturating_sub(began.elapsed());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn lines_come_one_by_one_and_the_last_one_needs_no_end() {
        let (client, server) = UnixStream::pair().unwrap();
        let mut lines = Lines::of(&server);
        (&client).write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(lines.next(3, LONG).unwrap(), Received::Line(b"one".to_vec()));
        assert_eq!(lines.next(3, LONG).unwrap(), Received::Line(b"two".to_vec()));
        assert!(lines.next(3, SHORT).is_err(), "half a line is none");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(lines.next(3, LONG).unwrap(), Received::Line(b"thr".to_vec()));
        assert_eq!(lines.next(3, LONG).unwrap(), Received::End);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_whether_or_not_it_ends() {
        for sent in ["four\n", "four"] {
            let (client, server) = UnixStream::pair().unwrap();
            (&client).write_all(sent.as_bytes()).unwrap();
            assert_eq!(Lines::of(&server).next(3, LONG).unwrap(), Received::TooLong);
        }
    }

    #[test]
    fn an_answer_that_is_not_read_ends_and_bytes_that_trickle_do_not_count() {
        let (client, server) = UnixStream::pair().unwrap();
        let text = "x".repeat(8 << 20);
        assert!(write_line(&server, &text, SHORT).is_err());
        (&client).write_all(b"x").unwrap();
        assert!(Lines::of(&server).next(3, SHORT).is_err());
    }
}
