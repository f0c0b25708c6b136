//! Malformed input of every kind: each ends its connection, session or link, and nothing else.

use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::peer::{
    Ending, Peer, attach_coordinator, attach_sender, credit_flow, open_frame, transfer,
};
use towline_e2e::require;
use towline_e2e::wire::{
    AMQP_HEADER, SASL_HEADER, Value, amqp, code, described, frame, symbol, text,
};

/// How long an ending may take; the login time-out is 10 s.
const LIMIT: Duration = Duration::from_secs(5);

/// The queue that hostile peers attach to.
const LINK: &str = "HOSTILE";
/// The smallest message: one data section of one byte.
const SMALL: &[u8] = b"\x00\x53\x75\xa0\x01x";

/// A plain client that works on while others misbehave.
struct Bystander {
    peer: Peer,
    puts: u32,
}

impl Bystander {
    fn on(daemon: &Daemon) -> Try<Self> {
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, "BYSTANDER")?;
        peer.attach_receiver(1, "BYSTANDER", 1_000_000)?;
        Ok(Self { peer, puts: 0 })
    }

    fn works(&mut self) -> Try {
        self.peer.put(0, self.puts, b"still here")?;
        self.peer.get()?;
        self.puts += 1;
        Ok(())
    }
}

/// Sends bytes on a fresh peer for each case; each must end, and the bystander must not notice.
fn all_end(cases: Vec<(&str, Vec<u8>)>, fresh: impl Fn(&str) -> Try<Peer>) -> Try {
    let site = Site::open()?;
    let mut daemon = site.start()?;
    let mut bystander = Bystander::on(&daemon)?;
    let mut wrong = Vec::new();
    for (name, bytes) in cases {
        let mut peer = fresh(daemon.address())?;
        // The daemon may hang up while we are still sending: that is an ending, too.
        let ending = match peer.send(&bytes) {
            Ok(()) => peer.ending(LIMIT)?,
            Err(_) => Ending::Hangup,
        };
        println!("{name}: {ending:?}");
        if ending == Ending::Nothing {
            wrong.push(name);
        }
        require!(daemon.is_running(), "{name} ended the daemon:\n{}", site.log());
        bystander.works().map_err(|error| format!("after {name}: {error}"))?;
    }
    require!(wrong.is_empty(), "not ended within {LIMIT:?}: {wrong:?}");
    require!(daemon.resident_bytes()? < 300 << 20, "memory: {}", daemon.resident_bytes()?);
    daemon.stop()
}

fn nested(depth: usize, opening: &[u8]) -> Vec<u8> {
    let mut bytes = opening.repeat(depth);
    bytes.push(0x40);
    frame(0, 0, &bytes)
}

