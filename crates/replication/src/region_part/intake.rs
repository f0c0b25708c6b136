//! What comes over the link between regions, given to the one that it is for.
//!
//! Not here: frames and connections (`towline_link`), what is done with them (`region_shipping`,
//! `region_receiving`). Invariant: a link stands only if both logs are one.

use bytes::Bytes;
use towline_link::{
    FrameCost, Intake, LinkId, LinkStream, RegionHello, RegionInbox, RegionLink, RegionSections,
};
use towline_region::wire::{KIND_BATCHES, KIND_CONDITION};

use super::RegionPart;
use crate::region_meeting::RegionSaid;
use crate::region_shipping::ShippingEnd;

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
            self.keep_refusal(refusal);
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
        Ok(())
    }

    fn opened(&self, incoming: bool, hello: &RegionHello, link: RegionLink) {
        match RegionSaid::decode(&hello.sections) {
            Ok(other) if incoming => {
                self.taking.is_not_needed();
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
            self.hears_condition(&body);
            return Ok(Intake::More);
        }
        if kind == KIND_BATCHES {
            return Ok(self.receiving().frame(link, body, cost));
        }
        let Some(shipping) = self.shipping() else { return Ok(Intake::More) };
        let taken = shipping.frame(link, kind, &body, self.driver.now());
        self.releases(&shipping);
        taken.map(|()| Intake::More).map_err(|end| {
            self.keep_end(&end);
            end.to_string()
        })
    }

    fn writable(&self, _link: LinkId) {
        if let Some(shipping) = self.shipping() {
            shipping.wake();
        }
    }

    fn closed(&self, link: LinkId, _why: &str) {
        self.known.lock().awaits_history.take_if(|waiting| waiting.id() == link);
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
