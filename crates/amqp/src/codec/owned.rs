//! Owned values that stay encoded: maps, lists of symbols, single values.
//!
//! Invariant: the bytes inside were checked when they came in, so walking them cannot fail.

use std::collections::BTreeSet;
use std::fmt;

use bytes::{Bytes, BytesMut};

use super::format::{ARRAY_8, ARRAY_32, SYMBOL_8, SYMBOL_32};
use super::value::{List, MapView, Value};
use super::{DecodeError, Reader, write};

/// A value of any type, kept as its encoding.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnedValue(Bytes);

/// A map from symbols or strings to values, kept as its encoding. The default is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Map {
    items: Bytes,
    /// Keys and values together.
    count: u32,
}

/// Symbols in order (a field with `multiple`, AMQP 1.4), kept as encoded symbols one after the
/// other. The default is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    items: Bytes,
    count: u32,
}

impl OwnedValue {
    /// Reads one value, checks all of it, and copies its bytes.
    ///
    /// # Errors
    /// When it is not well formed.
    pub fn decode(reader: &mut Reader<'_>) -> Result<OwnedValue, DecodeError> {
        Ok(OwnedValue(Bytes::copy_from_slice(reader.checked_value()?)))
    }

    /// The value, borrowed.
    #[must_use]
    pub fn view(&self) -> Value<'_> {
        Value::decode(&mut Reader::new(&self.0)).unwrap_or(Value::Null)
    }

    /// Its encoding.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A described value, for example a filter: descriptor and value.
    #[must_use]
    pub fn described(descriptor: Value<'_>, value: Value<'_>) -> OwnedValue {
        let mut out = BytesMut::new();
        out.extend_from_slice(&[super::format::DESCRIBED]);
        descriptor.encode(&mut out);
        value.encode(&mut out);
        OwnedValue(out.freeze())
    }

    /// A list of values.
    #[must_use]
    pub fn list(values: &[Value<'_>]) -> OwnedValue {
        let mut items = BytesMut::new();
        for value in values {
            value.encode(&mut items);
        }
        let count = write::size_32(values.len());
        let mut out = BytesMut::new();
        Value::List(List { items: &items, count, levels: LEVELS_INSIDE }).encode(&mut out);
        OwnedValue(out.freeze())
    }
}

/// What is left inside an outermost compound value.
const LEVELS_INSIDE: usize = towline_types::limits::NESTING_DEPTH_MAX - 1;

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> OwnedValue {
        let mut out = BytesMut::new();
        value.encode(&mut out);
        OwnedValue(out.freeze())
    }
}

impl fmt::Debug for OwnedValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), out)
    }
}

impl Map {
    /// Reads a map, checks all of it, and copies its bytes.
    ///
    /// # Errors
    /// When another value stands there, or it is not well formed.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Map, DecodeError> {
        let bytes = reader.checked_value()?;
        match Value::decode(&mut Reader::new(bytes))? {
            Value::Map(view) => Ok(Map::from(view)),
            _ => Err(DecodeError::WrongType {
                expected: "map",
                found: bytes.first().copied().unwrap_or_default(),
            }),
        }
    }

    /// Appends it as one value.
    pub fn encode(&self, out: &mut BytesMut) {
        write::map(out, self.count, &self.items);
    }

    /// Bytes of it as one value.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        write::map_bytes(self.count, &self.items)
    }

    /// It as one value, in no more memory than that takes.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_bytes());
        self.encode(&mut out);
        out.freeze()
    }

    /// Whether it has no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Count of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.count / 2) as usize
    }

    /// The map as a value.
    #[must_use]
    pub fn view(&self) -> MapView<'_> {
        MapView { items: &self.items, count: self.count, levels: LEVELS_INSIDE }
    }

    /// The value of the first entry that has the string or symbol `key` as its key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.view().get(key)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (Value<'_>, Value<'_>)> {
        self.view().iter().map_while(Result::ok)
    }

    /// This map and one entry more, its key a symbol (as in fields, annotations and filters).
    ///
    /// # Panics
    /// When the key is not ASCII.
    #[must_use]
    pub fn with(self, key: &str, value: Value<'_>) -> Map {
        self.with_entry(Value::Symbol(key), value)
    }

    /// The entries of both, in order; of a string or symbol that is a key of both, those of `later`
    /// only. Walks each once: both come from peers.
    #[must_use]
    pub fn merged(&self, later: &Map) -> Map {
        let replaced: BTreeSet<&str> = later.iter().filter_map(|(key, _)| key.as_str()).collect();
        let mut items = BytesMut::with_capacity(self.items.len() + later.items.len());
        let mut count = later.count;
        let mut rest = Reader::new(&self.items);
        while !rest.is_empty() {
            let from_here = rest.rest();
            let Ok(key) = Value::decode(&mut rest) else { break };
            if Value::decode(&mut rest).is_err() {
                break;
            }
            if key.as_str().is_none_or(|key| !replaced.contains(key)) {
                let bytes = from_here.len() - rest.rest().len();
                items.extend_from_slice(from_here.get(..bytes).unwrap_or_default());
                count = count.saturating_add(2);
            }
        }
        items.extend_from_slice(&later.items);
        // In no more memory than that takes.
        Map { items: Bytes::copy_from_slice(&items), count }
    }

    /// This map and one entry more.
    #[must_use]
    pub fn with_entry(self, key: Value<'_>, value: Value<'_>) -> Map {
        let mut items = BytesMut::from(&self.items[..]);
        key.encode(&mut items);
        value.encode(&mut items);
        Map { items: items.freeze(), count: self.count.saturating_add(2) }
    }
}

