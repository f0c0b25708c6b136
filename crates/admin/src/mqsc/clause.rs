//! Words to clauses: `NAME`, `NAME(value)`, `NAME(value value value)`. Knows no name.

use super::Fault;
use super::token::{Token, TokenAt, Tokens};

/// One clause of a statement.
#[derive(Clone, Debug)]
pub(super) struct Clause {
    /// In upper case.
    pub(super) name: String,
    /// Where the name starts.
    pub(super) position: usize,
    /// What stood in parentheses, if there were any.
    pub(super) values: Option<Vec<ClauseValue>>,
}

/// A value as it was given.
#[derive(Clone, Debug)]
pub(super) struct ClauseValue {
    /// In upper case unless it stood in quotes.
    pub(super) text: String,
    /// Where it starts.
    pub(super) position: usize,
}

/// The clauses of a statement.
#[derive(Debug)]
pub(super) struct Clauses {
    pub(super) clauses: Vec<Clause>,
    /// Where its text ends.
    pub(super) end: usize,
}

pub(super) fn clauses(Tokens { tokens, end }: Tokens) -> Result<Clauses, Fault> {
    let mut tokens = tokens.into_iter().peekable();
    let mut clauses = Vec::new();
    while let Some(TokenAt { token, position }) = tokens.next() {
        let name = match token {
            Token::Word(name) => name,
            Token::Quoted(_) => {
                return Err(Fault::new(position, "expected a word, not text in quotes"));
            }
            Token::Open => {
                return Err(Fault::new(position, "expected a word before '('"));
            }
            Token::Close => return Err(Fault::new(position, "')' without '('")),
        };
        let values = match tokens.next_if(|placed| placed.token == Token::Open) {
            Some(open) => Some(values(&mut tokens, open.position)?),
            None => None,
        };
        clauses.push(Clause { name, position, values });
    }
    Ok(Clauses { clauses, end })
}

/// What stands between parentheses; the opening one is taken already.
fn values(
    tokens: &mut impl Iterator<Item = TokenAt>,
    open: usize,
) -> Result<Vec<ClauseValue>, Fault> {
    let mut values = Vec::new();
    for TokenAt { token, position } in tokens {
        match token {
            Token::Word(text) | Token::Quoted(text) => values.push(ClauseValue { text, position }),
            Token::Close => return Ok(values),
            Token::Open => {
                return Err(Fault::new(
                    position,
                    "'(' inside parentheses; put the value in quotes",
                ));
            }
        }
    }
    Err(Fault::new(open, "'(' without ')'"))
}

impl Clause {
    /// The one value of a clause that takes one.
    pub(super) fn value(&self) -> Result<&ClauseValue, Fault> {
        let name = &self.name;
        let behind = self.position.saturating_add(name.len());
        match self.values.as_deref() {
            None => Err(Fault::new(behind, format!("{name} needs a value: {name}(...)"))),
            Some([value]) => Ok(value),
            Some([]) => {
                Err(Fault::new(behind, format!("{name}() is empty; empty text is {name}('')")))
            }
            Some([_, second, ..]) => Err(Fault::new(
                second.position,
                format!("{name} takes one value; put text with blanks in quotes"),
            )),
        }
    }

    /// Refuses a value behind a clause that takes none.
    pub(super) fn no_value(&self) -> Result<(), Fault> {
        match &self.values {
            None => Ok(()),
            Some(_) => {
                let behind = self.position.saturating_add(self.name.len());
                Err(Fault::new(behind, format!("{} takes no value", self.name)))
            }
        }
    }
}
