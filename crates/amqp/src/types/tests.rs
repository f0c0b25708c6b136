use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::codec::{Composite, DecodeError, Map, Reader, Symbols, Value};

fn text() -> BoxedStrategy<Arc<str>> {
    prop_oneof![3 => ".{0,20}", 1 => ".{250,300}"].prop_map(|text| Arc::from(text.as_str())).boxed()
}

fn map() -> BoxedStrategy<Map> {
    proptest::collection::vec(("[a-z:.-]{1,12}", any::<i64>()), 0..4)
        .prop_map(|entries| {
            entries
                .iter()
                .fold(Map::default(), |map, (key, value)| map.with(key, Value::Long(*value)))
        })
        .boxed()
}

fn symbols() -> BoxedStrategy<Symbols> {
    proptest::collection::vec("[a-z:.-]{0,12}", 0..4)
        .prop_map(|names| names.iter().map(String::as_str).collect())
        .boxed()
}

fn short_binary<const BYTES_MAX: usize>() -> impl Strategy<Value = ShortBinary<BYTES_MAX>> {
    proptest::collection::vec(any::<u8>(), 0..=BYTES_MAX)
        .prop_map(|bytes| ShortBinary::new(&bytes).unwrap())
}

fn error() -> BoxedStrategy<Option<Box<Error>>> {
    let error = ("[a-z:-]{1,30}", proptest::option::of(text()), map()).prop_map(
        |(condition, description, fields)| {
            Box::new(Error { condition: Symbol::from(condition.as_str()), description, fields })
        },
    );
    proptest::option::of(error).boxed()
}

fn outcome() -> BoxedStrategy<Outcome> {
    prop_oneof![
        Just(Outcome::Accepted),
        error().prop_map(|error| Outcome::Rejected { error }),
        Just(Outcome::Released),
        (any::<bool>(), any::<bool>(), proptest::option::of(map().prop_map(Box::new))).prop_map(
            |(delivery_failed, undeliverable_here, annotations)| Outcome::Modified {
                delivery_failed,
                undeliverable_here,
                annotations
            }
        ),
    ]
    .boxed()
}

fn state() -> BoxedStrategy<DeliveryState> {
    prop_oneof![
        3 => outcome().prop_map(DeliveryState::from),
        1 => (any::<u32>(), any::<u64>()).prop_map(|(section_number, section_offset)| {
            DeliveryState::Received { section_number, section_offset }
        }),
        1 => short_binary().prop_map(|txn_id| DeliveryState::Declared { txn_id }),
        2 => (short_binary(), proptest::option::of(outcome()))
            .prop_map(|(txn_id, outcome)| DeliveryState::Transactional { txn_id, outcome }),
    ]
    .boxed()
}

fn durability() -> impl Strategy<Value = TerminusDurability> {
    prop_oneof![
        Just(TerminusDurability::None),
        Just(TerminusDurability::Configuration),
        Just(TerminusDurability::UnsettledState),
    ]
}

fn expiry() -> impl Strategy<Value = ExpiryPolicy> {
    prop_oneof![
        Just(ExpiryPolicy::LinkDetach),
        Just(ExpiryPolicy::SessionEnd),
        Just(ExpiryPolicy::ConnectionClose),
        Just(ExpiryPolicy::Never),
    ]
}

prop_compose! {
    fn source()(
        (address, durable, expiry_policy) in (proptest::option::of(text()), durability(), expiry()),
        (timeout_s, dynamic) in (any::<u32>(), any::<bool>()),
        (dynamic_node_properties, filter) in (map(), map()),
        distribution_mode in proptest::option::of(prop_oneof![
            Just(DistributionMode::Move), Just(DistributionMode::Copy)
        ]),
        default_outcome in proptest::option::of(outcome()),
        (outcomes, capabilities) in (symbols(), symbols()),
    ) -> Source {
        Source {
            address, durable, expiry_policy, timeout_s, dynamic, dynamic_node_properties,
            distribution_mode, filter, default_outcome, outcomes, capabilities,
        }
    }
}

prop_compose! {
    fn target()(
        (address, durable, expiry_policy) in (proptest::option::of(text()), durability(), expiry()),
        (timeout_s, dynamic) in (any::<u32>(), any::<bool>()),
        (dynamic_node_properties, capabilities) in (map(), symbols()),
    ) -> Target {
        Target {
            address, durable, expiry_policy, timeout_s, dynamic, dynamic_node_properties,
            capabilities,
        }
    }
}

