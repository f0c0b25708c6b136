//! What a rig does one step at a time, and with another time of day.

use super::{Client, Rig, flush};
use crate::rig::Input;

impl Rig {
    /// Grants credit, and lets the instance take that in one step. Whether it left something to the
    /// next one.
    pub(crate) fn one_step(&mut self, client: &mut Client, link: super::LinkId) -> bool {
        client.machine.set_credit(link, 1);
        let (mut input, mut requests) = (flush(&mut client.machine), Vec::new());
        super::checks::take(&mut client.front, self.now, &mut input, &mut requests);
        let input = Input::Requests { connection: client.id, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        std::mem::take(&mut self.out.is_unfinished)
    }

    /// Works in slices of 1,000 units until nothing is left; how many it took.
    pub(crate) fn slices(&mut self) -> usize {
        for slices in 0..1_000 {
            if !self.instance.has_work() {
                return slices;
            }
            let units = &mut 1_000;
            self.instance.step(self.now, Input::Work { units }, &self.log, &mut self.out);
            assert_eq!(
                self.out.is_unfinished,
                self.instance.has_work(),
                "what is left is reported"
            );
        }
        panic!("it never comes to an end");
    }
}

impl Client {
    /// The wall clock was set, as the connection of this client sees it.
    pub(crate) fn set_ahead(&mut self, seconds: i64) {
        self.front.set_ahead(seconds * 1_000_000);
    }
}
