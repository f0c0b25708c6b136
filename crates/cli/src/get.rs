//! `towline get` and `towline browse`.
//!
//! Invariant: a message is accepted only after it was written out, so that a full disk or a closed
//! pipe loses none. The end without an error means that they are gone for good, whatever happens to
//! the queue manager then.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use towline_client::{Client, Error, Message, Receiver, ReceiverOptions, Unit};
use towline_types::printable_entry;

use crate::arguments::{Browse, Get, Take};
use crate::failure::Failure;
use crate::{mqsc, private_file, progress, show};

/// Messages on their way at one time.
const WINDOW: u32 = 100;
/// The same while following: they would count a backout when the command is interrupted.
const WINDOW_FOLLOW: u32 = 10;

/// Property of a note that stands for a message that cannot be read.
const DAMAGED_AT: &str = "DamagedAt";
/// Property of a message on the dead-letter queue: the note is what lies there.
const DEAD_LETTER: &str = "DeadLetterReason";

/// What is the same for every message of a run.
struct Taker<'a> {
    take: &'a Take,
    browse: bool,
    /// Messages at most; `None`: no end.
    total: Option<u64>,
    batch: Option<u64>,
    /// Whether the caller counts on all messages of the queue.
    all: bool,
}

/// Runs `towline get`.
pub(crate) fn get(arguments: &Get) -> Result<(), Failure> {
    let endless = arguments.all || arguments.take.follow;
    let total = (!endless).then_some(arguments.count);
    let (batch, all) = (arguments.transaction, arguments.all);
    let taker = Taker { take: &arguments.take, browse: false, total, batch, all };
    taker.run()
}

/// Runs `towline browse`.
pub(crate) fn browse(arguments: &Browse) -> Result<(), Failure> {
    let taker = Taker {
        take: &arguments.take,
        browse: true,
        total: arguments.count,
        batch: None,
        all: false,
    };
    taker.run()
}

impl Taker<'_> {
    fn run(&self) -> Result<(), Failure> {
        let take = self.take;
        if let Some(folder) = &take.output {
            std::fs::create_dir_all(folder)
                .map_err(|error| Failure::about(folder.display(), error))?;
        }
        let options = ReceiverOptions {
            browse: self.browse,
            selector: selector(take.selector.as_deref(), take.correlation_id.as_deref()),
            window: if take.follow { WINDOW_FOLLOW } else { WINDOW },
            total: self.total,
        };
        let way = take.reach.connector()?;
        let mut client = way.connect()?;
        let mut before = None;
        if self.all {
            before = set_aside(&mut client, &take.queue);
            if before.is_none() {
                // A user without the right to administer gets messages all the same.
                client = way.connect()?;
            }
        }
        let mut receiver = client.receiver(&take.queue, &options)?;
        let (count, browsed) = self.messages(&mut client, &mut receiver)?;
        client.confirm(&receiver).map_err(|error| not_confirmed(error, count > 0))?;
        client.close_receiver(&receiver)?;
        let after = before.and_then(|_| set_aside(&mut client, &take.queue));
        client.close()?;
        if browsed > 0 {
            let text = format!(
                "{browsed} damaged messages are not among these; they are where they were, see the \
                 guide damaged-log"
            );
            return Err(Failure::about(&take.queue, text));
        }
        if let (Some(before), Some(after)) = (before, after)
            && after > before
        {
            return Err(Failure::about(
                &take.queue,
                format!(
                    "{} damaged messages are not among these: they were set aside on the \
                     dead-letter queue, see the guide damaged-log",
                    after - before
                ),
            ));
        }
        if count == 0 && self.total != Some(0) { Err(Failure::NoMessage) } else { Ok(()) }
    }

    /// Takes messages until there are no more, or enough; gives how many there were, and how many
    /// of them a browser was only shown a note of.
    fn messages(
        &self,
        client: &mut Client,
        receiver: &mut Receiver,
    ) -> Result<(u64, u64), Failure> {
        let wait = (!self.take.follow).then(|| Duration::from_secs_f64(self.take.wait));
        let bar = progress::bar(self.total, self.take.reach.json);
        let (mut count, mut damaged) = (0_u64, 0_u64);
        let mut unit = None;
        while self.total.is_none_or(|total| count < total) {
            let next = client.receive(receiver, wait);
            let waits = unit.is_some() || client.has_unconfirmed(receiver);
            let Some(delivery) = next.map_err(|error| not_confirmed(error, waits))? else { break };
            count = count.saturating_add(1);
            let message = delivery.message()?;
            if self.browse && stands_for_damaged(&message) {
                damaged = damaged.saturating_add(1);
                bar.suspend(|| {
                    eprintln!("towline: message {count}: {}", printable_entry(&text_of(&message)));
                });
                continue;
            }
            self.write(count, &message)?;
            bar.inc(1);
            if self.browse {
                continue;
            }
            if self.batch.is_some() && unit.is_none() {
                unit = Some(client.declare()?);
            }
            client.accept(&delivery, unit.as_ref()).map_err(|error| not_confirmed(error, true))?;
            if self.batch.is_some_and(|batch| count.is_multiple_of(batch)) {
                commit(client, unit.take())?;
            }
        }
        commit(client, unit)?;
        bar.finish_and_clear();
        Ok((count, damaged))
    }

    /// Shows a message before it is accepted: what was accepted is gone from the queue.
    fn write(&self, number: u64, message: &Message) -> Result<(), Failure> {
        if let Some(folder) = &self.take.output {
            let path = save(folder, number, message)?;
            if !self.take.reach.json {
                return if self.take.verbose { show::head(message) } else { Ok(()) };
            }
            return show::json(&show::described(message, Some(&path)));
        }
        if self.take.reach.json {
            return show::json(&show::described(message, None));
        }
        if self.take.verbose {
            show::head(message)?;
        }
        show::body(message)
    }
}

