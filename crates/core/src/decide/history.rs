//! The beginning of a history: from here on another group is live, or this one again.
//!
//! Not here: what must be true before (the daemon: that the other region has all of the log, or
//! that an operator does without what it lacks), and what two chains of histories say of two logs
//! (`towline_types`).

use towline_types::{History, HistoryId, Lsn, Time, limits};

use crate::fact::{Durability, Fact};
use crate::principal::Principal;
use crate::queue::SEQUENCE_END;
use crate::record::fields::LEVEL_OF_HISTORIES;
use crate::request::Decision;
use crate::{MessageSequence, QueueManager, Refusal};

/// A history that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeginHistory {
    /// Its name, drawn for it.
    pub id: HistoryId,
    /// Name of the group that is live from here on.
    pub live: String,
    /// End of the last batch that is its parent's: what is behind it in this log is of the new
    /// history. Of the first one of a log: [`Lsn::ZERO`].
    pub fork: Lsn,
    /// Now, by the wall clock.
    pub began: Time,
    /// Why, for people.
    pub cause: String,
}

impl QueueManager {
    /// Begins a history, for the process itself and no client: `Forced`, and it is the last fact
    /// that is decided here if it names another group. It goes on from the newest one. The first of
    /// a log names this group.
    ///
    /// A group that becomes live without an order of the live one may lack the end of that one's
    /// log. It leaves out sequences: what it decides never has the number of a message in the part
    /// that it lacks, whatever clients and connectors remember of that.
    ///
    /// It is not refused for want of log space: a change of roles needs none but the reserve.
    ///
    /// # Errors
    /// A client asks; the log may not hold histories yet, or another one is on its way; this
    /// instance is in no group, or not live and names another one; a large message or a large
    /// commit has begun and would go on behind it; the history does not go on from the newest one.
    pub fn begin_history(
        &mut self,
        begin: &BeginHistory,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin_unasked(out);
        if out.principal != Principal::Internal {
            return Err(Refusal::NotAuthorized("no client begins a history".to_owned()));
        }
        let Some(own) = self.region.own() else {
            return Err(no_history("this queue manager is in no group"));
        };
        if self.level < LEVEL_OF_HISTORIES {
            return Err(no_history("the log is still at a format level without histories"));
        }
        if self.region.is_on_its_way() {
            return Err(no_history("another history is about to begin"));
        }
        let is_taken = begin.live == own;
        if !is_taken {
            self.check_not_fenced()?;
            if !self.region.switches_to(&begin.live) {
                self.check_open()?;
            }
            if !self.large_puts.is_empty() || !self.commits.is_empty() {
                return Err(no_history("a large message or a large commit has begun"));
            }
        }
        let newest = self.region.newest();
        if newest.is_none() && !is_taken {
            return Err(no_history("the first history of a log is that of its own group"));
        }
        let takes_over = is_taken && newest.is_some_and(|newest| newest.live != own);
        let history = History {
            id: begin.id,
            parent: newest.map(|newest| newest.id),
            fork: begin.fork,
            live: begin.live.clone(),
            began: begin.began,
            cause: begin.cause.clone(),
        };
        let next = self.region.histories().check_next(&history);
        next.map_err(|fault| no_history(&fault.to_string()))?;
        let first = if takes_over { Some(self.leave_sequences_out()?) } else { None };
        // The decision is made while the log is open: by a group that was not live it opens it.
        out.open();
        self.region.decide(history.clone());
        let fact = Fact::HistoryBegun { history: Box::new(history), first };
        out.push_logged(fact, Durability::Forced);
        Ok(())
    }

    /// The next sequence, behind those that the lost end of a log can have.
    fn leave_sequences_out(&mut self) -> Result<MessageSequence, Refusal> {
        let first = self.next.sequence.checked_add(limits::SEQUENCES_LEFT_OUT);
        let first = first.filter(|first| *first < SEQUENCE_END);
        let first = first.ok_or_else(|| no_history("sequences of messages are used up"))?;
        self.next.sequence = first;
        Ok(MessageSequence(first))
    }
}

fn no_history(why: &str) -> Refusal {
    Refusal::NoHistory { why: why.to_owned() }
}
