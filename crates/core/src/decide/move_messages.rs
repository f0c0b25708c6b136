//! MOVE QLOCAL: an administrator moves what is available in one queue to another.
//!
//! Bodies stay where they are in the log, and a command is one run: after a crash all of it is done
//! or nothing. It is bounded, because nothing else happens meanwhile; what is left is counted.

use towline_types::{Time, limits};

use super::LazyFacts;
use crate::fact::{Durability, Fact};
use crate::message::DeadLetterReason;
use crate::object::QueueKind;
use crate::queue::Search;
use crate::request::{Decision, MoveCounts};
use crate::{QueueManager, Refusal};

/// A reply waits for the moves.
struct Forced<'d>(&'d mut Decision);

impl LazyFacts for Forced<'_> {
    fn push_lazy(&mut self, fact: Fact) {
        self.0.push_logged(fact, Durability::Forced);
    }
}

impl QueueManager {
    /// MOVE QLOCAL(`from`) TOQLOCAL(`to`): up to [`limits::MOVE_MESSAGES_MAX`] messages that no
    /// consumer has locked, in their order. `add`: also when there are messages in `to`.
    ///
    /// # Errors
    /// `UnknownObject`, `WrongType`, `PutInhibited`; `BadAttribute` when both are one queue, or the
    /// target has messages and `add` is not said; `BadAttribute` while messages of a large unit of
    /// work, or of a client that is gone, are on their way into `from`, or back to it: half of a
    /// unit would be moved, or what is there would overtake what comes back. What arrives in `to`
    /// stands before what is moved, whenever it comes.
    /// When the target takes no more, what it took is moved.
    pub fn move_messages(
        &mut self,
        now: Time,
        from: &str,
        to: &str,
        add: bool,
        out: &mut Decision,
    ) -> Result<MoveCounts, Refusal> {
        self.begin(out)?;
        let source = self.catalogue.local(from)?.id;
        let target = self.catalogue.local(to)?.id;
        if source == target {
            let why = format!("'{to}' is the queue itself");
            return Err(Refusal::BadAttribute { attribute: "TOQLOCAL", why });
        }
        let there = self.queue_mut(target);
        if !there.definition.attributes.put_enabled {
            return Err(Refusal::PutInhibited(to.to_owned()));
        }
        if !add && there.depth() > 0 {
            let why = format!("'{to}' has {} messages; TYPE(ADD) moves behind them", there.depth());
            return Err(Refusal::BadAttribute { attribute: "TOQLOCAL", why });
        }
        if self.queue_mut(source).definition.kind == QueueKind::TemporaryDynamic {
            let why = "a temporary queue belongs to its connection".to_owned();
            return Err(Refusal::BadAttribute { attribute: "QLOCAL", why });
        }
        let found = self.queue_mut(source);
        if found.arriving > 0 || found.returning > 0 {
            let why =
                format!("messages are on their way into '{from}', or back to it; repeat it soon");
            return Err(Refusal::BadAttribute { attribute: "QLOCAL", why });
        }
        let mut moved = 0;
        let mut facts = Forced(out);
        while moved < limits::MOVE_MESSAGES_MAX && self.queue_mut(source).clearing == 0 {
            let Search::Found(spot) = self.queue_mut(source).first_available() else { break };
            if self.usable_target(source, spot, DeadLetterReason::Moved, to).is_none() {
                break;
            }
            self.move_to(now, source, spot, target, DeadLetterReason::Moved, &mut facts);
            moved += 1;
        }
        let left = self.queue_mut(source).available;
        Ok(MoveCounts { moved, left })
    }
}
