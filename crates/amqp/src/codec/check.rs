//! Walks one value, however nested, and says how long it is or why it is not well formed.
//!
//! Not here: what the value means. Invariants: no recursion (a stack of fixed size), and work
//! linear in the bytes, because every item but those of an array without element bytes takes at
//! least one.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use towline_types::limits::NESTING_DEPTH_MAX;

use super::format::{
    ARRAY_8, ARRAY_32, BINARY_8, BINARY_32, BOOL, CHAR, DESCRIBED, LIST_8, LIST_32, MAP_8, MAP_32,
    STRING_8, STRING_32, SYMBOL_8, SYMBOL_32, ULONG, ULONG_0, ULONG_SMALL, fixed_width,
};
use super::{DecodeError, Reader};

/// Checks that `bytes` is exactly one well-formed value.
///
/// # Errors
/// When it is not, or when bytes follow it.
pub fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let length = value_length(bytes, NESTING_DEPTH_MAX)?;
    if length == bytes.len() { Ok(()) } else { Err(DecodeError::Excess) }
}

impl<'a> Reader<'a> {
    /// Steps over one value after checking all of it, and returns its bytes.
    ///
    /// # Errors
    /// When it is not well formed.
    pub fn checked_value(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = value_length(self.rest(), self.levels())?;
        self.take(length)
    }
}

/// Length in bytes of the value at the start of `bytes`, all of it checked; at most `levels`
/// levels.
fn value_length(bytes: &[u8], levels: usize) -> Result<usize, DecodeError> {
    let mut walk = Walk {
        reader: Reader::new(bytes),
        stack: [Level::NONE; NESTING_DEPTH_MAX],
        used: 0,
        depth: 0,
        depth_max: levels.min(NESTING_DEPTH_MAX),
    };
    loop {
        walk.item()?;
        if walk.ascend()? {
            return bytes
                .len()
                .checked_sub(walk.reader.rest().len())
                .ok_or(DecodeError::UnexpectedEnd);
        }
    }
}

/// A list, map, array or described value that the walk is inside of.
#[derive(Clone, Copy)]
struct Level<'a> {
    /// Items still to come.
    remaining: u32,
    /// Format code of all items (of an array).
    element: Option<u8>,
    /// What follows the level in the level above; `None`: a described value, without an end of its
    /// own.
    outside: Option<&'a [u8]>,
    /// Nesting that it counts for: an array of described elements counts for both.
    cost: usize,
}

impl Level<'_> {
    const NONE: Level<'static> = Level { remaining: 0, element: None, outside: None, cost: 0 };
}

struct Walk<'a> {
    /// Ends where the innermost level with an end does.
    reader: Reader<'a>,
    stack: [Level<'a>; NESTING_DEPTH_MAX],
    used: usize,
    depth: usize,
    depth_max: usize,
}

impl<'a> Walk<'a> {
    /// Reads one item, or enters it when there are items in it.
    fn item(&mut self) -> Result<(), DecodeError> {
        let mut element = None;
        if let Some(level) = self.used.checked_sub(1).and_then(|top| self.stack.get_mut(top)) {
            level.remaining = level.remaining.checked_sub(1).ok_or(DecodeError::InvalidCount)?;
            element = level.element;
        }
        let code = match element {
            Some(code) => code,
            None => self.reader.byte()?,
        };
        match code {
            DESCRIBED => self.enter(Level { remaining: 2, element: None, outside: None, cost: 1 }),
            LIST_8 | LIST_32 => {
                let (items, count) = self.reader.list_of(code)?;
                self.enter_sized(items, count, None, 1)
            }
            MAP_8 | MAP_32 => {
                let (items, count) = self.reader.map_of(code)?;
                self.enter_sized(items, count, None, 1)
            }
            ARRAY_8 | ARRAY_32 => self.array(code),
            _ => scalar(&mut self.reader, code),
        }
    }

    fn array(&mut self, code: u8) -> Result<(), DecodeError> {
        let (body, count) = self.reader.array_of(code)?;
        let mut inside = Reader::new(body);
        let mut cost: usize = 1;
        let mut element = inside.byte()?;
        while element == DESCRIBED {
            cost = cost.saturating_add(1);
            let descriptor = inside.byte()?;
            match descriptor {
                ULONG_0 | ULONG_SMALL | ULONG | SYMBOL_8 | SYMBOL_32 => {
                    scalar(&mut inside, descriptor)?;
                }
                _ => return Err(DecodeError::UnknownDescriptor),
            }
            element = inside.byte()?;
        }
        self.enter_sized(inside.rest(), count, Some(element), cost)
    }

    fn enter_sized(
        &mut self,
        items: &'a [u8],
        count: u32,
        element: Option<u8>,
        cost: usize,
    ) -> Result<(), DecodeError> {
        let outside = Some(self.reader.rest());
        self.enter(Level { remaining: count, element, outside, cost })?;
        self.reader = Reader::new(items);
        Ok(())
    }

    fn enter(&mut self, level: Level<'a>) -> Result<(), DecodeError> {
        self.depth = self.depth.saturating_add(level.cost);
        if self.depth > self.depth_max {
            return Err(DecodeError::TooDeep);
        }
        *self.stack.get_mut(self.used).ok_or(DecodeError::TooDeep)? = level;
        self.used = self.used.saturating_add(1);
        Ok(())
    }

    /// Leaves the levels that are complete; true when the outermost value is.
    fn ascend(&mut self) -> Result<bool, DecodeError> {
        while let Some(top) = self.used.checked_sub(1) {
            let level = self.stack.get(top).ok_or(DecodeError::TooDeep)?;
            if level.remaining > 0 {
                return Ok(false);
            }
            if let Some(outside) = level.outside {
                if !self.reader.is_empty() {
                    return Err(DecodeError::Excess);
                }
                self.reader = Reader::new(outside);
            }
            self.depth = self.depth.saturating_sub(level.cost);
            self.used = top;
        }
        Ok(true)
    }
}

/// Reads a value that has no items in it.
fn scalar(reader: &mut Reader<'_>, code: u8) -> Result<(), DecodeError> {
    match code {
        BOOL => reader.bool_of(code).map(drop),
        CHAR => match char::from_u32(u32::from_be_bytes(reader.fixed()?)) {
            Some(_) => Ok(()),
            None => Err(DecodeError::InvalidScalar),
        },
        BINARY_8 | BINARY_32 => reader.binary_of(code).map(drop),
        STRING_8 | STRING_32 => reader.string_of(code).map(drop),
        SYMBOL_8 | SYMBOL_32 => reader.symbol_of(code).map(drop),
        _ => match fixed_width(code) {
            Some(width) => reader.take(width).map(drop),
            None => Err(DecodeError::UnknownFormat(code)),
        },
    }
}
