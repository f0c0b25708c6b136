//! Frames as text, both ways: `@1 transfer handle=0 delivery-id=3 tag=t more payload=hello`.
//!
//! A line is an optional `@channel` (0 when left out), the name of the performative, and words of
//! the form `field=value` or `flag`. Fields with the standard's default are left out. The names are
//! the standard's, except `payload`, `source`, `target` (an address; `$coordinator`), `state` and
//! `error`, and the flag `copy` of an attach (distribution-mode).

use std::fmt::Write;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::codec::{Composite, Map, Symbols};
use crate::frame::{self, FrameKind};
use crate::types::{
    Attach, Begin, Close, Coordinator, DeliveryState, DeliveryTag, Detach, Disposition,
    DistributionMode, End, Error, Flow, LinkTarget, Open, Outcome, Performative,
    ReceiverSettleMode, Role, SenderSettleMode, Source, Symbol, Target, Transfer, TxnId,
};

/// The words behind the name of a performative.
struct Words<'a> {
    line: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn text(&self, field: &str) -> Option<&'a str> {
        self.words.iter().find_map(|word| word.strip_prefix(field)?.strip_prefix('='))
    }

    fn shared(&self, field: &str) -> Option<Arc<str>> {
        self.text(field).map(Arc::from)
    }

    fn number<T: std::str::FromStr>(&self, field: &str) -> Option<T> {
        let parse = |text: &str| {
            text.parse().unwrap_or_else(|_| panic!("{field} is no number in {:?}", self.line))
        };
        self.text(field).map(parse)
    }

    fn needed<T: std::str::FromStr>(&self, field: &str) -> T {
        self.number(field).unwrap_or_else(|| panic!("{field} is missing in {:?}", self.line))
    }

    fn flag(&self, flag: &str) -> bool {
        self.words.contains(&flag)
    }

    fn role(&self) -> Role {
        match self.text("role") {
            Some("sender") => Role::Sender,
            Some("receiver") => Role::Receiver,
            other => panic!("role {other:?} in {:?}", self.line),
        }
    }

    fn error(&self) -> Option<Error> {
        self.text("error").map(|condition| Error {
            condition: Symbol::from(condition),
            description: None,
            fields: Map::default(),
        })
    }

    fn state(&self) -> Option<DeliveryState> {
        let (name, txn_id) = match self.text("state")?.split_once('@') {
            Some((name, txn)) => (name, Some(TxnId::new(txn.as_bytes()).expect("a short txn-id"))),
            None => (self.text("state")?, None),
        };
        let outcome = match name {
            "accepted" => Some(Outcome::Accepted),
            "released" => Some(Outcome::Released),
            "rejected" => Some(Outcome::Rejected { error: None }),
            "modified" => Some(Outcome::Modified {
                delivery_failed: true,
                undeliverable_here: false,
                annotations: None,
            }),
            "received" => {
                return Some(DeliveryState::Received { section_number: 0, section_offset: 0 });
            }
            "" => None,
            other => panic!("state {other:?} in {:?}", self.line),
        };
        match (txn_id, outcome) {
            (Some(txn_id), outcome) => Some(DeliveryState::Transactional { txn_id, outcome }),
            (None, outcome) => outcome.map(DeliveryState::from),
        }
    }
}

/// The bytes of the frame that a line describes.
///
/// # Panics
/// When the line cannot be read.
#[must_use]
pub fn encode(line: &str) -> BytesMut {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let mut channel = 0;
    if let Some(number) = words.first().and_then(|word| word.strip_prefix('@')) {
        channel = number.parse().expect("a channel number behind @");
        words.remove(0);
    }
    let name = if words.is_empty() { "" } else { words.remove(0) };
    let words = Words { line, words };
    let payload = words.text("payload").unwrap_or_default().as_bytes();
    let mut out = BytesMut::new();
    frame::encode(&mut out, FrameKind::Amqp, channel, payload.len(), |out| {
        encode_body(name, &words, out);
    });
    out.extend_from_slice(payload);
    out
}

fn encode_body(name: &str, words: &Words<'_>, out: &mut BytesMut) {
    match name {
        "" | "empty" => {}
        "open" => open(words).encode(out),
        "begin" => begin(words).encode(out),
        "attach" => attach(words).encode(out),
        "flow" => flow(words).encode(out),
        "transfer" => transfer(words).encode(out),
        "disposition" => disposition(words).encode(out),
        "detach" => Detach {
            handle: words.needed("handle"),
            closed: words.flag("closed"),
            error: words.error().map(Box::new),
        }
        .encode(out),
        "end" => End { error: words.error().map(Box::new) }.encode(out),
        "close" => Close { error: words.error().map(Box::new) }.encode(out),
        other => panic!("there is no performative {other:?}"),
    }
}

