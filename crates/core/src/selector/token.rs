//! Tokens of a selector. Does not know which token may follow which: that is `parse`.
//!
//! Literals follow Jakarta Messaging 3.1, 3.8.1.1: exact numbers as Java writes integers (decimal,
//! `0x`, leading `0` for octal, suffix `L`), approximate ones as Java and SQL write them (`7E3`,
//! `.5`, `7.`, suffix `D` or `F`), strings in single quotes with the quote doubled.

use winnow::ascii::{digit0, hex_digit1};
use winnow::combinator::opt;
use winnow::prelude::*;
use winnow::token::{any, one_of, take_till, take_while};

use super::SelectorError;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A property's name.
    Name(&'t str),
    /// A reserved word.
    Word(Word),
    /// A string, quotes undoubled.
    Text(String),
    /// An exact number without its sign; up to 2^63, because the sign comes apart.
    Exact(u64),
    /// An approximate number without its sign.
    Approximate(f64),
    /// Punctuation and operators.
    Sign(Sign),
}

/// Reserved words; upper or lower case means the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    And,
    Between,
    Escape,
    False,
    In,
    Is,
    Like,
    Not,
    Null,
    Or,
    True,
}

/// Punctuation and operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Open,
    Close,
    Comma,
    Plus,
    Minus,
    Times,
    Divide,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A token and the byte at which it starts.
#[derive(Clone, Debug)]
pub(super) struct TokenAt<'t> {
    pub(super) token: Token<'t>,
    pub(super) position: usize,
}

const WORDS: [(&str, Word); 11] = [
    ("AND", Word::And),
    ("BETWEEN", Word::Between),
    ("ESCAPE", Word::Escape),
    ("FALSE", Word::False),
    ("IN", Word::In),
    ("IS", Word::Is),
    ("LIKE", Word::Like),
    ("NOT", Word::Not),
    ("NULL", Word::Null),
    ("OR", Word::Or),
    ("TRUE", Word::True),
];

/// All tokens of a text, in order.
pub(super) fn tokens(text: &str) -> Result<Vec<TokenAt<'_>>, SelectorError> {
    let mut rest = text;
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start();
        let position = text.len().saturating_sub(rest.len());
        let Some(first) = rest.chars().next() else { return Ok(found) };
        let token =
            token(&mut rest, first).map_err(|message| SelectorError::new(position, message))?;
        found.push(TokenAt { token, position });
    }
}

/// One token; `first` is the first character of the rest, which is not white space.
fn token<'t>(rest: &mut &'t str, first: char) -> Result<Token<'t>, String> {
    let after = rest.get(first.len_utf8()..).unwrap_or("").chars().next();
    if first == '\'' {
        return string(rest).map(Token::Text);
    }
    if first == '"' {
        return quoted_name(rest);
    }
    if first.is_ascii_digit() || (first == '.' && after.is_some_and(|c| c.is_ascii_digit())) {
        return number(rest);
    }
    if is_name_start(first) {
        let name = matched(rest, take_while(1.., is_name_part));
        let word = WORDS.iter().find(|(text, _)| name.eq_ignore_ascii_case(text));
        return Ok(word.map_or(Token::Name(name), |(_, word)| Token::Word(*word)));
    }
    let sign = match (first, after) {
        ('<', Some('>')) => (Sign::NotEqual, 2),
        ('<', Some('=')) => (Sign::LessOrEqual, 2),
        ('>', Some('=')) => (Sign::GreaterOrEqual, 2),
        ('<', _) => (Sign::Less, 1),
        ('>', _) => (Sign::Greater, 1),
        ('=', _) => (Sign::Equal, 1),
        ('(', _) => (Sign::Open, 1),
        (')', _) => (Sign::Close, 1),
        (',', _) => (Sign::Comma, 1),
        ('+', _) => (Sign::Plus, 1),
        ('-', _) => (Sign::Minus, 1),
        ('*', _) => (Sign::Times, 1),
        ('/', _) => (Sign::Divide, 1),
        ('!', _) => return Err("'!' is not an operator; use <> or NOT".into()),
        (other, _) => return Err(format!("character {other:?} does not belong here")),
    };
    *rest = rest.get(sign.1..).unwrap_or("");
    Ok(Token::Sign(sign.0))
}

