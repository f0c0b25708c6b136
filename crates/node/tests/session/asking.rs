//! What connections and links ask for, and what they are promised.

use std::sync::Arc;

use towline_amqp::codec::{Map, OwnedValue, Reader, Value};
use towline_amqp::types::{
    DistributionMode, ExpiryPolicy, LinkTarget, Role, Source, Target, TerminusDurability, condition,
};
use towline_amqp::{AttachRequest, LinkId};
use towline_node::Farewell;
use towline_types::{fitting, limits};

use super::rig::{Client, Rig};
use super::text::message;

/// The open and the close of a connection with the container id of another one (AMQP JMS binding).
fn assert_container_id_refused(client: &Client) {
    let error = Rig::closing(client).expect("a refusal");
    assert_eq!(error.condition, condition::INVALID_FIELD);
    assert_eq!(error.fields.get("invalid-field"), Some(Value::Symbol("container-id")));
    let denied = Rig::open_properties(client).get("amqp:connection-establishment-failed");
    assert_eq!(denied, Some(Value::Bool(true)));
}

// AMQP JMS binding: a client id is a container id, and a connection that asks to be its only one
// is.
#[test]
fn a_second_connection_of_a_client_id_is_refused_until_the_first_one_is_gone() {
    let mut rig = Rig::new();
    let first = rig.connect_as("client", true);
    assert_eq!(Rig::closing(&first), None);
    let second = rig.connect_as("client", true);
    assert_container_id_refused(&second);
    rig.lose(second);
    let still = rig.connect_as("client", true);
    assert!(Rig::closing(&still).is_some(), "the refused one did not free the id of the first");
    let another = rig.connect_as("another client", true);
    assert_eq!(Rig::closing(&another), None);
    rig.lose(first);
    let mut third = rig.connect_as("client", true);
    assert_eq!(Rig::closing(&third), None);
    rig.define("Q");
    let sender = rig.sender(&mut third, "Q");
    rig.send(&mut third, sender, 1, message("served"));
    assert_eq!(rig.outcomes(&mut third).len(), 1);
}

#[test]
fn a_connection_that_does_not_ask_to_be_alone_is_let_in_and_counts() {
    let mut rig = Rig::new();
    let [first, second] = [rig.connect_as("client", false), rig.connect_as("client", false)];
    assert_eq!((Rig::closing(&first), Rig::closing(&second)), (None, None));
    rig.lose(first);
    let sole = rig.connect_as("client", true);
    assert!(Rig::closing(&sole).is_some(), "the second one is still there");
    rig.lose(second);
    let sole = rig.connect_as("client", true);
    assert_eq!(Rig::closing(&sole), None);
}

// Enforcing Connection Uniqueness: strong detection.
#[test]
fn a_connection_that_does_not_ask_to_be_alone_is_refused_beside_one_that_did() {
    let mut rig = Rig::new();
    let sole = rig.connect_as("client", true);
    let second = rig.connect_as("client", false);
    assert_container_id_refused(&second);
    rig.lose(second);
    rig.lose(sole);
    let [third, fourth] = [rig.connect_as("client", false), rig.connect_as("client", false)];
    assert_eq!((Rig::closing(&third), Rig::closing(&fourth)), (None, None));
}

fn described(descriptor: Value<'_>, value: Value<'_>) -> Map {
    let policy = OwnedValue::described(descriptor, value);
    Map::default().with("lifetime-policy", policy.view()).with("x-colour", Value::String("red"))
}

fn dynamic(wishes: Map) -> Source {
    Source { dynamic: true, dynamic_node_properties: wishes, ..Source::default() }
}

fn address_of(client: &Client, receiver: LinkId) -> String {
    let source = Rig::answer(client, receiver).source.as_deref().expect("a source");
    source.address.as_deref().expect("an address").to_owned()
}

fn rig_with_model() -> Rig {
    let mut rig = Rig::new();
    rig.mqsc("DEFINE QMODEL('SYSTEM.DEFAULT.MODEL.QUEUE') DEFTYPE(TEMPDYN)");
    rig
}

