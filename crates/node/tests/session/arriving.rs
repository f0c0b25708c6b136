//! Messages and links that are refused, and how the peer hears of it.

use towline_amqp::codec::{Symbols, Value};
use towline_amqp::sections::{MessageBuilder, Properties};
use towline_amqp::types::{
    CoordinatorCommand, Declare, DeliveryState, Error, ExpiryPolicy, LinkTarget, Role, Source,
    Symbol, Target, TerminusDurability, condition,
};
use towline_amqp::{AttachRequest, LinkId, Outgoing, coordinator};
use towline_types::{Payload, limits};

use super::rig::{Client, Got, Rig};
use super::text::message;

fn symbols(symbols: &[&str]) -> Symbols {
    symbols.iter().copied().collect()
}

fn target(address: Option<&str>, capabilities: &[&str], dynamic: bool) -> Target {
    let address = address.map(Into::into);
    Target { address, capabilities: symbols(capabilities), dynamic, ..Target::default() }
}

fn to(target: Target) -> impl FnOnce(&mut AttachRequest) {
    |request| request.target = Some(Box::new(LinkTarget::Target(target)))
}

fn from(source: Source) -> impl FnOnce(&mut AttachRequest) {
    |request| request.source = Some(Box::new(source))
}

/// A message that names its destination, and what kind of one.
fn directed(to: Option<&str>, kind: Option<i8>) -> Outgoing {
    let mut builder = MessageBuilder::new().properties(Properties { to, ..Properties::default() });
    if let Some(kind) = kind {
        builder = builder.message_annotation("x-opt-jms-dest", Value::Byte(kind));
    }
    let content = Payload::from(builder.value(Value::String("x")));
    Outgoing { content, ..Outgoing::default() }
}

fn settled(outgoing: Outgoing) -> Outgoing {
    Outgoing { settled: true, ..outgoing }
}

fn ends(client: &Client, link: LinkId, condition: &Symbol) -> Error {
    let error = Rig::ending(client, link).expect("the end of the link");
    assert_eq!(error.condition, *condition, "{error:?}");
    error
}

fn says_topics(error: &Error) {
    let text = error.description.as_deref().unwrap_or_default();
    assert!(text.contains("topics are not supported yet"), "{text}");
}

fn tag_in(error: &Error) -> Option<u64> {
    match error.fields.get("delivery-tag") {
        Some(Value::Binary(tag)) => Some(u64::from_be_bytes(tag.try_into().unwrap())),
        _ => None,
    }
}

// AMQP JMS binding, 3.2.1 and 5: capabilities and addresses of topics.
#[test]
fn a_link_to_or_from_a_topic_is_refused() {
    let mut rig = Rig::new();
    rig.define("T");
    rig.mqsc("DEFINE QMODEL('SYSTEM.DEFAULT.MODEL.QUEUE') DEFTYPE(TEMPDYN)");
    let mut client = rig.connect();
    for (address, capability, dynamic) in [
        (Some("T"), "topic", false),
        (Some("T"), "temporary-topic", false),
        (Some("queue://T"), "topic", false),
        (Some("topic://T"), "queue", false),
        (Some("temp-topic://T"), "queue", false),
        (None, "temporary-topic", true),
        (None, "topic", true),
    ] {
        let end = target(address, &[capability], dynamic);
        let source = Source {
            address: end.address.clone(),
            capabilities: end.capabilities.clone(),
            dynamic,
            ..Source::default()
        };
        let sender = rig.any_link(&mut client, Role::Sender, to(end));
        says_topics(&ends(&client, sender, &condition::NOT_IMPLEMENTED));
        let receiver = rig.any_link(&mut client, Role::Receiver, from(source));
        says_topics(&ends(&client, receiver, &condition::NOT_IMPLEMENTED));
    }
}

