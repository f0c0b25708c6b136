//! The advisories of other AMQP servers, as tests: what crashed or filled them is refused here.
//!
//! Depth of nesting, counts of lists and half frames have their tests beside the codec and the
//! frames; slow and silent peers in `tests/e2e/tests/hostile_load.rs`.

use towline_amqp::codec::{Reader, Symbols, check};
use towline_amqp::sections::Sections;
use towline_amqp::types::{Performative, SaslFrame};

/// Elements that take no bytes: null, true, false, uint 0, ulong 0, the empty list.
const NO_WIDTH: [u8; 6] = [0x40, 0x41, 0x42, 0x43, 0x44, 0x45];
/// Open, begin, attach, flow, transfer, disposition, detach, end, close.
const PERFORMATIVES: std::ops::RangeInclusive<u8> = 0x10..=0x18;
/// Mechanisms, init, challenge, response, outcome.
const SASL: std::ops::RangeInclusive<u8> = 0x40..=0x44;
/// Header, delivery and message annotations, properties, application properties, data, sequence,
/// value, footer.
const SECTIONS: std::ops::RangeInclusive<u8> = 0x70..=0x78;
/// More fields than any composite of the standard has.
const FIELDS: u8 = 15;

/// An array that says 2^32-1 elements and has none of their bytes.
fn array(element: u8) -> Vec<u8> {
    [&b"\xf0\0\0\0\x05\xff\xff\xff\xff"[..], &[element]].concat()
}

/// A composite with all fields null but one.
fn composite(code: u8, field: u8, value: &[u8]) -> Vec<u8> {
    let fields = [&vec![0x40; usize::from(field)][..], value].concat();
    let size = u8::try_from(fields.len() + 1).unwrap_or(u8::MAX);
    [&[0, 0x53, code, 0xc0, size, field + 1][..], &fields].concat()
}

// CVE-2026-66079: an array of very many elements of no width was expanded, before the login.
#[test]
fn an_array_that_lies_about_its_count_is_refused_in_each_field_of_each_frame() {
    for element in NO_WIDTH {
        let array = array(element);
        assert!(check(&array).is_err());
        for field in 0..FIELDS {
            for code in PERFORMATIVES {
                let frame = composite(code, field, &array);
                assert!(Performative::decode(&frame).is_err(), "{code:#x} {field} {element:#x}");
            }
            for code in SASL {
                let frame = composite(code, field, &array);
                assert!(SaslFrame::decode(&frame).is_err(), "{code:#x} {field} {element:#x}");
            }
        }
    }
}

#[test]
fn an_array_that_lies_about_its_count_is_refused_in_each_section_of_a_message() {
    for element in NO_WIDTH {
        let array = array(element);
        let size = u8::try_from(array.len() + 3).unwrap();
        // { x: array }, with a symbol and with a string for key.
        let maps =
            [0xa1, 0xa3].map(|key| [&[0xc1, size + 1, 2, key, 1, b'x'][..], &array].concat());
        for code in SECTIONS {
            let bare = [&[0, 0x53, code][..], &array].concat();
            let inside = maps.iter().map(|map| [&[0, 0x53, code][..], map].concat());
            let fields = (0..FIELDS).map(|field| composite(code, field, &array));
            for section in std::iter::once(bare).chain(inside).chain(fields) {
                let message = [&section[..], b"\x00\x53\x77\x40"].concat();
                assert!(Sections::scan_checked(&section).is_err(), "{code:#x} {element:#x}");
                assert!(Sections::scan_checked(&message).is_err(), "{code:#x} {element:#x}");
            }
        }
    }
}

// CVE-2026-67414: many arrays, each of them permitted, added up. Each pays with bytes of its own.
#[test]
fn a_frame_full_of_arrays_takes_no_more_than_twice_its_own_size() {
    const ELEMENTS: usize = 200;
    let one = {
        let count = u8::try_from(ELEMENTS).unwrap();
        // Symbols of no bytes: one byte each, for their length.
        [&[0xe0, count + 2, count, 0xa3][..], &[0; ELEMENTS]].concat()
    };
    let mut held = 0;
    for _ in 0..300 {
        let symbols = Symbols::decode(&mut Reader::new(&one)).unwrap();
        assert_eq!(symbols.iter().count(), ELEMENTS);
        held += symbols.memory_bytes();
    }
    assert!(held <= 2 * 300 * one.len(), "{held}");
}

// CVE-2026-67416: the name of a section was matched by its beginning.
#[test]
fn a_section_whose_name_only_begins_like_one_is_refused() {
    let named = |name: &str, value: &[u8]| {
        let length = u8::try_from(name.len()).unwrap();
        [&[0, 0xa3, length][..], name.as_bytes(), value].concat()
    };
    let value: &[u8] = b"\x40";
    let data: &[u8] = b"\xa0\x01x";
    assert!(Sections::scan_checked(&named("amqp:amqp-value:*", value)).is_ok());
    assert!(Sections::scan_checked(&named("amqp:data:binary", data)).is_ok());
    let names = ["", "amqp", "amqp:", "amqp:data", "amqp:data:", "amqp:data:binar", "amqp:value:*"];
    let longer =
        ["amqp:data:binary2", "amqp:data:binary:x", "amqp:amqp-value:**", "AMQP:DATA:BINARY"];
    for name in names.into_iter().chain(longer) {
        for content in [value, data] {
            assert!(Sections::scan_checked(&named(name, content)).is_err(), "{name}");
        }
    }
}

// The same habit in what opens a connection: a name that is none opens nothing.
#[test]
fn a_performative_whose_name_only_begins_like_one_is_refused() {
    for name in ["amqp:close", "amqp:close:", "amqp:close:list2", "amqp:closed:list", ""] {
        let length = u8::try_from(name.len()).unwrap();
        let frame = [&[0, 0xa3, length][..], name.as_bytes(), b"\x45"].concat();
        assert!(Performative::decode(&frame).is_err(), "{name}");
    }
}
