//! The performatives on the wire: fields in the order of AMQP 2.7, defaults left out.

use std::sync::Arc;

use bytes::BytesMut;

use super::{
    Attach, Begin, Close, DeliveryState, DeliveryTag, Detach, Disposition, End, Flow, LinkTarget,
    Open, Performative, ReceiverSettleMode, Role, SenderSettleMode, Transfer,
};
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Map, Reader, Value, descriptor};

fn required<T>(field: Option<T>, name: &'static str) -> Result<T, DecodeError> {
    field.ok_or(DecodeError::MissingField(name))
}

fn some_unless<T: PartialEq>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

impl Role {
    fn field(fields: &mut Fields<'_>) -> Result<Role, DecodeError> {
        let receiver = required(fields.bool()?, "role")?;
        Ok(if receiver { Role::Receiver } else { Role::Sender })
    }

    fn encode(self, fields: &mut FieldsWriter<'_>) {
        fields.bool(Some(self == Role::Receiver));
    }
}

impl SenderSettleMode {
    fn field(fields: &mut Fields<'_>) -> Result<SenderSettleMode, DecodeError> {
        match fields.u8()? {
            Some(0) => Ok(SenderSettleMode::Unsettled),
            Some(1) => Ok(SenderSettleMode::Settled),
            None | Some(2) => Ok(SenderSettleMode::Mixed),
            Some(_) => Err(DecodeError::OutOfRange("snd-settle-mode")),
        }
    }

    const fn encoded(self) -> Option<u8> {
        match self {
            SenderSettleMode::Unsettled => Some(0),
            SenderSettleMode::Settled => Some(1),
            SenderSettleMode::Mixed => None,
        }
    }
}

impl ReceiverSettleMode {
    fn field(fields: &mut Fields<'_>) -> Result<Option<ReceiverSettleMode>, DecodeError> {
        match fields.u8()? {
            None => Ok(None),
            Some(0) => Ok(Some(ReceiverSettleMode::First)),
            Some(1) => Ok(Some(ReceiverSettleMode::Second)),
            Some(_) => Err(DecodeError::OutOfRange("rcv-settle-mode")),
        }
    }

    const fn as_number(self) -> u8 {
        match self {
            ReceiverSettleMode::First => 0,
            ReceiverSettleMode::Second => 1,
        }
    }
}

fn state(fields: &mut FieldsWriter<'_>, state: Option<&DeliveryState>) {
    match state {
        Some(state) => state.encode(fields.value()),
        None => fields.null(),
    }
}

