//! What travels on a transaction control link: declare and discharge (AMQP 4.5.2, 4.5.3).

use super::TxnId;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Reader};

/// Opens a transaction. Global transactions are not offered: a global-id is refused as not
/// decodable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declare;

/// Ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discharge {
    /// Which transaction.
    pub txn_id: TxnId,
    /// True: roll back; false: commit.
    pub fail: bool,
}

/// A message on a coordinator link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorCommand {
    /// Open a transaction.
    Declare(Declare),
    /// Commit or roll back.
    Discharge(Discharge),
}
