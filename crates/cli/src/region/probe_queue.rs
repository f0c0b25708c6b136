//! The queue of a drill's probe: closed for other consumers, or compared with its own counts.
//!
//! A queue of its own is closed for getting (`GET(DISABLED)`) from before the first put until the
//! messages are counted: that stands in the log, so it holds in both regions. The count opens it,
//! for one consumer. A queue that `--queue` names is not altered: it may have consumers, so its
//! depth and its count of puts are compared from before the drill to its end.
//!
//! Not here: the messages. Invariant: what others may have taken is never counted as lost.

use std::time::Duration;

use towline_admin::reply::{DisplayValue, ScriptReply};
use towline_client::{Client, Error, Receiver, ReceiverOptions};

use crate::failure::Failure;
use crate::mqsc;
use crate::patience::Patience;
use crate::reach::Connector;

/// The queue that is used unless another one is named; it is defined if it is not there.
const OWN: &str = "SYSTEM.REGION.DRILL";
/// Others may be quicker when the queue is opened for the count: then it is closed, and opened
/// again.
const OPEN_MAX: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct ProbeQueue {
    name: String,
    is_own: bool,
    before: Option<QueueCounts>,
}

/// What the queue manager counts of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueCounts {
    /// Messages in it.
    depth: u64,
    /// Messages put since it was defined.
    puts: u64,
    /// Opens for getting.
    consumers: u64,
}

