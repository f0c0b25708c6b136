//! What comes over the links between regions: both ends say what they have, one may refuse, and
//! then frames go to the thread that ships or to the one that receives.
//!
//! Not here: whether two groups fit (`region_meeting`), what is done with batches
//! (`region_shipping`, `region_receiving`). Invariant: nothing is shipped, or taken, on a link
//! whose two ends did not find that one log is the beginning of the other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_admin::catalogue::REGION_PARTITIONED;
use towline_group::{Mode, ShippedAnswer};
use towline_link::{
    FrameCost, Intake, LinkId, LinkStream, RegionHello, RegionInbox, RegionLink, RegionSections,
};
use towline_logging::log as say;
use towline_region::Refusal;
use towline_region::wire::{KIND_BATCHES, KIND_CONDITION};
use towline_types::Time;

use super::{KnownRegion, RegionPart};
use crate::driver::RegionEvents;
use crate::region_clients::GroupClients;
use crate::region_meeting::{MeetingRefusal, RegionSaid, meet};
use crate::region_shipping::ShippingEnd;

impl RegionPart {
    /// Whether a link may stand on which this side receives (`incoming`), or ships.
    pub(super) fn judge(&self, incoming: bool, other: &RegionSaid) -> Result<(), MeetingRefusal> {
        let own = self.said();
        let [shipping, receiving] = if incoming { [other, &own] } else { [&own, other] };
        self.heard(&own, other);
        let in_words = |why| MeetingRefusal { why, is_partition: false };
        if incoming && self.driver.mode() == Mode::Voting && own.agreement.is_live == Some(false) {
            let newest = own.histories.newest().and_then(|newest| other.histories.get(newest.id));
            if other.agreement.is_live == Some(true) && newest.is_some() {
                self.note_taken_over();
            }
            let why = "this instance is about to be one of a recovery group";
            return Err(in_words(why.to_owned()));
        }
        let both_live = [&own, other].iter().all(|it| it.agreement.is_live == Some(true));
        if both_live && self.has_taken_record(&own, other) {
            let why = "this instance has not applied the batch yet that says which group is live";
            return Err(in_words(why.to_owned()));
        }
        let differences = meet(shipping, receiving, &|| match incoming {
            true => self.has_taken_record(&own, other),
            false => self.driver.has_batch(other.position.last, other.sums.last),
        })?;
        if shipping.log_id != receiving.log_id {
            let live = format!("group '{}'", shipping.agreement.group);
            return match incoming {
                // An empty log: it becomes that of the live group.
                true => self.driver.takes_log_id(&live, shipping.log_id).map_err(in_words),
                false => Err(in_words(format!("it is to take the log of {live} first"))),
            };
        }
        if !incoming {
            self.has_no_lost_log();
        }
        let mut known = self.known.lock();
        known.differences = differences;
        known.clients = Some(Arc::new(GroupClients::said(&other.agreement)));
        known.needs_copy = false;
        known.is_one_with(other);
        self.forgets_fork(&mut known);
        Ok(())
    }

    /// The other group said this of itself, whether or not a link stands.
    fn heard(&self, own: &RegionSaid, other: &RegionSaid) {
        self.is_asked(other);
        self.looks_for_lost_log(own, other);
        self.notes_fork(own, other);
    }

    /// Whether a link stands on which this side ships, or receives.
    fn has_link(&self) -> bool {
        let ships = self.shipping().is_some_and(|shipping| shipping.link().is_some());
        ships || self.receiving().link().is_some()
    }

    /// An instance of the other group may have no link. While one of them has one, another that
    /// says it is not live, or not yet, is late, or has a part in what is over: nothing it says is
    /// at odds with that link. What one says that is live is.
    pub(super) fn keep_refusal_of(
        &self,
        incoming: bool,
        other: &RegionSaid,
        refusal: MeetingRefusal,
    ) {
        if self.has_link() && other.agreement.is_live != Some(true) {
            return;
        }
        let is_partition = refusal.is_partition;
        self.known.lock().hears(other);
        // What others may not ship to a live group is no reason why this one ships nothing.
        if is_partition || !incoming || !self.role_now().1 {
            self.keep_refusal(refusal);
        }
        self.known.lock().partition_is_said |= is_partition;
    }

