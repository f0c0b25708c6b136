use clap::Parser;
use towline_types::Time;

use super::*;
use crate::args::LoadArgs;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    load: LoadArgs,
}

fn content(line: &str) -> Content {
    let words = std::iter::once("load").chain(line.split_whitespace());
    let args = Command::try_parse_from(words).unwrap().load;
    Content::new(&Plan::new(&args, 5).unwrap())
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { run: 5, producer: 2, sequence, put_at: Time(7) }
}

#[test]
fn a_message_has_its_size_and_its_stamp() {
    for size in [32, 100, 2048, 100_000] {
        let message = content(&format!("put --size {size}")).message(stamp(3));
        let whole = message.to_contiguous();
        let Some(Value::Binary(body)) = section(&whole, DATA) else { panic!("no data section") };
        assert_eq!(body.len(), size);
        assert_eq!(body_start(&message), Some(stamp(3)));
    }
}

#[test]
fn only_a_persistent_message_has_the_durable_header() {
    let whole = content("put").message(stamp(0)).to_contiguous();
    let Some(Value::List(header)) = section(&whole, HEADER) else { panic!("no header") };
    assert_eq!(header.iter().next().unwrap().unwrap(), Value::Bool(true));
    let whole = content("put --non-persistent").message(stamp(0)).to_contiguous();
    assert!(section(&whole, HEADER).is_none());
}

#[test]
fn random_bodies_do_not_repeat_within_what_lz4_looks_back() {
    let mut content = content("put --size 2048");
    let first = content.message(stamp(0)).to_contiguous();
    for sequence in 1..64 {
        let next = content.message(stamp(sequence)).to_contiguous();
        assert_ne!(first[first.len() - 64..], next[next.len() - 64..]);
    }
}

#[test]
fn a_reply_goes_to_reply_to_with_the_id_and_the_body_of_its_request() {
    let mut content = content("requester --reply");
    let request = content.request(stamp(9), "queue", "answers");
    let reply = content.reply(&request).unwrap();
    let whole = reply.to_contiguous();
    let Some(Value::List(fields)) = section(&whole, PROPERTIES) else { panic!("no properties") };
    let fields: Vec<Value<'_>> = fields.iter().map(Result::unwrap).collect();
    assert_eq!(fields[2], Value::String("answers"));
    assert_eq!(fields[CORRELATION_ID], Value::Ulong((2 << 40) | 9));
    assert_eq!(body_start(&reply), Some(stamp(9)));
}

#[test]
fn a_request_without_reply_to_has_no_reply() {
    let mut content = content("responder");
    let message = content.message(stamp(0));
    assert!(content.reply(&message).is_none());
}

#[test]
fn a_message_of_another_program_has_no_stamp() {
    for bytes in [&b"nonsense"[..], &[], &[0, 0x53, 0x77, 0xa1, 2, b'h', b'i']] {
        assert_eq!(body_start(&Payload::from(Bytes::copy_from_slice(bytes))), None);
    }
}

#[test]
fn coordinator_messages_are_those_of_the_standard() {
    assert_eq!(declare().to_contiguous()[..], [0, 0x53, 0x77, 0, 0x53, 0x31, 0x45]);
    let txn = TxnId::new(b"t").unwrap();
    let whole = commit(txn).to_contiguous();
    let mut reader = Reader::new(&whole);
    assert_eq!(descriptor(&mut reader).unwrap(), u64::from(AMQP_VALUE));
    let command = CoordinatorCommand::decode(&mut reader).unwrap();
    assert_eq!(command, CoordinatorCommand::Discharge(Discharge { txn_id: txn, fail: false }));
}
