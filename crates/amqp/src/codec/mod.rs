//! The type system of AMQP 1.0 (part 1): bytes to values and back. Nothing here knows a frame, a
//! link or a message.
//!
//! # Reading
//! [`Reader`] is a checked cursor over `&[u8]`: `Reader::new(bytes)`, then `reader.u32()?` and the
//! like; every encoding that the standard has for a type is accepted. [`Value`] is one value of any
//! type, borrowed: `Value::decode(&mut reader)?`; lists, maps, arrays and described values in it
//! are views that are walked item by item.
//!
//! A composite type (a described list with known fields) implements [`Composite`]:
//! `Transfer::decode(&mut reader)?` reads descriptor and fields, and leaves the reader behind them.
//! `descriptor(&mut reader)?` reads only the descriptor, as a code, whether it came as ulong0,
//! smallulong, ulong or symbol.
//!
//! # Owned forms
//! [`Map`] (fields, filters, properties), [`Symbols`] (capabilities) and [`OwnedValue`] hold the
//! *encoded* bytes, checked once when decoded, and hand out borrowed [`Value`]s:
//! `map.get("product")`, `symbols.contains("queue")`, `map.with("key", Value::String("x"))`. So
//! decoding never multiplies the memory that a peer's bytes take.
//!
//! # Writing
//! `composite.encode(&mut out)` appends descriptor and list in the shortest form; absent trailing
//! fields are left off. `Value::encode(&mut out)` appends one value. The single encodings are
//! functions in [`mod@write`].
//!
//! # Invariants
//! No function panics on any input. Nothing recurses: nesting is walked with a stack of
//! [`towline_types::limits::NESTING_DEPTH_MAX`] levels, counted over described types, lists, maps
//! and arrays. The work for an input is linear in its bytes; an array of elements without bytes may
//! have no more elements than the array itself has bytes.

mod check;
mod composite;
mod error;
mod format;
mod owned;
mod read;
mod value;
pub mod write;

pub use check::check;
pub use composite::{Composite, Fields, FieldsWriter, descriptor};
pub use error::DecodeError;
pub(crate) use format::text_framing_bytes;
pub use owned::{Map, OwnedValue, Symbols};
pub use read::Reader;
pub use value::{Array, Described, List, MapView, Value};

#[cfg(test)]
mod tests;