fn open(words: &Words<'_>) -> Open {
    Open {
        container_id: words.shared("container-id").unwrap_or_else(|| Arc::from("peer")),
        hostname: words.shared("hostname"),
        max_frame_bytes: words.number("max-frame-size").unwrap_or(u32::MAX),
        channel_max: words.number("channel-max").unwrap_or(u16::MAX),
        idle_timeout_ms: words.number("idle-time-out"),
        outgoing_locales: Symbols::default(),
        incoming_locales: Symbols::default(),
        offered_capabilities: Symbols::default(),
        desired_capabilities: Symbols::default(),
        properties: Map::default(),
    }
}

fn begin(words: &Words<'_>) -> Begin {
    Begin {
        remote_channel: words.number("remote-channel"),
        next_outgoing_id: words.number("next-outgoing-id").unwrap_or(0),
        incoming_window: words.number("incoming-window").unwrap_or(1_000),
        outgoing_window: words.number("outgoing-window").unwrap_or(1_000),
        handle_max: words.number("handle-max").unwrap_or(u32::MAX),
        ..Begin::default()
    }
}

fn attach(words: &Words<'_>) -> Attach {
    let address = |text: &str| Some(Arc::from(text));
    Attach {
        name: words.shared("name").expect("an attach has a name"),
        handle: words.needed("handle"),
        role: words.role(),
        snd_settle_mode: match words.text("snd-settle-mode") {
            Some("unsettled") => SenderSettleMode::Unsettled,
            Some("settled") => SenderSettleMode::Settled,
            _ => SenderSettleMode::Mixed,
        },
        rcv_settle_mode: match words.text("rcv-settle-mode") {
            Some("second") => ReceiverSettleMode::Second,
            _ => ReceiverSettleMode::First,
        },
        source: words.text("source").map(|text| {
            let distribution_mode = words.flag("copy").then_some(DistributionMode::Copy);
            Box::new(Source { address: address(text), distribution_mode, ..Source::default() })
        }),
        target: words.text("target").map(|text| {
            Box::new(match text {
                "$coordinator" => LinkTarget::Coordinator(Coordinator::default()),
                text => LinkTarget::Target(Target { address: address(text), ..Target::default() }),
            })
        }),
        unsettled: Map::default(),
        incomplete_unsettled: words.flag("incomplete-unsettled"),
        initial_delivery_count: words.number("initial-delivery-count"),
        max_message_bytes: words.number("max-message-size"),
        offered_capabilities: Symbols::default(),
        desired_capabilities: Symbols::default(),
        properties: Map::default(),
    }
}

fn flow(words: &Words<'_>) -> Flow {
    Flow {
        next_incoming_id: words.number("next-incoming-id"),
        incoming_window: words.number("incoming-window").unwrap_or(1_000),
        next_outgoing_id: words.number("next-outgoing-id").unwrap_or(0),
        outgoing_window: words.number("outgoing-window").unwrap_or(1_000),
        handle: words.number("handle"),
        delivery_count: words.number("delivery-count"),
        link_credit: words.number("link-credit"),
        available: words.number("available"),
        drain: words.flag("drain"),
        echo: words.flag("echo"),
        in_transaction: words.flag("txn-id"),
    }
}

fn transfer(words: &Words<'_>) -> Transfer {
    Transfer {
        handle: words.needed("handle"),
        delivery_id: words.number("delivery-id"),
        delivery_tag: words.text("tag").and_then(|tag| DeliveryTag::new(tag.as_bytes())),
        message_format: words.number("message-format"),
        settled: words.flag("settled").then_some(true),
        more: words.flag("more"),
        rcv_settle_mode: match words.text("rcv-settle-mode") {
            Some("second") => Some(ReceiverSettleMode::Second),
            Some(_) => Some(ReceiverSettleMode::First),
            None => None,
        },
        state: words.state(),
        resume: words.flag("resume"),
        aborted: words.flag("aborted"),
        ..Transfer::default()
    }
}

fn disposition(words: &Words<'_>) -> Disposition {
    Disposition {
        role: words.role(),
        first: words.needed("first"),
        last: words.number("last"),
        settled: words.flag("settled"),
        state: words.state(),
        batchable: false,
    }
}

/// A line under construction.
struct Line(String);

impl Line {
    fn put(&mut self, field: &str, value: impl std::fmt::Display) {
        write!(self.0, " {field}={value}").expect("text can be written");
    }

    fn some(&mut self, field: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(field, value);
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.0.push(' ');
            self.0.push_str(name);
        }
    }

    fn role(&mut self, role: Role) {
        self.put("role", if role == Role::Sender { "sender" } else { "receiver" });
    }

    fn error(&mut self, error: Option<&Error>) {
        self.some("error", error.map(|error| &error.condition));
    }

    fn state(&mut self, state: Option<&DeliveryState>) {
        let outcome = |outcome: &DeliveryState| match outcome {
            DeliveryState::Received { .. } => "received",
            DeliveryState::Accepted => "accepted",
            DeliveryState::Rejected { .. } => "rejected",
            DeliveryState::Released => "released",
            DeliveryState::Modified { .. } => "modified",
            DeliveryState::Declared { .. } => "declared",
            DeliveryState::Transactional { .. } => "",
        };
        match state {
            None => {}
            Some(DeliveryState::Transactional { txn_id, outcome: inner }) => {
                let inner = inner.clone().map(DeliveryState::from);
                let name = inner.as_ref().map_or("", outcome);
                self.put("state", format!("{name}@{}", txn_id.as_bytes().escape_ascii()));
            }
            Some(state) => self.put("state", outcome(state)),
        }
    }
}

