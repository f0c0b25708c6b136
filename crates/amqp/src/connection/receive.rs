//! From bytes to frames, and from the phase of the connection to the handler of the frames.

use bytes::{Buf, BytesMut};

use crate::codec::DecodeError;
use crate::connection::Connection;
use crate::connection::phase::Phase;
use crate::frame::{FrameError, FrameHeader, FrameKind, Protocol};
use crate::types::{Error, Performative, condition};

pub(super) fn framing_error(error: FrameError) -> Error {
    Error::new(condition::FRAMING_ERROR, &error.to_string())
}

pub(super) fn decode_error(error: DecodeError) -> Error {
    Error::new(condition::DECODE_ERROR, &error.to_string())
}

impl Connection {
    /// Takes one protocol header or frame; false when there is no whole one, or none is wanted now.
    pub(super) fn receive_one(&mut self, input: &mut BytesMut) -> bool {
        match self.phase {
            Phase::Frames | Phase::Closing => self.receive_frame(input),
            Phase::ServerHeader(_) | Phase::ClientSaslHeader(_) | Phase::AmqpHeader => {
                match Protocol::take(input) {
                    Ok(None) => return false,
                    Ok(Some(protocol)) => self.on_header(protocol),
                    Err(error) => self.refuse_header(framing_error(error)),
                }
                true
            }
            Phase::ServerSasl { .. } | Phase::ClientSasl(_) => self.receive_sasl(input),
            Phase::Finished => {
                input.clear();
                false
            }
        }
    }

    fn receive_frame(&mut self, input: &mut BytesMut) -> bool {
        let header = match FrameHeader::parse(input, self.local.frame_bytes_max) {
            Ok(Some(header)) if input.len() >= header.size => header,
            Ok(_) => return false,
            Err(error) => {
                self.fail(framing_error(error));
                return true;
            }
        };
        self.clock.heard();
        if header.kind != FrameKind::Amqp {
            self.fail(Error::new(condition::NOT_ALLOWED, "a SASL frame behind the login"));
            return true;
        }
        let body = input.get(header.body_offset..header.size).unwrap_or_default();
        if body.is_empty() {
            input.advance(header.size);
            return true;
        }
        match Performative::decode(body) {
            Ok((Performative::Transfer(transfer), used)) => {
                let front = header.body_offset.saturating_add(used);
                input.advance(front);
                let payload = input.split_to(header.size.saturating_sub(front)).freeze();
                self.on_transfer(header.channel, transfer, payload);
            }
            Ok((performative, _)) => {
                input.advance(header.size);
                self.on_performative(header.channel, performative);
            }
            Err(error) => self.fail(decode_error(error)),
        }
        true
    }
}
