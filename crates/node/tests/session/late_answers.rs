//! Answers of the instance that come when the link that asked is gone.

use towline_core::{ConsumerId, MessageSequence, Outcome, Refusal};
use towline_node::{Request, Response};

use crate::rig::Rig;

/// The opening of a link does not wait for what another link asked for before it.
#[test]
fn the_answer_to_a_link_that_is_gone_is_not_taken_for_one_to_the_link_in_its_slot() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let (first, token) = rig.receiver_by_token(&mut client, ConsumerId(1));
    let asked = rig.asked_at_detach(&mut client, first);
    assert!(matches!(asked[..], [Request::CloseConsumer { consumer: ConsumerId(1), .. }]));
    let (second, later) = rig.receiver_by_token(&mut client, ConsumerId(2));
    assert_ne!(token, later);
    let refused = |link| Response::Settled {
        link,
        sequence: MessageSequence(1),
        unit: None,
        outcome: Outcome::Accepted,
        result: Err(Refusal::UnknownUnit),
    };
    assert!(rig.asked_after(&mut client, refused(token)).is_empty(), "nothing asks any more");
    let asked = rig.asked_after(&mut client, refused(later));
    assert!(matches!(asked[..], [Request::CloseConsumer { consumer: ConsumerId(2), .. }]));
    assert!(rig.asked_at_detach(&mut client, second).is_empty(), "it is detached already");
}