/// The line that describes a frame with this body (performative and payload).
///
/// # Panics
/// When the body is not a performative.
#[must_use]
pub fn show(channel: u16, body: &Bytes) -> String {
    let mut line = Line(if channel == 0 { String::new() } else { format!("@{channel} ") });
    if body.is_empty() {
        line.0.push_str("empty");
        return line.0;
    }
    let (performative, used) = Performative::decode(body).expect("a performative");
    match performative {
        Performative::Open(open) => show_open(&mut line, &open),
        Performative::Begin(begin) => show_begin(&mut line, &begin),
        Performative::Attach(attach) => show_attach(&mut line, &attach),
        Performative::Flow(flow) => show_flow(&mut line, &flow),
        Performative::Transfer(transfer) => {
            show_transfer(&mut line, &transfer);
            line.put("payload", body.slice(used..).escape_ascii());
        }
        Performative::Disposition(disposition) => {
            line.0.push_str("disposition");
            line.role(disposition.role);
            line.put("first", disposition.first);
            line.some("last", disposition.last);
            line.flag("settled", disposition.settled);
            line.state(disposition.state.as_ref());
        }
        Performative::Detach(detach) => {
            line.0.push_str("detach");
            line.put("handle", detach.handle);
            line.flag("closed", detach.closed);
            line.error(detach.error.as_deref());
        }
        Performative::End(end) => {
            line.0.push_str("end");
            line.error(end.error.as_deref());
        }
        Performative::Close(close) => {
            line.0.push_str("close");
            line.error(close.error.as_deref());
        }
    }
    line.0
}

fn show_open(line: &mut Line, open: &Open) {
    line.0.push_str("open");
    line.put("container-id", &open.container_id);
    line.some("hostname", open.hostname.as_ref());
    line.put("max-frame-size", open.max_frame_bytes);
    line.put("channel-max", open.channel_max);
    line.some("idle-time-out", open.idle_timeout_ms);
}

fn show_begin(line: &mut Line, begin: &Begin) {
    line.0.push_str("begin");
    line.some("remote-channel", begin.remote_channel);
    line.put("next-outgoing-id", begin.next_outgoing_id);
    line.put("incoming-window", begin.incoming_window);
    line.put("outgoing-window", begin.outgoing_window);
    line.put("handle-max", begin.handle_max);
}

fn show_attach(line: &mut Line, attach: &Attach) {
    line.0.push_str("attach");
    line.put("name", &attach.name);
    line.put("handle", attach.handle);
    line.role(attach.role);
    match attach.snd_settle_mode {
        SenderSettleMode::Unsettled => line.put("snd-settle-mode", "unsettled"),
        SenderSettleMode::Settled => line.put("snd-settle-mode", "settled"),
        SenderSettleMode::Mixed => {}
    }
    if attach.rcv_settle_mode == ReceiverSettleMode::Second {
        line.put("rcv-settle-mode", "second");
    }
    if let Some(source) = &attach.source {
        line.put("source", source.address.as_deref().unwrap_or_default());
    }
    match attach.target.as_deref() {
        None => {}
        Some(LinkTarget::Coordinator(_)) => line.put("target", "$coordinator"),
        Some(LinkTarget::Target(target)) => {
            line.put("target", target.address.as_deref().unwrap_or_default());
        }
    }
    line.flag("incomplete-unsettled", attach.incomplete_unsettled);
    line.some("initial-delivery-count", attach.initial_delivery_count);
    line.some("max-message-size", attach.max_message_bytes);
}

fn show_flow(line: &mut Line, flow: &Flow) {
    line.0.push_str("flow");
    line.some("next-incoming-id", flow.next_incoming_id);
    line.put("incoming-window", flow.incoming_window);
    line.put("next-outgoing-id", flow.next_outgoing_id);
    line.put("outgoing-window", flow.outgoing_window);
    line.some("handle", flow.handle);
    line.some("delivery-count", flow.delivery_count);
    line.some("link-credit", flow.link_credit);
    line.some("available", flow.available);
    line.flag("drain", flow.drain);
    line.flag("echo", flow.echo);
}

fn show_transfer(line: &mut Line, transfer: &Transfer) {
    line.0.push_str("transfer");
    line.put("handle", transfer.handle);
    line.some("delivery-id", transfer.delivery_id);
    let tag = transfer.delivery_tag.as_ref();
    line.some("tag", tag.map(|tag| tag.as_bytes().escape_ascii()));
    line.some("message-format", transfer.message_format);
    line.flag("settled", transfer.settled == Some(true));
    line.flag("more", transfer.more);
    line.state(transfer.state.as_ref());
    line.flag("aborted", transfer.aborted);
}