impl Composite for Open {
    const CODE: u8 = 0x10;
    const NAME: &'static str = "amqp:open:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Open, DecodeError> {
        Ok(Open {
            container_id: Arc::from(required(fields.string()?, "container-id")?),
            hostname: fields.string()?.map(Arc::from),
            max_frame_bytes: fields.u32()?.unwrap_or(u32::MAX),
            channel_max: fields.u16()?.unwrap_or(u16::MAX),
            idle_timeout_ms: fields.u32()?,
            outgoing_locales: fields.symbols()?,
            incoming_locales: fields.symbols()?,
            offered_capabilities: fields.symbols()?,
            desired_capabilities: fields.symbols()?,
            properties: fields.map()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.string(Some(&self.container_id));
        fields.string(self.hostname.as_deref());
        fields.u32(some_unless(self.max_frame_bytes, u32::MAX));
        fields.u16(some_unless(self.channel_max, u16::MAX));
        fields.u32(self.idle_timeout_ms);
        fields.symbols(&self.outgoing_locales);
        fields.symbols(&self.incoming_locales);
        fields.symbols(&self.offered_capabilities);
        fields.symbols(&self.desired_capabilities);
        fields.map(&self.properties);
    }
}

impl Composite for Begin {
    const CODE: u8 = 0x11;
    const NAME: &'static str = "amqp:begin:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Begin, DecodeError> {
        Ok(Begin {
            remote_channel: fields.u16()?,
            next_outgoing_id: required(fields.u32()?, "next-outgoing-id")?,
            incoming_window: required(fields.u32()?, "incoming-window")?,
            outgoing_window: required(fields.u32()?, "outgoing-window")?,
            handle_max: fields.u32()?.unwrap_or(u32::MAX),
            offered_capabilities: fields.symbols()?,
            desired_capabilities: fields.symbols()?,
            properties: fields.map()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.u16(self.remote_channel);
        fields.u32(Some(self.next_outgoing_id));
        fields.u32(Some(self.incoming_window));
        fields.u32(Some(self.outgoing_window));
        fields.u32(some_unless(self.handle_max, u32::MAX));
        fields.symbols(&self.offered_capabilities);
        fields.symbols(&self.desired_capabilities);
        fields.map(&self.properties);
    }
}

impl Composite for Attach {
    const CODE: u8 = 0x12;
    const NAME: &'static str = "amqp:attach:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Attach, DecodeError> {
        Ok(Attach {
            name: Arc::from(required(fields.string()?, "name")?),
            handle: required(fields.u32()?, "handle")?,
            role: Role::field(fields)?,
            snd_settle_mode: SenderSettleMode::field(fields)?,
            rcv_settle_mode: ReceiverSettleMode::field(fields)?.unwrap_or_default(),
            source: fields.composite()?.map(Box::new),
            target: fields.with(LinkTarget::decode)?.map(Box::new),
            unsettled: fields.map()?,
            incomplete_unsettled: fields.bool()?.unwrap_or(false),
            initial_delivery_count: fields.u32()?,
            max_message_bytes: fields.u64()?,
            offered_capabilities: fields.symbols()?,
            desired_capabilities: fields.symbols()?,
            properties: fields.map()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.string(Some(&self.name));
        fields.u32(Some(self.handle));
        self.role.encode(fields);
        fields.u8(self.snd_settle_mode.encoded());
        let mode = some_unless(self.rcv_settle_mode, ReceiverSettleMode::default());
        fields.u8(mode.map(ReceiverSettleMode::as_number));
        fields.composite(self.source.as_deref());
        match &self.target {
            Some(target) => target.encode(fields.value()),
            None => fields.null(),
        }
        fields.map(&self.unsettled);
        fields.flag(self.incomplete_unsettled);
        fields.u32(self.initial_delivery_count);
        fields.u64(self.max_message_bytes);
        fields.symbols(&self.offered_capabilities);
        fields.symbols(&self.desired_capabilities);
        fields.map(&self.properties);
    }
}

/// The property of a flow that names a transaction (4.4.3).
const TXN_ID: &str = "txn-id";

impl Composite for Flow {
    const CODE: u8 = 0x13;
    const NAME: &'static str = "amqp:flow:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Flow, DecodeError> {
        Ok(Flow {
            next_incoming_id: fields.u32()?,
            incoming_window: required(fields.u32()?, "incoming-window")?,
            next_outgoing_id: required(fields.u32()?, "next-outgoing-id")?,
            outgoing_window: required(fields.u32()?, "outgoing-window")?,
            handle: fields.u32()?,
            delivery_count: fields.u32()?,
            link_credit: fields.u32()?,
            available: fields.u32()?,
            drain: fields.bool()?.unwrap_or(false),
            echo: fields.bool()?.unwrap_or(false),
            in_transaction: fields.map()?.get(TXN_ID).is_some(),
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.u32(self.next_incoming_id);
        fields.u32(Some(self.incoming_window));
        fields.u32(Some(self.next_outgoing_id));
        fields.u32(Some(self.outgoing_window));
        fields.u32(self.handle);
        fields.u32(self.delivery_count);
        fields.u32(self.link_credit);
        fields.u32(self.available);
        fields.flag(self.drain);
        fields.flag(self.echo);
        if self.in_transaction {
            fields.map(&Map::default().with(TXN_ID, Value::Binary(b"")));
        }
    }
}

impl Composite for Transfer {
    const CODE: u8 = 0x14;
    const NAME: &'static str = "amqp:transfer:list";

