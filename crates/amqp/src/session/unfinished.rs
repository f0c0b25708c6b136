//! How much of unfinished incoming deliveries one connection holds, as running totals.
//!
//! It does *not* hold them: each lies at its link. It knows no largest message of a link either.
//!
//! Invariant: the totals are those of all deliveries that lie at a link of the connection; code
//! that adds or removes one reports it here.

use towline_types::limits;

use crate::link::{Partial, Receiving, Violation};
use crate::types::{Error, condition};

/// Bytes of all unfinished deliveries of a connection: two of the largest messages.
pub(crate) const UNFINISHED_BYTES_MAX: u64 = 2 * limits::TRANSFER_BYTES_MAX;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct UnfinishedDeliveries {
    deliveries: usize,
    bytes: u64,
}

impl UnfinishedDeliveries {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a delivery that stays at its link.
    ///
    /// # Errors
    /// When the connection would hold more than it may; nothing is counted then.
    fn add(&mut self, partial: &Partial) -> Result<(), Violation> {
        let bytes = self.bytes.saturating_add(partial.bytes);
        let text = if self.deliveries >= limits::DELIVERIES_UNFINISHED_MAX {
            "too many unfinished deliveries"
        } else if bytes > UNFINISHED_BYTES_MAX {
            "too many bytes in unfinished deliveries"
        } else {
            self.deliveries += 1;
            self.bytes = bytes;
            return Ok(());
        };
        Err(Violation::Connection(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)))
    }
}

impl Receiving {
    /// Leaves an unfinished delivery at its link.
    ///
    /// # Errors
    /// As [`UnfinishedDeliveries::add`]; the delivery is dropped then.
    pub(super) fn put_partial(
        &mut self,
        partial: Box<Partial>,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Result<(), Violation> {
        assert!(self.partial.is_none(), "two unfinished deliveries on one link");
        unfinished.add(&partial)?;
        self.partial = Some(partial);
        Ok(())
    }

    /// Takes the unfinished delivery away, for its next frame or for good.
    pub(super) fn take_partial(
        &mut self,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Option<Box<Partial>> {
        let partial = self.partial.take()?;
        assert!(
            unfinished.deliveries > 0 && unfinished.bytes >= partial.bytes,
            "an unfinished delivery that was not counted"
        );
        unfinished.deliveries -= 1;
        unfinished.bytes -= partial.bytes;
        Some(partial)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use towline_types::Payload;

    use super::*;
    use crate::types::DeliveryTag;

    fn partial(bytes: u64) -> Box<Partial> {
        Box::new(Partial {
            delivery: 0,
            tag: DeliveryTag::from_number(0),
            message_format: 0,
            settled: false,
            resumed: false,
            state: None,
            payload: Payload::Empty,
            gathered: BytesMut::new(),
            bytes,
            dropped: 0,
            reported: false,
        })
    }

    #[test]
    fn two_largest_messages_may_be_unfinished_and_not_a_byte_more() {
        let mut unfinished = UnfinishedDeliveries::default();
        let mut links: [Receiving; 3] = Default::default();
        for link in &mut links[..2] {
            assert!(link.put_partial(partial(limits::TRANSFER_BYTES_MAX), &mut unfinished).is_ok());
        }
        let Err(Violation::Connection(error)) = links[2].put_partial(partial(1), &mut unfinished)
        else {
            panic!("a byte too much")
        };
        assert_eq!(error.condition, condition::RESOURCE_LIMIT_EXCEEDED);
        assert_eq!((unfinished.deliveries, unfinished.bytes), (2, UNFINISHED_BYTES_MAX));
        assert!(links[0].take_partial(&mut unfinished).is_some());
        assert!(links[2].put_partial(partial(1), &mut unfinished).is_ok());
        for link in &mut links {
            link.take_partial(&mut unfinished);
        }
        assert_eq!((unfinished.deliveries, unfinished.bytes), (0, 0));
    }
}