// 3.5.9 to 3.5.13: what is answered is what is kept.
#[test]
fn every_lifetime_is_answered_with_delete_on_close_and_other_wishes_are_not_repeated() {
    let nothing = OwnedValue::list(&[]);
    let promised = |properties: &Map| {
        let Some(Value::Described(policy)) = properties.get("lifetime-policy") else {
            panic!("no lifetime in {properties:?}")
        };
        assert_eq!(policy.descriptor(), Value::Ulong(0x2b));
        assert_eq!(properties.get("x-colour"), None);
    };
    let wishes = [
        Map::default(),
        described(Value::Ulong(0x2b), nothing.view()),
        described(Value::Ulong(0x2e), nothing.view()),
        described(Value::Symbol("amqp:delete-on-no-links:list"), nothing.view()),
    ];
    for wish in wishes {
        let mut rig = rig_with_model();
        let mut client = rig.connect();
        let receiver = rig.any_link(&mut client, Role::Receiver, |request| {
            request.source = Some(Box::new(dynamic(wish.clone())));
        });
        let answer = Rig::answer(&client, receiver).source.as_deref().unwrap();
        promised(&answer.dynamic_node_properties);
        let sender = rig.any_link(&mut client, Role::Sender, |request| {
            let target =
                Target { dynamic: true, dynamic_node_properties: wish, ..Target::default() };
            request.target = Some(Box::new(LinkTarget::Target(target)));
        });
        let Some(LinkTarget::Target(answer)) = Rig::answer(&client, sender).target.as_deref()
        else {
            panic!("a target")
        };
        promised(&answer.dynamic_node_properties);
    }
}

/// Sends durable messages to a dynamic queue, all of which are with its consumer when that is
/// detached or lost. Yields the queue.
fn leaves_behind(rig: &mut Rig, messages: u64, lost: bool) -> String {
    let mut client = rig.connect();
    let (receiver, address) = rig.dynamic_receiver(&mut client);
    let answer = Rig::answer(&client, receiver).source.as_deref().unwrap();
    let promised = answer.dynamic_node_properties.get("lifetime-policy").is_some();
    let mut other = rig.connect();
    let sender = rig.sender(&mut other, &address);
    for number in 0..messages {
        rig.send(&mut other, sender, number, message("kept").durable());
    }
    rig.credit(&mut client, receiver, fitting(messages));
    assert_eq!(rig.received(&mut client).len() as u64, messages);
    if !lost {
        rig.detach(&mut client, receiver);
    }
    assert_eq!(exists(rig, &address), !promised || lost, "the promise is kept");
    rig.lose(client);
    rig.lose(other);
    assert_eq!(exists(rig, &address), !promised);
    address
}

// IBM MQ, DEFTYPE: a permanent dynamic queue is there until it is deleted.
#[test]
fn a_permanent_dynamic_queue_stays_with_all_that_its_link_had_and_no_lifetime_is_promised() {
    for messages in [1, limits::RETURNED_AT_ONCE_MAX as u64 + 1] {
        for lost in [false, true] {
            let mut rig = Rig::new();
            rig.mqsc("DEFINE QMODEL('SYSTEM.DEFAULT.MODEL.QUEUE') DEFTYPE(PERMDYN)");
            let address = leaves_behind(&mut rig, messages, lost);
            let mut client = rig.connect();
            let receiver = rig.receiver(&mut client, &address);
            rig.credit(&mut client, receiver, fitting(messages));
            assert_eq!(rig.received(&mut client).len() as u64, messages);
        }
    }
}

#[test]
fn a_temporary_dynamic_queue_goes_with_its_link_whatever_that_had() {
    for messages in [1, limits::RETURNED_AT_ONCE_MAX as u64 + 1] {
        for lost in [false, true] {
            let mut rig = rig_with_model();
            let address = leaves_behind(&mut rig, messages, lost);
            assert!(!exists(&mut rig, &address));
        }
    }
}

#[test]
fn a_lifetime_that_is_none_refuses_the_link() {
    let nothing = OwnedValue::list(&[]);
    let mut rig = rig_with_model();
    let mut client = rig.connect();
    for wish in [
        Map::default().with("lifetime-policy", Value::String("for ever")),
        described(Value::Ulong(0x2f), nothing.view()),
        described(Value::Symbol("amqp:delete-never:list"), nothing.view()),
        described(Value::Ulong(0x2b), Value::Uint(1)),
    ] {
        let receiver = rig.any_link(&mut client, Role::Receiver, |request| {
            request.source = Some(Box::new(dynamic(wish)));
        });
        let error = Rig::ending(&client, receiver).expect("a refusal");
        assert_eq!(error.condition, condition::INVALID_FIELD, "{error:?}");
    }
}

