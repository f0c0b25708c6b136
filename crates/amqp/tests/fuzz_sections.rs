//! Fuzz: the sections of a message.

mod mutation;

use mutation::{Mutation, spoiled};
use std::hint::black_box;
use towline_amqp::codec::{OwnedValue, Value};
use towline_amqp::sections::{
    Header, MessageBuilder, MessageId, Properties, PropertyValue, Sections, coordinator_command,
    with_application_properties, with_message_annotations,
};

fn samples() -> Vec<Vec<u8>> {
    let header = Header {
        durable: Some(true),
        priority: Some(4),
        ttl_ms: Some(60_000),
        first_acquirer: Some(true),
        delivery_count: Some(2),
    };
    let properties = Properties {
        message_id: Some(MessageId::String("ID:fuzz")),
        correlation_id: Some(MessageId::Uuid([7; 16])),
        to: Some("queue"),
        content_type: Some("text/plain"),
        group_sequence: Some(1),
        ..Properties::default()
    };
    let builder = MessageBuilder::new()
        .header(header)
        .message_annotation("x-opt-jms-msg-type", Value::Byte(5))
        .properties(properties)
        .application_property("colour", Value::String("red"))
        .application_property("weight", Value::Double(0.5));
    let list = OwnedValue::list(&[Value::Null, Value::String("x"), Value::Ulong(7)]);
    let sequence = b"\0\x53\x70\x45\0\x53\x76\x45\0\x53\x76\xc0\x02\x01\x43\0\x53\x78\xc1\x01\0";
    vec![
        builder.data(&[7; 300]).to_vec(),
        builder.value(list.view()).to_vec(),
        sequence.to_vec(),
        b"\0\x53\x77\0\x53\x32\xc0\x05\x02\xa0\x01x\x41".to_vec(),
    ]
}

fn use_all_of(message: &[u8]) {
    let Ok(sections) = Sections::scan(message) else { return };
    assert!(sections.content_start() <= message.len());
    assert!(sections.data(message).map(<[u8]>::len).sum::<usize>() <= message.len());
    black_box(sections.header(message).is_ok());
    black_box(sections.value(message).is_some());
    if let Ok(properties) = sections.properties(message) {
        for id in [properties.message_id, properties.correlation_id].into_iter().flatten() {
            assert_ne!(id.message_id_hash(), 0);
            assert!(id.correlation_id_text().len() <= 2 * message.len() + 64);
        }
    }
    black_box(sections.application_property(message, "no such name").is_some());
    black_box(coordinator_command(message).is_ok());
}

#[test]
fn a_message_from_any_bytes_is_refused_or_read() {
    let samples = samples();
    bolero::check!().with_iterations(20_000).with_type::<Mutation>().for_each(|mutation| {
        use_all_of(&spoiled(&samples, mutation));
    });
}

#[test]
fn a_message_that_was_checked_never_fails_later() {
    let samples = samples();
    bolero::check!().with_iterations(20_000).with_type::<Mutation>().for_each(|mutation| {
        let message = spoiled(&samples, mutation);
        let Ok(sections) = Sections::scan_checked(&message) else { return };
        assert_eq!(Sections::scan(&message), Ok(sections));
        assert!(sections.header(&message).is_ok());
        assert!(sections.properties(&message).is_ok());
        for map in
            [sections.application_properties(&message), sections.message_annotations(&message)]
        {
            assert!(map.is_none_or(|map| map.iter().all(|entry| entry.is_ok())));
        }
        // What is kept is a well-formed message of its own, also after an addition.
        let content = message.get(sections.content_start()..).unwrap_or_default();
        assert!(Sections::scan_checked(content).is_ok());
        let extra = [("reason", Value::String("fuzz"))];
        for added in [
            with_application_properties(content, &extra),
            with_message_annotations(content, &extra),
        ] {
            assert!(added.is_ok_and(|added| Sections::scan_checked(&added).is_ok()));
        }
        let added = with_application_properties(content, &extra).unwrap_or_default();
        let sections = Sections::scan(&added).unwrap_or_default();
        let found = sections.application_property(&added, "reason");
        assert_eq!(found, Some(PropertyValue::Text("fuzz")));
    });
}

#[test]
fn noise_is_refused_without_a_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        use_all_of(bytes);
        for code in 0x70..=0x78 {
            use_all_of(&[&[0, 0x53, code], bytes].concat());
        }
    });
}
