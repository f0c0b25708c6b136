//! What the clients of two regions asked for, what they were promised, and where in which history
//! that stands: so that it is known what a change of roles may lose.
//!
//! What a client asks for is a *deed*. It stands in the log between two positions: what was
//! committed before it was asked for, and what was committed when it was answered. When the run is
//! over the log that is kept has a chain of histories, and says of each deed whether it is in that
//! log, is in a tail that was given up, or may be either.
//!
//! Not here: what asks (`clients`), the bytes of the log (`logs`), what was reported to be at risk
//! (`exposures`). Invariant: nothing here is asked of the instances but positions and histories.

use std::collections::BTreeMap;

use towline_types::{Histories, History, HistoryId, Lsn, Time};

use crate::history::Fate;

/// Bytes of the number of a message, at the beginning of its content.
const NUMBER_BYTES: usize = size_of::<u64>();
/// How the clock of an instance may be behind what its rules go by: it is looked at four times a
/// second.
const TICK_US: u64 = 1_000_000;

/// Where a deed is: see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeedPlace {
    /// The history in which it was asked for, if the log had one.
    pub(super) history: Option<HistoryId>,
    pub(super) from: Lsn,
    pub(super) upto: Option<Lsn>,
    /// When it was answered.
    pub(super) at_us: u64,
    /// The term that its instance knew then.
    pub(super) term: u64,
}

/// Where and when a deed was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeedAnswer {
    /// What was committed then.
    pub(super) upto: Lsn,
    pub(super) term: u64,
    pub(super) at_us: u64,
}

/// Something that a client asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeedEntry {
    pub(super) fate: Fate,
    pub(super) place: DeedPlace,
    /// The instance knew, when it was asked, that its group was superseded.
    pub(super) has_heard: bool,
}

impl DeedEntry {
    pub(super) fn asked(history: Option<HistoryId>, from: Lsn) -> DeedEntry {
        let place = DeedPlace { history, from, ..DeedPlace::default() };
        DeedEntry { fate: Fate::Unknown, place, has_heard: false }
    }
}

/// A message that a client put.
#[derive(Clone, Debug)]
pub(super) struct RegionMessage {
    pub(super) bytes: usize,
    pub(super) expires_at: Option<Time>,
    /// The deed that put it.
    pub(super) put: usize,
    /// Those that removed it.
    pub(super) gets: Vec<usize>,
}

/// Whether a deed is in the log that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeedRemains {
    Yes,
    Perhaps,
    No,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct DeedLedger {
    pub(super) deeds: Vec<DeedEntry>,
    pub(super) messages: Vec<RegionMessage>,
    pub(super) acknowledged: u64,
}

impl DeedLedger {
    /// A client asks for something: the number of the deed.
    pub(super) fn asks(&mut self, deed: DeedEntry) -> usize {
        self.deeds.push(deed);
        self.deeds.len() - 1
    }

    /// A message that a deed puts; its number.
    pub(super) fn puts(&mut self, message: RegionMessage) -> usize {
        self.messages.push(message);
        self.messages.len() - 1
    }

    /// A deed was answered.
    pub(super) fn answered(&mut self, deed: usize, done: bool, answer: DeedAnswer) {
        let deed = &mut self.deeds[deed];
        deed.fate = if done { Fate::Yes } else { Fate::No };
        let DeedAnswer { upto, term, at_us } = answer;
        deed.place = DeedPlace { upto: Some(upto), term, at_us, ..deed.place };
        self.acknowledged += u64::from(done);
    }

    /// The content of a message.
    pub(super) fn content(number: usize, bytes: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(NUMBER_BYTES + bytes);
        content.extend_from_slice(&(number as u64).to_le_bytes());
        content.resize(NUMBER_BYTES + bytes, number.to_le_bytes()[0].wrapping_mul(31));
        content
    }

    /// Which message this is.
    pub(super) fn identify(&self, content: &[u8]) -> Result<usize, String> {
        let number = content.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let number = number.and_then(|number| usize::try_from(number).ok());
        let known = number.and_then(|number| Some((number, self.messages.get(number)?)));
        match known {
            Some((number, message)) if content == DeedLedger::content(number, message.bytes) => {
                Ok(number)
            }
            _ => Err(format!("unexpected content of {} bytes: {content:?}", content.len())),
        }
    }

    /// A message is on its way to a client of an instance that has the wall clock `wall`.
    pub(super) fn delivered(&self, content: &[u8], wall: Time) -> Result<usize, String> {
        let number = self.identify(content)?;
        let message = &self.messages[number];
        if self.deeds[message.put].fate == Fate::No {
            return Err(format!("message {number} is delivered, and was refused: {message:?}"));
        }
        // A body is read, and a client served, in between.
        let late = |end: &Time| end.0 + 4 * TICK_US < wall.0;
        if let Some(end) = message.expires_at.filter(late) {
            return Err(format!("message {number} is delivered at {wall:?}, and ended at {end:?}"));
        }
        Ok(number)
    }