// 3.5.9: supported-dist-modes is a symbol, or several.
#[test]
fn distribution_modes_of_another_type_refuse_the_link() {
    let mut rig = rig_with_model();
    let mut client = rig.connect();
    let mut asked = |modes: Value<'_>| {
        let wish = Map::default().with("supported-dist-modes", modes);
        let target = Target { dynamic: true, dynamic_node_properties: wish, ..Target::default() };
        let sender = rig.any_link(&mut client, Role::Sender, |request| {
            request.target = Some(Box::new(LinkTarget::Target(target)));
        });
        Rig::ending(&client, sender).map(|error| error.condition)
    };
    for wrong in [Value::Uint(0), Value::String("move"), Value::Bool(true)] {
        assert_eq!(asked(wrong), Some(condition::INVALID_FIELD));
    }
    assert_eq!(asked(Value::Symbol("move")), None);
    let several =
        OwnedValue::decode(&mut Reader::new(b"\xe0\x0c\x02\xa3\x04move\x04copy")).unwrap();
    assert_eq!(asked(several.view()), None);
    let numbers = OwnedValue::decode(&mut Reader::new(b"\xe0\x04\x02\x50\x00\x01")).unwrap();
    assert_eq!(asked(numbers.view()), Some(condition::INVALID_FIELD));
}

#[test]
fn a_node_that_is_not_dynamic_promises_no_lifetime() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let nothing = OwnedValue::list(&[]);
    let receiver = rig.any_link(&mut client, Role::Receiver, |request| {
        request.source = Some(Box::new(Source {
            address: Some("Q".into()),
            dynamic: false,
            ..dynamic(described(Value::Ulong(0x2b), nothing.view()))
        }));
    });
    let answer = Rig::answer(&client, receiver).source.as_deref().unwrap();
    assert_eq!(answer.dynamic_node_properties, Map::default());
}

// AMQP JMS binding, 5.3: a temporary queue is consumed by the connection that made it.
#[test]
fn another_connection_may_send_to_a_temporary_queue_and_look_but_not_consume() {
    let mut rig = rig_with_model();
    let mut owner = rig.connect();
    let made = rig.any_link(&mut owner, Role::Receiver, |request| {
        let capabilities = ["temporary-queue"].into_iter().collect();
        request.source = Some(Box::new(Source { capabilities, ..dynamic(Map::default()) }));
    });
    let address = address_of(&owner, made);
    let mut other = rig.connect();
    let source = || Source { address: Some(address.as_str().into()), ..Source::default() };
    let receiver = rig.any_link(&mut other, Role::Receiver, |request| {
        request.source = Some(Box::new(source()));
    });
    let error = Rig::ending(&other, receiver).expect("a refusal");
    assert_eq!(error.condition, condition::RESOURCE_LOCKED);
    let browser = rig.any_link(&mut other, Role::Receiver, |request| {
        request.source =
            Some(Box::new(Source { distribution_mode: Some(DistributionMode::Copy), ..source() }));
    });
    assert_eq!(Rig::ending(&other, browser), None);
    let sender = rig.sender(&mut other, &address);
    rig.send(&mut other, sender, 1, message("reply"));
    assert_eq!(rig.outcomes(&mut other).len(), 1);
    let own = rig.receiver(&mut owner, &address);
    assert_eq!(Rig::ending(&owner, own), None, "its own second consumer");
}

#[test]
fn another_connection_may_consume_from_a_dynamic_queue_that_is_not_a_temporary_one() {
    let mut rig = rig_with_model();
    let mut owner = rig.connect();
    let (made, address) = rig.dynamic_receiver(&mut owner);
    let mut other = rig.connect();
    let receiver = rig.receiver(&mut other, &address);
    let sender = rig.sender(&mut other, &address);
    rig.send(&mut other, sender, 1, message("shared"));
    rig.credit(&mut other, receiver, 1);
    assert_eq!(rig.received(&mut other).len(), 1);
    rig.detach(&mut owner, made);
    rig.exchange(&mut other);
    let error = Rig::ending(&other, receiver).expect("its queue is gone");
    assert_eq!(error.condition, condition::RESOURCE_DELETED);
}

