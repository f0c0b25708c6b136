use bytes::{BufMut, BytesMut};
use proptest::prelude::*;
use towline_types::limits::NESTING_DEPTH_MAX;

use super::*;

fn encoded(value: Value<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    out
}

fn decoded(bytes: &[u8]) -> Result<Value<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let value = Value::decode(&mut reader)?;
    assert!(reader.is_empty(), "{bytes:02x?}");
    assert_eq!(check(bytes), Ok(()), "{bytes:02x?}");
    Ok(value)
}

#[test]
fn every_encoding_of_the_standard_is_read() {
    let cases: Vec<(&[u8], Value<'_>)> = vec![
        (b"\x40", Value::Null),
        (b"\x41", Value::Bool(true)),
        (b"\x42", Value::Bool(false)),
        (b"\x56\x01", Value::Bool(true)),
        (b"\x56\x00", Value::Bool(false)),
        (b"\x50\xff", Value::Ubyte(255)),
        (b"\x60\x01\x02", Value::Ushort(258)),
        (b"\x70\0\0\x01\x02", Value::Uint(258)),
        (b"\x52\xff", Value::Uint(255)),
        (b"\x43", Value::Uint(0)),
        (b"\x80\0\0\0\0\0\0\x01\x02", Value::Ulong(258)),
        (b"\x53\xff", Value::Ulong(255)),
        (b"\x44", Value::Ulong(0)),
        (b"\x51\xff", Value::Byte(-1)),
        (b"\x61\xff\xfe", Value::Short(-2)),
        (b"\x71\xff\xff\xff\xfe", Value::Int(-2)),
        (b"\x54\xfe", Value::Int(-2)),
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xfe", Value::Long(-2)),
        (b"\x55\xfe", Value::Long(-2)),
        (b"\x72\x3f\xc0\0\0", Value::Float(1.5)),
        (b"\x82\x3f\xf8\0\0\0\0\0\0", Value::Double(1.5)),
        (b"\x74\x01\x02\x03\x04", Value::Decimal32([1, 2, 3, 4])),
        (b"\x84\x01\x02\x03\x04\x05\x06\x07\x08", Value::Decimal64([1, 2, 3, 4, 5, 6, 7, 8])),
        (b"\x94\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Value::Decimal128([0; 16])),
        (b"\x73\0\x01\xf6\x00", Value::Char('\u{1f600}')),
        (b"\x83\xff\xff\xff\xff\xff\xff\xff\xff", Value::Timestamp(-1)),
        (b"\x98\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Value::Uuid([0; 16])),
        (b"\xa0\x02\x01\x02", Value::Binary(&[1, 2])),
        (b"\xb0\0\0\0\x02\x01\x02", Value::Binary(&[1, 2])),
        (b"\xa1\x02\xc3\xa4", Value::String("\u{e4}")),
        (b"\xb1\0\0\0\x02\xc3\xa4", Value::String("\u{e4}")),
        (b"\xa3\x01a", Value::Symbol("a")),
        (b"\xb3\0\0\0\x01a", Value::Symbol("a")),
    ];
    for (bytes, value) in cases {
        assert_eq!(decoded(bytes), Ok(value));
    }
}

#[test]
fn every_encoding_of_compound_types_is_read() {
    for list in [&b"\xc0\x03\x02\x41\x43"[..], b"\xd0\0\0\0\x06\0\0\0\x02\x41\x43"] {
        let Ok(Value::List(view)) = decoded(list) else { panic!() };
        let items: Vec<_> = view.iter().map(Result::unwrap).collect();
        assert_eq!(items, [Value::Bool(true), Value::Uint(0)]);
    }
    assert!(matches!(decoded(b"\x45"), Ok(Value::List(view)) if view.count() == 0));
    for map in [&b"\xc1\x05\x02\xa3\x01a\x43"[..], b"\xd1\0\0\0\x08\0\0\0\x02\xa3\x01a\x43"] {
        let Ok(Value::Map(view)) = decoded(map) else { panic!() };
        assert_eq!((view.count(), view.get("a")), (1, Some(Value::Uint(0))));
    }
    for array in [&b"\xe0\x06\x02\xa3\x01a\x01b"[..], b"\xf0\0\0\0\x09\0\0\0\x02\xa3\x01a\x01b"] {
        let Ok(Value::Array(view)) = decoded(array) else { panic!() };
        let items: Vec<_> = view.iter().map(Result::unwrap).collect();
        assert_eq!(items, [Value::Symbol("a"), Value::Symbol("b")]);
    }
    let Ok(Value::Array(view)) = decoded(b"\xe0\x07\x02\x00\x53\x77\x52\x01\x02") else { panic!() };
    let items: Vec<_> = view.iter().map(Result::unwrap).collect();
    assert_eq!(items, [Value::Uint(1), Value::Uint(2)], "an array of described values");
    let Ok(Value::Described(described)) = decoded(b"\x00\xa3\x01f\xa1\x01x") else { panic!() };
    assert_eq!(described.descriptor(), Value::Symbol("f"));
    assert_eq!(described.value(), Value::String("x"));
}

#[test]
fn malformed_values_are_refused_with_their_reason() {
    let cases: [(&[u8], DecodeError); 21] = [
        (b"", DecodeError::UnexpectedEnd),
        (b"\x3f", DecodeError::UnknownFormat(0x3f)),
        (b"\x46", DecodeError::UnknownFormat(0x46)),
        (b"\x56\x02", DecodeError::InvalidScalar),
        (b"\x73\0\0\xd8\0", DecodeError::InvalidScalar),
        (b"\xa1\x01\xff", DecodeError::InvalidText),
        (b"\xa3\x02\xc3\xa4", DecodeError::InvalidText),
        (b"\xa0\x02\x01", DecodeError::UnexpectedEnd),
        (b"\xb0\xff\xff\xff\xff\x01", DecodeError::UnexpectedEnd),
        (b"\xc0\x00\x00", DecodeError::UnexpectedEnd),
        (b"\xc0\x01\x01", DecodeError::InvalidCount),
        (b"\xc0\x02\x01\x41\x41", DecodeError::Excess),
        (b"\xc0\x03\x01\x41\x41", DecodeError::Excess),
        (b"\xc0\x02\x01\x50", DecodeError::UnexpectedEnd),
        (b"\xd0\0\0\0\x04\xff\xff\xff\xff", DecodeError::InvalidCount),
        (b"\xc1\x02\x01\x41", DecodeError::InvalidCount),
        (b"\xe0\x02\x01\x3f", DecodeError::UnknownFormat(0x3f)),
        (b"\xe0\x01\x00", DecodeError::UnexpectedEnd),
        (b"\xe0\x04\x01\x00\x40\x40", DecodeError::UnknownDescriptor),
        (b"\x00\x53", DecodeError::UnexpectedEnd),
        (b"\x00\x53\x24", DecodeError::UnexpectedEnd),
    ];
    for (bytes, error) in cases {
        assert_eq!(check(bytes), Err(error), "{bytes:02x?}");
    }
}

#[test]
fn an_array_of_elements_without_bytes_is_bounded_by_its_own_bytes() {
    for element in [0x40, 0x41, 0x42, 0x43, 0x44, 0x45] {
        let mut array = BytesMut::from(&b"\xf0\0\0\0\x05\xff\xff\xff\xff"[..]);
        array.put_u8(element);
        assert_eq!(check(&array), Err(DecodeError::InvalidCount));
        let mut reader = Reader::new(&array);
        assert_eq!(Value::decode(&mut reader), Err(DecodeError::InvalidCount));
    }
}

/// `depth` compound values inside each other, around a null.
fn nested(depth: usize, kind: u8) -> BytesMut {
    let mut value = BytesMut::from(&b"\x40"[..]);
    for _ in 0..depth {
        let inner = value.split();
        let (narrow, wide, count, before): (u8, u8, u32, &[u8]) = match kind {
            0 => (0xc0, 0xd0, 1, b""),
            1 => (0xc1, 0xd1, 2, b"\x43"),
            _ => {
                value.put_slice(b"\x00\x53\x01");
                value.put_slice(&inner);
                continue;
            }
        };
        let mut items = BytesMut::from(before);
        items.put_slice(&inner);
        write::compound(&mut value, narrow, wide, count, &items);
    }
    value
}

#[test]
fn nesting_is_limited_over_lists_maps_and_described_values() {
    for kind in 0..3 {
        assert_eq!(check(&nested(NESTING_DEPTH_MAX, kind)), Ok(()));
        assert_eq!(check(&nested(NESTING_DEPTH_MAX + 1, kind)), Err(DecodeError::TooDeep));
        assert_eq!(check(&nested(2_000, kind)), Err(DecodeError::TooDeep));
    }
}

#[test]
fn nesting_is_limited_over_arrays_and_their_descriptors() {
    let arrays = |depth: usize| {
        let mut value = BytesMut::from(&b"\x40"[..]);
        for _ in 0..depth {
            // What is a constructor in front of a value is the shared constructor of an array of
            // one.
            let inner = value.split();
            value.put_u8(0xf0);
            value.put_u32(u32::try_from(inner.len() + 4).unwrap());
            value.put_u32(1);
            value.put_slice(&inner);
        }
        value
    };
    assert_eq!(check(&arrays(NESTING_DEPTH_MAX)), Ok(()));
    assert_eq!(check(&arrays(NESTING_DEPTH_MAX + 1)), Err(DecodeError::TooDeep));
    let described = |count: usize| {
        let mut body = b"\x00\x44".repeat(count);
        body.extend_from_slice(b"\x52\x07");
        let mut value = BytesMut::new();
        write::compound(&mut value, 0xe0, 0xf0, 1, &body);
        value
    };
    assert_eq!(check(&described(NESTING_DEPTH_MAX - 1)), Ok(()));
    assert_eq!(check(&described(NESTING_DEPTH_MAX)), Err(DecodeError::TooDeep));
}

#[test]
fn the_levels_outside_count_when_a_field_is_read() {
    // The composite itself takes two levels: the described type and its list.
    for (depth, fits) in [(NESTING_DEPTH_MAX - 2, true), (NESTING_DEPTH_MAX - 1, false)] {
        let mut list = BytesMut::new();
        write::compound(&mut list, 0xc0, 0xd0, 1, &nested(depth, 0));
        let mut fields = Fields::open(&mut Reader::new(&list)).unwrap();
        assert_eq!(fields.skip().is_ok(), fits);
    }
}

#[test]
fn a_descriptor_is_read_in_all_its_forms() {
    for bytes in [
        &b"\x00\x53\x24\x45"[..],
        b"\x00\x80\0\0\0\0\0\0\0\x24\x45",
        b"\x00\xa3\x12amqp:accepted:list\x45",
        b"\x00\xb3\0\0\0\x12amqp:accepted:list\x45",
    ] {
        assert_eq!(descriptor(&mut Reader::new(bytes)), Ok(0x24));
    }
    assert_eq!(descriptor(&mut Reader::new(b"\x00\x44\x45")), Ok(0));
    assert_eq!(
        descriptor(&mut Reader::new(b"\x00\xa3\x01x\x45")),
        Err(DecodeError::UnknownDescriptor)
    );
}

#[test]
fn numbers_and_lists_are_written_in_the_shortest_form() {
    assert_eq!(&encoded(Value::Uint(0))[..], b"\x43");
    assert_eq!(&encoded(Value::Uint(255))[..], b"\x52\xff");
    assert_eq!(encoded(Value::Uint(256)).len(), 5);
    assert_eq!(&encoded(Value::Ulong(0))[..], b"\x44");
    assert_eq!(encoded(Value::Long(-129)).len(), 9);
    let mut out = BytesMut::new();
    FieldsWriter::list(&mut out, 0x24, |_| {});
    assert_eq!(&out[..], b"\x00\x53\x24\x45");
    out.clear();
    FieldsWriter::list(&mut out, 0x24, |fields| {
        fields.null();
        fields.u32(Some(7));
        fields.null();
        fields.null();
    });
    assert_eq!(&out[..], b"\x00\x53\x24\xc0\x04\x02\x40\x52\x07", "trailing nulls are left off");
    for length in [249, 250, 251, 252, 253, 254, 255, 256, 70_000] {
        out.clear();
        let body = vec![7; length];
        FieldsWriter::list(&mut out, 0x24, |fields| fields.binary(Some(&body)));
        assert_eq!(check(&out), Ok(()));
        let mut reader = Reader::new(&out);
        assert_eq!(descriptor(&mut reader), Ok(0x24));
        let mut fields = Fields::open(&mut reader).unwrap();
        assert_eq!(fields.binary(), Ok(Some(&body[..])));
        assert!(fields.finish().is_ok() && reader.is_empty());
    }
}

#[test]
fn a_map_is_looked_up_by_string_or_symbol() {
    let map = Map::default()
        .with("symbol", Value::Uint(1))
        .with_entry(Value::String("string"), Value::Bool(true))
        .with_entry(Value::Ulong(3), Value::Null);
    assert_eq!(map.len(), 3);
    assert_eq!(map.get("symbol"), Some(Value::Uint(1)));
    assert_eq!(map.get("string"), Some(Value::Bool(true)));
    assert_eq!(map.get("other"), None);
    let mut out = BytesMut::new();
    map.encode(&mut out);
    assert_eq!(Map::decode(&mut Reader::new(&out)), Ok(map));
}

#[test]
fn of_two_maps_the_later_one_counts_and_the_rest_stays_in_order() {
    let long = "x".repeat(300);
    let before = Map::default()
        .with("a", Value::String(&long))
        .with_entry(Value::String("b"), Value::Uint(1))
        .with_entry(Value::Ulong(3), Value::Null)
        .with("c", Value::Uint(1));
    let later = Map::default().with("b", Value::Uint(2)).with_entry(Value::Ulong(3), Value::Null);
    let wanted = Map::default()
        .with("a", Value::String(&long))
        .with_entry(Value::Ulong(3), Value::Null)
        .with("c", Value::Uint(1))
        .with("b", Value::Uint(2))
        .with_entry(Value::Ulong(3), Value::Null);
    assert_eq!(before.merged(&later), wanted);
    assert_eq!(before.merged(&Map::default()), before);
    assert_eq!(Map::default().merged(&later), later);
    for map in [before, later, Map::default()] {
        let bytes = map.to_bytes();
        assert_eq!(bytes.len(), map.encoded_bytes());
        assert_eq!(Map::decode(&mut Reader::new(&bytes)), Ok(map));
    }
}

#[test]
fn symbols_come_alone_or_as_an_array() {
    let alone = Symbols::decode(&mut Reader::new(b"\xa3\x05queue")).unwrap();
    assert_eq!(alone.iter().collect::<Vec<_>>(), ["queue"]);
    let long = "x".repeat(300);
    for names in [vec![], vec!["queue"], vec!["queue", "topic", ""], vec!["queue", &long]] {
        let symbols: Symbols = names.iter().copied().collect();
        let mut out = BytesMut::new();
        symbols.encode(&mut out);
        assert_eq!(check(&out), Ok(()));
        let back = Symbols::decode(&mut Reader::new(&out)).unwrap();
        assert_eq!(back.iter().collect::<Vec<_>>(), names);
        assert_eq!(back.contains("topic"), names.contains(&"topic"));
    }
    assert!(Symbols::decode(&mut Reader::new(b"\xe0\x04\x01\xa1\x01a")).is_err());
}

/// Any well-formed value, encoded.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(encoded(Value::Null)),
        any::<bool>().prop_map(|v| encoded(Value::Bool(v))),
        any::<u8>().prop_map(|v| encoded(Value::Ubyte(v))),
        any::<u16>().prop_map(|v| encoded(Value::Ushort(v))),
        any::<u32>().prop_map(|v| encoded(Value::Uint(v))),
        (0..300_u64).prop_map(|v| encoded(Value::Ulong(v))),
        any::<i8>().prop_map(|v| encoded(Value::Byte(v))),
        any::<i16>().prop_map(|v| encoded(Value::Short(v))),
        (-200..200_i32).prop_map(|v| encoded(Value::Int(v))),
        any::<i64>().prop_map(|v| encoded(Value::Long(v))),
        any::<f32>().prop_map(|v| encoded(Value::Float(v))),
        any::<f64>().prop_map(|v| encoded(Value::Double(v))),
        any::<char>().prop_map(|v| encoded(Value::Char(v))),
        any::<i64>().prop_map(|v| encoded(Value::Timestamp(v))),
        any::<[u8; 16]>().prop_map(|v| encoded(Value::Uuid(v))),
        any::<[u8; 16]>().prop_map(|v| encoded(Value::Decimal128(v))),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|v| encoded(Value::Binary(&v))),
        ".{0,40}".prop_map(|v| encoded(Value::String(&v))),
        "[ -~]{0,20}".prop_map(|v| encoded(Value::Symbol(&v))),
    ]
    .prop_map(|bytes| bytes.to_vec());
    leaf.prop_recursive(6, 64, 6, |inner| {
        let items = || proptest::collection::vec(inner.clone(), 0..6);
        let compound = |narrow, wide, count: usize, items: &[u8]| {
            let mut out = BytesMut::new();
            write::compound(&mut out, narrow, wide, u32::try_from(count).unwrap(), items);
            out.to_vec()
        };
        prop_oneof![
            items().prop_map(move |items| compound(0xc0, 0xd0, items.len(), &items.concat())),
            items().prop_map(move |items| {
                let even = items.len() / 2 * 2;
                compound(0xc1, 0xd1, even, &items[..even].concat())
            }),
            (inner.clone(), inner.clone()).prop_map(|(descriptor, value)| [
                &[0][..],
                &descriptor,
                &value
            ]
            .concat()),
            proptest::collection::vec(any::<u32>(), 0..20).prop_map(move |numbers| {
                let mut body = vec![0x70];
                numbers.iter().for_each(|number| body.extend_from_slice(&number.to_be_bytes()));
                compound(0xe0, 0xf0, numbers.len(), &body)
            }),
        ]
    })
}