    /// Whether a deed is in the log with these histories. Error: it was acknowledged, and is given
    /// up by no fail-over.
    pub(super) fn kept(&self, deed: usize, histories: &Histories) -> Result<DeedRemains, String> {
        let DeedEntry { fate, place, .. } = self.deeds[deed];
        let chain: Vec<&History> = histories.iter().collect();
        let at = match place.history {
            // What was there before is of the first one.
            None => Some(0),
            Some(history) => chain.iter().position(|it| it.id == history),
        };
        let Some(at) = at else { return Ok(DeedRemains::No) };
        let Some(next) = chain.get(at + 1) else { return Ok(DeedRemains::Yes) };
        let is_planned = next.cause.starts_with("switch");
        if is_planned && fate == Fate::Yes && place.from >= next.fork {
            return Err(format!(
                "deed {deed} was acknowledged in {place:?}, where group '{}' was live no more: \
                 {next:?}",
                chain[at].live
            ));
        }
        Ok(match place.upto {
            _ if place.from >= next.fork => DeedRemains::No,
            Some(_) if is_planned => DeedRemains::Yes,
            Some(upto) if upto <= next.fork => DeedRemains::Yes,
            Some(_) | None => DeedRemains::Perhaps,
        })
    }
}

/// What the queues of an instance hold at the end, against what was promised.
pub(super) struct FinalLook<'a> {
    pub(super) ledger: &'a DeedLedger,
    pub(super) histories: &'a Histories,
    /// What was seen: message, and how often.
    pub(super) present: BTreeMap<usize, usize>,
    /// The latest wall clock of any instance.
    pub(super) latest: Time,
}

/// What the log that is kept says of a deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeedEffect {
    Yes,
    Perhaps,
    No,
}

impl FinalLook<'_> {
    pub(super) fn judge(&self) -> Result<(), String> {
        for number in 0..self.ledger.messages.len() {
            self.judge_message(number)?;
        }
        self.judge_units()
    }

    fn done(&self, deed: usize) -> Result<DeedEffect, String> {
        let kept = self.ledger.kept(deed, self.histories)?;
        Ok(match (self.ledger.deeds[deed].fate, kept) {
            (Fate::No, _) | (_, DeedRemains::No) => DeedEffect::No,
            (Fate::Yes, DeedRemains::Yes) => DeedEffect::Yes,
            (Fate::Yes, DeedRemains::Perhaps) | (Fate::Unknown, _) => DeedEffect::Perhaps,
        })
    }

    fn judge_message(&self, number: usize) -> Result<(), String> {
        let message = &self.ledger.messages[number];
        let times = self.present.get(&number).copied().unwrap_or(0);
        let put = self.done(message.put)?;
        let gets = message.gets.iter().map(|get| self.done(*get));
        let gets = gets.collect::<Result<Vec<DeedEffect>, String>>()?;
        let got = gets.iter().filter(|get| **get == DeedEffect::Yes).count();
        let wrong = |what: &str| {
            let put = self.ledger.deeds[message.put];
            let gets: Vec<DeedEntry> =
                message.gets.iter().map(|get| self.ledger.deeds[*get]).collect();
            Err(format!("message {number} {what}: {message:?} {put:?} {gets:?}"))
        };
        if times > 1 {
            return wrong("is there twice");
        }
        if times == 1 && put == DeedEffect::No {
            return wrong("is there, and its put is not in the log");
        }
        if got > 1 {
            return wrong("was got twice in one log");
        }
        if times == 1 && got == 1 {
            return wrong("is there, and was got");
        }
        let may_be_over = message.expires_at.is_some_and(|end| end <= self.latest);
        let may_be_got = gets.iter().any(|get| *get != DeedEffect::No);
        if times == 0 && put == DeedEffect::Yes && !may_be_got && !may_be_over {
            return wrong("is lost");
        }
        Ok(())
    }

    /// A unit of work is in the log whole, or not at all.
    fn judge_units(&self) -> Result<(), String> {
        let mut seen: BTreeMap<usize, [Option<usize>; 2]> = BTreeMap::new();
        for (number, message) in self.ledger.messages.iter().enumerate() {
            let can_be_judged = message.gets.is_empty() && message.expires_at.is_none();
            if can_be_judged {
                let is_there = self.present.contains_key(&number);
                seen.entry(message.put).or_default()[usize::from(is_there)] = Some(number);
            }
        }
        for (deed, evidence) in seen {
            if let [Some(missing), Some(there)] = evidence {
                return Err(format!(
                    "deed {deed} is half done: message {there} is there, and {missing} is not: {:?}",
                    self.ledger.deeds[deed]
                ));
            }
        }
        Ok(())
    }
}
