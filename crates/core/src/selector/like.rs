//! LIKE patterns, matched in time linear in the text.
//!
//! A pattern is cut at its `%` signs into pieces. The first piece is anchored at the start of the
//! text, the last at its end, the pieces between are each found at the leftmost position behind the
//! one before (any later position would leave less for the rest). A floating piece without `_` is
//! found by the two-way search of the standard library; one with `_` by Shift-And (Baeza-Yates and
//! Gonnet 1992), which keeps one bit for each character of the piece: hence at most 64 characters.

/// Characters of a piece that has `_` in it and `%` on both sides: one bit each in a `u64`.
const FLOATING_CHARACTERS_MAX: usize = 64;

/// Shift-And looks each character up: 6 to 8 nanoseconds, where a search takes one to two.
const SHIFT_AND_WEIGHT: usize = 4;

/// What an allocation of so many bytes takes.
pub(super) fn block_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Like {
    first: Box<[Unit]>,
    /// `None` when the pattern has no `%`: then `first` must be all of the text.
    rest: Option<Rest>,
}

/// What follows the first `%`.
#[derive(Clone, Debug)]
struct Rest {
    floating: Box<[Floating]>,
    last: Box<[Unit]>,
}

/// One element of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Exactly(char),
    /// `_`
    AnyOne,
}

/// A piece between two `%`.
#[derive(Clone, Debug)]
enum Floating {
    Plain(Box<str>),
    Masked(Mask),
}

/// Shift-And tables of a piece.
#[derive(Clone, Debug)]
struct Mask {
    /// Positions at which each character may stand, sorted by character.
    places: Box<[(char, u64)]>,
    /// Positions at which any character may stand.
    any: u64,
    /// The bit of the last position.
    accept: u64,
}

impl Like {
    /// Bytes of memory beside itself, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_rest = self.rest.as_ref().map_or(0, |rest| {
            let of_floating = rest.floating.iter().map(|piece| match piece {
                Floating::Plain(text) => block_bytes(text.len()),
                Floating::Masked(mask) => block_bytes(size_of_val(&*mask.places)),
            });
            block_bytes(size_of_val(&*rest.floating))
                + of_floating.sum::<usize>()
                + block_bytes(size_of_val(&*rest.last))
        });
        block_bytes(size_of_val(&*self.first)) + of_rest
    }

    /// Compiles a pattern.
    ///
    /// # Errors
    /// An escape character before anything but `%`, `_` or itself, or a piece too long to search.
    pub(super) fn new(pattern: &str, escape: Option<char>) -> Result<Like, String> {
        let mut pieces = pieces(pattern, escape)?.into_iter();
        let first = pieces.next().unwrap_or_default().into_boxed_slice();
        let Some(last) = pieces.next_back() else { return Ok(Like { first, rest: None }) };
        let floating: Result<Vec<Floating>, String> =
            pieces.filter(|piece| !piece.is_empty()).map(|piece| Floating::new(&piece)).collect();
        let rest = Rest { floating: floating?.into(), last: last.into_boxed_slice() };
        Ok(Like { first, rest: Some(rest) })
    }

    /// What each byte of a text costs: with Shift-And, several times a search.
    pub(super) fn weight(&self) -> usize {
        let mut floating = self.rest.iter().flat_map(|rest| &*rest.floating);
        if floating.any(|piece| matches!(piece, Floating::Masked(_))) {
            SHIFT_AND_WEIGHT
        } else {
            1
        }
    }

    /// Whether the whole text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut characters = text.chars();
        for unit in &self.first {
            if !characters.next().is_some_and(|character| unit.admits(character)) {
                return false;
            }
        }
        let mut left = characters.as_str();
        let Some(rest) = &self.rest else { return left.is_empty() };
        let mut backwards = left.chars();
        for unit in rest.last.iter().rev() {
            if !backwards.next_back().is_some_and(|character| unit.admits(character)) {
                return false;
            }
        }
        left = backwards.as_str();
        for piece in &rest.floating {
            let Some(behind) = piece.find(left) else { return false };
            left = behind;
        }
        true
    }
}

impl Unit {
    fn admits(self, character: char) -> bool {
        match self {
            Unit::Exactly(wanted) => wanted == character,
            Unit::AnyOne => true,
        }
    }
}

impl Floating {
    fn new(piece: &[Unit]) -> Result<Floating, String> {
        let plain: Option<String> = piece
            .iter()
            .map(|unit| match unit {
                Unit::Exactly(character) => Some(*character),
                Unit::AnyOne => None,
            })
            .collect();
        if let Some(text) = plain {
            return Ok(Floating::Plain(text.into()));
        }
        if piece.len() > FLOATING_CHARACTERS_MAX {
            return Err(format!(
                "more than {FLOATING_CHARACTERS_MAX} characters with _ among them between two %"
            ));
        }
        let mut mask = (Vec::<(char, u64)>::new(), 0_u64);
        let mut bit = 1_u64;
        let mut accept = 0;
        for unit in piece {
            match unit {
                Unit::AnyOne => mask.1 |= bit,
                Unit::Exactly(character) => {
                    match mask.0.iter_mut().find(|(known, _)| known == character) {
                        Some((_, places)) => *places |= bit,
                        None => mask.0.push((*character, bit)),
                    }
                }
            }
            accept = bit;
            bit = bit.wrapping_shl(1);
        }
        mask.0.sort_unstable();
        Ok(Floating::Masked(Mask { places: mask.0.into(), any: mask.1, accept }))
    }

    /// What follows the leftmost match of the piece in a text.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Floating::Plain(piece) => text.split_once(&**piece).map(|(_, behind)| behind),
            Floating::Masked(mask) => {
                let mut state = 0_u64;
                let mut characters = text.chars();
                while let Some(character) = characters.next() {
                    let found = mask.places.binary_search_by_key(&character, |(known, _)| *known);
                    let places = found.ok().and_then(|index| mask.places.get(index));
                    let admits = mask.any | places.map_or(0, |(_, places)| *places);
                    state = ((state << 1) | 1) & admits;
                    if state & mask.accept != 0 {
                        return Some(characters.as_str());
                    }
                }
                None
            }
        }
    }
}

/// The pattern cut at its `%` signs; at least one piece.
fn pieces(pattern: &str, escape: Option<char>) -> Result<Vec<Vec<Unit>>, String> {
    let mut done = Vec::new();
    let mut piece = Vec::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == escape {
            match characters.next() {
                Some(next) if next == '%' || next == '_' || Some(next) == escape => {
                    piece.push(Unit::Exactly(next));
                }
                Some(_) | None => {
                    return Err(format!(
                        "escape character '{character}' must stand before %, _ or itself"
                    ));
                }
            }
            continue;
        }
        match character {
            '%' => done.push(std::mem::take(&mut piece)),
            '_' => piece.push(Unit::AnyOne),
            other => piece.push(Unit::Exactly(other)),
        }
    }
    done.push(piece);
    Ok(done)
}