prop_compose! {
    fn open()(
        (container_id, hostname) in (text(), proptest::option::of(text())),
        (max_frame_bytes, channel_max) in (any::<u32>(), any::<u16>()),
        idle_timeout_ms in any::<Option<u32>>(),
        (outgoing_locales, incoming_locales) in (symbols(), symbols()),
        (offered_capabilities, desired_capabilities) in (symbols(), symbols()),
        properties in map(),
    ) -> Open {
        Open {
            container_id, hostname, max_frame_bytes, channel_max, idle_timeout_ms,
            outgoing_locales, incoming_locales, offered_capabilities, desired_capabilities,
            properties,
        }
    }
}

prop_compose! {
    fn begin()(
        remote_channel in any::<Option<u16>>(),
        (next_outgoing_id, incoming_window) in any::<(u32, u32)>(),
        (outgoing_window, handle_max) in any::<(u32, u32)>(),
        (offered_capabilities, desired_capabilities, properties) in (symbols(), symbols(), map()),
    ) -> Begin {
        Begin {
            remote_channel, next_outgoing_id, incoming_window, outgoing_window, handle_max,
            offered_capabilities, desired_capabilities, properties,
        }
    }
}

fn role() -> impl Strategy<Value = Role> {
    any::<bool>().prop_map(|receiver| if receiver { Role::Receiver } else { Role::Sender })
}

fn receiver_mode() -> impl Strategy<Value = ReceiverSettleMode> {
    prop_oneof![Just(ReceiverSettleMode::First), Just(ReceiverSettleMode::Second)]
}

prop_compose! {
    fn attach()(
        (name, handle, role) in (text(), any::<u32>(), role()),
        snd_settle_mode in prop_oneof![
            Just(SenderSettleMode::Unsettled),
            Just(SenderSettleMode::Settled),
            Just(SenderSettleMode::Mixed),
        ],
        rcv_settle_mode in receiver_mode(),
        source in proptest::option::of(source().prop_map(Box::new)).boxed(),
        target in proptest::option::of(prop_oneof![
            target().prop_map(|target| Box::new(LinkTarget::Target(target))).boxed(),
            symbols().prop_map(|capabilities| {
                Box::new(LinkTarget::Coordinator(Coordinator { capabilities }))
            }),
        ]),
        (unsettled, incomplete_unsettled) in (map(), any::<bool>()),
        (initial_delivery_count, max_message_bytes) in any::<(Option<u32>, Option<u64>)>(),
        (offered_capabilities, desired_capabilities, properties) in (symbols(), symbols(), map()),
    ) -> Attach {
        Attach {
            name, handle, role, snd_settle_mode, rcv_settle_mode, source, target, unsettled,
            incomplete_unsettled, initial_delivery_count, max_message_bytes,
            offered_capabilities, desired_capabilities, properties,
        }
    }
}

prop_compose! {
    fn flow()(
        (next_incoming_id, incoming_window, next_outgoing_id) in any::<(Option<u32>, u32, u32)>(),
        (outgoing_window, handle, delivery_count) in any::<(u32, Option<u32>, Option<u32>)>(),
        (link_credit, available) in any::<(Option<u32>, Option<u32>)>(),
        (drain, echo, in_transaction) in any::<(bool, bool, bool)>(),
    ) -> Flow {
        Flow {
            next_incoming_id, incoming_window, next_outgoing_id, outgoing_window, handle,
            delivery_count, link_credit, available, drain, echo, in_transaction,
        }
    }
}

prop_compose! {
    fn transfer()(
        (handle, delivery_id, message_format) in any::<(u32, Option<u32>, Option<u32>)>(),
        delivery_tag in proptest::option::of(short_binary()),
        (settled, more, resume, aborted, batchable) in
            any::<(Option<bool>, bool, bool, bool, bool)>(),
        rcv_settle_mode in proptest::option::of(receiver_mode()),
        state in proptest::option::of(state()),
    ) -> Transfer {
        Transfer {
            handle, delivery_id, delivery_tag, message_format, settled, more, rcv_settle_mode,
            state, resume, aborted, batchable,
        }
    }
}

