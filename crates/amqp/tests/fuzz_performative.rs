//! Fuzz: each performative, the values in them, the coordinator's commands.

mod mutation;

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use mutation::{Mutation, spoiled};
use towline_amqp::codec::{Map, OwnedValue, Reader, Symbols, Value, check};
use towline_amqp::types::{
    Attach, Begin, Close, CoordinatorCommand, DeliveryState, DeliveryTag, Detach, Disposition, End,
    Error, Flow, LinkTarget, Open, Outcome, Performative, ReceiverSettleMode, Role,
    SenderSettleMode, Source, Target, Transfer, TxnId, condition,
};

fn map() -> Map {
    let filter = OwnedValue::described(Value::Symbol("selector"), Value::String("colour = 'red'"));
    Map::default()
        .with("product", Value::String("fuzz"))
        .with("filter", filter.view())
        .with("list", OwnedValue::list(&[Value::Null, Value::Ulong(7)]).view())
        .with("version", Value::Uint(1))
}

fn error() -> Error {
    Error { fields: map(), ..Error::new(condition::NOT_FOUND, "there is none") }
}

fn attach() -> Attach {
    let symbols: Symbols = ["queue", "shared"].into_iter().collect();
    Attach {
        name: Arc::from("link"),
        handle: 1,
        role: Role::Receiver,
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(Box::new(Source {
            address: Some(Arc::from("queue")),
            filter: map(),
            default_outcome: Some(Outcome::Released),
            outcomes: symbols.clone(),
            capabilities: symbols.clone(),
            ..Source::default()
        })),
        target: Some(Box::new(LinkTarget::Target(Target::default()))),
        unsettled: map(),
        incomplete_unsettled: true,
        initial_delivery_count: Some(7),
        max_message_bytes: Some(1_000),
        offered_capabilities: symbols.clone(),
        desired_capabilities: symbols,
        properties: map(),
    }
}

fn states() -> Vec<DeliveryState> {
    let txn_id = TxnId::from_number(3);
    vec![
        DeliveryState::Accepted,
        DeliveryState::Rejected { error: Some(Box::new(error())) },
        DeliveryState::Modified {
            delivery_failed: true,
            undeliverable_here: false,
            annotations: Some(Box::new(map())),
        },
        DeliveryState::Transactional { txn_id, outcome: Some(Outcome::Accepted) },
        DeliveryState::Declared { txn_id },
        DeliveryState::Received { section_number: 1, section_offset: 2 },
    ]
}

fn performatives() -> Vec<Performative> {
    let mut all = vec![
        Performative::Open(Box::new(Open {
            container_id: Arc::from("container"),
            hostname: Some(Arc::from("host")),
            max_frame_bytes: 512,
            channel_max: 7,
            idle_timeout_ms: Some(1_000),
            outgoing_locales: Symbols::default(),
            incoming_locales: ["en"].into_iter().collect(),
            offered_capabilities: ["ANONYMOUS-RELAY"].into_iter().collect(),
            desired_capabilities: Symbols::default(),
            properties: map(),
        })),
        Performative::Begin(Box::new(Begin { properties: map(), ..Begin::default() })),
        Performative::Attach(Box::new(attach())),
        Performative::Flow(Flow { handle: Some(1), link_credit: Some(9), ..Flow::default() }),
        Performative::Detach(Detach { handle: 1, closed: true, error: Some(Box::new(error())) }),
        Performative::End(End { error: Some(Box::new(error())) }),
        Performative::Close(Close::default()),
    ];
    for state in states() {
        all.push(Performative::Transfer(Transfer {
            delivery_tag: Some(DeliveryTag::from_number(9)),
            state: Some(state.clone()),
            ..Transfer::default()
        }));
        all.push(Performative::Disposition(Disposition {
            role: Role::Receiver,
            first: 1,
            last: Some(u32::MAX),
            settled: true,
            state: Some(state),
            batchable: false,
        }));
    }
    all
}

fn encoded(performative: &Performative) -> Vec<u8> {
    let mut out = BytesMut::new();
    performative.encode(&mut out);
    out.to_vec()
}

#[test]
fn what_is_decoded_from_any_bytes_is_encoded_and_decoded_alike() {
    let samples: Vec<_> = performatives().iter().map(encoded).collect();
    bolero::check!().with_iterations(20_000).with_type::<Mutation>().for_each(|mutation| {
        let bytes = spoiled(&samples, mutation);
        if let Ok((one, length)) = Performative::decode(&bytes) {
            assert!(length <= bytes.len());
            let again = encoded(&one);
            assert_eq!(check(&again), Ok(()));
            // A float that is not a number may sit in a map: compare the bytes, not the values.
            let back = Performative::decode(&again).map(|(back, _)| encoded(&back));
            assert_eq!(back.as_ref(), Ok(&again));
            // Defaults are left out and numbers are shortest. Symbols alone become an array, and
            // nothing else grows.
            assert!(again.len() <= 2 * bytes.len() + 64);
        }
        black_box(CoordinatorCommand::decode(&mut Reader::new(&bytes)).is_ok());
    });
}

#[test]
fn noise_in_the_list_of_a_performative_never_panics() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let size = u8::try_from(bytes.len() + 1).unwrap_or(u8::MAX);
        for code in [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18] {
            for count in [1, 3, 11] {
                let body = [&[0, 0x53, code, 0xc0, size, count], bytes].concat();
                black_box(Performative::decode(&body).is_ok());
            }
        }
    });
}

#[test]
fn a_value_that_passes_the_check_is_the_same_when_written_again() {
    let mut samples: Vec<_> = performatives().iter().map(encoded).collect();
    let mut out = BytesMut::new();
    map().encode(&mut out);
    samples.push(out.to_vec());
    samples.push(b"\xe0\x07\x02\x00\x53\x77\x52\x01\x02".to_vec());
    bolero::check!().with_iterations(20_000).with_type::<Mutation>().for_each(|mutation| {
        let bytes = spoiled(&samples, mutation);
        if let Ok(owned) = OwnedValue::decode(&mut Reader::new(&bytes)) {
            let again = OwnedValue::from(owned.view());
            assert_eq!(OwnedValue::from(again.view()), again);
            assert!(again.as_bytes().len() <= owned.as_bytes().len());
        }
    });
}