#[test]
fn a_wrong_protocol_header_is_answered_and_the_connection_ends() -> Try {
    let cases = vec![
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("AMQP 0-9-1", b"AMQP\x00\x00\x09\x01".to_vec()),
        ("AMQP 2.0.0", b"AMQP\x00\x02\x00\x00".to_vec()),
        ("the TLS header of AMQP on a plain port", b"AMQP\x02\x01\x00\x00".to_vec()),
        ("a TLS client hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("zeros", vec![0; 4096]),
        ("random letters", b"hello, is anybody there?".to_vec()),
    ];
    all_end(cases, Peer::connect)
}

#[test]
fn a_malformed_login_ends_the_connection() -> Try {
    let init = |mechanism: &str| {
        let fields = vec![symbol(mechanism), Value::Binary(b"x".into())];
        frame(1, 0, &described(code::SASL_INIT, fields).bytes())
    };
    let with = |bytes: Vec<u8>| [SASL_HEADER.to_vec(), bytes].concat();
    let open = amqp(0, &open_frame(), &[]);
    let cases = vec![
        ("a SASL frame beyond 512 bytes", with(frame(1, 0, &[0; 4000]))),
        ("a SASL frame that says 4 GiB", with(b"\xff\xff\xff\xff\x02\x01\x00\x00".to_vec())),
        ("an unknown mechanism", with(init("NONSENSE"))),
        ("two inits at once", with([init("ANONYMOUS"), init("ANONYMOUS")].concat())),
        ("a response before a challenge", {
            with(frame(1, 0, &described(code::SASL_RESPONSE, vec![Value::Binary(vec![])]).bytes()))
        }),
        ("an AMQP frame instead of a SASL frame", with(open.clone())),
        ("an outcome from the client", {
            with(frame(1, 0, &described(code::SASL_OUTCOME, vec![Value::Ubyte(0)]).bytes()))
        }),
        ("an init of nulls", with(frame(1, 0, &described(code::SASL_INIT, vec![]).bytes()))),
        ("a mechanism of the wrong type", {
            let fields = vec![Value::Uint(7)];
            with(frame(1, 0, &described(code::SASL_INIT, fields).bytes()))
        }),
        ("an empty SASL frame", with(frame(1, 0, &[]))),
        ("the SASL header twice", with(SASL_HEADER.to_vec())),
    ];
    all_end(cases, Peer::connect)
}

#[test]
fn a_malformed_frame_ends_the_connection() -> Try {
    let raw = |bytes: &[u8]| frame(0, 0, bytes);
    let cases = vec![
        ("a frame of 7 bytes", b"\x00\x00\x00\x07\x02\x00\x00".to_vec()),
        ("a frame of 0 bytes", b"\x00\x00\x00\x00\x02\x00\x00\x00".to_vec()),
        ("a frame that says 4 GiB", b"\xff\xff\xff\xff\x02\x00\x00\x00".to_vec()),
        ("a frame beyond max-frame-size", frame(0, 0, &vec![0; 200_000])),
        ("a data offset of 1", b"\x00\x00\x00\x08\x01\x00\x00\x00".to_vec()),
        ("a data offset beyond the frame", b"\x00\x00\x00\x08\xff\x00\x00\x00".to_vec()),
        ("an unknown frame type", frame(9, 0, &described(code::BEGIN, vec![]).bytes())),
        ("an unknown performative", raw(&described(0x99, vec![]).bytes())),
        (
            "a performative that is no list",
            raw(&Value::Described(code::BEGIN, Box::new(text("x"))).bytes()),
        ),
        ("a value without a descriptor", raw(&text("x").bytes())),
    ];
    all_end(cases, Peer::open)
}

#[test]
fn a_malformed_value_ends_the_connection() -> Try {
    let raw = |bytes: &[u8]| frame(0, 0, bytes);
    let open = |field: Value| amqp(0, &described(code::OPEN, vec![field]), &[]);
    let cases = vec![
        ("an unknown constructor", raw(b"\x00\x53\x11\x39\x00")),
        ("half a performative", raw(b"\x00\x53\x11\xd0\x00\x00\x00\xff\x00\x00\x00\x09")),
        ("a list that says more items than it has", raw(b"\x00\x53\x11\xc0\x02\x7f\x40")),
        (
            "a list of 2^32-1 items in no bytes",
            raw(b"\x00\x53\x11\xd0\x00\x00\x00\x04\xff\xff\xff\xff"),
        ),
        ("an array of 2^31 nulls", {
            raw(b"\x00\x53\x11\xc0\x0d\x01\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x40")
        }),
        ("an array of 2^31 empty lists", {
            raw(b"\x00\x53\x11\xc0\x0d\x01\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x45")
        }),
        ("a string that is not UTF-8", open(Value::Raw(b"\xa1\x02\xff\xfe".to_vec()))),
        ("a map of odd count", {
            let map = Value::Raw(b"\xc1\x03\x03\x40\x40".to_vec());
            amqp(
                0,
                &described(
                    code::BEGIN,
                    vec![
                        Value::Null,
                        Value::Uint(0),
                        Value::Uint(1),
                        Value::Uint(1),
                        Value::Null,
                        Value::Null,
                        Value::Null,
                        map,
                    ],
                ),
                &[],
            )
        }),
        ("descriptors nested 10,000 deep", nested(10_000, b"\x00")),
        ("lists nested 3,000 deep", {
            let mut bytes = b"\x00\x53\x11".to_vec();
            for level in (0..3_000_u32).rev() {
                bytes.push(0xd0);
                bytes.extend((level * 9 + 5).to_be_bytes());
                bytes.extend(1_u32.to_be_bytes());
            }
            bytes.push(0x40);
            raw(&bytes)
        }),
    ];
    all_end(cases, Peer::open)
}

#[test]
fn a_performative_out_of_turn_ends_the_connection() -> Try {
    let cases = vec![
        ("a second open", amqp(0, &open_frame(), &[])),
        ("a begin without its fields", amqp(0, &described(code::BEGIN, vec![]), &[])),
        (
            "a begin of the wrong types",
            amqp(0, &described(code::BEGIN, vec![text("a"), text("b")]), &[]),
        ),
        ("a channel beyond channel-max", {
            let fields = vec![Value::Null, Value::Uint(0), Value::Uint(1), Value::Uint(1)];
            amqp(60_000, &described(code::BEGIN, fields), &[])
        }),
        ("an attach on no session", amqp(3, &attach_sender(0, "Q"), &[])),
        ("an end of no session", amqp(5, &described(code::END, vec![]), &[])),
        ("an AMQP header in the middle", AMQP_HEADER.to_vec()),
    ];
    all_end(cases, Peer::open)
}

#[test]
fn a_performative_before_open_ends_the_connection() -> Try {
    let begin =
        described(code::BEGIN, vec![Value::Null, Value::Uint(0), Value::Uint(1), Value::Uint(1)]);
    let small = described(code::OPEN, vec![text("e2e"), text("h"), Value::Uint(10)]);
    let cases = vec![
        ("a begin before open", amqp(0, &begin, &[])),
        ("a transfer before open", amqp(0, &transfer(0, 0, false), &[])),
        ("a close before open", amqp(0, &described(code::CLOSE, vec![]), &[])),
        ("an open without a container", amqp(0, &described(code::OPEN, vec![]), &[])),
        ("an open with max-frame-size 10", amqp(0, &small, &[])),
        ("an open on channel 9", amqp(9, &open_frame(), &[])),
    ];
    all_end(cases, |address| {
        let mut peer = Peer::connect(address)?;
        peer.authenticate()?;
        Ok(peer)
    })
}

/// An attach of [`LINK`] and then further bytes.
fn attached(bytes: Vec<u8>) -> Vec<u8> {
    [amqp(0, &attach_sender(0, LINK), &[]), bytes].concat()
}

/// A transfer frame of these fields, with a small message.
fn transferred(fields: Vec<Value>) -> Vec<u8> {
    amqp(0, &described(code::TRANSFER, fields), SMALL)
}

#[test]
fn a_violation_on_a_session_ends_link_session_or_connection() -> Try {
    let attach = |fields: Vec<Value>| amqp(0, &described(code::ATTACH, fields), &[]);
    let link = |role, rest: Vec<Value>| {
        attach([vec![text("l"), Value::Uint(1), Value::Bool(role)], rest].concat())
    };
    let begin =
        described(code::BEGIN, vec![Value::Null, Value::Uint(0), Value::Uint(1), Value::Uint(1)]);
    let window = described(
        code::FLOW,
        vec![Value::Uint(4_000_000_000), Value::Uint(1), Value::Uint(0), Value::Uint(1)],
    );
    let cases = vec![
        ("a transfer on no link", amqp(0, &transfer(44, 0, false), &[])),
        ("a flow on no link", amqp(0, &credit_flow(44, 0, 1), &[])),
        ("a detach of no link", amqp(0, &described(code::DETACH, vec![Value::Uint(44)]), &[])),
        ("a handle beyond handle-max", amqp(0, &attach_sender(1_000_000, LINK), &[])),
        ("a handle in use", attached(amqp(0, &attach_sender(0, "HOSTILE.2"), &[]))),
        ("an attach of nothing", attach(vec![])),
        ("an attach without a role", attach(vec![text("l"), Value::Uint(1)])),
        ("a source that is text", link(true, vec![Value::Null, Value::Null, text("x")])),
        ("a second begin on the channel", amqp(0, &begin, &[])),
        ("a flow with a window of the future", amqp(0, &window, &[])),
    ];
    all_end(cases, Peer::begun)
}

#[test]
fn a_violation_on_a_link_ends_link_session_or_connection() -> Try {
    let first = |delivery| {
        vec![
            Value::Uint(0),
            Value::Uint(delivery),
            Value::Binary(vec![1]),
            Value::Uint(0),
            Value::Bool(false),
            Value::Bool(true),
        ]
    };
    let long_tag = vec![Value::Uint(0), Value::Uint(0), Value::Binary(vec![7; 33])];
    let many: Vec<u8> =
        (0..5_000).flat_map(|delivery| amqp(0, &transfer(0, delivery, false), SMALL)).collect();
    let coordinator = coordinated(&text("commit, please"));
    let cases = vec![
        ("no delivery-id and no tag", attached(transferred(vec![Value::Uint(0)]))),
        ("a delivery-tag of 33 bytes", attached(transferred(long_tag))),
        (
            "another delivery-id within a delivery",
            attached([transferred(first(0)), transferred(first(1))].concat()),
        ),
        ("more transfers than credit", attached(many)),
        ("text to the coordinator", coordinator),
    ];
    all_end(cases, Peer::begun)
}

/// An attach of a coordinator link and a transfer of this body on it.
fn coordinated(body: &Value) -> Vec<u8> {
    let payload = Value::Described(code::AMQP_VALUE, Box::new(body.clone())).bytes();
    let attach = amqp(0, &attach_coordinator(9), &[]);
    [attach, amqp(0, &transfer(9, 0, false), &payload)].concat()
}

#[test]
fn a_malformed_message_is_refused_and_never_stored() -> Try {
    let message = |payload: &[u8]| attached(amqp(0, &transfer(0, 0, false), payload));
    let discharge =
        described(code::DISCHARGE, vec![Value::Binary(b"nope".into()), Value::Bool(false)]);
    let twice = [SMALL, b"\x00\x53\x73\x45"].concat();
    all_end_or_reject(vec![
        ("a discharge of no unit", coordinated(&discharge)),
        ("a message that is no message", message(b"garbage")),
        ("a message of nothing", message(b"")),
        ("a section cut short", message(b"\x00\x53\x75\xb0\x00\x00\xff\xffxx")),
        ("sections in the wrong order", message(&twice)),
        ("an unknown section", message(b"\x00\x53\x7f\x45")),
        ("properties that are no list", message(b"\x00\x53\x73\xa1\x01x")),
    ])
}

/// As [`all_end`], but a rejected delivery is an answer, too.
fn all_end_or_reject(cases: Vec<(&str, Vec<u8>)>) -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    for (name, bytes) in cases {
        let mut peer = Peer::begun(daemon.address())?;
        peer.send(&bytes)?;
        let answer = loop {
            let Some(got) = peer.read_frame(LIMIT)? else { break None };
            let ends = [code::DISPOSITION, code::DETACH, code::END, code::CLOSE];
            if got.performative.code().is_some_and(|code| ends.contains(&code)) {
                break Some(got.performative);
            }
        };
        println!("{name}: {answer:?}");
        let Some(answer) = answer else { towline_e2e::fail!("{name}: no answer") };
        let outcome = answer.field(4).code();
        require!(outcome != Some(code::ACCEPTED), "{name}: accepted");
    }
    let depth = site.queue_number("HOSTILE", "depth")?;
    require!(depth == 0, "{depth} malformed messages were stored");
    daemon.stop()
}

