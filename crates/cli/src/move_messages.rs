//! `towline move`: messages from one queue to another, in units of work, with all that they have.
//!
//! A batch is put on the target, and only when all of it was taken is it settled on the source; one
//! commit ends both. So a batch that the target refuses leaves no trace on the source: no backout
//! is counted. It is then tried message by message, so that what fits is moved.
//!
//! The note of a damaged message stays where it is: the server keeps the position of the content in
//! the log with it, which a copy of its text would not have, and a repair would recover nothing.
//!
//! Not here: changing a message. Its bytes are put as they came, properties, ids and annotations
//! (those of a dead letter too) included.

use std::time::Duration;

use towline_admin::ScriptReply;
use towline_admin::reply::{Attributes, DisplayValue, Outcome};
use towline_client::{Client, Delivery, Error, Receiver, ReceiverOptions, Sender, Unit};

use crate::arguments::{BATCH_MAX, Move};
use crate::failure::Failure;
use crate::{get, progress, show};

/// Notes of damaged messages until the command ends: the server remembers 10,000 messages that a
/// receiver declined, and would send the first one again after that.
const NOTES_MAX: u64 = 10_000;

/// Runs the command.
pub(crate) fn run(arguments: &Move) -> Result<(), Failure> {
    let way = arguments.reach.connector()?;
    let mut client = way.connect()?;
    let (source, target) = (plain(&arguments.source), plain(&arguments.target));
    let behind = queue_behind(&mut client, source);
    if behind == queue_behind(&mut client, target) {
        let what = format!("{source} and {target} are the same queue; nothing was moved");
        return Err(Failure::Usage(what));
    }
    let before = get::set_aside(&mut client, &behind);
    if before.is_none() {
        // A user without the right to ask can move messages all the same.
        client = way.connect()?;
    }
    let batch = arguments.transaction.clamp(1, BATCH_MAX);
    let options = ReceiverOptions {
        browse: false,
        selector: arguments.selector.clone(),
        // No more than one unit's messages are held: another consumer gets the others meanwhile.
        window: u32::try_from(batch).unwrap_or(u32::MAX),
        total: arguments.count,
    };
    let sender = client.sender(target)?;
    let receiver = client.receiver(source, &options)?;
    let bar = progress::bar(arguments.count, arguments.reach.json);
    let mut mover = Mover { client, sender, receiver, moved: 0, notes: 0, bar };
    let ended = mover.all(batch, arguments.count);
    mover.bar.finish_and_clear();
    let Mover { mut client, receiver, moved, notes, .. } = mover;
    if let Err(error) = ended {
        if matches!(error, Error::Refused { .. }) {
            // In order, or what was sent ahead to this command would count as failed deliveries.
            client.close_receiver(&receiver).and_then(|()| client.close()).ok();
        }
        let why = Failure::from(error);
        return Err(Failure::Failed(format!("{}; {} before that", why.reason(), said(moved))));
    }
    client.close_receiver(&receiver)?;
    let after = before.and_then(|_| get::set_aside(&mut client, &behind));
    client.close()?;
    let aside = after.zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
    if arguments.reach.json {
        let counted = serde_json::json!({
            "from": source, "to": target, "moved": moved, "notes": notes, "set_aside": aside,
        });
        show::json(&counted)?;
    } else if moved > 0 {
        show::line(&format!("{} from {source} to {target}", said(moved)))?;
    }
    match damage(&behind, notes, aside) {
        Some(told) => Err(Failure::about(source, told)),
        None if moved == 0 && arguments.count != Some(0) => Err(Failure::NoMessage),
        None => Ok(()),
    }
}

/// What was not moved because its content is damaged.
fn damage(queue: &str, notes: u64, aside: u64) -> Option<String> {
    let stay = (notes > 0).then(|| {
        format!(
            "{notes} damaged messages stay: a copy of the note would lose what a repair needs; \
             use MOVE QLOCAL('{queue}') TOQLOCAL(...)"
        )
    });
    let gone = (aside > 0).then(|| {
        format!("{aside} damaged messages were set aside on the dead-letter queue and not moved")
    });
    let parts: Vec<String> = stay.into_iter().chain(gone).collect();
    (!parts.is_empty()).then(|| format!("{}; see the guide damaged-log", parts.join("; ")))
}

fn said(moved: u64) -> String {
    format!("{moved} message{} moved", if moved == 1 { "" } else { "s" })
}