fn performative() -> impl Strategy<Value = Performative> {
    prop_oneof![
        open().prop_map(|open| Performative::Open(Box::new(open))).boxed(),
        begin().prop_map(|begin| Performative::Begin(Box::new(begin))).boxed(),
        attach().prop_map(|attach| Performative::Attach(Box::new(attach))).boxed(),
        flow().prop_map(Performative::Flow),
        transfer().prop_map(Performative::Transfer).boxed(),
        (role(), any::<(u32, Option<u32>, bool, bool)>(), proptest::option::of(state())).prop_map(
            |(role, (first, last, settled, batchable), state)| {
                Performative::Disposition(Disposition {
                    role,
                    first,
                    last,
                    settled,
                    state,
                    batchable,
                })
            }
        ),
        (any::<(u32, bool)>(), error()).prop_map(|((handle, closed), error)| {
            Performative::Detach(Detach { handle, closed, error })
        }),
        error().prop_map(|error| Performative::End(End { error })),
        error().prop_map(|error| Performative::Close(Close { error })),
    ]
}

fn sasl_frame() -> impl Strategy<Value = SaslFrame> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    let code = prop_oneof![
        Just(SaslCode::Ok),
        Just(SaslCode::Auth),
        Just(SaslCode::Sys),
        Just(SaslCode::SysPerm),
        Just(SaslCode::SysTemp),
    ];
    prop_oneof![
        symbols().prop_map(|mechanisms| SaslFrame::Mechanisms(SaslMechanisms { mechanisms })),
        ("[A-Z0-9-]{1,20}", proptest::option::of(bytes()), proptest::option::of(text())).prop_map(
            |(mechanism, initial_response, hostname)| {
                let mechanism = Symbol::from(mechanism.as_str());
                SaslFrame::Init(SaslInit { mechanism, initial_response, hostname })
            }
        ),
        bytes().prop_map(|challenge| SaslFrame::Challenge(SaslChallenge { challenge })),
        bytes().prop_map(|response| SaslFrame::Response(SaslResponse { response })),
        (code, proptest::option::of(bytes()))
            .prop_map(|(code, additional)| SaslFrame::Outcome(SaslOutcome { code, additional })),
    ]
}

