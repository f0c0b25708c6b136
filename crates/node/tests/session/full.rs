//! A log with little free space: how much puts may take, and what is answered when nothing fits.

use towline_admin::status::Status;
use towline_amqp::types::DeliveryState;
use towline_node::{Input, Request, Response};
use towline_types::Lsn;

use crate::rig::Rig;
use crate::text::message;

#[test]
fn puts_stop_before_the_reserve_although_the_log_has_not_reported_that_it_is_full() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    let begins = rig.log.tail.get() + 200_000;
    rig.log.bytes_max.set(Some(begins));
    // All is decided before anything is durable, and before the log could report anything.
    rig.hold_log();
    for number in 0..20 {
        rig.send(&mut client, sender, number, message(&"x".repeat(20_000)).durable());
    }
    assert!(rig.log.tail.get() < begins, "the reserve is touched");
    rig.release_log(&mut [&mut client]);
    let outcomes = rig.outcomes(&mut client);
    let accepted = |state: &Option<DeliveryState>| *state == Some(DeliveryState::Accepted);
    let taken = outcomes.iter().filter(|(_, state)| accepted(state)).count();
    assert!(outcomes.len() == 20 && (5..10).contains(&taken), "{taken} of {outcomes:?}");
    // Gets go on, and nothing waits behind what was refused.
    rig.credit(&mut client, receiver, 20);
    let got = rig.received_whole(&mut client);
    assert_eq!(got.len(), taken);
    rig.settle(&mut client, got[0].delivery, DeliveryState::Accepted);
    rig.log.bytes_max.set(None);
    rig.send(&mut client, sender, 20, message("again").durable());
    assert_eq!(rig.outcomes(&mut client), [(20, Some(DeliveryState::Accepted))]);
}

#[test]
fn a_unit_that_does_not_fit_before_the_reserve_is_refused_as_a_whole() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let unit = rig.declare(&mut client);
    let begins = rig.log.tail.get() + 100_000;
    for number in 0..10 {
        let text = "x".repeat(10_000);
        rig.send_in(&mut client, sender, number, message(&text).durable(), &unit);
    }
    rig.log.bytes_max.set(Some(begins));
    let outcome = rig.discharge(&mut client, &unit, false);
    assert!(matches!(outcome, Some(DeliveryState::Rejected { .. })), "{outcome:?}");
    assert!(rig.log.tail.get() < begins, "the reserve is touched");
    // What is smaller fits still.
    rig.send(&mut client, sender, 30, message("small").durable());
    let outcomes = rig.outcomes(&mut client);
    assert_eq!(outcomes.last(), Some(&(30, Some(DeliveryState::Accepted))));
}

#[test]
fn what_only_looks_is_answered_while_a_get_waits_for_the_last_free_space() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    // Even the reserve is used up.
    rig.log.full.set(true);
    rig.settle(&mut client, got[0].delivery, DeliveryState::Accepted);
    let status: Status = serde_json::from_str(&rig.administer("status", "")).unwrap();
    assert_eq!(status.queues.len(), 1);
    assert!(rig.administer("mqsc", "DISPLAY QLOCAL(Q)").contains("Q"));
    // It goes on by itself at the next tick.
    rig.log.full.set(false);
    let before = Lsn(rig.log.tail.get());
    rig.instance.step(rig.now, Input::Tick, &rig.log, &mut rig.out);
    assert!(Lsn(rig.log.tail.get()) > before, "the get is logged");
}

impl Rig {
    /// The answer to an administrator; it must come at once.
    fn administer(&mut self, kind: &str, text: &str) -> String {
        let connection = towline_core::ConnectionId(0);
        let (kind, text) = (kind.into(), text.into());
        let mut requests = vec![Request::Admin { token: 0, kind, text, owner: true }];
        let input = Input::Requests { connection, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        let answered = self.out.routed.iter().position(|routed| routed.connection == connection);
        match self.out.routed.remove(answered.expect("no answer came")).response {
            Response::Admin(reply) => reply.json,
            other => panic!("not an answer: {other:?}"),
        }
    }
}