    /// A link may not stand.
    pub(super) fn keep_refusal(&self, MeetingRefusal { why, is_partition }: MeetingRefusal) {
        let mut known = self.known.lock();
        known.partition_is_said &= !is_partition;
        if !is_partition {
            known.trouble = Some(why);
            return;
        }
        known.link_was_good(self.driver.now());
        let is_news = known.partition_told.as_ref() != Some(&why);
        known.partition_told = Some(why.clone());
        known.partition = Some(why.clone());
        drop(known);
        if is_news {
            say(&REGION_PARTITIONED, &[&self.terms.recovery.name, &why]);
        }
    }

    /// This group refused what the other one shipped. Of a promotion the next meeting decides: a
    /// group that handed over may still send what this one has.
    pub(super) fn refuses(&self, why: Refusal) {
        // A group that handed over still shipped when this one was live: its link is over, and says
        // nothing of the one on which this group ships by now.
        let ships = self.shipping().is_some_and(|shipping| shipping.link().is_some());
        if let Refusal::Diverged { .. } = why
            && !ships
        {
            self.keep_refusal(MeetingRefusal { why: why.to_string(), is_partition: true });
        }
    }

    /// Shipping ended, or did not begin.
    pub(super) fn keep_end(&self, end: &ShippingEnd) {
        match end {
            ShippingEnd::Refused(Refusal::Promoted) if self.names_other(&self.host.histories()) => {
                self.note_taken_over();
            }
            ShippingEnd::NeedsCopy => {
                let mut known = self.known.lock();
                (known.needs_copy, known.trouble) = (true, Some(end.to_string()));
            }
            ShippingEnd::Refused(Refusal::Promoted | Refusal::Diverged { .. }) => {
                self.keep_refusal(MeetingRefusal { why: end.to_string(), is_partition: true });
            }
            ShippingEnd::Refused(Refusal::Gap { .. } | Refusal::NotYet) => {}
            ShippingEnd::Fault(why) => self.known.lock().trouble = Some(why.clone()),
        }
    }

    /// A link stands on which this side ships.
    fn ships_on(&self, link: RegionLink, other: &RegionSaid) {
        let Some(shipping) = self.shipping() else {
            return link.close("this instance is not active");
        };
        self.driver.region_reads(other.agreement.levels.read);
        if self.host.histories().is_empty() {
            self.known.lock().awaits_history = Some(link);
            return;
        }
        let at = (&other.position, other.sums, other.point);
        if let Err(end) = shipping.opened(Arc::clone(&link), at, self.driver.now()) {
            link.close(&end.to_string());
            return self.keep_end(&end);
        }
        // Both logs are one, whatever was refused on a link before, or beside this one.
        self.known.lock().is_one_with(other);
        if let Some(giving) = self.giving.get() {
            giving.is_not_needed();
        }
    }

    /// Has the log begin its first history, once another region is connected that reads it. Its
    /// chain is said with a connection, so the next one is made at once when it has begun.
    pub(super) fn begin_history_if_due(&self) {
        let Some(link) = self.known.lock().awaits_history.clone() else { return };
        if !self.host.histories().is_empty() {
            self.known.lock().awaits_history = None;
            self.driver.histories_begun(self.host.histories().iter().map(|history| history.id));
            link.close("the first history of the log has begun: connected again with that");
            return self.links().kick();
        }
        self.begin_first_history();
    }
}

impl KnownRegion {
    /// A link on which nothing was refused for so long is one on which both logs are one: what is
    /// refused after it is news.
    fn link_was_good(&mut self, now: Time) {
        const GOOD: Duration = Duration::from_secs(10);
        if self.link_since.is_some_and(|since| now.since(since) >= GOOD) {
            self.partition_told = None;
        }
    }
}

impl RegionEvents for RegionPart {
    fn answers(&self, answer: ShippedAnswer) {
        self.receiving().answers(answer);
    }