// AMQP JMS binding, 5.5: shared and durable subscriptions.
#[test]
fn a_subscription_is_refused_whatever_its_address() {
    let mut rig = Rig::new();
    rig.define("T");
    let mut client = rig.connect();
    let source = || Source { address: Some("T".into()), ..Source::default() };
    let durable = Source {
        durable: TerminusDurability::UnsettledState,
        expiry_policy: ExpiryPolicy::Never,
        ..source()
    };
    let shared = Source { capabilities: symbols(&["shared"]), ..source() };
    let global = Source { capabilities: symbols(&["queue", "global"]), ..source() };
    for source in [durable, shared, global] {
        let receiver = rig.any_link(&mut client, Role::Receiver, from(source));
        says_topics(&ends(&client, receiver, &condition::NOT_IMPLEMENTED));
    }
    let receiver = rig.any_link(&mut client, Role::Receiver, |request| request.source = None);
    says_topics(&ends(&client, receiver, &condition::NOT_FOUND));
    let receiver = rig.any_link(&mut client, Role::Receiver, from(source()));
    assert_eq!(Rig::ending(&client, receiver), None, "a queue is no subscription");
}

// AMQP JMS binding, 3.2.1: x-opt-jms-dest of a message on a link without target.
#[test]
fn a_message_to_a_topic_is_rejected_on_an_anonymous_link() {
    let mut rig = Rig::new();
    rig.define("T");
    let mut client = rig.connect();
    let sender = rig.anonymous_sender(&mut client);
    for (to, kind) in
        [("T", Some(1)), ("T", Some(3)), ("topic://T", None), ("temp-topic://T", Some(0))]
    {
        rig.send_raw(&mut client, sender, 7, directed(Some(to), kind));
        let error = rig.rejection(&mut client);
        assert_eq!(error.condition, condition::NOT_IMPLEMENTED);
        says_topics(&error);
        assert_eq!(tag_in(&error), Some(7));
    }
    rig.send_raw(&mut client, sender, 8, directed(Some("T"), Some(0)));
    assert_eq!(rig.outcomes(&mut client), [(8, Some(DeliveryState::Accepted))]);
    rig.send_raw(&mut client, sender, 9, settled(directed(Some("T"), Some(1))));
    says_topics(&ends(&client, sender, &condition::NOT_IMPLEMENTED));
}

// Anonymous Terminus for Message Routing, 2.2.2.
#[test]
fn what_an_anonymous_link_cannot_route_is_rejected_with_its_delivery_tag() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let sender = rig.anonymous_sender(&mut client);
    for (key, to, condition) in [
        (3, Some("NOWHERE"), condition::NOT_FOUND),
        (4, None, condition::INVALID_FIELD),
        (5, Some(""), condition::INVALID_FIELD),
    ] {
        rig.send_raw(&mut client, sender, key, directed(to, None));
        let error = rig.rejection(&mut client);
        assert_eq!((&error.condition, tag_in(&error)), (&condition, Some(key)));
    }
    assert_eq!(Rig::ending(&client, sender), None);
}

#[test]
fn what_an_anonymous_link_cannot_route_and_was_settled_detaches_it() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    for (to, condition) in
        [(Some("NOWHERE"), condition::NOT_FOUND), (None, condition::INVALID_FIELD)]
    {
        let sender = rig.anonymous_sender(&mut client);
        rig.send_raw(&mut client, sender, 6, settled(directed(to, None)));
        assert_eq!(tag_in(&ends(&client, sender, &condition)), Some(6));
    }
}

// Anonymous Terminus for Message Routing, 2.2.2: in a unit of work the discharge says so.
#[test]
fn what_cannot_be_routed_and_was_settled_in_a_unit_of_work_fails_its_commit_and_keeps_the_link() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.anonymous_sender(&mut client);
    let [unit, second] = [rig.declare(&mut client), rig.declare(&mut client)];
    for (key, to, unit) in [(1, "Q", unit), (2, "NOWHERE", unit), (3, "NOWHERE", second)] {
        let state = Some(DeliveryState::Transactional { txn_id: unit, outcome: None });
        let lost = Outgoing { state, ..settled(directed(Some(to), None)) };
        rig.send_raw(&mut client, sender, key, lost);
    }
    assert_eq!(Rig::ending(&client, sender), None);
    let Some(DeliveryState::Rejected { error: Some(error) }) =
        rig.discharge(&mut client, &unit, false)
    else {
        panic!("a commit without a message that was sent in it")
    };
    assert_eq!(error.condition, condition::TRANSACTION_ROLLBACK);
    let accepted = ["amqp:accepted:list"];
    let (link, outcome) = rig.discharge_knowing(&mut client, &second, &accepted);
    assert_eq!(outcome, None, "the controller does not know `rejected`");
    ends(&client, link, &condition::TRANSACTION_ROLLBACK);
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), []);
}

