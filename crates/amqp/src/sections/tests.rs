use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use towline_types::Payload;

use super::*;
use crate::codec::{Composite, DecodeError, Value};
use crate::types::{CoordinatorCommand, Declare, Discharge, TxnId};

fn message() -> Bytes {
    MessageBuilder::new()
        .header(Header { durable: Some(true), priority: Some(7), ..Header::default() })
        .message_annotation("x-opt", Value::Uint(1))
        .properties(Properties {
            message_id: Some(MessageId::String("ID:a")),
            user_id: Some(b"user"),
            to: Some("queue"),
            subject: Some("subject"),
            reply_to: Some("answers"),
            correlation_id: Some(MessageId::Ulong(7)),
            content_type: Some("text/plain"),
            content_encoding: Some("gzip"),
            absolute_expiry_time_ms: Some(2_000),
            creation_time_ms: Some(1_000),
            group_id: Some("group"),
            group_sequence: Some(3),
            reply_to_group_id: Some("other"),
        })
        .application_property("colour", Value::String("red"))
        .application_property("weight", Value::Int(-5))
        .data(b"body")
}

#[test]
fn every_section_of_a_message_is_found_and_read() {
    let bytes = message();
    let sections = Sections::scan_checked(&bytes).unwrap();
    assert_eq!(Sections::scan(&bytes), Ok(sections));
    let header = sections.header(&bytes).unwrap();
    assert_eq!((header.durable, header.priority, header.ttl_ms), (Some(true), Some(7), None));
    let annotations = sections.message_annotations(&bytes).unwrap();
    assert_eq!(annotations.get("x-opt"), Some(Value::Uint(1)));
    let properties = sections.properties(&bytes).unwrap();
    assert_eq!(properties.to, Some("queue"));
    assert_eq!(properties.correlation_id, Some(MessageId::Ulong(7)));
    assert_eq!(properties.group_sequence, Some(3));
    assert_eq!(properties.reply_to_group_id, Some("other"));
    let property = |name| sections.application_property(&bytes, name);
    assert_eq!(property("colour"), Some(PropertyValue::Text("red")));
    assert_eq!(property("weight"), Some(PropertyValue::Long(-5)));
    assert_eq!(property("size"), None);
    assert_eq!(sections.body_kind, BodyKind::Data);
    assert_eq!(sections.data(&bytes).collect::<Vec<_>>(), [b"body"]);
    assert_eq!(sections.content_start(), sections.header.unwrap().end as usize);
    assert_eq!(sections.body.unwrap().end as usize, bytes.len());
}

#[test]
fn content_starts_behind_header_and_delivery_annotations() {
    let mut bytes = BytesMut::new();
    encode_header(&mut bytes, &Header { durable: Some(true), ..Header::default() });
    bytes.extend_from_slice(b"\x00\x53\x71\xc1\x01\x00");
    let start = bytes.len();
    bytes.extend_from_slice(&MessageBuilder::new().value(Value::String("x")));
    let sections = Sections::scan_checked(&bytes).unwrap();
    assert_eq!(sections.content_start(), start);
    assert_eq!(sections.value(&bytes), Some(Value::String("x")));
    assert_eq!(Sections::scan(b"").unwrap().content_start(), 0);
}

#[test]
fn an_absent_section_reads_as_its_defaults() {
    let bytes = MessageBuilder::new().data(b"");
    assert_eq!(&bytes[..], b"\x00\x53\x75\xa0\x00");
    let sections = Sections::scan_checked(&bytes).unwrap();
    assert_eq!(sections.header(&bytes), Ok(Header::default()));
    assert_eq!(sections.properties(&bytes), Ok(Properties::default()));
    assert_eq!(sections.application_property(&bytes, "a"), None);
    assert_eq!(sections.value(&bytes), None);
}

