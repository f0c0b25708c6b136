//! `towline region put-again`: puts what an old live group's log added, where the promoted group
//! is.
//!
//! The content goes as it was, with its properties and ids; priority and persistence as they were,
//! the time to live is what is left of it. Messages that have expired are passed over. Not here:
//! the file (`exported`). Invariant: what was put is known by number when it ends early, so that it
//! can be gone on with.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;
use towline_client::{Client, Sender, Unit, encoded};
use towline_types::Payload;

use super::exported::{ExportReader, ExportedHead};
use crate::arguments::RegionPutAgain;
use crate::failure::Failure;
use crate::show;

/// Messages that may be on their way without an outcome.
const WINDOW: usize = 256;

/// Runs the command.
pub(super) fn run(arguments: &RegionPutAgain) -> Result<(), Failure> {
    // A file that is not whole is found out before anything is put.
    let mut check = ExportReader::open(&arguments.file)?;
    while check.next()?.is_some() {}
    let mut client = arguments.reach.connect()?;
    let mut again = PutsAgain {
        arguments,
        senders: HashMap::new(),
        unit: None,
        in_unit: 0,
        read: 0,
        done: arguments.skip,
        put: 0,
        put_done: 0,
        expired: 0,
    };
    if let Err(failure) = again.all(&mut client) {
        let (put, done) = (again.put_done, again.done);
        return Err(Failure::Failed(format!(
            "{}; {put} messages were put before that: go on with --skip {done}",
            failure.reason()
        )));
    }
    client.close()?;
    let (put, expired) = (again.put, again.expired);
    if arguments.reach.json {
        return show::json(&json!({ "put": put, "expired": expired }));
    }
    let more = if expired > 0 { format!("; {expired} had expired") } else { String::new() };
    show::line(&format!("{put} messages put{more}"))
}

struct PutsAgain<'a> {
    arguments: &'a RegionPutAgain,
    senders: HashMap<String, Sender>,
    unit: Option<Unit>,
    in_unit: u64,
    /// Messages of the file: read, and those that need not be read again.
    read: u64,
    done: u64,
    /// Messages that were sent, and those of them that were committed.
    put: u64,
    put_done: u64,
    expired: u64,
}

impl PutsAgain<'_> {
    fn all(&mut self, client: &mut Client) -> Result<(), Failure> {
        let mut reader = ExportReader::open(&self.arguments.file)?;
        while let Some((head, content)) = reader.next()? {
            self.read += 1;
            let is_wanted = self.arguments.queue.as_ref().is_none_or(|queue| *queue == head.queue);
            if self.read > self.arguments.skip && is_wanted {
                self.one(client, &head, &content)?;
            }
        }
        self.commit(client)
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
            client.commit(unit)?;
        }
        (self.in_unit, self.done, self.put_done) = (0, self.read, self.put);
        Ok(())
    }
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
