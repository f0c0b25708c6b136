//! Refusals as AMQP errors. Each refusal has one condition.

use towline_amqp::types::{Error, Symbol, condition};
use towline_core::Refusal;

/// The error that a peer sees for a refusal.
pub(super) fn of_refusal(refusal: &Refusal) -> Error {
    Error::new(condition_of(refusal), &refusal.to_string())
}

fn condition_of(refusal: &Refusal) -> Symbol {
    use Refusal as R;
    match refusal {
        R::UnknownQueue(_)
        | R::UnknownQueueButCase { .. }
        | R::UnknownModel { .. }
        | R::UnknownObject { .. }
        | R::BadAlias(_) => condition::NOT_FOUND,
        R::BadName(_) | R::BadAttribute { .. } => condition::INVALID_FIELD,
        R::PutInhibited(_) | R::GetInhibited(_) | R::AlreadyExists(_) | R::WrongType { .. } => {
            condition::NOT_ALLOWED
        }
        R::ObjectOpen(_) | R::NotEmpty { .. } | R::Uncommitted(_) | R::NoHistory { .. } => {
            condition::PRECONDITION_FAILED
        }
        R::QueueFull { .. }
        | R::UnitTooManyMessages { .. }
        | R::UnitsTooManyPuts { .. }
        | R::UnitTooLarge { .. }
        | R::TooManyUnits { .. }
        | R::MemoryFull { .. }
        | R::LogFull => condition::RESOURCE_LIMIT_EXCEEDED,
        R::MessageTooLong { .. } => condition::MESSAGE_SIZE_EXCEEDED,
        R::QueueInUse(_) | R::BelongsToOther(_) => condition::RESOURCE_LOCKED,
        R::UnitTooOld { .. } => condition::TRANSACTION_TIMEOUT,
        R::UnitHeldLog { .. } | R::UnitDoomed => condition::TRANSACTION_ROLLBACK,
        R::UnknownUnit => condition::TRANSACTION_UNKNOWN_ID,
        R::Ending | R::NotLive { .. } | R::Fenced { .. } => condition::CONNECTION_FORCED,
        R::NotAuthorized(_) => condition::UNAUTHORIZED_ACCESS,
        R::Deleted(_) => condition::RESOURCE_DELETED,
        R::MessageDamaged { .. } => condition::INTERNAL_ERROR,
    }
}