#[test]
fn several_data_or_sequence_sections_are_one_body() {
    let bytes = b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b\x00\x53\x78\xc1\x01\x00";
    let sections = Sections::scan_checked(bytes).unwrap();
    assert_eq!(sections.data(bytes).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!((sections.body.unwrap().range(), sections.footer.unwrap().start), (0..12, 12));
    let sequences = b"\x00\x53\x76\x45\x00\x53\x76\xc0\x02\x01\x43";
    assert_eq!(Sections::scan_checked(sequences).unwrap().body_kind, BodyKind::Sequence);
}

#[test]
fn sections_out_of_order_or_doubled_are_refused() {
    let header = &b"\x00\x53\x70\x45"[..];
    let properties = b"\x00\x53\x73\x45";
    let application = b"\x00\x53\x74\xc1\x01\x00";
    let data = b"\x00\x53\x75\xa0\x00";
    let sequence = b"\x00\x53\x76\x45";
    let value = b"\x00\x53\x77\x40";
    let footer = b"\x00\x53\x78\xc1\x01\x00";
    for wrong in [
        [header, header],
        [properties, header],
        [application, properties],
        [application, application],
        [data, properties],
        [data, sequence],
        [data, value],
        [value, value],
        [footer, footer],
    ] {
        assert_eq!(Sections::scan(&wrong.concat()), Err(DecodeError::SectionOrder));
    }
    for wrong in [[&footer[..], data, footer], [data, footer, data]] {
        assert_eq!(Sections::scan(&wrong.concat()), Err(DecodeError::SectionOrder));
    }
    let right = [header, properties, application, data, footer].concat();
    assert!(Sections::scan_checked(&right).is_ok());
}

// 3.2 wants the footer last; rhea writes it before the body, and other brokers take that.
#[test]
fn a_footer_before_the_body_is_taken_and_put_behind_it() {
    let footer = b"\x00\x53\x78\xc1\x05\x02\xa3\x01f\x40";
    let (header, properties) = (b"\x00\x53\x70\x45", b"\x00\x53\x73\x45");
    let data = b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b";
    let late = [&header[..], properties, footer, data].concat();
    let sections = Sections::scan_checked(&late).unwrap();
    assert_eq!(sections.data(&late).collect::<Vec<_>>(), [b"a", b"b"]);
    let ordered = sections.in_order(&Bytes::from(late)).to_contiguous();
    assert_eq!(ordered, [&properties[..], data, footer].concat());
    let right = Bytes::from([&header[..], properties, data, footer].concat());
    let sections = Sections::scan_checked(&right).unwrap();
    assert_eq!(sections.in_order(&right).to_contiguous(), ordered, "as it was");
}

#[test]
fn what_is_around_a_body_is_counted_to_the_byte() {
    for (message, around) in [
        (&b"\x00\x53\x75\xa0\x03abc"[..], 5),
        (b"\x00\x53\x70\x45\x00\x53\x75\xa0\x03abc", 5),
        (b"\x00\x53\x73\x45\x00\x53\x75\xb0\x00\x00\x00\x03abc", 12),
        (b"\x00\x53\x77\xa1\x03abc\x00\x53\x78\xc1\x01\x00", 11),
        (b"\x00\x53\x77\x40", 3),
        (b"\x00\x53\x73\x45", 4),
    ] {
        let sections = Sections::scan_checked(message).unwrap();
        assert_eq!(sections.envelope_bytes(message), around, "{}", message.escape_ascii());
    }
}

#[test]
fn what_is_no_section_is_refused() {
    for bytes in [
        &b"\x40"[..],
        b"body",
        b"\x00\x53\x24\x45",
        b"\x00\x53\x00\x45",
        b"\x00\x53\x79\x45",
        b"\x00\x80\0\0\0\x01\0\0\0\x75\xa0\x00",
        b"\x00\x53\x75\x40",
        b"\x00\x53\x70\xc1\x01\x00",
        b"\x00\x53\x77",
        b"\x00\x53\x75\xa0\x02x",
    ] {
        assert!(Sections::scan(bytes).is_err(), "{}", bytes.escape_ascii());
    }
}

#[test]
fn the_checked_scan_looks_into_every_section() {
    for bytes in [
        &b"\x00\x53\x70\xc0\x02\x01\x43"[..],
        b"\x00\x53\x71\xc1\x03\x02\xa3\x05",
        b"\x00\x53\x72\xc1\x03\x02\x43\x3f",
        b"\x00\x53\x73\xc0\x02\x01\x41",
        b"\x00\x53\x74\xc1\x04\x02\xa1\x01a",
        b"\x00\x53\x74\xc1\x05\x02\xa3\x01a\x43",
        b"\x00\x53\x74\xc1\x03\x02\x43\x43",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x43\x43",
        b"\x00\x53\x76\xc0\x02\x01\x3f",
        b"\x00\x53\x78\xc1\x03\x02\x43\x3f",
    ] {
        assert!(Sections::scan(bytes).is_ok(), "{}", bytes.escape_ascii());
        assert!(Sections::scan_checked(bytes).is_err(), "{}", bytes.escape_ascii());
    }
    assert!(Sections::scan(b"\x00\x53\x77\xa1\x01\xff").is_err());
}

#[test]
fn ids_have_the_text_that_jms_clients_show() {
    let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
    let cases = [
        (MessageId::String("ID:a"), "ID:a", "ID:a"),
        (MessageId::String("a"), "ID:AMQP_NO_PREFIX:a", "a"),
        (MessageId::String(""), "ID:AMQP_NO_PREFIX:", ""),
        (
            MessageId::String("ID:AMQP_UUID:x"),
            "ID:AMQP_STRING:ID:AMQP_UUID:x",
            "ID:AMQP_STRING:ID:AMQP_UUID:x",
        ),
        (MessageId::Ulong(42), "ID:AMQP_ULONG:42", "ID:AMQP_ULONG:42"),
        (MessageId::Binary(&[0, 0xab]), "ID:AMQP_BINARY:00AB", "ID:AMQP_BINARY:00AB"),
        (
            MessageId::Uuid(uuid),
            "ID:AMQP_UUID:12345678-9abc-def0-0102-030405060708",
            "ID:AMQP_UUID:12345678-9abc-def0-0102-030405060708",
        ),
    ];
    for (id, message, correlation) in cases {
        assert_eq!(id.message_id_text(), message);
        assert_eq!(id.correlation_id_text(), correlation);
        assert_eq!(id.message_id_hash(), id_hash(message));
        assert_eq!(id.correlation_id_hash(), id_hash(correlation));
    }
}

#[test]
fn the_hash_of_an_id_never_changes() {
    // Golden: these numbers are in logs.
    assert_eq!(id_hash(""), 7_533_528_639_240_173_872);
    assert_eq!(id_hash("ID:a"), 13_970_179_027_241_567_392);
    assert_eq!(id_hash("ID:6f0c9a3e-0001:1:1:1-1"), 14_343_974_068_851_446_865);
}

#[test]
fn application_properties_are_added_replaced_or_created() {
    let whole = message();
    let content = whole.slice(Sections::scan(&whole).unwrap().content_start()..);
    let extra = [("colour", Value::String("blue")), ("reason", Value::Symbol("x"))];
    let changed = with_application_properties(&content, &extra).unwrap();
    let sections = Sections::scan_checked(&changed).unwrap();
    let property = |name| sections.application_property(&changed, name);
    assert_eq!(property("colour"), Some(PropertyValue::Text("blue")));
    assert_eq!(property("weight"), Some(PropertyValue::Long(-5)));
    assert_eq!(property("reason"), Some(PropertyValue::Text("x")));
    assert_eq!(sections.application_properties(&changed).unwrap().count(), 3);
    assert_eq!(sections.data(&changed).collect::<Vec<_>>(), [b"body"]);
    assert_eq!(sections.properties(&changed).unwrap().to, Some("queue"));

    for bare in [MessageBuilder::new().data(b"body"), Bytes::new()] {
        let changed = with_application_properties(&bare, &extra).unwrap();
        let sections = Sections::scan_checked(&changed).unwrap();
        assert_eq!(sections.application_properties(&changed).unwrap().count(), 2);
        assert_eq!(&changed[changed.len() - bare.len()..], &bare[..]);
    }
    assert!(with_application_properties(b"nonsense", &extra).is_err());
}

// Found by `a_message_that_was_checked_never_fails_later`.
#[test]
fn application_properties_are_added_before_a_footer_that_stands_before_the_body() {
    let (footer, body) = (b"\x00\x53\x78\xc1\x05\x02\xa3\x01f\x40", b"\x00\x53\x77\xa1\x01x");
    let extra = [("why", Value::String("x"))];
    let changed = with_application_properties(&[&footer[..], body].concat(), &extra).unwrap();
    let sections = Sections::scan_checked(&changed).expect("whole, and in an order that is taken");
    assert_eq!(sections.application_property(&changed, "why"), Some(PropertyValue::Text("x")));
}

#[test]
fn message_annotations_are_added_before_the_properties() {
    let properties = Properties { to: Some("queue"), ..Properties::default() };
    let content = MessageBuilder::new().properties(properties).data(b"body");
    let once = with_message_annotations(&content, &[("x-reason", Value::String("a"))]).unwrap();
    let twice = with_message_annotations(
        &once,
        &[("x-reason", Value::String("b")), ("x-count", Value::Uint(2))],
    )
    .unwrap();
    let sections = Sections::scan_checked(&twice).unwrap();
    let annotations = sections.message_annotations(&twice).unwrap();
    assert_eq!(annotations.count(), 2);
    assert_eq!(annotations.get("x-reason"), Some(Value::String("b")));
    assert_eq!(annotations.get("x-count"), Some(Value::Uint(2)));
    assert!(sections.message_annotations.unwrap().end <= sections.properties.unwrap().start);
}

#[test]
fn a_body_by_reference_makes_the_same_message() {
    let builder = MessageBuilder::new().application_property("a", Value::Bool(true));
    for length in [0, 1, 255, 256, 3_000] {
        let body = Bytes::from(vec![7; length]);
        assert_eq!(builder.data_by_reference(&body).to_contiguous(), builder.data(&body));
    }
}

#[test]
fn a_message_in_pieces_is_scanned_without_a_copy_when_only_its_body_is_cut() {
    let bytes = MessageBuilder::new().application_property("a", Value::Uint(1)).data(&[7; 900]);
    let whole = Sections::scan_checked(&bytes).unwrap();
    let value = whole.body.unwrap().value as usize;
    for cut in 1..bytes.len() {
        let mut payload = Payload::from(bytes.slice(..cut));
        payload.push(bytes.slice(cut..));
        let (sections, head) = Sections::scan_payload(&payload).unwrap();
        assert_eq!(sections, whole);
        // Constructor and size of the data section take five bytes.
        assert_eq!(head.len(), if cut < value + 5 { bytes.len() } else { cut });
        let property = sections.application_property(&head, "a");
        assert_eq!(property, Some(PropertyValue::Long(1)));
        let mut longer = payload.clone();
        longer.push(Bytes::from_static(b"x"));
        assert!(Sections::scan_payload(&longer).is_err());
        let shorter = payload.to_contiguous().slice(..bytes.len() - 1);
        assert!(Sections::scan_payload(&Payload::from(shorter)).is_err());
    }
    assert!(Sections::scan_payload(&Payload::Empty).is_ok());
}

#[test]
fn a_coordinator_command_is_read_from_its_message() {
    let txn_id = TxnId::from_number(5);
    let discharge = CoordinatorCommand::Discharge(Discharge { txn_id, fail: true });
    for command in [CoordinatorCommand::Declare(Declare), discharge] {
        let mut message = BytesMut::new();
        Header { durable: Some(false), ..Header::default() }.encode(&mut message);
        encode_value_body(&mut message, |out| command.encode(out));
        assert_eq!(coordinator_command(&message), Ok(command));
    }
    assert!(coordinator_command(&MessageBuilder::new().data(b"x")).is_err());
    assert!(coordinator_command(&MessageBuilder::new().value(Value::Null)).is_err());
}

#[test]
fn property_values_are_distinguished_as_a_selector_needs_it() {
    let cases = [
        (Value::Null, PropertyValue::Null),
        (Value::Bool(true), PropertyValue::Bool(true)),
        (Value::Ubyte(1), PropertyValue::Long(1)),
        (Value::Ulong(u64::MAX), PropertyValue::Ulong(u64::MAX)),
        (Value::Float(0.5), PropertyValue::Double(0.5)),
        (Value::Symbol("a"), PropertyValue::Text("a")),
        (Value::Binary(b"a"), PropertyValue::Binary(b"a")),
        (Value::Timestamp(1), PropertyValue::Other),
    ];
    for (value, property) in cases {
        assert_eq!(PropertyValue::from(value), property);
    }
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_built(
        durable in any::<Option<bool>>(),
        (priority, ttl_ms) in any::<(Option<u8>, Option<u32>)>(),
        (first_acquirer, delivery_count) in any::<(Option<bool>, Option<u32>)>(),
        to in proptest::option::of(".{0,300}"),
        id in proptest::option::of(any::<[u8; 16]>()),
        (expiry, sequence) in any::<(Option<i64>, Option<u32>)>(),
        entries in proptest::collection::btree_map(".{0,20}", any::<i64>(), 0..20),
        body in proptest::collection::vec(any::<u8>(), 0..600),
        cut in any::<prop::sample::Index>(),
    ) {
        let header = Header { durable, priority, ttl_ms, first_acquirer, delivery_count };
        let properties = Properties {
            to: to.as_deref(),
            message_id: id.map(MessageId::Uuid),
            absolute_expiry_time_ms: expiry,
            group_sequence: sequence,
            ..Properties::default()
        };
        let mut builder = MessageBuilder::new().header(header).properties(properties);
        for (name, value) in &entries {
            builder = builder.application_property(name, Value::Long(*value));
        }
        let bytes = builder.data(&body);
        let sections = Sections::scan_checked(&bytes).unwrap();
        prop_assert_eq!(sections.header(&bytes), Ok(header));
        prop_assert_eq!(sections.properties(&bytes), Ok(properties));
        for (name, value) in &entries {
            let property = sections.application_property(&bytes, name);
            prop_assert_eq!(property, Some(PropertyValue::Long(*value)));
        }
        prop_assert_eq!(sections.data(&bytes).collect::<Vec<_>>(), [&body[..]]);
        let cut = cut.index(bytes.len());
        let front = Sections { body: None, body_kind: BodyKind::None, footer: None, ..sections };
        let body_at = sections.body.unwrap().start as usize;
        let part = Sections::scan_front(&bytes[..cut], true);
        prop_assert!(matches!(part, Ok(None)) || (part == Ok(Some(front)) && cut > body_at));
        prop_assert!(part != Ok(None) || cut < body_at + 3, "a body's descriptor is enough");
        prop_assert_eq!(Sections::scan_front(&bytes, false), Ok(Some(front)));
        if let Ok(part) = Sections::scan(&bytes[..cut]) {
            // Only a cut between two sections leaves sections.
            let ends = [part.header, part.properties, part.application_properties];
            let end = ends.iter().flatten().map(|span| span.end as usize).max().unwrap_or(0);
            prop_assert_eq!((end, part.body), (cut, None));
        }
    }

    #[test]
    fn a_hash_does_not_depend_on_how_the_text_is_cut(text in "[a-z]{0,40}") {
        prop_assert_eq!(
            MessageId::String(&text).message_id_hash(),
            id_hash(&format!("ID:AMQP_NO_PREFIX:{text}"))
        );
    }
}
