//! The bytes of both layouts, and what is refused of the fields of the second.

use towline_types::{History, HistoryId};

use super::*;
use crate::record::fields::{FieldForm, FieldNumber, LISTS};

const GROUP: u64 = 0x1122_3344_5566_7788;

fn put_of(header: Header, body: Body) -> Fact {
    let header = Header { persistent: true, priority: 4, order: 9, put_at: Time(1), ..header };
    let message = Box::new(Message { header, body, backout_count: 0, dead_letter: None });
    Fact::Put { queue: QueueId(1), sequence: MessageSequence(2), carried: false, message }
}

fn hi() -> Body {
    Body::Memory(Bytes::from_static(b"hi"))
}

fn carried(mut fact: Fact) -> Fact {
    if let Fact::Put { carried, .. } = &mut fact {
        *carried = true;
    }
    fact
}

fn backed_out(mut fact: Fact) -> Fact {
    if let Fact::Put { message, .. } = &mut fact {
        message.backout_count = 2;
    }
    fact
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn grouped() -> Header {
    let deliver_at = Some(Time(1 + 60_000_000));
    Header { group: GROUP, group_sequence: 7, deliver_at, ..Header::default() }
}

fn first_history() -> History {
    let id = HistoryId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let (live, cause) = ("E".to_owned(), String::new());
    History { id, parent: None, fork: Lsn(0), live, began: Time(5), cause }
}

fn second_history() -> History {
    let (live, cause) = ("\u{e9}".to_owned(), "wxy".to_owned());
    let parent = Some(first_history().id);
    History { id: HistoryId([0x11; 16]), parent, fork: Lsn(300), live, began: Time(5), cause }
}

/// Why these bytes are refused.
fn refusal(text: &str) -> RecordError {
    decode(&hex(text), Lsn(0)).unwrap_err()
}

#[test]
fn the_bytes_of_layout_1_do_not_change() {
    let (bytes, _) = encoded(&Fact::Got { queue: QueueId(3), sequence: MessageSequence(300) });
    assert_eq!(bytes, [0x82, 3, 0xac, 0x02]);
    let (bytes, range) = encoded(&backed_out(put_of(Header::default(), hi())));
    assert_eq!(bytes, hex("81 11 01 02 94 01 02 68 69"));
    assert_eq!(range, Some(7..9));
}

#[test]
fn the_bytes_of_layout_2_do_not_change() {
    let announced = |body| Body::Announced { body, chunks: 1, bytes: 2 };
    let name = BodyName::Carried(MessageSequence(2));
    let cases = [
        (
            backed_out(put_of(grouped(), hi())),
            "a1 11 01 02 94 01 02 10 0a 8877665544332211 0d 07 11 808ece1c 68 69",
        ),
        (carried(put_of(Header::default(), hi())), "a1 01 01 02 94 01 01 04 68 69"),
        (carried(put_of(Header::default(), announced(name))), "a1 41 01 02 94 01 01 04 02 01 02"),
        (Fact::Level { level: 2 }, "ad 02 05 02"),
        (Fact::Part { commit: CommitId(7), operations: 128 }, "ae 05 05 07 09 8001"),
        (Fact::Part { commit: CommitId(7), operations: 0 }, "ae 02 05 07"),
        (
            Fact::Completed { commit: CommitId(7), operations: 3, first: MessageSequence(300) },
            "af 07 05 07 09 03 0d ac02",
        ),
        (
            Fact::HistoryBegun { history: Box::new(first_history()), first: None },
            "b0 17 07 10 00010203040506070809 0a0b0c0d0e0f 13 01 45 15 05",
        ),
        (
            Fact::HistoryBegun {
                history: Box::new(second_history()),
                first: Some(MessageSequence(300)),
            },
            "b0 35 07 10 11111111111111111111111111111111 \
             0b 10 000102030405060708090a0b0c0d0e0f 0d ac02 13 02 c3a9 15 05 1b 03 777879 1d ac02",
        ),
        (
            Fact::Moved {
                from: QueueId(1),
                sequence: MessageSequence(2),
                to: QueueId(3),
                new_sequence: MessageSequence(4),
                order: Some(9),
                dead_letter: Box::new(DeadLetter {
                    reason: DeadLetterReason::Rejected,
                    origin: "Q".to_owned(),
                    origin_id: QueueId(1),
                    moved_at: Time(5),
                }),
            },
            "a5 01 02 03 04 01 01 05 01 51 02 05 09",
        ),
    ];
    for (fact, wanted) in cases {
        let (bytes, range) = encoded(&fact);
        assert_eq!(bytes, hex(wanted), "{fact:?}");
        assert_eq!(decode(&bytes, Lsn(1000)), Ok((expected(&fact, range), true)));
    }
    let chunk = Fact::BodyChunk { body: name, index: 0, chunk: hi() };
    let mut bytes = Vec::new();
    encode(&chunk, false, &mut bytes);
    assert_eq!(bytes, hex("26 02 00 01 04 68 69"));
}

#[test]
fn what_a_later_version_wrote_is_refused_as_such_and_never_skipped() {
    let unknown = |owner, number| Some(LaterFormat::Field { owner, number });
    for (text, later) in [
        ("c2 03 05", Some(LaterFormat::Version(3))),
        ("e2 03 05", Some(LaterFormat::Version(4))),
        ("b1 01 04", Some(LaterFormat::Kind(17))),
        ("bf 01 04", Some(LaterFormat::Kind(31))),
        // Reserved numbers, and one beyond all, in each form and at the end of known ones.
        ("a1 01 01 02 94 01 02 17 00 68 69", unknown("a message", 5)),
        ("a1 01 01 02 94 01 02 19 01 68 69", unknown("a message", 6)),
        ("a1 01 01 02 94 01 03 04 1d 01 68 69", unknown("a message", 7)),
        ("a1 01 01 02 94 01 01 20 68 69", unknown("a message", 8)),
        ("26 02 00 02 04 08 68 69", unknown("a chunk", 2)),
        ("a5 01 02 03 04 01 01 05 01 51 03 05 09 08", unknown("a move", 2)),
        ("ad 03 05 02 08", unknown("a level", 2)),
        ("ae 05 05 07 09 01 0c", unknown("a part", 3)),
        ("af 05 05 07 09 01 10", unknown("a completed commit", 4)),
        ("a2 03 05 01 04", unknown("another record", 1)),
        ("aa 01 02 05 01", unknown("another record", 1)),
        ("ad 02 05 04", Some(LaterFormat::Level(4))),
        ("b0 16 07 10 00000000000000000000000000000000 13 01 41 20", unknown("a history", 8)),
        ("ad 03 05 80 02", Some(LaterFormat::Level(256))),
    ] {
        let error = refusal(text);
        assert_eq!(error.later, later, "{text}: {error}");
        assert!(error.to_string().contains("a later version wrote it"), "{error}");
    }
}

#[test]
fn fields_have_one_spelling() {
    for (text, what) in [
        ("a1 01 01 02 94 01 00 68 69", "no fields where there are some"),
        ("a2 03 05 00", "no fields where there are some"),
        // Twice, not ascending, number 0.
        ("a1 01 01 02 94 01 02 04 04 68 69", "fields that do not ascend"),
        ("a1 01 01 02 94 01 03 11 01 04 68 69", "fields that do not ascend"),
        ("a1 01 01 02 94 01 01 00 68 69", "fields that do not ascend"),
        ("a1 01 01 02 94 01 02 05 01 68 69", "a field in another form"),
        ("a1 01 01 02 94 01 02 12 01 68 69", "a field in another form"),
        // What says what its absence says.
        ("a1 01 01 02 94 01 09 0a 0000000000000000 68 69", "a field that says nothing"),
        ("a1 01 01 02 94 01 02 11 00 68 69", "a field that says nothing"),
        ("a1 01 01 02 94 01 0b 0a 8877665544332211 0d 00 68 69", "a field that says nothing"),
        ("ad 02 05 01", "a field that says nothing"),
        ("ad 02 05 00", "a field that says nothing"),
        ("ae 04 05 07 09 00", "a field that says nothing"),
        ("b0 05 13 01 45 15 05", "a history without a name"),
        ("b0 16 07 0f 000102030405060708090a0b0c0d0e 13 01 45 15 05", "the name of a history has"),
        ("b0 15 07 10 000102030405060708090a0b0c0d0e0f 13 00 69", "a field that says nothing"),
        ("b0 12 07 10 000102030405060708090a0b0c0d0e0f", "a history beyond its bounds"),
        // The first one of a log that does not begin at its beginning.
        ("b0 17 07 10 000102030405060708090a0b0c0d0e0f 0d 07 13 01 45", "a history beyond its"),
        ("b0 15 07 10 000102030405060708090a0b0c0d0e0f 13 01 ff", "text that is not UTF-8"),
        ("ae 02 09 01", "a commit without a number"),
        ("af 02 09 01", "a commit without a number"),
        ("ae 08 05 07 09 8080808010", "a number of more than 32"),
        // In no group.
        ("a1 01 01 02 94 01 02 0d 07 68 69", "a field that says nothing"),
        ("a1 01 01 02 94 01 0f 0a 8877665544332211 0d 8080808010 68", "a number of more than 32"),
        ("a1 01 01 02 94 01 03 11 8100 68 69", "a number with leading zeros"),
        ("a5 01 02 03 04 01 01 05 01 51 02 05 0a", "a priority above 9"),
        ("a1 41 01 02 94 01 01 04 03 01 02", "the body of another message"),
        // Cut inside a field, and inside the fields.
        ("a1 01 01 02 94 01 01 11", "ends too early"),
        ("a1 01 01 02 94 01 04 0a 887766", "ends too early"),
        ("a1 01 01 02 94 01 20 0a 887766", "ends too early"),
        // A kind that is of the second layout only, in the first; and none.
        ("8d 02 05 02", "a record of an unknown kind"),
        ("8e 01 04", "a record of an unknown kind"),
        ("a0 01 04", "a record of an unknown kind"),
    ] {
        let error = refusal(text);
        assert!(error.what.starts_with(what), "{text}: {error}");
        assert_eq!(error.later, None, "{text}");
    }
}

#[test]
fn fields_are_no_longer_than_their_bound() {
    let max = towline_types::limits::FIELD_BYTES_MAX;
    for (bytes, known) in [(max, true), (max + 1, false)] {
        let mut record = hex("a1 01 01 02 94 01");
        put_varint(bytes, &mut record);
        record.push(0x04);
        record.resize(record.len() + 5_000, 0x68);
        let error = decode(&record, Lsn(0)).unwrap_err();
        assert_eq!(error.later.is_some(), known, "{bytes}: {error}");
    }
}

#[test]
fn the_table_of_fields_in_the_documentation_is_the_list() {
    let page = include_str!("../../../../../docs/internals/log-format.md");
    let mut table = String::new();
    for list in LISTS {
        for number in list.numbers {
            table += &match number {
                FieldNumber::Used { number, form, name, level } => {
                    let key = number << 2 | *form as u64;
                    let form = match form {
                        FieldForm::Nothing => "none",
                        FieldForm::Number => "varint",
                        FieldForm::Word => "8 LE",
                        FieldForm::Bytes => "length, bytes",
                    };
                    let owner = list.owner;
                    format!("| {owner} | {number} | `{key:02x}` | {form} | {name} | {level} |\n")
                }
                FieldNumber::Reserved { number, name } => {
                    format!("| {} | {number} | | | {name} | reserved |\n", list.owner)
                }
            };
        }
    }
    assert!(page.contains(&table), "docs/internals/log-format.md should have:\n{table}");
}
