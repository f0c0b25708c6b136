//! Credit of the links on which messages and requests arrive.
//!
//! Not here: credit that the peer gives (`delivery_window`).
//!
//! Invariant: a link with credit withheld because the log is behind gets it when the log has
//! caught up.

use towline_amqp::LinkId;
use towline_types::{fitting, limits};

use super::Front;
use super::attach::CONTROL_CREDIT;
use super::links::LinkUse;

impl Front {
    /// Whether the log is behind from now on: links on which persistent messages arrive get no
    /// credit while it is.
    pub fn set_log_behind(&mut self, is_behind: bool) {
        self.log_behind = is_behind;
        if !is_behind {
            for link in std::mem::take(&mut self.withheld) {
                self.refill(link);
            }
        }
    }

    /// Whether a link waits for credit until the log has caught up.
    #[must_use]
    pub fn withholds_credit(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// Credit of one link on which messages arrive: all links of the connection have a share, and
    /// one with a thousand of them is no stronger than one with ten.
    pub(super) fn producer_credit(&self) -> u32 {
        let share =
            limits::CREDIT_OF_CONNECTION_MAX / fitting::<_, u32>(self.links.producers().max(1));
        share.clamp(limits::PRODUCER_CREDIT_MIN, limits::PRODUCER_CREDIT)
    }

    /// Grants credit again when half of it is used up.
    pub(super) fn refill(&mut self, link: LinkId) {
        let share = self.producer_credit();
        let unread = match self.links.admin_replies() {
            Some(_) => self.admin_replies.len(),
            None => 0,
        };
        let waiting = self.admin_correlations.len() + unread;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let Some(known) = self.links.get_mut(link) else { return };
        let (credit, whole) = match &mut known.used_for {
            LinkUse::Producer { credit, .. } | LinkUse::AnonymousProducer { credit, .. } => {
                (credit, share)
            }
            // What waits for its answer counts: an answer to one of them is no room for eight. So
            // does an answer that the client does not read: it may be long.
            LinkUse::AdminRequests { credit } => {
                (credit, limits::ADMIN_REQUESTS_WAITING_MAX.saturating_sub(waiting))
            }
            LinkUse::Coordinator { credit, .. } => (credit, CONTROL_CREDIT),
            LinkUse::Opening(_)
            | LinkUse::Abandoned
            | LinkUse::Consumer { .. }
            | LinkUse::AdminReplies { .. } => return,
        };
        if *credit > whole / 2 {
            return;
        }
        if self.log_behind && known.logs {
            self.withheld.insert(link);
            return;
        }
        *credit = whole;
        self.machine.set_credit(link, whole);
    }
}