/// Reads a value and all that is in it; the count of what was read.
fn walk(value: Value<'_>) -> Result<usize, DecodeError> {
    let mut todo = vec![value];
    let mut count = 0;
    while let Some(value) = todo.pop() {
        count += 1;
        match value {
            Value::List(list) => {
                for item in list.iter() {
                    todo.push(item?);
                }
            }
            Value::Map(map) => {
                for entry in map.iter() {
                    let (key, value) = entry?;
                    todo.extend([key, value]);
                }
            }
            Value::Array(array) => {
                for item in array.iter() {
                    todo.push(item?);
                }
            }
            Value::Described(described) => {
                todo.extend([described.descriptor(), described.value()]);
            }
            _ => {}
        }
    }
    Ok(count)
}

proptest! {
    #[test]
    fn a_value_is_written_as_it_was_read(bytes in any_value()) {
        prop_assert_eq!(check(&bytes), Ok(()));
        let value = Value::decode(&mut Reader::new(&bytes)).unwrap();
        let written = encoded(value);
        prop_assert_eq!(check(&written), Ok(()));
        let again = Value::decode(&mut Reader::new(&written)).unwrap();
        prop_assert_eq!(encoded(again), written);
        let owned = OwnedValue::decode(&mut Reader::new(&bytes)).unwrap();
        prop_assert_eq!(encoded(owned.view()), encoded(value));
    }

    #[test]
    fn a_value_that_is_cut_short_is_refused(
        bytes in any_value(),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(bytes.len());
        prop_assert!(check(&bytes[..cut]).is_err());
    }

    #[test]
    fn what_the_check_lets_pass_can_be_walked(
        bytes in any_value(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = bytes;
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(()) = check(&bytes) {
            let value = Value::decode(&mut Reader::new(&bytes)).unwrap();
            prop_assert!(walk(value).unwrap() <= bytes.len());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(value) = Value::decode(&mut Reader::new(&bytes)) {
            // Views of unchecked bytes may end in an error, but end they do.
            let walked = walk(value);
            prop_assert!(walked.is_err() || walked.is_ok());
        }
        drop(Map::decode(&mut Reader::new(&bytes)));
        drop(Symbols::decode(&mut Reader::new(&bytes)));
    }
}
