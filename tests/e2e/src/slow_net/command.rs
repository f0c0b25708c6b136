//! Orders to the proxy, as lines of text.
//!
//! ```text
//! delay [there|back] MICROSECONDS      added to each way, or to one
//! bandwidth [there|back] BYTES_PER_S   0: no bound
//! cut [there|back]                     nothing passes, nothing is lost
//! heal [there|back]                    it passes again; connections are taken again
//! reset                                all connections are reset
//! refuse                               they are reset, and new ones too, until `heal`
//! show                                 counts, as JSON
//! ```
//!
//! `there` is from the connecting side to the target.

use std::time::Duration;

/// Which ways an order is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// To the target.
    There,
    /// From the target.
    Back,
    /// Both.
    Both,
}

/// One order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Time added.
    Delay(Ways, Duration),
    /// Bytes a second of each connection; 0: no bound.
    Bandwidth(Ways, u64),
    /// Nothing passes.
    Cut(Ways),
    /// It passes again.
    Heal(Ways),
    /// All connections are reset.
    Reset,
    /// All connections, also new ones, are reset.
    Refuse,
    /// Counts are wanted.
    Show,
}

impl Command {
    /// Reads a line.
    ///
    /// # Errors
    /// When it is none of the above.
    pub fn parse(line: &str) -> Result<Command, String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let ways = match words.get(1) {
            Some(&"there") => Ways::There,
            Some(&"back") => Ways::Back,
            Some(_) | None => Ways::Both,
        };
        if ways != Ways::Both {
            words.remove(1);
        }
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match (words.as_slice(), ways) {
            (["delay", delay], _) => {
                Ok(Command::Delay(ways, Duration::from_micros(number(delay)?)))
            }
            (["bandwidth", bytes], _) => Ok(Command::Bandwidth(ways, number(bytes)?)),
            (["cut"], _) => Ok(Command::Cut(ways)),
            (["heal"], _) => Ok(Command::Heal(ways)),
            (["reset"], Ways::Both) => Ok(Command::Reset),
            (["refuse"], Ways::Both) => Ok(Command::Refuse),
            (["show"], Ways::Both) => Ok(Command::Show),
            _ => Err(format!("no such order: {line}")),
        }
    }
}