impl ProbeQueue {
    /// The queue that was named, or the own one, which is there then, and closed for getting.
    ///
    /// # Errors
    /// It cannot be.
    pub(super) fn prepare(named: Option<&str>, at: &Connector) -> Result<ProbeQueue, Failure> {
        let name = named.unwrap_or(OWN).to_owned();
        let mut queue = ProbeQueue { name, is_own: named.is_none(), before: None };
        let mut client = at.connect()?;
        if queue.is_own {
            let ask = format!("DISPLAY QLOCAL({OWN}) CURDEPTH");
            let there: ScriptReply = mqsc::understood(&client.ask_admin("mqsc", &ask)?.body)?;
            let descr = if there.failed > 0 { " DESCR('Probe of a drill')" } else { "" };
            let verb = if there.failed > 0 { "DEFINE" } else { "ALTER" };
            let order = format!("{verb} QLOCAL({OWN}) DEFPSIST(YES) NOSHARE GET(DISABLED){descr}");
            carried_out(&mut client, &order)?;
        }
        // A user without the right to administer may use a queue of others all the same.
        queue.before = queue.counts(&mut client).ok();
        client.close().ok();
        Ok(queue)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Opens it for the count.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(
        &self,
        client: &mut Client,
        options: &ReceiverOptions,
    ) -> Result<Receiver, Failure> {
        let patience = Patience::of(OPEN_MAX);
        loop {
            self.lets_get(client, true)?;
            let error = match client.receiver(&self.name, options) {
                Ok(receiver) => return Ok(receiver),
                Err(error) => error,
            };
            // Others wait for it: they are sent away again.
            self.lets_get(client, false)?;
            if !self.is_own || !matches!(error, Error::Refused { .. }) || patience.left().is_zero()
            {
                return Err(error.into());
            }
        }
    }

    /// The count is over.
    ///
    /// # Errors
    /// It cannot be closed.
    pub(super) fn close(&self, client: &mut Client, receiver: &Receiver) -> Result<(), Failure> {
        client.close_receiver(receiver)?;
        self.lets_get(client, false)
    }

    fn lets_get(&self, client: &mut Client, does: bool) -> Result<(), Failure> {
        if !self.is_own {
            return Ok(());
        }
        let get = if does { "ENABLED" } else { "DISABLED" };
        carried_out(client, &format!("ALTER QLOCAL({OWN}) GET({get})"))
    }

    /// Of the messages that were confirmed, `missing` were not found when `taken` had been taken
    /// off the queue for the count: how many of them are lost. `None`: others may have taken them.
    pub(super) fn lost(&self, client: &mut Client, missing: u64, taken: u64) -> Option<u64> {
        if missing == 0 {
            return Some(0);
        }
        let (before, after) = (self.before?, self.counts(client).ok()?);
        lost_of(missing, (before, after), taken, self.is_own)
    }

    fn counts(&self, client: &mut Client) -> Result<QueueCounts, Failure> {
        let name = self.name.replace('\'', "''");
        let ask = format!("DISPLAY QSTATUS('{name}') CURDEPTH IPPROCS PUTS");
        let reply: ScriptReply = mqsc::understood(&client.ask_admin("mqsc", &ask)?.body)?;
        let Some(row) = reply.replies.first().and_then(|reply| reply.rows.first()) else {
            return Err(Failure::about(&self.name, "its status is not known"));
        };
        let number = |attribute: &str| match row.attributes.get(attribute) {
            Some(DisplayValue::Number(number)) => Ok(*number),
            _ => Err(Failure::about(&self.name, format!("its {attribute} is not known"))),
        };
        let (depth, puts) = (number("CURDEPTH")?, number("PUTS")?);
        Ok(QueueCounts { depth, puts, consumers: number("IPPROCS")? })
    }
}

/// See [`ProbeQueue::lost`].
fn lost_of(
    missing: u64,
    (before, after): (QueueCounts, QueueCounts),
    taken: u64,
    is_own: bool,
) -> Option<u64> {
    // However it left: got, moved, cleared, expired.
    let came = after.puts.checked_sub(before.puts)?.checked_add(before.depth)?;
    let left_otherwise = came.checked_sub(after.depth)?.checked_sub(taken)?;
    // What others were given, and have not settled, is still counted as in it.
    let others = left_otherwise.saturating_add(after.depth.saturating_sub(before.depth));
    match (is_own, others) {
        (_, 0) if before.consumers == 0 && after.consumers == 0 => Some(missing),
        // So many, if others have only such ones; of a queue that is used, the counts also have
        // messages that are not persistent, which a change of roles drops.
        (true, _) => missing.checked_sub(others).filter(|lost| *lost > 0),
        (false, _) => None,
    }
}

/// Has a command carried out.
fn carried_out(client: &mut Client, command: &str) -> Result<(), Failure> {
    let made: ScriptReply = mqsc::understood(&client.ask_admin("mqsc", command)?.body)?;
    if made.is_success() {
        return Ok(());
    }
    let said: Vec<String> = made.replies.iter().map(|reply| reply.to_text()).collect();
    Err(Failure::Failed(format!("'{command}' is refused: {}", said.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(depth: u64, puts: u64) -> QueueCounts {
        QueueCounts { depth, puts, consumers: 0 }
    }

    #[test]
    fn what_others_may_have_taken_is_not_lost() {
        let (before, is_own) = (counts(5, 100), true);
        let lost = |missing, after, taken| lost_of(missing, (before, after), taken, is_own);
        // 460 were put, of which the count took 38.
        assert_eq!(lost(422, counts(5, 560), 38), None, "422 left it otherwise");
        assert_eq!(lost(422, counts(427, 560), 38), None, "422 were given to others");
        assert_eq!(lost(422, counts(5, 138), 38), Some(422), "they were never put");
        assert_eq!(lost(422, counts(5, 150), 38), Some(410), "12 at most were taken by others");
        assert_eq!(lost(1, counts(0, 90), 0), None, "counts that went back say nothing");
    }

    #[test]
    fn of_a_queue_that_others_use_nothing_is_called_lost() {
        let before = counts(0, 0);
        let lost = |after, taken| lost_of(3, (before, after), taken, false);
        assert_eq!(lost(counts(0, 10), 7), None, "three left it");
        assert_eq!(lost(counts(0, 7), 7), Some(3), "nothing left it, and no consumer got from it");
        let used = QueueCounts { consumers: 1, ..counts(0, 7) };
        assert_eq!(lost(used, 7), None, "somebody gets from it");
    }
}