/// What a parser takes from the front: nothing when it does not match.
fn matched<'t, O>(rest: &mut &'t str, parser: impl Parser<&'t str, O, ()>) -> &'t str {
    let mut parser = opt(parser.take());
    let taken: Result<Option<&str>, ()> = parser.parse_next(rest);
    taken.ok().flatten().unwrap_or("")
}

/// Java's `Character.isJavaIdentifierStart`, nearly.
fn is_name_start(character: char) -> bool {
    character.is_alphabetic() || character == '_' || character == '$'
}

fn is_name_part(character: char) -> bool {
    is_name_start(character) || character.is_numeric()
}

/// A string in single quotes; two of them within stand for one.
fn string(rest: &mut &str) -> Result<String, String> {
    let mut text = String::new();
    loop {
        // The opening quote, or the second of a doubled one.
        matched(rest, one_of('\''));
        text.push_str(matched(rest, take_till(0.., '\'')));
        if matched(rest, one_of('\'')).is_empty() {
            return Err("string without its closing quote (')".into());
        }
        if !rest.starts_with('\'') {
            return Ok(text);
        }
        text.push('\'');
    }
}

/// A property's name in double quotes.
fn quoted_name<'t>(rest: &mut &'t str) -> Result<Token<'t>, String> {
    matched(rest, one_of('"'));
    let name = matched(rest, take_till(0.., '"'));
    if matched(rest, one_of('"')).is_empty() {
        return Err("name without its closing quote (\")".into());
    }
    if name.is_empty() { Err("empty name".into()) } else { Ok(Token::Name(name)) }
}

/// A number without a sign. Letters right behind it are a fault, not a new token.
fn number<'t>(rest: &mut &'t str) -> Result<Token<'t>, String> {
    let whole = *rest;
    let token = if matched(rest, ('0', one_of(['x', 'X']))).is_empty() {
        decimal(rest)
    } else {
        let digits = matched(rest, hex_digit1::<&str, ()>);
        matched(rest, one_of(['l', 'L']));
        exact(digits, 16)
    };
    let trailing: Result<char, ()> = any.parse_peek(*rest).map(|(_, character)| character);
    let ends = trailing.is_ok_and(|character| !is_name_part(character) && character != '.');
    if ends || rest.is_empty() {
        return token;
    }
    let length = whole.len().saturating_sub(rest.len());
    Err(format!("'{}' runs into what follows it", whole.get(..length).unwrap_or(whole)))
}

/// A number that does not start with `0x`.
fn decimal<'t>(rest: &mut &'t str) -> Result<Token<'t>, String> {
    let digits = matched(rest, digit0::<&str, ()>);
    let fraction = matched(rest, ('.', digit0::<&str, ()>));
    let exponent =
        matched(rest, (one_of(['e', 'E']), opt(one_of(['+', '-'])), winnow::ascii::digit1));
    let approximate = !fraction.is_empty() || !exponent.is_empty();
    if !matched(rest, one_of(['d', 'D', 'f', 'F'])).is_empty() || approximate {
        let text = format!("{digits}{fraction}{exponent}");
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Token::Approximate(value)),
            Ok(_) | Err(_) => Err(format!("{text} is out of the range of a double")),
        };
    }
    matched(rest, one_of(['l', 'L']));
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => exact(octal, 8),
        Some(_) | None => exact(digits, 10),
    }
}

/// An exact number from its digits; at most 2^63.
fn exact<'t>(digits: &str, radix: u32) -> Result<Token<'t>, String> {
    match u64::from_str_radix(digits, radix) {
        Ok(value) if value <= i64::MIN.unsigned_abs() => Ok(Token::Exact(value)),
        Ok(_) => Err(format!("{digits} is out of the range of a long")),
        Err(_) if radix == 8 && digits.bytes().any(|digit| digit > b'7') => {
            Err(format!("0{digits} is not octal; numbers that start with 0 are"))
        }
        Err(_) if digits.is_empty() => Err("0x without digits".into()),
        Err(_) => Err(format!("{digits} is out of the range of a long")),
    }
}