    #[inline]
    fn decode_fields(fields: &mut Fields<'_>) -> Result<Transfer, DecodeError> {
        Ok(Transfer {
            handle: required(fields.u32()?, "handle")?,
            delivery_id: fields.u32()?,
            delivery_tag: DeliveryTag::field(fields)?,
            message_format: fields.u32()?,
            settled: fields.bool()?,
            more: fields.bool()?.unwrap_or(false),
            rcv_settle_mode: ReceiverSettleMode::field(fields)?,
            state: fields.with(DeliveryState::decode)?,
            resume: fields.bool()?.unwrap_or(false),
            aborted: fields.bool()?.unwrap_or(false),
            batchable: fields.bool()?.unwrap_or(false),
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.u32(Some(self.handle));
        fields.u32(self.delivery_id);
        fields.binary(self.delivery_tag.as_ref().map(DeliveryTag::as_bytes));
        fields.u32(self.message_format);
        fields.bool(self.settled);
        fields.flag(self.more);
        fields.u8(self.rcv_settle_mode.map(ReceiverSettleMode::as_number));
        state(fields, self.state.as_ref());
        fields.flag(self.resume);
        fields.flag(self.aborted);
        fields.flag(self.batchable);
    }
}

impl Composite for Disposition {
    const CODE: u8 = 0x15;
    const NAME: &'static str = "amqp:disposition:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Disposition, DecodeError> {
        Ok(Disposition {
            role: Role::field(fields)?,
            first: required(fields.u32()?, "first")?,
            last: fields.u32()?,
            settled: fields.bool()?.unwrap_or(false),
            state: fields.with(DeliveryState::decode)?,
            batchable: fields.bool()?.unwrap_or(false),
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        self.role.encode(fields);
        fields.u32(Some(self.first));
        fields.u32(self.last);
        fields.flag(self.settled);
        state(fields, self.state.as_ref());
        fields.flag(self.batchable);
    }
}

impl Composite for Detach {
    const CODE: u8 = 0x16;
    const NAME: &'static str = "amqp:detach:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Detach, DecodeError> {
        Ok(Detach {
            handle: required(fields.u32()?, "handle")?,
            closed: fields.bool()?.unwrap_or(false),
            error: fields.composite()?.map(Box::new),
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.u32(Some(self.handle));
        fields.flag(self.closed);
        fields.composite(self.error.as_deref());
    }
}

impl Composite for End {
    const CODE: u8 = 0x17;
    const NAME: &'static str = "amqp:end:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<End, DecodeError> {
        Ok(End { error: fields.composite()?.map(Box::new) })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.composite(self.error.as_deref());
    }
}

impl Composite for Close {
    const CODE: u8 = 0x18;
    const NAME: &'static str = "amqp:close:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Close, DecodeError> {
        Ok(Close { error: fields.composite()?.map(Box::new) })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.composite(self.error.as_deref());
    }
}

impl Performative {
    /// Reads the performative at the start of a frame body, and says how many bytes it took. What
    /// follows is the payload of a transfer.
    ///
    /// # Errors
    /// When it is none of the nine or not well formed, and when bytes follow one that has no
    /// payload.
    pub fn decode(body: &[u8]) -> Result<(Performative, usize), DecodeError> {
        let reader = &mut Reader::new(body);
        let code = u8::try_from(descriptor(reader)?).map_err(|_| DecodeError::UnknownDescriptor)?;
        let performative = match code {
            Transfer::CODE => Performative::Transfer(Transfer::decode_body(reader)?),
            Disposition::CODE => Performative::Disposition(Disposition::decode_body(reader)?),
            Flow::CODE => Performative::Flow(Flow::decode_body(reader)?),
            Open::CODE => Performative::Open(Box::new(Open::decode_body(reader)?)),
            Begin::CODE => Performative::Begin(Box::new(Begin::decode_body(reader)?)),
            Attach::CODE => Performative::Attach(Box::new(Attach::decode_body(reader)?)),
            Detach::CODE => Performative::Detach(Detach::decode_body(reader)?),
            End::CODE => Performative::End(End::decode_body(reader)?),
            Close::CODE => Performative::Close(Close::decode_body(reader)?),
            _ => return Err(DecodeError::UnknownDescriptor),
        };
        let rest = reader.rest().len();
        if rest > 0 && code != Transfer::CODE {
            return Err(DecodeError::Excess);
        }
        Ok((performative, body.len().saturating_sub(rest)))
    }

    /// Appends it, without a payload.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Performative::Open(body) => body.encode(out),
            Performative::Begin(body) => body.encode(out),
            Performative::Attach(body) => body.encode(out),
            Performative::Flow(body) => body.encode(out),
            Performative::Transfer(body) => body.encode(out),
            Performative::Disposition(body) => body.encode(out),
            Performative::Detach(body) => body.encode(out),
            Performative::End(body) => body.encode(out),
            Performative::Close(body) => body.encode(out),
        }
    }
}
