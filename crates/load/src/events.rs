//! What happened to each client when, for programs that make faults: confirmed puts, connections
//! that were lost, connections that were opened again. `--events FILE`.
//!
//! ```text
//! us,client,what          microseconds since 1970; number of the client; put, lost or open
//! ```
//!
//! Kept in memory while the load runs, because writing would disturb it; sorted by time at the end.
//! Not here: what it means, see lab/towlab.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use towline_types::Time;

/// First line of the file.
const HEAD: &str = "us,client,what";
/// Events of one thread: 16 bytes each, 128 MiB. Later ones are not kept, and a remark says so.
pub(crate) const EVENTS_MAX: usize = 1 << 23;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A put was confirmed.
    Put,
    /// The connection was lost.
    Lost,
    /// The broker opened the connection.
    Open,
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            What::Put => "put",
            What::Lost => "lost",
            What::Open => "open",
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: Time,
    client: u32,
    what: What,
}

/// The events of a thread, or of a run.
#[derive(Debug, Default)]
pub(crate) struct Events {
    wanted: bool,
    rows: Vec<Event>,
}

impl Events {
    /// Keeps none unless they are wanted.
    pub(crate) fn new(wanted: bool) -> Events {
        Events { wanted, rows: Vec::new() }
    }

    /// Something happened; false when the list is full.
    pub(crate) fn note(&mut self, at: Time, client: u32, what: What) -> bool {
        let fits = self.rows.len() < EVENTS_MAX;
        if self.wanted && fits {
            self.rows.push(Event { at, client, what });
        }
        fits
    }

    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: Events) {
        self.rows.extend(other.rows);
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(mut self, path: &Path) -> io::Result<()> {
        self.rows.sort_by_key(|event| event.at);
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{HEAD}")?;
        for Event { at, client, what } in &self.rows {
            writeln!(out, "{},{client},{what}", at.since(Time::ZERO).as_micros())?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn events_of_all_threads_are_written_in_order() {
        let at = |us| Time::ZERO + Duration::from_micros(us);
        let (mut one, mut other) = (Events::new(true), Events::new(true));
        assert!(one.note(at(7), 0, What::Put) && one.note(at(9), 0, What::Lost));
        assert!(other.note(at(8), 1, What::Open));
        one.merge(other);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.csv");
        one.write(&path).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "us,client,what\n7,0,put\n8,1,open\n9,0,lost\n");
    }

    #[test]
    fn nothing_is_kept_without_a_reader() {
        let mut events = Events::new(false);
        assert!(events.note(Time::ZERO, 0, What::Put));
        assert!(events.rows.is_empty());
    }
}
