//! Orders to the proxy, as lines of text.
//!
//! ```text
//! delay [there|back] MICROSECONDS      added to each way, or to one
//! bandwidth [there|back] BITS_PER_S    of all connections together, from 64000 on, also with k, M
//!                                      or G (50M); 0: no bound
//! cut [there|back]                     nothing passes, nothing is lost; new connections do not
//!                                      reach the target
//! stall [there|back]                   nothing passes, nothing is lost; new connections reach it
//! heal [there|back]                    it passes again; connections are taken again
//! reset                                all connections are reset
//! refuse                               they are reset, and new ones too, until `heal`
//! show                                 counts and settings, as JSON
//! ```
//!
//! `there` is from the connecting side to the target.

use std::time::Duration;

use super::shaper::BITS_PER_S_MIN;

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
    /// Bits a second of all connections together; 0: no bound.
    Bandwidth(Ways, u64),
    /// Nothing passes, and new connections do not reach the target.
    Cut(Ways),
    /// Nothing passes, but new connections reach the target.
    Stall(Ways),
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
            (["bandwidth", bits], _) => Ok(Command::Bandwidth(ways, bits_per_s(bits)?)),
            (["cut"], _) => Ok(Command::Cut(ways)),
            (["stall"], _) => Ok(Command::Stall(ways)),
            (["heal"], _) => Ok(Command::Heal(ways)),
            (["reset"], Ways::Both) => Ok(Command::Reset),
            (["refuse"], Ways::Both) => Ok(Command::Refuse),
            (["show"], Ways::Both) => Ok(Command::Show),
            _ => Err(format!("no such order: {line}")),
        }
    }
}

/// Bits a second: a number, or one with the letter of a thousand, a million or a milliard.
fn bits_per_s(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text}: no bits a second, such as 64000 or 50M; at least 64000, or 0");
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bits = number.checked_mul(factor).ok_or_else(wrong)?;
    if bits == 0 || bits >= BITS_PER_S_MIN { Ok(bits) } else { Err(wrong()) }
}