impl From<MapView<'_>> for Map {
    fn from(view: MapView<'_>) -> Map {
        Map { items: Bytes::copy_from_slice(view.items), count: view.count }
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

impl Symbols {
    /// Reads one symbol or an array of symbols.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Symbols, DecodeError> {
        let bytes = reader.checked_value()?;
        let mut symbols = SymbolsBuilder::default();
        match Value::decode(&mut Reader::new(bytes))? {
            Value::Symbol(symbol) => symbols.push(symbol),
            Value::Array(array) => {
                for element in array.iter() {
                    match element? {
                        Value::Symbol(symbol) => symbols.push(symbol),
                        _ => return Err(DecodeError::OutOfRange("symbol array")),
                    }
                }
            }
            _ => {
                let found = bytes.first().copied().unwrap_or_default();
                return Err(DecodeError::WrongType { expected: "symbols", found });
            }
        }
        Ok(symbols.finish())
    }

    /// Appends them as an array.
    pub fn encode(&self, out: &mut BytesMut) {
        let narrow = self.iter().all(|symbol| symbol.len() <= usize::from(u8::MAX));
        let code = if narrow { SYMBOL_8 } else { SYMBOL_32 };
        let mut body = BytesMut::from(&[code][..]);
        for symbol in self.iter() {
            match u8::try_from(symbol.len()) {
                Ok(size) if narrow => body.extend_from_slice(&[size]),
                Ok(_) | Err(_) => {
                    body.extend_from_slice(&write::size_32(symbol.len()).to_be_bytes());
                }
            }
            body.extend_from_slice(symbol.as_bytes());
        }
        write::compound(out, ARRAY_8, ARRAY_32, self.count, &body);
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The symbols in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut reader = Reader::new(&self.items);
        std::iter::from_fn(move || reader.symbol().ok())
    }

    /// Bytes that they take on the heap.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.items.len()
    }

    /// Whether `symbol` is one of them.
    #[must_use]
    pub fn contains(&self, symbol: &str) -> bool {
        self.iter().any(|one| one == symbol)
    }
}

#[derive(Default)]
struct SymbolsBuilder {
    items: BytesMut,
    count: u32,
}

impl SymbolsBuilder {
    fn push(&mut self, symbol: &str) {
        write::symbol(&mut self.items, symbol);
        self.count = self.count.saturating_add(1);
    }

    fn finish(self) -> Symbols {
        Symbols { items: self.items.freeze(), count: self.count }
    }
}

impl<'a> FromIterator<&'a str> for Symbols {
    /// # Panics
    /// When one is not ASCII.
    fn from_iter<I: IntoIterator<Item = &'a str>>(symbols: I) -> Symbols {
        let mut builder = SymbolsBuilder::default();
        for symbol in symbols {
            builder.push(symbol);
        }
        builder.finish()
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}