fn named(name: &str, expiry_policy: ExpiryPolicy) -> impl FnOnce(&mut AttachRequest) {
    let source = Source { expiry_policy, ..dynamic(Map::default()) };
    let name = name.into();
    |request| {
        request.name = name;
        request.source = Some(Box::new(source));
    }
}

/// Attaches, detaches without closing, attaches again under the same name: both addresses.
fn comes_back(rig: &mut Rig, client: &mut Client, expiry: ExpiryPolicy) -> [String; 2] {
    let first = rig.any_link(client, Role::Receiver, named("link", expiry));
    let made = address_of(client, first);
    rig.suspend(client, first);
    let second = rig.any_link(client, Role::Receiver, named("link", expiry));
    let found = address_of(client, second);
    rig.detach(client, second);
    [made, found]
}

fn exists(rig: &mut Rig, queue: &str) -> bool {
    let mut client = rig.connect();
    let target = Target { address: Some(queue.into()), ..Target::default() };
    let sender = rig.any_link(&mut client, Role::Sender, |request| {
        request.target = Some(Box::new(LinkTarget::Target(target)));
    });
    let refused = Rig::ending(&client, sender).is_some();
    rig.lose(client);
    !refused
}

// 3.5.10: until the link that caused its creation ceases to exist; 3.5.6: when that is.
#[test]
fn a_link_that_is_detached_and_not_closed_finds_its_dynamic_queue_again() {
    let mut rig = rig_with_model();
    let mut client = rig.connect();
    for expiry in [ExpiryPolicy::SessionEnd, ExpiryPolicy::ConnectionClose, ExpiryPolicy::Never] {
        let [made, found] = comes_back(&mut rig, &mut client, expiry);
        assert_eq!(made, found, "{expiry:?}");
        assert!(!exists(&mut rig, &made), "it was closed at last");
    }
    let [made, found] = comes_back(&mut rig, &mut client, ExpiryPolicy::LinkDetach);
    assert_ne!(made, found);
}

#[test]
fn a_link_that_comes_back_with_a_wrong_selector_is_refused_and_its_queue_stays() {
    let mut rig = rig_with_model();
    let mut client = rig.connect();
    let link = rig.any_link(&mut client, Role::Receiver, named("link", ExpiryPolicy::Never));
    let made = address_of(&client, link);
    rig.suspend(&mut client, link);
    let wrong = rig.any_link(&mut client, Role::Receiver, |request| {
        named("link", ExpiryPolicy::Never)(request);
        let name = Value::Symbol("apache.org:selector-filter:string");
        let selector = OwnedValue::described(name, Value::String("a ="));
        let source = request.source.as_mut().unwrap();
        source.filter = Map::default().with("selector", selector.view());
    });
    let error = Rig::ending(&client, wrong).expect("a refusal");
    assert_eq!(error.condition, condition::INVALID_FIELD);
    let again = rig.any_link(&mut client, Role::Receiver, named("link", ExpiryPolicy::Never));
    assert_eq!(address_of(&client, again), made);
}

#[test]
fn a_dynamic_queue_that_is_kept_holds_its_messages_and_another_link_gets_one_of_its_own() {
    let mut rig = rig_with_model();
    let mut client = rig.connect();
    let first = rig.any_link(&mut client, Role::Receiver, named("a", ExpiryPolicy::SessionEnd));
    let made = address_of(&client, first);
    let sender = rig.sender(&mut client, &made);
    rig.send(&mut client, sender, 1, message("one"));
    rig.credit(&mut client, first, 1);
    assert_eq!(rig.received(&mut client).len(), 1);
    rig.suspend(&mut client, first);
    rig.send(&mut client, sender, 2, message("two"));
    let other = rig.any_link(&mut client, Role::Receiver, named("b", ExpiryPolicy::SessionEnd));
    assert_ne!(address_of(&client, other), made);
    let again = rig.any_link(&mut client, Role::Receiver, named("a", ExpiryPolicy::SessionEnd));
    rig.credit(&mut client, again, 5);
    assert_eq!(rig.received(&mut client).len(), 2, "what was not settled went back");
}