    fn committed(&self) {
        // Under the lock, and without a count: it is called for each commit.
        if let Some(shipping) = &self.shipping.lock().shipping {
            shipping.wake();
        }
    }
}

impl RegionInbox for RegionPart {
    fn hello(&self) -> RegionSections {
        self.said().encode()
    }

    fn greets(&self, incoming: bool, hello: &RegionHello) -> Result<(), String> {
        let other = RegionSaid::decode(&hello.sections)?;
        if incoming && self.driver.is_copying() {
            return Err("this instance gets a copy of the log of its group".into());
        }
        if incoming && self.driver.awaits_returns() {
            return Err("not all instances of this group that are connected have returned".into());
        }
        if let Err(refusal) = self.judge(incoming, &other) {
            let why = refusal.why.clone();
            self.keep_refusal_of(incoming, &other, refusal);
            return Err(why);
        }
        let ships = self.shipping().filter(|_| !incoming);
        if let Some(Err(end)) = ships.map(|shipping| shipping.start(&other.position)) {
            self.keep_end(&end);
            if end == ShippingEnd::NeedsCopy {
                self.lacks(hello, &other);
            }
            return Err(end.to_string());
        }
        if incoming { Ok(()) } else { self.refuses_full(hello, &other) }
    }

    fn refused(&self, hello: &RegionHello) {
        let Ok(other) = RegionSaid::decode(&hello.sections) else { return };
        let own = self.said();
        self.heard(&own, &other);
        if self.has_taken_record(&own, &other) {
            return;
        }
        // What the other one knows of both logs this one is to know too; the rest is in its words.
        let is_one = || self.driver.has_batch(other.position.last, other.sums.last);
        match meet(&own, &other, &is_one) {
            Err(refusal) if refusal.is_partition => {
                self.keep_refusal_of(false, &other, refusal);
            }
            Ok(_) | Err(_) if self.has_link() => {}
            Ok(_) | Err(_) => self.known.lock().hears(&other),
        }
    }

    fn opened(&self, incoming: bool, hello: &RegionHello, link: RegionLink) {
        self.known.lock().link_since = Some(self.driver.now());
        match RegionSaid::decode(&hello.sections) {
            Ok(other) if incoming => {
                self.taking.is_not_needed();
                self.known.lock().is_one_with(&other);
                self.receiving().opened(link, other.histories, other.agreement.awaits_reports());
            }
            Ok(other) => self.ships_on(link, &other),
            Err(why) => link.close(&why),
        }
    }

    fn frame(
        &self,
        link: LinkId,
        kind: u8,
        body: Bytes,
        cost: FrameCost,
    ) -> Result<Intake, String> {
        if kind == KIND_CONDITION {
            self.hears_condition(link, &body);
            return Ok(Intake::More);
        }
        if kind == KIND_BATCHES {
            return Ok(self.receiving().frame(link, body, cost));
        }
        if let Some(shipping) = self.shipping() {
            if let Err(end) = shipping.frame(link, kind, &body, self.driver.now()) {
                self.keep_end(&end);
                return Err(end.to_string());
            }
            // At once: the thread that ships looks a few times a second.
            self.releases(&shipping);
        }
        Ok(Intake::More)
    }

    fn writable(&self, _link: LinkId) {
        if let Some(shipping) = self.shipping() {
            shipping.wake();
        }
    }

    fn closed(&self, link: LinkId, _why: &str) {
        let mut known = self.known.lock();
        known.awaits_history.take_if(|waiting| waiting.id() == link);
        known.link_was_good(self.driver.now());
        known.link_since = None;
        drop(known);
        self.receiving().closed(link);
        if let Some(shipping) = self.shipping() {
            shipping.closed(link);
        }
    }

    fn admits(&self, hello: &RegionHello) -> Result<(), String> {
        self.admits_copy(hello)
    }

    fn stream(&self, hello: &RegionHello, stream: LinkStream) {
        self.takes_copy(hello, stream);
    }
}

#[cfg(test)]
mod tests;