#[test]
fn a_source_without_rejected_hears_of_a_refusal_by_the_end_of_its_link() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.mqsc("ALTER QLOCAL('Q') PUT(DISABLED)");
    let mut client = rig.connect();
    let poor = || Source {
        outcomes: symbols(&["amqp:accepted:list", "amqp:released:list"]),
        ..Source::default()
    };
    let sender = rig.any_link(&mut client, Role::Sender, from(poor()));
    rig.send_raw(&mut client, sender, 1, directed(Some("NOWHERE"), None));
    assert_eq!(tag_in(&ends(&client, sender, &condition::NOT_FOUND)), Some(1));
    let sender = rig.any_link(&mut client, Role::Sender, |request| {
        from(poor())(request);
        to(target(Some("Q"), &[], false))(request);
    });
    rig.send(&mut client, sender, 1, message("x"));
    assert_eq!(tag_in(&ends(&client, sender, &condition::NOT_ALLOWED)), None);
    assert_eq!(rig.outcomes(&mut client), [], "no outcome that it does not know");
}

#[test]
fn a_long_message_is_lost_with_its_link_when_that_ends_before_it_is_checked() {
    let mut rig = Rig::new();
    ["Q", "OTHER"].iter().for_each(|queue| rig.define(queue));
    let mut client = rig.connect();
    let mut other = rig.connect();
    let unit = rig.declare(&mut client);
    let sender = rig.any_link(&mut client, Role::Sender, |request| {
        let outcomes = symbols(&["amqp:accepted:list"]);
        from(Source { outcomes, ..Source::default() })(request);
        to(target(Some("Q"), &[], false))(request);
    });
    rig.mqsc("ALTER QLOCAL('Q') PUT(DISABLED)");
    let state = Some(DeliveryState::Transactional { txn_id: unit, outcome: None });
    let content = message(&"x".repeat(2 * limits::CHECKED_AT_ONCE_BYTES_MAX)).encode();
    let long = Outgoing { content, state, ..Outgoing::default() };
    let check = rig.send_unchecked(&mut client, sender, [directed(None, None), long]);
    // The producer of the link is closed, and its id is another client's by now.
    let others = rig.sender(&mut other, "OTHER");
    rig.checked(&mut client, check);
    ends(&client, sender, &condition::NOT_ALLOWED);
    let outcome = rig.discharge(&mut client, &unit, false);
    assert!(matches!(outcome, Some(DeliveryState::Rejected { .. })), "{outcome:?}");
    rig.send(&mut other, others, 1, message("its own"));
    let receiver = rig.receiver(&mut other, "OTHER");
    rig.credit(&mut other, receiver, 5);
    assert_eq!(rig.received(&mut other), [Got::text("its own")]);
}

#[test]
fn a_long_message_that_names_its_queue_is_lost_with_its_link_as_well() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.any_link(&mut client, Role::Sender, |request| {
        let outcomes = symbols(&["amqp:accepted:list"]);
        from(Source { outcomes, ..Source::default() })(request);
    });
    let text = "x".repeat(2 * limits::CHECKED_AT_ONCE_BYTES_MAX);
    let properties = Properties { to: Some("Q"), ..Properties::default() };
    let builder = MessageBuilder::new().properties(properties);
    let content = Payload::from(builder.value(Value::String(&text)));
    let long = Outgoing { content, ..Outgoing::default() };
    let check = rig.send_unchecked(&mut client, sender, [directed(Some("NOWHERE"), None), long]);
    rig.checked(&mut client, check);
    ends(&client, sender, &condition::NOT_FOUND);
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), []);
}

