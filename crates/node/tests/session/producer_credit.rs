//! Credit of producers: withheld while the log is behind, and shared by the links of a connection.

use towline_amqp::LinkId;
use towline_types::limits;

use crate::rig::{Client, Rig};
use crate::text::message;

const WHOLE: u32 = limits::PRODUCER_CREDIT;
/// More than half of it, so that credit is due again.
const MOST: u64 = WHOLE as u64 / 2 + 100;

fn one_producer() -> (Rig, Client, LinkId) {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    (rig, client, sender)
}

fn send_most(rig: &mut Rig, client: &mut Client, sender: LinkId, durable: bool) {
    for key in 0..MOST {
        let text = message("x");
        rig.send(client, sender, key, if durable { text.durable() } else { text });
    }
}

#[test]
fn a_producer_of_persistent_messages_gets_credit_again_when_the_log_has_caught_up() {
    let (mut rig, mut client, sender) = one_producer();
    assert_eq!(client.sender_credit(sender), WHOLE);
    rig.log_behind(&mut client, true);
    send_most(&mut rig, &mut client, sender, true);
    assert_eq!(rig.outcomes(&mut client).len() as u64, MOST);
    assert_eq!(u64::from(client.sender_credit(sender)), u64::from(WHOLE) - MOST);
    assert!(client.is_slowed());
    rig.log_behind(&mut client, false);
    assert_eq!(client.sender_credit(sender), WHOLE);
    assert!(!client.is_slowed());
}

#[test]
fn a_producer_of_messages_that_are_not_logged_is_not_slowed() {
    let (mut rig, mut client, sender) = one_producer();
    rig.log_behind(&mut client, true);
    send_most(&mut rig, &mut client, sender, false);
    assert!(client.sender_credit(sender) > WHOLE / 2);
    assert!(!client.is_slowed());
}

#[test]
fn a_link_that_ends_while_it_waits_for_credit_is_forgotten() {
    let (mut rig, mut client, sender) = one_producer();
    rig.log_behind(&mut client, true);
    send_most(&mut rig, &mut client, sender, true);
    rig.detach(&mut client, sender);
    rig.log_behind(&mut client, false);
    assert!(!client.is_slowed());
}

#[test]
fn the_links_of_a_connection_share_its_credit() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let all = limits::CREDIT_OF_CONNECTION_MAX;
    let few = all / WHOLE;
    for _ in 0..few {
        let sender = rig.sender(&mut client, "Q");
        assert_eq!(client.sender_credit(sender), WHOLE);
    }
    let mut last = rig.sender(&mut client, "Q");
    assert_eq!(client.sender_credit(last), all / (few + 1));
    let many = all / limits::PRODUCER_CREDIT_MIN + 10;
    for _ in few + 1..many {
        last = rig.sender(&mut client, "Q");
    }
    assert_eq!(client.sender_credit(last), limits::PRODUCER_CREDIT_MIN);
}
