//! What travels on a link to the transaction coordinator (AMQP 4.3): declare and
//! discharge, each the amqp-value body of a message.
//!
//! It does *not* open or end transactions: the driver answers a declare with
//! `DeliveryState::Declared` and a discharge with accepted or rejected.

use bytes::{Bytes, BytesMut};
use towline_types::Payload;

use crate::codec::{DecodeError, Reader, descriptor, write};
use crate::types::CoordinatorCommand;

/// Descriptor of the amqp-value section (AMQP 3.2.8).
const AMQP_VALUE: u8 = 0x77;
/// Longest message that is taken for a command, in bytes; what a server says as max-message-size of
/// a coordinator link, so that [`parse`] never meets a longer one.
pub const COMMAND_BYTES_MAX: usize = 4_096;

/// Reads the message that a transfer on a coordinator link carried. Sections before the body are
/// passed over.
///
/// # Errors
/// When it is neither declare nor discharge, or longer than 4 KiB.
pub fn parse(payload: &Payload) -> Result<CoordinatorCommand, DecodeError> {
    if payload.len() > COMMAND_BYTES_MAX {
        return Err(DecodeError::TooLong);
    }
    let whole = payload.to_contiguous();
    let mut reader = Reader::new(&whole);
    while descriptor(&mut reader)? != u64::from(AMQP_VALUE) {
        reader.checked_value()?;
    }
    CoordinatorCommand::decode(&mut reader)
}

/// The message that carries a command (client).
#[must_use]
pub fn message(command: &CoordinatorCommand) -> Bytes {
    let mut message = BytesMut::with_capacity(64);
    write::described(&mut message, AMQP_VALUE);
    command.encode(&mut message);
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Declare, Discharge, TxnId};

    #[test]
    fn commands_survive_the_way_through_a_message() {
        let txn_id = TxnId::new(b"unit 1").unwrap();
        for command in [
            CoordinatorCommand::Declare(Declare),
            CoordinatorCommand::Discharge(Discharge { txn_id, fail: true }),
        ] {
            assert_eq!(parse(&Payload::from(message(&command))), Ok(command));
        }
    }

    #[test]
    fn a_header_before_the_command_is_passed_over() {
        let mut bytes = BytesMut::from(&[0x00, 0x53, 0x70, 0x45][..]);
        bytes.extend_from_slice(&message(&CoordinatorCommand::Declare(Declare)));
        let parsed = parse(&Payload::from(bytes.freeze()));
        assert_eq!(parsed, Ok(CoordinatorCommand::Declare(Declare)));
    }

    #[test]
    fn other_messages_are_refused() {
        for bytes in [&b""[..], b"\x00\x53\x77\xa1\x01x", b"\x00\x53\x75\xa0\x01x"] {
            assert!(parse(&Payload::from(Bytes::from_static(bytes))).is_err(), "{bytes:?}");
        }
    }
}
