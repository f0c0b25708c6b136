//! Lines to statements: comments are dropped, continued lines joined, `;` ends a statement.
//!
//! Invariant: a statement knows for each of its bytes in which line and column it stood.

use super::STATEMENT_BYTES_MAX;

/// Where something is in a text: both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPosition {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// One command's text, ready to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    text: String,
    /// Pieces of lines that were joined, in order.
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Byte of the statement's text at which it starts.
    start: usize,
    /// Line of the script, from 1.
    line: usize,
    /// Characters before it in that line.
    column: usize,
}

/// How a line goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    /// It does not.
    None,
    /// `+`: at the next line's first character that is not blank.
    SkipBlanks,
    /// `-`: at the next line's first column.
    KeepBlanks,
}

/// Collects lines into statements.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Lines read so far.
    line: usize,
    /// What continued lines have given so far.
    open: Option<(Statement, Continuation)>,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

impl Reader {
    /// A reader before its first line.
    #[must_use]
    pub fn new() -> Reader {
        Reader { line: 0, open: None }
    }

    /// Takes one line without its line end; gives the statements that it completes.
    pub fn line(&mut self, line: &str) -> Vec<Statement> {
        self.line = self.line.saturating_add(1);
        let line = line.trim_end();
        // Neither ends a statement that goes on.
        if line.is_empty() || line.trim_start().starts_with('*') {
            return Vec::new();
        }
        let (mut statement, before) =
            self.open.take().unwrap_or((Statement::default(), Continuation::SkipBlanks));
        let (content, after) = match (line.strip_suffix('+'), line.strip_suffix('-')) {
            (Some(content), _) => (content, Continuation::SkipBlanks),
            (None, Some(content)) => (content, Continuation::KeepBlanks),
            (None, None) => (line, Continuation::None),
        };
        let kept = match before {
            Continuation::SkipBlanks | Continuation::None => content.trim_start(),
            Continuation::KeepBlanks => content,
        };
        let skipped = content.len().saturating_sub(kept.len());
        let column = content.get(..skipped).unwrap_or("").chars().count();
        statement.pieces.push(Piece { start: statement.text.len(), line: self.line, column });
        // A statement that is too long is refused by the parser; it need not be kept whole.
        if statement.text.len() <= STATEMENT_BYTES_MAX {
            statement.text.push_str(kept);
        }
        if after != Continuation::None {
            self.open = Some((statement, after));
            return Vec::new();
        }
        statement.split()
    }

    /// What is left when the text ends in the middle of a continued statement.
    pub fn finish(&mut self) -> Vec<Statement> {
        self.open.take().map_or_else(Vec::new, |(statement, _)| statement.split())
    }

    /// Whether the next line continues a statement.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.open.is_some()
    }

    /// All statements of a text.
    #[must_use]
    pub fn all(text: &str) -> Vec<Statement> {
        let mut reader = Reader::new();
        let mut statements = Vec::new();
        for line in text.lines() {
            statements.extend(reader.line(line));
        }
        statements.extend(reader.finish());
        statements
    }
}

impl Statement {
    /// The text, without comments and continuation.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte of the text.
    pub(super) fn place(&self, position: usize) -> TextPosition {
        let index = self.pieces.partition_point(|piece| piece.start <= position);
        let Some(piece) = self.pieces.get(index.saturating_sub(1)) else {
            return TextPosition { line: 1, column: 1 };
        };
        let before = self.text.get(piece.start..position).unwrap_or("").chars().count();
        let column = piece.column.saturating_add(before).saturating_add(1);
        TextPosition { line: piece.line, column }
    }

    /// Cuts at each `;` outside quotes; drops what is blank.
    fn split(self) -> Vec<Statement> {
        let mut cuts = vec![0];
        let mut quoted = false;
        for (position, byte) in self.text.bytes().enumerate() {
            match byte {
                b'\'' => quoted = !quoted,
                b';' if !quoted => cuts.push(position.saturating_add(1)),
                _ => {}
            }
        }
        let ends = cuts.iter().skip(1).copied().chain([self.text.len().saturating_add(1)]);
        let parts = cuts.iter().copied().zip(ends);
        parts.filter_map(|(start, end)| self.part(start, end.saturating_sub(1))).collect()
    }

    /// The bytes from `start` up to `end` as a statement, blanks at both ends dropped.
    fn part(&self, start: usize, end: usize) -> Option<Statement> {
        let text = self.text.get(start..end)?;
        let blanks = text.len().saturating_sub(text.trim_start().len());
        let start = start.saturating_add(blanks);
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let TextPosition { line, column } = self.place(start);
        let first = Piece { start: 0, line, column: column.saturating_sub(1) };
        let later = self.pieces.iter().filter(|piece| piece.start > start && piece.start < end);
        let moved = later.map(|piece| Piece { start: piece.start.saturating_sub(start), ..*piece });
        Some(Statement { text: text.into(), pieces: std::iter::once(first).chain(moved).collect() })
    }
}