/// A queue's name without the scheme.
fn plain(address: &str) -> &str {
    address.strip_prefix("queue://").unwrap_or(address)
}

/// The local queue that an alias stands for, else the name itself; also the name when this user may
/// not ask.
fn queue_behind(client: &mut Client, name: &str) -> String {
    let quoted = name.replace('\'', "''");
    let answer = client.ask_admin("mqsc", &format!("DISPLAY QALIAS('{quoted}') TARGET"));
    let reply: Option<ScriptReply> =
        answer.ok().and_then(|answer| serde_json::from_str(&answer.body).ok());
    let target = reply.and_then(|reply| target_of(&reply));
    target.unwrap_or_else(|| name.to_owned())
}

fn target_of(reply: &ScriptReply) -> Option<String> {
    let shown = reply.replies.first().filter(|reply| reply.outcome == Outcome::Done)?;
    let Attributes(attributes) = &shown.rows.first()?.attributes;
    attributes.iter().find_map(|(name, value)| match value {
        DisplayValue::Text(text) if name == "TARGET" => Some(text.clone()),
        DisplayValue::Text(_) | DisplayValue::Number(_) | DisplayValue::Flag(_) => None,
    })
}

struct Mover {
    client: Client,
    sender: Sender,
    receiver: Receiver,
    moved: u64,
    /// Notes of damaged messages that came and went back.
    notes: u64,
    bar: indicatif::ProgressBar,
}

impl Mover {
    /// Moves until the source has no more, or `count` were moved.
    fn all(&mut self, batch: u64, count: Option<u64>) -> Result<(), Error> {
        loop {
            let left = count.map_or(batch, |count| count.saturating_sub(self.moved).min(batch));
            let mut held = Vec::new();
            while (held.len() as u64) < left && self.notes < NOTES_MAX {
                match self.client.receive(&mut self.receiver, Some(Duration::ZERO))? {
                    Some(note) if note.is_damage_note() => {
                        self.client.decline(&note)?;
                        self.notes = self.notes.saturating_add(1);
                    }
                    Some(delivery) => held.push(delivery),
                    None => break,
                }
            }
            if held.is_empty() {
                return Ok(());
            }
            self.batch(&held)?;
        }
    }

    /// Moves what is held, together or, when the target refuses that, one by one up to what it
    /// refuses.
    fn batch(&mut self, held: &[Delivery]) -> Result<(), Error> {
        match self.unit(held) {
            Err(Error::Refused { .. }) if held.len() > 1 => {}
            Err(refused @ Error::Refused { .. }) => {
                self.give_back(held)?;
                return Err(refused);
            }
            other => return other,
        }
        for (at, delivery) in held.iter().enumerate() {
            if let Err(error) = self.unit(std::slice::from_ref(delivery)) {
                if matches!(error, Error::Refused { .. }) {
                    self.give_back(held.get(at..).unwrap_or_default())?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn give_back(&mut self, held: &[Delivery]) -> Result<(), Error> {
        held.iter().try_for_each(|delivery| self.client.release(delivery))
    }

    /// One unit of work. When it is refused, the deliveries are unsettled as before.
    fn unit(&mut self, held: &[Delivery]) -> Result<(), Error> {
        let unit = self.client.declare()?;
        if let Err(error) = self.put(held, &unit) {
            if matches!(error, Error::Refused { .. }) {
                self.client.roll_back(unit)?;
                self.hear_all_refusals(held.len());
            }
            return Err(error);
        }
        for delivery in held {
            self.client.accept(delivery, Some(&unit))?;
        }
        self.client.commit(unit)?;
        self.moved = self.moved.saturating_add(held.len() as u64);
        self.bar.inc(held.len() as u64);
        Ok(())
    }

    /// The outcomes of what was put after the refused message must not count for the next unit.
    fn hear_all_refusals(&mut self, most: usize) {
        let settled = |mover: &mut Mover| mover.client.settle_to(mover.sender, 0).is_ok();
        // Each one is reported once; a link that ended reports its end for ever.
        let _ = (0..=most).any(|_| settled(self));
    }

    fn put(&mut self, held: &[Delivery], unit: &Unit) -> Result<(), Error> {
        for delivery in held {
            self.client.send_again(self.sender, delivery, Some(unit))?;
        }
        self.client.settle_to(self.sender, 0)
    }
}