#[test]
fn a_dynamic_queue_is_kept_until_its_session_or_its_connection_ends() {
    for (expiry, after_session) in [
        (ExpiryPolicy::SessionEnd, false),
        (ExpiryPolicy::ConnectionClose, true),
        (ExpiryPolicy::Never, true),
    ] {
        for suspended in [false, true] {
            let mut rig = rig_with_model();
            let mut client = rig.connect();
            let link = rig.any_link(&mut client, Role::Receiver, named("link", expiry));
            let made = address_of(&client, link);
            if suspended {
                rig.suspend(&mut client, link);
                assert!(exists(&mut rig, &made));
            }
            rig.end_session(&mut client);
            assert_eq!(exists(&mut rig, &made), after_session, "{expiry:?} {suspended}");
            rig.lose(client);
            assert!(!exists(&mut rig, &made));
        }
    }
}

#[test]
fn dynamic_queues_that_are_kept_are_bounded() {
    let mut rig = rig_with_model();
    let mut client = rig.connect();
    let mut made = Vec::new();
    for number in 0..=limits::QUEUES_KEPT_MAX {
        let name = format!("link {number}");
        let link = rig.any_link(&mut client, Role::Receiver, named(&name, ExpiryPolicy::Never));
        made.push(address_of(&client, link));
        rig.suspend(&mut client, link);
    }
    let last = made.pop().unwrap();
    assert!(made.iter().all(|queue| exists(&mut rig, queue)));
    assert!(!exists(&mut rig, &last), "it went with its link");
}

#[test]
fn a_client_that_is_let_go_reads_whether_it_is_the_queue_manager_or_the_instance_that_ends() {
    let said = [
        (Farewell::Ending, "the queue manager is ending: connect again when it runs"),
        (Farewell::NotActive, "this instance is not the active one any more: connect again"),
        (Farewell::HandsOver, "this instance hands over to another one: connect again"),
        (Farewell::Fenced("group 'EAST' took over".into()), "group 'EAST' took over"),
    ];
    for (farewell, begins) in said {
        let mut rig = Rig::new();
        let mut client = rig.connect();
        rig.ends(&mut client, farewell);
        let error = Rig::closing(&client).expect("a reason");
        assert_eq!(error.condition, condition::CONNECTION_FORCED);
        let text = error.description.as_deref().unwrap_or_default();
        assert!(text.starts_with(begins), "{text}");
    }
}

/// Attaches a receiver and a sender that wish for a durable terminus, and asserts both answers.
fn assert_promised(address: Option<&str>, wished: ExpiryPolicy, promised: ExpiryPolicy) {
    let mut rig = rig_with_model();
    rig.define("Q");
    let mut client = rig.connect();
    let (address, dynamic): (Option<Arc<str>>, _) = (address.map(Into::into), address.is_none());
    let (expiry_policy, timeout_s) = (wished, 77);
    // A durable source that never expires is a subscription, and refused.
    let durable = match wished {
        ExpiryPolicy::Never => TerminusDurability::None,
        _ => TerminusDurability::UnsettledState,
    };
    let source = Source { address: address.clone(), dynamic, ..Source::default() };
    let source = Source { durable, expiry_policy, timeout_s, ..source };
    let receiver = rig.any_link(&mut client, Role::Receiver, |request| {
        request.source = Some(Box::new(source));
    });
    let promised = (TerminusDurability::None, promised, 0);
    let answer = Rig::answer(&client, receiver).source.as_deref().expect("a source");
    assert_eq!((answer.durable, answer.expiry_policy, answer.timeout_s), promised);
    let durable = TerminusDurability::UnsettledState;
    let target = Target { address, dynamic, ..Target::default() };
    let target = Target { durable, expiry_policy, timeout_s, ..target };
    let sender = rig.any_link(&mut client, Role::Sender, |request| {
        request.target = Some(Box::new(LinkTarget::Target(target)));
    });
    let Some(LinkTarget::Target(answer)) = Rig::answer(&client, sender).target.as_deref() else {
        panic!("no target")
    };
    assert_eq!((answer.durable, answer.expiry_policy, answer.timeout_s), promised);
}

// 3.5.5, 3.5.6: what is answered is what is kept.
#[test]
fn a_terminus_is_promised_no_longer_life_than_it_has() {
    use ExpiryPolicy::{ConnectionClose, LinkDetach, Never, SessionEnd};
    for wished in [LinkDetach, SessionEnd, ConnectionClose, Never] {
        assert_promised(Some("Q"), wished, LinkDetach);
    }
    for kept in [LinkDetach, SessionEnd, ConnectionClose] {
        assert_promised(None, kept, kept);
    }
    assert_promised(None, Never, ConnectionClose);
}
