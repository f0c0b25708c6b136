//! A statement's text to words, quoted strings and parentheses.

use winnow::combinator::{alt, delimited, repeat};
use winnow::prelude::*;
use winnow::token::{one_of, take_till, take_while};

use super::{Fault, STATEMENT_BYTES_MAX};

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Text outside quotes, in upper case.
    Word(String),
    /// Text inside quotes, as it is, quotes undoubled.
    Quoted(String),
    /// `(`
    Open,
    /// `)`
    Close,
}

/// A token and the byte at which it starts.
#[derive(Clone, Debug)]
pub(super) struct TokenAt {
    pub(super) token: Token,
    pub(super) position: usize,
}

/// The tokens of a statement.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) tokens: Vec<TokenAt>,
    /// Where the text ends.
    pub(super) end: usize,
}

pub(super) fn tokens(text: &str) -> Result<Tokens, Fault> {
    if text.len() > STATEMENT_BYTES_MAX {
        return Err(Fault::new(
            STATEMENT_BYTES_MAX,
            format!("the command is longer than {STATEMENT_BYTES_MAX} bytes"),
        ));
    }
    let mut rest = text;
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start();
        let position = text.len().saturating_sub(rest.len());
        let Some(first) = rest.chars().next() else {
            return Ok(Tokens { tokens: found, end: text.len() });
        };
        let token: Result<Token, ()> = alt((quoted, word, sign)).parse_next(&mut rest);
        let token = token.map_err(|()| {
            Fault::new(
                position,
                match first {
                    '\'' => "text without a closing quote (')".into(),
                    other => format!("character {other:?} is not allowed here"),
                },
            )
        })?;
        found.push(TokenAt { token, position });
    }
}

fn is_word(character: char) -> bool {
    !character.is_whitespace() && !character.is_control() && !"()',;\"".contains(character)
}

fn word(rest: &mut &str) -> Result<Token, ()> {
    let word: &str = take_while(1.., is_word).parse_next(rest)?;
    Ok(Token::Word(word.to_ascii_uppercase()))
}

fn sign(rest: &mut &str) -> Result<Token, ()> {
    alt((one_of('(').value(Token::Open), one_of(')').value(Token::Close))).parse_next(rest)
}

/// Text between single quotes; two of them within stand for one. Two strings that touch are such a
/// text, so one or more parts joined by a quote are it.
fn quoted(rest: &mut &str) -> Result<Token, ()> {
    let part = delimited('\'', take_till(0.., '\''), '\'');
    let parts: Vec<&str> = repeat(1.., part).parse_next(rest)?;
    Ok(Token::Quoted(parts.join("'")))
}