#[test]
fn a_disposition_of_four_billion_deliveries_costs_nothing() -> Try {
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    let range = vec![
        Value::Bool(true),
        Value::Uint(0),
        Value::Uint(u32::MAX),
        Value::Bool(true),
        described(code::ACCEPTED, vec![]),
    ];
    let before = daemon.cpu_time()?;
    for _ in 0..1_000 {
        peer.send(&amqp(0, &described(code::DISPOSITION, range.clone()), &[]))?;
    }
    Bystander::on(&daemon)?.works()?;
    let used = daemon.cpu_time()?.saturating_sub(before);
    require!(used < Duration::from_secs(1), "the ranges took {used:?}");
    daemon.stop()
}

#[test]
fn names_that_do_not_exist_refuse_the_link_and_nothing_else() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL('EXISTS')")?;
    let mut peer = Peer::begun(daemon.address())?;
    for (handle, name) in [(1, "NO.SUCH"), (2, "exists"), (3, ""), (4, "queue://NOT.THERE")] {
        peer.send(&amqp(0, &attach_sender(handle, name), &[]))?;
        let attach = peer.expect(code::ATTACH)?;
        let null = [&Value::Null];
        require!(null.contains(&attach.performative.field(6)), "{name:?} has a target: {attach:?}");
        let detach = loop {
            let Some(got) = peer.read_frame(LIMIT)? else { towline_e2e::fail!("no detach") };
            if got.performative.code() == Some(code::DETACH) {
                break got.performative;
            }
        };
        require!(detach.field(2).condition() == Some("amqp:not-found"), "{name:?}: {detach:?}");
    }
    let long = "X".repeat(256);
    peer.send(&amqp(0, &attach_sender(5, &long), &[]))?;
    let ending = peer.ending(LIMIT)?;
    require!(matches!(ending, Ending::Condition(_)), "a name of 256 bytes: {ending:?}");
    peer.attach_sender(6, "EXISTS")?;
    peer.put(6, 0, b"the session goes on")?;
    daemon.stop()
}
