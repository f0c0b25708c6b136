//! Error conditions of the standard (AMQP 2.8.15 to 2.8.18, 4.5.8), and none of our own.

use super::Symbol;

/// An internal error: the operator may have to look (2.8.15).
pub const INTERNAL_ERROR: Symbol = Symbol::constant("amqp:internal-error");
/// The thing that the peer names does not exist.
pub const NOT_FOUND: Symbol = Symbol::constant("amqp:not-found");
/// The user may not do that.
pub const UNAUTHORIZED_ACCESS: Symbol = Symbol::constant("amqp:unauthorized-access");
/// Bytes that are not AMQP.
pub const DECODE_ERROR: Symbol = Symbol::constant("amqp:decode-error");
/// The peer went past an allowance.
pub const RESOURCE_LIMIT_EXCEEDED: Symbol = Symbol::constant("amqp:resource-limit-exceeded");
/// The peer did what the current state does not allow.
pub const NOT_ALLOWED: Symbol = Symbol::constant("amqp:not-allowed");
/// A field holds a value that makes no sense there.
pub const INVALID_FIELD: Symbol = Symbol::constant("amqp:invalid-field");
/// A function that is not offered.
pub const NOT_IMPLEMENTED: Symbol = Symbol::constant("amqp:not-implemented");
/// Another user holds the resource.
pub const RESOURCE_LOCKED: Symbol = Symbol::constant("amqp:resource-locked");
/// A condition that the request demanded does not hold.
pub const PRECONDITION_FAILED: Symbol = Symbol::constant("amqp:precondition-failed");
/// The thing that the peer uses was deleted.
pub const RESOURCE_DELETED: Symbol = Symbol::constant("amqp:resource-deleted");
/// A frame that the session's state does not allow.
pub const ILLEGAL_STATE: Symbol = Symbol::constant("amqp:illegal-state");
/// A frame too small to be one.
pub const FRAME_SIZE_TOO_SMALL: Symbol = Symbol::constant("amqp:frame-size-too-small");

/// An operator closed the connection (2.8.16).
pub const CONNECTION_FORCED: Symbol = Symbol::constant("amqp:connection:forced");
/// Something that is not a frame.
pub const FRAMING_ERROR: Symbol = Symbol::constant("amqp:connection:framing-error");
/// Connect elsewhere.
pub const CONNECTION_REDIRECT: Symbol = Symbol::constant("amqp:connection:redirect");

/// More transfers than the session window allows (2.8.17).
pub const WINDOW_VIOLATION: Symbol = Symbol::constant("amqp:session:window-violation");
/// A frame for a link that was detached with an error.
pub const ERRANT_LINK: Symbol = Symbol::constant("amqp:session:errant-link");
/// An attach with a handle that is taken.
pub const HANDLE_IN_USE: Symbol = Symbol::constant("amqp:session:handle-in-use");
/// A frame for a handle that is not attached.
pub const UNATTACHED_HANDLE: Symbol = Symbol::constant("amqp:session:unattached-handle");

/// An operator detached the link (2.8.18).
pub const DETACH_FORCED: Symbol = Symbol::constant("amqp:link:detach-forced");
/// More transfers than link credit.
pub const TRANSFER_LIMIT_EXCEEDED: Symbol = Symbol::constant("amqp:link:transfer-limit-exceeded");
/// A message longer than max-message-size.
pub const MESSAGE_SIZE_EXCEEDED: Symbol = Symbol::constant("amqp:link:message-size-exceeded");
/// Attach elsewhere.
pub const LINK_REDIRECT: Symbol = Symbol::constant("amqp:link:redirect");
/// The link was attached again elsewhere.
pub const STOLEN: Symbol = Symbol::constant("amqp:link:stolen");

/// A transaction id that the coordinator does not know (4.5.8).
pub const TRANSACTION_UNKNOWN_ID: Symbol = Symbol::constant("amqp:transaction:unknown-id");
/// The transaction was rolled back.
pub const TRANSACTION_ROLLBACK: Symbol = Symbol::constant("amqp:transaction:rollback");
/// The transaction took too long.
pub const TRANSACTION_TIMEOUT: Symbol = Symbol::constant("amqp:transaction:timeout");
