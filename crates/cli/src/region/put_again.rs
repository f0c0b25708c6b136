//! `towline region put-again`: puts what an old live group's log added, where the promoted group
//! is.
//!
//! The content goes as it was, with its properties and ids; priority and persistence as they were,
//! the time to live is what is left of it. Messages that have expired are passed over. Not here:
//! the file (`exported`), the note of what was put (`put_notes`). Invariants: what was put is known
//! by number when it ends early, so that it can be gone on with, and a unit of work of which the
//! outcome is not known is said to be in doubt; what was perhaps added is neither put nor left
//! without an order.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;
use towline_client::{Client, Error, Sender, Unit, encoded};
use towline_types::Payload;

use super::exported::{ExportReader, ExportedHead};
use super::put_notes::{PutNotes, PutScope, in_doubt};
use crate::arguments::{PerhapsAdded, RegionPutAgain};
use crate::failure::Failure;
use crate::show;

/// Messages that may be on their way without an outcome.
const WINDOW: usize = 256;

/// Runs the command.
pub(super) fn run(arguments: &RegionPutAgain) -> Result<(), Failure> {
    let scope = scope(arguments)?;
    let mut client = arguments.reach.connect()?;
    let skip = arguments.skip.unwrap_or(0);
    let notes = PutNotes::begin(&arguments.file, &scope, (arguments.skip, arguments.again))?;
    let mut again = PutsAgain {
        arguments,
        notes,
        scope,
        skip,
        senders: HashMap::new(),
        unit: None,
        in_unit: 0,
        read: 0,
        done: skip,
        in_doubt: None,
        put: 0,
        put_done: 0,
        expired: 0,
        left: 0,
    };
    if let Err(failure) = again.all(&mut client) {
        let (put, done) = (again.put_done, again.done);
        let way = match again.in_doubt {
            Some(upto) => in_doubt(done, upto),
            None => format!("Go on with --skip {done}"),
        };
        return Err(Failure::Failed(format!(
            "{}; {put} messages were put before that. {way}",
            failure.reason()
        )));
    }
    client.close()?;
    let (put, expired, left) = (again.put, again.expired, again.left);
    if arguments.reach.json {
        return show::json(&json!({ "put": put, "expired": expired, "left": left }));
    }
    let mut more = if expired > 0 { format!("; {expired} had expired") } else { String::new() };
    if left > 0 {
        more += &format!("; {left} that were perhaps added were left (--perhaps only puts them)");
    }
    show::line(&format!("{put} messages put{more}"))
}

/// What is to be put. A file that is not whole is found out before anything is.
fn scope(arguments: &RegionPutAgain) -> Result<PutScope, Failure> {
    let mut check = ExportReader::open(&arguments.file)?;
    let mut perhaps = 0_u64;
    while let Some((head, _)) = check.next()? {
        let is_wanted = arguments.queue.as_ref().is_none_or(|queue| *queue == head.queue);
        perhaps += u64::from(is_wanted && head.is_perhaps);
    }
    if perhaps > 0 && arguments.perhaps.is_none() {
        return Err(Failure::Usage(format!(
            "{perhaps} messages were perhaps added: the log of the old live group did not say whether \
             the other group has them, or had them, too. Look at them ('towline region divergence'), and \
             give --perhaps put, leave or only"
        )));
    }
    let how = arguments.perhaps.unwrap_or(PerhapsAdded::Leave);
    Ok(PutScope {
        file: check.identity(),
        queue: arguments.queue.clone(),
        added: how != PerhapsAdded::Only,
        perhaps: how != PerhapsAdded::Leave,
    })
}

struct PutsAgain<'a> {
    arguments: &'a RegionPutAgain,
    notes: PutNotes,
    scope: PutScope,
    /// Messages of the file that are passed over.
    skip: u64,
    senders: HashMap<String, Sender>,
    unit: Option<Unit>,
    in_unit: u64,
    /// Messages of the file: read, and those that need not be read again.
    read: u64,
    done: u64,
    /// Up to this one they were in a unit of work of which the outcome is not known.
    in_doubt: Option<u64>,
    /// Messages that were sent, and those of them that were committed.
    put: u64,
    put_done: u64,
    expired: u64,
    /// Messages that were perhaps added, and are not put.
    left: u64,
}

impl PutsAgain<'_> {
    fn all(&mut self, client: &mut Client) -> Result<(), Failure> {
        let mut reader = ExportReader::open(&self.arguments.file)?;
        while let Some((head, content)) = reader.next()? {
            self.read += 1;
            let is_wanted = self.arguments.queue.as_ref().is_none_or(|queue| *queue == head.queue);
            if self.read <= self.skip || !is_wanted {
                continue;
            }
            match head.is_perhaps {
                true if !self.scope.perhaps => self.left += 1,
                false if !self.scope.added => {}
                _ => self.one(client, &head, &content)?,
            }
        }
        self.commit(client)?;
        self.notes.ended(self.read)
    }

    fn one(
        &mut self,
        client: &mut Client,
        head: &ExportedHead,
        content: &Bytes,
    ) -> Result<(), Failure> {
        let Some(ttl_ms) = left(head.expires_at_us) else {
            self.expired += 1;
            return Ok(());
        };
        let sender = match self.senders.get(&head.queue) {
            Some(sender) => *sender,
            None => {
                let sender = client.sender(&head.queue)?;
                self.senders.insert(head.queue.clone(), sender);
                sender
            }
        };
        if self.unit.is_none() {
            self.unit = Some(client.declare()?);
        }
        let payload: Payload = encoded(head.priority, ttl_ms, content);
        client.send_encoded(sender, payload, self.unit.as_ref())?;
        client.settle_to(sender, WINDOW)?;
        self.put += 1;
        self.in_unit += 1;
        match self.in_unit >= self.arguments.transaction {
            true => self.commit(client),
            false => Ok(()),
        }
    }

    fn commit(&mut self, client: &mut Client) -> Result<(), Failure> {
        for sender in self.senders.values() {
            client.settle_to(*sender, 0)?;
        }
        if let Some(unit) = self.unit.take() {
            self.notes.commits(self.read)?;
            let committed = client.commit(unit);
            if let Err(error) = &committed {
                self.in_doubt = may_have_happened(error).then_some(self.read);
            }
            if self.in_doubt.is_none() && committed.is_err() {
                self.notes.done(self.done)?;
            }
            committed?;
        }
        (self.in_unit, self.done, self.put_done) = (0, self.read, self.put);
        self.notes.done(self.read)
    }
}

/// Whether a commit may have been made that failed so: all but one that was refused.
fn may_have_happened(error: &Error) -> bool {
    !matches!(error, Error::Refused { .. })
}

/// Milliseconds of life that are left, `Some(None)` without an end; `None`: none is left.
fn left(expires_at_us: Option<u64>) -> Option<Option<u32>> {
    let Some(at) = expires_at_us else { return Some(None) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let left = u128::from(at).checked_sub(now)? / 1_000;
    // A lifetime that has no 32 bits is as good as none.
    Some(u32::try_from(left).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expired_is_passed_over_and_what_never_does_stays_so() {
        assert_eq!(left(None), Some(None));
        assert_eq!(left(Some(1)), None);
        assert_eq!(left(Some(u64::MAX)), Some(None));
    }
}