/// Why there are no more messages, and what an operator cannot see: when the link ends before the
/// outcome of a message that was shown reaches the server, that message returns to its queue.
fn not_confirmed(error: Error, waits: bool) -> Failure {
    match Failure::from(error) {
        Failure::Failed(text) if waits => Failure::Failed(format!(
            "{text}; the last messages shown were not confirmed as taken and may still be on the \
             queue"
        )),
        failure => failure,
    }
}

/// Whether a browser was shown this instead of a message that cannot be read.
fn stands_for_damaged(message: &Message) -> bool {
    let has = |wanted: &str| message.properties.iter().any(|(name, _)| name == wanted);
    has(DAMAGED_AT) && !has(DEAD_LETTER)
}

fn text_of(message: &Message) -> String {
    String::from_utf8_lossy(show::bytes(message)).into_owned()
}

/// How many messages of a queue were set aside as damaged; `None` when that cannot be asked.
pub(crate) fn set_aside(client: &mut Client, queue: &str) -> Option<u64> {
    let answer = client.ask_admin("status", "").ok()?;
    let status: towline_admin::status::Status = mqsc::understood(&answer.body).ok()?;
    status.queues.iter().find(|found| found.name == queue).map(|found| found.set_aside)
}

fn commit(client: &mut Client, unit: Option<Unit>) -> Result<(), Failure> {
    match unit {
        Some(unit) => client.commit(unit).map_err(|error| not_confirmed(error, true)),
        None => Ok(()),
    }
}

/// Writes a body to a file that was not there before.
fn save(folder: &Path, number: u64, message: &Message) -> Result<PathBuf, Failure> {
    let mut suffix = 0_u32;
    loop {
        let name = match suffix {
            0 => format!("message-{number:06}"),
            _ => format!("message-{number:06}-{suffix}"),
        };
        let path = folder.join(name);
        match private_file::create_new(&path) {
            Ok(mut file) => {
                let written = file.write_all(show::bytes(message)).and_then(|()| file.sync_all());
                written.map_err(|error| Failure::about(path.display(), error))?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                suffix = suffix.saturating_add(1);
            }
            Err(error) => return Err(Failure::about(path.display(), error)),
        }
    }
}

/// A selector that asks for both.
fn selector(selector: Option<&str>, correlation_id: Option<&str>) -> Option<String> {
    let by_id = correlation_id.map(|id| format!("JMSCorrelationID = '{}'", id.replace('\'', "''")));
    match (by_id, selector) {
        (Some(by_id), Some(selector)) => Some(format!("{by_id} AND ({selector})")),
        (Some(one), None) => Some(one),
        (None, selector) => selector.map(ToOwned::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_id_becomes_a_selector_that_an_index_can_serve() {
        assert_eq!(selector(None, Some("it's")).unwrap(), "JMSCorrelationID = 'it''s'");
        let both = selector(Some("a = 1 OR b = 2"), Some("x")).unwrap();
        assert_eq!(both, "JMSCorrelationID = 'x' AND (a = 1 OR b = 2)");
        assert_eq!(selector(Some("a = 1"), None).unwrap(), "a = 1");
        assert_eq!(selector(None, None), None);
    }

    #[test]
    fn messages_that_were_shown_and_not_confirmed_are_mentioned() {
        let lost = || Error::Lost("the server closed the socket".into());
        assert!(not_confirmed(lost(), true).reason().contains("may still be on the queue"));
        assert!(!not_confirmed(lost(), false).reason().contains("still"));
    }

    #[test]
    fn a_file_that_is_there_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let first = save(folder.path(), 1, &Message::default()).unwrap();
        let second = save(folder.path(), 1, &Message::default()).unwrap();
        assert_ne!(first, second);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&first.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "messages are for the owner's eyes");
    }
}
