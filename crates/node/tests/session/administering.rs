//! Administration requests that the surroundings carry out, beside the clients.

use towline_amqp::codec::Value;
use towline_amqp::sections::{MessageBuilder, MessageId, Properties};
use towline_amqp::types::DeliveryState;
use towline_core::{ConnectionId, Principal};
use towline_node::{AnswerWaits, Chore, Input, Request};
use towline_types::{Payload, limits};

use crate::rig::Rig;
use crate::text::message;

fn script(text: &str) -> Payload {
    let correlation_id = Some(MessageId::String("1"));
    let request = MessageBuilder::new()
        .properties(Properties { correlation_id, ..Properties::default() })
        .application_property("kind", Value::String("mqsc"));
    Payload::from(request.value(Value::String(text)))
}

impl Rig {
    /// The oldest chore is done.
    fn do_chore(&mut self, changed: bool) -> Chore {
        let chore = self.out.chores.remove(0);
        let waits = AnswerWaits::of_script(changed);
        let done = Input::ChoreDone { ticket: chore.ticket, json: "{}".into(), waits };
        self.instance.step(self.now, done, &self.log, &mut self.out);
        chore
    }

    /// The same, with this answer.
    fn do_chore_with(&mut self, json: &str) {
        let ticket = self.out.chores.remove(0).ticket;
        let waits = AnswerWaits::Objects;
        let done = Input::ChoreDone { ticket, json: json.into(), waits };
        self.instance.step(self.now, done, &self.log, &mut self.out);
    }
}

#[test]
fn a_client_has_so_many_administration_requests_waiting_and_no_more() {
    const MOST: usize = limits::ADMIN_REQUESTS_WAITING_MAX as usize;
    let mut rig = Rig::new();
    rig.instance.administer_outside();
    let mut client = rig.connect();
    let link = rig.sender(&mut client, "$admin");
    let all: Vec<String> =
        (0..3 * MOST).map(|number| format!("DISPLAY QLOCAL({number})")).collect();
    let mut unsent = all.iter().zip(0..).peekable();
    let mut done = Vec::new();
    while done.len() < all.len() {
        while unsent.peek().is_some() && rig.allowance(&client, link) > 0 {
            let (text, key) = unsent.next().unwrap();
            rig.send_content(&mut client, link, key, script(text));
        }
        let waiting = MOST.min(all.len() - done.len());
        assert_eq!(rig.out.chores.len(), waiting, "after {}", done.len());
        done.push(rig.do_chore(false).text);
        rig.exchange(&mut client);
    }
    assert_eq!(done, all, "in order");
}

#[test]
fn the_answer_to_a_script_that_changed_something_waits_for_the_log_and_a_full_log_keeps_no_other() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.instance.administer_outside();
    let mut client = rig.connect();
    let (admin, sender) = (rig.sender(&mut client, "$admin"), rig.sender(&mut client, "Q"));
    rig.hold_log();
    rig.send(&mut client, sender, 7, message("x").durable());
    rig.send_content(&mut client, admin, 1, script("DISPLAY QMGR"));
    rig.do_chore(true);
    rig.exchange(&mut client);
    assert_eq!(rig.outcomes(&mut client), [], "what it says may be lost still");
    rig.send_content(&mut client, admin, 2, script("DISPLAY QMGR"));
    rig.do_chore(false);
    rig.exchange(&mut client);
    let answered: Vec<u64> = rig.outcomes(&mut client).iter().map(|(key, _)| *key).collect();
    assert_eq!(answered, [2], "it says nothing of messages");
    rig.release_log(&mut [&mut client]);
    assert_eq!(rig.outcomes(&mut client).len(), 2);
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    rig.log.full.set(true);
    rig.settle(&mut client, got[0].delivery, DeliveryState::Accepted);
    rig.send_content(&mut client, admin, 1, script("DISPLAY QMGR"));
    rig.do_chore(false);
    rig.exchange(&mut client);
    assert_eq!(rig.outcomes(&mut client).len(), 1, "an operator looks before making room");
}

#[test]
fn a_client_that_does_not_read_its_answers_gets_no_credit_for_more_requests() {
    const MOST: usize = limits::ADMIN_REQUESTS_WAITING_MAX as usize;
    let mut rig = Rig::new();
    rig.instance.administer_outside();
    let mut client = rig.connect();
    let (link, replies) = (rig.sender(&mut client, "$admin"), rig.receiver(&mut client, "$admin"));
    let mut sent = 0;
    while rig.allowance(&client, link) > 0 {
        assert!(sent < MOST as u64, "more than are read");
        rig.send_content(&mut client, link, sent, script("DISPLAY QMGR"));
        rig.do_chore(false);
        rig.exchange(&mut client);
        sent += 1;
    }
    assert!(client.account().replies > 0);
    rig.credit(&mut client, replies, 100);
    assert_eq!(rig.received_whole(&mut client).len() as u64, sent);
    assert_eq!(rig.allowance(&client, link) as usize, MOST);
    assert_eq!(client.account().replies, 0);
}

#[test]
fn an_answer_that_has_a_link_is_not_lost_however_long_it_is() {
    let mut rig = Rig::new();
    rig.connection_bytes_max = 10_000;
    rig.instance.administer_outside();
    let mut client = rig.connect();
    let (link, replies) = (rig.sender(&mut client, "$admin"), rig.receiver(&mut client, "$admin"));
    let mut sent = 0;
    while rig.allowance(&client, link) > 0 {
        rig.send_content(&mut client, link, sent, script("DISPLAY QMGR"));
        rig.do_chore_with(&"x".repeat(3_000));
        rig.exchange(&mut client);
        sent += 1;
    }
    assert_eq!(sent, u64::from(limits::ADMIN_REQUESTS_WAITING_MAX));
    rig.credit(&mut client, replies, 100);
    assert_eq!(rig.received_whole(&mut client).len() as u64, sent);
    assert!(rig.allowance(&client, link) > 0, "it may ask again");
}

#[test]
fn a_script_is_run_on_behalf_of_the_user_that_logged_in_on_its_connection() {
    let mut rig = Rig::new();
    rig.instance.administer_outside();
    for (number, user) in [(90, Some("alice")), (91, None)] {
        let connected = Request::Connected {
            container: number.to_string(),
            user: user.map(str::to_owned),
            address: "here".into(),
            sole: false,
        };
        let (kind, text) = ("mqsc".into(), "DISPLAY QMGR".into());
        let script = Request::Admin { token: 0, kind, text, owner: false };
        let connection = ConnectionId(number);
        let requests = &mut vec![connected, script];
        let input = Input::Requests { connection, requests };
        rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
        assert_eq!(rig.do_chore(false).principal, Principal::of_client(user));
    }
}
