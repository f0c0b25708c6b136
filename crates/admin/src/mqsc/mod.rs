//! MQSC: text to commands. Carries nothing out.
//!
//! Reading order: `statement` (lines to statements: comments, continuation), `token` (statements to
//! words), `clause` (words to `NAME(value)`), `command` (clauses to [`Command`], by the table of
//! [`crate::attributes`]), `suggest` ("did you mean").
//!
//! As in IBM MQ: a line that starts with `*` is a comment; `+` at the end of a line goes on at the
//! first character of the next line that is not blank, `-` at its first column; `;` or the end of
//! the line ends a command; words and names are taken in upper case unless they stand in single
//! quotes, in which a quote is doubled.

mod clause;
mod command;
mod statement;
mod suggest;
#[cfg(test)]
mod tests;
mod token;

use std::fmt;

pub use statement::{Reader, Statement};

use crate::command::Command;

/// Longest script in bytes.
pub const SCRIPT_BYTES_MAX: usize = 1024 * 1024;
/// Longest statement in bytes, continuation lines together. IBM MQ has 32,762 characters.
pub const STATEMENT_BYTES_MAX: usize = 32_762;

/// A statement that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line of the text, from 1.
    pub line: usize,
    /// Character in that line, from 1.
    pub column: usize,
    /// What was found, what was expected, and perhaps what was meant.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// A fault inside one statement, before its position in the script is known.
#[derive(Clone, Debug)]
struct Fault {
    /// Byte of the statement's text.
    position: usize,
    message: String,
}

impl Fault {
    fn new(position: usize, message: impl Into<String>) -> Fault {
        Fault { position, message: message.into() }
    }
}

/// Reads one statement.
///
/// # Errors
/// The first thing that is not MQSC, or that Towline does not support, with its position.
pub fn parse(statement: &Statement) -> Result<Command, SyntaxError> {
    let tokens = token::tokens(statement.text());
    let command = tokens.and_then(clause::clauses).and_then(command::command);
    command.map_err(|fault| {
        let statement::TextPosition { line, column } = statement.place(fault.position);
        SyntaxError { line, column, message: fault.message }
    })
}