proptest! {
    #[test]
    fn a_performative_comes_back_as_it_was(one in performative(), payload in any::<[u8; 3]>()) {
        let mut wire = BytesMut::new();
        one.encode(&mut wire);
        let length = wire.len();
        prop_assert_eq!(crate::codec::check(&wire), Ok(()));
        let back = Performative::decode(&wire);
        prop_assert_eq!(back.as_ref(), Ok(&(one.clone(), length)));
        wire.extend_from_slice(&payload);
        let with_payload = Performative::decode(&wire);
        if let Performative::Transfer(_) = one {
            prop_assert_eq!(with_payload, Ok((one, length)));
        } else {
            prop_assert_eq!(with_payload, Err(DecodeError::Excess));
        }
    }

    #[test]
    fn a_performative_cut_short_is_refused(
        one in performative(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut wire = BytesMut::new();
        one.encode(&mut wire);
        prop_assert!(Performative::decode(&wire[..cut.index(wire.len())]).is_err());
    }

    #[test]
    fn a_sasl_frame_comes_back_as_it_was(one in sasl_frame()) {
        let mut wire = BytesMut::new();
        one.encode(&mut wire);
        prop_assert_eq!(SaslFrame::decode(&wire), Ok(one));
    }

    #[test]
    fn a_coordinator_command_comes_back_as_it_was(txn_id in short_binary(), fail in any::<bool>()) {
        let discharge = CoordinatorCommand::Discharge(Discharge { txn_id, fail });
        for command in [CoordinatorCommand::Declare(Declare), discharge] {
            let mut wire = BytesMut::new();
            command.encode(&mut wire);
            prop_assert_eq!(CoordinatorCommand::decode(&mut Reader::new(&wire)), Ok(command));
        }
    }
}

#[test]
fn trailing_fields_may_be_missing() {
    let open = Open::decode(&mut Reader::new(b"\x00\x53\x10\xc0\x04\x01\xa1\x01a")).unwrap();
    assert_eq!(&*open.container_id, "a");
    assert_eq!((open.max_frame_bytes, open.channel_max), (u32::MAX, u16::MAX));
    let wire = b"\x00\x53\x11\xc0\x07\x04\x40\x43\x52\x0a\x52\x0a";
    let begin = Begin::decode(&mut Reader::new(wire)).unwrap();
    assert_eq!((begin.incoming_window, begin.handle_max), (10, u32::MAX));
    assert_eq!(Close::decode(&mut Reader::new(b"\x00\x53\x18\x45")), Ok(Close::default()));
    let wire = b"\x00\x53\x12\xc0\x07\x03\xa1\x01l\x43\x56\x01";
    let attach = Attach::decode(&mut Reader::new(wire)).unwrap();
    assert_eq!((&*attach.name, attach.role), ("l", Role::Receiver));
    assert_eq!((attach.source, attach.max_message_bytes), (None, None));
}

#[test]
fn a_mandatory_field_may_not_be_missing_or_null() {
    for (wire, field) in [
        (&b"\x00\x53\x10\x45"[..], "container-id"),
        (b"\x00\x53\x10\xc0\x02\x01\x40", "container-id"),
        (b"\x00\x53\x14\x45", "handle"),
        (b"\x00\x53\x15\x45", "role"),
        (b"\x00\x53\x15\xc0\x02\x01\x41", "first"),
        (b"\x00\x53\x13\x45", "incoming-window"),
        (b"\x00\x53\x16\x45", "handle"),
        (b"\x00\x53\x12\xc0\x04\x01\xa1\x01l", "handle"),
    ] {
        assert_eq!(Performative::decode(wire), Err(DecodeError::MissingField(field)));
    }
}

#[test]
fn fields_beyond_the_last_are_refused() {
    assert_eq!(Performative::decode(b"\x00\x53\x17\xc0\x03\x02\x40\x40"), Err(DecodeError::Excess));
    assert_eq!(Performative::decode(b"\x00\x53\x17\xc0\x02\x00\x40"), Err(DecodeError::Excess));
}

#[test]
fn values_out_of_range_are_refused() {
    let settle = b"\x00\x53\x12\xc0\x08\x04\xa1\x01l\x43\x41\x50\x03";
    assert_eq!(Performative::decode(settle), Err(DecodeError::OutOfRange("snd-settle-mode")));
    assert!(Performative::decode(b"\x00\x53\x1d\x45").is_err(), "an error is no performative");
    assert!(Performative::decode(b"\x00\x53\x40\x45").is_err(), "nor is a SASL frame");
    assert!(SaslFrame::decode(b"\x00\x53\x10\xc0\x04\x01\xa1\x01a").is_err(), "nor the reverse");
}

#[test]
fn a_delivery_tag_of_more_than_32_bytes_is_refused() {
    let mut wire = b"\x00\x53\x14\xc0\x26\x03\x43\x43\xa0\x21".to_vec();
    wire.extend([7; 33]);
    assert_eq!(Performative::decode(&wire), Err(DecodeError::TooLong));
    assert_eq!(DeliveryTag::from_number(9).as_number(), Some(9));
}

#[test]
fn a_performative_is_known_by_its_symbol_too() {
    let wire = b"\x00\xa3\x0famqp:close:list\x45";
    let (close, length) = Performative::decode(wire).unwrap();
    assert_eq!((close, length), (Performative::Close(Close::default()), wire.len()));
}

#[test]
fn a_declare_with_a_global_id_is_refused() {
    let wire = b"\x00\x53\x31\xc0\x03\x01\xa0\x00";
    assert!(CoordinatorCommand::decode(&mut Reader::new(wire)).is_err());
}

#[test]
fn the_bytes_of_a_peer_are_not_multiplied_in_memory() {
    // Symbols of no bytes cost one byte each on the wire and two in memory.
    let mut wire = BytesMut::from(&b"\xf0\0\0\x10\x05\0\0\x10\0\xa3"[..]);
    wire.resize(10 + 0x1000, 0);
    let symbols = Symbols::decode(&mut Reader::new(&wire)).unwrap();
    assert_eq!(symbols.iter().count(), 0x1000);
    assert!(symbols.memory_bytes() <= 2 * wire.len());
}

#[test]
fn a_discharge_says_whether_it_fails_even_when_that_is_the_default() {
    let mut wire = BytesMut::new();
    let txn_id = TxnId::new(b"12345678-1234-1234-1234-123456789012").unwrap();
    CoordinatorCommand::Discharge(Discharge { txn_id, fail: false }).encode(&mut wire);
    assert_eq!(wire.last(), Some(&0x42));
}