#[test]
fn a_settled_message_to_a_queue_that_refuses_it_ends_nothing() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.mqsc("ALTER QLOCAL('Q') PUT(DISABLED)");
    rig.send_raw(&mut client, sender, 1, settled(directed(None, None)));
    assert_eq!(Rig::ending(&client, sender), None);
}

// 3.2: a message has a body; nothing at all is no message. 2.8.11: formats.
#[test]
fn what_is_no_message_is_rejected_and_the_link_goes_on() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send_raw(&mut client, sender, 1, Outgoing::default());
    assert_eq!(rig.rejection(&mut client).condition, condition::DECODE_ERROR);
    rig.send(&mut client, sender, 2, message("batch").format(0x8001_3700));
    let error = rig.rejection(&mut client);
    assert_eq!(error.condition, condition::NOT_IMPLEMENTED);
    assert!(error.description.unwrap_or_default().contains("0x80013700"));
    rig.send(&mut client, sender, 3, message("whole"));
    assert_eq!(rig.outcomes(&mut client), [(3, Some(DeliveryState::Accepted))]);
    rig.send_raw(&mut client, sender, 4, settled(Outgoing::default()));
    ends(&client, sender, &condition::DECODE_ERROR);
}

// 2.7.3, max-message-size: one message too long does not end its producer.
#[test]
fn a_message_that_is_too_long_is_rejected_and_says_whose_limit_it_met() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.mqsc("ALTER QLOCAL('Q') MAXMSGL(1000)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for (key, bytes) in [(1, 1_001), (2, 70_000), (3, 300_000)] {
        rig.send(&mut client, sender, key, message(&"x".repeat(bytes)));
        let error = rig.rejection(&mut client);
        assert_eq!(error.condition, condition::MESSAGE_SIZE_EXCEEDED);
        let text = error.description.unwrap_or_default();
        assert!(text.contains("MAXMSGL(1000) of queue 'Q'"), "{text}");
    }
    rig.send(&mut client, sender, 4, message(&"x".repeat(1_000)));
    assert_eq!(rig.outcomes(&mut client), [(4, Some(DeliveryState::Accepted))], "exactly as long");
    let outgoing =
        || Outgoing { content: message(&"x".repeat(70_000)).encode(), ..Outgoing::default() };
    rig.send_raw(&mut client, sender, 5, settled(outgoing()));
    ends(&client, sender, &condition::MESSAGE_SIZE_EXCEEDED);
}

#[test]
fn a_unit_cannot_commit_without_a_message_that_was_too_long() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.mqsc("ALTER QLOCAL('Q') MAXMSGL(1000)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let [unit, other] = [rig.declare(&mut client), rig.declare(&mut client)];
    rig.send_in(&mut client, sender, 1, message("one").durable(), &unit);
    rig.send_in(&mut client, sender, 2, message("other").durable(), &other);
    rig.send_in(&mut client, sender, 3, message(&"x".repeat(70_000)).durable(), &unit);
    let outcome = rig.discharge(&mut client, &unit, false);
    assert!(matches!(outcome, Some(DeliveryState::Rejected { .. })), "{outcome:?}");
    assert_eq!(rig.discharge(&mut client, &other, false), Some(DeliveryState::Accepted));
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), [Got::text("other")]);
}

#[test]
fn a_coordinator_gets_its_credit_once_and_again_when_half_of_it_is_used() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let link = rig.coordinator(&mut client);
    assert_eq!(Rig::flows(&client, link), 1);
    let command = CoordinatorCommand::Declare(Declare);
    for declared in 1..=50 {
        let content = Payload::from(coordinator::message(&command));
        rig.send_raw(&mut client, link, declared, Outgoing { content, ..Outgoing::default() });
        let wanted = if declared < 50 { 1 } else { 2 };
        assert_eq!(Rig::flows(&client, link), wanted, "after {declared}");
    }
}
